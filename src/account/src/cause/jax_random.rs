//! JAX draws random numbers with threefry, which is arithmetic, as kernels of the step.
//!
//! JAX's usual generator runs 20 rounds of additions, rotations and xor for two numbers. XLA names
//! a fusion after its last operation, so these are `loop_xor_fusion`, `loop_shift_right…` and
//! kernels of threefry. The generator `rbg` uses the GPU's own instructions; what it leaves is a
//! tenth to a half. Its numbers differ for the same key.

use super::Found;
use super::picked::{Changes, Picked, has_name, names_that};
use crate::class::KernelFamily;
use crate::view::View;

/// A smaller part of a step is no matter of the generator.
const MIN_SHARE: f64 = 0.03;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let names = names_that(view, |name| {
        ["xor_fusion", "shift_right", "threefry", "ThreeFry"].iter().any(|w| name.contains(w))
    });
    let kernels =
        Picked::find(view, |work| has_name(&names, work) && view.family(work) == KernelFamily::Xla);
    if kernels.share() < MIN_SHARE {
        return None;
    }
    let changes = Changes::new(view);
    Some(Found {
        change: "use the generator `rbg`".to_owned(),
        text: format!("random numbers of the generator threefry take {}", kernels.words()),
        hint: "`jax.config.update(\"jax_default_prng_impl\", \"rbg\")` at the start, and draw all \
               numbers of a step at once"
            .to_owned(),
        least: changes.scaled(&kernels.at, 0.5),
        most: changes.scaled(&kernels.at, 0.1),
        work: kernels.at.clone(),
        decides: Some("the time of a step with the dropout or noise left out".to_owned()),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::StepScript;
    use super::*;

    #[test]
    fn threefry_is_found_where_it_takes_time() {
        let step =
            |us| StepScript::new().kernel("loop_xor_fusion", us).kernel("gemm_fusion_dot", 99.0);
        assert!(step(20.0).play(3).look(find).is_some());
        assert!(step(1.0).play(3).look(find).is_none());
    }
}
