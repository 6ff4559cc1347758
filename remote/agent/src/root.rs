//! The agent's own folder for blobs and jobs, chosen once per connection.
//!
//! The first candidate is used that only this user can write, that is not full, and that may hold
//! programs. Homes on GPU hosts are often full, read-only or mounted `noexec`, hence the list. A
//! folder that other users can write is never used, because they could replace the programs that we
//! run.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags};

use crate::host_fault::{HostFault, IoContext};

/// Candidates with less free space are skipped.
const MIN_FREE_BYTES: u64 = 32 << 20;

/// Why a candidate is not used.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// It cannot be created or examined.
    #[error(transparent)]
    Host(#[from] HostFault),
    /// It belongs to another user, is a link in a shared folder, or other users can write it.
    #[error("`{path}` is refused: {why}")]
    Unsafe {
        /// The folder that was refused.
        path: PathBuf,
        /// Explanation for the user.
        why: String,
    },
    /// It is mounted `noexec`.
    #[error("`{0}` is on a file system mounted noexec")]
    NoExec(PathBuf),
    /// It is not writable.
    #[error("`{0}` cannot be written")]
    ReadOnly(PathBuf),
    /// It has too little free space.
    #[error("`{path}` has only {free} bytes free")]
    Full {
        /// The folder without enough space.
        path: PathBuf,
        /// Its free space in bytes.
        free: u64,
    },
    /// There is no candidate.
    #[error("no folder to work in: set `RGPU_AGENT_HOME`")]
    Nothing,
}

impl RootError {
    /// Returns the code of a refusal.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Host(fault) => fault.code(),
            Self::Unsafe { .. } => "folder_unsafe",
            Self::NoExec(_) => "folder_noexec",
            Self::ReadOnly(_) => "read_only",
            Self::Full { .. } => "disk_full",
            Self::Nothing => "no_folder",
        }
    }
}

/// A folder that the agent may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootCandidate {
    path: PathBuf,
    access: FolderAccess,
}

/// Whether other users can create files beside the candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderAccess {
    /// Only the user can: links are followed.
    Own,
    /// All users can, as in `/tmp`: a link is refused.
    Shared,
}

/// Returns the path with a leading `~/` replaced by the user's home. A client that names a folder
/// of a host does not know where homes are there.
pub(crate) fn under_home(path: PathBuf) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path,
    }
}

/// Returns the candidates for user `uid`, best first. `named` (`$RGPU_AGENT_HOME`) excludes all
/// others.
pub fn candidates(
    named: Option<PathBuf>,
    cache: Option<PathBuf>,
    home: Option<PathBuf>,
    uid: u32,
) -> Vec<RootCandidate> {
    let own_candidate = |path: PathBuf| RootCandidate { path, access: FolderAccess::Own };
    if let Some(path) = named {
        return vec![own_candidate(path)];
    }
    let cache = cache.filter(|c| c.is_absolute()).map(|c| c.join("rgpu"));
    let home = home.filter(|h| h.is_absolute()).map(|h| h.join(".cache/rgpu"));
    let mut all: Vec<_> = cache.into_iter().chain(home).map(own_candidate).collect();
    all.dedup();
    for shared in ["/var/tmp", "/tmp"] {
        let path = Path::new(shared).join(format!("rgpu-{uid}"));
        all.push(RootCandidate { path, access: FolderAccess::Shared });
    }
    all
}

/// The agent's folders: the main one for new files, and others that may hold older jobs.
#[derive(Debug)]
pub struct Roots {
    chosen: Result<PathBuf, RootError>,
    others: Vec<PathBuf>,
}

impl Roots {
    /// Chooses and creates the first usable candidate.
    pub fn choose(candidates: &[RootCandidate]) -> Self {
        let mut first_error = None;
        let mut chosen = None;
        let mut others = Vec::new();
        for candidate in candidates {
            if chosen.is_none() {
                match prepare(candidate) {
                    Ok(path) => {
                        chosen = Some(path);
                        continue;
                    }
                    Err(e) => first_error = first_error.or(Some(e)),
                }
            }
            // A home that is now full or read-only may still hold finished jobs.
            if candidate.path.is_dir() && check_owner(candidate).is_ok() {
                others.push(candidate.path.clone());
            }
        }
        let chosen = chosen.ok_or_else(|| first_error.unwrap_or(RootError::Nothing));
        Self { chosen, others }
    }

