//! Writes a program's output to this process's stdout and stderr.
//!
//! A separate thread writes it, in the order in which it arrived. A stalled reader (`| less`) thus
//! holds up neither the connection, which renews the job's lease, nor Ctrl-C. Unwritten output is
//! queued in memory; beyond [`MAX_QUEUED_BYTES`] the thread reads it back from the log in the run
//! folder. Adjacent pieces of one log are merged. Beyond [`MAX_QUEUED_PIECES`] they are merged
//! across the other stream's output too, so that stdout and stderr may change their order.

#![expect(clippy::disallowed_methods, reason = "the file that the user named for output")]

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;
use rgpu_protocol::event::Stream;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::watch;

use super::terminal::{Terminal, escape_but_colors, incomplete_tail_len, record_write_error};
use rgpu_run::run::Canceller;
use rgpu_run::store::LogPosition;

/// Size of the queue beyond which output is read back from the log, in bytes.
const MAX_QUEUED_BYTES: u64 = 16 << 20;

/// Pieces in the queue beyond which the order of different streams is no longer kept.
const MAX_QUEUED_PIECES: usize = 65_536;

/// Bytes that are read back from a log at once.
const MAX_READ_BYTES: u64 = 1 << 20;

/// Memory that a queued piece takes besides its output, in bytes.
const PIECE_BYTES: u64 = 128;

/// The queue of output to write. Clones share it.
#[derive(Clone)]
pub(in crate::cli) struct ProgramOutput {
    queue: Arc<OutputQueue>,
    /// Size of the queue: all queued output, that in the log too, and [`PIECE_BYTES`] for each
    /// piece.
    queued_bytes: Arc<watch::Sender<u64>>,
}

/// Pieces that wait to be written.
#[derive(Default)]
struct OutputQueue {
    pieces: Mutex<VecDeque<QueuedPiece>>,
    /// Notified when a piece was added.
    added: Condvar,
}

impl OutputQueue {
    fn pieces(&self) -> MutexGuard<'_, VecDeque<QueuedPiece>> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a piece, or extends the one that it continues. Returns how much it adds to
    /// the size of the queue.
    fn push(&self, piece: QueuedPiece) -> u64 {
        let mut pieces = self.pieces();
        let last = if pieces.len() < MAX_QUEUED_PIECES {
            pieces.back_mut().filter(|last| last.is_continued_by(&piece))
        } else {
            // Every stream has a piece near the end, so this is a short search.
            pieces.iter_mut().rev().find(|earlier| earlier.is_continued_by(&piece))
        };
        if let (
            Some(QueuedPiece::Output { len, .. }),
            QueuedPiece::Output { len: added_bytes, .. },
        ) = (last, &piece)
        {
            *len += added_bytes;
            return *added_bytes;
        }
        let weight = piece.weight();
        pieces.push_back(piece);
        self.added.notify_one();
        weight
    }

