//! Compares two layouts: as text, by shape, or as functions from index to offset.
//!
//! `rgpu layout diff` uses it to fail when a layout that the user protects has changed.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layout::{Layout, Mode, Tree};
use crate::proof::{Limits, Rejection};
use crate::swizzle::{SwizzledLayout, equal_swizzled};

/// What two layouts have in common, weakest first; also what a protected layout must keep.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The offset of every index. Splitting or merging modes keeps it.
    Function,
    /// The function, and the shape with its nesting: what partitions and slices depend on.
    Profile,
    /// Everything, strides of modes of extent 1 too.
    Text,
}

impl Level {
    /// The name that `from_str` reads: `function`, `profile` or `text`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Profile => "profile",
            Self::Text => "text",
        }
    }
}

impl FromStr for Level {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Function, Self::Profile, Self::Text]
            .into_iter()
            .find(|level| level.name() == text)
            .ok_or(())
    }
}

/// The parts of a layout that identify it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Identity {
    /// The layout as text.
    pub text: String,
    /// The shape with its nesting.
    pub profile: String,
    /// The coalesced form with its swizzle. Of two layouts with the same swizzle, it is equal if
    /// and only if their functions are.
    pub function: String,
}

/// The identity of a layout.
pub fn identity(layout: &SwizzledLayout) -> Identity {
    let shape = |mode: Mode| Tree::Leaf(Mode::new(mode.extent, 0));
    let profile = Layout::new(layout.layout().tree().map(&mut |mode| shape(mode)));
    let profile = profile.map(|shape| shape.to_string()).unwrap_or_default();
    let form = crate::coalesce(layout.layout()).layout;
    let function = SwizzledLayout::new(layout.swizzle(), layout.offset(), form);
    Identity {
        text: layout.to_string(),
        profile: profile.split(':').next().unwrap_or_default().to_owned(),
        function: function.map(|function| function.to_string()).unwrap_or_default(),
    }
}

/// How a layout changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Change {
    /// The strongest level at which both are the same. `None` if even the functions differ.
    pub same: Option<Level>,
    /// The difference, as a sentence.
    pub reason: String,
}

impl Change {
    /// Whether the layout no longer keeps what `level` protects.
    pub fn violates(&self, level: Level) -> bool {
        self.same.is_none_or(|same| same < level)
    }
}

/// Compares two layouts.
///
/// # Errors
/// If the swizzles differ and the limit of points is too low to decide whether the functions are
/// equal.
pub fn compare(
    old: &SwizzledLayout,
    new: &SwizzledLayout,
    limits: Limits,
) -> Result<Change, Box<Rejection>> {
    let (a, b) = (identity(old), identity(new));
    if a.text == b.text {
        return Ok(Change { same: Some(Level::Text), reason: "nothing changed".to_owned() });
    }
    let equality = equal_swizzled(old, new, limits)?;
    let (same, reason) = match (equality.equal, a.profile == b.profile) {
        (false, _) => (None, equality.proof.claim.into_owned()),
        (true, false) => (
            Some(Level::Function),
            format!("the shape {} became {}; every offset stayed", a.profile, b.profile),
        ),
        (true, true) => (
            Some(Level::Profile),
            "only the text changed: the shape and every offset stayed".to_owned(),
        ),
    };
    Ok(Change { same, reason })
}
