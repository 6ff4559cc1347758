//! Whether what has come is what the host named: by one sha256 of all of it, piece after piece, or,
//! where the host names that too, by those of its pieces, which several threads take side by side.
//! One thread hashes more slowly than a fast link brings.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use rgpu_protocol::digest::sha256;
use rgpu_protocol::{Digest, PIECE_BYTES};
use sha2::{Digest as _, Sha256};

use super::{RemoteError, RemoteFile};

/// Pieces that wait to be hashed: more than one, so that no thread rests while another is given one.
const MAX_QUEUED_PIECES: usize = 4;

/// Threads that hash pieces, where there are as many cores.
const MAX_HASH_THREADS: usize = 4;

/// What was hashed so far.
pub(super) enum PieceDigests {
    /// All of it.
    Whole(Sha256),
    /// Its pieces, in order.
    Pieces(Vec<[u8; 32]>),
}

/// Bytes on their way to a hashing thread, with the number of their first piece.
type NumberedBytes = (usize, Arc<Vec<u8>>);

impl PieceDigests {
    /// Of nothing yet.
    pub(super) fn of(wanted: &RemoteFile) -> Self {
        match wanted.composite {
            Some(_) => Self::Pieces(Vec::new()),
            None => Self::Whole(Sha256::new()),
        }
    }

    /// Takes what comes next: whole pieces, but for the last of all.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Whole(hash) => hash.update(bytes),
            Self::Pieces(done) => done.extend(pieces(bytes)),
        }
    }

    /// The same in threads.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn begin<'s>(self, threads: &'s Scope<'s, '_>) -> io::Result<HashThreads<'s>> {
        let (to, coming) = sync_channel::<NumberedBytes>(MAX_QUEUED_PIECES);
        Ok(match self {
            Self::Whole(mut hash) => {
                let hashing = Builder::new().spawn_scoped(threads, move || {
                    coming.iter().for_each(|(_, bytes)| hash.update(&*bytes));
                    hash
                })?;
                let end = move || joined(hashing).map(Self::Whole);
                HashThreads { to, next: 0, end: Box::new(end) }
            }
            Self::Pieces(done) => {
                let next = done.len();
                let coming = Arc::new(Mutex::new(coming));
                let start = |_| Builder::new().spawn_scoped(threads, by_piece(coming.clone()));
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                let mut hashing = vec![start(0)?];
                hashing.extend((1..MAX_HASH_THREADS.min(cores)).map_while(|n| start(n).ok()));
                let end = move || {
                    let mut all: Vec<_> = done.into_iter().enumerate().collect();
                    for thread in hashing {
                        all.extend(joined(thread)?);
                    }
                    all.sort_unstable_by_key(|(number, _)| *number);
                    Ok(Self::Pieces(all.into_iter().map(|(_, raw)| raw).collect()))
                };
                HashThreads { to, next, end: Box::new(end) }
            }
        })
    }

    /// Whether it is what was wanted.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`].
    pub(super) fn end(self, wanted: &RemoteFile) -> Result<(), RemoteError> {
        let (want, got) = match self {
            Self::Whole(hash) => (&wanted.digest, Digest::from_bytes(&hash.finalize().into())),
            Self::Pieces(done) => {
                (wanted.composite.as_ref().unwrap_or(&wanted.digest), Digest::composite(&done))
            }
        };
        if got != *want {
            let (path, want) = (wanted.path.clone(), want.clone());
            return Err(RemoteError::Damaged { path, want, got });
        }
        Ok(())
    }
}

/// Threads that hash.
pub(super) struct HashThreads<'s> {
    to: SyncSender<NumberedBytes>,
    next: usize,
    end: Box<dyn FnOnce() -> io::Result<PieceDigests> + 's>,
}

impl HashThreads<'_> {
    /// As [`PieceDigests::add`]. Waits while they have enough to do.
    pub(super) fn add(&mut self, bytes: &Arc<Vec<u8>>) {
        // They take all that comes; one that has failed is told of at the end.
        let _ = self.to.send((self.next, bytes.clone()));
        self.next += bytes.len().div_ceil(PIECE_BYTES as usize);
    }

    /// Waits until all of it is hashed.
    ///
    /// # Errors
    /// A thread has failed.
    pub(super) fn end(self) -> io::Result<PieceDigests> {
        drop(self.to);
        (self.end)()
    }
}

fn by_piece(
    coming: Arc<Mutex<Receiver<NumberedBytes>>>,
) -> impl FnOnce() -> Vec<(usize, [u8; 32])> {
    move || {
        let next = || coming.lock().unwrap_or_else(PoisonError::into_inner).recv();
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

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("a hashing thread has failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(bytes: &[u8], composite: bool) -> RemoteFile {
        let pieces: Vec<_> = pieces(bytes).collect();
        RemoteFile {
            job: "run.1".into(),
            path: "raw/x".into(),
            size: bytes.len() as u64,
            digest: Digest::of(bytes),
            composite: composite.then(|| Digest::composite(&pieces)),
        }
    }

    #[test]
    fn threads_come_to_what_one_after_the_other_comes_to_whatever_was_there_before() {
        let piece = PIECE_BYTES as usize;
        let bytes: Vec<u8> = (0..9 * piece + 17).map(|n| (n / 1000) as u8).collect();
        // What comes is a piece long, or as long as a blob may be.
        for (composite, there, step) in
            [(true, 0, piece), (true, 2 * piece, 4 * piece), (false, piece, 4 * piece)]
        {
            for damaged in [false, true] {
                let wanted = wanted(&bytes, composite);
                let mut came = bytes.clone();
                came[5 * piece] ^= u8::from(damaged);
                let mut check = PieceDigests::of(&wanted);
                check.add(&came[..there]);
                let check = std::thread::scope(|threads| {
                    let mut checking = check.begin(threads).unwrap();
                    came[there..].chunks(step).for_each(|c| checking.add(&Arc::new(c.to_vec())));
                    checking.end().unwrap()
                });
                let ended = check.end(&wanted);
                assert_eq!(ended.is_err(), damaged, "{composite} {there} {ended:?}");
            }
        }
    }
}
