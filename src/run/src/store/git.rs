//! git in a folder that may have come from elsewhere. No other module starts git.
//!
//! An unpacked archive or a share brings its own `.git`, and with it settings and paths that
//! somebody else chose. So three rules hold for every git that rgpu starts:
//!
//! - A repository is used only if it belongs to the work tree: `.git` is its folder, or lies inside
//!   the work tree, or names this work tree itself. git writes such a back pointer for work trees
//!   (`gitdir`) and submodules (`core.worktree`), and an archive cannot write one outside of
//!   itself. No part of it where objects and refs are written is a symbolic link, and its refs are
//!   in its own folder, not where a URI or a list of tables leads.
//! - git starts no program that the repository's settings name, and fetches nothing.
//! - Variables such as `GIT_DIR`, which git sets for its hooks, do not choose another repository.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::fs::FileType;

use rgpu_model::beneath::Folder;
use rgpu_model::error::{Exit, Failure, shell_word};
use rgpu_model::ownership::may_decide;
use rgpu_model::program_answer::{MAX_LIST_BYTES, MAX_PROBE_BYTES, read_answer_within};
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
const REPOSITORY_VARIABLES: [&str; 9] = [
    "GIT_CONFIG",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_REFERENCE_BACKEND",
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

/// The values of `extensions.refStorage` with which refs are in the repository. Newer versions of
/// git also take a URI, which may lead anywhere.
const REF_FORMATS: [&str; 2] = ["files", "reftable"];

/// The file of a repository that names the tables of its refs.
const TABLE_LIST: &str = "reftable/tables.list";

/// What the keys begin with whose settings name programs, besides those of [`QUIET_SETTINGS`].
const PROGRAM_SECTIONS: [&[u8]; 2] = [b"filter.", b"hook."];

/// Settings that name files of patterns, which may be pipes or devices.
const PATTERN_FILES: [&[u8]; 2] = [b"core.excludesfile", b"core.attributesfile"];

/// What ends the hooks that settings name, after `hook.NAME`. `core.hooksPath` is only about files.
const NO_HOOK: [&[u8]; 2] = [b".command=", b".enabled=false"];

/// The scopes of settings that are the user's own.
const USER_SCOPES: [&[u8]; 2] = [b"system", b"global"];

/// The scope of settings from the environment and from `-c`.
const COMMAND_SCOPE: &[u8] = b"command";

/// How long git may take to answer. It waits for ever for a pipe in place of a file of settings.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// The exit status of `git config` if there is no such setting.
const NO_SETTING: i32 = 1;

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
    /// What replaces the programs that the repository's settings name. Names need be no UTF-8.
    settings: Vec<OsString>,
}

