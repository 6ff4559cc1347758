//! The files of the project as a loop keeps them: copies of whole states, what differs between two,
//! and the way back to one. git is not needed, and nothing of it is changed.
//!
//! A copy is a folder below the loop's own. A file that is replaced or removed in the project is
//! moved to a backup first, so nothing that anybody wrote is lost.
//!
//! A walk only finds names. Each file is opened, written and moved from the descriptor of the
//! project's folder (`files`), so a link that takes the place of a folder meanwhile is not
//! followed. A path is absolute and below the project, or relative to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ignore::gitignore::GitignoreBuilder;
use ignore::{DirEntry, WalkBuilder};
use rgpu_protocol::Digest;
use rustix::fs::FileType;
use similar::TextDiff;

use super::LoopError;
use super::error::io_error;
use rgpu_model::beneath::{self, Folder};
use rgpu_model::fault_point;
use rgpu_model::ignore_files;
use rgpu_model::regular_file;
use rgpu_run::store::project_files;

/// Larger files are named in a patch without their lines.
const MAX_DIFF_BYTES: u64 = 1 << 20;

/// The mode of a file until it has its content.
const NEW_FILE_MODE: u32 = 0o600;

/// The paths that rgpu itself writes in the project: runs, loops and compiled kernels.
const OWN_FOLDER: &str = "artifacts";

/// A file as it is compared.
#[derive(Debug, PartialEq, Eq)]
enum FileState {
    Missing,
    Link(PathBuf),
    File {
        is_executable: bool,
        bytes: Vec<u8>,
    },
    /// A folder, a pipe, or a file that cannot be read.
    Other,
}

impl FileState {
    fn at_path(files: &Folder, path: &Path) -> Self {
        let kind = match files.stat(path) {
            Ok(Some(stat)) => FileType::from_raw_mode(stat.st_mode),
            Ok(None) => return Self::Missing,
            // Behind a link there is no file of this folder.
            Err(e) if is_missing(&e) || beneath::link_of(&e).is_some() => return Self::Missing,
            Err(_) => return Self::Other,
        };
        let state = match kind {
            FileType::Symlink => files.link_target(path).map(Self::Link),
            FileType::RegularFile => Self::from_file(files, path),
            _ => return Self::Other,
        };
        state.unwrap_or(Self::Other)
    }

    fn from_file(files: &Folder, path: &Path) -> io::Result<Self> {
        let file = files.open_file(path)?;
        let is_executable = file.metadata()?.permissions().mode() & 0o100 != 0;
        let bytes = regular_file::read_from(file, regular_file::MAX_FILE_BYTES)?;
        Ok(Self::File { is_executable, bytes })
    }
}

fn is_missing(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The files and links of a walk, from its root, sorted.
fn found_files(
    root: &Path,
    walk: impl IntoIterator<Item = Result<DirEntry, ignore::Error>>,
) -> Result<BTreeSet<PathBuf>, LoopError> {
    let mut files = BTreeSet::new();
    for entry in walk {
        let entry = entry.map_err(|e| io_error("read", root)(io::Error::other(e)))?;
        // Pipes, sockets and devices are no code.
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file() || kind.is_symlink());
        if let (true, Ok(inner)) = (is_file, entry.path().strip_prefix(root))
            && !inner.starts_with(OWN_FOLDER)
        {
            files.insert(inner.to_owned());
        }
    }
    Ok(files)
}

fn kept_files(copy: &Path) -> Result<BTreeSet<PathBuf>, LoopError> {
    found_files(copy, WalkBuilder::new(copy).standard_filters(false).build())
}

