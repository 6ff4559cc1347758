//! Keeps the files of a project as they are when an entry is added, so that nothing is run from code
//! that changed meanwhile.
//!
//! `patch` keeps the commit and a patch with all changes since, new files included; git lays both
//! out for each attempt. `copy` keeps the files themselves, without those that git ignores.
//! Both keep the whole repository; outside of one, `copy` keeps the project folder.
//!
//! An attempt's tree lies below the user's repository, which is at another commit by then. So the
//! tree is a repository of its own, at the commit that was kept, and borrows the user's objects.

#![expect(
    clippy::disallowed_methods,
    reason = "the project's own sources, and a copy outside of it"
)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ignore::WalkBuilder;
use tempfile::TempDir;

use super::QueueError;
use super::entry::{NewEntry, SnapshotMode};
use super::error::io_error;
use crate::beneath::Folder;
use crate::program_answer::{MAX_LIST_BYTES, MAX_PROBE_BYTES, read_answer, wait_for_answer};
use crate::store::{project_files, quiet_git};

/// The names inside an entry's folder.
const PATCH: &str = "changes.patch";
const FILES: &str = "files";

/// Why git cannot be used.
const FILTER_NAME: &str = "its settings name a filter with `=`";

/// A snapshot that no entry has yet. Dropping it removes it.
pub(super) struct TakenSnapshot {
    folder: TempDir,
    /// The repository and the commit, if there is one.
    pub(super) base: Option<(PathBuf, String)>,
    /// The command's folder inside the snapshot.
    pub(super) inner: PathBuf,
}

impl TakenSnapshot {
    /// Gives the snapshot its place as the folder of an entry.
    pub(super) fn move_to_entry(self, files: &Folder, folder: &Path) -> io::Result<()> {
        files.rename(self.folder.keep(), folder)
    }
}

/// Takes the snapshot that an entry asks for, in a temporary folder below `queue` of the state
/// folder.
pub(super) fn take(new: &NewEntry, files: &Folder) -> Result<Option<TakenSnapshot>, QueueError> {
    if new.snapshot == SnapshotMode::None {
        return Ok(None);
    }
    let queue = &files.path().join("queue");
    files.make_private_folder(queue).map_err(io_error("create", queue))?;
    let folder = tempfile::Builder::new().prefix(".adding-").tempdir_in(queue);
    let folder = folder.map_err(io_error("create", queue))?;
    let top = repository(&new.cwd);
    let (root, base) = match (new.snapshot, top) {
        (SnapshotMode::Patch, Some(top)) => {
            let commit = write_patch(&top, folder.path())?;
            (top.clone(), Some((top, commit)))
        }
        (SnapshotMode::Patch, None) => {
            return Err(refused(&new.cwd, "it is not in a git repository, or there is no git"));
        }
        (_, top) => {
            let root = top.clone().unwrap_or_else(|| new.project.clone());
            let files = folder.path().join(FILES);
            copy(&root, &project_files::walker(&root), &files)?;
            if let Some(top) = &top {
                copy_tracked_but_ignored(top, &files)?;
            }
            // A new repository has no commit.
            let commit = top.as_deref().and_then(|top| head(top, folder.path()).ok());
            (root, top.zip(commit))
        }
    };
    let inner = new
        .cwd
        .canonicalize()
        .ok()
        .and_then(|cwd| cwd.strip_prefix(root.canonicalize().ok()?).map(Path::to_owned).ok());
    let Some(inner) = inner else {
        return Err(refused(&new.cwd, "it is not below the folder that would be kept"));
    };
    Ok(Some(TakenSnapshot { folder, base, inner }))
}

/// Lays out the snapshot in an entry's folder as the new folder `tree`.
pub(super) fn lay_out(
    mode: SnapshotMode,
    (files, folder): (&Folder, &Path),
    base: Option<&(PathBuf, String)>,
    tree: &Path,
) -> Result<(), QueueError> {
    // New, so that nothing in it can lead elsewhere.
    files.new_private_folder(tree).map_err(io_error("create", tree))?;
    match (mode, base) {
        (SnapshotMode::Patch, Some((top, commit))) => {
            apply_patch(top, commit, &folder.join(PATCH), tree)
        }
        _ => {
            let files = folder.join(FILES);
            copy(&files, WalkBuilder::new(&files).standard_filters(false), tree)?;
            let Some((top, commit)) = base else { return Ok(()) };
            let made = Git::new(top, folder).and_then(|git| git.make_repository(commit, tree));
            if made.is_err() {
                // The files are all there, only their commit is not any more.
                let _ = fs::remove_dir_all(tree.join(".git"));
            }
            Ok(())
        }
    }
}

