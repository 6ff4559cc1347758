//! Left and right inverses of a layout: layouts from offsets back to indices.

use crate::coalesce::{add_coalesced, coalesced, coalesced_form};
use crate::compose::compose;
use crate::layout::{Layout, Mode, Modes, size_of};
use crate::proof::{Condition, Limits, Method, Proof, ProvenLayout, Rejection, Witness};
use crate::properties::first_collision;

/// The modes of the coalesced form sorted by stride, each with its position in that form and the
/// product of the extents before it.
fn by_stride(layout: &Layout) -> Result<Vec<(usize, Mode, i64)>, Box<Rejection>> {
    let mut distance = 1;
    let mut modes = Vec::new();
    for (index, mode) in coalesced_form(layout).into_iter().enumerate() {
        if mode.stride < 0 {
            let (index, mode) = written_mode(layout, index, mode);
            let reason = format!("mode {index} ({mode}) has a negative stride");
            return Err(Rejection::new(Condition::NegativeStride, reason).mode(index, mode));
        }
        modes.push((index, mode, distance));
        distance *= mode.extent;
    }
    modes.sort_by_key(|(_, mode, _)| (mode.stride, mode.extent));
    Ok(modes)
}

/// The mode of the layout as written with which a mode of its coalesced form begins: its number
/// among the flattened modes, and the mode.
fn written_mode(layout: &Layout, index: usize, mode: Mode) -> (usize, Mode) {
    let mut form = Modes::new();
    let mut number = 0;
    let mut first = None;
    layout.each_mode(&mut |written| {
        let before = form.len();
        add_coalesced(&mut form, written);
        if before == index && form.len() > before {
            first = Some((number, written));
        }
        number += 1;
    });
    first.unwrap_or((index, mode))
}

/// A layout `R` with `L(R(i)) = i` for all `i` below the size of `R`.
///
/// A mode `S:D` covers the offsets from `D` up to `S·D`. Takes the modes of `L` by stride, starting
/// at 1, and skips each mode that does not start where the last one taken ended. So it covers the
/// whole image of a bijection.
///
/// # Errors
/// A [`Rejection`] if a stride is negative or the limits do not allow the proof.
pub fn right_inverse(layout: &Layout, limits: Limits) -> Result<ProvenLayout, Box<Rejection>> {
    let mut next = 1;
    let mut modes = Vec::new();
    for (_, mode, distance) in by_stride(layout)? {
        if mode.stride == next {
            modes.push(Mode::new(mode.extent, distance));
            next *= mode.extent;
        }
    }
    let result = Layout::flat(&coalesced(&modes))?;
    let covered = result.size();
    let proof = prove_identity(layout, &result, covered, limits)?;
    let whole = if covered == layout.size() { ", all coordinates of L" } else { "" };
    let claim = format!("L(R(i)) = i for all i below {covered}{whole}");
    Ok(ProvenLayout { layout: result, proof: Proof { claim: claim.into(), ..proof } })
}

/// A layout `R` with `R(L(i)) = i` for all `i`.
///
/// # Errors
/// A [`Rejection`] if a stride is negative, if `L` is not injective (with the two indices and a
/// proof), if a mode starts before the one with the next smaller stride ends, if a stride is not a
/// multiple of the next smaller one, or if the limits do not allow the proof. Only non-injectivity
/// proves that no inverse exists.
pub fn left_inverse(layout: &Layout, limits: Limits) -> Result<ProvenLayout, Box<Rejection>> {
    let mut modes = Vec::new();
    // Stride of the previous mode, the product of the extents before it, and its end (extent
    // times stride).
    let (mut step, mut value, mut end) = (1_i64, 0_i64, 1_i64);
    for (index, mode, distance) in by_stride(layout)? {
        if mode.stride < end || mode.stride % step != 0 {
            return Err(reject_left_inverse(layout, index, mode, (step, end), limits));
        }
        modes.push(Mode::new(mode.stride / step, value));
        (step, value) = (mode.stride, distance);
        end = mode.extent.checked_mul(step).ok_or(crate::LayoutError::Offset)?;
    }
    modes.push(Mode::new(end / step, value));
    let result = Layout::flat(&coalesced(&modes))?;
    let proof = prove_identity(&result, layout, layout.size(), limits)?;
    let claim = format!("R(L(i)) = i for all {} i", layout.size());
    Ok(ProvenLayout { layout: result, proof: Proof { claim: claim.into(), ..proof } })
}

fn reject_left_inverse(
    layout: &Layout,
    index: usize,
    mode: Mode,
    (step, end): (i64, i64),
    limits: Limits,
) -> Box<Rejection> {
    let (index, mode) = written_mode(layout, index, mode);
    if let Some((first, second)) = first_collision(layout, limits) {
        let offset = layout.at(first).unwrap_or_default();
        let reason = format!("indices {first} and {second} both have the offset {offset}");
        let mut rejection = Rejection::new(Condition::NotInjective, reason).mode(index, mode);
        rejection.witness = Some(Witness {
            coordinate: crate::layout::unrank(&layout.modes(), second),
            required: Some(second),
            candidate: Some(first),
        });
        let claim = "an inverse would have two values at one offset";
        rejection.proof = Some(Proof::new(Method::Algebraic, 0, claim));
        return rejection;
    }
    if mode.stride < end {
        let reason = format!(
            "mode {index} ({mode}) starts below {end}, where the modes of smaller strides end"
        );
        return Rejection::new(Condition::StrideOrder, reason).mode(index, mode);
    }
    let reason = format!(
        "the stride of mode {index} ({mode}) is not a multiple of {step}, the next smaller \
         stride"
    );
    Rejection::new(Condition::StrideDivisibility, reason).mode(index, mode)
}

/// Proves that `outer∘inner` is the identity on `[0, size)`, by composing and comparing coalesced
/// forms.
fn prove_identity(
    outer: &Layout,
    inner: &Layout,
    size: i64,
    limits: Limits,
) -> Result<Proof, Box<Rejection>> {
    let ProvenLayout { layout, proof } = compose(outer, inner, limits)?;
    let form = coalesced_form(&layout);
    let is_identity = match form.as_slice() {
        [] => size == 1,
        [mode] => *mode == Mode::new(size, 1),
        _ => false,
    };
    if is_identity && size_of(&form) == size {
        return Ok(proof);
    }
    Err(Rejection::new(Condition::Undecided, "the inverse could not be proved"))
}