    /// Waits for the next piece.
    fn pop(&self) -> QueuedPiece {
        let mut pieces = self.pieces();
        loop {
            match pieces.pop_front() {
                Some(piece) => return piece,
                None => {
                    pieces = self.added.wait(pieces).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// An entry of the queue.
enum QueuedPiece {
    Output {
        stream: Stream,
        len: u64,
        bytes: PieceBytes,
    },
    /// No more output comes: print incomplete sequences as they are.
    End,
}

impl QueuedPiece {
    /// Its share of the queue's size: its output and its own memory, in bytes.
    fn weight(&self) -> u64 {
        match self {
            Self::Output { len, .. } => *len + PIECE_BYTES,
            Self::End => PIECE_BYTES,
        }
    }

    /// Whether `next` is the part of the same log that follows this one.
    fn is_continued_by(&self, next: &Self) -> bool {
        let (
            Self::Output { stream, len, bytes: PieceBytes::InLog { path, offset } },
            Self::Output {
                stream: next_stream,
                bytes: PieceBytes::InLog { path: next_path, offset: next_offset },
                ..
            },
        ) = (self, next)
        else {
            return false;
        };
        stream == next_stream && offset + len == *next_offset && path == next_path
    }
}

/// Where the bytes of a queued piece are.
enum PieceBytes {
    InMemory(Vec<u8>),
    InLog { path: PathBuf, offset: u64 },
}

/// How the program's output is changed on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum OutputStyle {
    /// Not at all: the program owns the terminal.
    Raw,
    /// Unchanged into files and pipes, escaped on a terminal.
    Safe,
}

impl ProgramOutput {
    /// Starts the thread that writes. `canceller` is told when stdout's reader has gone.
    pub(in crate::cli) fn new(
        terminal: Terminal,
        style: OutputStyle,
        bar: ProgressBar,
        canceller: Canceller,
    ) -> Self {
        let queue = Arc::new(OutputQueue::default());
        let pieces = Arc::clone(&queue);
        let queued_bytes = Arc::new(watch::Sender::new(0));
        let thread_queued_bytes = Arc::clone(&queued_bytes);
        std::thread::spawn(move || {
            let mut writer =
                OutputThread { terminal, style, bar, partial: HashMap::new(), last_log: None };
            let mut stdout_closed = false;
            // The thread lives as long as the process: output may come at any time.
            loop {
                let piece = pieces.pop();
                let weight = piece.weight();
                match piece {
                    QueuedPiece::End => writer.flush_partial(),
                    QueuedPiece::Output { stream: Stream::Stdout, .. } if stdout_closed => {}
                    QueuedPiece::Output { stream, len, bytes } => {
                        let written = writer.write(stream, len, bytes);
                        // `rgpu exec -- yes | head -1`: the program is stopped as by a closed pipe.
                        // A closed stderr stops nothing.
                        if let (Stream::Stdout, Err(error)) = (stream, written) {
                            record_write_error(&error);
                            stdout_closed = true;
                            canceller.request_cancel_for_unread_output();
                        }
                    }
                }
                thread_queued_bytes.send_modify(|queued_bytes| *queued_bytes -= weight);
            }
        });
        Self { queue, queued_bytes }
    }

    /// Queues output of the program. Never waits.
    pub(in crate::cli) fn write(&self, stream: Stream, bytes: &[u8], recorded: LogPosition<'_>) {
        let len = bytes.len() as u64;
        let bytes = if *self.queued_bytes.borrow() + len <= MAX_QUEUED_BYTES {
            PieceBytes::InMemory(bytes.to_owned())
        } else {
            PieceBytes::InLog { path: recorded.path.to_owned(), offset: recorded.offset }
        };
        self.send(QueuedPiece::Output { stream, len, bytes });
    }

    /// Waits until everything queued is written.
    pub(in crate::cli) async fn wait_until_written(&self) {
        self.send(QueuedPiece::End);
        // This fails only without a sender, and we hold one.
        let _ = self.queued_bytes.subscribe().wait_for(|queued_bytes| *queued_bytes == 0).await;
    }

    fn send(&self, piece: QueuedPiece) {
        // Counted under the watch's lock, so that the thread cannot subtract it first.
        self.queued_bytes.send_modify(|queued_bytes| *queued_bytes += self.queue.push(piece));
    }
}

/// The state of the writing thread.
struct OutputThread {
    terminal: Terminal,
    style: OutputStyle,
    bar: ProgressBar,
    /// Incomplete characters and escape sequences at the end of each stream, for a terminal.
    partial: HashMap<Stream, Vec<u8>>,
    /// The log that was read last, kept open.
    last_log: Option<(PathBuf, File)>,
}

impl OutputThread {
    fn write(&mut self, stream: Stream, len: u64, bytes: PieceBytes) -> io::Result<()> {
        let (path, mut offset) = match bytes {
            PieceBytes::InMemory(bytes) => return self.write_bytes(stream, bytes),
            PieceBytes::InLog { path, offset } => (path, offset),
        };
        let end = offset + len;
        while offset < end {
            let mut bytes = vec![0; (end - offset).min(MAX_READ_BYTES) as usize];
            self.log_file(&path)?.read_exact_at(&mut bytes, offset)?;
            offset += bytes.len() as u64;
            self.write_bytes(stream, bytes)?;
        }
        Ok(())
    }

    fn write_bytes(&mut self, stream: Stream, bytes: Vec<u8>) -> io::Result<()> {
        // Suspending the bar blocks every other writer, and a pipe may be full for hours.
        if !self.is_terminal(stream) {
            return write_all(stream, &bytes);
        }
        if self.style == OutputStyle::Raw {
            return self.bar.suspend(|| write_all(stream, &bytes));
        }
        let mut all = self.partial.remove(&stream).unwrap_or_default();
        all.extend(bytes);
        let partial = all.split_off(all.len() - incomplete_tail_len(&all));
        self.partial.insert(stream, partial);
        self.show(stream, &all)
    }

    fn flush_partial(&mut self) {
        for (stream, partial) in std::mem::take(&mut self.partial) {
            // The command is ending, so a failed write can no longer be reported.
            let _ = self.show(stream, &partial);
        }
    }

    fn show(&self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let text = escape_but_colors(bytes);
        self.bar.suspend(|| write_all(stream, text.as_bytes()))
    }

    fn is_terminal(&self, stream: Stream) -> bool {
        match stream {
            Stream::Stdout => self.terminal.stdout_tty,
            Stream::Stderr => self.terminal.stderr_tty,
        }
    }

    fn log_file(&mut self, path: &Path) -> io::Result<&File> {
        if self.last_log.as_ref().is_none_or(|(open, _)| open != path) {
            self.last_log = None;
        }
        let last_log = match self.last_log.take() {
            Some(last_log) => last_log,
            None => (path.to_owned(), File::open(path)?),
        };
        Ok(&self.last_log.insert(last_log).1)
    }
}

/// Bypasses the standard library's buffer and lock of stdout: a thread blocked here must hold no
/// lock.
fn write_all(stream: Stream, mut bytes: &[u8]) -> io::Result<()> {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let to: BorrowedFd<'_> = match stream {
        Stream::Stdout => stdout.as_fd(),
        Stream::Stderr => stderr.as_fd(),
    };
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(rustix::io::Errno::INTR) => {}
            // Another process that shares the pipe made it non-blocking.
            Err(rustix::io::Errno::AGAIN) => {
                poll(&mut [PollFd::new(&to, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(stream: Stream, offset: u64, len: u64) -> QueuedPiece {
        let path = PathBuf::from(stream.as_str());
        QueuedPiece::Output { stream, len, bytes: PieceBytes::InLog { path, offset } }
    }

    #[test]
    fn recorded_output_behind_a_reader_that_stands_still_takes_bounded_memory() {
        let queue = OutputQueue::default();
        let weight: u64 = (0..1000).map(|n| queue.push(recorded(Stream::Stdout, n, 1))).sum();
        assert_eq!((queue.pieces().len(), weight), (1, 1000 + PIECE_BYTES));
        // A gap is not bridged.
        queue.push(recorded(Stream::Stdout, 5000, 1));
        assert_eq!(queue.pieces().len(), 2);
        // Two streams in turns keep their order up to the limit.
        let queue = OutputQueue::default();
        let turns = 3 * MAX_QUEUED_PIECES as u64;
        let mut weight = 0;
        for n in 0..turns {
            weight += queue.push(recorded(Stream::Stdout, n, 1));
            weight += queue.push(recorded(Stream::Stderr, n, 1));
        }
        assert_eq!(queue.pieces().len(), MAX_QUEUED_PIECES);
        // Nothing is lost, and each stream's own order stays.
        let mut ends = HashMap::from([(Stream::Stdout, 0), (Stream::Stderr, 0)]);
        for _ in 0..MAX_QUEUED_PIECES {
            let piece = queue.pop();
            weight -= piece.weight();
            let QueuedPiece::Output { stream, len, bytes: PieceBytes::InLog { offset, .. } } =
                piece
            else {
                panic!("only recorded pieces");
            };
            assert_eq!(ends.insert(stream, offset + len), Some(offset));
        }
        assert_eq!((ends[&Stream::Stdout], ends[&Stream::Stderr], weight), (turns, turns, 0));
    }
}
