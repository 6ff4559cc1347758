//! Swizzles: the XOR of some bits of an offset with higher or lower ones.
//!
//! The swizzles of shared memory act on byte addresses, and CuTe DSL prints them so: `S<3,4,3>`
//! over a layout of 4-bit elements. [`Swizzle::for_elements`] gives the one that acts on their
//! offsets.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::coalesce::{Difference, Equality, equal};
use crate::element::ElementSize;
use crate::f2::columns;
use crate::layout::{Layout, Offsets};
use crate::proof::{Limits, Method, Proof, Rejection};

/// `y = x ^ ((x & yyy) >> shift)` with `yyy = ((1 << bits) - 1) << (base + max(0, shift))`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Swizzle {
    bits: u32,
    base: u32,
    shift: i32,
}

/// The reason why numbers form no swizzle, or a swizzle cannot act on a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SwizzleError {
    /// A number is negative.
    #[error("the bits and the base of a swizzle are not negative")]
    Negative,
    /// Source and target bits overlap.
    #[error("the shift of a swizzle is at least its bits ({bits}), so that their places differ")]
    Overlap {
        /// The bits that are moved; `-bits < shift < bits`.
        bits: i32,
    },
    /// The bits do not fit.
    #[error("a swizzle acts on 62 bits")]
    TooWide,
    /// The swizzle moves parts of an element.
    #[error("the swizzle {swizzle} of byte addresses would split elements of {bits} bits")]
    SplitsElements {
        /// The swizzle of byte addresses, before its conversion to elements.
        swizzle: Swizzle,
        /// Bits of an element.
        bits: i64,
    },
    /// The layout has negative offsets, or its offsets do not fit.
    #[error("a swizzle acts on offsets from 0 to 2^62 - 1")]
    Offsets,
}

impl Swizzle {
    /// A swizzle as CuTe writes it, `Sw<bits, base, shift>`.
    ///
    /// # Errors
    /// If source and target bits overlap, or do not fit in 62 bits.
    pub fn new(bits: i32, base: i32, shift: i32) -> Result<Self, SwizzleError> {
        let (Ok(b), Ok(m)) = (u32::try_from(bits), u32::try_from(base)) else {
            return Err(SwizzleError::Negative);
        };
        if shift.unsigned_abs() < b {
            return Err(SwizzleError::Overlap { bits });
        }
        let width = b.saturating_add(m).saturating_add(shift.unsigned_abs());
        if width > 62 {
            return Err(SwizzleError::TooWide);
        }
        Ok(Self { bits: b, base: m, shift })
    }

    /// Whether it leaves every offset as it is.
    pub fn is_identity(self) -> bool {
        self.bits == 0
    }

    /// The swizzled offset. It is its own inverse.
    pub fn apply(self, offset: i64) -> i64 {
        let mask = (1_i64 << self.bits) - 1;
        match u32::try_from(self.shift) {
            Ok(right) => offset ^ ((offset & (mask << (self.base + right))) >> right),
            Err(_) => offset ^ ((offset & (mask << self.base)) << self.shift.unsigned_abs()),
        }
    }

    /// This swizzle of byte addresses as a swizzle of the offsets of elements.
    ///
    /// # Errors
    /// If it would split elements.
    pub fn for_elements(self, bits: i64) -> Result<Self, SwizzleError> {
        if self.is_identity() {
            return Ok(self);
        }
        let power = u64::try_from(bits).ok().filter(|bits| bits.is_power_of_two());
        let base = power.and_then(|power| (self.base + 3).checked_sub(power.trailing_zeros()));
        let base = base.ok_or(SwizzleError::SplitsElements { swizzle: self, bits })?;
        // Both have at most 62 bits, so the casts keep their values.
        Self::new(self.bits as i32, base as i32, self.shift)
    }

    /// The distance after which it repeats.
    pub fn period(self) -> i64 {
        1 << (self.bits + self.base + self.shift.unsigned_abs())
    }

    /// The name of the shared-memory mode of the tensor core that this swizzle of byte offsets is.
    pub fn umma_mode(self) -> Option<&'static str> {
        match (self.bits, self.base, self.shift) {
            (0, 4, 3) => Some("none"),
            (1, 4, 3) => Some("32B"),
            (2, 4, 3) => Some("64B"),
            (3, 4, 3) => Some("128B"),
            (2, 5, 2) => Some("128B_BASE32B"),
            _ => None,
        }
    }
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S<{},{},{}>", self.bits, self.base, self.shift)
    }
}

impl Serialize for Swizzle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A layout whose offsets are moved by a constant and then swizzled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwizzledLayout {
    swizzle: Swizzle,
    offset: i64,
    layout: Layout,
}

