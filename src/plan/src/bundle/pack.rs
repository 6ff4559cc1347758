//! Packs a draft into a plan with digests, and records where the bytes of each blob are.

#![expect(
    clippy::disallowed_methods,
    reason = "sources of a kernel or program that the user named"
)]

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::SystemTime;

use rgpu_protocol::plan::{InputFile, valid_relative_path};
use rgpu_protocol::{Digest, PIECE_BYTES, Plan};
use sha2::{Digest as _, Sha256};

use super::BundleError;
use crate::kernel::is_private;
use crate::tool::{BundleFile, Draft, DraftInfo, JobFileContent};
use rgpu_model::agent_files;

/// Default limit of all files of a bundle together, in bytes.
pub const DEFAULT_MAX_BYTES: u64 = 2 << 30;

/// Blobs of files up to this size are hashed again when they are read for sending.
const REHASH_MAX_BYTES: u64 = 64 << 10;

/// [`PIECE_BYTES`] as a length.
const PIECE_LEN: usize = PIECE_BYTES as usize;

/// At most this many pieces of a file wait to be hashed.
const MAX_QUEUED_PIECES: usize = 4;

/// A plan and the blobs that its host may lack.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The plan; its files have digests.
    pub plan: Plan,
    /// The source of each blob's bytes.
    pub blobs: BTreeMap<Digest, BlobSource>,
    /// Facts about the plan that are not in the plan itself.
    pub info: DraftInfo,
}

impl Bundle {
    /// Total size of all files in bytes.
    pub fn bytes(&self) -> u64 {
        self.plan.files.iter().map(|file| file.size).sum()
    }
}

/// The source of a blob's bytes.
#[derive(Clone, Debug)]
pub enum BlobSource {
    /// A piece of a file on this machine.
    File {
        /// The file to read the bytes from.
        path: PathBuf,
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes, at most [`PIECE_BYTES`].
        len: u64,
        /// The file's modification time when it was hashed, if known.
        modified: Option<SystemTime>,
    },
    /// Bytes that are already in memory.
    Bytes(Arc<[u8]>),
}

impl BlobSource {
    /// Size of the blob in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::File { len, .. } => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Reads the bytes. A small blob is checked against `digest`; for a large one only the file's
    /// modification time is checked, since the host hashes what it receives.
    pub fn read(&self, digest: &Digest) -> Result<Vec<u8>, BundleError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.to_vec()),
            Self::File { path, offset, len, modified } => {
                let unreadable = |source| BundleError::Unreadable { path: path.clone(), source };
                let mut file = open_to_send(path).map_err(unreadable)?;
                file.seek(SeekFrom::Start(*offset)).map_err(unreadable)?;
                let mut bytes = Vec::with_capacity(usize::try_from(*len).unwrap_or(0));
                (&mut file).take(*len).read_to_end(&mut bytes).map_err(unreadable)?;
                let unchanged = match modified {
                    Some(known) if *len > REHASH_MAX_BYTES => {
                        let now = file.metadata().and_then(|meta| meta.modified());
                        bytes.len() as u64 == *len && now.is_ok_and(|now| now == *known)
                    }
                    _ => Digest::sha256(&bytes) == *digest,
                };
                if unchanged { Ok(bytes) } else { Err(BundleError::Changed { path: path.clone() }) }
            }
        }
    }
}

/// The digests of a file, with the size and time that they are valid for.
#[derive(Clone, Debug)]
struct FileDigests {
    size: u64,
    modified: Option<SystemTime>,
    digest: Digest,
    blobs: Vec<Digest>,
}

/// Makes bundles. The plans of a run share it, so that each file is hashed once.
#[derive(Debug)]
pub struct Packer {
    limit: u64,
    known: HashMap<PathBuf, FileDigests>,
}

impl Packer {
    /// A packer with a limit on the bytes of one bundle's files.
    pub fn new(limit: u64) -> Self {
        Self { limit, known: HashMap::new() }
    }

    /// A packer that has hashed these files already; [`Packer::pack`] reports those that cannot be
    /// read. Blocks.
    pub fn ahead(limit: u64, paths: &[PathBuf]) -> Self {
        let mut packer = Self::new(limit);
        for path in paths {
            let _ = packer.hash(path);
        }
        packer
    }

    /// Hashes the draft's files and adds them to its plan.
    pub fn pack(&mut self, draft: impl Borrow<Draft>) -> Result<Bundle, BundleError> {
        let Draft { plan, files, info } = draft.borrow();
        self.check_size(files)?;
        let (mut plan, info) = (plan.clone(), info.clone());
        let mut blobs = BTreeMap::new();
        for file in files {
            if !valid_relative_path(&file.path) {
                return Err(BundleError::BadPath { path: file.path.clone() });
            }
            let input = self.add(file, &mut blobs)?;
            match plan.files.iter().find(|other| other.path == input.path) {
                None => plan.files.push(input),
                Some(other) if other.digest == input.digest => {}
                Some(_) => return Err(BundleError::Twice { path: file.path.clone() }),
            }
        }
        Ok(Bundle { plan, blobs, info })
    }

