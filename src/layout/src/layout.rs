//! Layouts: nested extents with strides, read as functions from coordinates to offsets.

use std::fmt;

use serde::{Serialize, Serializer};
use smallvec::SmallVec;

/// How deep the modes of a layout may nest. Recursion over a layout is bounded by it.
pub const MAX_DEPTH: usize = 64;

/// One leaf of a layout: `extent` steps of `stride`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mode {
    /// How many coordinates it has, at least 1.
    pub extent: i64,
    /// The distance of neighbouring coordinates.
    pub stride: i64,
}

impl Mode {
    /// A mode of `extent` coordinates, not checked here: [`Layout::new`] wants an extent of 1 or
    /// more.
    pub fn new(extent: i64, stride: i64) -> Self {
        Self { extent, stride }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.extent, self.stride)
    }
}

/// Modes without nesting. Layouts have few, and they are made for every operation.
pub type Modes = SmallVec<[Mode; 8]>;

/// One number for each leaf. Rejections are made by the million, and each has one.
pub type LeafCoordinate = SmallVec<[i64; 6]>;

/// The modes of a layout with their nesting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tree {
    /// A mode without parts.
    Leaf(Mode),
    /// A tuple of modes.
    Node(Vec<Tree>),
}

impl Tree {
    fn each_leaf(&self, depth: usize, visit: &mut impl FnMut(Mode)) -> Result<(), LayoutError> {
        match self {
            _ if depth > MAX_DEPTH => Err(LayoutError::TooDeep),
            Self::Leaf(mode) => {
                visit(*mode);
                Ok(())
            }
            Self::Node(parts) => parts.iter().try_for_each(|p| p.each_leaf(depth + 1, visit)),
        }
    }

    /// The tree with each leaf replaced, in order.
    pub(crate) fn map(&self, replace: &mut impl FnMut(Mode) -> Tree) -> Tree {
        match self {
            Self::Leaf(mode) => replace(*mode),
            Self::Node(parts) => Self::Node(parts.iter().map(|p| p.map(replace)).collect()),
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, value: fn(Mode) -> i64) -> fmt::Result {
        match self {
            Self::Leaf(mode) => write!(f, "{}", value(*mode)),
            Self::Node(parts) => {
                f.write_str("(")?;
                for (at, part) in parts.iter().enumerate() {
                    if at > 0 {
                        f.write_str(",")?;
                    }
                    part.write(f, value)?;
                }
                f.write_str(")")
            }
        }
    }
}

/// The reason why modes form no layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// An extent is 0 or negative.
    #[error("the extent {0} has no coordinates: extents begin at 1")]
    Extent(i64),
    /// The product of the extents does not fit.
    #[error("the layout has more than 2^63 - 1 coordinates")]
    Size,
    /// An offset does not fit.
    #[error("the layout reaches offsets beyond 2^63 - 1")]
    Offset,
    /// The modes nest too deep.
    #[error("the modes nest deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// A function from `[0, size)` to offsets, written `S:D`.
///
/// An index is unranked colexicographically: the first leaf runs fastest. The size and all offsets
/// fit in an `i64`, so nothing that evaluates a layout overflows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    tree: Tree,
    size: i64,
    low: i64,
    high: i64,
}

impl Layout {
    /// The layout of these modes.
    ///
    /// # Errors
    /// An extent below 1, a size or an offset that does not fit, too deep a nesting.
    pub fn new(tree: Tree) -> Result<Self, LayoutError> {
        let (mut size, mut low, mut high) = (Some(1_i64), Some(0_i64), Some(0_i64));
        let mut bad_extent = None;
        tree.each_leaf(0, &mut |mode| {
            if mode.extent < 1 {
                bad_extent.get_or_insert(mode.extent);
                return;
            }
            size = size.and_then(|n| n.checked_mul(mode.extent));
            let reach = (mode.extent - 1).checked_mul(mode.stride);
            let side = if mode.stride < 0 { &mut low } else { &mut high };
            *side = side.zip(reach).and_then(|(sum, reach)| sum.checked_add(reach));
        })?;
        if let Some(extent) = bad_extent {
            return Err(LayoutError::Extent(extent));
        }
        let size = size.ok_or(LayoutError::Size)?;
        // One below the maximum, so that `cosize` fits as well.
        let high = high.filter(|h| *h < i64::MAX).ok_or(LayoutError::Offset)?;
        let low = low.filter(|l| *l > -i64::MAX).ok_or(LayoutError::Offset)?;
        high.checked_sub(low).filter(|span| *span < i64::MAX).ok_or(LayoutError::Offset)?;
        Ok(Self { tree, size, low, high })
    }

