//! The proof of a result, or the reason why it does not exist.

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use smallvec::SmallVec;

use crate::layout::{Layout, LeafCoordinate, Mode};

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
    /// The layout that the operation gives.
    pub layout: Layout,
    /// Why it is the result.
    pub proof: Proof,
}

/// Bounds on the work of a proof, so that no operand takes long.
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

impl fmt::Display for ModeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.index, self.mode)
    }
}

fn as_text<S: Serializer>(mode: &Mode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(mode)
}

fn as_list<S: Serializer>(coordinate: &LeafCoordinate, serializer: S) -> Result<S::Ok, S::Error> {
    coordinate.as_slice().serialize(serializer)
}

/// A coordinate that shows why no result exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Witness {
    /// The coordinate, one number for each leaf of the inner operand.
    #[serde(serialize_with = "as_list")]
    #[schemars(with = "Vec<i64>")]
    pub coordinate: LeafCoordinate,
    /// The offset that the definition demands there; `None` where it demands one that is not there.
    pub required: Option<i64>,
    /// The offset that any candidate has there.
    pub candidate: Option<i64>,
}

/// Why there is no result.
// Functions return it in a box: it is large, and made by the million.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
pub struct Rejection {
    /// The condition that the operands break.
    pub condition: Condition,
    /// The leaves that break it.
    #[schemars(with = "Vec<ModeName>")]
    pub modes: SmallVec<[ModeName; 2]>,
    /// The whole reason as a sentence.
    #[schemars(with = "String")]
    pub(crate) reason: Reason,
    /// The point that proves it. `None` if the condition itself is the proof, or nothing is proved
    /// ([`Condition::Undecided`]).
    pub witness: Option<Witness>,
    /// The nearest operand for which a result exists.
    pub nearest: Option<Layout>,
    /// The outer operand with a larger last extent, for which a result exists: the coordinates
    /// beyond the original must be masked.
    pub enlarged: Option<Box<Layout>>,
    /// How it was proved that no result exists. `None` if that is not proved.
    pub proof: Option<Proof>,
}

/// The reason of a rejection. Its sentence is made when it is read: most rejections are only
/// counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A sentence that was known when the operation failed.
    Text(Cow<'static, str>),
    /// The first mode reaches below 0.
    BelowZero,
    /// With the first mode, the inner layout reaches beyond the outer one's coordinates.
    BeyondEnd { reach: i64, size: i64 },
    /// The first mode ends its first linear run at a place that does not divide it.
    Run(BrokenRun),
    /// Coordinates carry over the end of the outer modes up to `last`.
    Carry { last: usize, prefix: i64 },
    /// A tiler led to this mode of the outer operand.
    InMode(usize, Box<Self>),
}

/// A linear run of a mode whose length does not divide its extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrokenRun {
    /// The steps of the run.
    pub(crate) run: i64,
    /// The steps of the mode, no multiple of `run`.
    pub(crate) extent: i64,
    /// The distance of a step.
    pub(crate) step: i64,
    /// The outer mode whose end stops the run.
    pub(crate) stop: usize,
    /// The product of the extents up to that mode.
    pub(crate) prefix: i64,
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl Rejection {
    pub(crate) fn new(condition: Condition, reason: impl Into<Reason>) -> Box<Self> {
        Box::new(Self {
            condition,
            modes: SmallVec::new(),
            reason: reason.into(),
            witness: None,
            nearest: None,
            enlarged: None,
            proof: None,
        })
    }

    pub(crate) fn mode(mut self: Box<Self>, index: usize, mode: Mode) -> Box<Self> {
        self.modes.push(ModeName { index, mode });
        self
    }

    pub(crate) fn undecided(limits: Limits, what: &str) -> Box<Self> {
        let points = limits.points;
        let reason = format!("{what} is not proved: it needs more than {points} points");
        Self::new(Condition::Undecided, reason)
    }

    /// The whole reason as a sentence.
    pub fn reason(&self) -> String {
        self.sentence(&self.reason)
    }

    /// Records that a tiler led to this mode of the outer operand.
    pub(crate) fn in_mode(mut self: Box<Self>, mode: usize) -> Box<Self> {
        let reason = std::mem::replace(&mut self.reason, Reason::BelowZero);
        self.reason = Reason::InMode(mode, Box::new(reason));
        self
    }

    fn sentence(&self, reason: &Reason) -> String {
        let names: Vec<String> = self.modes.iter().map(ToString::to_string).collect();
        let first = names.first().map_or("", String::as_str);
        match reason {
            Reason::InMode(mode, reason) => format!("in mode {mode}: {}", self.sentence(reason)),
            Reason::Text(text) => text.clone().into_owned(),
            Reason::BelowZero => {
                let stride = self.modes.first().map_or(0, |name| name.mode.stride);
                format!("mode {first} of the inner layout reaches {stride}, below 0")
            }
            Reason::BeyondEnd { reach, size } => format!(
                "with mode {first} the inner layout reaches {reach}, and the outer one has {size} \
                 coordinates"
            ),
            Reason::Run(BrokenRun { run, extent, step, stop, prefix }) => match self.condition {
                Condition::ShapeDivisibility => format!(
                    "mode {first} crosses the end of the outer modes up to {stop}, at {prefix}, after \
                     {run} of {extent} steps of {step}, and {run} does not divide {extent}"
                ),
                _ => format!(
                    "mode {first}: its stride {step} and the outer prefix {prefix} (the extents up \
                     to mode {stop}) do not divide each other, and it is linear for {run} of \
                     {extent} steps"
                ),
            },
            Reason::Carry { last, prefix } => {
                let (s, y) = if names.len() == 1 { ("", "ies") } else { ("s", "y") };
                let mut text = format!(
                    "mode{s} {} carr{y} over the end of the outer modes up to {last}, at {prefix}",
                    names.join(" and ")
                );
                if let Some(Witness { coordinate, required: Some(required), candidate }) =
                    &self.witness
                {
                    let sum = candidate.map_or("beyond 2^63".to_owned(), |sum| sum.to_string());
                    text += &format!(
                        ": the composition is {required} at {coordinate:?}, the sum of its parts {sum}"
                    );
                }
                text
            }
        }
    }
}

impl Serialize for Rejection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Rejection", 7)?;
        fields.serialize_field("condition", &self.condition)?;
        fields.serialize_field("modes", self.modes.as_slice())?;
        fields.serialize_field("reason", &self.reason())?;
        fields.serialize_field("witness", &self.witness)?;
        fields.serialize_field("nearest", &self.nearest)?;
        fields.serialize_field("enlarged", &self.enlarged)?;
        fields.serialize_field("proof", &self.proof)?;
        fields.end()
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason())?;
        if let Some(nearest) = &self.nearest {
            write!(f, "; the nearest admissible operand is {nearest}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Rejection {}

impl From<crate::layout::LayoutError> for Box<Rejection> {
    fn from(error: crate::layout::LayoutError) -> Self {
        Rejection::new(Condition::TooLarge, error.to_string())
    }
}
