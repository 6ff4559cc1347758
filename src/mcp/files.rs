//! Files that a client sends with a call: kernels and programs that are not in the project.

#![expect(clippy::disallowed_methods, reason = "a folder of its own below rgpu's cache")]

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::McpContext;
use super::arguments::argument_error;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::CALL_PREFIX;

/// The most text in all files of a call.
const MAX_FILE_BYTES: usize = 256 << 10;

/// A file with its text.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InlineFile {
    /// Where it stands in the folder that is made for the call, e.g. `k/kernel.toml`.
    path: String,
    /// Its text.
    text: String,
}

/// Folders of commands that outlived their server are removed after this time.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder with the files of a call. Dropping it removes it. A kernel there brings along no file
/// from elsewhere, which `rgpu_plan` knows by the folder's name.
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
            return Err(argument_error(format!(
                "`files`: {bytes} bytes; a call takes at most {limit} kB"
            ))
            .hint("put larger files into the project and name them"));
        }
        let failed = |e: std::io::Error| {
            Failure::new(Exit::Disk, "disk", "the files of a call cannot be written").cause(e)
        };
        make_folder(&context.scratch).map_err(failed)?;
        let folder = tempfile::Builder::new().prefix(CALL_PREFIX).tempdir_in(&context.scratch);
        let sent = Self { folder: folder.map_err(failed)? };
        for file in files {
            let path = sent.path(&file.path)?;
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

    /// The folder itself, for a command that reads it.
    pub(super) fn into_folder(self) -> TempDir {
        self.folder
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of one of the files.
    pub(super) fn path(&self, inner: &str) -> Result<PathBuf> {
        let path = Path::new(inner);
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if is_plain && !inner.is_empty() && !inner.contains('\0') {
            Ok(self.folder.path().join(path))
        } else {
            Err(argument_error(format!("`files`: `{inner}` is not a path below a folder")))
        }
    }

    /// The path of one of the files, or of a folder with some; `None` if there is none.
    pub(super) fn find(&self, inner: &str) -> Option<PathBuf> {
        self.path(inner).ok().filter(|path| path.exists())
    }
}

/// Makes the scratch folder, for the user alone.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(folder)
}

/// Removes folders that commands of earlier servers left.
pub(super) fn remove_old(context: &McpContext) {
    let Ok(entries) = fs::read_dir(&context.scratch) else { return };
    for entry in entries.flatten() {
        let age = entry.metadata().and_then(|metadata| metadata.modified());
        let age = age.ok().and_then(|modified| modified.elapsed().ok());
        if age.is_some_and(|age| age > KEEP) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(folder: &Path) -> McpContext {
        McpContext {
            program: "rgpu".into(),
            runs: folder.join("runs"),
            scratch: folder.join("scratch"),
            started: rgpu_run::store::StartedRuns::in_cache(folder),
            project_folder: rgpu_model::beneath::Folder::open(folder).unwrap(),
            project: folder.to_owned(),
        }
    }

    fn file(path: &str, text: &str) -> InlineFile {
        InlineFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn files_go_into_a_folder_of_their_own_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let context = context(dir.path());
        let files = [file("k/kernel.toml", "a"), file("k/k.cu", "b")];
        let sent = SentFiles::write(&context, &files).unwrap().unwrap();
        assert_eq!(fs::read_to_string(sent.find("k/k.cu").unwrap()).unwrap(), "b");
        assert!(sent.find("k").unwrap().starts_with(&context.scratch));
        assert_eq!(sent.find("other"), None);
        let folder = sent.folder().to_owned();
        drop(sent);
        assert!(!folder.exists());
        for wrong in ["../x", "/etc/x", "", "a/../../x", "a\0b", "./x"] {
            let result = SentFiles::write(&context, &[file(wrong, "")]);
            assert_eq!(result.unwrap_err().code, "wrong_argument", "{wrong}");
        }
        let large = SentFiles::write(&context, &[file("a", &"x".repeat(MAX_FILE_BYTES + 1))]);
        assert_eq!(large.unwrap_err().code, "wrong_argument");
        let twice = SentFiles::write(&context, &[file("a", "x"), file("a", "y")]);
        assert!(twice.is_err());
        assert_eq!(fs::read_dir(&context.scratch).unwrap().count(), 0);
    }
}
