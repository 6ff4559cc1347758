//! The proof of a result, or the reason why it does not exist.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::layout::{Layout, Mode};

/// How a claim was proved, weakest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Both sides have the same coalesced form. Two flat layouts are equal as functions on
    /// `[0, size)` only if their coalesced forms are identical, so this holds for any size.
    NormalForm,
    /// Conditions on extents and strides that imply the claim for every coordinate.
    Algebraic,
    /// Every point was looked at.
    Enumeration,
}

/// A proof of the claim that it names. It was checked after the result was computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Proof {
    /// How the claim was proved.
    pub method: Method,
    /// The points that were looked at; 0 unless by enumeration.
    pub points: u64,
    /// The proved claim, as a sentence.
    pub claim: Cow<'static, str>,
}

impl Proof {
    pub(crate) fn new(method: Method, points: u64, claim: impl Into<Cow<'static, str>>) -> Self {
        Self { method, points, claim: claim.into() }
    }

    /// A proof that needs all of these: the weakest method, and all points.
    pub(crate) fn all<'a>(
        parts: impl IntoIterator<Item = &'a Self>,
        claim: impl Into<Cow<'static, str>>,
    ) -> Self {
        let mut whole = Self::new(Method::NormalForm, 0, claim);
        for part in parts {
            whole.method = whole.method.max(part.method);
            whole.points = whole.points.saturating_add(part.points);
        }
        whole
    }
}

/// A layout with the proof that it is the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProvenLayout {
    /// The result.
    pub layout: Layout,
    /// Why it is the result.
    pub proof: Proof,
}

/// Bounds on work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many points a proof may look at.
    pub points: u64,
    /// How many changed operands a rejection tries to name the nearest admissible one.
    pub nearest_tries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { points: 1 << 22, nearest_tries: 2048 }
    }
}

/// The condition that a rejected operation breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// An offset of the inner layout is no coordinate of the outer one.
    ImageOutside,
    /// A stride must divide a prefix of the outer shape, or be divided by it.
    StrideDivisibility,
    /// A mode crosses the end of an outer mode at a place that does not divide its extent.
    ShapeDivisibility,
    /// Coordinates of several modes together carry into another outer mode.
    Carry,
    /// A mode begins inside the range that the modes with smaller strides run through.
    StrideOrder,
    /// Two coordinates have one offset.
    NotInjective,
    /// A negative stride has no meaning here.
    NegativeStride,
    /// A mode cannot be regrouped into elements of the other width.
    ElementWidth,
    /// The tiler has more modes than the layout.
    Rank,
    /// An extent or stride is no power of two, or bits overlap.
    PowerOfTwo,
    /// The result does not fit in 63 bits.
    TooLarge,
    /// It is not known whether a result exists: the proof would pass the limit of points.
    Undecided,
}

/// A leaf of an operand, as rejections name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModeName {
    /// The number of the leaf, from 0, in the flattened operand.
    pub index: usize,
    /// The leaf, as `S:D`.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub mode: Mode,
}

fn as_text<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(mode)
}

/// A coordinate that shows why no result exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Witness {
    /// The coordinate, one number for each leaf of the inner operand.
    pub coordinate: Vec<i64>,
    /// The offset that the definition demands there; `None` where it demands one that is not there.
    pub required: Option<i64>,
    /// The offset that any candidate has there.
    pub candidate: Option<i64>,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Rejection {
    /// The condition.
    pub condition: Condition,
    /// The leaves that break it.
    pub modes: Vec<ModeName>,
    /// The whole reason as a sentence.
    pub reason: String,
    /// The point that proves it. `None` if the condition itself is the proof, or nothing is proved
    /// ([`Condition::Undecided`]).
    pub witness: Option<Box<Witness>>,
    /// The nearest operand for which a result exists.
    pub nearest: Option<Layout>,
    /// How it was proved that no result exists. `None` if that is not proved.
    pub proof: Option<Proof>,
}

impl Rejection {
    pub(crate) fn new(condition: Condition, reason: impl Into<String>) -> Self {
        Self {
            condition,
            modes: Vec::new(),
            reason: reason.into(),
            witness: None,
            nearest: None,
            proof: None,
        }
    }

    pub(crate) fn mode(mut self, index: usize, mode: Mode) -> Self {
        self.modes.push(ModeName { index, mode });
        self
    }

    pub(crate) fn undecided(limits: Limits, what: &str) -> Self {
        let points = limits.points;
        let reason = format!("{what} is not proved: it needs more than {points} points");
        Self::new(Condition::Undecided, reason)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if let Some(nearest) = &self.nearest {
            write!(f, "; the nearest admissible operand is {nearest}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Rejection {}

impl From<crate::layout::LayoutError> for Rejection {
    fn from(error: crate::layout::LayoutError) -> Self {
        Self::new(Condition::TooLarge, error.to_string())
    }
}
