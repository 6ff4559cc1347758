//! The folder of an export. Everything is written into a hidden folder inside of it and put in
//! place at the end, so that a failed export leaves what was there before.

#![expect(clippy::disallowed_methods, reason = "the folder that the user named for the export")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use rgpu_model::error::{Exit, Failure, Result};

/// The name of the page in an export.
const PAGE: &str = "index.html";

/// The folder of the runs' reports in an export.
const RUNS: &str = "runs";

/// The file with the report of a run, in its folder.
const REPORT: &str = "report.html";

/// An export that is being written. Unless it is finished, nothing of it stays.
pub(super) struct ExportFolder {
    target: PathBuf,
    /// Folders that did not exist before, the deepest first.
    created: Vec<PathBuf>,
    /// `None` once it is finished.
    staging: Option<TempDir>,
    staged: PathBuf,
}

impl ExportFolder {
    /// Makes the folder if needed.
    pub(super) fn begin(target: &Path) -> Result<Self> {
        if !is_absent_or_exported(&target.join(RUNS)).map_err(failed(target))? {
            let what = format!("the folder has `{RUNS}` with files that no export made");
            return Err(Failure::new(Exit::Usage, "foreign_file", what)
                .file(target.display())
                .hint("export into another folder"));
        }
        let missing = target.ancestors().take_while(|folder| !folder.exists());
        let mut own = Self {
            target: target.to_owned(),
            created: missing.map(Path::to_owned).collect(),
            staging: None,
            staged: PathBuf::new(),
        };
        fs::create_dir_all(target).map_err(failed(target))?;
        let staging = tempfile::Builder::new().prefix(".writing-").tempdir_in(target);
        let staging = staging.map_err(failed(target))?;
        own.staged = staging.path().join("new");
        fs::create_dir(&own.staged).map_err(failed(target))?;
        own.staging = Some(staging);
        Ok(own)
    }

    /// Writes the report of a run. Returns its size in bytes.
    pub(super) fn write_report(&self, run: &str, page: &str) -> Result<u64> {
        let folder = self.staged.join(RUNS).join(run);
        fs::create_dir_all(&folder).map_err(failed(&self.target))?;
        self.write(&folder.join(REPORT), page)
    }

    /// Writes the page and puts everything in place. Returns the page's path and size in bytes.
    ///
    /// # Errors
    /// I/O errors; what was there before stays.
    pub(super) fn finish(mut self, page: &str) -> Result<(PathBuf, u64)> {
        let bytes = self.write(&self.staged.join(PAGE), page)?;
        let (old, new) = (self.target.join(RUNS), self.staged.join(RUNS));
        let aside = self.staged.with_file_name("old");
        let has_old = old.exists();
        let replace = || {
            if has_old {
                fs::rename(&old, &aside)?;
            }
            if new.exists() {
                fs::rename(&new, &old)?;
            }
            fs::rename(self.staged.join(PAGE), self.target.join(PAGE))
        };
        if let Err(error) = replace() {
            if aside.exists() {
                let _ = fs::rename(&old, &new);
                let _ = fs::rename(&aside, &old);
            } else if !has_old {
                let _ = fs::rename(&old, &new);
            }
            return Err(failed(&self.target)(error));
        }
        self.created.clear();
        Ok((self.target.join(PAGE), bytes))
    }

    fn write(&self, path: &Path, text: &str) -> Result<u64> {
        fs::write(path, text).map_err(failed(&self.target))?;
        Ok(text.len() as u64)
    }
}

impl Drop for ExportFolder {
    fn drop(&mut self) {
        drop(self.staging.take());
        for folder in &self.created {
            // Others may have put something into it meanwhile; then it stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Whether there is nothing, or a folder that has nothing but folders with one report each.
fn is_absent_or_exported(runs: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(runs) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Ok(!runs.exists()),
        Err(e) => return Err(e),
    };
    if fs::symlink_metadata(runs)?.is_symlink() {
        return Ok(false);
    }
    for run in entries {
        let run = run?;
        if !run.file_type()?.is_dir() {
            return Ok(false);
        }
        for file in fs::read_dir(run.path())? {
            if file?.file_name() != REPORT {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn failed(target: &Path) -> impl Fn(io::Error) -> Failure {
    let target = target.display().to_string();
    move |error| {
        Failure::new(Exit::Disk, "disk", "the export cannot be written; nothing of it was kept")
            .file(&target)
            .cause(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_export_replaces_an_earlier_one_and_leaves_other_files() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a/page");
        let first = ExportFolder::begin(&target).unwrap();
        first.write_report("one", "1").unwrap();
        first.finish("first").unwrap();
        fs::write(target.join("notes.txt"), "mine").unwrap();
        let second = ExportFolder::begin(&target).unwrap();
        second.write_report("two", "2").unwrap();
        assert_eq!(fs::read_to_string(target.join(PAGE)).unwrap(), "first");
        let (page, bytes) = second.finish("second").unwrap();
        assert_eq!((page, bytes), (target.join(PAGE), 6));
        assert_eq!(names(&target), ["index.html", "notes.txt", "runs"]);
        assert_eq!(names(&target.join(RUNS)), ["two"]);
    }

    #[test]
    fn an_export_that_is_not_finished_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a/page");
        let folder = ExportFolder::begin(&target).unwrap();
        folder.write_report("one", "1").unwrap();
        drop(folder);
        assert_eq!(names(dir.path()), [""; 0]);
        // Nor does one whose page cannot take its place.
        fs::create_dir_all(target.join("index.html/full")).unwrap();
        fs::create_dir_all(target.join("runs/old")).unwrap();
        let folder = ExportFolder::begin(&target).unwrap();
        folder.write_report("one", "1").unwrap();
        assert_eq!(folder.finish("page").unwrap_err().code, "disk");
        assert_eq!(names(&target), ["index.html", "runs"]);
        assert_eq!(names(&target.join(RUNS)), ["old"]);
    }

    #[test]
    fn a_folder_of_runs_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("runs/one")).unwrap();
        fs::write(dir.path().join("runs/one/run.json"), "{}").unwrap();
        let refused = ExportFolder::begin(dir.path()).err().unwrap();
        assert_eq!(refused.code, "foreign_file");
        assert_eq!(names(&dir.path().join("runs/one")), ["run.json"]);
    }
}
