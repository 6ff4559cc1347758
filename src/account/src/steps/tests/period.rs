//! Sequences with a period.

use rgpu_model::account::StepSource;

use super::maker::{Dice, Maker};
use super::{count, first_name, found, steps};

/// Kernels of a start-up that does not repeat.
fn startup(maker: &mut Maker, launches: u64) {
    let mut dice = Dice::new(5);
    for _ in 0..launches {
        let name = format!("start{}", dice.below(60));
        maker.kernel(&name, 3_000);
    }
}

/// A step of 1,219 launches of few kernels, some of them once.
fn long_step(maker: &mut Maker) {
    let mut dice = Dice::new(11);
    for at in 0..1_219 {
        let name = if at % 100 == 7 { format!("once{at}") } else { format!("k{}", dice.below(25)) };
        maker.kernel(&name, 4_000);
    }
}

#[test]
fn finds_the_exact_period_among_many_launches() {
    let mut maker = Maker::default();
    for _ in 0..5 {
        long_step(&mut maker);
    }
    let steps = steps(&maker);
    assert_eq!(count(&steps), (5, 1_219));
    assert_eq!(steps.time.match_share, 1.0);
    assert_eq!(steps.time.first_start_ns, maker.trace.work[0].start_ns);
}

#[test]
fn cuts_the_startup() {
    let mut maker = Maker::default();
    startup(&mut maker, 500);
    let first = maker.trace.work.len();
    for _ in 0..30 {
        maker.kernel("a", 40_000);
        for _ in 0..3 {
            maker.kernel("b", 20_000);
        }
        maker.kernel("c", 30_000);
    }
    let steps = steps(&maker);
    assert_eq!(count(&steps), (30, 5));
    assert_eq!(steps.time.first_start_ns, maker.trace.work[first].start_ns);
}

fn layers(maker: &mut Maker, layers: u32) {
    maker.copy("HtoD", 4_096, 2_000);
    maker.kernel("embed", 5_000);
    for _ in 0..layers {
        for part in ["norm", "qkv", "attention", "project", "norm", "up", "gelu", "down"] {
            maker.kernel(part, 10_000);
        }
    }
    maker.kernel("norm", 10_000);
    maker.kernel("head", 20_000);
    maker.kernel("argmax", 3_000);
    maker.copy("DtoH", 64, 2_000);
    maker.wait();
}

#[test]
fn layers_within_a_step_are_no_steps() {
    let mut maker = Maker::default();
    for _ in 0..12 {
        layers(&mut maker, 24);
    }
    let steps = steps(&maker);
    assert_eq!(count(&steps), (12, 24 * 8 + 6));
    assert_eq!(first_name(&maker, &steps), "HtoD");
}

#[test]
fn two_runs_over_layers_are_no_steps() {
    let mut maker = Maker::default();
    layers(&mut maker, 24);
    layers(&mut maker, 24);
    assert_eq!(found(&maker), None);
}

#[test]
fn equal_layers_make_a_step_where_the_host_waits() {
    let mut maker = Maker::default();
    for _ in 0..10 {
        for _ in 0..24 {
            maker.kernel("norm", 10_000);
            maker.kernel("product", 30_000);
        }
        maker.wait();
    }
    assert_eq!(count(&steps(&maker)), (10, 48));
}

#[test]
fn streams_make_a_step_of_equal_launches() {
    let mut maker = Maker::default();
    for _ in 0..50 {
        for stream in 1..=4 {
            maker.stream = stream;
            maker.kernel("relax", 30_000);
            maker.kernel("drift", 10_000);
        }
    }
    assert_eq!(count(&steps(&maker)), (50, 8));
}

fn train(maker: &mut Maker) {
    maker.copy("HtoD", 1 << 20, 30_000);
    for at in 0..20 {
        maker.kernel(&format!("forward{}", at % 7), 20_000);
    }
    for at in 0..20 {
        maker.kernel(&format!("backward{}", at % 7), 30_000);
    }
    maker.kernel("multi_tensor_apply_kernel<AdamFunctor>", 40_000);
}

fn evaluate(maker: &mut Maker) {
    for _ in 0..3 {
        maker.copy("HtoD", 1 << 20, 30_000);
        for at in 0..20 {
            maker.kernel(&format!("forward{}", at % 7), 20_000);
        }
        maker.kernel("accuracy", 5_000);
    }
}

#[test]
fn an_evaluation_now_and_then_is_no_part_of_the_step() {
    let mut maker = Maker::default();
    for step in 1..=100 {
        train(&mut maker);
        if step % 10 == 0 {
            evaluate(&mut maker);
        }
    }
    let steps = steps(&maker);
    assert_eq!(count(&steps), (100, 42));
    assert_eq!(first_name(&maker, &steps), "HtoD");
    assert!(steps.time.match_share < 0.99);
    let inside = &steps.all[steps.window.clone()];
    assert!(inside.iter().all(|step| step.work.len() == 42));
}

