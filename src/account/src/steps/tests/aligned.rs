//! Loops that change from step to step.

use rgpu_model::account::StepSource;

use super::maker::{Dice, Maker};
use super::{count, first_name, steps};

/// A batch whose shape chooses the kernels of its products, and how many parts it has.
fn batch(maker: &mut Maker, dice: &mut Dice) {
    maker.copy("HtoD", 1 << (18 + dice.below(4)), 30_000);
    maker.kernel("embed", 10_000);
    for _ in 0..6 {
        let product = format!("product{}", dice.below(4));
        for part in ["norm", product.as_str(), "gelu", "add"] {
            maker.kernel(part, 15_000 + dice.below(9_000));
        }
        for _ in 0..dice.below(2) {
            maker.kernel("fill", 1_000);
        }
    }
    maker.kernel("loss", 10_000);
}

#[test]
fn input_marks_steps_of_changing_shape() {
    let mut dice = Dice::new(3);
    let mut maker = Maker::default();
    for _ in 0..40 {
        batch(&mut maker, &mut dice);
    }
    let steps = steps(&maker);
    assert_eq!(steps.time.count, 39);
    assert_eq!(first_name(&maker, &steps), "HtoD");
}

#[test]
fn a_rare_kernel_marks_steps_of_changing_shape() {
    let mut dice = Dice::new(4);
    let mut maker = Maker::default();
    for _ in 0..60 {
        maker.kernel("begin", 5_000);
        for _ in 0..8 {
            let product = format!("product{}", dice.below(3));
            for part in ["norm", product.as_str(), "gelu", "gelu", "add", "add"] {
                maker.kernel(part, 10_000);
            }
        }
        for _ in 0..dice.below(3) {
            maker.kernel("fill", 1_000);
        }
    }
    let steps = steps(&maker);
    assert_eq!(steps.time.count, 59);
    assert!((49..=52).contains(&steps.time.work));
}

#[test]
fn waits_mark_steps_where_nothing_else_does() {
    let mut dice = Dice::new(9);
    let mut maker = Maker::default();
    for _ in 0..50 {
        for _ in 0..30 + dice.below(12) {
            let name = ["a", "a", "b"][dice.below(3) as usize];
            maker.kernel(name, 10_000);
        }
        maker.wait();
    }
    let steps = steps(&maker);
    assert_eq!(steps.time.found_by, StepSource::Waits);
    assert!((46..=49).contains(&steps.time.count), "{:?}", count(&steps));
}
