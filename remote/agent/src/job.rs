//! A job's folder, `<root>/jobs/<job>/`:
//!
//! | name | content |
//! |---|---|
//! | `plan.json` | the plan, without secrets' values; flocked while the supervisor lives |
//! | `events.jsonl` | the event log |
//! | `log/<step>.stdout`, `log/<step>.stderr` | output of the step's rungs, if any |
//! | `work/` | the working folder of programs |
//! | `sock` | the supervisor's socket |
//! | `stdin` | standard input that no program has read yet |
//! | `supervisor.log` | the supervisor's own errors, such as a panic, if any |
//!
//! While the job runs, `<root>/tmp/<ten digits>/` is the `TMPDIR` of its programs. Tools create
//! sockets there, whose paths must be short.
//!
//! The folder holds no other files: on some hosts' disks each new file costs a tenth of a
//! millisecond or more, and a job of `true` should cost no more than one `ssh`.
//!
//! A folder is prepared under a hidden name, locked, and then renamed (`draft`). So every visible
//! job is complete, and its lock shows whether its supervisor lives.

mod draft;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rgpu_protocol::plan::{InputFile, valid_job_id};
use rgpu_protocol::{Digest, Plan, Stream};
use rustix::fs::FlockOperation;

use crate::blob::Blobs;
use crate::host_fault::{HostFault, IoContext};
use crate::job_state::{JobState, state};

pub(crate) use draft::{BlobTargets, DRAFT_PREFIX, FolderDraft};

/// Name of the supervisor's socket in the folder.
pub(crate) const SOCKET: &str = "sock";

/// The folder of one job on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFolder(PathBuf);

/// A new job whose supervisor has not been started yet.
pub(crate) struct NewJob {
    pub(crate) folder: JobFolder,
    /// Holds the job's flock until its last copy is closed.
    pub(crate) lock: OwnedFd,
    /// Bound already, so that connecting works before the supervisor runs.
    pub(crate) listener: UnixListener,
}

/// Why a job's folder was not created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// Another connection has created it.
    #[error("the job already exists")]
    Exists,
    /// A blob is missing or does not fit its file.
    #[error("the blobs of `{path}` do not add up to the file: {why}")]
    Blobs { path: String, why: String },
    /// The host's file system failed.
    #[error(transparent)]
    Host(#[from] HostFault),
}

/// Returns the Python environments that jobs which have not ended link to, in their working folder
/// or in one of its folders.
pub fn environments_in_use(root: &Path) -> BTreeSet<PathBuf> {
    let mut used = BTreeSet::new();
    for job in JobFolder::all(root) {
        if matches!(state(&job), Ok(JobState::Ended { .. })) {
            continue;
        }
        let entries = fs::read_dir(job.work()).into_iter().flatten().flatten();
        let sides = entries.filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir()));
        let folders = sides.map(|side| side.path()).chain([job.work()]);
        used.extend(folders.filter_map(|folder| fs::read_link(folder.join("env")).ok()));
    }
    used
}