impl QuietGit {
    /// git in `folder`, which starts no program that the repository configures and fetches nothing.
    /// Filters and files of patterns of the repository's own settings are replaced by the user's, or
    /// left out, and its hooks are switched off. `None` without git, outside a repository, or in one of another user.
    ///
    /// # Errors
    /// The repository does not belong to the work tree; its settings cannot be listed; the name of
    /// a filter or hook cannot be given to git; git does not answer in time.
    pub fn containing(folder: &Path) -> Result<Option<Self>, RepositoryError> {
        let Some(found) =
            FoundRepository::in_folder(folder)?.filter(|found| found.counts_for(folder))
        else {
            return Ok(None);
        };
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
            git.arg("-c").arg(setting);
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

/// Runs git, for as long as it may take.
fn answer_of(mut git: Command, max_bytes: u64) -> io::Result<Output> {
    read_answer_within(&mut git, max_bytes, ANSWER_TIME)
}

/// What git printed; `None` if it failed.
fn text_of(git: Command) -> Option<String> {
    let output = answer_of(git, MAX_LIST_BYTES).ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a `git config` printed. `none` is its exit status without such a setting, if it has one.
///
/// # Errors
/// The settings of `config` cannot be told.
fn listed_settings(
    git: Command,
    config: &Path,
    none: Option<i32>,
) -> Result<Vec<u8>, RepositoryError> {
    let unknown = |why: String| {
        RepositoryError::new(config, format!("git cannot list its settings: {}", why.trim()))
    };
    let output = answer_of(git, MAX_LIST_BYTES).map_err(|e| unknown(e.to_string()))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    if none.is_some() && output.status.code() == none {
        return Ok(Vec::new());
    }
    Err(unknown(String::from_utf8_lossy(&output.stderr).into_owned()))
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
    /// The repository that git finds from `folder`, if there is one.
    ///
    /// # Errors
    /// git does not answer in time.
    fn in_folder(folder: &Path) -> Result<Option<Self>, RepositoryError> {
        Self::found_within(folder, ANSWER_TIME)
    }

    fn found_within(folder: &Path, time: Duration) -> Result<Option<Self>, RepositoryError> {
        let mut git = git_command(folder);
        git.args(["rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir"]);
        match read_answer_within(&mut git, MAX_PROBE_BYTES, time) {
            Ok(output) if output.status.success() => Ok(Self::read(folder, &output.stdout)),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                Err(RepositoryError::new(folder, format!("`git rev-parse`: {e}")))
            }
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// Reads the three lines of `git rev-parse`.
    fn read(folder: &Path, printed: &[u8]) -> Option<Self> {
        let mut lines = printed.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
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

    /// Whether the repository is one of this user, root, or the owner of `folder`. git may be told
    /// to use others (`safe.directory`).
    fn counts_for(&self, folder: &Path) -> bool {
        let entry = self.top.join(".git");
        [entry.as_path(), &self.git_dir, &self.common_dir]
            .into_iter()
            .all(|path| path.symlink_metadata().is_err() || may_decide(path, folder))
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
        self.check_refs()
    }

    /// Checks that the refs are in the repository itself.
    fn check_refs(&self) -> Result<(), RepositoryError> {
        let config = self.common_dir.join("config");
        // Outside of the repository, since git may not know the value there.
        let mut git = git_command(Path::new("/"));
        git.args(["config", "--no-includes", "--null", "--file"]).arg(&config);
        git.args(["--get-all", "extensions.refstorage"]);
        let formats = listed_settings(git, &config, Some(NO_SETTING))?;
        let formats = String::from_utf8_lossy(&formats);
        let mut formats = formats.split_terminator('\0');
        if let Some(other) = formats.find(|format| !REF_FORMATS.contains(format)) {
            let why = format!("its `extensions.refStorage` is `{other}`, which may lead elsewhere");
            return Err(RepositoryError::new(config, why));
        }
        for folder in [&self.git_dir, &self.common_dir] {
            let list =
                Folder::open(folder).and_then(|git_dir| git_dir.read(TABLE_LIST, MAX_PROBE_BYTES));
            match list {
                // git reads these tables, and removes those that it has merged.
                Ok(names) if names.contains(&b'/') => {
                    let why = "it names a table in another folder";
                    return Err(RepositoryError::new(folder.join(TABLE_LIST), why));
                }
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(RepositoryError::new(folder.join(TABLE_LIST), e.to_string()));
                }
                Ok(_) | Err(_) => {}
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
/// files that `.gitattributes` lists, and end the hooks that they name. A file that needs such a
/// filter may then count as changed.
fn settings_without_programs(
    folder: &Path,
    found: &FoundRepository,
) -> Result<Vec<OsString>, RepositoryError> {
    let config = found.git_dir.join("config");
    // All scopes at once, since a condition of an include in one may ask for a setting of another.
    let mut git = git_command(folder);
    git.args(["config", "--includes", "--show-scope", "--null", "--list"]);
    let listed = listed_settings(git, &config, None)?;
    let all = read_settings(&listed).ok_or_else(|| {
        RepositoryError::new(&config, "git lists its settings in an unknown form")
    })?;
    let of_repository: BTreeSet<&[u8]> = all
        .iter()
        .filter(|setting| !setting.is_of_user() && setting.scope != COMMAND_SCOPE)
        .map(|setting| setting.key)
        .collect();
    let mut settings = Vec::new();
    let mut hooks: BTreeSet<&[u8]> = BTreeSet::new();
    let is_replaced = |key: &[u8]| {
        PROGRAM_SECTIONS.iter().any(|section| key.starts_with(section))
            || PATTERN_FILES.contains(&key)
    };
    for &key in of_repository.iter().filter(|key| is_replaced(key)) {
        if key.contains(&b'=') {
            let key = String::from_utf8_lossy(key);
            let why = format!("its setting `{key}` has `=` in its name");
            return Err(RepositoryError::new(config, why));
        }
        if key.starts_with(b"hook.") {
            // Also one whose command is the user's: the repository then chose the event.
            if let Some(end) = key.iter().rposition(|byte| *byte == b'.') {
                hooks.insert(&key[..end]);
            }
            continue;
        }
        let of_user = all.iter().rev().find(|other| other.is_of_user() && other.key == key);
        let none: &[u8] = if key.ends_with(b".required") { b"false" } else { b"" };
        let value = of_user.map_or(none, |setting| setting.value);
        settings.push(OsString::from_vec([key, b"=", value].concat()));
    }
    // Not `hook.jobs`, which has no name.
    for hook in hooks.into_iter().filter(|hook| hook.contains(&b'.')) {
        settings.extend(NO_HOOK.map(|end| OsString::from_vec([hook, end].concat())));
    }
    // The user's own git-lfs would start these programs, or write there.
    if of_repository.iter().any(|key| leads_lfs_elsewhere(key))
        || has_link_for_lfs(&found.common_dir)
    {
        for key in ["clean", "smudge", "process"] {
            settings.push(format!("filter.lfs.{key}=").into());
        }
        settings.push("filter.lfs.required=false".into());
    }
    Ok(settings)
}

/// A setting as git lists it. Its section and last name are in lower case.
struct Setting<'a> {
    scope: &'a [u8],
    key: &'a [u8],
    value: &'a [u8],
}

impl Setting<'_> {
    fn is_of_user(&self) -> bool {
        USER_SCOPES.contains(&self.scope)
    }
}

/// Reads what `git config --show-scope --null --list` printed, from the weakest scope to the
/// strongest. `None` if it has another form.
fn read_settings(listed: &[u8]) -> Option<Vec<Setting<'_>>> {
    if listed.is_empty() {
        return Some(Vec::new());
    }
    let mut fields = listed.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    let mut settings = Vec::new();
    while let Some(scope) = fields.next() {
        let pair = fields.next()?;
        // A key without a value is true.
        let (key, value) = match pair.iter().position(|byte| *byte == b'\n') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b"true"[..]),
        };
        settings.push(Setting { scope, key, value });
    }
    Some(settings)
}

/// Whether git-lfs starts a program that this setting names, or writes to its folder.
fn leads_lfs_elsewhere(key: &[u8]) -> bool {
    // git-lfs reads all of a key in lower case.
    let key = String::from_utf8_lossy(key).to_ascii_lowercase();
    matches!(&*key, "core.sshcommand" | "core.askpass" | "credential.helper" | "lfs.storage")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refs_that_a_setting_or_a_list_of_tables_keeps_elsewhere_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let git_dir = top.join(".git");
        assert!(QuietGit::init(&top, "sha1").status().unwrap().success());
        let found = FoundRepository { top, git_dir: git_dir.clone(), common_dir: git_dir.clone() };
        let own = fs::read_to_string(git_dir.join("config")).unwrap();
        let check = |extensions: &str| {
            let text = format!("{own}[extensions]\n{extensions}\n");
            fs::write(git_dir.join("config"), text).unwrap();
            found.check().map_err(|error| error.to_string())
        };
        for kept_inside in ["", "refStorage = files", "refstorage = reftable"] {
            assert_eq!(check(kept_inside), Ok(()), "{kept_inside}");
        }
        for elsewhere in [
            "refStorage = files:///elsewhere",
            "RefStorage = \"reftable://../elsewhere\"",
            "refStorage = files://x\nrefStorage = files",
            "refStorage",
        ] {
            let error = check(elsewhere).unwrap_err();
            assert!(error.contains("extensions.refStorage"), "{elsewhere}: {error}");
        }
        check("").unwrap();
        fs::create_dir(git_dir.join("reftable")).unwrap();
        let list = git_dir.join(TABLE_LIST);
        fs::write(&list, "0x01-0x01-aa.ref\n").unwrap();
        assert_eq!(check(""), Ok(()));
        fs::write(&list, "0x01-0x01-aa.ref\n../../elsewhere/reftable/0x02-0x02-bb.ref\n").unwrap();
        assert!(check("").unwrap_err().contains("it names a table in another folder"));
        fs::remove_file(&list).unwrap();
        std::os::unix::fs::symlink("/nowhere", &list).unwrap();
        assert!(check("").unwrap_err().contains("it is a symbolic link"));
    }

    #[test]
    fn a_repository_of_another_user_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        assert!(QuietGit::init(dir.path(), "sha1").status().unwrap().success());
        let found = FoundRepository::in_folder(&inner).unwrap().unwrap();
        assert!(found.counts_for(&inner) && QuietGit::containing(&inner).unwrap().is_some());
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make files of other users");
            return;
        }
        std::os::unix::fs::chown(dir.path().join(".git"), Some(65534), None).unwrap();
        assert!(!found.counts_for(&inner));
        assert!(QuietGit::containing(&inner).unwrap().is_none());
    }

