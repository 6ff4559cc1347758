//! Artifacts on their way down.
//!
//! Pieces are asked for ahead, so that a long link stays full. A file is written beside its place
//! under a name that holds its digest, so that a cut fetch goes on where it stopped; only a file
//! whose digest is right gets its own name. Hashing, writing and syncing go on in threads of their
//! own while the next pieces come.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rgpu_protocol::{BLOB_BYTES, Digest, FromAgent, PIECE_BYTES, ToAgent};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::client::{Incoming, Session, unasked};
use super::upload::{Progress, Transfer, WIDE_RTT};
use super::{RemoteError, limits};

/// Bytes asked for and not yet come; on a long link, where the way of a request would else be waited
/// for, and the stream's window keeps them from piling up here.
const AHEAD_BYTES: u64 = 32 << 20;
const FAR_AHEAD_BYTES: u64 = 128 << 20;

/// Bytes that an agent on a long link begins to send before they are asked for.
pub(super) const UNASKED_BYTES: u64 = 32 << 20;

/// Pieces that have come and wait to be written, and those that wait to be hashed or copied: a little
/// more, so that none of the three waits for a moment in which another rests.
const UNWRITTEN: usize = 1;
const UNHASHED: usize = 4;

/// Bytes after which the disk begins to take what was written, so that little is left to wait for
/// at the end, and those after which it is waited for.
const WRITE_OUT_EVERY: u64 = 4 << 20;
const SYNC_EVERY: u64 = 16 << 20;

/// A file of a job, as its `artifact` event names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The job.
    pub job: String,
    /// Path in the job's folder.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// sha256.
    pub digest: Digest,
}

impl Session {
    /// Brings a file of a job to `dest`, whose folder must exist. May be repeated after a cut
    /// link: what has come is not asked for again.
    ///
    /// What comes goes into the empty file `copy` too. True: all of it is there; it is not when an
    /// earlier try has brought some, or that file cannot be written.
    ///
    /// The folder is not synced: do that once, after the last file.
    ///
    /// # Errors
    /// The link, a refusal, our disk; [`RemoteError::Damaged`] or [`RemoteError::Shorter`] when what
    /// came is not what was named, and then nothing is left behind.
    pub async fn fetch(
        &mut self,
        wanted: &Wanted,
        dest: &Path,
        copy: Option<File>,
        progress: Progress<'_>,
    ) -> Result<bool, RemoteError> {
        let mut part = Part::open(wanted, dest, copy)?;
        let brought = self.bring(wanted, &mut part, progress).await;
        // What is still to be written is waited for in any case: the next try goes on behind it.
        let written = part.written().await;
        if let (Err(RemoteError::Shorter { .. }), Ok(written)) = (&brought, &written) {
            // What is wrong must not be taken up again.
            let _ = fs::remove_file(&written.path);
        }
        brought?;
        let copied = written?.finish(wanted)?;
        progress(Transfer { done: wanted.size, total: wanted.size });
        Ok(copied)
    }

    /// Fills `part`.
    async fn bring(
        &mut self,
        wanted: &Wanted,
        part: &mut Part,
        progress: Progress<'_>,
    ) -> Result<(), RemoteError> {
        self.greeted().await?;
        let following = self.is_following(&wanted.job);
        let promised = if following { self.take_ahead(&wanted.path) } else { 0 };
        if part.len == 0
            && promised == 0
            && following
            && let Some(bytes) = self.take_inline(&wanted.path)
            && bytes.len() as u64 == wanted.size
        {
            part.add(bytes).await?;
        }
        let far = self.streams.round_trip() > WIDE_RTT;
        // Hashing begins with the first piece; on a long link requests are what counts.
        let piece = if far { BLOB_BYTES } else { PIECE_BYTES };
        let ahead = if far { FAR_AHEAD_BYTES } else { AHEAD_BYTES };
        let mut asked = part.len.max(promised);
        self.unsettled = true;
        while part.len < wanted.size {
            progress(Transfer { done: part.len, total: wanted.size });
            while asked < wanted.size && asked < part.len + ahead {
                let len = piece.min(wanted.size - asked);
                let (job, path) = (wanted.job.clone(), wanted.path.clone());
                let request = ToAgent::Fetch { job, path, offset: asked, len };
                self.talk.writer.message(&request)?;
                asked += len;
            }
            self.piece(wanted, part, piece).await?;
        }
        self.unsettled = false;
        Ok(())
    }

