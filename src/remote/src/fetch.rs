//! Downloads artifacts of a job from the agent into files of the run folder.
//!
//! Pieces are requested ahead of the answers, so that a link with a long round trip stays busy. A
//! download that was cut resumes after the bytes that the partial file already has.

use std::fs::File;
use std::path::{Path, PathBuf};

use rgpu_protocol::{BLOB_BYTES, Digest, EventBody, FromAgent, PIECE_BYTES, ToAgent};
use tokio::time::timeout;

use super::client::{IncomingMessage, Session, unexpected_answer};
use super::partial_file::PartialArtifact;
use super::upload::{PARALLEL_MIN_ROUND_TRIP, ProgressSink, TransferProgress};
use super::{RemoteError, limits};
use rgpu_model::beneath::Folder;

/// Bytes that may be requested and not yet received. A link with a long round trip gets more, so
/// that the agent never waits for a request. The stream's flow control bounds the bytes that pile
/// up here.
const MAX_REQUESTED_BYTES: u64 = 32 << 20;
const MAX_REQUESTED_BYTES_LONG_LINK: u64 = 128 << 20;

/// Bytes that an agent sends before they are requested, if the round trip is long.
pub(super) const PREFETCH_BYTES: u64 = 32 << 20;

/// A file of a job, as its `artifact` event announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// The job that made the file.
    pub job: String,
    /// Its path in the job's folder.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// The sha256 of the whole file, from the job's events.
    pub digest: Digest,
    /// The digest of its pieces' digests. If the host gives it, it is checked in place of `digest`.
    pub composite: Option<Digest>,
}

impl RemoteFile {
    /// The file that an event of `job` announces; `None`: the event is not an artifact.
    pub fn from_event(job: &str, body: &EventBody) -> Option<Self> {
        let EventBody::Artifact { path, size, digest, composite, .. } = body else { return None };
        let (path, digest, composite) = (path.clone(), digest.clone(), composite.clone());
        Some(Self { job: job.to_owned(), path, size: *size, digest, composite })
    }
}

/// The result of a successful fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchOutcome {
    /// Whether the copy is complete. It is not if an earlier try fetched a part of the file, if it
    /// could not be written, or if none was requested.
    pub copied: bool,
    /// Whether the file was synced to disk. A file that arrived faster than a disk writes is not;
    /// the host keeps its own until it is.
    pub synced: bool,
}

/// Opens the folder of a file that the caller names by its path. Returns it with the file's name.
pub(super) fn open_parent(dest: &Path) -> Result<(Folder, PathBuf), RemoteError> {
    let parent = dest.parent().unwrap_or(Path::new(""));
    let folder = Folder::open(parent)
        .map_err(|source| RemoteError::Disk { path: parent.to_owned(), source })?;
    Ok((folder, dest.file_name().map(PathBuf::from).unwrap_or_default()))
}

impl Session {
    /// Downloads a file of a job to `dest`, whose folder must exist, and to the empty file `copy`.
    /// Resumes an earlier try.
    ///
    /// # Errors
    /// If the link, the agent or our disk fails. [`RemoteError::Damaged`] or
    /// [`RemoteError::Shorter`] if the bytes do not match the announcement; then no file is left.
    pub async fn fetch(
        &mut self,
        file: &RemoteFile,
        dest: &Path,
        copy: Option<File>,
        progress: ProgressSink<'_>,
    ) -> Result<FetchOutcome, RemoteError> {
        let (folder, name) = open_parent(dest)?;
        self.fetch_into(file, (&folder, &name), copy, progress).await
    }

    /// As [`Session::fetch`], to a path below an open folder.
    pub(crate) async fn fetch_into(
        &mut self,
        file: &RemoteFile,
        dest: (&Folder, &Path),
        copy: Option<File>,
        progress: ProgressSink<'_>,
    ) -> Result<FetchOutcome, RemoteError> {
        let mut part = PartialArtifact::open(file, dest, copy)?;
        let received = self.receive_pieces(file, &mut part, progress).await;
        // Wait for queued writes even after an error: the next try resumes from them.
        let written = part.written().await;
        let fetched = match (received, written) {
            (Ok(()), written) => written?.finish(file)?,
            (Err(error @ RemoteError::Shorter { .. }), Ok(written)) => {
                written.discard();
                return Err(error);
            }
            (Err(error), _) => return Err(error),
        };
        progress(TransferProgress { done: file.size, total: file.size });
        Ok(fetched)
    }

