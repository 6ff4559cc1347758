//! Kernels that only change the type of numbers: of weights under autocast, of activations around
//! norms and losses, of arrays that NumPy's rules promote.
//!
//! The signature is the name: torch converts with `bfloat16_copy_kernel_cuda` and its like, or with
//! a copy that loads and stores with a cast; XLA and CuPy name the operation. A weight that is cast
//! anew in each step costs 6 bytes an element. Where all tensors of a layer have one type, no cast
//! is left; a norm or a loss that stays in FP32 keeps some, so the lower end keeps 40 %.

use std::collections::BTreeMap;

use rgpu_model::account::AccountCause;

use super::Found;
use super::picked::{Changes, Framework, Picked};
use super::words::{short_name, time};
use crate::view::View;

/// The part of the casts that is left where norms and losses stay in FP32.
const KEPT_SHARE: f64 = 0.4;
/// Casts of one size in a step from which on they may be of one tensor.
const LEAST_REPEATS: f64 = 8.0;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let casts = Picked::find(view, |work| view.class(work) == AccountCause::Cast);
    if !casts.matters() {
        return None;
    }
    let hint = match Framework::of(view) {
        Framework::Torch => {
            "keep the weights in the type that the products use: `model.to(torch.bfloat16)`, with \
             FP32 only in the optimizer; or one `torch.autocast(\"cuda\", torch.bfloat16)` around \
             the whole forward pass, its loops and loss, which casts each weight once (leaving it \
             empties its cache); `torch.compile` fuses what is left"
        }
        Framework::Jax => {
            "keep parameters and activations in one dtype (`param_dtype=jnp.bfloat16`, \
             `dtype=jnp.bfloat16`), and pass no NumPy float64 into the step"
        }
        Framework::Cupy => {
            "give all arrays one dtype where they are made (`cp.asarray(x, dtype=cp.float32)`), so \
             that no expression converts"
        }
        Framework::Plain => "store the data in the type that the next kernel reads",
    };
    let changes = Changes::new(view);
    Some(Found {
        change: "keep tensors in one type".to_owned(),
        text: format!("casts between types take {}{}", casts.words(), repeated(view, &casts)),
        hint: hint.to_owned(),
        least: changes.scaled(&casts.at, KEPT_SHARE),
        most: changes.without(&casts.at, 0.5),
        work: casts.at,
        ..Found::default()
    })
}

/// Large casts of one size that come again and again in a step: perhaps of one tensor.
fn repeated(view: &View<'_>, casts: &Picked<'_, '_>) -> String {
    let mut times: BTreeMap<(u32, u32), (usize, u64)> = BTreeMap::new();
    for work in casts.at.iter().filter_map(|at| view.trace.work.get(*at as usize)) {
        if let Some(shape) = work.shape {
            let sum = times.entry((work.name, shape)).or_default();
            *sum = (sum.0.saturating_add(1), sum.1.saturating_add(work.duration_ns));
        }
    }
    let most = times.into_iter().max_by_key(|(_, (_, ns))| *ns);
    let Some(((name, _), (count, ns))) = most else { return String::new() };
    let (count, steps) = (count as f64, view.step_count());
    if count < LEAST_REPEATS * steps || ns as f64 * 3.0 < casts.ns() * steps {
        return String::new();
    }
    let name = view.trace.names.get(name as usize).map_or("", String::as_str);
    format!(
        "; {:.0} of them a step are of one size (`{}`, {} each), as when one tensor is cast again \
         for each use",
        count / steps,
        short_name(name),
        time(ns as f64 / count)
    )
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn casts_of_weights_before_each_product_are_found() {
        let step = |cast_us| {
            let layer =
                |step: StepScript| step.kernel(names::CAST, cast_us).kernel(names::PRODUCT, 100.0);
            layer(layer(StepScript::new())).play(4)
        };
        let window = step(25.0);
        let found = window.look(find).unwrap();
        assert_eq!(found.work.len(), 6);
        assert!((window.removed_ns(&found.most) - 50_000.0).abs() < 1.0);
        assert!((window.removed_ns(&found.least) - 30_000.0).abs() < 1.0);
        assert!(found.text.contains("2 launches"), "{}", found.text);
        assert!(found.hint.contains("bfloat16"));
        // Less than one per cent of the step.
        assert!(step(0.5).look(find).is_none());
    }
}