    #[test]
    fn filters_and_hooks_are_replaced_whatever_their_names_and_wherever_their_settings_are() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let git_dir = top.join(".git");
        assert!(QuietGit::init(&top, "sha1").status().unwrap().success());
        let own = fs::read(git_dir.join("config")).unwrap();
        let replaced = |config: &[u8]| {
            fs::write(git_dir.join("config"), [&own[..], config].concat()).unwrap();
            QuietGit::containing(&top).map(|git| git.unwrap().settings)
        };
        let replacing = |key: &[u8]| OsString::from_vec([key, b"="].concat());
        let settings = replaced(b"[filter \"a\xff\"]\n clean = x\n clean = y\n").unwrap();
        assert_eq!(settings, [replacing(b"filter.a\xff.clean")]);
        let files = b"[core]\n excludesFile = pipe\n attributesFile = /dev/zero\n";
        let without = ["core.attributesfile=", "core.excludesfile="].map(OsString::from);
        assert_eq!(replaced(files).unwrap(), without);
        let hooks =
            b"[hook]\n jobs = 2\n[hook \"a\xff.b\"]\n command = x\n event = y\n event = z\n\
            [hook \"user's\"]\n event = reference-transaction\n";
        let ended: [&[u8]; 4] = [
            b"hook.a\xff.b.command=",
            b"hook.a\xff.b.enabled=false",
            b"hook.user's.command=",
            b"hook.user's.enabled=false",
        ];
        assert_eq!(replaced(hooks).unwrap(), ended.map(|end| OsString::from_vec(end.to_vec())));
        for unnamed in [&b"[filter \"a=b\"]\n clean = x\n"[..], b"[hook \"a=b\"]\n command = x\n"] {
            let error = replaced(unnamed).unwrap_err().to_string();
            assert!(error.contains("has `=` in its name"), "{error}");
        }
        // The condition of an include is about all scopes.
        let scoped = b"[core]\n repositoryFormatVersion = 1\n\
            [extensions]\n worktreeConfig = true\n\
            [includeIf \"hasconfig:remote.*.url:https://x.example/**\"]\n path = more\n";
        fs::write(git_dir.join("more"), "[filter \"x\"]\n process = x\n").unwrap();
        let url = "[remote \"o\"]\n url = https://x.example/r\n";
        fs::write(git_dir.join("config.worktree"), url).unwrap();
        assert_eq!(replaced(scoped).unwrap(), [replacing(b"filter.x.process")]);
        // More than is read, and what git cannot read.
        let line = format!("pad = {}\n", "1".repeat(1 << 20));
        let long = format!("[filter \"x\"]\n clean = x\n{}", line.repeat(65));
        let error = replaced(long.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("git cannot list its settings"), "{error}");
    }

    #[test]
    fn git_is_not_awaited_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        assert!(QuietGit::init(dir.path(), "sha1").status().unwrap().success());
        let git_dir = dir.path().join(".git");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let pipe = git_dir.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        let config = fs::read_to_string(git_dir.join("config")).unwrap();
        fs::write(git_dir.join("config"), format!("{config}[include]\n path = pipe\n")).unwrap();
        let found = FoundRepository::found_within(dir.path(), Duration::from_millis(300));
        let error = found.unwrap_err().to_string();
        assert!(error.contains("`git rev-parse`: it did not end within"), "{error}");
    }
}
