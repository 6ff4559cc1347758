//! Writes a program's output to this process's stdout and stderr.
//!
//! A separate thread writes it, in the order in which it arrived. A stalled reader (`| less`) thus
//! holds up neither the connection, whose lease must be renewed, nor Ctrl-C. Unwritten output is
//! queued in memory; beyond [`MAX_QUEUED_BYTES`] the thread reads it back from the log in the run
//! folder.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use indicatif::ProgressBar;
use rgpu_protocol::event::Stream;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::watch;

use super::terminal::{Terminal, hold_back, safe, unwritten};
use crate::run::Canceller;
use crate::store::LogPosition;

/// Output queued in memory for a slow reader, in bytes.
const MAX_QUEUED_BYTES: u64 = 16 << 20;

/// Memory that a queued piece takes besides its output, in bytes.
const PIECE_BYTES: u64 = 128;

/// The queue of output to write. Clones share it.
#[derive(Clone)]
pub(in crate::cli) struct ProgramOutput {
    queue: mpsc::Sender<QueuedPiece>,
    /// Bytes in the queue.
    queued_bytes: Arc<watch::Sender<u64>>,
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
    /// What it adds to the queue's size: its output and its own memory, in bytes.
    fn weight(&self) -> u64 {
        match self {
            Self::Output { len, .. } => *len + PIECE_BYTES,
            Self::End => PIECE_BYTES,
        }
    }
}

enum PieceBytes {
    Held(Vec<u8>),
    Recorded { path: PathBuf, offset: u64 },
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
    /// Writes to this process's own streams. `canceller` is told when stdout's reader has gone.
    pub(in crate::cli) fn new(
        terminal: Terminal,
        style: OutputStyle,
        bar: ProgressBar,
        canceller: Canceller,
    ) -> Self {
        let (queue, pieces) = mpsc::channel::<QueuedPiece>();
        let queued_bytes = Arc::new(watch::Sender::new(0));
        let thread_queued_bytes = Arc::clone(&queued_bytes);
        std::thread::spawn(move || {
            let mut writer =
                OutputThread { terminal, style, bar, partial: HashMap::new(), last_log: None };
            let mut stdout_closed = false;
            while let Ok(piece) = pieces.recv() {
                let weight = piece.weight();
                match piece {
                    QueuedPiece::End => writer.flush_partial(),
                    QueuedPiece::Output { stream: Stream::Stdout, .. } if stdout_closed => {}
                    QueuedPiece::Output { stream, len, bytes } => {
                        let written = writer.write(stream, len, bytes);
                        // `rgpu exec -- yes | head -1`: the program is stopped as by a closed pipe.
                        // A closed stderr stops nothing.
                        if let (Stream::Stdout, Err(error)) = (stream, written) {
                            unwritten(&error);
                            stdout_closed = true;
                            canceller.output_unread();
                        }
                    }
                }
                thread_queued_bytes.send_modify(|queued_bytes| *queued_bytes -= weight);
            }
        });
        Self { queue, queued_bytes }
    }

    /// Queues output of the program. Never waits.
    pub(in crate::cli) fn take(&self, stream: Stream, bytes: &[u8], recorded: LogPosition<'_>) {
        let len = bytes.len() as u64;
        let bytes = match *self.queued_bytes.borrow() + len <= MAX_QUEUED_BYTES {
            true => PieceBytes::Held(bytes.to_owned()),
            false => {
                PieceBytes::Recorded { path: recorded.path.to_owned(), offset: recorded.offset }
            }
        };
        self.send(QueuedPiece::Output { stream, len, bytes });
    }

    /// Waits until everything queued is written.
    pub(in crate::cli) async fn drained(&self) {
        self.send(QueuedPiece::End);
        // This fails only without a sender, and we hold one.
        let _ = self.queued_bytes.subscribe().wait_for(|queued_bytes| *queued_bytes == 0).await;
    }

    fn send(&self, piece: QueuedPiece) {
        let weight = piece.weight();
        self.queued_bytes.send_modify(|queued_bytes| *queued_bytes += weight);
        if self.queue.send(piece).is_err() {
            // Unreachable: the thread lives as long as a sender.
            self.queued_bytes.send_modify(|queued_bytes| *queued_bytes -= weight);
        }
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
        let bytes = match bytes {
            PieceBytes::Held(bytes) => bytes,
            PieceBytes::Recorded { path, offset } => {
                let mut bytes = vec![0; len as usize];
                self.log_file(path)?.read_exact_at(&mut bytes, offset)?;
                bytes
            }
        };
        // Suspending the bar blocks every other writer, and a pipe may be full for hours.
        if !self.is_terminal(stream) {
            return write_all(stream, &bytes);
        }
        if self.style == OutputStyle::Raw {
            return self.bar.suspend(|| write_all(stream, &bytes));
        }
        let mut all = self.partial.remove(&stream).unwrap_or_default();
        all.extend(bytes);
        let partial = all.split_off(all.len() - hold_back(&all));
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
        let text = safe(bytes);
        self.bar.suspend(|| write_all(stream, text.as_bytes()))
    }

    fn is_terminal(&self, stream: Stream) -> bool {
        match stream {
            Stream::Stdout => self.terminal.stdout_tty,
            Stream::Stderr => self.terminal.stderr_tty,
        }
    }

    fn log_file(&mut self, path: PathBuf) -> io::Result<&File> {
        if self.last_log.as_ref().is_none_or(|(open, _)| *open != path) {
            self.last_log = None;
        }
        let last_log = match self.last_log.take() {
            Some(last_log) => last_log,
            None => (path.clone(), File::open(path)?),
        };
        Ok(&self.last_log.insert(last_log).1)
    }
}

/// Writes around the standard library's buffers: a thread blocked here must hold no lock.
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