    /// Drops all digests: a file rewritten within one tick of the file system's clock can keep its
    /// size and time.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// Makes an input of the run's next plan from a file that a job built and that was fetched.
    pub fn built(
        &mut self,
        path: &str,
        local: &Path,
        blobs: &mut BTreeMap<Digest, BlobSource>,
    ) -> Result<InputFile, BundleError> {
        self.add(&BundleFile::copy(path, local), blobs)
    }

    fn check_size(&self, files: &[BundleFile]) -> Result<(), BundleError> {
        let mut sizes = Vec::with_capacity(files.len());
        for file in files {
            let bytes = match &file.content {
                JobFileContent::Bytes(bytes) => bytes.len() as u64,
                JobFileContent::Local(path) => {
                    let unreadable =
                        |source| BundleError::Unreadable { path: path.clone(), source };
                    if agent_files::project().is_some() {
                        open_to_send(path).map_err(unreadable)?;
                    }
                    let metadata = std::fs::metadata(path).map_err(unreadable)?;
                    if !metadata.is_file() {
                        return Err(BundleError::NotAFile { path: path.clone() });
                    }
                    metadata.len()
                }
            };
            sizes.push((file.path.clone(), bytes));
        }
        let total = sizes.iter().map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        if total <= self.limit {
            return Ok(());
        }
        sizes.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        sizes.truncate(5);
        Err(BundleError::TooBig { total, limit: self.limit, biggest: sizes })
    }

    fn add(
        &mut self,
        file: &BundleFile,
        blobs: &mut BTreeMap<Digest, BlobSource>,
    ) -> Result<InputFile, BundleError> {
        let hashed = match &file.content {
            JobFileContent::Bytes(bytes) => {
                let pieces: Vec<&[u8]> = pieces(bytes);
                let names: Vec<Digest> = pieces.iter().map(|piece| Digest::sha256(piece)).collect();
                for (name, piece) in names.iter().zip(&pieces) {
                    blobs.insert(name.clone(), BlobSource::Bytes(Arc::from(*piece)));
                }
                let size = bytes.len() as u64;
                FileDigests { size, modified: None, digest: Digest::sha256(bytes), blobs: names }
            }
            JobFileContent::Local(path) => {
                let hashed = self.hash(path)?;
                let mut offset = 0;
                for name in &hashed.blobs {
                    let len = (hashed.size - offset).min(PIECE_BYTES);
                    let (path, modified) = (path.clone(), hashed.modified);
                    let source = BlobSource::File { path, offset, len, modified };
                    blobs.insert(name.clone(), source);
                    offset += len;
                }
                hashed
            }
        };
        Ok(InputFile {
            path: file.path.clone(),
            size: hashed.size,
            digest: hashed.digest,
            blobs: hashed.blobs,
            piece_bytes: PIECE_BYTES,
            executable: file.executable,
        })
    }

    fn hash(&mut self, path: &Path) -> Result<FileDigests, BundleError> {
        let unreadable = |source| BundleError::Unreadable { path: path.to_owned(), source };
        let mut file = open_to_send(path).map_err(unreadable)?;
        let before = file.metadata().map_err(unreadable)?;
        let modified = before.modified().ok();
        if let Some(known) = self.known.get(path)
            && known.size == before.len()
            && known.modified == modified
            && modified.is_some()
        {
            return Ok(known.clone());
        }
        let (size, digest, blobs) = hash_pieces(&mut file, before.len()).map_err(unreadable)?;
        if size != before.len() {
            return Err(BundleError::Changed { path: path.to_owned() });
        }
        let hashed = FileDigests { size, modified, digest, blobs };
        self.known.insert(path.to_owned(), hashed.clone());
        Ok(hashed)
    }
}

impl Default for Packer {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_BYTES)
    }
}

/// Opens a file that is sent to a host.
///
/// # Errors
/// I/O errors. For a command of an agent: the file is in none of its folders, a link leads to it,
/// or it is a private one.
fn open_to_send(path: &Path) -> io::Result<File> {
    if agent_files::inner(path).is_some_and(|inner| is_private(&inner)) {
        return Err(io::Error::other("it looks like a private file"));
    }
    agent_files::open(path)
}

