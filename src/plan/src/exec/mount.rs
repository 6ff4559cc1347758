//! `--mount`: folders that are sent to the host, as they are now.
//!
//! Not sent: files that `.gitignore` or `.rgpuignore` names, files with secrets unless they are
//! mounted by name, sockets and other special files, and links that lead out of the folder. Small
//! files are read into memory, so that changes during the upload cannot mix versions; a large file
//! that changes is hashed and sent again.

#![expect(clippy::disallowed_methods, reason = "a folder that the user sends")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use ignore::WalkBuilder;
use rgpu_model::agent_files;
use rgpu_model::ignore_files::EnteredFolders;
use rgpu_protocol::plan::{Arg, valid_relative_path};

use super::{ExecError, WORK_FOLDER};
use crate::tool::{BundleFile, JobFileContent, Program};

/// Default limit of all mounts together, in bytes.
pub const MAX_MOUNT_BYTES: u64 = 256 << 20;

/// Limit of files in all mounts together.
const MAX_MOUNT_FILES: usize = 50_000;

/// Counting stops at this many files.
const MAX_COUNTED_FILES: usize = 500_000;

/// Files up to this size are read into memory, up to [`MAX_BYTES_IN_MEMORY`] together.
pub(super) const SMALL_FILE_BYTES: u64 = 1 << 20;
pub(super) const MAX_BYTES_IN_MEMORY: u64 = 64 << 20;

/// A folder or file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The path on this machine.
    pub from: PathBuf,
    /// The path relative to the working folder; empty for the working folder itself.
    pub to: String,
    /// An absolute path on the host where the mount is visible too, e.g. `/data`.
    pub link: Option<String>,
    /// Whether the path as typed is relative and has no `..`, so that it looks like a part of the
    /// current folder.
    pub looks_inner: bool,
}

impl Mount {
    /// Parses `SRC` or `SRC:DEST`. If the first mount has no `DEST`, it becomes the working folder.
    pub fn parse(text: &str, first: bool, cwd: &Path) -> Result<Self, ExecError> {
        let failed =
            |problem: &str| ExecError::Mount { text: text.to_owned(), problem: problem.to_owned() };
        // An existing file's name may contain a colon.
        let (from, to) = match text.rsplit_once(':') {
            Some((from, to)) if !cwd.join(text).exists() => (from, Some(to)),
            _ => (text, None),
        };
        let is_inner = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        let looks_inner = Path::new(from).components().all(is_inner);
        let full = cwd.join(from);
        let metadata = fs::metadata(&full)
            .map_err(|e| failed(&format!("`{from}` cannot be looked at: {e}")))?;
        if !metadata.is_dir() && !metadata.is_file() {
            return Err(failed("that is neither a folder nor a file"));
        }
        let from = fs::canonicalize(&full).map_err(|e| failed(&e.to_string()))?;
        let name = from.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let link =
            to.filter(|to| to.starts_with('/')).map(|to| to.trim_end_matches('/').to_owned());
        let to = match to {
            Some(to) => to.trim_start_matches('/').trim_end_matches('/').to_owned(),
            None if first && metadata.is_dir() => String::new(),
            None => name.to_owned(),
        };
        if !to.is_empty() && !valid_relative_path(&to) {
            return Err(failed("the destination must be below the working folder"));
        }
        if link.is_some() && to.is_empty() {
            return Err(failed("that would be the host's root"));
        }
        Ok(Self { from, to, link, looks_inner })
    }

    /// Whether a link leads from what looks like a part of `cwd` to somewhere else. A cloned
    /// project may contain such a link.
    pub fn leads_out_of(&self, cwd: &Path) -> bool {
        self.looks_inner && fs::canonicalize(cwd).is_ok_and(|cwd| !self.from.starts_with(cwd))
    }
}

/// A path of a mount that is not sent although no ignore file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedPath {
    /// The path relative to the mount.
    pub path: String,
    /// The reason, as text.
    pub why: &'static str,
}

/// The files of all mounts, at one point in time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The files for the job's folder.
    pub files: Vec<BundleFile>,
    /// The paths that are not sent although no ignore file names them.
    pub left_out: Vec<SkippedPath>,
    /// The folder that became the working folder, if any.
    pub root: Option<PathBuf>,
    /// Absolute paths on the host, each with its target in the job's folder.
    pub links: Vec<(String, String)>,
}

