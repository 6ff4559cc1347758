//! A file on its way into a run folder: written beside its place under a name that holds its digest,
//! so that a cut fetch goes on where it stopped; only what is checked gets its own name. Hashing,
//! writing and copying go on in threads of their own while the next pieces come.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use rgpu_protocol::PIECE_BYTES;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::piece_digests::PieceDigests;
use super::{FetchOutcome, RemoteError, RemoteFile};

/// Pieces that have come and wait to be written, and those that wait to be copied: a little more, so
/// that neither waits for a moment in which the other rests.
const MAX_QUEUED_WRITES: usize = 1;
const MAX_QUEUED_COPIES: usize = 4;

/// Bytes after which the disk begins to take what was written, so that little is left to wait for
/// at the end.
const WRITE_OUT_BYTES: u64 = 4 << 20;

/// A file up to this size is waited for until the disk has it, however it came.
const ALWAYS_SYNCED_BYTES: u64 = 16 << 20;

/// Bytes a second that any disk keeps up with. What comes faster is not waited for, which would take
/// longer than it took to come: its host keeps it.
const SLOWEST_DISK_BYTES_PER_S: u64 = 256 << 20;

/// Whether so many bytes came no faster than a disk takes them.
fn kept_pace(bytes: u64, begun: Instant) -> bool {
    begun.elapsed().as_secs_f64() * SLOWEST_DISK_BYTES_PER_S as f64 >= bytes as f64
}

/// A file that is not whole yet: what comes is handed to a thread.
pub(super) struct PartialFile {
    to_writer: mpsc::Sender<Vec<u8>>,
    writer: Option<JoinHandle<Result<WrittenFile, RemoteError>>>,
    pub(super) len: u64,
}

/// What the thread has made of it.
pub(super) struct WrittenFile {
    file: File,
    path: PathBuf,
    dest: PathBuf,
    check: PieceDigests,
    /// Whether the disk is to be waited for.
    sync: bool,
    copy: Option<File>,
}

impl PartialFile {
    /// Takes up what an earlier try has left.
    ///
    /// # Errors
    /// Our disk.
    pub(super) fn open(
        wanted: &RemoteFile,
        dest: &Path,
        copy: Option<File>,
    ) -> Result<Self, RemoteError> {
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
        let (check, len) = take_up(&mut file, wanted).map_err(disk)?;
        let copy = copy.filter(|_| len == 0);
        let (dest, sync) = (dest.to_owned(), wanted.size <= ALWAYS_SYNCED_BYTES);
        let written = WrittenFile { file, path, dest, check, sync, copy };
        let (to_writer, pieces) = mpsc::channel(MAX_QUEUED_WRITES);
        let writer = tokio::task::spawn_blocking(move || written.take(pieces));
        Ok(Self { to_writer, writer: Some(writer), len })
    }

    /// Takes what comes next: whole pieces, but for the last of all.
    ///
    /// # Errors
    /// Our disk.
    pub(super) async fn add(&mut self, bytes: Vec<u8>) -> Result<(), RemoteError> {
        self.len += bytes.len() as u64;
        match self.to_writer.send(bytes).await {
            Ok(()) => Ok(()),
            // It ends early only when the disk fails, and says how.
            Err(_) => self.ended().await.map(|_| ()),
        }
    }

    /// Waits until all of it is written.
    ///
    /// # Errors
    /// Our disk.
    pub(super) async fn written(mut self) -> Result<WrittenFile, RemoteError> {
        // Dropping the way there tells the thread that nothing more comes.
        self.to_writer = mpsc::channel(1).0;
        self.ended().await
    }

    async fn ended(&mut self) -> Result<WrittenFile, RemoteError> {
        let failed = |why: String| RemoteError::Nonsense { what: format!("the writer: {why}") };
        match self.writer.take() {
            Some(writer) => writer.await.map_err(|error| failed(error.to_string()))?,
            None => Err(failed("it has failed".to_owned())),
        }
    }
}

