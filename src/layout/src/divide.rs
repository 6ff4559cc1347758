//! Divisions and products of layouts, whole and by mode, and their regroupings.

use crate::complement::complement;
use crate::compose::compose;
use crate::layout::{Layout, Tree};
use crate::proof::{Condition, Limits, Proof, ProvenLayout, Rejection};

/// A layout that tiles, or one for each mode: `<4:1,8:2>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tiler {
    /// Tiles the whole layout.
    Layout(Layout),
    /// Tiles each mode of the layout on its own; modes beyond stay as they are.
    Modes(Vec<Tiler>),
}

/// How the modes of a division or product are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// `((tile, rest), (tile, rest), …)`: as the layout.
    Logical,
    /// `((tile, …), (rest, …))`.
    Zipped,
    /// `((tile, …), rest, …)`.
    Tiled,
    /// `(tile, …, rest, …)`.
    Flat,
}

/// Composes `a` with a tiler: a tuple of layouts composes mode by mode.
///
/// # Errors
/// As [`compose`]; also if the tiler has more modes than `a`.
pub fn compose_tiler(
    a: &Layout,
    tiler: &Tiler,
    limits: Limits,
) -> Result<ProvenLayout, Box<Rejection>> {
    by_mode(a, tiler, &|a, b| compose(a, b, limits), Grouping::Logical)
}

/// Divides: `A∘(B, complement(B, size(A)))`, so the first mode is a tile and the second counts
/// tiles.
///
/// # Errors
/// If `B` has no complement, or the composition does not exist, as when tiles overhang.
pub fn divide(
    a: &Layout,
    tiler: &Tiler,
    grouping: Grouping,
    limits: Limits,
) -> Result<ProvenLayout, Box<Rejection>> {
    let split = |a: &Layout, b: &Layout| {
        let rest = complement(b, a.size(), limits)?;
        let pair = Layout::tuple([b.clone(), rest.layout])?;
        let composed = compose(a, &pair, limits).map_err(|mut rejection| {
            // The nearest pair is of no use to somebody who chooses the tile.
            rejection.nearest = nearest_tile(a, b, limits);
            rejection
        })?;
        let claim = "R(i) = A((B, complement of B)(i)) for all i";
        let proof = Proof::all([&rest.proof, &composed.proof], claim);
        Ok(ProvenLayout { layout: composed.layout, proof })
    };
    by_mode(a, tiler, &split, grouping)
}

/// Multiplies: `(A, complement(A, size(A)·cosize(B))∘B)`, so `B` counts copies of the tile `A`.
///
/// # Errors
/// If `A` has no complement, or the composition does not exist.
pub fn product(
    a: &Layout,
    tiler: &Tiler,
    grouping: Grouping,
    limits: Limits,
) -> Result<ProvenLayout, Box<Rejection>> {
    let repeat = |a: &Layout, b: &Layout| {
        let bound = a.size().checked_mul(b.cosize()).ok_or(crate::LayoutError::Size)?;
        let rest = complement(a, bound, limits)?;
        let copies = compose(&rest.layout, b, limits)?;
        let layout = Layout::tuple([a.clone(), copies.layout])?;
        let claim = "R = (A, A*∘B) for the complement A* of A";
        Ok(ProvenLayout { layout, proof: Proof::all([&rest.proof, &copies.proof], claim) })
    };
    by_mode(a, tiler, &repeat, grouping)
}

/// The tile closest to `b` in size that divides `a`, with the strides of `b`.
fn nearest_tile(a: &Layout, b: &Layout, limits: Limits) -> Option<Layout> {
    let bare = Limits { nearest_tries: 0, points: 0 };
    let modes = b.modes();
    let divides = |tile: &Layout| {
        let Ok(rest) = complement(tile, a.size(), bare) else { return false };
        let pair = Layout::tuple([tile.clone(), rest.layout]);
        pair.is_ok_and(|pair| compose(a, &pair, bare).is_ok())
    };
    let tries = limits.nearest_tries as i64;
    for distance in 1..=tries / (2 * modes.len().max(1) as i64) {
        for leaf in (0..modes.len()).rev() {
            for change in [-distance, distance] {
                let mut changed = modes.clone();
                let Some(extent) = changed[leaf].extent.checked_add(change).filter(|e| *e > 0)
                else {
                    continue;
                };
                changed[leaf].extent = extent;
                let mut changed = changed.into_iter();
                let tree = b.tree().map(&mut |old| Tree::Leaf(changed.next().unwrap_or(old)));
                if let Some(tile) = Layout::new(tree).ok().filter(|tile| divides(tile)) {
                    return Some(tile);
                }
            }
        }
    }
    None
}