    /// Waits for the next piece of `wanted`, of which pieces of `asked` bytes were asked for.
    async fn piece(
        &mut self,
        wanted: &Wanted,
        part: &mut Part,
        asked: u64,
    ) -> Result<(), RemoteError> {
        let doing = "fetching a file";
        loop {
            let incoming = match self.take_piece(&wanted.path, part.len) {
                Some(piece) => piece,
                None => timeout(limits::STALL, self.talk.incoming(doing))
                    .await
                    .map_err(|_| RemoteError::Silent { doing, limit: limits::STALL })??,
            };
            match incoming {
                Incoming::Piece { job, path, offset, mut bytes }
                    if job == wanted.job && path == wanted.path && offset <= part.len =>
                {
                    let end = offset + bytes.len() as u64;
                    // Those that come unasked are of the larger kind.
                    let whole = [asked, BLOB_BYTES].contains(&(bytes.len() as u64));
                    if end < wanted.size && !whole {
                        let (path, size) = (path.clone(), wanted.size);
                        return Err(RemoteError::Shorter { path, end, size });
                    }
                    // What an earlier try has left may come once more, unasked.
                    let known = part.len - offset;
                    if known > 0 && known >= bytes.len() as u64 {
                        continue;
                    }
                    bytes.drain(..known as usize);
                    if end > wanted.size {
                        return Err(RemoteError::Nonsense {
                            what: format!("{} bytes of `{path}` at {offset}", bytes.len()),
                        });
                    }
                    return part.add(bytes).await;
                }
                Incoming::Answer(FromAgent::Refused { request, code, text }) => {
                    return Err(RemoteError::Refused { request, code, text });
                }
                Incoming::Answer(FromAgent::Done { .. }) => {}
                Incoming::Answer(other) => return Err(unasked(&other)),
                other => self.put_aside(other),
            }
        }
    }
}

/// A file that is not whole yet: what comes is handed to a thread.
struct Part {
    to_writer: mpsc::Sender<Vec<u8>>,
    writer: Option<JoinHandle<Result<Written, RemoteError>>>,
    len: u64,
}

/// What the thread has made of it.
struct Written {
    file: File,
    path: PathBuf,
    dest: PathBuf,
    hash: Sha256,
    copy: Option<File>,
}

impl Part {
    /// Takes up what an earlier try has left.
    fn open(wanted: &Wanted, dest: &Path, copy: Option<File>) -> Result<Self, RemoteError> {
        let name = dest.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let path = dest.with_file_name(format!(".{name}.{}.part", &wanted.digest.as_str()[..16]));
        let disk = |source| RemoteError::Disk { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(disk)?;
        let mut hash = Sha256::new();
        let mut len = 0;
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer).map_err(disk)? {
                0 => break,
                n => {
                    hash.update(&buffer[..n]);
                    len += n as u64;
                }
            }
        }
        if len > wanted.size {
            // Not ours, or of a defect of ours: begin again.
            file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(disk)?;
            (hash, len) = (Sha256::new(), 0);
        }
        let copy = copy.filter(|_| len == 0);
        let written = Written { file, path, dest: dest.to_owned(), hash, copy };
        let (to_writer, pieces) = mpsc::channel(UNWRITTEN);
        let writer = tokio::task::spawn_blocking(move || written.take(pieces));
        Ok(Self { to_writer, writer: Some(writer), len })
    }

    async fn add(&mut self, bytes: Vec<u8>) -> Result<(), RemoteError> {
        self.len += bytes.len() as u64;
        match self.to_writer.send(bytes).await {
            Ok(()) => Ok(()),
            // It ends early only when the disk fails, and says how.
            Err(_) => self.ended().await.map(|_| ()),
        }
    }

    /// Waits until all of it is written.
    async fn written(mut self) -> Result<Written, RemoteError> {
        // Dropping the way there tells the thread that nothing more comes.
        self.to_writer = mpsc::channel(1).0;
        self.ended().await
    }

    async fn ended(&mut self) -> Result<Written, RemoteError> {
        let failed = |why: String| RemoteError::Nonsense { what: format!("the writer: {why}") };
        match self.writer.take() {
            Some(writer) => writer.await.map_err(|error| failed(error.to_string()))?,
            None => Err(failed("it has failed".to_owned())),
        }
    }
}