/// The files of the project by the ignore rules of a copy: a `.gitignore` that was changed since
/// hides nothing. A new folder that ignores itself, such as the cache of a tool, is left out.
fn project_files_by_rules_of(
    files: &Folder,
    copy: &Path,
    project: &Path,
) -> Result<BTreeSet<PathBuf>, LoopError> {
    let mut rules = Vec::new();
    for path in kept_files(copy)? {
        if path.file_name().is_some_and(|name| name == ".gitignore") {
            let folder = project.join(path.parent().unwrap_or(Path::new("")));
            let mut builder = GitignoreBuilder::new(&folder);
            let kept = copy.join(&path);
            ignore_files::check(&kept).map_err(io_error("read", &kept))?;
            // A line that cannot be read is left out, as git does.
            let _ = builder.add(kept);
            if let Ok(built) = builder.build() {
                rules.push((folder, built));
            }
        }
    }
    // Rules of deeper folders come first.
    rules.sort_by_key(|(folder, _)| std::cmp::Reverse(folder.components().count()));
    let (root, copy, known) = (project.to_owned(), copy.to_owned(), files.clone());
    let mut walk = WalkBuilder::new(project);
    walk.standard_filters(false).filter_entry(move |entry| {
        let path = entry.path();
        if path == root {
            return true;
        }
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let own = |name: &std::ffi::OsStr| name == ".git" || name == ".rgpu";
        if own(entry.file_name())
            || path == root.join(OWN_FOLDER)
            || (is_folder && is_new_and_ignored(&known, &root, &copy, path))
        {
            return false;
        }
        let matches = rules.iter().filter(|(folder, _)| path.starts_with(folder));
        let decided = matches.map(|(_, rules)| rules.matched(path, is_folder));
        !decided.into_iter().find(|found| !found.is_none()).is_some_and(|found| found.is_ignore())
    });
    found_files(project, walk.build())
}

/// Whether a folder is not in the copy and its own `.gitignore` ignores all of it.
fn is_new_and_ignored(files: &Folder, project: &Path, copy: &Path, folder: &Path) -> bool {
    let is_known =
        folder.strip_prefix(project).is_ok_and(|inner| files.kind(copy.join(inner)).is_some());
    let text = || files.read_to_string(folder.join(".gitignore"), MAX_DIFF_BYTES);
    !is_known && text().is_ok_and(|text| text.lines().any(|line| line.trim() == "*"))
}

/// Makes a folder a copy of the project's files. `rules`: a copy whose ignore rules count; without
/// one, those of the project.
pub(super) fn copy_project(
    files: &Folder,
    to: &Path,
    rules: Option<&Path>,
) -> Result<(), LoopError> {
    let project = files.path();
    let wanted = match rules {
        Some(copy) => project_files_by_rules_of(files, copy, project)?,
        None => found_files(project, project_files::walk(project))?,
    };
    copy_files(files, project, to, &wanted)
}

/// Makes a folder a copy of another copy.
pub(super) fn copy(files: &Folder, from: &Path, to: &Path) -> Result<(), LoopError> {
    copy_files(files, from, to, &kept_files(from)?)
}

fn copy_files(
    files: &Folder,
    from: &Path,
    to: &Path,
    wanted: &BTreeSet<PathBuf>,
) -> Result<(), LoopError> {
    files.make_folder(to).map_err(io_error("create", to))?;
    for path in kept_files(to)?.difference(wanted) {
        remove(files, &to.join(path))?;
    }
    for path in wanted {
        let (from, to) = (from.join(path), to.join(path));
        if FileState::at_path(files, &from) != FileState::at_path(files, &to) {
            copy_file(files, &from, &to, FileUse::Kept)?;
        }
    }
    Ok(())
}

/// The files of the project, or of another copy, that differ from a copy, sorted.
pub(super) fn changed_files(
    files: &Folder,
    project: &Path,
    copy: &Path,
) -> Result<Vec<PathBuf>, LoopError> {
    let mut all = kept_files(copy)?;
    all.extend(project_files_by_rules_of(files, copy, project)?);
    all.retain(|path| {
        FileState::at_path(files, &project.join(path))
            != FileState::at_path(files, &copy.join(path))
    });
    Ok(all.into_iter().collect())
}