fn refused(folder: &Path, why: impl Into<String>) -> QueueError {
    QueueError::Snapshot { folder: folder.to_owned(), why: why.into() }
}

/// The top folder of the repository that contains `folder`.
fn repository(folder: &Path) -> Option<PathBuf> {
    let mut git = quiet_git(folder)?;
    git.args(["rev-parse", "--show-toplevel"]);
    let output = read_answer(&mut git, MAX_PROBE_BYTES).ok()?;
    path_line(&output.stdout).filter(|_| output.status.success())
}

/// A path that git printed on a line.
fn path_line(bytes: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes).to_vec();
    (!line.is_empty()).then(|| PathBuf::from(std::ffi::OsString::from_vec(line)))
}

/// A repository with an index and new objects of our own: nothing of the user's changes.
struct Git<'a> {
    top: &'a Path,
    scratch: TempDir,
    objects: PathBuf,
}

impl<'a> Git<'a> {
    fn new(top: &'a Path, parent: &Path) -> Result<Self, QueueError> {
        let scratch = tempfile::Builder::new().prefix(".git-").tempdir_in(parent);
        let scratch = scratch.map_err(io_error("create", parent))?;
        let new_objects = scratch.path().join("objects");
        fs::create_dir(&new_objects).map_err(io_error("create", &new_objects))?;
        let mut git = Self { top, scratch, objects: PathBuf::new() };
        let objects = git.output(&["rev-parse", "--git-path", "objects"])?;
        git.objects = top.join(path_line(&objects).unwrap_or_default());
        Ok(git)
    }

    fn command(&self, args: &[&str]) -> Result<Command, QueueError> {
        let mut git = quiet_git(self.top).ok_or_else(|| refused(self.top, FILTER_NAME))?;
        git.args(args).stdin(Stdio::null());
        if !self.objects.as_os_str().is_empty() {
            git.env("GIT_INDEX_FILE", self.scratch.path().join("index"))
                .env("GIT_OBJECT_DIRECTORY", self.scratch.path().join("objects"))
                .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &self.objects);
        }
        Ok(git)
    }

    fn output(&self, args: &[&str]) -> Result<Vec<u8>, QueueError> {
        output_of(self.command(args)?, self.top, args)
    }

    /// The commit that HEAD points to.
    fn head(&self) -> Result<String, QueueError> {
        let commit = self
            .output(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
            .map_err(|_| refused(self.top, "the repository has no commit yet"))?;
        Ok(String::from_utf8_lossy(&commit).trim().to_owned())
    }

    /// Refuses folders with a repository of their own: a patch has only their commit.
    fn check_no_inner_repository(&self) -> Result<(), QueueError> {
        let index = self.output(&["ls-files", "--stage", "-z"])?;
        for entry in index.split(|byte| *byte == 0) {
            let Some(at) = entry.iter().position(|byte| *byte == b'\t') else { continue };
            let inner = path_line(&entry[at + 1..]).unwrap_or_default();
            // A submodule that is not checked out has nothing to lose.
            let is_empty = || {
                let mut files = fs::read_dir(self.top.join(&inner)).ok()?;
                Some(files.next().is_none())
            };
            if entry.starts_with(b"160000 ") && is_empty() == Some(false) {
                let inner = inner.display();
                let why = format!(
                    "`{inner}` is a submodule or another repository, whose files are in no \
                     patch: use `--snapshot copy`"
                );
                return Err(refused(self.top, why));
            }
        }
        Ok(())
    }

    /// Makes `tree` a repository at the commit, so that git and rgpu's records find the commit that
    /// is run, and not the repository above.
    fn make_repository(&self, commit: &str, tree: &Path) -> Result<(), QueueError> {
        let git = |args: &[&str]| {
            let mut git = quiet_git(tree).ok_or_else(|| refused(tree, FILTER_NAME))?;
            git.args(args).stdin(Stdio::null());
            output_of(git, tree, args)
        };
        let format = if commit.len() == 64 { "sha256" } else { "sha1" };
        git(&["init", "--quiet", "--template=", &format!("--object-format={format}")])?;
        let path = tree.join(".git/objects/info/alternates");
        let line = [self.objects.as_os_str().as_encoded_bytes(), b"\n"].concat();
        fs::write(&path, line).map_err(io_error("write", &path))?;
        git(&["update-ref", "--no-deref", "HEAD", commit])?;
        git(&["read-tree", "HEAD"]).map(drop)
    }
}

/// Runs git in `folder` and returns what it printed.
fn output_of(mut git: Command, folder: &Path, args: &[&str]) -> Result<Vec<u8>, QueueError> {
    let verb = args.first().copied().unwrap_or_default();
    let output = read_answer(&mut git, MAX_LIST_BYTES)
        .map_err(|cause| refused(folder, format!("git {verb}: {cause}")))?;
    check_success(&output, folder, verb)?;
    Ok(output.stdout)
}