impl Written {
    /// Writes, copies and hashes what comes, side by side. Blocks.
    fn take(mut self, mut pieces: mpsc::Receiver<Vec<u8>>) -> Result<Self, RemoteError> {
        let syncing = self.file.try_clone().map_err(|source| self.disk(source))?;
        let mut out = self.file.stream_position().map(Out::from).map_err(|e| self.disk(e))?;
        let (sync, asked) = std::sync::mpsc::channel::<()>();
        let (to_hash, written) = std::sync::mpsc::sync_channel::<Arc<Vec<u8>>>(UNHASHED);
        let (to_copy, copied) = std::sync::mpsc::sync_channel::<Arc<Vec<u8>>>(UNHASHED);
        let mut hash = self.hash.clone();
        let copy = self.copy.take();
        (self.hash, self.copy) = std::thread::scope(|threads| {
            // Where no thread is to be had all of it is synced at the end, and nothing is copied.
            let thread = || std::thread::Builder::new();
            let _ = thread().spawn_scoped(threads, move || {
                while asked.recv().is_ok() {
                    // One that fails is told of by the last one, which counts.
                    let _ = syncing.sync_data();
                }
            });
            let copying = copy.and_then(|copy| {
                thread().spawn_scoped(threads, move || filled(copy, &copied)).ok()
            });
            let hashing = thread().spawn_scoped(threads, move || {
                written.iter().for_each(|bytes| hash.update(&*bytes));
                hash
            });
            let hashing = hashing.map_err(|source| self.disk(source))?;
            let mut synced = out.written;
            while let Some(bytes) = pieces.blocking_recv() {
                let bytes = Arc::new(bytes);
                // The one takes all that comes, the other for as long as it can.
                let _ = to_hash.send(bytes.clone());
                if copying.is_some() {
                    let _ = to_copy.send(bytes.clone());
                }
                out.write(&self.file, &bytes).map_err(|source| self.disk(source))?;
                if out.written - synced >= SYNC_EVERY {
                    synced = out.written;
                    let _ = sync.send(());
                }
            }
            drop((sync, to_hash, to_copy));
            let failed = |_| self.disk(io::Error::other("a hashing thread has failed"));
            let hash = hashing.join().map_err(failed)?;
            let copy = copying.and_then(|copying| copying.join().ok().flatten());
            Ok::<_, RemoteError>((hash, copy))
        })?;
        Ok(self)
    }

    fn disk(&self, source: io::Error) -> RemoteError {
        RemoteError::Disk { path: self.path.clone(), source }
    }

    /// Gives the file its name; whether the copy is whole.
    fn finish(self, wanted: &Wanted) -> Result<bool, RemoteError> {
        let got = Digest::from_bytes(&self.hash.clone().finalize().into());
        if got != wanted.digest {
            // What is wrong must not be taken up again.
            let _ = fs::remove_file(&self.path);
            return Err(RemoteError::Damaged {
                path: wanted.path.clone(),
                want: wanted.digest.clone(),
                got,
            });
        }
        self.file
            .sync_all()
            .and_then(|()| fs::rename(&self.path, &self.dest))
            .map_err(|source| self.disk(source))?;
        Ok(self.copy.is_some())
    }
}

/// How far a file was written, and how much of that the disk has begun to take.
struct Out {
    written: u64,
    out: u64,
}

impl From<u64> for Out {
    fn from(position: u64) -> Self {
        Self { written: position, out: position }
    }
}