type Operation<'a> = &'a dyn Fn(&Layout, &Layout) -> Result<ProvenLayout, Box<Rejection>>;

fn by_mode(
    a: &Layout,
    tiler: &Tiler,
    operation: Operation<'_>,
    grouping: Grouping,
) -> Result<ProvenLayout, Box<Rejection>> {
    let mut proofs = Vec::new();
    let split = apply(a, tiler, operation, &mut proofs)?;
    let layout = match grouping {
        Grouping::Logical => split.whole()?,
        grouping => {
            let (tile, rest) = split.zipped()?;
            let unpacked = |layout: Layout| match layout.tree() {
                Tree::Node(_) => layout.parts(),
                Tree::Leaf(_) => vec![layout],
            };
            match grouping {
                Grouping::Tiled => Layout::tuple(std::iter::once(tile).chain(unpacked(rest)))?,
                Grouping::Flat => Layout::tuple([tile, rest].into_iter().flat_map(unpacked))?,
                _ => Layout::tuple([tile, rest])?,
            }
        }
    };
    let claim = match proofs.as_slice() {
        [one] => one.claim.clone(),
        _ => "by mode, each mode on its own".into(),
    };
    Ok(ProvenLayout { layout, proof: Proof::all(&proofs, claim) })
}

/// The results of an operation, with the structure of the tiler.
enum Split {
    One(Layout),
    /// By mode, and the modes that the tiler does not reach.
    Modes(Vec<Split>, Vec<Layout>),
}

fn apply(
    a: &Layout,
    tiler: &Tiler,
    operation: Operation<'_>,
    proofs: &mut Vec<Proof>,
) -> Result<Split, Box<Rejection>> {
    match tiler {
        Tiler::Layout(b) => {
            let ProvenLayout { layout, proof } = operation(a, b)?;
            proofs.push(proof);
            Ok(Split::One(layout))
        }
        Tiler::Modes(tilers) => {
            let mut parts = a.parts();
            if tilers.len() > parts.len() {
                let reason =
                    format!("the tiler has {} modes, and {a} has {}", tilers.len(), parts.len());
                return Err(Rejection::new(Condition::Rank, reason));
            }
            let others = parts.split_off(tilers.len());
            let mut split = Vec::with_capacity(tilers.len());
            for (mode, (part, tiler)) in parts.iter().zip(tilers).enumerate() {
                let one = apply(part, tiler, operation, proofs)
                    .map_err(|rejection| rejection.in_mode(mode))?;
                split.push(one);
            }
            Ok(Split::Modes(split, others))
        }
    }
}

impl Split {
    fn whole(self) -> Result<Layout, Box<Rejection>> {
        match self {
            Self::One(layout) => Ok(layout),
            Self::Modes(parts, others) => {
                let mut whole =
                    parts.into_iter().map(Self::whole).collect::<Result<Vec<_>, _>>()?;
                whole.extend(others);
                Ok(Layout::tuple(whole)?)
            }
        }
    }

    /// The tiles of all modes, and the rests with the modes that were not divided.
    fn zipped(self) -> Result<(Layout, Layout), Box<Rejection>> {
        match self {
            Self::One(layout) => match layout.parts().as_slice() {
                [tile, rest] => Ok((tile.clone(), rest.clone())),
                _ => Err(Rejection::new(Condition::Rank, "only pairs of modes can be zipped")),
            },
            Self::Modes(parts, others) => {
                let mut tiles = Vec::new();
                let mut rests = Vec::new();
                for part in parts {
                    let (tile, rest) = part.zipped()?;
                    tiles.push(tile);
                    rests.push(rest);
                }
                rests.extend(others);
                Ok((Layout::tuple(tiles)?, Layout::tuple(rests)?))
            }
        }
    }
}
