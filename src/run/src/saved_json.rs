//! Reads JSON documents that were saved before: profiles, suites, comparisons, records of runs, and
//! files that the user names.
//!
//! They may come with a clone. Small values take a multiple of their text as fields of a document,
//! so each text is counted before it is read. serde_json bounds the depth.

use std::path::Path;

use rgpu_format::memory::MemoryBudget;
use rgpu_model::regular_file;
use serde::de::{DeserializeOwned, Error};

/// Larger files of rgpu's cache are not read: the facts of a host take some KiB.
const MAX_CACHED_BYTES: u64 = 16 << 20;

/// Reads a document.
///
/// # Errors
/// The text is no such document, or has more values than a text of its size may have. The error
/// says at which byte.
pub fn from_slice<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    MemoryBudget::for_file(text.len()).take_document(text).map_err(serde_json::Error::custom)?;
    serde_json::from_slice(text)
}

/// Reads a document of rgpu's own cache. `None` if there is none that can be used.
pub(crate) fn read_cached<T: DeserializeOwned>(path: &Path) -> Option<T> {
    from_slice(&regular_file::read(path, MAX_CACHED_BYTES).ok()?).ok()
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
    let mut budget = MemoryBudget::for_file(text.len());
    // The texts of all strings. A budget is larger than this part of it.
    let _ = budget.take(text.len());
    let taken = budget.take_json(text, ANY_OBJECT_BYTES, ANY_VALUE_BYTES);
    taken.map_err(serde_json::Error::custom)
}