    /// Requests and receives pieces until `part` is complete.
    async fn receive_pieces(
        &mut self,
        file: &RemoteFile,
        part: &mut PartialArtifact,
        progress: ProgressSink<'_>,
    ) -> Result<(), RemoteError> {
        self.wait_for_hello().await?;
        let is_followed = self.backlog.job() == Some(&*file.job);
        let announced = if is_followed { self.backlog.take_announced_size(&file.path) } else { 0 };
        if part.len == 0
            && announced == 0
            && is_followed
            && let Some(bytes) = self.backlog.take_inline(&file.path)
            && bytes.len() as u64 == file.size
        {
            part.add(bytes).await?;
        }
        let is_long_link = self.streams.round_trip() > PARALLEL_MIN_ROUND_TRIP;
        // Small pieces let hashing start early. With a long round trip, few requests matter more.
        let piece_bytes = if is_long_link { BLOB_BYTES } else { PIECE_BYTES };
        let max_requested =
            if is_long_link { MAX_REQUESTED_BYTES_LONG_LINK } else { MAX_REQUESTED_BYTES };
        let mut requested = part.len.max(announced);
        self.is_answer_pending = true;
        while part.len < file.size {
            progress(TransferProgress { done: part.len, total: file.size });
            while requested < file.size && requested < part.len + max_requested {
                let len = piece_bytes.min(file.size - requested);
                let (job, path) = (file.job.clone(), file.path.clone());
                let request = ToAgent::Fetch { job, path, offset: requested, len };
                self.conversation.writer.message(&request)?;
                requested += len;
            }
            self.receive_piece(file, part, piece_bytes).await?;
        }
        self.is_answer_pending = false;
        Ok(())
    }