/// Hashes what lies in `file`, and leaves it where it goes on. Of a piece that was cut nothing is
/// kept, nor of a file that is longer than what is wanted: not ours, or of a defect of ours.
fn take_up(file: &mut File, wanted: &RemoteFile) -> io::Result<(PieceDigests, u64)> {
    let there = file.metadata()?.len();
    let (mut check, mut len) = (PieceDigests::of(wanted), 0);
    let mut piece = Vec::new();
    while there <= wanted.size && (&mut *file).take(PIECE_BYTES).read_to_end(&mut piece)? > 0 {
        let end = len + piece.len() as u64;
        if piece.len() as u64 != PIECE_BYTES && end != wanted.size {
            break;
        }
        check.add(&piece);
        len = end;
        piece.clear();
    }
    // Only where there is something to cut off: ext4 takes a file that was made empty for one that is
    // written anew, and has the disk take all of it when it is closed (`auto_da_alloc` in `ext4(5)`).
    if there != len {
        file.set_len(len)?;
        file.seek(SeekFrom::Start(len))?;
    }
    Ok((check, len))
}

impl WrittenFile {
    /// Writes, copies and hashes what comes, side by side. Blocks.
    fn take(self, mut pieces: mpsc::Receiver<Vec<u8>>) -> Result<Self, RemoteError> {
        let Self { mut file, path, dest, check, sync, copy } = self;
        let disk = |source| RemoteError::Disk { path: path.clone(), source };
        let begun = Instant::now();
        let start = file.stream_position().map_err(disk)?;
        let mut out = WriteProgress::at(start, sync);
        let (check, copy) = std::thread::scope(|threads| {
            let (to_copy, copied) = sync_channel::<Arc<Vec<u8>>>(MAX_QUEUED_COPIES);
            // Where no thread is to be had nothing is copied.
            let copying = copy.and_then(|copy| {
                let fill = move || filled(copy, &copied, sync);
                std::thread::Builder::new().spawn_scoped(threads, fill).ok()
            });
            let mut checking = check.begin(threads).map_err(disk)?;
            while let Some(bytes) = pieces.blocking_recv() {
                let bytes = Arc::new(bytes);
                checking.add(&bytes);
                if copying.is_some() {
                    // For as long as it can.
                    let _ = to_copy.send(bytes.clone());
                }
                out.write(&file, &bytes).map_err(disk)?;
            }
            drop(to_copy);
            let check = checking.end().map_err(disk)?;
            Ok::<_, RemoteError>((check, copying.and_then(|copying| copying.join().ok().flatten())))
        })?;
        let sync = sync || kept_pace(out.written - start, begun);
        Ok(Self { file, path, dest, check, sync, copy })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`], our disk.
    pub(super) fn finish(self, wanted: &RemoteFile) -> Result<FetchOutcome, RemoteError> {
        let Self { file, path, dest, check, sync, copy } = self;
        if let Err(damaged) = check.end(wanted) {
            // What is wrong must not be taken up again.
            let _ = fs::remove_file(&path);
            return Err(damaged);
        }
        let kept = if sync { file.sync_all() } else { Ok(()) };
        kept.and_then(|()| fs::rename(&path, &dest))
            .map_err(|source| RemoteError::Disk { path, source })?;
        Ok(FetchOutcome { copied: copy.is_some(), synced: sync })
    }

    /// Removes it: what is wrong must not be taken up again.
    pub(super) fn discard(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// How far a file was written, and how much of that the disk has begun to take.
struct WriteProgress {
    written: u64,
    out: u64,
    since: Instant,
    /// Whether the disk is waited for in any case.
    sync: bool,
}

impl WriteProgress {
    fn at(position: u64, sync: bool) -> Self {
        Self { written: position, out: position, since: Instant::now(), sync }
    }

    /// Writes; the disk begins to take what it is waited for with.
    fn write(&mut self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        let len = self.written - self.out;
        if len >= WRITE_OUT_BYTES {
            if self.sync || kept_pace(len, self.since) {
                write_out(file, self.out, len);
            }
            (self.out, self.since) = (self.written, Instant::now());
        }
        Ok(())
    }
}

/// The empty file `copy`, filled with all that comes; `None` when it takes not all of it.
fn filled(copy: File, pieces: &Receiver<Arc<Vec<u8>>>, sync: bool) -> Option<File> {
    let mut out = WriteProgress::at(0, sync);
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

    use super::*;

    #[test]
    fn what_comes_faster_than_a_disk_takes_it_is_not_waited_for() {
        let a_second_ago = Instant::now() - Duration::from_secs(1);
        assert!(kept_pace(100 << 20, a_second_ago), "a gigabit a second");
        assert!(!kept_pace(100 << 30, a_second_ago));
        assert!(kept_pace(0, Instant::now()), "all of it was there");
    }
}
