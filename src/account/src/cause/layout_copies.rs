//! Copies within the GPU that change the layout, or nothing: `contiguous`, `permute` with a kernel
//! that wants its input dense, concatenations, and plain copies of arrays.
//!
//! The signature is the class of the kernels (a copy functor without a cast, `CatArrayBatchedCopy`,
//! `cupy_copy` of one type, a transpose) and copies of the kind DtoD. Each reads and writes all its
//! bytes. Not every one can go: an operator may need its input dense. So the lower end keeps most
//! of them, and the upper end is a bound. Conversions for convolutions and copies that grow from
//! step to step are told by causes of their own.
//!
//! XLA copies an array whole (kind DtoD) before it writes into it, if the caller keeps the old one:
//! with the argument donated it writes in place, and all of these copies go.

use std::collections::BTreeSet;

use rgpu_model::account::AccountCause;

use super::picked::{Changes, Framework, Picked, has_name, names_that};
use super::{Found, conv_layout, growing_copies};
use crate::view::View;

/// The part of the copies that is left at the lower end.
const KEPT_SHARE: f64 = 0.7;

/// An array of less is copied for other reasons.
const LEAST_ARRAY_BYTES: u64 = 1_000_000;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let others = names_that(view, conv_layout::is_conversion);
    let growing = growing_copies::growing_names(view);
    let of_convolutions = conv_layout::breaks(view).map_or_else(Vec::new, |copies| copies.at);
    let of_convolutions: BTreeSet<u32> = of_convolutions.into_iter().collect();
    let mut copies = Picked::find(view, |work| {
        matches!(view.class(work), AccountCause::Layout | AccountCause::CopyDevice)
            && !has_name(&others, work)
            && !growing.contains(&work.name)
    });
    copies.at.retain(|at| !of_convolutions.contains(at));
    if !copies.matters() {
        return None;
    }
    if let Some(found) = kept_arguments(view, &copies) {
        return Some(found);
    }
    let hint = match Framework::of(view) {
        Framework::Torch => {
            "find the `.contiguous()`, `.clone()`, `torch.cat` or `permute` before these kernels: \
             choose the order of dimensions that the next operator reads, write parts into one \
             tensor made before (`out=`), or let `torch.compile` fuse the copy into its reader"
        }
        Framework::Jax => {
            "choose the order of dimensions that the products read, so that XLA needs no transpose, \
             and donate buffers that the step replaces (`jax.jit(step, donate_argnums=0)`)"
        }
        Framework::Cupy => {
            "use views in place of `.copy()` and `cp.ascontiguousarray`, and write with `out=`"
        }
        Framework::Plain => {
            "exchange pointers in place of copying, or let the next kernel read strides"
        }
    };
    let changes = Changes::new(view);
    Some(Found {
        change: "copy less within the GPU".to_owned(),
        text: format!("copies and changes of layout within the GPU take {}", copies.words()),
        hint: hint.to_owned(),
        least: changes.scaled(&copies.at, KEPT_SHARE),
        most: changes.without(&copies.at, 0.5),
        work: copies.at,
        is_bound: true,
        ..Found::default()
    })
}

/// Copies of whole arrays that XLA makes because an argument is not donated, if they are most of
/// `copies`.
fn kept_arguments(view: &View<'_>, copies: &Picked<'_, '_>) -> Option<Found> {
    let mut whole = Picked::find(view, |work| {
        view.class(work) == AccountCause::CopyDevice
            && work.bytes.is_some_and(|bytes| bytes >= LEAST_ARRAY_BYTES)
    });
    let of_copies: BTreeSet<u32> = copies.at.iter().copied().collect();
    whole.at.retain(|at| of_copies.contains(at));
    if Framework::of(view) != Framework::Jax || whole.ns() * 2.0 < copies.ns() {
        return None;
    }
    let largest = whole.at.iter().filter_map(|at| view.trace.work.get(*at as usize)?.bytes).max();
    let changes = Changes::new(view);
    Some(Found {
        change: "donate the arrays that a step replaces".to_owned(),
        text: format!(
            "XLA copies whole arrays (up to {}) before it writes into them, since the caller keeps the \
             old ones: {}",
            super::words::size(largest.unwrap_or(0) as f64),
            whole.words()
        ),
        hint: "donate what the step replaces: `jax.jit(update, donate_argnums=0)` (with the number of \
               that argument, at the jit that writes into it), and use only the returned array \
               afterwards"
            .to_owned(),
        least: changes.scaled(&whole.at, 0.1),
        most: changes.without(&whole.at, 1.0),
        work: whole.at,
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn copies_between_products_are_found() {
        let step = |us| StepScript::new().kernel(names::COPY, us).kernel(names::PRODUCT, 100.0);
        let window = step(30.0).play(3);
        let found = window.look(find).unwrap();
        assert!(found.is_bound);
        assert!((window.removed_ns(&found.most) - 30_000.0).abs() < 1.0);
        assert!((window.removed_ns(&found.least) - 9_000.0).abs() < 1.0);
        assert!(step(0.5).play(3).look(find).is_none());
        let dense =
            StepScript::new().copy("DtoD", 1 << 26, 40.0, None).kernel("mine", 50.0).play(3);
        assert!(dense.look(find).unwrap().hint.contains("pointers"));
    }

    #[test]
    fn arrays_that_xla_copies_before_it_writes_into_them_are_to_be_donated() {
        let step = StepScript::new().copy("DtoD", 900_000_000, 450.0, None);
        let window = step.kernel("loop_dynamic_update_slice_fusion", 5.0).play(3);
        let found = window.look(find).unwrap();
        assert!(!found.is_bound && found.hint.contains("donate_argnums"), "{}", found.hint);
        assert!((window.removed_ns(&found.most) - 450_000.0).abs() < 1.0);
    }
}
