//! The causes of slow steps: each finds its signature and says what would remove it.

#[cfg(test)]
pub(crate) mod test_view;

use crate::edits::Edits;
use crate::view::View;

/// A cause of slow steps.
pub struct Cause {
    /// snake_case id of its findings.
    pub id: &'static str,
    /// Looks for the signature in the window's steps.
    pub find: fn(&View<'_>) -> Option<Found>,
}

/// A cause that was found, and the change that removes it.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The change in a few words, as an order: `copy from pinned memory`.
    pub change: String,
    /// What was found, with its numbers; one sentence without a full stop.
    pub text: String,
    /// The next concrete step, with the line of code to write where there is one.
    pub hint: String,
    /// The change where it gives least.
    pub least: Edits,
    /// The change where it gives most.
    pub most: Edits,
    /// The work that it is about: indexes into the trace's work; may be empty.
    pub work: Vec<u32>,
    /// The calls that it is about: indexes into the trace's calls; may be empty.
    pub calls: Vec<u32>,
    /// If another cause explains the same just as well: the measurement that decides.
    pub decides: Option<String>,
    /// Whether `most` is only an upper bound, since the change may not be possible as assumed.
    pub is_bound: bool,
}

/// Every cause.
pub static CAUSES: &[Cause] = &[];
