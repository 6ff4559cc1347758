//! A job's folder that nobody sees yet: laid out under a hidden name, filled with the plan's inputs,
//! locked, and then renamed.
//!
//! Inputs may be filled in while their blobs still come: on a long link the copying would else begin
//! where the last blob has come, and the job would wait for it.

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
use crate::host_fault::{DoingContext, HostFault};

/// A file of more pieces is put together by as many threads as this.
const MAX_COPY_THREADS: usize = 4;

/// Which file of a plan, and which of its pieces.
type Number = (usize, usize);

/// Where a plan has each blob.
pub(crate) struct BlobTargets<'a>(
    HashMap<&'a Digest, Vec<(Number, &'a InputFile, InputPiece<'a>)>>,
);

impl<'a> BlobTargets<'a> {
    pub(crate) fn of(plan: &'a Plan) -> Self {
        let mut places: HashMap<_, Vec<_>> = HashMap::new();
        for (file, input) in plan.files.iter().enumerate() {
            for (number, piece) in input.pieces().enumerate() {
                places.entry(piece.digest).or_default().push(((file, number), input, piece));
            }
        }
        Self(places)
    }
}

/// The hidden folder. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct FolderDraft {
    path: PathBuf,
    /// Pieces that were filled in, and their bytes.
    filled: HashSet<Number>,
    bytes: u64,
}

impl Drop for FolderDraft {
    fn drop(&mut self) {
        // After a rename there is nothing of the name any more.
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl FolderDraft {
    /// An empty one under `root`.
    ///
    /// # Errors
    /// The host.
    pub(crate) fn new(root: &Path) -> Result<Self, HostFault> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = root.join("jobs").join(format!(".new-{}-{number}", std::process::id()));
        for folder in [path.clone(), path.join("work")] {
            DirBuilder::new().mode(0o700).create(&folder).doing("make", &folder)?;
        }
        Ok(Self { path, filled: HashSet::new(), bytes: 0 })
    }

    /// Fills in a blob wherever the plan has it. What fails here is tried once more, and told of,
    /// when the job is made.
    pub(crate) fn fill(&mut self, places: &BlobTargets<'_>, digest: &Digest, blobs: &Blobs) {
        for (number, input, piece) in places.0.get(digest).into_iter().flatten() {
            let copied =
                self.open(input).is_ok_and(|(_, out)| copy(&[*piece], blobs, &out).is_ok());
            if copied && self.filled.insert(*number) {
                self.bytes += piece.len;
            }
        }
    }

    /// Bytes that were filled in.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nobody has removed it meanwhile: one that is old may be taken for abandoned.
    pub(crate) fn is_there(&self) -> bool {
        self.path.join("work").is_dir()
    }

    /// Makes the job of `plan` of it.
    ///
    /// # Errors
    /// Somebody else was first, a blob is gone, or the host.
    pub(crate) fn finish(
        self,
        root: &Path,
        plan: &Plan,
        blobs: &Blobs,
    ) -> Result<NewJob, CreateError> {
        let lock = self.write_plan(plan)?;
        for (number, input) in plan.files.iter().enumerate() {
            self.fill_rest(number, input, blobs)?;
        }
        // Followers may come before the supervisor has said anything.
        let path = self.path.join("events.jsonl");
        File::create_new(&path).doing("make", &path)?;
        let listener = control::listen(&self.path, SOCKET).doing("listen in", &self.path)?;
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

    /// The plan's file, locked.
    fn write_plan(&self, plan: &Plan) -> Result<File, HostFault> {
        let path = self.path.join("plan.json");
        let text = serde_json::to_vec_pretty(plan).map_err(io::Error::from);
        let mut file = File::create_new(&path).doing("make", &path)?;
        file.write_all(&text.doing("write", &path)?).doing("write", &path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).doing("lock", &path)?;
        Ok(file)
    }

    /// An input file as it is by now, and its path.
    fn open(&self, input: &InputFile) -> Result<(PathBuf, File), HostFault> {
        let path = self.path.join("work").join(&input.path);
        if let Some(parent) = path.parent() {
            DirBuilder::new().mode(0o700).recursive(true).create(parent).doing("make", parent)?;
        }
        let mode = if input.executable { 0o755 } else { 0o644 };
        let mut open = OpenOptions::new();
        let out = open.write(true).create(true).truncate(false).mode(mode).open(&path);
        let out = out.doing("make", &path)?;
        Ok((path, out))
    }

    /// Fills in what is not yet there of the file with this number.
    fn fill_rest(
        &self,
        number: usize,
        input: &InputFile,
        blobs: &Blobs,
    ) -> Result<(), CreateError> {
        let pieces = input.pieces().enumerate();
        let left: Vec<InputPiece<'_>> = pieces
            .filter(|(piece, _)| !self.filled.contains(&(number, *piece)))
            .map(|(_, piece)| piece)
            .collect();
        if left.is_empty() && !input.blobs.is_empty() {
            // Each piece was as long as it should be.
            return Ok(());
        }
        let (path, out) = self.open(input)?;
        copy(&left, blobs, &out).doing("write", &path)?;
        let size = out.metadata().doing("look at", &path)?.len();
        if size != input.size {
            let why = format!("{size} bytes in the place of {}", input.size);
            return Err(CreateError::Blobs { path: input.path.clone(), why });
        }
        Ok(())
    }
}

/// Copies each of the pieces to its place in `out`.
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
            .map(|share| {
                let copier = std::thread::Builder::new().spawn_scoped(threads, move || copy(share));
                // No more threads are to be had.
                copier.map_err(|_| copy(share))
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
