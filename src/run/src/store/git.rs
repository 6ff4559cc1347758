//! git in a folder that may have come from elsewhere. No other module starts git.
//!
//! An unpacked archive or a share brings its own `.git`, and with it settings and paths that
//! somebody else chose. So three rules hold for every git that rgpu starts:
//!
//! - A repository is used only if it belongs to the work tree: `.git` is its folder, or lies inside
//!   the work tree, or names this work tree itself. git writes such a back pointer for work trees
//!   (`gitdir`) and submodules (`core.worktree`), and an archive cannot write one outside of
//!   itself. No part of it where objects and refs are written is a symbolic link.
//! - git starts no program that the repository's settings name, and fetches nothing.
//! - Variables such as `GIT_DIR`, which git sets for its hooks, do not choose another repository.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::FileType;

use rgpu_model::beneath::Folder;
use rgpu_model::error::{Exit, Failure, shell_word};
use rgpu_model::program_answer::{MAX_LIST_BYTES, MAX_PROBE_BYTES, read_answer};
use rgpu_model::regular_file;

/// Settings under which git starts none of the programs that a repository configures, and writes no
/// more than the objects and refs that it is told to.
const QUIET_SETTINGS: [&str; 6] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.logAllRefUpdates=false",
    "core.splitIndex=false",
    "safe.bareRepository=explicit",
    "submodule.recurse=false",
];

/// Variables that choose a repository, or a part of one.
const REPOSITORY_VARIABLES: [&str; 7] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
];

/// The parts of a repository where objects and refs are written. In the first four, also what is
/// directly in them.
const WRITTEN_PARTS: [&str; 12] = [
    "objects",
    "reftable",
    "refs/rgpu/loop",
    "logs/refs/rgpu/loop",
    "refs",
    "refs/rgpu",
    "logs",
    "logs/refs",
    "logs/refs/rgpu",
    "packed-refs",
    "packed-refs.lock",
    "packed-refs.new",
];
const PARTS_WITH_CONTENT: usize = 4;

/// The keys of settings that name a program: a filter, or one that git-lfs starts.
const PROGRAM_KEYS: &str = r"^(filter|lfs|credential)\.|^core\.(sshcommand|askpass)$";

/// The files of `.git` that hold a path or a setting are small.
const MAX_POINTER_BYTES: u64 = 64 << 10;

/// Why a repository is not used.
#[derive(Clone, Debug, thiserror::Error)]
#[error("rgpu uses no repository through `{}`: {why}", path.display())]
pub struct RepositoryError {
    /// The file, folder or link that leads there.
    path: PathBuf,
    /// Where it leads, or what else is wrong.
    why: String,
    /// The command that makes it belong here, if the user says that it does.
    command: Option<String>,
}

impl RepositoryError {
    fn new(path: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self { path: path.into(), why: why.into(), command: None }
    }

    fn link(path: impl Into<PathBuf>) -> Self {
        Self::new(path, "it is a symbolic link")
    }
}

impl From<RepositoryError> for Failure {
    fn from(error: RepositoryError) -> Self {
        let failure = Self::new(Exit::Config, "foreign_repository", error.to_string())
            .hint("repositories that `git clone` and `git worktree add` make can be used");
        match error.command {
            Some(command) => {
                failure.hint(format!("if the repository is this folder's: `{command}`"))
            }
            None => failure,
        }
    }
}

/// git in a work tree whose repository belongs to it.
#[derive(Clone, Debug)]
pub struct QuietGit {
    folder: PathBuf,
    top: PathBuf,
    /// What replaces the programs that the repository's settings name.
    settings: Vec<String>,
}

impl QuietGit {
    /// git in `folder`, which starts no program that the repository configures and fetches nothing.
    /// Filters of the repository's own settings are replaced by the user's, or left out. `None`
    /// without git or outside a repository.
    ///
    /// # Errors
    /// The repository does not belong to the work tree; the name of a filter cannot be given to
    /// git.
    pub fn containing(folder: &Path) -> Result<Option<Self>, RepositoryError> {
        let Some(found) = FoundRepository::of(folder) else { return Ok(None) };
        found.check()?;
        let settings = settings_without_programs(folder, &found)?;
        Ok(Some(Self { folder: folder.to_owned(), top: found.top, settings }))
    }

    /// The folder that holds the work tree.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// A command of git, without standard input.
    pub fn command<A: AsRef<OsStr>>(&self, args: &[A]) -> Command {
        let mut git = git_command(&self.folder);
        for setting in &self.settings {
            git.args(["-c", setting]);
        }
        git.args(args);
        git
    }

    /// What a command prints; `None` if it fails.
    pub(crate) fn output(&self, args: &[&str]) -> Option<String> {
        text_of(self.command(args))
    }

    /// The command that makes a new folder a repository without a commit.
    pub fn init(folder: &Path, object_format: &str) -> Command {
        let mut git = git_command(folder);
        git.args(["init", "--quiet", "--template="]);
        git.arg(format!("--object-format={object_format}"));
        git
    }
}

