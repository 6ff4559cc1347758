//! Programs with ranges.

use rgpu_model::account::StepSource;

use super::maker::Maker;
use super::{count, steps};

fn forward(maker: &mut Maker, layers: u32) {
    maker.kernel("embed", 5_000);
    for layer in 0..layers {
        maker.range(&format!("layer_{layer}"), 1, |maker| {
            for part in ["norm", "product", "gelu", "product"] {
                maker.kernel(part, 10_000);
            }
        });
    }
    maker.kernel("head", 20_000);
}

#[test]
fn the_steps_of_a_framework_win() {
    let mut maker = Maker::default();
    maker.kernel("warm", 5_000);
    for step in 0..20 {
        maker.range(&format!("ProfilerStep#{step}"), 0, |maker| forward(maker, 12));
    }
    let steps = steps(&maker);
    assert_eq!(steps.time.found_by, StepSource::Range);
    assert_eq!(steps.time.name.as_deref(), Some("ProfilerStep"));
    assert_eq!(count(&steps), (20, 50));
}

#[test]
fn a_step_wins_over_epochs_around_it() {
    let mut maker = Maker::default();
    for _ in 0..3 {
        maker.range("epoch", 0, |maker| {
            for _ in 0..10 {
                maker.range("train_step", 1, |maker| maker.kernel("a", 30_000));
            }
        });
    }
    let steps = steps(&maker);
    assert_eq!(steps.time.name.as_deref(), Some("train_step"));
    assert_eq!(count(&steps), (30, 1));
}

#[test]
fn the_period_wins_over_ranges_of_layers() {
    let mut maker = Maker::default();
    for _ in 0..15 {
        forward(&mut maker, 12);
    }
    let steps = steps(&maker);
    assert_eq!(steps.time.found_by, StepSource::Period);
    assert_eq!(count(&steps), (15, 50));
}

#[test]
fn ranges_of_a_library_mark_no_steps() {
    let mut maker = Maker::default();
    for _ in 0..30 {
        maker.kernel("a", 30_000);
        for _ in 0..4 {
            maker.range("CCCL@cub::DeviceReduce::Sum", 0, |maker| maker.kernel("sum", 90_000));
        }
        maker.kernel("b", 30_000);
    }
    let steps = steps(&maker);
    assert_eq!(steps.time.found_by, StepSource::Period);
    assert_eq!(count(&steps), (30, 6));
}

#[test]
fn work_after_the_start_of_a_range_is_in_its_step() {
    let mut maker = Maker::default();
    for _ in 0..10 {
        maker.range("step", 0, |maker| maker.kernel("a", 30_000));
        maker.kernel("after", 5_000);
    }
    let steps = steps(&maker);
    assert_eq!(steps.all[4].work.len(), 2);
    assert_eq!(maker.name(steps.all[4].work[0]), "a");
}

#[test]
fn a_name_that_only_looks_like_a_step_is_none() {
    let mut maker = Maker::default();
    for _ in 0..15 {
        for _ in 0..3 {
            maker.range("criterion", 0, |maker| maker.kernel("loss", 60_000));
        }
        maker.kernel("rest", 30_000);
    }
    let steps = steps(&maker);
    assert_eq!(steps.time.found_by, StepSource::Period);
    assert_eq!(count(&steps), (15, 4));
}

#[test]
fn a_module_of_a_compiler_is_shown_by_its_name() {
    let mut maker = Maker::default();
    for _ in 0..9 {
        maker.range("TSL@XlaModule:#hlo_module=jit_step,program_id=86#", 0, |maker| {
            maker.kernel("a", 30_000);
            maker.kernel("b", 30_000);
        });
    }
    let steps = steps(&maker);
    assert_eq!(steps.time.name.as_deref(), Some("jit_step"));
    assert_eq!(count(&steps), (9, 2));
}
