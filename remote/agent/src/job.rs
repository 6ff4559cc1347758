//! A job's folder, `<root>/jobs/<job>/`:
//!
//! | name | what |
//! |---|---|
//! | `plan.json` | the plan, without values of secrets |
//! | `events.jsonl` | the event log |
//! | `log/<step>.stdout`, `log/<step>.stderr` | what the step's rungs printed, one after the other |
//! | `work/` | the job's folder as programs see it |
//! | `lock` | flocked by the supervisor for as long as it lives |
//! | `sock` | where it listens |
//! | `stdin` | standard input that no program has taken yet |
//! | `supervisor.log` | what the supervisor itself had to say (a defect's trace) |
//!
//! Beside it lies `<root>/tmp/<ten digits>/`, the `TMPDIR` of its programs while it runs: tools
//! put sockets there, whose paths must be short.
//!
//! A folder is laid out under a hidden name, locked, and then renamed: whoever sees the job sees
//! a whole one whose lock tells whether its supervisor lives.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rgpu_protocol::plan::{InputFile, valid_job_id};
use rgpu_protocol::{BLOB_BYTES, Digest, Plan, Stream};
use rustix::fs::FlockOperation;

use crate::blob::{Blobs, hash, piece_sizes};
use crate::control;
use crate::fault::{Doing, HostFault};

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
        let path = self.0.join("lock");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.doing("open", &path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e).doing("lock", &path),
        }
    }

    /// Lays out the folder of `plan` under `root`.
    pub(crate) fn create(root: &Path, plan: &Plan, blobs: &Blobs) -> Result<NewJob, CreateError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let hidden = root.join("jobs").join(format!(".new-{}-{number}", std::process::id()));
        let made = lay_out(&hidden, plan, blobs).and_then(|(lock, listener)| {
            let path = root.join("jobs").join(&plan.job);
            match fs::rename(&hidden, &path) {
                Ok(()) => Ok(NewJob { folder: Self(path), lock: lock.into(), listener }),
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                    ) =>
                {
                    Err(CreateError::Exists)
                }
                Err(e) => Err(HostFault::new(format!("make `{}`", path.display()), e).into()),
            }
        });
        if made.is_err() {
            let _ = fs::remove_dir_all(&hidden);
        }
        made
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
    pub(crate) fn set_aside(&self) -> Result<SetAside, HostFault> {
        let hidden = self.0.with_file_name(format!(".old-{}-{}", std::process::id(), self.id()));
        fs::rename(&self.0, &hidden).doing("remove", &self.0)?;
        Ok(SetAside { hidden, tmp: self.tmp() })
    }
}

/// A job's folder that nobody sees any more. Should its process end before it is removed, the next
/// sweep does that.
#[derive(Debug)]
pub struct SetAside {
    hidden: PathBuf,
    tmp: PathBuf,
}

impl SetAside {
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
    let pieces = plan
        .files
        .iter()
        .flat_map(|file| file.blobs.iter().zip(piece_sizes(file.size, file.blobs.len())));
    let mut missing: Vec<Digest> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (digest, size) in pieces {
        if seen.insert(digest) && !blobs.has(digest, size) {
            missing.push(digest.clone());
        }
    }
    missing
}

fn lay_out(folder: &Path, plan: &Plan, blobs: &Blobs) -> Result<(File, UnixListener), CreateError> {
    let mkdir = |path: &Path| DirBuilder::new().mode(0o700).create(path).doing("make", path);
    mkdir(folder)?;
    for part in ["log", "work"] {
        mkdir(&folder.join(part))?;
    }
    let path = folder.join("plan.json");
    let text = serde_json::to_vec_pretty(plan).map_err(io::Error::from).doing("write", &path)?;
    fs::write(&path, text).doing("write", &path)?;
    let work = folder.join("work");
    for file in &plan.files {
        write_input(&work, file, blobs)?;
    }
    // Followers may come before the supervisor has said anything.
    let path = folder.join("events.jsonl");
    File::create_new(&path).doing("make", &path)?;
    let path = folder.join("lock");
    let lock = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let lock = lock.doing("make", &path)?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).doing("lock", &path)?;
    let listener = control::listen(folder, SOCKET).doing("listen in", folder)?;
    Ok((lock, listener))
}

/// Puts an input file together from its blobs.
fn write_input(work: &Path, file: &InputFile, blobs: &Blobs) -> Result<(), CreateError> {
    let path = work.join(&file.path);
    if let Some(parent) = path.parent() {
        DirBuilder::new().mode(0o700).recursive(true).create(parent).doing("make", parent)?;
    }
    let mode = if file.executable { 0o755 } else { 0o644 };
    let out = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
    let mut out = out.doing("make", &path)?;
    let size = match file.blobs.len() > SIDE_BY_SIDE {
        true => copy_side_by_side(file, blobs, &out).doing("write", &path)?,
        false => {
            let mut size = 0;
            for digest in &file.blobs {
                size += blobs.copy_to(digest, &mut out).doing("write", &path)?;
            }
            size
        }
    };
    out.flush().doing("write", &path)?;
    if size != file.size {
        let why = format!("{size} bytes in the place of {}", file.size);
        return Err(CreateError::Blobs { path: file.path.clone(), why });
    }
    Ok(())
}

/// A file of more blobs is put together by as many threads as this.
const SIDE_BY_SIDE: usize = 4;

/// Copies each of the blobs to its place in `out`; their bytes.
fn copy_side_by_side(file: &InputFile, blobs: &Blobs, out: &File) -> io::Result<u64> {
    let places: Vec<(&Digest, u64)> =
        file.blobs.iter().zip((0..).map(|i: u64| i * BLOB_BYTES)).collect();
    let copy = |places: &[(&Digest, u64)]| {
        let copied = places.iter().map(|(digest, at)| blobs.copy_at(digest, out, *at));
        copied.sum::<io::Result<u64>>()
    };
    std::thread::scope(|threads| {
        let copiers: Vec<_> = places
            .chunks(places.len().div_ceil(SIDE_BY_SIDE))
            .map(|share| {
                let copier = std::thread::Builder::new().spawn_scoped(threads, move || copy(share));
                // No more threads are to be had.
                copier.map_err(|_| copy(share))
            })
            .collect();
        let ended = copiers.into_iter().map(|copier| match copier {
            Ok(copier) => copier
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a copying thread has failed"))),
            Err(copied) => copied,
        });
        ended.sum()
    })
}
