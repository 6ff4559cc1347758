//! What a run does at the moment, from the files that it appends to.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

use super::RunFolder;
use crate::regular_file;

/// The part of the events that is searched for the phase, from their end.
const EVENTS_BYTES: u64 = 16 << 10;

/// What a run does, from the last event that begins a phase.
pub fn phase(folder: &RunFolder) -> Option<String> {
    let (text, _) = tail(&folder.path().join("events.jsonl"), EVENTS_BYTES)?;
    let mut link_is_back = false;
    text.lines().rev().find_map(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        let title = || event["title"].as_str().map(ToOwned::to_owned);
        match event["event"].as_str()? {
            "link_back" => link_is_back = true,
            "link_lost" if !link_is_back => {
                return Some(format!("the link is lost: {}", title().unwrap_or_default()));
            }
            "queued" => return Some("waiting for the GPU".to_owned()),
            "step_started" => return title(),
            "ended" => return Some("fetching the results".to_owned()),
            _ => {}
        }
        None
    })
}

/// The end of a file as text, and the size of the file. `None` if it cannot be read.
pub fn tail(path: &Path, max_bytes: u64) -> Option<(String, u64)> {
    let length = regular_file::open(path).ok()?.metadata().ok()?.len();
    let bytes = read_at(path, length.saturating_sub(max_bytes), max_bytes).ok()?;
    Some((String::from_utf8_lossy(&bytes).into_owned(), length))
}

/// At max_bytes `max_bytes` bytes of a file from `offset` on.
///
/// # Errors
/// I/O errors.
pub fn read_at(path: &Path, offset: u64, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut file = regular_file::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}