/// Gives the project the files of a copy. What is replaced or removed goes to `backup`.
pub(super) fn restore(files: &Folder, copy: &Path, backup: &Path) -> Result<(), LoopError> {
    let project = files.path();
    let changed = changed_files(files, project, copy)?;
    // First those that are in the way: a file where the copy has a folder.
    for path in &changed {
        move_away(files, &project.join(path), &backup.join(path))?;
        fault_point::kill_if_named("loop restoring");
    }
    for path in &changed {
        let kept = copy.join(path);
        // A folder of the copy is in the list if a file has taken its place.
        if matches!(FileState::at_path(files, &kept), FileState::File { .. } | FileState::Link(_)) {
            copy_file(files, &kept, &project.join(path), FileUse::Edited)?;
        }
    }
    Ok(())
}

/// What is known of each file of a copy: its kind and the sha256 of its bytes.
pub(super) type FileDigests = BTreeMap<PathBuf, String>;

/// The digest of each file of a copy.
pub(super) fn file_digests(files: &Folder, copy: &Path) -> Result<FileDigests, LoopError> {
    let mut digests = FileDigests::new();
    for path in kept_files(copy)? {
        let (kind, bytes) = match FileState::at_path(files, &copy.join(&path)) {
            FileState::File { is_executable: true, bytes } => ("executable", bytes),
            FileState::File { bytes, .. } => ("file", bytes),
            FileState::Link(target) => ("link", target.into_os_string().into_encoded_bytes()),
            FileState::Missing | FileState::Other => ("other", Vec::new()),
        };
        digests.insert(path, format!("{kind} {}", Digest::sha256(&bytes)));
    }
    Ok(digests)
}

/// The sha256 over all files with their names and modes.
pub(super) fn digest_of(digests: &FileDigests) -> String {
    let mut text = Vec::new();
    for (path, digest) in digests {
        text.extend_from_slice(path.as_os_str().as_encoded_bytes());
        text.extend_from_slice(format!("\0{digest}\n").as_bytes());
    }
    Digest::sha256(&text).as_str().to_owned()
}

/// The sha256 over all files of a copy.
#[cfg(test)]
fn digest(files: &Folder, copy: &Path) -> Result<String, LoopError> {
    Ok(digest_of(&file_digests(files, copy)?))
}

/// The first file that is not what was recorded, with what it was and what it is.
pub(super) fn first_difference(
    recorded: &FileDigests,
    now: &FileDigests,
) -> Option<(PathBuf, String, String)> {
    let text = |digests: &FileDigests, path: &PathBuf| {
        digests.get(path).cloned().unwrap_or_else(|| "no file".to_owned())
    };
    let mut paths = recorded.keys().chain(now.keys());
    let path = paths.find(|path| recorded.get(*path) != now.get(*path))?;
    Some((path.clone(), text(recorded, path), text(now, path)))
}

/// The changes of these files as a patch for `git apply` and for readers.
pub(super) fn patch(files: &Folder, from: &Path, to: &Path, paths: &[PathBuf]) -> String {
    let mut text = String::new();
    for path in paths {
        let old = FileState::at_path(files, &from.join(path));
        let new = FileState::at_path(files, &to.join(path));
        let shown = path.display();
        let lines = |state: &FileState| match state {
            FileState::Missing => Some(String::new()),
            FileState::File { bytes, .. } if bytes.len() as u64 <= MAX_DIFF_BYTES => {
                String::from_utf8(bytes.clone()).ok().filter(|text| !text.contains('\0'))
            }
            _ => None,
        };
        let name = |side: &str, state: &FileState| match state {
            FileState::Missing => "/dev/null".to_owned(),
            _ => format!("{side}/{shown}"),
        };
        let _ = writeln!(text, "diff --git a/{shown} b/{shown}");
        match (lines(&old), lines(&new)) {
            (Some(before), Some(after)) => {
                let diff = TextDiff::from_lines(&before, &after);
                let (a, b) = (name("a", &old), name("b", &new));
                let _ = write!(text, "{}", diff.unified_diff().header(&a, &b));
            }
            _ => {
                let _ = writeln!(text, "Binary files a/{shown} and b/{shown} differ");
            }
        }
    }
    text
}

