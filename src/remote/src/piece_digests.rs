//! Checks a downloaded file against the host's digest: by one sha256 of the whole file, or, if the
//! host names it, by the digest of the pieces' digests, which several threads compute in parallel.
//! One thread hashes more slowly than a fast link delivers.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use rgpu_protocol::digest::sha256;
use rgpu_protocol::{Digest, PIECE_BYTES};
use sha2::{Digest as _, Sha256};

use super::{RemoteError, RemoteFile};

/// Pieces that may wait for a hashing thread: enough that none is idle.
const MAX_QUEUED_PIECES: usize = 4;

/// The most threads that hash pieces.
const MAX_HASH_THREADS: usize = 4;

/// The hashes computed so far.
pub(super) enum PieceDigests {
    /// One hash of the whole file.
    Whole(Sha256),
    /// The digests of the pieces, in order.
    Pieces(Vec<[u8; 32]>),
}

/// Bytes for a hashing thread, with the number of their first piece.
type NumberedBytes = (usize, Arc<Vec<u8>>);

impl PieceDigests {
    /// The empty state for this file.
    pub(super) fn new(remote_file: &RemoteFile) -> Self {
        match remote_file.composite {
            Some(_) => Self::Pieces(Vec::new()),
            None => Self::Whole(Sha256::new()),
        }
    }

    /// Hashes the next bytes: complete pieces, except at the end of the file.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Whole(hash) => hash.update(bytes),
            Self::Pieces(done) => done.extend(pieces(bytes)),
        }
    }

    /// Continues in threads.
    pub(super) fn start_threads<'s>(
        self,
        threads: &'s Scope<'s, '_>,
    ) -> io::Result<HashThreads<'s>> {
        let (to, queue) = sync_channel::<NumberedBytes>(MAX_QUEUED_PIECES);
        Ok(match self {
            Self::Whole(mut hash) => {
                let hashing = Builder::new().spawn_scoped(threads, move || {
                    queue.iter().for_each(|(_, bytes)| hash.update(&*bytes));
                    hash
                })?;
                let end = move || join_thread(hashing).map(Self::Whole);
                HashThreads { to, next: 0, end: Box::new(end) }
            }
            Self::Pieces(done) => {
                let next = done.len();
                let queue = Arc::new(Mutex::new(queue));
                let start = |_| Builder::new().spawn_scoped(threads, hash_pieces(queue.clone()));
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                let mut hashing = vec![start(0)?];
                hashing.extend((1..MAX_HASH_THREADS.min(cores)).map_while(|n| start(n).ok()));
                let end = move || {
                    let mut all: Vec<_> = done.into_iter().enumerate().collect();
                    for thread in hashing {
                        all.extend(join_thread(thread)?);
                    }
                    all.sort_unstable_by_key(|(number, _)| *number);
                    Ok(Self::Pieces(all.into_iter().map(|(_, raw)| raw).collect()))
                };
                HashThreads { to, next, end: Box::new(end) }
            }
        })
    }

    /// Compares the result with the digest that the host named.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`]: they differ.
    pub(super) fn verify(self, remote_file: &RemoteFile) -> Result<(), RemoteError> {
        let (want, got) = match self {
            Self::Whole(hash) => (&remote_file.digest, Digest::from_bytes(&hash.finalize().into())),
            Self::Pieces(done) => (
                remote_file.composite.as_ref().unwrap_or(&remote_file.digest),
                Digest::composite(&done),
            ),
        };
        if got != *want {
            let (path, want) = (remote_file.path.clone(), want.clone());
            return Err(RemoteError::Damaged { path, want, got });
        }
        Ok(())
    }
}

/// The hashing threads of one file.
pub(super) struct HashThreads<'s> {
    to: SyncSender<NumberedBytes>,
    next: usize,
    end: Box<dyn FnOnce() -> io::Result<PieceDigests> + 's>,
}

impl HashThreads<'_> {
    /// As [`PieceDigests::add`]. Blocks while the queue is full.
    pub(super) fn add(&mut self, bytes: &Arc<Vec<u8>>) {
        // Sending fails only if a thread has failed, which `end` reports.
        let _ = self.to.send((self.next, bytes.clone()));
        self.next += bytes.len().div_ceil(PIECE_BYTES as usize);
    }

    /// Waits until everything is hashed.
    pub(super) fn end(self) -> io::Result<PieceDigests> {
        drop(self.to);
        (self.end)()
    }
}

fn hash_pieces(
    queue: Arc<Mutex<Receiver<NumberedBytes>>>,
) -> impl FnOnce() -> Vec<(usize, [u8; 32])> {
    move || {
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let mut hashed = Vec::new();
        while let Ok((first, bytes)) = next() {
            hashed.extend((first..).zip(pieces(&bytes)));
        }
        hashed
    }
}

fn pieces(bytes: &[u8]) -> impl Iterator<Item = [u8; 32]> {
    bytes.chunks(PIECE_BYTES as usize).map(sha256)
}

fn join_thread<T>(thread: ScopedJoinHandle<'_, T>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("a hashing thread has failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote_file(bytes: &[u8], composite: bool) -> RemoteFile {
        let pieces: Vec<_> = pieces(bytes).collect();
        RemoteFile {
            job: "run.1".into(),
            path: "raw/x".into(),
            size: bytes.len() as u64,
            digest: Digest::sha256(bytes),
            composite: composite.then(|| Digest::composite(&pieces)),
        }
    }

    #[test]
    fn threads_come_to_what_one_after_the_other_comes_to_whatever_was_there_before() {
        let piece = PIECE_BYTES as usize;
        let bytes: Vec<u8> = (0..9 * piece + 17).map(|n| (n / 1000) as u8).collect();
        // Pieces have their usual length or that of a blob.
        for (composite, present, step) in
            [(true, 0, piece), (true, 2 * piece, 4 * piece), (false, piece, 4 * piece)]
        {
            for damaged in [false, true] {
                let remote_file = remote_file(&bytes, composite);
                let mut received = bytes.clone();
                received[5 * piece] ^= u8::from(damaged);
                let mut check = PieceDigests::new(&remote_file);
                check.add(&received[..present]);
                let check = std::thread::scope(|threads| {
                    let mut checking = check.start_threads(threads).unwrap();
                    received[present..]
                        .chunks(step)
                        .for_each(|c| checking.add(&Arc::new(c.to_vec())));
                    checking.end().unwrap()
                });
                let ended = check.verify(&remote_file);
                assert_eq!(ended.is_err(), damaged, "{composite} {present} {ended:?}");
            }
        }
    }
}
