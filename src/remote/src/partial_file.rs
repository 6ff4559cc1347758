//! A file being downloaded into a run folder. It is written beside its destination under a name
//! that contains its digest, so that a cut fetch resumes, and it is renamed only after the check.
//! All three are reached from the open folder, in which no component of a path is a link.
//! Hashing, writing and copying run in threads of their own while the next pieces arrive.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
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
use rgpu_model::beneath::Folder;

/// The mode of a new file, before the user's umask.
const FILE_MODE: u32 = 0o666;

/// Pieces that may wait to be written, and to be copied into the project (`exec --pull`). The copy
/// queue is longer, so that neither thread waits for a short pause of the other.
const MAX_QUEUED_WRITES: usize = 1;
const MAX_QUEUED_COPIES: usize = 4;

/// After this many bytes the kernel is asked to start writing them out, which shortens the sync at
/// the end.
const WRITE_OUT_BYTES: u64 = 4 << 20;

/// A file up to this size is always synced.
const ALWAYS_SYNCED_BYTES: u64 = 16 << 20;

/// Bytes per second that any disk sustains. A file that arrives faster is not synced, because that
/// would take longer than the download; its host still has the file.
const SLOWEST_DISK_BYTES_PER_S: u64 = 256 << 20;

/// Whether the bytes arrived no faster than a disk writes.
fn is_slower_than_disk(bytes: u64, begun: Instant) -> bool {
    begun.elapsed().as_secs_f64() * SLOWEST_DISK_BYTES_PER_S as f64 >= bytes as f64
}

/// A file that is still incomplete. A thread writes it.
pub(super) struct PartialArtifact {
    to_writer: mpsc::Sender<Vec<u8>>,
    writer: Option<JoinHandle<Result<WrittenFile, RemoteError>>>,
    pub(super) len: u64,
}

/// The writer thread's state, and after its end the file to finish or to discard.
pub(super) struct WrittenFile {
    file: File,
    folder: Folder,
    /// Its path below the folder.
    part: PathBuf,
    /// Where it goes once it is complete.
    dest: PathBuf,
    check: PieceDigests,
    /// Whether the file must be synced.
    sync: bool,
    /// The copy in the project.
    copy: Option<File>,
}

impl PartialArtifact {
    /// Opens the file and resumes from the bytes that an earlier try left.
    pub(super) fn open(
        remote_file: &RemoteFile,
        (folder, dest): (&Folder, &Path),
        copy: Option<File>,
    ) -> Result<Self, RemoteError> {
        let part = part_of(dest, &remote_file.digest.as_str()[..16]);
        let disk_error = |source| RemoteError::Disk { path: folder.path().join(&part), source };
        let mut file = folder.update(&part, FILE_MODE).map_err(disk_error)?;
        let (check, len) = resume(&mut file, remote_file).map_err(disk_error)?;
        let copy = copy.filter(|_| len == 0);
        let (folder, dest) = (folder.clone(), dest.to_owned());
        let sync = remote_file.size <= ALWAYS_SYNCED_BYTES;
        let written = WrittenFile { file, folder, part, dest, check, sync, copy };
        let (to_writer, pieces) = mpsc::channel(MAX_QUEUED_WRITES);
        let writer = tokio::task::spawn_blocking(move || written.write_pieces(pieces));
        Ok(Self { to_writer, writer: Some(writer), len })
    }

    /// Appends the next bytes: complete pieces, except at the end of the file.
    pub(super) async fn add(&mut self, bytes: Vec<u8>) -> Result<(), RemoteError> {
        self.len += bytes.len() as u64;
        match self.to_writer.send(bytes).await {
            Ok(()) => Ok(()),
            // The writer ends early only if the disk fails, and returns that error.
            Err(_) => self.join_writer().await.map(|_| ()),
        }
    }

    /// Waits until everything is written.
    pub(super) async fn written(mut self) -> Result<WrittenFile, RemoteError> {
        // Dropping the sender tells the thread that no more pieces come.
        self.to_writer = mpsc::channel(1).0;
        self.join_writer().await
    }

    async fn join_writer(&mut self) -> Result<WrittenFile, RemoteError> {
        let failed =
            |why: String| RemoteError::ProtocolViolation { what: format!("the writer: {why}") };
        match self.writer.take() {
            Some(writer) => writer.await.map_err(|error| failed(error.to_string()))?,
            None => Err(failed("it has failed".to_owned())),
        }
    }
}

/// Bytes of a file's name that its unfinished part repeats: a name has at most 255.
const MAX_REPEATED_NAME: usize = 160;