#[test]
fn two_loops_that_alternate_are_one_step() {
    let mut maker = Maker::default();
    for _ in 0..25 {
        for at in 0..30 {
            maker.kernel(&format!("generator{}", at % 5), 20_000);
        }
        for at in 0..12 {
            maker.kernel(&format!("critic{}", at % 5), 20_000);
        }
    }
    assert_eq!(count(&steps(&maker)), (25, 42));
}

#[test]
fn growing_work_repeats_by_name() {
    let mut maker = Maker::default();
    for step in 1..=60 {
        maker.kernel("project", 20_000);
        maker.kernel("cat", 500 * step);
        maker.kernel("attention", 5_000 + 400 * step);
        maker.kernel("sample", 8_000);
        maker.copy("DtoH", 8, 1_500);
        maker.wait();
    }
    let steps = steps(&maker);
    assert_eq!(count(&steps), (60, 5));
    assert_eq!(first_name(&maker, &steps), "project");
}

#[test]
fn one_kernel_is_a_step_by_itself() {
    let mut maker = Maker::default();
    for at in 0..805 {
        maker.kernel("render", 40_000);
        if at == 4 {
            maker.wait();
        }
    }
    let steps = steps(&maker);
    assert_eq!(count(&steps), (805, 1));
    assert_eq!(steps.time.median_ns, 40_000);
}

#[test]
fn one_kernel_is_cut_by_waits() {
    let mut maker = Maker::default();
    for _ in 0..40 {
        for _ in 0..16 {
            maker.kernel("render", 40_000);
        }
        maker.wait();
    }
    assert_eq!(count(&steps(&maker)), (40, 16));
}

#[test]
fn a_launch_between_steps_breaks_nothing() {
    let mut maker = Maker::default();
    for step in 0..30 {
        for at in 0..40 {
            maker.kernel(&format!("k{}", at % 9), 10_000);
        }
        if step == 14 {
            maker.kernel("odd", 2_000);
        }
    }
    let steps = steps(&maker);
    assert_eq!(count(&steps), (30, 40));
}

#[test]
fn the_longest_repetition_is_the_steps() {
    let mut maker = Maker::default();
    for _ in 0..50 {
        maker.kernel("tune_a", 2_000);
        maker.kernel("tune_b", 2_000);
    }
    let first = maker.trace.work.len();
    for _ in 0..40 {
        for part in ["a", "b", "c", "d"] {
            maker.kernel(part, 50_000);
        }
    }
    for _ in 0..30 {
        maker.kernel("check", 3_000);
    }
    let steps = steps(&maker);
    assert_eq!(count(&steps), (40, 4));
    assert_eq!(steps.time.first_start_ns, maker.trace.work[first].start_ns);
    assert_eq!(steps.time.found_by, StepSource::Period);
}

#[test]
fn something_slow_every_so_many_units_makes_the_step() {
    let mut maker = Maker::default();
    for _ in 0..15 {
        maker.pause(8_000_000);
        for _ in 0..40 {
            maker.kernel("a", 50_000);
            maker.kernel("b", 50_000);
            maker.kernel("c", 50_000);
        }
    }
    let steps = steps(&maker);
    assert_eq!(steps.time.work, 120);
    assert!(steps.time.median_ns > 8_000_000);
}

#[test]
fn shapes_that_change_now_and_then_change_no_step() {
    let mut maker = Maker::default();
    for shape in 0..15 {
        maker.shape = Some(shape);
        for at in 0..shape {
            maker.kernel(&format!("tune{shape}_{at}"), 5_000);
        }
        for _ in 0..40 {
            for part in ["a", "b", "a", "c", "sum"] {
                maker.kernel(part, 30_000);
            }
        }
    }
    let steps = steps(&maker);
    assert_eq!(count(&steps), (600, 5));
}

#[test]
fn random_launches_do_not_repeat() {
    for kinds in [2, 3, 20, 400] {
        let mut dice = Dice::new(kinds);
        let mut maker = Maker::default();
        for _ in 0..3_000 {
            let name = format!("k{}", dice.below(kinds));
            maker.kernel(&name, 10_000);
        }
        assert_eq!(found(&maker), None, "{kinds}");
    }
}

#[test]
fn work_that_never_comes_again_does_not_repeat() {
    let mut maker = Maker::default();
    for at in 0..2_000 {
        maker.kernel(&format!("k{at}"), 10_000);
    }
    assert_eq!(found(&maker), None);
}
