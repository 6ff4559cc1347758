//! The complement of a layout: a layout whose offsets fill the gaps between those of the first one.

use crate::coalesce::coalesced;
use crate::layout::{Layout, Mode};
use crate::proof::{Condition, Limits, Method, Proof, ProvenLayout, Rejection, Witness};
use crate::properties::first_collision;

/// The complement of `layout` in `[0, bound)`: `(L, R)` is injective, the offsets of `R` rise, and
/// together they have at least `bound` coordinates. If the strides of `L` form a divisible chain,
/// then `(L, R)` is a bijection onto an interval that holds `[0, bound)`; the proof says whether
/// they do. Modes of stride 0 are ignored.
///
/// # Errors
/// A [`Rejection`] if strides are negative, or a mode begins inside the reach of the smaller ones.
pub fn complement(
    layout: &Layout,
    bound: i64,
    limits: Limits,
) -> Result<ProvenLayout, Box<Rejection>> {
    let leaves = layout.modes();
    let mut sorted: Vec<(usize, Mode)> = leaves
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, mode)| mode.extent > 1 && mode.stride != 0)
        .collect();
    if let Some((index, mode)) = sorted.iter().find(|(_, mode)| mode.stride < 0) {
        let reason =
            format!("mode {index} ({mode}) has a negative stride, so it has no complement");
        return Err(Rejection::new(Condition::NegativeStride, reason).mode(*index, *mode));
    }
    if bound < 1 {
        let reason = format!("the bound of a complement must be at least 1, not {bound}");
        return Err(Rejection::new(Condition::ImageOutside, reason));
    }
    sorted.sort_by_key(|(_, mode)| (mode.stride, mode.extent));
    let mut rest = Vec::with_capacity(sorted.len() + 1);
    let (mut end, mut tiles) = (1_i64, true);
    for (at, (index, mode)) in sorted.iter().enumerate() {
        if mode.stride < end {
            let lower = at.checked_sub(1).and_then(|at| sorted.get(at));
            return Err(overlap(layout, (*index, *mode), lower, end, limits));
        }
        tiles &= mode.stride % end == 0;
        rest.push(Mode::new(mode.stride / end, end));
        end = mode.extent.checked_mul(mode.stride).ok_or(crate::LayoutError::Offset)?;
    }
    rest.push(Mode::new(bound / end + i64::from(bound % end > 0), end));
    let result = Layout::flat(&coalesced(&rest))?;
    let proof = check(&sorted, &result, bound, tiles)?;
    Ok(ProvenLayout { layout: result, proof })
}

/// Checks the properties of the result from it alone.
fn check(
    layout: &[(usize, Mode)],
    result: &Layout,
    bound: i64,
    tiles: bool,
) -> Result<Proof, Box<Rejection>> {
    let own = result.modes();
    let mut all: Vec<Mode> = layout.iter().map(|(_, mode)| *mode).collect();
    all.extend(own.iter().copied().filter(|mode| mode.extent > 1));
    all.sort_by_key(|mode| (mode.stride, mode.extent));
    let (mut reach, mut size, mut chain) = (0_i128, 1_i128, true);
    let mut injective = true;
    for mode in &all {
        injective &= i128::from(mode.stride) > reach;
        chain &= i128::from(mode.stride) == size;
        reach += i128::from(mode.stride) * i128::from(mode.extent - 1);
        size *= i128::from(mode.extent);
        if size > i128::from(i64::MAX) || reach >= i128::from(i64::MAX) {
            return Err(crate::LayoutError::Size.into());
        }
    }
    let rises = own.windows(2).all(|pair| {
        pair[1].stride.checked_sub(1).is_some_and(|d| d >= (pair[0].extent - 1) * pair[0].stride)
    });
    let covers = !tiles || (chain && size >= i128::from(bound));
    if !(injective && rises && covers) {
        return Err(Rejection::new(Condition::Undecided, "the complement could not be proved"));
    }
    let claim = if tiles {
        format!("(L, R) is a bijection onto [0, {size}), and R rises")
    } else {
        "(L, R) is injective and R rises; it leaves gaps, for the strides are not a divisible chain"
            .to_owned()
    };
    Ok(Proof::new(Method::Algebraic, 0, claim))
}

fn overlap(
    layout: &Layout,
    (index, mode): (usize, Mode),
    lower: Option<&(usize, Mode)>,
    end: i64,
    limits: Limits,
) -> Box<Rejection> {
    let below =
        lower.map_or(String::new(), |(i, m)| format!(" mode {i} ({m}), which ends at {end}"));
    let reason = format!("mode {index} ({mode}) begins inside{below}");
    let mut rejection = Rejection::new(Condition::StrideOrder, reason).mode(index, mode);
    if let Some((index, mode)) = lower {
        rejection = rejection.mode(*index, *mode);
    }
    // The next stride that stays clear of the smaller modes.
    let mut leaves = layout.modes();
    let next = mode.stride.checked_add(end - 1).map(|s| s / end * end);
    if let (Some(leaf), Some(stride)) = (leaves.get_mut(index), next) {
        leaf.stride = stride;
        let mut fixed = leaves.into_iter();
        let tree = layout.tree().map(&mut |old| crate::Tree::Leaf(fixed.next().unwrap_or(old)));
        let without = Limits { nearest_tries: limits.nearest_tries / 2, points: 0 };
        rejection.nearest = Layout::new(tree).ok().and_then(|near| {
            if limits.nearest_tries == 0 {
                return None;
            }
            match complement(&near, 1, without) {
                Ok(_) => Some(near),
                // Fixing one mode may move it into the next one.
                Err(again) => again.nearest,
            }
        });
    }
    let moving = crate::coalesce::filter_zeros(layout);
    if let Some((first, second)) = first_collision(&moving, limits) {
        let leaves = moving.modes();
        rejection.witness = Some(Witness {
            coordinate: crate::layout::unrank(&leaves, second),
            required: moving.at(second),
            candidate: moving.at(first),
        });
        let claim = format!("indices {first} and {second} have one offset, so L has no complement");
        rejection.proof = Some(Proof::new(Method::Enumeration, moving.size() as u64, claim));
    } else {
        let claim = format!(
            "a bijection onto an interval has strides that form a chain, and {} is below {end}",
            mode.stride
        );
        rejection.proof = Some(Proof::new(Method::Algebraic, 0, claim));
    }
    rejection
}