    /// The layout of modes without nesting. One mode stands alone, several form a tuple.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn flat(modes: &[Mode]) -> Result<Self, LayoutError> {
        Self::new(match modes {
            [] => Tree::Leaf(Mode::new(1, 0)),
            [mode] => Tree::Leaf(*mode),
            modes => Tree::Node(modes.iter().copied().map(Tree::Leaf).collect()),
        })
    }

    /// A tuple of layouts.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn tuple(parts: impl IntoIterator<Item = Self>) -> Result<Self, LayoutError> {
        Self::new(Tree::Node(parts.into_iter().map(|part| part.tree).collect()))
    }

    /// The modes with their nesting.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The number of coordinates.
    pub fn size(&self) -> i64 {
        self.size
    }

    /// The smallest offset; below 0 only with negative strides.
    pub fn low(&self) -> i64 {
        self.low
    }

    /// The largest offset; above 0 only with positive strides.
    pub fn high(&self) -> i64 {
        self.high
    }

    /// The number of offsets from the smallest to the largest: as in CuTe, strides count by their
    /// size. Without negative strides it is one more than the largest offset.
    pub fn cosize(&self) -> i64 {
        self.high - self.low + 1
    }

    /// The leaves, in order.
    pub fn modes(&self) -> Modes {
        let mut modes = Modes::new();
        self.each_mode(&mut |mode| modes.push(mode));
        modes
    }

    /// Visits the leaves, in order.
    #[inline]
    pub(crate) fn each_mode(&self, visit: &mut impl FnMut(Mode)) {
        fn walk(parts: &[Tree], visit: &mut dyn FnMut(Mode)) {
            for part in parts {
                match part {
                    Tree::Leaf(mode) => visit(*mode),
                    Tree::Node(parts) => walk(parts, visit),
                }
            }
        }
        match &self.tree {
            Tree::Leaf(mode) => visit(*mode),
            Tree::Node(parts) => {
                for part in parts {
                    match part {
                        // Most tuples hold numbers alone: this saves the calls.
                        Tree::Leaf(mode) => visit(*mode),
                        Tree::Node(parts) => walk(parts, visit),
                    }
                }
            }
        }
    }

    /// The layouts of the outermost tuple; of a single mode, itself.
    pub fn parts(&self) -> Vec<Self> {
        match &self.tree {
            Tree::Leaf(_) => vec![self.clone()],
            Tree::Node(parts) => parts.iter().map(|part| Self::part(part.clone())).collect(),
        }
    }

    /// The layout of a tree that is known to be one: no deeper than another layout, of this size,
    /// and with offsets that another layout has.
    pub(crate) fn known(tree: Tree, size: i64, low: i64, high: i64) -> Self {
        Self { tree, size, low, high }
    }

    /// A part of a layout has a smaller size and reach than the whole.
    fn part(tree: Tree) -> Self {
        let (mut size, mut low, mut high) = (1, 0, 0);
        // The whole was checked for depth.
        let _ = tree.each_leaf(0, &mut |mode| {
            size *= mode.extent;
            let side = if mode.stride < 0 { &mut low } else { &mut high };
            *side += (mode.extent - 1) * mode.stride;
        });
        Self { tree, size, low, high }
    }

    /// The offset of an index. `None` outside `[0, size)`.
    pub fn at(&self, index: i64) -> Option<i64> {
        (0..self.size).contains(&index).then(|| offset(&self.modes(), index))
    }

    /// The offset of a coordinate. A number that stands for a tuple is unranked within it. `None`
    /// if the coordinate does not fit the nesting or lies outside.
    pub fn at_coordinate(&self, coordinate: &Coordinate) -> Option<i64> {
        match (coordinate, &self.tree) {
            (Coordinate::Index(index), _) => self.at(*index),
            (Coordinate::Tuple(inner), Tree::Node(_)) => {
                let parts = self.parts();
                if parts.len() != inner.len() {
                    return None;
                }
                parts
                    .iter()
                    .zip(inner)
                    .try_fold(0, |sum, (part, c)| Some(sum + part.at_coordinate(c)?))
            }
            (Coordinate::Tuple(_), Tree::Leaf(_)) => None,
        }
    }

    /// All offsets, by index.
    pub fn offsets(&self) -> Offsets {
        Offsets::new(&self.modes())
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tree.write(f, |mode| mode.extent)?;
        f.write_str(":")?;
        self.tree.write(f, |mode| mode.stride)
    }
}