fn check_success(output: &Output, folder: &Path, verb: &str) -> Result<(), QueueError> {
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(refused(folder, format!("git {verb}: {}", words.trim())))
}

fn head(top: &Path, folder: &Path) -> Result<String, QueueError> {
    Git::new(top, folder)?.head()
}

/// Writes the changes since the last commit, new files included, and returns the commit.
fn write_patch(top: &Path, folder: &Path) -> Result<String, QueueError> {
    let git = Git::new(top, folder)?;
    let commit = git.head()?;
    git.output(&["read-tree", &commit])?;
    git.output(&["add", "--all", "--", "."])?;
    git.check_no_inner_repository()?;
    let flags =
        ["--cached", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-renames"];
    let path = folder.join(PATCH);
    let file = fs::File::create(&path).map_err(io_error("create", &path))?;
    // The files of a project may be of any size, so its patch is no answer to be read.
    let mut diff = git.command(&[&["diff"], &flags[..], &[commit.as_str()]].concat())?;
    let patch = file.try_clone().map_err(io_error("write", &path))?;
    let started = diff.stdout(patch).stderr(Stdio::piped()).spawn();
    let output = started.and_then(|child| wait_for_answer(child, MAX_LIST_BYTES));
    check_success(&output.map_err(io_error("start", Path::new("git")))?, folder, "diff")?;
    file.sync_all().map_err(io_error("write", &path))?;
    Ok(commit)
}

/// Lays out a commit with a patch.
fn apply_patch(top: &Path, commit: &str, patch: &Path, tree: &Path) -> Result<(), QueueError> {
    let parent = tree.parent().unwrap_or(tree);
    let git = Git::new(top, parent)?;
    git.output(&["read-tree", commit])?;
    let size = fs::metadata(patch).map_err(io_error("read", patch))?.len();
    if size > 0 {
        let file = patch.to_string_lossy();
        git.output(&["apply", "--cached", "--binary", "--whitespace=nowarn", "--", &file])?;
    }
    let mut prefix = std::ffi::OsString::from("--prefix=");
    prefix.push(tree);
    prefix.push("/");
    let mut checkout = git.command(&["checkout-index", "--all"])?;
    let output = read_answer(checkout.arg(prefix), MAX_LIST_BYTES)
        .map_err(io_error("start", Path::new("git")))?;
    match output.status.success() {
        true => git.make_repository(commit, tree),
        false => Err(refused(top, String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Copies what a walk finds.
fn copy(from: &Path, walk: &WalkBuilder, to: &Path) -> Result<(), QueueError> {
    for entry in walk.build() {
        let entry = entry.map_err(|e| refused(from, e.to_string()))?;
        let Ok(inner) = entry.path().strip_prefix(from) else { continue };
        let target = if inner.as_os_str().is_empty() { to.to_owned() } else { to.join(inner) };
        let Some(kind) = entry.file_type() else { continue };
        copy_one(entry.path(), kind, &target).map_err(io_error("copy", entry.path()))?;
    }
    Ok(())
}

/// Copies files that git keeps although a pattern of .gitignore names them. A walk leaves them out.
fn copy_tracked_but_ignored(top: &Path, to: &Path) -> Result<(), QueueError> {
    let mut git = quiet_git(top).ok_or_else(|| refused(top, FILTER_NAME))?;
    let args = ["ls-files", "-z", "--cached", "--ignored", "--exclude-standard"];
    git.args(args).stdin(Stdio::null());
    for name in output_of(git, top, &args)?.split(|byte| *byte == 0) {
        let Some(inner) = path_line(name) else { continue };
        let (path, target) = (top.join(&inner), to.join(&inner));
        // Removed since, or a submodule, whose files the walk finds.
        let Ok(kind) = fs::symlink_metadata(&path).map(|metadata| metadata.file_type()) else {
            continue;
        };
        if kind.is_dir() || fs::symlink_metadata(&target).is_ok() {
            continue;
        }
        let parent = target.parent().unwrap_or(to);
        let copied = fs::create_dir_all(parent).and_then(|()| copy_one(&path, kind, &target));
        copied.map_err(io_error("copy", &path))?;
    }
    Ok(())
}

fn copy_one(from: &Path, kind: fs::FileType, to: &Path) -> io::Result<()> {
    if kind.is_dir() {
        fs::create_dir_all(to)
    } else if kind.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, to)
    } else if kind.is_file() {
        fs::copy(from, to).map(drop)
    } else {
        // Pipes, sockets and devices are no code.
        Ok(())
    }
}
