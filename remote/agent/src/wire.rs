//! Frames over blocking streams, for connections with laptops and between a connection and a
//! supervisor.

use std::io::{self, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rgpu_protocol::frame::{self, FrameKind};
use serde::Serialize;

/// Reads frames from a blocking stream.
pub struct FrameReader<R> {
    stream: io::BufReader<R>,
    frame: Vec<u8>,
}

/// Why a connection cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Reading or writing failed.
    #[error("the stream failed")]
    Io(#[from] io::Error),
    /// The bytes are no valid frames.
    #[error("the peer writes no frames")]
    Frame(#[from] frame::FrameError),
}

impl<R: Read> FrameReader<R> {
    /// Creates a reader at the start of a frame.
    pub fn new(stream: R) -> Self {
        Self { stream: io::BufReader::with_capacity(256 << 10, stream), frame: Vec::new() }
    }

    /// Returns the next frame's kind and body; `None` at the end of the stream, even if it was cut
    /// off within a frame.
    pub fn next_frame(&mut self) -> Result<Option<(FrameKind, &[u8])>, WireError> {
        self.frame.resize(frame::HEADER, 0);
        if !read_whole(&mut self.stream, &mut self.frame)? {
            return Ok(None);
        }
        // Refuse invalid lengths and kinds before allocating.
        frame::parse(&self.frame)?;
        let len = u32::from_le_bytes([self.frame[0], self.frame[1], self.frame[2], self.frame[3]]);
        self.frame.resize(frame::HEADER + len as usize, 0);
        if !read_whole(&mut self.stream, &mut self.frame[frame::HEADER..])? {
            return Ok(None);
        }
        Ok(frame::parse(&self.frame)?.map(|(frame, _)| (frame.kind, frame.body)))
    }
}

/// Fills `buffer`. Returns false if the stream ends before that.
fn read_whole(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match stream.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

/// Writes the header of a frame and its body.
pub fn write_frame(out: &mut impl Write, kind: FrameKind, body: &[u8]) -> io::Result<()> {
    out.write_all(&frame::header(kind, body.len()))?;
    out.write_all(body)
}

/// Writes one JSON message as a frame.
pub fn write_message(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    if body.len() > frame::MAX_BODY {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {} bytes is over the frame limit", body.len()),
        ));
    }
    write_frame(out, FrameKind::Message, &body)
}

/// The writer to the peer, shared by threads. A message and the bytes that it announces stay
/// together.
///
/// Answers ([`MessageWriter::send`]) never wait for the stream. So the thread that reads requests
/// receives a cancellation even while output floods a slow link.
pub struct MessageWriter<W: Write> {
    stream: Mutex<io::BufWriter<W>>,
    /// Complete frames that wait for the stream. They go before the next write of its owner.
    answers: Mutex<Vec<u8>>,
}

impl<W: Write> MessageWriter<W> {
    /// Creates a writer to `stream`.
    pub fn new(stream: W) -> Self {
        let stream = Mutex::new(io::BufWriter::with_capacity(256 << 10, stream));
        Self { stream, answers: Mutex::default() }
    }

    /// Writes bytes that are not a frame (the magic line).
    pub fn raw(&self, bytes: &[u8]) -> io::Result<()> {
        lock(&self.stream).write_all(bytes)
    }

    /// Sends one message: at once if the stream is free, else through its current owner.
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        write_message(&mut *lock(&self.answers), message)?;
        self.send_answers()
    }

    /// Queues one message. [`MessageWriter::flush`] sends it.
    pub fn queue(&self, message: &impl Serialize) -> io::Result<()> {
        self.queue_with(message, FrameKind::Message, &[])
    }

    /// Queues a message and the bytes that it announces, split into frames of `kind`.
    pub fn queue_with(
        &self,
        message: &impl Serialize,
        kind: FrameKind,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut stream = lock(&self.stream);
        self.put_answers(&mut stream)?;
        write_message(&mut *stream, message)?;
        for piece in bytes.chunks(frame::MAX_BODY) {
            write_frame(&mut *stream, kind, piece)?;
        }
        drop(stream);
        self.send_answers()
    }

    /// Sends the queued messages.
    pub fn flush(&self) -> io::Result<()> {
        lock(&self.stream).flush()?;
        self.send_answers()
    }

    /// Sends waiting answers, unless another thread owns the stream; that thread then calls this
    /// too.
    fn send_answers(&self) -> io::Result<()> {
        while !lock(&self.answers).is_empty() {
            let mut stream = match self.stream.try_lock() {
                Ok(stream) => stream,
                Err(TryLockError::Poisoned(stream)) => stream.into_inner(),
                Err(TryLockError::WouldBlock) => return Ok(()),
            };
            self.put_answers(&mut stream)?;
            stream.flush()?;
        }
        Ok(())
    }

    fn put_answers(&self, stream: &mut io::BufWriter<W>) -> io::Result<()> {
        let answers = std::mem::take(&mut *lock(&self.answers));
        stream.write_all(&answers)
    }
}

/// A thread that panics while writing has broken the stream, which the reader notices.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_cut_within_a_frame_ends_and_is_no_error() {
        let mut wire = Vec::new();
        write_frame(&mut wire, FrameKind::Blob, b"abc").unwrap();
        for cut in 0..wire.len() {
            assert!(FrameReader::new(&wire[..cut]).next_frame().unwrap().is_none());
        }
        let mut reader = FrameReader::new(&wire[..]);
        assert_eq!(reader.next_frame().unwrap(), Some((FrameKind::Blob, &b"abc"[..])));
        assert!(reader.next_frame().unwrap().is_none());
    }

    #[test]
    fn answers_do_not_wait_for_a_stream_that_is_in_use() {
        let writer = MessageWriter::new(Vec::new());
        let owner = writer.stream.lock().unwrap();
        writer.send(&"answer").unwrap();
        drop(owner);
        writer.queue_with(&"data", FrameKind::Blob, b"x").unwrap();
        writer.flush().unwrap();
        let wire = writer.stream.into_inner().unwrap().into_inner().unwrap();
        let mut reader = FrameReader::new(&wire[..]);
        assert_eq!(reader.next_frame().unwrap(), Some((FrameKind::Message, &b"\"answer\""[..])));
        assert_eq!(reader.next_frame().unwrap(), Some((FrameKind::Message, &b"\"data\""[..])));
        assert_eq!(reader.next_frame().unwrap(), Some((FrameKind::Blob, &b"x"[..])));
    }

    #[test]
    fn bytes_that_are_no_frames_are_an_error() {
        assert!(FrameReader::new(&b"GET / HTTP/1.1\r\n"[..]).next_frame().is_err());
    }
}