/// The submodules and other inner repositories in what `git ls-files --stage -z` printed.
pub fn inner_repositories(staged: &[u8]) -> Vec<PathBuf> {
    let links = staged.split(|byte| *byte == 0).filter(|entry| entry.starts_with(b"160000 "));
    let path = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'\t')?;
        Some(PathBuf::from(OsString::from_vec(entry[at + 1..].to_vec())))
    };
    links.filter_map(path).collect()
}

fn git_command(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder);
    for setting in QUIET_SETTINGS {
        git.args(["-c", setting]);
    }
    for variable in REPOSITORY_VARIABLES {
        git.env_remove(variable);
    }
    // In a partial clone, the repository's settings name the program that fetches a missing object.
    git.env("GIT_NO_LAZY_FETCH", "1").env("GIT_ALLOW_PROTOCOL", "none");
    // `git status` writes the index back otherwise.
    git.env("GIT_OPTIONAL_LOCKS", "0").stdin(Stdio::null());
    git
}

/// What git printed; `None` if it failed.
fn text_of(mut git: Command) -> Option<String> {
    let output = read_answer(&mut git, MAX_LIST_BYTES).ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A repository as git finds it.
#[derive(Debug)]
struct FoundRepository {
    /// The folder of the work tree.
    top: PathBuf,
    /// The repository's folder for this work tree.
    git_dir: PathBuf,
    /// The folder with objects and refs: `git_dir`, but for further work trees.
    common_dir: PathBuf,
}

impl FoundRepository {
    fn of(folder: &Path) -> Option<Self> {
        let mut git = git_command(folder);
        git.args(["rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir"]);
        let output = read_answer(&mut git, MAX_PROBE_BYTES).ok()?;
        if !output.status.success() {
            return None;
        }
        let mut lines = output.stdout.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
        let mut path = || Some(PathBuf::from(OsString::from_vec(lines.next()?.to_vec())));
        let (top, git_dir, common_dir) = (path()?, path()?, path()?);
        if lines.next().is_some() {
            // A path with a line break.
            return None;
        }
        let canonical = |path: PathBuf| folder.join(path).canonicalize().ok();
        Some(Self {
            top: canonical(top)?,
            git_dir: canonical(git_dir)?,
            common_dir: canonical(common_dir)?,
        })
    }

    /// Checks that the repository belongs to the work tree, and that nothing is written through a
    /// link.
    fn check(&self) -> Result<(), RepositoryError> {
        let is_named_back = self.check_git_dir()?;
        self.check_common_dir(is_named_back)?;
        for folder in [&self.git_dir, &self.common_dir] {
            match first_link(folder) {
                Ok(None) => {}
                Ok(Some(link)) => return Err(RepositoryError::link(link)),
                Err(e) => return Err(RepositoryError::new(folder, e.to_string())),
            }
        }
        Ok(())
    }

    /// Returns whether the repository has a `gitdir` file that names this work tree.
    fn check_git_dir(&self) -> Result<bool, RepositoryError> {
        let entry = self.top.join(".git");
        let other_work_tree = || {
            let why = format!("its settings name another work tree, `{}`", self.top.display());
            RepositoryError::new(&self.git_dir, why)
        };
        let kind = fs::symlink_metadata(&entry).map_err(|_| other_work_tree())?.file_type();
        if kind.is_symlink() {
            return Err(RepositoryError::link(entry));
        }
        if kind.is_dir() {
            return if entry == self.git_dir { Ok(false) } else { Err(other_work_tree()) };
        }
        if pointed_at(&entry, "gitdir: ") != Some(self.git_dir.clone()) {
            return Err(other_work_tree());
        }
        if pointed_at(&self.git_dir.join("gitdir"), "") == entry.canonicalize().ok() {
            return Ok(true);
        }
        if self.git_dir.starts_with(&self.top) || self.names_work_tree() {
            return Ok(false);
        }
        let git_dir = self.git_dir.display();
        let why = format!("it leads to `{git_dir}`, which does not name this folder");
        let (git_dir, top) = (git_dir.to_string(), self.top.display().to_string());
        let words = ["git", "--git-dir", &git_dir, "config", "core.worktree", &top];
        let command = Some(words.map(shell_word).join(" "));
        Err(RepositoryError { command, ..RepositoryError::new(entry, why) })
    }

    /// Whether `core.worktree` of the repository's own files is this work tree.
    fn names_work_tree(&self) -> bool {
        ["config", "config.worktree"].into_iter().any(|name| {
            let mut git = git_command(&self.git_dir);
            git.args(["config", "--no-includes", "--file", name, "--get", "core.worktree"]);
            let named = text_of(git).map(|text| self.git_dir.join(text.trim_end_matches('\n')));
            named.is_some_and(|named| named.canonicalize().ok().as_ref() == Some(&self.top))
        })
    }

    fn check_common_dir(&self, is_named_back: bool) -> Result<(), RepositoryError> {
        let of_work_trees = self.git_dir.parent().filter(|parent| parent.ends_with("worktrees"));
        let is_own = self.common_dir == self.git_dir
            || of_work_trees.and_then(Path::parent) == Some(&self.common_dir)
                && (is_named_back || self.common_dir.starts_with(&self.top));
        if is_own {
            return Ok(());
        }
        let why = format!("it leads to `{}`", self.common_dir.display());
        Err(RepositoryError::new(self.git_dir.join("commondir"), why))
    }
}

/// The path that a small file holds after `prefix`, from the file's folder, links resolved.
fn pointed_at(file: &Path, prefix: &str) -> Option<PathBuf> {
    let text = regular_file::read_to_string(file, MAX_POINTER_BYTES).ok()?;
    let path = text.strip_prefix(prefix)?.trim_end_matches(['\n', '\r']);
    file.parent()?.join(path).canonicalize().ok()
}

/// The first link among the parts of a repository that are written.
fn first_link(git_dir: &Path) -> std::io::Result<Option<PathBuf>> {
    let folder = Folder::open(git_dir)?;
    let is_link = |mode| FileType::from_raw_mode(mode) == FileType::Symlink;
    for (at, part) in WRITTEN_PARTS.into_iter().enumerate() {
        match folder.stat(part) {
            Ok(Some(stat)) if is_link(stat.st_mode) => return Ok(Some(git_dir.join(part))),
            Ok(Some(_)) if at < PARTS_WITH_CONTENT => {
                let entries = folder.folder(part)?.entries()?;
                let link = entries.into_iter().find(|entry| entry.kind == FileType::Symlink);
                if let Some(link) = link {
                    return Ok(Some(git_dir.join(part).join(link.path)));
                }
            }
            Ok(_) => {}
            Err(e) => {
                return rgpu_model::beneath::link_of(&e).map(|link| Some(link.to_owned())).ok_or(e);
            }
        }
    }
    Ok(None)
}

/// Settings that replace the filters of the repository's own settings, which git runs on changed
/// files that `.gitattributes` lists. A file that needs such a filter may then count as changed.
fn settings_without_programs(
    folder: &Path,
    found: &FoundRepository,
) -> Result<Vec<String>, RepositoryError> {
    let mut keys = Vec::new();
    for scope in ["--local", "--worktree"] {
        keys.extend(settings_of(folder, scope, PROGRAM_KEYS).into_iter().map(|(key, _)| key));
    }
    let (filters, others): (Vec<_>, Vec<_>) =
        keys.into_iter().partition(|key| key.starts_with("filter."));
    let mut settings = Vec::new();
    if !filters.is_empty() {
        let mut users = settings_of(folder, "--system", r"^filter\.");
        users.extend(settings_of(folder, "--global", r"^filter\."));
        for key in filters {
            if key.contains('=') {
                let why = format!("its setting `{key}` has `=` in its name");
                return Err(RepositoryError::new(found.git_dir.join("config"), why));
            }
            let of_user = users.iter().rev().find(|(name, _)| *name == key);
            let none = if key.ends_with(".required") { "false" } else { "" };
            settings.push(format!("{key}={}", of_user.map_or(none, |(_, value)| value)));
        }
    }
    // The user's own git-lfs would start these programs, or write there.
    if others.iter().any(|key| leads_lfs_elsewhere(key)) || has_link_for_lfs(&found.common_dir) {
        settings.extend(["clean", "smudge", "process"].map(|key| format!("filter.lfs.{key}=")));
        settings.push("filter.lfs.required=false".to_owned());
    }
    Ok(settings)
}

/// Whether git-lfs starts a program that this setting names, or writes to its folder.
fn leads_lfs_elsewhere(key: &str) -> bool {
    matches!(key, "core.sshcommand" | "core.askpass" | "credential.helper" | "lfs.storage")
        || (key.starts_with("credential.") && key.ends_with(".helper"))
        || key.starts_with("lfs.extension.")
        || key.starts_with("lfs.customtransfer.")
        || key.ends_with(".standalonetransferagent")
}

/// Whether there is a link below the folder of git-lfs.
fn has_link_for_lfs(common_dir: &Path) -> bool {
    match Folder::open(common_dir).and_then(|folder| folder.folder("lfs")) {
        Ok(folder) => !matches!(folder.first_link(), Ok(None)),
        Err(e) => e.kind() != std::io::ErrorKind::NotFound,
    }
}

/// The settings of one scope whose keys match, with their values.
fn settings_of(folder: &Path, scope: &str, keys: &str) -> Vec<(String, String)> {
    let mut git = git_command(folder);
    git.args(["config", scope, "--includes", "--null", "--get-regexp", keys]);
    // It fails if there is none.
    let text = text_of(git).unwrap_or_default();
    let pairs = text.split('\0').filter(|pair| !pair.is_empty());
    // A key without a value is true.
    let pair = |pair: &str| match pair.split_once('\n') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (pair.to_owned(), "true".to_owned()),
    };
    pairs.map(pair).collect()
}