impl Serialize for Layout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A coordinate: an index, or a tuple that follows the nesting of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coordinate {
    /// An index of the whole layout, from 0; the first leaf runs fastest.
    Index(i64),
    /// One coordinate for each mode.
    Tuple(Vec<Coordinate>),
}

impl fmt::Display for Coordinate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
                write!(f, "({})", parts.join(","))
            }
        }
    }
}

/// The offset of an index. The last mode continues beyond its extent, as in CuTe.
#[inline]
pub(crate) fn offset(modes: &[Mode], index: i64) -> i64 {
    let Some((last, rest)) = modes.split_last() else { return 0 };
    let (mut index, mut sum) = (index, 0);
    for mode in rest {
        // Divisions are most of the work of a composition.
        if index < mode.extent {
            return sum + index * mode.stride;
        }
        let (quotient, remainder) = div_rem(index, mode.extent);
        sum += remainder * mode.stride;
        index = quotient;
    }
    sum + index * last.stride
}

/// Quotient and remainder. A division of 32 bits takes half the time, and nearly all are such.
#[inline]
pub(crate) fn div_rem(dividend: i64, divisor: i64) -> (i64, i64) {
    match (u32::try_from(dividend), u32::try_from(divisor)) {
        (Ok(dividend), Ok(divisor)) => {
            (i64::from(dividend / divisor), i64::from(dividend % divisor))
        }
        _ => (dividend / divisor, dividend % divisor),
    }
}

/// The coordinate of an index, one number for each leaf.
pub(crate) fn unrank(modes: &[Mode], mut index: i64) -> LeafCoordinate {
    let mut coordinate = LeafCoordinate::new();
    for mode in modes {
        coordinate.push(index % mode.extent);
        index /= mode.extent;
    }
    coordinate
}

/// The product of extents. The caller has the modes from a layout, so it fits.
pub(crate) fn size_of(modes: &[Mode]) -> i64 {
    modes.iter().map(|mode| mode.extent).product()
}

/// The offsets of a layout by index, without divisions.
#[derive(Debug, Clone)]
pub struct Offsets {
    modes: Vec<Mode>,
    coordinate: Vec<i64>,
    next: Option<i64>,
}

impl Offsets {
    pub(crate) fn new(modes: &[Mode]) -> Self {
        Self { modes: modes.to_vec(), coordinate: vec![0; modes.len()], next: Some(0) }
    }
}

impl Iterator for Offsets {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        let now = self.next?;
        let mut value = now;
        self.next = None;
        for (mode, at) in self.modes.iter().zip(&mut self.coordinate) {
            if *at + 1 < mode.extent {
                *at += 1;
                self.next = Some(value + mode.stride);
                break;
            }
            value -= *at * mode.stride;
            *at = 0;
        }
        Some(now)
    }
}