    /// Returns the folder for new blobs and jobs.
    pub fn main(&self) -> Result<&Path, &RootError> {
        self.chosen.as_deref()
    }

    /// Returns every folder that may hold jobs, the main one first.
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        self.chosen.iter().chain(&self.others).map(PathBuf::as_path)
    }
}

/// Creates and checks a candidate. Returns its absolute path.
fn prepare(candidate: &RootCandidate) -> Result<PathBuf, RootError> {
    let path = &candidate.path;
    match fs::DirBuilder::new().mode(0o700).recursive(true).create(path) {
        // The check below reports a dangling link or a file with this name.
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            return Err(HostFault::new(format!("make `{}`", path.display()), e).into());
        }
        _ => {}
    }
    check_owner(candidate)?;
    let vfs = rustix::fs::statvfs(path).context("look at", path)?;
    if vfs.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(RootError::NoExec(path.clone()));
    }
    if rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Err(RootError::ReadOnly(path.clone()));
    }
    let free = vfs.f_bavail.saturating_mul(vfs.f_frsize);
    if free < MIN_FREE_BYTES {
        return Err(RootError::Full { path: path.clone(), free });
    }
    for part in ["blobs/tmp", "jobs", "tmp"] {
        let part = path.join(part);
        if !part.is_dir() {
            let created = fs::DirBuilder::new().mode(0o700).recursive(true).create(&part);
            created.context("make", &part)?;
        }
    }
    Ok(path.canonicalize().context("resolve", path)?)
}

fn check_owner(candidate: &RootCandidate) -> Result<(), RootError> {
    let path = &candidate.path;
    let meta = match candidate.access {
        FolderAccess::Own => fs::metadata(path),
        FolderAccess::Shared => fs::symlink_metadata(path),
    };
    let meta = meta.context("look at", path)?;
    let refuse = |why: String| Err(RootError::Unsafe { path: path.clone(), why });
    if !meta.is_dir() {
        return refuse("it is not a folder".into());
    }
    let own_uid = rustix::process::geteuid().as_raw();
    if meta.uid() != own_uid {
        return refuse(format!("it belongs to user {}, not to user {own_uid}", meta.uid()));
    }
    if meta.mode() & 0o022 != 0 {
        return refuse(format!("others may write it (mode {:o})", meta.mode() & 0o7777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("open");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let roots = Roots::choose(&candidates(Some(path), None, None, 0));
        assert_eq!(roots.main().unwrap_err().code(), "folder_unsafe");
    }

    #[test]
    fn a_link_in_a_shared_place_is_refused_and_one_of_our_own_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        fs::DirBuilder::new().mode(0o700).create(&real).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let shared = RootCandidate { path: link.clone(), access: FolderAccess::Shared };
        assert_eq!(Roots::choose(&[shared]).main().unwrap_err().code(), "folder_unsafe");
        let own_candidate = RootCandidate { path: link, access: FolderAccess::Own };
        assert_eq!(Roots::choose(&[own_candidate]).main().unwrap(), real.canonicalize().unwrap());
    }

    #[test]
    fn an_unusable_home_gives_way_to_the_next_candidate() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("home");
        fs::write(&file, "no folder").unwrap();
        let own_candidate = |path: PathBuf| RootCandidate { path, access: FolderAccess::Own };
        let roots =
            Roots::choose(&[own_candidate(file.join("x")), own_candidate(dir.path().join("next"))]);
        assert!(roots.main().unwrap().ends_with("next"));
    }

    #[test]
    fn a_named_folder_excludes_all_others() {
        let all = candidates(Some("/x".into()), Some("/c".into()), Some("/h".into()), 7);
        assert_eq!(all.len(), 1);
        let all = candidates(None, Some("/h/.cache".into()), Some("/h".into()), 7);
        let paths: Vec<_> = all.iter().map(|c| c.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/h/.cache/rgpu", "/var/tmp/rgpu-7", "/tmp/rgpu-7"]);
    }
}
