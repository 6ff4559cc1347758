//! Reads JSON documents that were saved before: profiles, suites, comparisons, records of runs, and
//! files that the user names.
//!
//! They may come with a clone. Small values take a multiple of their text as fields of a document, so
//! each text is counted before it is read. serde_json bounds the depth.

use rgpu_format::memory::MemoryBudget;
use serde::de::{DeserializeOwned, Error};

/// Reads a document.
///
/// # Errors
/// The text is no such document, or has more values than a text of its size may have. The error says
/// at which byte.
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    MemoryBudget::of(text.len()).take_document(text).map_err(serde_json::Error::custom)?;
    serde_json::from_slice(text)
}

/// Memory of any value of a JSON document that is kept as it is.
const ANY_VALUE_BYTES: usize = 80;
/// Memory of an object of such a document.
const ANY_OBJECT_BYTES: usize = 250;

/// Reads a document whose form is not known.
pub fn any_from_slice(text: &[u8]) -> serde_json::Result<serde_json::Value> {
    check_any(text)?;
    serde_json::from_slice(text)
}

/// Checks the memory of a document whose form is not known.
pub fn check_any(text: &[u8]) -> serde_json::Result<()> {
    let mut budget = MemoryBudget::of(text.len());
    // The texts of all strings. A budget is larger than this part of it.
    let _ = budget.take(text.len());
    let taken = budget.take_json(text, ANY_OBJECT_BYTES, ANY_VALUE_BYTES);
    taken.map_err(serde_json::Error::custom)
}