impl Out {
    fn write(&mut self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        if self.written - self.out >= WRITE_OUT_EVERY {
            write_out(file, self.out, self.written - self.out);
            self.out = self.written;
        }
        Ok(())
    }
}

/// The empty file `copy`, filled with all that comes; `None` when it takes not all of it.
fn filled(copy: File, pieces: &std::sync::mpsc::Receiver<Arc<Vec<u8>>>) -> Option<File> {
    let mut out = Out::from(0);
    pieces.iter().try_for_each(|bytes| out.write(&copy, &bytes)).ok().map(|()| copy)
}

/// Has the disk begin to take what was just written at `from`, and waits for nothing: a sync at the
/// end, or giving the name of another file to this one, would else begin there.
///
/// Advice that bytes are not needed does that, and drops none that are still to be written
/// (`posix_fadvise(2)`, notes on `POSIX_FADV_DONTNEED`); where there is no such call it is done without.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
fn write_out(file: &File, from: u64, len: u64) {
    #[cfg(target_os = "linux")]
    if let Some(len) = std::num::NonZero::new(len) {
        let _ = rustix::fs::fadvise(file, from, Some(len), rustix::fs::Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fake::{self, FakeHost};
    use super::super::{Follow, Patience};
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

    async fn connect(host: &FakeHost) -> Follow {
        let patience = Patience {
            first: Duration::from_millis(1),
            longest: Duration::from_millis(1),
            total: Duration::from_secs(20),
        };
        Follow::connect(Arc::new(host.clone()), fake::options()).await.unwrap().patience(patience)
    }

    fn wanted(path: &str, size: usize, digest: Digest) -> Wanted {
        Wanted { job: "run.1".into(), path: path.into(), size: size as u64, digest }
    }

    #[tokio::test]
    async fn a_file_of_many_pieces_arrives_over_links_that_are_cut() {
        let host = FakeHost::new(vec![]);
        let big = bytes(3 * BLOB_BYTES as usize + 17);
        let digest = host.artifact("raw/big", big.clone());
        host.cut_after(6 << 20);
        let folder = tempfile::tempdir().unwrap();
        let dest = folder.path().join("big");
        let mut follow = connect(&host).await;
        follow.fetch(&wanted("raw/big", big.len(), digest), &dest, None, &|_| ()).await.unwrap();
        assert!(fs::read(&dest).unwrap() == big);
        assert_eq!(host.links(), 3);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_file_with_a_wrong_digest_leaves_nothing_behind() {
        let host = FakeHost::new(vec![]);
        host.artifact("raw/x", bytes(1000));
        let folder = tempfile::tempdir().unwrap();
        let wanted = wanted("raw/x", 1000, fake::digest(b"other"));
        let dest = folder.path().join("x");
        let error = connect(&host).await.fetch(&wanted, &dest, None, &|_| ()).await.unwrap_err();
        assert!(matches!(error, RemoteError::Damaged { .. }), "{error:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_file_that_has_become_shorter_leaves_nothing_behind() {
        let size = 2 * PIECE_BYTES as usize;
        for left in [size - 10, PIECE_BYTES as usize] {
            let host = FakeHost::new(vec![]);
            let digest = host.artifact("raw/x", bytes(left));
            let folder = tempfile::tempdir().unwrap();
            let (wanted, dest) = (wanted("raw/x", size, digest), folder.path().join("x"));
            let error =
                connect(&host).await.fetch(&wanted, &dest, None, &|_| ()).await.unwrap_err();
            let RemoteError::Shorter { end, .. } = &error else { panic!("{error:?}") };
            assert_eq!(*end, left as u64);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[tokio::test]
    async fn an_empty_file_needs_no_request() {
        let host = FakeHost::new(vec![]);
        let folder = tempfile::tempdir().unwrap();
        let dest = folder.path().join("empty");
        let wanted = wanted("raw/empty", 0, fake::digest(b""));
        connect(&host).await.fetch(&wanted, &dest, None, &|_| ()).await.unwrap();
        assert_eq!(fs::read(dest).unwrap(), b"");
    }
}
