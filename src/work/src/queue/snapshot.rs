//! Keeps the files of a project as they are when an entry is added, so that nothing is run from
//! code that changed meanwhile.
//!
//! `patch` keeps the commit and a patch with all changes since, new files included; git lays both
//! out for each attempt. `copy` keeps the files themselves, without those that git ignores.
//! Both keep the whole repository; outside of one, `copy` keeps the project folder.
//!
//! An attempt's tree lies below the user's repository, which is at another commit by then. So the
//! tree is a repository of its own, at the commit that was kept, and borrows the user's objects.

//!
//! Files are read from the descriptor of the repository's or project's folder, and written from
//! that of the state folder: no link in between is followed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ignore::{DirEntry, WalkBuilder};
use rustix::fs::{FileType, Mode};
use tempfile::TempDir;

use super::QueueError;
use super::entry::{NewEntry, SnapshotMode};
use super::error::io_error;
use rgpu_model::beneath::Folder;
use rgpu_model::program_answer::{
    MAX_LIST_BYTES, TREE_TIME, read_answer_within, wait_for_answer_within,
};
use rgpu_run::store::{QuietGit, inner_repositories, project_files};

/// The names inside an entry's folder.
const PATCH: &str = "changes.patch";
const FILES: &str = "files";

/// The command that writes the patch. Settings of git for people who read patches do not count.
const DIFF: [&str; 17] = [
    "-c",
    "diff.relative=false",
    "diff",
    "--cached",
    "--binary",
    "--full-index",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--unified=3",
    "--inter-hunk-context=0",
    "--submodule=short",
    "--ignore-submodules=none",
    "-O/dev/null",
];

/// The command that reads it.
const APPLY: [&str; 5] =
    ["apply", "--cached", "--binary", "--whitespace=nowarn", "--no-ignore-whitespace"];

/// The mode of the patch, before the user's umask.
const FILE_MODE: u32 = 0o666;

/// The mode of a file until it has its content.
const NEW_FILE_MODE: u32 = 0o600;