impl SwizzledLayout {
    /// `swizzle o offset o layout`.
    ///
    /// # Errors
    /// If a swizzle would act on offsets outside `[0, 2^62)`.
    pub fn new(swizzle: Swizzle, offset: i64, layout: Layout) -> Result<Self, SwizzleError> {
        let ends = (offset.checked_add(layout.low()), offset.checked_add(layout.high()));
        let (Some(low), Some(high)) = ends else { return Err(SwizzleError::Offsets) };
        if !swizzle.is_identity() && (low < 0 || high >= 1 << 62) {
            return Err(SwizzleError::Offsets);
        }
        Ok(Self { swizzle, offset, layout })
    }

    /// The same swizzle and offset over another layout.
    ///
    /// # Errors
    /// As [`SwizzledLayout::new`].
    pub fn over(&self, layout: Layout) -> Result<Self, SwizzleError> {
        Self::new(self.swizzle, self.offset, layout)
    }

    /// The layout with its swizzle of byte addresses as one of the offsets of elements.
    ///
    /// # Errors
    /// If the swizzle would split elements.
    pub fn for_elements(&self, element: ElementSize) -> Result<Self, SwizzleError> {
        let swizzle = self.swizzle.for_elements(element.bits())?;
        Self::new(swizzle, self.offset, self.layout.clone())
    }

    /// The swizzle, applied last; the identity if there is none.
    pub fn swizzle(&self) -> Swizzle {
        self.swizzle
    }

    /// The constant that is added before the swizzle.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// The layout that gives the offsets before the constant and the swizzle.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The offset of an index. `None` outside `[0, size)`.
    pub fn at(&self, index: i64) -> Option<i64> {
        self.layout.at(index).map(|x| self.swizzle.apply(x + self.offset))
    }

    /// All offsets, by index.
    pub fn offsets(&self) -> impl Iterator<Item = i64> + use<> {
        let (swizzle, offset) = (self.swizzle, self.offset);
        Offsets::new(&self.layout.modes()).map(move |x| swizzle.apply(x + offset))
    }
}

impl From<Layout> for SwizzledLayout {
    fn from(layout: Layout) -> Self {
        Self { swizzle: Swizzle::default(), offset: 0, layout }
    }
}

impl fmt::Display for SwizzledLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.swizzle == Swizzle::default() && self.offset == 0 {
            return self.layout.fmt(f);
        }
        write!(f, "{} o {} o {}", self.swizzle, self.offset, self.layout)
    }
}

impl Serialize for SwizzledLayout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Compares two swizzled layouts as functions of the index: by normal form where the swizzles are
/// the same, by F2 matrices where both have one, otherwise by looking at every point.
///
/// # Errors
/// [`crate::Condition::Undecided`] beyond the limit of points.
pub fn equal_swizzled(
    left: &SwizzledLayout,
    right: &SwizzledLayout,
    limits: Limits,
) -> Result<Equality, Box<Rejection>> {
    // A swizzle is a bijection, so it cannot make different offsets equal.
    if left.swizzle == right.swizzle && left.offset == right.offset {
        let mut equality = equal(&left.layout, &right.layout);
        if let Some(difference) = &mut equality.first_difference {
            difference.left = left.swizzle.apply(difference.left + left.offset);
            difference.right = right.swizzle.apply(difference.right + right.offset);
            equality.proof.claim = claim(*difference).into();
        }
        return Ok(equality);
    }
    let (a, b) = (left.layout.size(), right.layout.size());
    if a != b {
        let proof = Proof::new(Method::Algebraic, 0, format!("the sizes are {a} and {b}"));
        return Ok(Equality { equal: false, proof, first_difference: None });
    }
    if let (Ok(a), Ok(b)) = (columns(left), columns(right)) {
        // The lowest differing column is the first index at which linear maps differ.
        let difference = a.iter().zip(&b).position(|(a, b)| a != b).and_then(|bit| {
            let index = 1_i64 << bit;
            Some(Difference { index, left: left.at(index)?, right: right.at(index)? })
        });
        let claim = difference.map_or("both are one linear map of index bits".to_owned(), claim);
        return Ok(Equality {
            equal: difference.is_none(),
            proof: Proof::new(Method::Algebraic, 0, claim),
            first_difference: difference,
        });
    }
    if a as u64 > limits.points {
        return Err(Rejection::undecided(limits, "whether the layouts are equal"));
    }
    let mut points = 0;
    for (index, (l, r)) in left.offsets().zip(right.offsets()).enumerate() {
        points += 1;
        if l != r {
            let difference = Difference { index: index as i64, left: l, right: r };
            return Ok(Equality {
                equal: false,
                proof: Proof::new(Method::Enumeration, points, claim(difference)),
                first_difference: Some(difference),
            });
        }
    }
    let proof = Proof::new(Method::Enumeration, points, "they are equal at every index");
    Ok(Equality { equal: true, proof, first_difference: None })
}

fn claim(difference: Difference) -> String {
    let Difference { index, left, right } = difference;
    format!("at index {index} the offsets are {left} and {right}")
}
