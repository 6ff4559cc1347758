//! A job's folder before it is visible: created under a hidden name, filled with the plan's inputs,
//! locked, and then renamed.
//!
//! Inputs are copied while their blobs still arrive. On a long link, the job would otherwise wait
//! for the copying after the last blob.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rgpu_protocol::plan::{InputFile, InputPiece};
use rgpu_protocol::{Digest, Plan};
use rustix::fs::FlockOperation;

use super::{CreateError, JobFolder, NewJob, SOCKET};
use crate::blob::Blobs;
use crate::control;
use crate::host_fault::{HostFault, IoContext};

/// Begins the name of a draft.
pub(crate) const DRAFT_PREFIX: &str = ".new-";

/// Most threads that copy the pieces of one file.
const MAX_COPY_THREADS: usize = 4;

/// Index of a file in the plan, and of a piece in the file.
type PieceIndex = (usize, usize);

/// The positions of each blob in the plan's files.
pub(crate) struct BlobTargets<'a>(
    HashMap<&'a Digest, Vec<(PieceIndex, &'a InputFile, InputPiece<'a>)>>,
);

impl<'a> BlobTargets<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        let mut targets: HashMap<_, Vec<_>> = HashMap::new();
        for (file, input) in plan.files.iter().enumerate() {
            for (number, piece) in input.pieces().enumerate() {
                targets.entry(piece.digest).or_default().push(((file, number), input, piece));
            }
        }
        Self(targets)
    }
}

/// The hidden folder. Dropping it removes the folder.
#[derive(Debug)]
pub(crate) struct FolderDraft {
    path: PathBuf,
    /// Pieces that have been copied. `bytes` is their length.
    filled: HashSet<PieceIndex>,
    bytes: u64,
}

impl Drop for FolderDraft {
    fn drop(&mut self) {
        // After the rename this path no longer exists.
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl FolderDraft {
    /// Creates an empty draft under `root`.
    pub(crate) fn new(root: &Path) -> Result<Self, HostFault> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = root.join("jobs").join(format!("{DRAFT_PREFIX}{}-{number}", std::process::id()));
        for folder in [path.clone(), path.join("work")] {
            DirBuilder::new().mode(0o700).create(&folder).context("make", &folder)?;
        }
        Ok(Self { path, filled: HashSet::new(), bytes: 0 })
    }

    /// Copies a blob to all its positions in the plan's files. A failure here is ignored: the copy
    /// is repeated when the job is created.
    pub(crate) fn fill(&mut self, targets: &BlobTargets<'_>, digest: &Digest, blobs: &Blobs) {
        for (number, input, piece) in targets.0.get(digest).into_iter().flatten() {
            let copied =
                self.open(input).is_ok_and(|(_, out)| copy(&[*piece], blobs, &out).is_ok());
            if copied && self.filled.insert(*number) {
                self.bytes += piece.len;
            }
        }
    }

    /// Returns the number of bytes copied.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether the folder still exists. A sweep removes old ones as abandoned.
    pub(crate) fn is_there(&self) -> bool {
        self.path.join("work").is_dir()
    }

    /// Turns the draft into the job of `plan`.
    pub(crate) fn finish(
        self,
        root: &Path,
        plan: &Plan,
        blobs: &Blobs,
    ) -> Result<NewJob, CreateError> {
        let lock = self.write_plan(plan)?;
        for (index, input) in plan.files.iter().enumerate() {
            self.fill_rest(index, input, blobs)?;
        }
        // Followers may open the log before the supervisor writes to it.
        let path = self.path.join("events.jsonl");
        File::create_new(&path).context("make", &path)?;
        let listener = control::listen(&self.path, SOCKET).context("listen in", &self.path)?;
        let path = root.join("jobs").join(&plan.job);
        match fs::rename(&self.path, &path) {
            Ok(()) => Ok(NewJob { folder: JobFolder(path), lock: lock.into(), listener }),
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
    }

    /// Creates and locks the plan's file.
    fn write_plan(&self, plan: &Plan) -> Result<File, HostFault> {
        let path = self.path.join("plan.json");
        let text = serde_json::to_vec_pretty(plan).map_err(io::Error::from);
        let mut file = File::create_new(&path).context("make", &path)?;
        file.write_all(&text.context("write", &path)?).context("write", &path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .context("lock", &path)?;
        Ok(file)
    }

    /// Opens an input file for writing. Returns its path too.
    fn open(&self, input: &InputFile) -> Result<(PathBuf, File), HostFault> {
        let path = self.path.join("work").join(&input.path);
        if let Some(parent) = path.parent() {
            DirBuilder::new().mode(0o700).recursive(true).create(parent).context("make", parent)?;
        }
        let mode = if input.executable { 0o755 } else { 0o644 };
        let mut open = OpenOptions::new();
        let out = open.write(true).create(true).truncate(false).mode(mode).open(&path);
        let out = out.context("make", &path)?;
        Ok((path, out))
    }

    /// Copies the missing pieces of the file with this index.
    fn fill_rest(
        &self,
        file_index: usize,
        input: &InputFile,
        blobs: &Blobs,
    ) -> Result<(), CreateError> {
        let pieces = input.pieces().enumerate();
        let left: Vec<InputPiece<'_>> = pieces
            .filter(|(piece, _)| !self.filled.contains(&(file_index, *piece)))
            .map(|(_, piece)| piece)
            .collect();
        if left.is_empty() && !input.blobs.is_empty() {
            // The length of each piece was checked when it was copied.
            return Ok(());
        }
        let (path, out) = self.open(input)?;
        copy(&left, blobs, &out).context("write", &path)?;
        let size = out.metadata().context("look at", &path)?.len();
        if size != input.size {
            let why = format!("{size} bytes instead of {}", input.size);
            return Err(CreateError::Blobs { path: input.path.clone(), why });
        }
        Ok(())
    }
}

/// Copies the pieces to their offsets in `out`.
fn copy(pieces: &[InputPiece<'_>], blobs: &Blobs, out: &File) -> io::Result<()> {
    let copy = |pieces: &[InputPiece<'_>]| {
        pieces.iter().try_for_each(|piece| {
            match blobs.copy_at(piece.digest, out, piece.offset)? {
                copied if copied == piece.len => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        })
    };
    if pieces.len() <= MAX_COPY_THREADS {
        return copy(pieces);
    }
    std::thread::scope(|threads| {
        let copiers: Vec<_> = pieces
            .chunks(pieces.len().div_ceil(MAX_COPY_THREADS))
            .map(|chunk| {
                let copier = std::thread::Builder::new().spawn_scoped(threads, move || copy(chunk));
                // No thread could be started.
                copier.map_err(|_| copy(chunk))
            })
            .collect();
        copiers.into_iter().try_for_each(|copier| match copier {
            Ok(copier) => copier
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a copying thread has failed"))),
            Err(copied) => copied,
        })
    })
}