/// The script that makes the links and removes them again.
const MOUNT_SCRIPT: &str = rgpu_harness::MOUNTED;
const MOUNT_SCRIPT_PATH: &str = "bin/mounted.sh";

impl Snapshot {
    /// Wraps a program so that it sees the mounts at the requested absolute paths.
    pub fn show_to(&self, program: &mut Program) {
        if self.links.is_empty() {
            return;
        }
        let mut argv = vec![Arg::text("sh"), Arg::in_job(MOUNT_SCRIPT_PATH)];
        for (link, target) in &self.links {
            argv.extend([Arg::text(link.as_str()), Arg::in_job(target)]);
        }
        argv.push("--".into());
        argv.append(&mut program.argv);
        program.argv = argv;
        program.files.push(BundleFile::text(MOUNT_SCRIPT_PATH, MOUNT_SCRIPT));
    }

    /// The files that were too large to read into memory.
    pub fn large(&self) -> Vec<PathBuf> {
        let local = |file: &BundleFile| match &file.content {
            JobFileContent::Local(path) => Some(path.clone()),
            JobFileContent::Bytes(_) => None,
        };
        self.files.iter().filter_map(local).collect()
    }

    /// The path in the job's folder of a file of this machine, if the first mount contains it.
    pub fn place_of(&self, path: &Path) -> Option<String> {
        let path = fs::canonicalize(path).ok()?;
        let inner = path.strip_prefix(self.root.as_ref()?).ok()?.to_str()?;
        valid_relative_path(inner).then(|| format!("{WORK_FOLDER}/{inner}"))
    }
}

/// Reads the mounts as they are now.
pub fn snapshot(mounts: &[Mount], limit: u64) -> Result<Snapshot, ExecError> {
    let mut found: BTreeMap<String, MountedFile> = BTreeMap::new();
    let mut left_out = Vec::new();
    let mut too_many = false;
    for mount in mounts {
        for file in walk(mount, &mut left_out)? {
            found.insert(file.to.clone(), file);
            too_many |= found.len() > MAX_MOUNT_FILES;
            if too_many && found.len() >= MAX_COUNTED_FILES {
                break;
            }
        }
    }
    left_out.sort_by(|a, b| a.path.cmp(&b.path));
    let bytes: u64 = found.values().map(|file| file.size).sum();
    if bytes > limit || too_many {
        let files: Vec<&MountedFile> = found.values().collect();
        return Err(too_big(&files, bytes, limit));
    }
    let mut bytes_in_memory = 0;
    let mut files = Vec::with_capacity(found.len());
    for file in found.into_values() {
        let mut out = BundleFile::copy(format!("{WORK_FOLDER}/{}", file.to), &file.from);
        if file.size <= SMALL_FILE_BYTES && bytes_in_memory + file.size <= MAX_BYTES_IN_MEMORY {
            match agent_files::read(&file.from, SMALL_FILE_BYTES) {
                Ok(bytes) => {
                    bytes_in_memory += bytes.len() as u64;
                    out.content = JobFileContent::Bytes(bytes);
                }
                Err(_) => {
                    left_out.push(SkippedPath { path: file.to, why: "it cannot be read" });
                    continue;
                }
            }
        }
        out.executable = file.executable;
        files.push(out);
    }
    let root = mounts.first().filter(|m| m.to.is_empty()).map(|m| m.from.clone());
    let to_link =
        |mount: &Mount| Some((mount.link.clone()?, format!("{WORK_FOLDER}/{}", mount.to)));
    Ok(Snapshot { files, left_out, root, links: mounts.iter().filter_map(to_link).collect() })
}

/// A file to send.
struct MountedFile {
    from: PathBuf,
    to: String,
    size: u64,
    executable: bool,
}

