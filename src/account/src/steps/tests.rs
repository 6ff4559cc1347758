//! Synthetic programs whose steps are known.

mod aligned;
mod any;
mod maker;
mod marked;
mod period;

use maker::Maker;
use rgpu_model::account::StepSource;

use super::{Steps, find};

fn steps(maker: &Maker) -> Steps {
    let steps = found(maker).expect("nothing repeats");
    sane(&steps, maker.order.len());
    steps
}

fn found(maker: &Maker) -> Option<Steps> {
    find(&maker.trace, &maker.order)
}

/// What holds of all steps.
fn sane(steps: &Steps, work: usize) {
    let (all, window) = (&steps.all, &steps.window);
    assert!(all.len() >= 3);
    assert_eq!(steps.time.count, all.len() as u64);
    assert!(!window.is_empty() && window.end < all.len(), "{window:?} of {}", all.len());
    assert!(window.len() <= 8);
    assert!(all.iter().all(|step| !step.work.is_empty() && step.start_ns <= step.end_ns));
    for pair in all.windows(2) {
        assert_eq!(pair[0].end_ns, pair[1].start_ns);
    }
    assert!(all.iter().map(|step| step.work.len()).sum::<usize>() <= work);
    assert!((0.0..=1.0).contains(&steps.time.match_share));
    assert!(steps.time.low_ns <= steps.time.median_ns);
    assert!(steps.time.median_ns <= steps.time.high_ns);
    let starts = all[window.clone()].iter().map(|step| step.start_ns);
    assert!(starts.collect::<Vec<_>>().contains(&steps.time.shown_start_ns));
    assert!(steps.time.outliers.len() <= 5);
}

/// How many steps of how many launches.
fn count(steps: &Steps) -> (u64, u64) {
    (steps.time.count, steps.time.work)
}

fn first_name<'m>(maker: &'m Maker, steps: &Steps) -> &'m str {
    maker.name(steps.all[steps.window.start].work[0])
}

#[test]
fn nothing_is_no_step() {
    assert_eq!(found(&Maker::default()), None);
    let mut maker = Maker::default();
    maker.kernel("a", 5_000);
    maker.kernel("b", 5_000);
    assert_eq!(found(&maker), None);
}

#[test]
fn work_that_is_not_there_is_left_out() {
    let mut maker = Maker::default();
    for _ in 0..20 {
        maker.kernel("a", 5_000);
        maker.kernel("b", 5_000);
    }
    maker.order.push(u32::MAX);
    assert_eq!(count(&steps(&maker)), (20, 2));
}

#[test]
fn shows_a_typical_step_and_names_the_outlier() {
    let mut maker = Maker::default();
    for step in 0..40 {
        maker.copy("HtoD", 1 << 20, 20_000);
        maker.kernel("a", 50_000);
        maker.kernel("b", if step == 30 { 900_000 } else { 50_000 });
        if step == 12 {
            maker.call("cudaMalloc", 2_000_000);
        }
        maker.wait();
    }
    let steps = steps(&maker);
    assert_eq!(count(&steps), (40, 3));
    let outliers = &steps.time.outliers;
    let named: Vec<_> = outliers.iter().map(|o| (o.step, o.name.as_str())).collect();
    assert_eq!(named, [(12, "cudaMalloc"), (30, "b")]);
    assert!(!steps.window.contains(&12) && !steps.window.contains(&30));
    assert!(steps.window.start >= 4);
    assert_eq!(steps.window.len(), 8);
    assert_eq!(steps.time.shown_ns, steps.time.median_ns);
}

#[test]
fn a_window_holds_few_large_steps() {
    let mut maker = Maker::default();
    for _ in 0..5 {
        maker.copy("HtoD", 1 << 20, 20_000);
        for at in 0..25_000 {
            maker.kernel(["a", "b", "c"][at % 3], 1_000);
        }
        maker.wait();
    }
    let steps = steps(&maker);
    assert_eq!(count(&steps), (5, 25_001));
    assert_eq!(steps.window.len(), 2);
    assert_eq!(steps.time.found_by, StepSource::Period);
}
