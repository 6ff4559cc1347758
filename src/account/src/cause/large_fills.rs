//! Large buffers are filled in each step.
//!
//! The signature is the class: fill kernels (`torch.zeros`, `cp.zeros`) and memsets that are no run
//! of gradients. A fill writes all its bytes. Where the next kernel writes the whole buffer, it is
//! for nothing; where only parts are written, it is not, so the gain is a bound.

use rgpu_model::account::AccountCause;

use super::picked::{Changes, Framework, Picked, lanes};
use super::{Found, gradient_fills};
use crate::view::View;

/// A smaller part of a step is usual.
const MIN_SHARE: f64 = 0.02;
/// A fill of less is bound by its launch.
const MIN_FILL_NS: u64 = 5_000;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let gradients: std::collections::BTreeSet<u32> =
        gradient_fills::fills(view).into_iter().collect();
    let lanes = lanes(view);
    let large = lanes.iter().flatten().filter(|(at, work)| {
        work.duration_ns >= MIN_FILL_NS
            && view.class(work) == AccountCause::Fill
            && !gradients.contains(at)
    });
    let fills = Picked::new(view, large.map(|(at, _)| *at).collect());
    if fills.share() < MIN_SHARE {
        return None;
    }
    let hint = match Framework::of(view) {
        Framework::Torch => {
            "`torch.empty` where every element is written afterwards; keep a buffer over the steps \
             in place of a new `torch.zeros`"
        }
        Framework::Cupy => "`cp.empty` where every element is written afterwards, and keep buffers",
        Framework::Jax => "let the first operation write the buffer, and donate it",
        Framework::Plain => {
            "fill only what the next kernel does not write, or let that kernel write it"
        }
    };
    let changes = Changes::new(view);
    Some(Found {
        change: "do not fill what is written anyway".to_owned(),
        text: format!("fills of large buffers take {}", fills.words()),
        hint: hint.to_owned(),
        least: changes.scaled(&fills.at, 0.8),
        most: changes.without(&fills.at, 0.5),
        work: fills.at.clone(),
        is_bound: true,
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn a_large_fill_is_found_and_gradients_are_told_elsewhere() {
        let step = StepScript::new().kernel(names::PRODUCT, 500.0);
        let fault = step.clone().set(1 << 28, 80.0).play(3);
        assert!((fault.removed_ns(&fault.look(find).unwrap().most) - 80_000.0).abs() < 1.0);
        assert!(step.clone().kernels(12, names::FILL, 8.0).play(3).look(find).is_none());
        assert!(step.set(64, 1.0).play(3).look(find).is_none());
    }
}