    /// Waits for the next piece of `file`; each request asks for `piece_bytes` bytes.
    async fn receive_piece(
        &mut self,
        file: &RemoteFile,
        part: &mut PartialArtifact,
        piece_bytes: u64,
    ) -> Result<(), RemoteError> {
        let doing = "fetching a file";
        loop {
            let incoming = match self.backlog.take_piece(&file.path, part.len) {
                Some(piece) => piece,
                None => timeout(limits::STALL_TIMEOUT, self.conversation.incoming(doing))
                    .await
                    .map_err(|_| RemoteError::Silent {
                    doing,
                    limit: limits::STALL_TIMEOUT,
                })??,
            };
            match incoming {
                IncomingMessage::Piece { job, path, offset, mut bytes }
                    if job == file.job && path == file.path && offset <= part.len =>
                {
                    let end = offset + bytes.len() as u64;
                    // Prefetched pieces have the size of a blob.
                    let full_size = [piece_bytes, BLOB_BYTES].contains(&(bytes.len() as u64));
                    if end < file.size && !full_size {
                        return Err(RemoteError::Shorter {
                            path: path.clone(),
                            fetched_bytes: end,
                            recorded_bytes: file.size,
                        });
                    }
                    // A prefetched piece may begin before the end of what an earlier try left here.
                    let known = part.len - offset;
                    if known > 0 && known >= bytes.len() as u64 {
                        continue;
                    }
                    bytes.drain(..known as usize);
                    if end > file.size {
                        return Err(RemoteError::ProtocolViolation {
                            what: format!("{} bytes of `{path}` at {offset}", bytes.len()),
                        });
                    }
                    return part.add(bytes).await;
                }
                IncomingMessage::Answer(FromAgent::Refused { request, code, text }) => {
                    return Err(RemoteError::Refused { request, code, text });
                }
                IncomingMessage::Answer(FromAgent::Done { .. }) => {}
                IncomingMessage::Answer(other) => return Err(unexpected_answer(&other)),
                other => self.backlog.put(other)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rgpu_protocol::digest::sha256;

    use super::super::fake::{self, InProcessAgent};

    use super::*;

    /// Bytes that hardly compress.
    fn bytes(n: usize) -> Vec<u8> {
        let mut x = 1_u32;
        (0..n)
            .map(|_| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (x >> 24) as u8
            })
            .collect()
    }

    fn wanted(path: &str, size: usize, digest: Digest) -> RemoteFile {
        let (job, path) = ("run.1".into(), path.into());
        RemoteFile { job, path, size: size as u64, digest, composite: None }
    }

    /// The same file as a host announces it that also names the composite digest.
    fn by_pieces(path: &str, bytes: &[u8]) -> RemoteFile {
        let pieces: Vec<_> = bytes.chunks(PIECE_BYTES as usize).map(sha256).collect();
        let composite = Some(Digest::composite(&pieces));
        RemoteFile { composite, ..wanted(path, bytes.len(), Digest::sha256(bytes)) }
    }

    #[tokio::test]
    async fn a_file_of_many_pieces_arrives_over_links_that_are_cut() {
        let big = bytes(3 * BLOB_BYTES as usize + 17);
        let composite = by_pieces("raw/big", &big);
        for wanted in [RemoteFile { composite: None, ..composite.clone() }, composite] {
            let host = InProcessAgent::new(vec![]);
            host.artifact("raw/big", big.clone());
            host.cut_after(6 << 20);
            let folder = tempfile::tempdir().unwrap();
            let dest = folder.path().join("big");
            let mut link = fake::connect(&host).await;
            let fetched = link.fetch(&wanted, &dest, None, &|_| ()).await.unwrap();
            assert!(fs::read(&dest).unwrap() == big);
            assert_eq!(fetched, FetchOutcome { copied: false, synced: true });
            assert_eq!(host.links(), 3);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[tokio::test]
    async fn an_earlier_try_is_resumed_after_its_last_complete_piece() {
        let big = bytes(3 * PIECE_BYTES as usize + 17);
        let host = InProcessAgent::new(vec![]);
        let digest = host.artifact("raw/big", big.clone());
        let wanted = by_pieces("raw/big", &big);
        let long = [&*big, &[7; 100]].concat();
        // One piece and part of the next; the complete file; more than the complete file.
        for left in [&big[..PIECE_BYTES as usize + 5], &big, &long] {
            let folder = tempfile::tempdir().unwrap();
            let part = format!(".big.{}.part", &digest.as_str()[..16]);
            fs::write(folder.path().join(part), left).unwrap();
            let dest = folder.path().join("big");
            let begun = std::sync::Mutex::new(None);
            let progress = |t: TransferProgress| {
                begun.lock().unwrap().get_or_insert(t.done);
            };
            fake::connect(&host).await.fetch(&wanted, &dest, None, &progress).await.unwrap();
            assert!(fs::read(&dest).unwrap() == big);
            let had = match left.len() {
                n if n > big.len() => 0,
                n if n == big.len() => n as u64,
                _ => PIECE_BYTES,
            };
            assert_eq!(begun.into_inner().unwrap(), Some(had));
        }
    }

    #[tokio::test]
    async fn a_file_with_a_wrong_digest_leaves_nothing_behind() {
        let host = InProcessAgent::new(vec![]);
        host.artifact("raw/x", bytes(1000));
        let folder = tempfile::tempdir().unwrap();
        let whole = wanted("raw/x", 1000, Digest::sha256(b"other"));
        // The composite digest decides where the host names one.
        let pieces = by_pieces("raw/x", &[1; 1000]);
        let pieces = RemoteFile { digest: Digest::sha256(&bytes(1000)), ..pieces };
        for wanted in [whole, pieces] {
            let dest = folder.path().join("x");
            let mut link = fake::connect(&host).await;
            let error = link.fetch(&wanted, &dest, None, &|_| ()).await.unwrap_err();
            assert!(matches!(error, RemoteError::Damaged { .. }), "{error:?}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[tokio::test]
    async fn a_file_that_has_become_shorter_leaves_nothing_behind() {
        let size = 2 * PIECE_BYTES as usize;
        for left in [size - 10, PIECE_BYTES as usize] {
            let host = InProcessAgent::new(vec![]);
            let digest = host.artifact("raw/x", bytes(left));
            let folder = tempfile::tempdir().unwrap();
            let (wanted, dest) = (wanted("raw/x", size, digest), folder.path().join("x"));
            let error =
                fake::connect(&host).await.fetch(&wanted, &dest, None, &|_| ()).await.unwrap_err();
            let RemoteError::Shorter { fetched_bytes, .. } = &error else { panic!("{error:?}") };
            assert_eq!(*fetched_bytes, left as u64);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[tokio::test]
    async fn an_empty_file_needs_no_request() {
        let host = InProcessAgent::new(vec![]);
        let folder = tempfile::tempdir().unwrap();
        let dest = folder.path().join("empty");
        let wanted = wanted("raw/empty", 0, Digest::sha256(b""));
        fake::connect(&host).await.fetch(&wanted, &dest, None, &|_| ()).await.unwrap();
        assert_eq!(fs::read(dest).unwrap(), b"");
    }
}
