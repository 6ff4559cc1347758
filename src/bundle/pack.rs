//! Draft → plan with digests, and where the bytes of each blob are.

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
use crate::tool::{BundleFile, Content, Draft, Expectations};

/// Bytes that all files together may have, unless told otherwise.
pub const DEFAULT_MAX_BYTES: u64 = 2 << 30;

/// Blobs of a file up to this size are hashed once more when they are read to be sent.
const REHASH_MAX_BYTES: u64 = 64 << 10;

/// [`PIECE_BYTES`] as a length.
const PIECE: usize = PIECE_BYTES as usize;

/// Pieces of a file that were read and wait to be hashed.
const MAX_QUEUED_PIECES: usize = 4;

/// A plan and the blobs that its host may lack.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The plan, its files with their digests.
    pub plan: Plan,
    /// Where the bytes of each blob are.
    pub blobs: BTreeMap<Digest, BlobSource>,
    /// What the laptop may expect.
    pub expect: Expectations,
}

impl Bundle {
    /// Plain bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.plan.files.iter().map(|file| file.size).sum()
    }
}

/// Where the bytes of a blob are.
#[derive(Clone, Debug)]
pub enum BlobSource {
    /// A piece of a file of this machine.
    File {
        /// The file.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// When it was last written, as far as that is known.
        modified: Option<SystemTime>,
    },
    /// In memory.
    Bytes(Arc<[u8]>),
}

impl BlobSource {
    /// Plain bytes of the blob.
    pub fn size(&self) -> u64 {
        match self {
            Self::File { len, .. } => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// The bytes. Of a small blob they are checked against `digest`, of a large one it is looked
    /// whether its file was written since: the host hashes what comes, and takes nothing else.
    ///
    /// # Errors
    /// [`BundleError`] when the file cannot be read, or is no longer what it was.
    pub fn read(&self, digest: &Digest) -> Result<Vec<u8>, BundleError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.to_vec()),
            Self::File { path, offset, len, modified } => {
                let unreadable = |source| BundleError::Unreadable { path: path.clone(), source };
                let mut file = File::open(path).map_err(unreadable)?;
                file.seek(SeekFrom::Start(*offset)).map_err(unreadable)?;
                let mut bytes = Vec::with_capacity(usize::try_from(*len).unwrap_or(0));
                (&mut file).take(*len).read_to_end(&mut bytes).map_err(unreadable)?;
                let same = match modified {
                    Some(known) if *len > REHASH_MAX_BYTES => {
                        let now = file.metadata().and_then(|meta| meta.modified());
                        bytes.len() as u64 == *len && now.is_ok_and(|now| now == *known)
                    }
                    _ => sha256(&bytes) == *digest,
                };
                match same {
                    true => Ok(bytes),
                    false => Err(BundleError::Changed { path: path.clone() }),
                }
            }
        }
    }
}

/// The digests of a file as it was.
#[derive(Clone, Debug)]
struct FileDigests {
    size: u64,
    modified: Option<SystemTime>,
    digest: Digest,
    blobs: Vec<Digest>,
}

/// Makes bundles; the plans of one run share it, so that each file is hashed once.
#[derive(Debug)]
pub struct Packer {
    limit: u64,
    known: HashMap<PathBuf, FileDigests>,
}

impl Packer {
    /// With at most `limit` bytes of files in a bundle.
    pub fn new(limit: u64) -> Self {
        Self { limit, known: HashMap::new() }
    }

    /// The same, with these files hashed already, where they can be read: [`Packer::pack`] tells of
    /// those that cannot. Blocks.
    pub fn ahead(limit: u64, paths: &[PathBuf]) -> Self {
        let mut this = Self::new(limit);
        for path in paths {
            let _ = this.hash(path);
        }
        this
    }

    /// Hashes the draft's files.
    ///
    /// # Errors
    /// [`BundleError`] for files that cannot be read, or are too many bytes.
    pub fn pack(&mut self, draft: impl Borrow<Draft>) -> Result<Bundle, BundleError> {
        let Draft { plan, files, expect } = draft.borrow();
        self.check_size(files)?;
        let (mut plan, expect) = (plan.clone(), expect.clone());
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
        Ok(Bundle { plan, blobs, expect })
    }