/// A snapshot that no entry has yet. Dropping it removes it.
pub(super) struct TakenSnapshot {
    folder: NewFolder,
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

/// A new folder, reached from the descriptor of the one above it. Dropping it removes it.
struct NewFolder {
    above: Folder,
    path: PathBuf,
    is_kept: bool,
}

impl NewFolder {
    /// Makes a folder with a random name.
    fn below(above: Folder, prefix: &str) -> io::Result<Self> {
        let make = |path: &Path| above.new_private_folder(path);
        let made = tempfile::Builder::new().prefix(prefix).make_in(above.path(), make)?;
        // It would be removed as a file.
        let (_, path) = made.keep().map_err(|e| e.error)?;
        Ok(Self { above, path, is_kept: false })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its path, and removes it no more.
    fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        self.path.clone()
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if !self.is_kept {
            // What cannot be removed does no harm.
            let _ = self.above.remove_folder(&self.path);
        }
    }
}

/// Takes the snapshot that an entry asks for, in a temporary folder below `queue` of the state
/// folder.
pub(super) fn take(new: &NewEntry, files: &Folder) -> Result<Option<TakenSnapshot>, QueueError> {
    if new.snapshot == SnapshotMode::None {
        return Ok(None);
    }
    let queue = &files.path().join("queue");
    let above = files.make_private_folder(queue).map_err(io_error("create", queue))?;
    let folder = NewFolder::below(above, ".adding-").map_err(io_error("create", queue))?;
    let top = repository(&new.cwd)?;
    let (root, base) = match (new.snapshot, top) {
        (SnapshotMode::Patch, Some(top)) => {
            let kept = files.folder(folder.path()).map_err(io_error("open", folder.path()))?;
            let commit = write_patch(&top, &kept)?;
            (top.clone(), Some((top, commit)))
        }
        (SnapshotMode::Patch, None) => {
            return Err(refused(&new.cwd, "it is not in a git repository, or there is no git"));
        }
        (_, top) => {
            let root = top.clone().unwrap_or_else(|| new.project.clone());
            let kept = folder.path().join(FILES);
            let kept = files.make_folder(&kept).map_err(io_error("create", &kept))?;
            let sources = Folder::open(&root).map_err(io_error("open", &root))?;
            copy(&sources, project_files::walk(&root), &kept)?;
            if top.is_some() {
                copy_tracked_but_ignored(&sources, &kept)?;
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
    if let Some((top, commit)) = base
        && !is_commit(commit)
    {
        // git would take another word for a flag.
        return Err(refused(top, format!("`{commit}` is no commit's hash")));
    }
    // New, so that nothing in it can lead elsewhere.
    let tree = files.new_private_folder(tree).map_err(io_error("create", tree))?;
    match (mode, base) {
        (SnapshotMode::Patch, Some((top, commit))) => {
            apply_patch(top, commit, (files, &folder.join(PATCH)), &tree)
        }
        _ => {
            let path = folder.join(FILES);
            let kept = files.folder(&path).map_err(io_error("open", &path))?;
            copy(&kept, WalkBuilder::new(&path).standard_filters(false).build(), &tree)?;
            let Some((top, commit)) = base else { return Ok(()) };
            let made = Git::new(top, folder).and_then(|git| git.make_repository(commit, &tree));
            if made.is_err() {
                // The files are all there, only their commit is not any more.
                let _ = tree.remove_folder(".git");
            }
            Ok(())
        }
    }
}

/// Checks that an entry's repository is the project's, or one below the project: the state database
/// names it, and that is a file of the project.
///
/// # Errors
/// It is another one, or cannot be told.
pub(super) fn check_repository(top: &Path, project: &Path) -> Result<(), QueueError> {
    let real = |path: &Path| path.canonicalize().map_err(io_error("find", path));
    let (real_top, real_project) = (real(top)?, real(project)?);
    if real_top.starts_with(&real_project) || repository(project)?.as_ref() == Some(&real_top) {
        return Ok(());
    }
    Err(refused(top, "it is not the project's repository"))
}

/// Whether a text is the hash of a commit.
fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn refused(folder: &Path, why: impl Into<String>) -> QueueError {
    QueueError::Snapshot { folder: folder.to_owned(), why: why.into() }
}

/// The top folder of the repository that contains `folder`.
fn repository(folder: &Path) -> Result<Option<PathBuf>, QueueError> {
    Ok(QuietGit::containing(folder)?.map(|git| git.top().to_owned()))
}

/// git in a folder that is known to be in a repository.
fn quiet_git(folder: &Path) -> Result<QuietGit, QueueError> {
    let why = "it is no git repository any more, or there is no git";
    QuietGit::containing(folder)?.ok_or_else(|| refused(folder, why))
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
    quiet: QuietGit,
    scratch: TempDir,
    objects: PathBuf,
}

impl<'a> Git<'a> {
    fn new(top: &'a Path, parent: &Path) -> Result<Self, QueueError> {
        let scratch = tempfile::Builder::new().prefix(".git-").tempdir_in(parent);
        let scratch = scratch.map_err(io_error("create", parent))?;
        let new_objects = scratch.path().join("objects");
        rustix::fs::mkdir(&new_objects, Mode::RWXU)
            .map_err(io::Error::from)
            .map_err(io_error("create", &new_objects))?;
        let quiet = quiet_git(top)?;
        let mut git = Self { top, quiet, scratch, objects: PathBuf::new() };
        let objects = git.output(&["rev-parse", "--git-path", "objects"])?;
        git.objects = top.join(path_line(&objects).unwrap_or_default());
        Ok(git)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut git = self.quiet.command(args);
        if !self.objects.as_os_str().is_empty() {
            git.env("GIT_INDEX_FILE", self.scratch.path().join("index"))
                .env("GIT_OBJECT_DIRECTORY", self.scratch.path().join("objects"))
                .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &self.objects);
        }
        git
    }

    fn output(&self, args: &[&str]) -> Result<Vec<u8>, QueueError> {
        output_of(self.command(args), self.top, args)
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
        for inner in inner_repositories(&index) {
            // A submodule that is not checked out has nothing to lose.
            let files = Folder::open(self.top).and_then(|top| top.folder(&inner)?.entries());
            if files.is_ok_and(|files| !files.is_empty()) {
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
    fn make_repository(&self, commit: &str, tree: &Folder) -> Result<(), QueueError> {
        let path = tree.path();
        let format = if commit.len() == 64 { "sha256" } else { "sha1" };
        output_of(QuietGit::init(path, format), path, &["init"])?;
        let quiet = quiet_git(path)?;
        let git = |args: &[&str]| output_of(quiet.command(args), path, args);
        let alternates = ".git/objects/info/alternates";
        tree.write_parts(alternates, [self.objects.as_os_str().as_encoded_bytes(), b"\n"])
            .map_err(io_error("write", &path.join(alternates)))?;
        git(&["update-ref", "--no-deref", "HEAD", commit])?;
        git(&["read-tree", "HEAD"]).map(drop)
    }
}

/// Runs git in `folder` and returns what it printed.
fn output_of(mut git: Command, folder: &Path, args: &[&str]) -> Result<Vec<u8>, QueueError> {
    let verb = args.first().copied().unwrap_or_default();
    let output = read_answer_within(&mut git, MAX_LIST_BYTES, TREE_TIME)
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
fn write_patch(top: &Path, folder: &Folder) -> Result<String, QueueError> {
    let git = Git::new(top, folder.path())?;
    let commit = git.head()?;
    git.output(&["read-tree", &commit])?;
    // Before `add`, which would start another git there with the settings of that repository.
    git.check_no_inner_repository()?;
    git.output(&["add", "--all", "--", "."])?;
    git.check_no_inner_repository()?;
    let path = folder.path().join(PATCH);
    let file = folder.create_new(PATCH, FILE_MODE).map_err(io_error("create", &path))?;
    // The files of a project may be of any size, so its patch is no answer to be read.
    let mut diff = git.command(&[&DIFF[..], &[commit.as_str()]].concat());
    // It may set the lines around a change, before any flag.
    diff.env_remove("GIT_DIFF_OPTS");
    let patch = file.try_clone().map_err(io_error("write", &path))?;
    let started = diff.stdout(patch).stderr(Stdio::piped()).spawn();
    let output = started.and_then(|child| wait_for_answer_within(child, MAX_LIST_BYTES, TREE_TIME));
    check_success(&output.map_err(io_error("start", Path::new("git")))?, folder.path(), "diff")?;
    file.sync_all().map_err(io_error("write", &path))?;
    Ok(commit)
}

/// Lays out a commit with a patch.
fn apply_patch(
    top: &Path,
    commit: &str,
    (files, patch): (&Folder, &Path),
    tree: &Folder,
) -> Result<(), QueueError> {
    let parent = tree.path().parent().unwrap_or(tree.path());
    let git = Git::new(top, parent)?;
    git.output(&["read-tree", commit])?;
    let bytes = files.open_file(patch).and_then(|file| file.metadata());
    if bytes.map_err(io_error("read", patch))?.len() > 0 {
        let file = patch.to_string_lossy();
        git.output(&[&APPLY[..], &["--", &*file]].concat())?;
    }
    let mut prefix = std::ffi::OsString::from("--prefix=");
    prefix.push(tree.path());
    prefix.push("/");
    let mut checkout = git.command(&["checkout-index", "--all"]);
    let output = read_answer_within(checkout.arg(prefix), MAX_LIST_BYTES, TREE_TIME)
        .map_err(io_error("start", Path::new("git")))?;
    if output.status.success() {
        git.make_repository(commit, tree)
    } else {
        Err(refused(top, String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// Copies what a walk of `from` finds.
fn copy(
    from: &Folder,
    walk: impl IntoIterator<Item = Result<DirEntry, ignore::Error>>,
    to: &Folder,
) -> Result<(), QueueError> {
    for entry in walk {
        let entry = entry.map_err(|e| refused(from.path(), e.to_string()))?;
        let Ok(inner) = entry.path().strip_prefix(from.path()) else { continue };
        if !inner.as_os_str().is_empty() {
            copy_one(from, inner, to).map_err(io_error("copy", entry.path()))?;
        }
    }
    Ok(())
}

/// Copies files that git keeps although a pattern of .gitignore names them. A walk leaves them out.
fn copy_tracked_but_ignored(from: &Folder, to: &Folder) -> Result<(), QueueError> {
    let top = from.path();
    let args = ["ls-files", "-z", "--cached", "--ignored", "--exclude-standard"];
    for name in output_of(quiet_git(top)?.command(&args), top, &args)?.split(|byte| *byte == 0) {
        let Some(inner) = path_line(name) else { continue };
        // Removed since, or a submodule, whose files the walk finds.
        let is_folder = matches!(from.kind(&inner), None | Some(FileType::Directory));
        if !is_folder && to.kind(&inner).is_none() {
            copy_one(from, &inner, to).map_err(io_error("copy", &top.join(&inner)))?;
        }
    }
    Ok(())
}

/// Copies a file, link or folder, without what is in the folder.
fn copy_one(from: &Folder, path: &Path, to: &Folder) -> io::Result<()> {
    match from.kind(path) {
        Some(FileType::Directory) => to.make_folder(path).map(drop),
        Some(FileType::Symlink) => {
            to.make_folder(path.parent().unwrap_or(Path::new("")))?;
            to.link(from.link_target(path)?, path)
        }
        Some(FileType::RegularFile) => {
            let mut source = from.open_file(path)?;
            to.make_folder(path.parent().unwrap_or(Path::new("")))?;
            let mut file = to.create_new(path, NEW_FILE_MODE)?;
            io::copy(&mut source, &mut file)?;
            file.set_permissions(source.metadata()?.permissions())
        }
        // Pipes, sockets and devices are no code.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_a_commit_of_the_projects_repository() {
        assert!(is_commit(&"0a".repeat(20)) && is_commit(&"0a".repeat(32)));
        let long = "0".repeat(41);
        for other in ["HEAD", "--index-output=/home/x", "", "0a0a0a0a", &long, &"g".repeat(40)] {
            assert!(!is_commit(other), "{other}");
        }
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().canonicalize().unwrap();
        let [project, other] = ["project", "other"].map(|name| above.join(name));
        let inner = project.join("inner");
        for folder in [&inner, &other] {
            std::fs::create_dir_all(folder).unwrap();
            assert!(QuietGit::init(folder, "sha1").status().unwrap().success());
        }
        check_repository(&inner, &project).unwrap();
        let refused = |top: &Path| check_repository(top, &project).unwrap_err().to_string();
        assert!(refused(&other).contains("it is not the project's repository"));
        assert!(refused(&above).contains("it is not the project's repository"));
        // The project may be a folder of a repository.
        assert!(QuietGit::init(&above, "sha1").status().unwrap().success());
        check_repository(&above, &project).unwrap();
        assert!(refused(&other).contains("it is not the project's repository"));
    }

    #[test]
    fn a_new_folder_is_removed_unless_it_is_kept_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let files = Folder::open(dir.path()).unwrap();
        let queue = dir.path().join("queue");
        let made = NewFolder::below(files.make_folder(&queue).unwrap(), ".adding-").unwrap();
        let path = made.path().to_owned();
        assert!(path.is_dir() && path.starts_with(&queue));
        std::fs::write(path.join("x"), "x").unwrap();
        drop(made);
        assert!(!path.exists());
        let kept = NewFolder::below(files.folder(&queue).unwrap(), ".adding-").unwrap().keep();
        assert!(kept.is_dir());
        // Where the folder above has been exchanged meanwhile, nothing is made.
        let (above, other) = (files.folder(&queue).unwrap(), dir.path().join("other"));
        std::fs::rename(&queue, dir.path().join("aside")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &queue).unwrap();
        drop(NewFolder::below(above, ".adding-"));
        assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0);
    }

    #[test]
    fn a_word_that_is_no_commit_is_not_given_to_git() {
        let dir = tempfile::tempdir().unwrap();
        let files = Folder::open(dir.path()).unwrap();
        let written = dir.path().join("written");
        let base = (dir.path().to_owned(), format!("--index-output={}", written.display()));
        let tree = dir.path().join("tree");
        let laid = lay_out(SnapshotMode::Patch, (&files, dir.path()), Some(&base), &tree);
        assert!(laid.unwrap_err().to_string().contains("is no commit's hash"));
        assert!(!written.exists() && !tree.exists());
    }
}