fn walk(mount: &Mount, left_out: &mut Vec<SkippedPath>) -> Result<Vec<MountedFile>, ExecError> {
    let root = &mount.from;
    let unreadable = |source| ExecError::Unreadable { path: root.clone(), source };
    let meta = fs::metadata(root).map_err(unreadable)?;
    if meta.is_file() {
        return Ok(vec![mounted_file(root, mount.to.clone(), &meta)]);
    }
    let folders = EnteredFolders::default();
    let walk = walk_builder(root, &folders, |_, _| true)?;
    let mut files = Vec::new();
    for entry in walk.build() {
        let Ok(entry) = entry else { continue };
        let Some(kind) = entry.file_type() else { continue };
        let path = entry.path();
        let Ok(inner) = path.strip_prefix(root) else { continue };
        let inner_path = inner.display().to_string();
        if kind.is_dir() {
            continue;
        }
        let mut skip = |why| left_out.push(SkippedPath { path: inner_path.clone(), why });
        let Some(inner) = inner.to_str().filter(|inner| valid_relative_path(inner)) else {
            skip("its name is not valid on every system");
            continue;
        };
        let from = if kind.is_symlink() {
            match link_target(root, path) {
                Ok(target) => target,
                Err(why) => {
                    skip(why);
                    continue;
                }
            }
        } else {
            path.to_owned()
        };
        match fs::metadata(&from) {
            Ok(meta) if meta.is_file() => {
                files.push(mounted_file(&from, join(&mount.to, inner), &meta))
            }
            Ok(_) => skip("it is not a regular file"),
            Err(_) => skip("it cannot be read"),
        }
        if files.len() >= MAX_COUNTED_FILES {
            break;
        }
    }
    folders.finish().map_err(unreadable)?;
    Ok(files)
}

/// The walk of a folder through all that may be sent. `takes`: whether to look at an entry, by its
/// path and whether it is a folder.
fn walk_builder(
    root: &Path,
    folders: &EnteredFolders,
    takes: impl Fn(&Path, bool) -> bool + Send + Sync + 'static,
) -> Result<WalkBuilder, ExecError> {
    // Rules of the folders above count too, and the filter is not asked about these and the root.
    if !root.ancestors().all(|folder| folders.may_enter(folder)) {
        let path = root.to_owned();
        folders.finish().map_err(|source| ExecError::Unreadable { path, source })?;
    }
    let entered = folders.clone();
    let mut walk = WalkBuilder::new(root);
    walk.hidden(false)
        .ignore(false)
        .git_ignore(true)
        .git_exclude(true)
        .git_global(false)
        .require_git(false)
        .parents(true)
        .follow_links(false)
        .add_custom_ignore_filename(".rgpuignore")
        .filter_entry(move |entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            entry.depth() == 0
                || !is_never_sent(&entry.file_name().to_string_lossy())
                    && takes(entry.path(), is_folder)
                    && (entry.depth() == 1 || !is_result_of_rgpu(entry.path()))
                    && (!is_folder || entered.may_enter(entry.path()))
        });
    Ok(walk)
}

/// The regular files below `root`, which is a folder without links in its path, that may be sent and
/// are in `wanted`, or are Python files below a folder of `packages`. Paths are relative to `root`;
/// only folders that lead to a wanted path are looked at, and no link is followed.
pub(super) fn sendable(
    root: &Path,
    wanted: &BTreeSet<PathBuf>,
    packages: &BTreeSet<PathBuf>,
) -> Result<BTreeMap<PathBuf, fs::Metadata>, ExecError> {
    let full = |paths: &BTreeSet<PathBuf>| -> BTreeSet<PathBuf> {
        paths.iter().map(|path| root.join(path)).collect()
    };
    let (wanted, packages) = (full(wanted), full(packages));
    let leading: BTreeSet<PathBuf> = wanted
        .iter()
        .chain(&packages)
        .flat_map(|path| path.ancestors())
        .map(PathBuf::from)
        .collect();
    let is_taken = move |path: &Path, is_folder: bool| {
        let in_package = || path.ancestors().any(|folder| packages.contains(folder));
        if is_folder {
            leading.contains(path) || in_package()
        } else {
            wanted.contains(path)
                || path.extension().is_some_and(|extension| extension == "py") && in_package()
        }
    };
    let folders = EnteredFolders::default();
    let mut found = BTreeMap::new();
    for entry in walk_builder(root, &folders, is_taken)?.build().flatten() {
        if entry.file_type().is_some_and(|kind| kind.is_file())
            && let Ok(inner) = entry.path().strip_prefix(root)
            && inner.to_str().is_some_and(valid_relative_path)
            && let Ok(metadata) = fs::symlink_metadata(entry.path())
        {
            found.insert(inner.to_owned(), metadata);
        }
        if found.len() >= MAX_MOUNT_FILES {
            break;
        }
    }
    let path = root.to_owned();
    folders.finish().map_err(|source| ExecError::Unreadable { path, source })?;
    Ok(found)
}

fn mounted_file(from: &Path, to: String, meta: &fs::Metadata) -> MountedFile {
    let executable = meta.permissions().mode() & 0o111 != 0;
    MountedFile { from: from.to_owned(), to, size: meta.len(), executable }
}