impl JobFolder {
    /// Returns the folder at exactly this path.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Finds a job's folder under one of the roots.
    pub fn find<'a>(roots: impl Iterator<Item = &'a Path>, job: &str) -> Option<Self> {
        if !valid_job_id(job) {
            return None;
        }
        let mut folders = roots.map(|root| root.join("jobs").join(job));
        folders.find(|f| f.join("plan.json").is_file()).map(Self)
    }

    /// Returns the folders of all jobs under `root`.
    pub fn all(root: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(root.join("jobs")) else { return Vec::new() };
        let named = entries.flatten().filter(|e| e.file_name().to_str().is_some_and(valid_job_id));
        named.map(|e| Self(e.path())).collect()
    }

    /// Returns the job's name.
    pub fn id(&self) -> &str {
        self.0.file_name().and_then(|n| n.to_str()).unwrap_or_default()
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the root that holds the folder.
    pub(crate) fn root(&self) -> &Path {
        self.0.ancestors().nth(2).unwrap_or(Path::new("/"))
    }

    /// Returns the path of the plan.
    pub fn plan_path(&self) -> PathBuf {
        self.0.join("plan.json")
    }

    /// Returns the path of the event log.
    pub fn events_path(&self) -> PathBuf {
        self.0.join("events.jsonl")
    }

    /// Returns the path of a step's log of one output stream.
    pub fn log_path(&self, step: &str, stream: Stream) -> PathBuf {
        self.0.join("log").join(format!("{step}.{}", stream.as_str()))
    }

    /// Returns the working folder of the job's programs.
    pub fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// Returns the folder for temporary files of the job's programs.
    pub fn tmp(&self) -> PathBuf {
        let name = Digest::sha256(self.id().as_bytes());
        self.root().join("tmp").join(&name.as_str()[..10])
    }

    /// Returns the path of the supervisor's own log.
    pub(crate) fn supervisor_log(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }

    /// Reads the plan.
    pub fn plan(&self) -> Result<Plan, HostFault> {
        let path = self.plan_path();
        let bytes = fs::read(&path).context("read", &path)?;
        serde_json::from_slice(&bytes).map_err(io::Error::from).context("understand", &path)
    }

    /// Takes the job's lock. `None` if the supervisor holds it and so still lives.
    pub(crate) fn try_lock(&self) -> Result<Option<File>, HostFault> {
        let path = self.plan_path();
        // NFS locks only files that are open for writing.
        let file = OpenOptions::new().read(true).write(true).open(&path).context("open", &path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e).context("lock", &path),
        }
    }

    /// Removes the folder of a job whose connection died before its supervisor started: the log is
    /// empty, so nothing has run. Returns whether it was removed.
    pub(crate) fn discard_unbegun(&self) -> Result<bool, HostFault> {
        let Some(_lock) = self.try_lock()? else { return Ok(false) };
        let path = self.events_path();
        let unbegun = fs::metadata(&path).context("look at", &path)?.len() == 0;
        if unbegun {
            self.remove()?;
        }
        Ok(unbegun)
    }

    /// Removes the folder. The caller has checked that the job has ended.
    pub(crate) fn remove(&self) -> Result<(), HostFault> {
        self.set_aside()?.remove()
    }

    /// Renames the folder to a hidden name, so that no partly removed job is visible. The caller
    /// has checked that the job has ended.
    pub(crate) fn set_aside(&self) -> Result<RemovedFolder, HostFault> {
        let hidden_path =
            self.0.with_file_name(format!(".old-{}-{}", std::process::id(), self.id()));
        fs::rename(&self.0, &hidden_path).context("remove", &self.0)?;
        Ok(RemovedFolder { hidden_path, tmp: self.tmp() })
    }
}

/// The hidden folder of a removed job. If the process ends before it is deleted, the next sweep
/// deletes it.
#[derive(Debug)]
pub struct RemovedFolder {
    hidden_path: PathBuf,
    tmp: PathBuf,
}

impl RemovedFolder {
    /// Deletes it.
    pub fn remove(self) -> Result<(), HostFault> {
        // This exists only if the supervisor was killed.
        let _ = remove_tree(&self.tmp);
        remove_tree(&self.hidden_path)
    }
}

/// Removes a folder, even if programs left unwritable folders in it.
pub(crate) fn remove_tree(path: &Path) -> Result<(), HostFault> {
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    make_writable(path);
    fs::remove_dir_all(path).context("remove", path)
}

fn make_writable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // If this fails, so does the removal, which reports it.
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

/// Returns the blobs of `plan` that are not stored, without duplicates.
pub(crate) fn missing_blobs(plan: &Plan, blobs: &Blobs) -> Vec<Digest> {
    let mut missing: Vec<Digest> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for piece in plan.files.iter().flat_map(InputFile::pieces) {
        if seen.insert(piece.digest) && !blobs.has(piece.digest, piece.len) {
            missing.push(piece.digest.clone());
        }
    }
    missing
}
