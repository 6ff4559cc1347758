//! Files that a client sends with a call: kernels and programs that are not in the project.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use tempfile::TempDir;

use super::McpContext;
use super::arguments::wrong;
use crate::error::{Exit, Failure, Result};

/// The most text in all files of a call.
const MAX_FILE_BYTES: usize = 256 << 10;

/// A file with its text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InlineFile {
    /// Where it stands in the folder that is made for the call, e.g. `k/kernel.toml`.
    path: String,
    /// Its text.
    text: String,
}

/// The folder with the files of a call. Dropping it removes it.
#[derive(Debug)]
pub(super) struct SentFiles {
    folder: TempDir,
}

impl SentFiles {
    /// Writes the files of a call; `None` if there are none.
    pub(super) fn write(context: &McpContext, files: &[InlineFile]) -> Result<Option<Self>> {
        if files.is_empty() {
            return Ok(None);
        }
        let bytes: usize = files.iter().map(|file| file.text.len()).sum();
        if bytes > MAX_FILE_BYTES {
            let limit = MAX_FILE_BYTES >> 10;
            return Err(wrong(format!("`files`: {bytes} bytes; a call takes at most {limit} kB"))
                .hint("put larger files into the project and name them"));
        }
        let failed = |e: std::io::Error| {
            Failure::new(Exit::Disk, "disk", "the files of a call cannot be written").cause(e)
        };
        make_folder(&context.scratch).map_err(failed)?;
        let folder = tempfile::Builder::new().prefix("files-").tempdir_in(&context.scratch);
        let sent = Self { folder: folder.map_err(failed)? };
        for file in files {
            let path = sent.place(&file.path)?;
            let parent = path.parent().unwrap_or(sent.folder.path());
            fs::create_dir_all(parent)
                .and_then(|()| {
                    let mut options = fs::OpenOptions::new();
                    let mut new = options.write(true).create_new(true).open(&path)?;
                    std::io::Write::write_all(&mut new, file.text.as_bytes())
                })
                .map_err(|e| failed(e).file(&file.path))?;
        }
        Ok(Some(sent))
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of one of the files.
    pub(super) fn place(&self, inner: &str) -> Result<PathBuf> {
        let path = Path::new(inner);
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        match is_plain && !inner.is_empty() && !inner.contains('\0') {
            true => Ok(self.folder.path().join(path)),
            false => Err(wrong(format!("`files`: `{inner}` is no path below a folder"))),
        }
    }

    /// Whether one of the files, or a folder with some, has this path.
    pub(super) fn has(&self, inner: &str) -> bool {
        self.place(inner).is_ok_and(|path| path.exists())
    }
}

/// Makes the scratch folder, for the user alone.
pub(super) fn make_folder(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(folder)
}
