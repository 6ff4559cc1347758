//! A program's output on its way out of this process.
//!
//! A thread of its own writes it, in the order in which it was read. So a reader that stands still
//! (`| less`) holds up neither the connection, whose lease must be renewed, nor Ctrl-C. What was
//! not taken yet waits in memory, and beyond [`MAX_QUEUED_BYTES`] in the run folder's log, which has it
//! anyway.

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

/// Bytes that wait in memory for the reader.
const MAX_QUEUED_BYTES: u64 = 16 << 20;

/// Bytes that a piece takes in memory besides its output.
const PIECE_BYTES: u64 = 128;

/// The way out. Clones share it.
#[derive(Clone)]
pub(super) struct ProgramOutput {
    queue: mpsc::Sender<QueuedPiece>,
    /// Bytes that wait.
    waiting: Arc<watch::Sender<u64>>,
}

/// What waits.
enum QueuedPiece {
    Output {
        stream: Stream,
        len: u64,
        bytes: PieceBytes,
    },
    /// Nothing more comes: what a terminal was to see whole is shown as it is.
    End,
}

impl QueuedPiece {
    /// Bytes that it counts for: what it holds, and what it takes itself.
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

/// What the program's output looks like where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputStyle {
    /// As it is: the terminal is the program's.
    Raw,
    /// As it is into files and pipes; made harmless on a terminal.
    Safe,
}

impl ProgramOutput {
    /// To this process's own streams. `canceller` hears when nobody reads them any more.
    pub(super) fn new(
        terminal: Terminal,
        look: OutputStyle,
        bar: ProgressBar,
        canceller: Canceller,
    ) -> Self {
        let (queue, pieces) = mpsc::channel::<QueuedPiece>();
        let waiting = Arc::new(watch::Sender::new(0));
        let counted = Arc::clone(&waiting);
        std::thread::spawn(move || {
            let mut writer = OutputThread { terminal, look, bar, rest: HashMap::new(), read: None };
            let mut unread = false;
            while let Ok(piece) = pieces.recv() {
                let weight = piece.weight();
                match piece {
                    QueuedPiece::End => writer.write_rest(),
                    QueuedPiece::Output { stream: Stream::Stdout, .. } if unread => {}
                    QueuedPiece::Output { stream, len, bytes } => {
                        let written = writer.write(stream, len, bytes);
                        // `rgpu exec -- yes | head -1`: the program ends as it would at a closed
                        // pipe. Nobody may want its stderr.
                        if let (Stream::Stdout, Err(error)) = (stream, written) {
                            unwritten(&error);
                            unread = true;
                            canceller.output_unread();
                        }
                    }
                }
                counted.send_modify(|waiting| *waiting -= weight);
            }
        });
        Self { queue, waiting }
    }

    /// Takes output of the program. Never waits.
    pub(super) fn take(&self, stream: Stream, bytes: &[u8], recorded: LogPosition<'_>) {
        let len = bytes.len() as u64;
        let bytes = match *self.waiting.borrow() + len <= MAX_QUEUED_BYTES {
            true => PieceBytes::Held(bytes.to_owned()),
            false => {
                PieceBytes::Recorded { path: recorded.path.to_owned(), offset: recorded.offset }
            }
        };
        self.send(QueuedPiece::Output { stream, len, bytes });
    }

    /// Waits until all that was taken is written.
    pub(super) async fn drained(&self) {
        self.send(QueuedPiece::End);
        // It fails only without a sender, and there is one here.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting == 0).await;
    }

    fn send(&self, piece: QueuedPiece) {
        let weight = piece.weight();
        self.waiting.send_modify(|waiting| *waiting += weight);
        if self.queue.send(piece).is_err() {
            // The thread ends only with the last of these.
            self.waiting.send_modify(|waiting| *waiting -= weight);
        }
    }
}

/// The thread's own.
struct OutputThread {
    terminal: Terminal,
    look: OutputStyle,
    bar: ProgressBar,
    /// What waits for the rest of a character or a sequence, for a terminal.
    rest: HashMap<Stream, Vec<u8>>,
    /// The log that was read from last.
    read: Option<(PathBuf, File)>,
}

impl OutputThread {
    fn write(&mut self, stream: Stream, len: u64, bytes: PieceBytes) -> io::Result<()> {
        let bytes = match bytes {
            PieceBytes::Held(bytes) => bytes,
            PieceBytes::Recorded { path, offset } => {
                let mut bytes = vec![0; len as usize];
                self.log(path)?.read_exact_at(&mut bytes, offset)?;
                bytes
            }
        };
        // A bar that stands still holds up whoever speaks; a pipe may be full for hours.
        if !self.is_terminal(stream) {
            return write_all(stream, &bytes);
        }
        if self.look == OutputStyle::Raw {
            return self.bar.suspend(|| write_all(stream, &bytes));
        }
        let mut all = self.rest.remove(&stream).unwrap_or_default();
        all.extend(bytes);
        let rest = all.split_off(all.len() - hold_back(&all));
        self.rest.insert(stream, rest);
        self.show(stream, &all)
    }

    fn write_rest(&mut self) {
        for (stream, rest) in std::mem::take(&mut self.rest) {
            // The command ends: there is nobody to be told of a terminal that is gone.
            let _ = self.show(stream, &rest);
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

    fn log(&mut self, path: PathBuf) -> io::Result<&File> {
        if self.read.as_ref().is_none_or(|(open, _)| *open != path) {
            self.read = None;
        }
        let read = match self.read.take() {
            Some(read) => read,
            None => (path.clone(), File::open(path)?),
        };
        Ok(&self.read.insert(read).1)
    }
}

/// Past the buffers of the standard library: a thread that is blocked here must hold no lock.
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
            // Another process that has the same pipe made it so.
            Err(rustix::io::Errno::AGAIN) => {
                poll(&mut [PollFd::new(&to, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