    /// Forgets what was hashed: a file can be written anew within one tick of its file system's clock,
    /// and then neither its size nor its time tells.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// A file that a job of this run built and this machine has fetched, as an input of the run's
    /// next plan.
    ///
    /// # Errors
    /// [`BundleError`] for a file that cannot be read.
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
                Content::Bytes(bytes) => bytes.len() as u64,
                Content::Local(path) => {
                    let unreadable =
                        |source| BundleError::Unreadable { path: path.clone(), source };
                    let found = std::fs::metadata(path).map_err(unreadable)?;
                    if !found.is_file() {
                        return Err(BundleError::NotAFile { path: path.clone() });
                    }
                    found.len()
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
            Content::Bytes(bytes) => {
                let pieces: Vec<&[u8]> = pieces(bytes);
                let names: Vec<Digest> = pieces.iter().map(|piece| sha256(piece)).collect();
                for (name, piece) in names.iter().zip(&pieces) {
                    blobs.insert(name.clone(), BlobSource::Bytes(Arc::from(*piece)));
                }
                let size = bytes.len() as u64;
                FileDigests { size, modified: None, digest: sha256(bytes), blobs: names }
            }
            Content::Local(path) => {
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
        let mut file = File::open(path).map_err(unreadable)?;
        let before = file.metadata().map_err(unreadable)?;
        let modified = before.modified().ok();
        if let Some(known) = self.known.get(path)
            && known.size == before.len()
            && known.modified == modified
            && modified.is_some()
        {
            return Ok(known.clone());
        }
        let (size, digest, blobs) = sum(&mut file, before.len()).map_err(unreadable)?;
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

/// The size of a file, which should be `len`, its digest and those of its pieces. Reading, hashing
/// the pieces and hashing the whole go on side by side: every byte is read once and hashed twice.
fn sum(file: &mut File, len: u64) -> io::Result<(u64, Digest, Vec<Digest>)> {
    let room = usize::try_from(len).unwrap_or(PIECE).min(PIECE);
    let mut next_piece = || {
        let mut piece = Vec::with_capacity(room);
        file.take(PIECE_BYTES).read_to_end(&mut piece).map(|_| piece)
    };
    let first = next_piece()?;
    if first.len() < PIECE {
        let digest = sha256(&first);
        return Ok((first.len() as u64, digest.clone(), vec![digest]));
    }
    std::thread::scope(|threads| {
        let (to_whole, whole) = mpsc::sync_channel::<Arc<Vec<u8>>>(MAX_QUEUED_PIECES);
        let (to_single, single) = mpsc::sync_channel::<Arc<Vec<u8>>>(MAX_QUEUED_PIECES);
        let whole = std::thread::Builder::new().spawn_scoped(threads, move || {
            let mut sum = Sha256::new();
            whole.iter().for_each(|piece| sum.update(&*piece));
            Digest::from_bytes(&sum.finalize().into())
        })?;
        let single = std::thread::Builder::new()
            .spawn_scoped(threads, move || single.iter().map(|piece| sha256(&piece)).collect())?;
        let (mut size, mut piece) = (0, first);
        while !piece.is_empty() {
            size += piece.len() as u64;
            let shared = Arc::new(piece);
            to_whole.send(shared.clone()).map_err(io::Error::other)?;
            to_single.send(shared).map_err(io::Error::other)?;
            piece = next_piece()?;
        }
        drop((to_whole, to_single));
        let failed = |_| io::Error::other("a hashing thread has failed");
        Ok((size, whole.join().map_err(failed)?, single.join().map_err(failed)?))
    })
}

/// An empty file is one empty piece.
fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    match bytes.is_empty() {
        true => vec![bytes],
        false => bytes.chunks(PIECE).collect(),
    }
}

fn sha256(bytes: &[u8]) -> Digest {
    Digest::from_bytes(&Sha256::digest(bytes).into())
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
        Draft { plan, files, expect: Expectations::default() }
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
        assert!(joined == bytes && big.digest == sha256(&bytes));
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
        let text = crate::error::Failure::from(error).to_string();
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
