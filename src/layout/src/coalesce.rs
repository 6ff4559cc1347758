//! The coalesced form of a layout, equality by it, and filters.

use schemars::JsonSchema;
use serde::Serialize;

use crate::layout::{Layout, Mode, Modes, Tree, size_of};
use crate::proof::{Method, Proof, ProvenLayout};

/// The coalesced form: no extents of 1, and no neighbours that are one mode. It is the same for all
/// layouts that are equal as functions on `[0, size)`.
pub(crate) fn coalesced(modes: &[Mode]) -> Modes {
    let mut form = Modes::new();
    modes.iter().for_each(|mode| add_coalesced(&mut form, *mode));
    form
}

pub(crate) fn coalesced_form(layout: &Layout) -> Modes {
    let mut form = Modes::new();
    layout.each_mode(&mut |mode| add_coalesced(&mut form, mode));
    form
}

/// Adds a mode to a coalesced form.
#[inline]
pub(crate) fn add_coalesced(form: &mut Modes, mode: Mode) {
    if mode.extent == 1 {
        return;
    }
    match form.last_mut() {
        // The reach of the merged mode is a part of the layout's, but its end may lie beyond.
        Some(last)
            if last.extent.checked_mul(last.stride) == Some(mode.stride)
                && last.extent.checked_mul(mode.extent).is_some() =>
        {
            last.extent *= mode.extent;
        }
        _ => form.push(mode),
    }
}

/// The same function with as few modes as possible.
pub fn coalesce(layout: &Layout) -> ProvenLayout {
    let form = coalesced_form(layout);
    let claim = "R(i) = L(i) for all i: both have this coalesced form";
    ProvenLayout {
        layout: Layout::flat(&form).unwrap_or_else(|_| layout.clone()),
        proof: Proof::new(Method::NormalForm, 0, claim),
    }
}

/// Coalesces each mode of the outermost tuple on its own.
pub fn coalesce_by_mode(layout: &Layout) -> ProvenLayout {
    let Tree::Node(_) = layout.tree() else { return coalesce(layout) };
    let parts = layout.parts().into_iter().map(|part| coalesce(&part).layout);
    let claim = "each mode of R equals that of L: both have one coalesced form";
    ProvenLayout {
        layout: Layout::tuple(parts).unwrap_or_else(|_| layout.clone()),
        proof: Proof::new(Method::NormalForm, 0, claim),
    }
}

/// Gives every mode of stride 0 the extent 1. The nesting is kept.
pub fn filter_zeros(layout: &Layout) -> Layout {
    let tree = layout.tree().map(&mut |mode| match mode.stride {
        0 => Tree::Leaf(Mode::new(1, 0)),
        _ => Tree::Leaf(mode),
    });
    // Extents only shrink, so the layout is one.
    Layout::new(tree).unwrap_or_else(|_| layout.clone())
}

/// Drops modes of stride 0 and coalesces the others. The image stays as it is.
pub fn filter(layout: &Layout) -> ProvenLayout {
    let mut filtered = coalesce(&filter_zeros(layout));
    filtered.proof.claim =
        "R equals L without its modes of stride 0: both have this coalesced form".into();
    filtered
}

/// Whether two layouts are equal as functions, with the proof or the first difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Equality {
    /// Whether they have one size and the same offsets.
    pub equal: bool,
    /// How that is proved.
    pub proof: Proof,
    /// The first index where they differ. `None` if they are equal, or only their sizes differ.
    pub first_difference: Option<Difference>,
}

/// One index with both offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    /// The index of both layouts, from 0.
    pub index: i64,
    /// The offset of the first layout.
    pub left: i64,
    /// The offset of the second layout.
    pub right: i64,
}

/// Compares two layouts as functions of the index. Exact for any size: it compares normal forms.
pub fn equal(left: &Layout, right: &Layout) -> Equality {
    let (a, b) = (coalesced_form(left), coalesced_form(right));
    let equal = a == b;
    let first_difference = first_difference(&a, &b).and_then(|index| {
        let (left, right) = (left.at(index)?, right.at(index)?);
        Some(Difference { index, left, right })
    });
    let claim = match (equal, left.size() == right.size(), &first_difference) {
        (true, ..) => "both have one coalesced form, so they are equal at every index".to_owned(),
        (_, _, Some(d)) => {
            format!("at index {} the offsets are {} and {}", d.index, d.left, d.right)
        }
        _ => format!("the sizes are {} and {}", left.size(), right.size()),
    };
    Equality { equal, proof: Proof::new(Method::NormalForm, 0, claim), first_difference }
}

/// The first index where two coalesced forms differ as functions, if it lies in both.
fn first_difference(a: &[Mode], b: &[Mode]) -> Option<i64> {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let before = size_of(&a[..same]);
    match (a.get(same), b.get(same)) {
        // The strides agree, so the shorter mode ends first; what follows it begins elsewhere.
        (Some(a), Some(b)) if a.stride == b.stride => before.checked_mul(a.extent.min(b.extent)),
        (Some(_), Some(_)) => Some(before),
        _ => None,
    }
}
