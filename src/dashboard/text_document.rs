//! The end of a text file: a log or a patch.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use rgpu_model::beneath::Folder;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::store::live;

/// A text (`rgpu.dashboard-text/1`): a log or a patch.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct TextDocument {
    /// Name and version of this schema: `rgpu.dashboard-text/1`.
    pub(super) schema: &'static str,
    /// The name of the file.
    pub(super) name: String,
    /// The size of the file in bytes.
    pub(super) bytes: u64,
    /// Whether the beginning of the file is left out.
    pub(super) cut: bool,
    /// The text of the file, or its end if it is long.
    pub(super) text: String,
}

impl TextDocument {
    /// The end of a file.
    pub(super) fn from_end(
        folder: &Folder,
        path: impl AsRef<Path>,
        name: &str,
        max_bytes: u64,
    ) -> Result<Self> {
        let file = folder.open_file(&path).ok();
        let end = file.and_then(|file| live::tail_of(file, max_bytes));
        let (text, bytes) = end.ok_or_else(|| {
            let what = format!("`{name}` cannot be read");
            let path = folder.path().join(path);
            Failure::new(Exit::Artifact, "unreadable", what).file(path.display())
        })?;
        let schema = "rgpu.dashboard-text/1";
        Ok(Self { schema, name: name.to_owned(), bytes, cut: bytes > max_bytes, text })
    }
}