/// Why a changed file may not be kept: it is no regular file. `None` if it may.
pub(super) fn refusal(files: &Folder, path: &Path) -> Option<&'static str> {
    match FileState::at_path(files, path) {
        FileState::Missing | FileState::File { .. } => None,
        FileState::Link(_) => Some("it is a link"),
        FileState::Other => Some("it is not a file that can be read"),
    }
}

/// What a copied file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileUse {
    /// It is compared and measured: nobody may write into it.
    Kept,
    /// The user and the worker edit it.
    Edited,
}

/// Copies one file or link whole.
fn copy_file(files: &Folder, from: &Path, to: &Path, file_use: FileUse) -> Result<(), LoopError> {
    let copied = || -> io::Result<()> {
        if files.kind(to) == Some(FileType::Directory) {
            files.remove_folder(to)?;
        }
        if files.kind(from) == Some(FileType::Symlink) {
            files.make_folder(to.parent().unwrap_or(to))?;
            return files.link(files.link_target(from)?, to);
        }
        let mut source = files.open_file(from)?;
        let mode = source.metadata()?.permissions().mode();
        let mode = match file_use {
            FileUse::Kept => mode & !0o222,
            FileUse::Edited => mode | 0o200,
        };
        let (mut file, new) = files.begin_with_mode(to, NEW_FILE_MODE)?;
        io::copy(&mut source, &mut file)?;
        file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        file.sync_all()?;
        new.finish()
    };
    copied().map_err(io_error("write", to))
}

/// Moves a file or folder to the backup, under a new name if that has one already.
fn move_away(files: &Folder, path: &Path, backup: &Path) -> Result<(), LoopError> {
    if FileState::at_path(files, path) == FileState::Missing {
        return Ok(());
    }
    let folder = backup.parent().unwrap_or(backup);
    files.make_folder(folder).map_err(io_error("create", folder))?;
    let mut free = backup.to_owned();
    for number in 2.. {
        if files.kind(&free).is_none() {
            break;
        }
        let name = backup.file_name().unwrap_or_default().to_string_lossy().into_owned();
        free.set_file_name(format!("{name}.{number}"));
    }
    match files.rename(path, &free) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
            copy_file(files, path, &free, FileUse::Edited)?;
            remove(files, path)
        }
        moved => moved.map_err(io_error("move", path)),
    }
}