fn join(to: &str, inner: &str) -> String {
    if to.is_empty() { inner.to_owned() } else { format!("{to}/{inner}") }
}

/// The target of a link, if it is a file in the same folder that may be sent.
fn link_target(root: &Path, link: &Path) -> Result<PathBuf, &'static str> {
    let target = fs::canonicalize(link).map_err(|_| "it is a broken link")?;
    let Ok(inner) = target.strip_prefix(root) else {
        return Err("it is a link that leads out of the folder");
    };
    let hidden = inner.components().any(|part| match part {
        Component::Normal(name) => is_never_sent(&name.to_string_lossy()),
        _ => true,
    });
    match target.is_dir() {
        _ if hidden => Err("it is a link to a file that is not sent"),
        true => Err("it is a link to a folder"),
        false => Ok(target),
    }
}

/// Whether a name is never sent unless mounted itself: secrets, and caches of this machine.
fn is_never_sent(name: &str) -> bool {
    let key = |start: &str| name.strip_prefix(start).is_some_and(|rest| !rest.contains('.'));
    matches!(name, ".git" | ".ssh" | ".aws" | ".netrc" | "__pycache__" | ".venv")
        || name.starts_with(".env")
        || name.ends_with(".pem")
        || key("id_")
}

/// Whether rgpu has written the file or folder beside its runs: `artifacts/sass`,
/// `artifacts/k.sm_90a.cubin`.
fn is_result_of_rgpu(path: &Path) -> bool {
    let is_ours = path.file_name().is_some_and(|name| name == "sass" || name == "runs")
        || path.extension().is_some_and(|extension| extension == "cubin");
    let artifacts = path.parent().filter(|folder| folder.ends_with("artifacts"));
    is_ours && artifacts.is_some_and(|folder| folder.join("runs").is_dir())
}

/// The error for mounts over a limit, with the largest folders and files.
fn too_big(files: &[&MountedFile], bytes: u64, limit: u64) -> ExecError {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for file in files {
        if let Some((top, _)) = file.to.split_once('/') {
            *sums.entry(top).or_default() += file.size;
        }
    }
    let mut biggest: Vec<(String, u64)> =
        sums.into_iter().map(|(top, size)| (format!("{top}/"), size)).collect();
    biggest.extend(files.iter().map(|file| (file.to.clone(), file.size)));
    biggest.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    biggest.truncate(5);
    let (what, limit) = if bytes > limit {
        (size_text(bytes), size_text(limit))
    } else {
        (format!("{} files", files.len()), format!("{MAX_MOUNT_FILES} files"))
    };
    let biggest = biggest.into_iter().map(|(name, size)| format!("{name} ({})", size_text(size)));
    ExecError::TooBig { what, limit, biggest: biggest.collect() }
}

