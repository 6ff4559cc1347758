//! A job's folder, `<root>/jobs/<job>/`:
//!
//! | name | what |
//! |---|---|
//! | `plan.json` | the plan, without values of secrets; flocked by the supervisor for as long as it lives |
//! | `events.jsonl` | the event log |
//! | `log/<step>.stdout`, `log/<step>.stderr` | what the step's rungs printed, one after the other, if they did |
//! | `work/` | the job's folder as programs see it |
//! | `sock` | where it listens |
//! | `stdin` | standard input that no program has taken yet |
//! | `supervisor.log` | what the supervisor itself had to say, if anything (a defect's trace) |
//!
//! Beside it lies `<root>/tmp/<ten digits>/`, the `TMPDIR` of its programs while it runs: tools
//! put sockets there, whose paths must be short.
//!
//! There is no file more than that: on the disks of some hosts a new one costs a tenth of a
//! millisecond and more, and a job of `true` is to cost no more than one `ssh` does.
//!
//! A folder is laid out under a hidden name, locked, and then renamed (`draft`): whoever sees the
//! job sees a whole one whose lock tells whether its supervisor lives.

mod draft;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rgpu_protocol::plan::{InputFile, valid_job_id};
use rgpu_protocol::{Digest, Plan, Stream};
use rustix::fs::FlockOperation;

use crate::blob::{Blobs, hash};
use crate::host_fault::{DoingContext, HostFault};

pub(crate) use draft::{BlobTargets, FolderDraft};

/// The name of the supervisor's socket in the folder.
pub(crate) const SOCKET: &str = "sock";

/// A job's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFolder(PathBuf);

/// A new job whose supervisor is to be started.
pub(crate) struct NewJob {
    pub(crate) folder: JobFolder,
    /// Holds the job's flock until its last copy is closed.
    pub(crate) lock: OwnedFd,
    /// Bound already, so that nobody connects too early.
    pub(crate) listener: UnixListener,
}

/// Why a job's folder was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// Somebody else was first.
    #[error("the job is there already")]
    Exists,
    /// A blob vanished or is not what its file needs.
    #[error("blobs of `{path}` do not make up the file: {why}")]
    Blobs {
        /// The input file.
        path: String,
        /// In words.
        why: String,
    },
    /// The host.
    #[error(transparent)]
    Host(#[from] HostFault),
}

impl JobFolder {
    /// The folder at this very path.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The folder of a job under one of the roots.
    pub fn find<'a>(roots: impl Iterator<Item = &'a Path>, job: &str) -> Option<Self> {
        if !valid_job_id(job) {
            return None;
        }
        let mut folders = roots.map(|root| root.join("jobs").join(job));
        folders.find(|f| f.join("plan.json").is_file()).map(Self)
    }

    /// All jobs under `root`.
    pub fn all(root: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(root.join("jobs")) else { return Vec::new() };
        let named = entries.flatten().filter(|e| e.file_name().to_str().is_some_and(valid_job_id));
        named.map(|e| Self(e.path())).collect()
    }

    /// The job's name.
    pub fn id(&self) -> &str {
        self.0.file_name().and_then(|n| n.to_str()).unwrap_or_default()
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The plan's file.
    pub fn plan_path(&self) -> PathBuf {
        self.0.join("plan.json")
    }

    /// The event log.
    pub fn events_path(&self) -> PathBuf {
        self.0.join("events.jsonl")
    }

    /// The log of one output stream of one step.
    pub fn log_path(&self, step: &str, stream: Stream) -> PathBuf {
        self.0.join("log").join(format!("{step}.{}", stream.as_str()))
    }

    /// The job's folder as programs see it.
    pub fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// Where programs put temporary files.
    pub fn tmp(&self) -> PathBuf {
        let name = hash(self.id().as_bytes());
        let root = self.0.ancestors().nth(2).unwrap_or(Path::new("/"));
        root.join("tmp").join(&name.as_str()[..10])
    }

    /// What the supervisor itself had to say.
    pub(crate) fn supervisor_log(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }

    /// The plan.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn plan(&self) -> Result<Plan, HostFault> {
        let path = self.plan_path();
        let bytes = fs::read(&path).doing("read", &path)?;
        serde_json::from_slice(&bytes).map_err(io::Error::from).doing("understand", &path)
    }

    /// The job's lock, when nobody holds it: its supervisor is gone.
    pub(crate) fn try_lock(&self) -> Result<Option<File>, HostFault> {
        let path = self.plan_path();
        // NFS locks only what may be written.
        let file = OpenOptions::new().read(true).write(true).open(&path).doing("open", &path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e).doing("lock", &path),
        }
    }

    /// Removes the folder of a job whose connection died before its supervisor could begin: its
    /// log is empty, so nothing of it has run. Whether it was such a one.
    ///
    /// # Errors
    /// When it cannot be looked at or removed.
    pub(crate) fn discard_unbegun(&self) -> Result<bool, HostFault> {
        let Some(_lock) = self.try_lock()? else { return Ok(false) };
        let path = self.events_path();
        let unbegun = fs::metadata(&path).doing("look at", &path)?.len() == 0;
        if unbegun {
            self.remove()?;
        }
        Ok(unbegun)
    }

    /// Removes the folder. The caller has made sure that the job ended.
    ///
    /// # Errors
    /// When part of it stays.
    pub(crate) fn remove(&self) -> Result<(), HostFault> {
        self.set_aside()?.remove()
    }

    /// Takes the folder out of sight, so that nobody sees half a job. The caller has made sure that
    /// the job ended.
    ///
    /// # Errors
    /// When it stays.
    pub(crate) fn set_aside(&self) -> Result<RemovedFolder, HostFault> {
        let hidden = self.0.with_file_name(format!(".old-{}-{}", std::process::id(), self.id()));
        fs::rename(&self.0, &hidden).doing("remove", &self.0)?;
        Ok(RemovedFolder { hidden, tmp: self.tmp() })
    }
}

/// A job's folder that nobody sees any more. Should its process end before it is removed, the next
/// sweep does that.
#[derive(Debug)]
pub struct RemovedFolder {
    hidden: PathBuf,
    tmp: PathBuf,
}

impl RemovedFolder {
    /// Removes it.
    ///
    /// # Errors
    /// When part of it stays.
    pub fn remove(self) -> Result<(), HostFault> {
        // There only when the supervisor was killed.
        let _ = remove_tree(&self.tmp);
        remove_tree(&self.hidden)
    }
}

/// Removes a folder, also when programs left folders in it that may not be written.
pub(crate) fn remove_tree(path: &Path) -> Result<(), HostFault> {
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    open_up(path);
    fs::remove_dir_all(path).doing("remove", path)
}

fn open_up(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    // What cannot be opened cannot be removed, and that is said.
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// The blobs of `plan` that are not there yet, each once.
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