/// The size, digest and piece digests of a file; `len` is its expected size. Reading, hashing the
/// pieces and hashing the whole file run in parallel: each byte is read once and hashed twice.
fn hash_pieces(file: &mut File, len: u64) -> io::Result<(u64, Digest, Vec<Digest>)> {
    let capacity = usize::try_from(len).unwrap_or(PIECE_LEN).min(PIECE_LEN);
    let mut next_piece = || {
        let mut piece = Vec::with_capacity(capacity);
        file.take(PIECE_BYTES).read_to_end(&mut piece).map(|_| piece)
    };
    let first = next_piece()?;
    if first.len() < PIECE_LEN {
        let digest = Digest::sha256(&first);
        return Ok((first.len() as u64, digest.clone(), vec![digest]));
    }
    std::thread::scope(|threads| {
        let (to_file_hasher, file_hasher) = mpsc::sync_channel::<Arc<Vec<u8>>>(MAX_QUEUED_PIECES);
        let (to_piece_hasher, piece_hasher) = mpsc::sync_channel::<Arc<Vec<u8>>>(MAX_QUEUED_PIECES);
        let file_hasher = std::thread::Builder::new().spawn_scoped(threads, move || {
            let mut sum = Sha256::new();
            file_hasher.iter().for_each(|piece| sum.update(&*piece));
            Digest::from_bytes(&sum.finalize().into())
        })?;
        let piece_hasher = std::thread::Builder::new().spawn_scoped(threads, move || {
            piece_hasher.iter().map(|piece| Digest::sha256(&piece)).collect()
        })?;
        let (mut size, mut piece) = (0, first);
        while !piece.is_empty() {
            size += piece.len() as u64;
            let shared = Arc::new(piece);
            to_file_hasher.send(shared.clone()).map_err(io::Error::other)?;
            to_piece_hasher.send(shared).map_err(io::Error::other)?;
            piece = next_piece()?;
        }
        drop((to_file_hasher, to_piece_hasher));
        let failed = |_| io::Error::other("a hashing thread has failed");
        Ok((size, file_hasher.join().map_err(failed)?, piece_hasher.join().map_err(failed)?))
    })
}

/// An empty file has one empty piece.
fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    if bytes.is_empty() { vec![bytes] } else { bytes.chunks(PIECE_LEN).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_protocol::plan::Limits;

    fn draft(files: Vec<BundleFile>) -> Draft {
        let plan = Plan {
            job: "r.1".into(),
            title: "test".into(),
            facts: None,
            files: Vec::new(),
            steps: Vec::new(),
            gpu: None,
            env: BTreeMap::new(),
            secrets: Vec::new(),
            origin: None,
            limits: Limits::default(),
        };
        Draft { plan, files, info: DraftInfo::default() }
    }

    #[test]
    fn a_big_file_is_cut_into_blobs_that_join_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("big");
        let bytes: Vec<u8> = (0..9_000_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let files = vec![
            BundleFile::copy("data/big.bin", &path),
            BundleFile::text("same", bytes.clone()),
            BundleFile::text("empty", ""),
        ];
        let bundle = Packer::default().pack(draft(files)).unwrap();
        let [big, same, empty] = bundle.plan.files.as_slice() else { panic!() };
        assert_eq!((big.size, big.blobs.len()), (9_000_000, 9));
        assert_eq!((&big.digest, &big.blobs), (&same.digest, &same.blobs));
        let joined: Vec<u8> =
            big.blobs.iter().flat_map(|name| bundle.blobs[name].read(name).unwrap()).collect();
        assert!(joined == bytes && big.digest == Digest::sha256(&bytes));
        assert_eq!((empty.size, empty.blobs.len()), (0, 1));
        assert_eq!(empty.digest, empty.blobs[0]);
    }

    #[test]
    fn a_single_piece_has_the_files_own_digest() {
        let bundle = Packer::default().pack(draft(vec![BundleFile::text("a", "abc")])).unwrap();
        assert_eq!(bundle.plan.files[0].blobs, [bundle.plan.files[0].digest.clone()]);
    }

    #[test]
    fn too_many_bytes_name_the_biggest_files() {
        let files = vec![BundleFile::text("small", "x"), BundleFile::text("big", vec![0; 4096])];
        let error = Packer::new(1000).pack(draft(files)).unwrap_err();
        let text = rgpu_model::error::Failure::from(error).to_string();
        assert!(text.contains("the biggest: big (0.0 MiB), small"), "{text}");
    }

    #[test]
    fn a_large_file_that_was_written_after_it_was_hashed_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, vec![1; 9 << 20]).unwrap();
        let bundle = Packer::default().pack(draft(vec![BundleFile::copy("f", &path)])).unwrap();
        let read = || bundle.blobs.iter().map(|(digest, source)| source.read(digest).map(drop));
        assert!(read().all(|blob| blob.is_ok()));
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() + std::time::Duration::from_secs(1)).unwrap();
        assert!(read().all(|blob| matches!(blob, Err(BundleError::Changed { .. }))));
    }

    #[test]
    fn a_file_that_changed_after_it_was_hashed_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "one").unwrap();
        let bundle = Packer::default().pack(draft(vec![BundleFile::copy("f", &path)])).unwrap();
        std::fs::write(&path, "two").unwrap();
        let (digest, source) = bundle.blobs.iter().next().unwrap();
        assert!(matches!(source.read(digest), Err(BundleError::Changed { .. })));
    }

    #[test]
    fn places_outside_the_job_and_clashes_are_refused() {
        let pack = |files| Packer::default().pack(draft(files)).unwrap_err();
        let error = pack(vec![BundleFile::text("../x", "")]);
        assert!(matches!(error, BundleError::BadPath { .. }));
        let error = pack(vec![BundleFile::text("x", "a"), BundleFile::text("x", "b")]);
        assert!(matches!(error, BundleError::Twice { .. }));
    }
}