/// A size as text.
fn size_text(bytes: u64) -> String {
    let units = [("GB", 1_000_000_000_u64), ("MB", 1_000_000), ("kB", 1_000)];
    match units.iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes as f64 / *size as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn names(snapshot: &Snapshot) -> Vec<&str> {
        snapshot.files.iter().map(|f| f.path.as_str()).collect()
    }

    fn take(dir: &Path) -> Snapshot {
        let mount = Mount::parse(".", true, dir).unwrap();
        snapshot(&[mount], MAX_MOUNT_BYTES).unwrap()
    }

    #[test]
    fn ignored_files_and_secrets_stay_here() {
        let dir = tree(&[
            (".gitignore", "*.log\n/big/\n"),
            (".rgpuignore", "notes/\n!keep.log\n"),
            ("a.py", ""),
            ("x.log", ""),
            ("keep.log", ""),
            ("big/data", ""),
            ("notes/n", ""),
            ("pkg/mod.py", ""),
            ("pkg/id_mapping.py", ""),
            (".env.gpu", "TOKEN=x"),
            ("id_ed25519", "key"),
            ("cert.pem", "key"),
            (".git/config", ""),
            ("__pycache__/a.pyc", ""),
        ]);
        let expected = [
            "here/.gitignore",
            "here/.rgpuignore",
            "here/a.py",
            "here/keep.log",
            "here/pkg/id_mapping.py",
            "here/pkg/mod.py",
        ];
        assert_eq!(names(&take(dir.path())), expected);
        // A file that is mounted by name is sent.
        let mount = Mount::parse(".env.gpu", false, dir.path()).unwrap();
        assert_eq!(names(&snapshot(&[mount], MAX_MOUNT_BYTES).unwrap()), ["here/.env.gpu"]);
    }

    #[test]
    fn sockets_and_links_that_lead_out_are_left_and_links_inside_are_followed() {
        let dir = tree(&[("a", "A"), ("d/x", "X")]);
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
        };
        link("a", "same");
        link("/etc/passwd", "out");
        link("nowhere", "dangling");
        link("d", "folder");
        link(".", "loop");
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("sock")).unwrap();
        let taken = take(dir.path());
        assert_eq!(names(&taken), ["here/a", "here/d/x", "here/same"]);
        let mut why: Vec<_> = taken.left_out.iter().map(|l| (l.path.as_str(), l.why)).collect();
        why.sort_unstable();
        assert_eq!(
            why,
            [
                ("dangling", "it is a broken link"),
                ("folder", "it is a link to a folder"),
                ("loop", "it is a link to a folder"),
                ("out", "it is a link that leads out of the folder"),
                ("sock", "it is not a regular file"),
            ]
        );
    }

    #[test]
    fn an_ignore_file_without_an_end_is_refused_also_above_the_mount() {
        let dir = tree(&[("a/b/x", "X"), ("z", "Z")]);
        let mounted =
            |folder: &Path| snapshot(&[Mount::parse(".", true, folder).unwrap()], MAX_MOUNT_BYTES);
        for name in [".gitignore", ".rgpuignore"] {
            let link = dir.path().join("a").join(name);
            std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
            for folder in [dir.path().to_owned(), dir.path().join("a"), dir.path().join("a/b")] {
                let error = mounted(&folder).unwrap_err();
                assert!(matches!(error, ExecError::Unreadable { .. }), "{error:?}");
            }
            fs::remove_file(link).unwrap();
        }
        assert_eq!(names(&mounted(dir.path()).unwrap()), ["here/a/b/x", "here/z"]);
    }

    #[test]
    fn results_of_rgpu_stay_unless_their_folder_is_mounted_itself() {
        let dir = tree(&[
            ("a.cubin", ""),
            ("artifacts/k.sm_90a.cubin", ""),
            ("artifacts/notes.txt", ""),
            ("artifacts/sass/k.sass", ""),
            ("artifacts/runs/.latest", ""),
            ("other/artifacts/k.cubin", ""),
        ]);
        fs::create_dir(dir.path().join("empty")).unwrap();
        let taken = take(dir.path());
        let kept = ["here/a.cubin", "here/artifacts/notes.txt", "here/other/artifacts/k.cubin"];
        assert_eq!(names(&taken), kept);
        assert!(taken.left_out.is_empty(), "an empty folder is not worth a line each time");
        let mount = Mount::parse("artifacts", false, dir.path()).unwrap();
        let taken = snapshot(&[mount], MAX_MOUNT_BYTES).unwrap();
        assert!(names(&taken).contains(&"here/artifacts/k.sm_90a.cubin"));
    }

    #[test]
    fn too_much_is_refused_and_the_biggest_are_named() {
        let dir = tree(&[("small", "x"), ("data/one", &"x".repeat(3000)), ("data/two", "yy")]);
        let mount = Mount::parse(".", true, dir.path()).unwrap();
        let error = snapshot(&[mount], 2000).unwrap_err();
        let text = rgpu_model::error::Failure::from(error).to_string();
        assert!(text.contains("data/ (3.0 kB), data/one (3.0 kB)"), "{text}");
        assert!(text.contains(".rgpuignore"), "{text}");
    }

    #[test]
    fn mounts_say_where_they_go() {
        let dir = tree(&[("lib/a", ""), ("b:c/x", ""), ("file", "")]);
        let to = |text, first| Mount::parse(text, first, dir.path()).map(|m| m.to);
        assert_eq!(to("lib", true).unwrap(), "");
        assert_eq!(to("lib", false).unwrap(), "lib");
        assert_eq!(to("lib:deep/er/", false).unwrap(), "deep/er");
        assert_eq!(to("b:c", true).unwrap(), "");
        assert_eq!(to("file", true).unwrap(), "file");
        let data = Mount::parse("lib:/srv/data/", false, dir.path()).unwrap();
        assert_eq!((data.to.as_str(), data.link.as_deref()), ("srv/data", Some("/srv/data")));
        assert!(to("lib:/", false).is_err());
        for bad in ["lib:../x", "nothing", "lib:a//b", "/dev/null"] {
            assert!(to(bad, false).is_err(), "{bad}");
        }
    }
}