fn remove(files: &Folder, path: &Path) -> Result<(), LoopError> {
    match files.remove_file(path) {
        Err(e) if !is_missing(&e) => Err(io_error("remove", path)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn names(paths: &[PathBuf]) -> Vec<String> {
        paths.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn a_state_comes_back_whatever_was_done_to_it_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        let [kept, backup] =
            ["artifacts/loop/x/kept", "artifacts/loop/x/backup"].map(|n| project.join(n));
        write(&project, "k/a.cu", "one\n");
        write(&project, "k/deep/b.h", "b");
        write(&project, "gone", "x");
        write(&project, "run.sh", "#!/bin/sh\n");
        fs::set_permissions(project.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        write(&project, ".gitignore", "target\n");
        write(&project, "target/built", "big");
        std::os::unix::fs::symlink("k/a.cu", project.join("link")).unwrap();
        let files = Folder::open(&project).unwrap();
        copy_project(&files, &kept, None).unwrap();
        assert!(!kept.join("target").exists());
        let before = digest(&files, &kept).unwrap();
        assert_eq!(changed_files(&files, &project, &kept).unwrap(), Vec::<PathBuf>::new());

        write(&project, "k/a.cu", "two\n");
        fs::remove_dir_all(project.join("k/deep")).unwrap();
        write(&project, "k/deep", "a file where a folder was");
        fs::remove_file(project.join("gone")).unwrap();
        write(&project, "gone/new", "a folder where a file was");
        fs::set_permissions(project.join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::remove_file(project.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", project.join("link")).unwrap();
        // It hides a new file and one that was there.
        write(&project, ".gitignore", "*\n");
        write(&project, "hidden", "secret work");
        // A tool's cache is no change.
        write(&project, "cache/.gitignore", "# made by a tool\n*\n");
        write(&project, "cache/big", "x");
        let changed = names(&changed_files(&files, &project, &kept).unwrap());
        for path in [".gitignore", "gone", "hidden", "k/a.cu", "k/deep/b.h", "link", "run.sh"] {
            assert!(changed.iter().any(|name| name == path), "{path}: {changed:?}");
        }
        assert!(!changed.iter().any(|name| name.contains("cache")), "{changed:?}");
        let text = patch(&files, &kept, &project, &[PathBuf::from("k/a.cu")]);
        assert!(text.contains("--- a/k/a.cu\n+++ b/k/a.cu\n"), "{text}");
        assert!(text.contains("-one\n+two\n"), "{text}");

        restore(&files, &kept, &backup).unwrap();
        assert_eq!(changed_files(&files, &project, &kept).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(fs::read_to_string(project.join("k/a.cu")).unwrap(), "one\n");
        // What is measured is read-only, and what is edited is not.
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o222;
        assert_eq!(mode(kept.join("k/a.cu")), 0);
        assert_ne!(mode(project.join("k/a.cu")), 0);
        assert!(!project.join("hidden").exists());
        assert!(project.join("target/built").exists(), "ignored files stay");
        assert_eq!(fs::read_to_string(backup.join("k/a.cu")).unwrap(), "two\n");
        assert_eq!(fs::read_to_string(backup.join("hidden")).unwrap(), "secret work");
        assert_eq!(digest(&files, &kept).unwrap(), before);
    }

    #[test]
    fn links_are_refused_and_missing_files_are_changes() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        let files = Folder::open(dir.path()).unwrap();
        assert_eq!(refusal(&files, Path::new("link")), Some("it is a link"));
        assert!(refusal(&files, Path::new("folder")).is_some());
        assert_eq!(refusal(&files, Path::new("none")), None);
    }

    #[test]
    fn a_link_in_place_of_a_folder_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let [project, mine] = ["project", "mine"].map(|name| dir.path().join(name));
        let [kept, backup] =
            ["artifacts/loop/x/kept", "artifacts/loop/x/backup"].map(|n| project.join(n));
        write(&project, "k/a.cu", "one\n");
        write(&project, "other", "x");
        write(&mine, "a.cu", "one\n");
        let files = Folder::open(&project).unwrap();
        copy_project(&files, &kept, None).unwrap();
        for folder in [project.join("k"), kept.join("k")] {
            fs::remove_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink(&mine, &folder).unwrap();
            // The same bytes are there, but they are not the project's.
            assert_eq!(FileState::at_path(&files, &folder.join("a.cu")), FileState::Missing);
            for refused in [
                copy_file(&files, &folder.join("a.cu"), &project.join("new"), FileUse::Edited),
                copy_file(&files, &project.join("other"), &folder.join("a.cu"), FileUse::Kept),
                remove(&files, &folder.join("a.cu")),
            ] {
                assert!(refused.is_err(), "{}", folder.display());
            }
            move_away(&files, &folder.join("a.cu"), &backup.join("a.cu")).unwrap();
            assert_eq!(fs::read_to_string(mine.join("a.cu")).unwrap(), "one\n");
            assert_eq!(fs::read_dir(&mine).unwrap().count(), 1);
        }
        assert!(!project.join("new").exists());
    }
}