/// The unfinished part of `dest`, beside it. A long name is cut and told apart by its hash.
fn part_of(dest: &Path, digest: &str) -> PathBuf {
    let name = dest.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    if name.len() <= MAX_REPEATED_NAME {
        return dest.with_file_name(format!(".{name}.{digest}.part"));
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    // A character has at most four bytes.
    let head: String = name.chars().take(MAX_REPEATED_NAME / 4).collect();
    dest.with_file_name(format!(".{head}~{:016x}.{digest}.part", hasher.finish()))
}

/// Hashes the complete pieces in `file` and seeks to their end. An incomplete piece is cut off. A
/// file longer than `remote_file` is emptied: it is not ours or was damaged by a bug.
fn resume(file: &mut File, remote_file: &RemoteFile) -> io::Result<(PieceDigests, u64)> {
    let found_len = file.metadata()?.len();
    let (mut check, mut len) = (PieceDigests::new(remote_file), 0);
    let mut piece = Vec::new();
    while found_len <= remote_file.size
        && (&mut *file).take(PIECE_BYTES).read_to_end(&mut piece)? > 0
    {
        let end = len + piece.len() as u64;
        if piece.len() as u64 != PIECE_BYTES && end != remote_file.size {
            break;
        }
        check.add(&piece);
        len = end;
        piece.clear();
    }
    // Truncate only if needed: ext4 treats a truncated file as rewritten and flushes all of it on
    // close (`auto_da_alloc` in `ext4(5)`).
    if found_len != len {
        file.set_len(len)?;
        file.seek(SeekFrom::Start(len))?;
    }
    Ok((check, len))
}

impl WrittenFile {
    /// Writes, copies and hashes the pieces in parallel. Blocks.
    fn write_pieces(self, mut pieces: mpsc::Receiver<Vec<u8>>) -> Result<Self, RemoteError> {
        let Self { mut file, folder, part, dest, check, sync, copy } = self;
        let disk_error = |source| RemoteError::Disk { path: folder.path().join(&part), source };
        let begun = Instant::now();
        let start = file.stream_position().map_err(disk_error)?;
        let mut out = WriteProgress::at(start, sync);
        let (check, copy) = std::thread::scope(|threads| {
            let (to_copy, copied) = sync_channel::<Arc<Vec<u8>>>(MAX_QUEUED_COPIES);
            // If no thread can be started, nothing is copied.
            let copying = copy.and_then(|copy| {
                let fill = move || fill_copy(copy, &copied, sync);
                std::thread::Builder::new().spawn_scoped(threads, fill).ok()
            });
            let mut checking = check.start_threads(threads).map_err(disk_error)?;
            while let Some(bytes) = pieces.blocking_recv() {
                let bytes = Arc::new(bytes);
                checking.add(&bytes);
                if copying.is_some() {
                    // Fails once the copy has failed, which is not an error of the download.
                    let _ = to_copy.send(bytes.clone());
                }
                out.write(&file, &bytes).map_err(disk_error)?;
            }
            drop(to_copy);
            let check = checking.end().map_err(disk_error)?;
            Ok::<_, RemoteError>((check, copying.and_then(|copying| copying.join().ok().flatten())))
        })?;
        let sync = sync || is_slower_than_disk(out.written - start, begun);
        Ok(Self { file, folder, part, dest, check, sync, copy })
    }

    /// Checks the digest and renames the file to its destination.
    pub(super) fn finish(self, remote_file: &RemoteFile) -> Result<FetchOutcome, RemoteError> {
        let Self { file, folder, part, dest, check, sync, copy } = self;
        if let Err(error) = check.verify(remote_file) {
            // A damaged file must not be resumed.
            let _ = folder.remove_file(&part);
            return Err(error);
        }
        let synced = if sync { file.sync_all() } else { Ok(()) };
        synced
            .and_then(|()| folder.rename(&part, &dest))
            .map_err(|source| RemoteError::Disk { path: folder.path().join(&part), source })?;
        Ok(FetchOutcome { copied: copy.is_some(), synced: sync })
    }

    /// Removes the file, which must not be resumed.
    pub(super) fn discard(self) {
        let _ = self.folder.remove_file(&self.part);
    }
}

/// How much of a file was written, and how much of that was passed to the disk.
struct WriteProgress {
    written: u64,
    out: u64,
    since: Instant,
    /// Whether the file will be synced in any case.
    sync: bool,
}

impl WriteProgress {
    fn at(position: u64, sync: bool) -> Self {
        Self { written: position, out: position, since: Instant::now(), sync }
    }

    /// Writes `bytes`, and asks the kernel to write them out if they will be synced.
    fn write(&mut self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        let len = self.written - self.out;
        if len >= WRITE_OUT_BYTES {
            if self.sync || is_slower_than_disk(len, self.since) {
                write_out(file, self.out, len);
            }
            (self.out, self.since) = (self.written, Instant::now());
        }
        Ok(())
    }
}

/// Fills the empty file `copy` with the pieces; `None` if a write fails.
fn fill_copy(copy: File, pieces: &Receiver<Arc<Vec<u8>>>, sync: bool) -> Option<File> {
    let mut out = WriteProgress::at(0, sync);
    pieces.iter().try_for_each(|bytes| out.write(&copy, &bytes)).ok().map(|()| copy)
}

/// Asks the kernel to start writing these bytes to disk, without waiting. Otherwise that would only
/// start at the final sync or rename.
///
/// `POSIX_FADV_DONTNEED` does that and drops no dirty pages (`posix_fadvise(2)`, its notes). On
/// systems without that call this does nothing.
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
    fn the_part_of_a_file_with_a_long_name_has_a_name_that_fits() {
        let digest = "0123456789abcdef";
        let [a, b] = ["a", "b"].map(|end| format!("out/{}{end}", "ü".repeat(127)));
        let [of_a, of_b] = [&a, &b].map(|path| part_of(Path::new(path), digest));
        assert!(of_a.file_name().unwrap().len() < 255);
        assert_ne!(of_a, of_b);
        assert_eq!(part_of(Path::new("out/x"), digest), Path::new("out/.x.0123456789abcdef.part"));
    }

    #[test]
    fn what_comes_faster_than_a_disk_takes_it_is_not_waited_for() {
        let a_second_ago = Instant::now() - Duration::from_secs(1);
        assert!(is_slower_than_disk(100 << 20, a_second_ago), "a gigabit a second");
        assert!(!is_slower_than_disk(100 << 30, a_second_ago));
        assert!(is_slower_than_disk(0, Instant::now()), "all of it was there");
    }
}
