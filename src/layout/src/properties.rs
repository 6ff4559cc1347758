//! Properties of a layout as a function: injective, compact, tractable, the size of its image.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use crate::coalesce::{coalesced, coalesced_form, filter_zeros};
use crate::layout::{Layout, Mode, Offsets};
use crate::proof::{Limits, Method, Proof};

/// Facts about a layout as a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Properties {
    /// The number of coordinates.
    pub size: i64,
    /// The number of offsets from the smallest to the largest.
    pub cosize: i64,
    /// The number of different offsets. `None` if counting them passes the limit of points.
    pub image_size: Option<i64>,
    /// How many coordinates share an offset. `None` if the offsets differ in that, or it is not
    /// known.
    pub duplication: Option<i64>,
    /// Whether no two coordinates share an offset. `None` if that is not known.
    pub injective: Option<bool>,
    /// Whether it is a bijection onto `[0, size)`.
    pub compact: bool,
    /// Whether its sorted strides form a divisible chain.
    pub tractable: bool,
    /// Whether coalescing leaves it as it is.
    pub coalesced: bool,
    /// The layout with the extent 1 in modes of stride 0.
    pub filter_zeros: Layout,
    /// How the size of the image is proved.
    pub proof: Option<Proof>,
    /// How it is proved whether it is injective, if the size of the image is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injective_proof: Option<Proof>,
}

/// Finds the facts about a layout.
pub fn properties(layout: &Layout, limits: Limits) -> Properties {
    let modes = layout.modes();
    let form = coalesced(&modes);
    let image = image(&form, layout.size(), limits);
    let image_size = image.as_ref().map(|(size, _)| *size);
    let injective = injective(layout, limits);
    Properties {
        size: layout.size(),
        cosize: layout.cosize(),
        image_size,
        duplication: image_size.and_then(|image| duplication(&form, layout.size(), image)),
        injective: injective.as_ref().map(|(injective, _)| *injective),
        compact: is_compact(&form),
        tractable: is_tractable(&form),
        coalesced: modes == form || (form.is_empty() && modes.as_slice() == [Mode::new(1, 0)]),
        filter_zeros: filter_zeros(layout),
        injective_proof: injective.filter(|_| image.is_none()).map(|(_, proof)| proof),
        proof: image.map(|(_, proof)| proof),
    }
}

/// Modes with an extent above 1, sorted by the absolute value of their strides.
fn sorted(modes: &[Mode]) -> Vec<Mode> {
    let mut sorted: Vec<Mode> = modes.iter().copied().filter(|mode| mode.extent > 1).collect();
    sorted.sort_by_key(|mode| (mode.stride.unsigned_abs(), mode.extent));
    sorted
}

/// Whether each stride is larger than the largest sum of the smaller modes: then each offset has
/// one coordinate, as a number has one sequence of digits.
fn strides_dominate(sorted: &[Mode]) -> bool {
    let mut reach = 0_u128;
    sorted.iter().all(|mode| {
        let stride = u128::from(mode.stride.unsigned_abs());
        let beyond = stride > reach;
        reach += stride * u128::from((mode.extent - 1).unsigned_abs());
        beyond
    })
}

pub(crate) fn is_compact(modes: &[Mode]) -> bool {
    let mut next = Some(1);
    sorted(modes).iter().all(|mode| {
        let fits = next == Some(mode.stride);
        next = mode.extent.checked_mul(mode.stride);
        fits
    })
}

fn is_tractable(modes: &[Mode]) -> bool {
    sorted(modes).windows(2).all(|pair| {
        let [low, high] = pair else { return true };
        match low.extent.checked_mul(low.stride) {
            Some(0) => true,
            Some(end) => high.stride % end == 0,
            None => false,
        }
    })
}

/// Whether no two coordinates have one offset, with the proof. `None` beyond the limit of points.
pub fn injective(layout: &Layout, limits: Limits) -> Option<(bool, Proof)> {
    let form = coalesced_form(layout);
    let size = layout.size();
    let proof = |claim: Cow<'static, str>| Proof::new(Method::Algebraic, 0, claim);
    if let Some(mode) = form.iter().find(|mode| mode.stride == 0) {
        return Some((false, proof(format!("mode {mode} repeats each offset").into())));
    }
    if strides_dominate(&sorted(&form)) {
        return Some((true, proof("each stride is beyond the reach of the smaller ones".into())));
    }
    if i128::from(layout.high()) - i128::from(layout.low()) + 1 < i128::from(size) {
        return Some((false, proof("there are fewer offsets in reach than coordinates".into())));
    }
    let (image, proof) = image(&form, size, limits)?;
    Some((image == size, proof))
}

/// The first two indices that have one offset. `None` if there are none, or beyond the limit.
pub(crate) fn first_collision(layout: &Layout, limits: Limits) -> Option<(i64, i64)> {
    // Collisions of a single mode need no search.
    let mut prefix = 1;
    for mode in layout.modes() {
        if mode.extent > 1 && mode.stride == 0 {
            return Some((0, prefix));
        }
        prefix *= mode.extent;
    }
    if layout.size() as u64 > limits.points {
        return None;
    }
    let mut first: Vec<(i64, i64)> = layout.offsets().zip(0..).collect();
    first.sort_unstable();
    let equal = first.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    equal.map(|pair| (pair[0].1, pair[1].1)).min_by_key(|(_, second)| *second)
}

fn image(form: &[Mode], size: i64, limits: Limits) -> Option<(i64, Proof)> {
    let moving: Vec<Mode> = form.iter().copied().filter(|mode| mode.stride != 0).collect();
    let count = crate::layout::size_of(&moving);
    if strides_dominate(&sorted(&moving)) {
        let claim = format!("{count} offsets: each stride is beyond the reach of the smaller ones");
        return Some((count, Proof::new(Method::Algebraic, 0, claim)));
    }
    if size.min(count) as u64 > limits.points {
        return None;
    }
    let mut offsets: Vec<i64> = Offsets::new(&moving).collect();
    offsets.sort_unstable();
    offsets.dedup();
    let image = offsets.len() as i64;
    let claim = format!("{image} offsets, counted");
    Some((image, Proof::new(Method::Enumeration, count as u64, claim)))
}

/// How many coordinates share an offset, if the number is the same for all offsets.
fn duplication(form: &[Mode], size: i64, image: i64) -> Option<i64> {
    let repeats: i64 =
        form.iter().filter(|mode| mode.stride == 0).map(|mode| mode.extent).product();
    // Otherwise modes with strides overlap, and offsets may differ in their number of coordinates.
    (image.checked_mul(repeats) == Some(size)).then_some(repeats)
}
