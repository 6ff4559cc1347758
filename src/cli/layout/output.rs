//! Writes the files that a user names. A file of another kind is not overwritten without `--force`.

use std::path::Path;

use crate::cli::support::overwrite;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::store::atomic;

/// Writes a text and returns the path.
pub(super) fn save(path: &Path, text: &str, force: bool) -> Result<String> {
    if !force {
        check(path, text)?;
    }
    atomic::write(path, text.as_bytes()).map_err(|e| {
        Failure::new(Exit::Disk, "unwritten", "the file cannot be written")
            .file(path.display())
            .cause(e)
    })?;
    Ok(path.display().to_string())
}

/// Refuses to overwrite a file that is not of the same kind as the new text.
fn check(path: &Path, new: &str) -> Result<()> {
    if new.starts_with(['{', '<']) && !new.starts_with("<svg ") {
        return overwrite::check(path, new.as_bytes());
    }
    let Some(old) = overwrite::head(path).filter(|old| !old.is_empty()) else { return Ok(()) };
    if signature(&String::from_utf8_lossy(&old)) == signature(new) {
        Ok(())
    } else {
        Err(overwrite::refused(path, "the existing file is of another kind"))
    }
}

/// The text that identifies a drawing or a table: how it begins, up to the first name.
fn signature(text: &str) -> &str {
    const DRAWING: &str = "<svg ";
    let line = text.lines().next().unwrap_or_default();
    if line.starts_with(DRAWING) { DRAWING } else { line.split('`').next().unwrap_or_default() }
}
