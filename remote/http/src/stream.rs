//! Response bodies from a source that is read while they are sent: a follower or a file.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use rgpu_agent::connection::ClientWriter;
use rgpu_agent::connection::follow::{Position, follow};
use rgpu_agent::job::JobFolder;
use rgpu_agent::wire::MessageWriter;
use rgpu_protocol::FromAgent;
use rgpu_protocol::frame::{self, FrameKind};
use rgpu_protocol::http::FRAMES;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::answer::HttpRefusal;
use crate::request_guard::busy;
use crate::state::State;

/// Most bytes sent at once.
const BODY_PIECE_BYTES: usize = 128 << 10;

/// A body that is read from `from`. `left` is the number of remaining bytes, if known.
pub(crate) struct ReadBody<R> {
    from: R,
    left: Option<u64>,
}

impl<R: AsyncRead + Unpin + Send + 'static> ReadBody<R> {
    /// Creates a body of unknown length.
    pub(crate) fn endless(from: R) -> Body {
        Body::new(Self { from, left: None })
    }

    /// Creates a body of `len` bytes.
    pub(crate) fn sized(from: R, len: u64) -> Body {
        Body::new(Self { from, left: Some(len) })
    }
}

impl<R: AsyncRead + Unpin> hyper::body::Body for ReadBody<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let len =
            self.left.map_or(BODY_PIECE_BYTES, |left| left.min(BODY_PIECE_BYTES as u64) as usize);
        if len == 0 {
            return Poll::Ready(None);
        }
        let mut bytes = vec![0; len];
        let mut buffer = ReadBuf::new(&mut bytes);
        if let Err(e) = ready!(Pin::new(&mut self.from).poll_read(context, &mut buffer)) {
            return Poll::Ready(Some(Err(e)));
        }
        let n = buffer.filled().len();
        if n == 0 {
            // The file was cut short. An error tells the client that the body is incomplete.
            let error = self.left.map(|_| Err(io::ErrorKind::UnexpectedEof.into()));
            return Poll::Ready(error);
        }
        bytes.truncate(n);
        self.left = self.left.map(|left| left - n as u64);
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Returns a body of frames: a message and the bytes that it announces, which are not copied.
pub(crate) fn announced_body(message: &FromAgent, bytes: Vec<u8>) -> Result<Body, HttpRefusal> {
    let json = serde_json::to_vec(message).map_err(|e| {
        HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "defect", e.to_string())
    })?;
    let head = [&frame::header(FrameKind::Message, json.len())[..], &json].concat();
    let mut pieces = VecDeque::from([Bytes::from(head)]);
    let mut bytes = Bytes::from(bytes);
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(frame::MAX_BODY));
        let head = frame::header(FrameKind::Blob, piece.len());
        pieces.extend([Bytes::copy_from_slice(&head), piece]);
    }
    Ok(Body::new(Pieces(pieces)))
}

/// A body of several pieces in memory.
struct Pieces(VecDeque<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}

/// Creates a writer for blocking code and the async end to read from.
fn pipe() -> io::Result<(ClientWriter, UnixStream)> {
    let (reader, writer_end) = StdStream::pair()?;
    reader.set_nonblocking(true)?;
    let out = MessageWriter::new(File::from(OwnedFd::from(writer_end)));
    Ok((Arc::new(out), UnixStream::from_std(reader)?))
}

/// The output of a follower, for a limited time. Dropping it stops the follower.
pub(crate) struct FollowedBody {
    stream: UnixStream,
    stop: Arc<AtomicBool>,
    deadline: Pin<Box<Sleep>>,
    expired: bool,
    _permit: OwnedSemaphorePermit,
}

impl FollowedBody {
    /// Follows a job in a thread, for at most `wait`.
    pub(crate) fn start(
        state: &Arc<State>,
        folder: JobFolder,
        position: Position,
        wait: Duration,
    ) -> Result<Self, HttpRefusal> {
        let permit = state.followed.clone().try_acquire_owned();
        let permit = permit.map_err(|_| busy("too many clients follow jobs at once"))?;
        let start = || -> io::Result<(UnixStream, Arc<AtomicBool>)> {
            let (out, stream) = pipe()?;
            out.send(&FromAgent::Following { job: folder.id().to_owned() })?;
            let stop = state.new_stop();
            let flag = stop.clone();
            std::thread::Builder::new()
                .name("follower".into())
                .spawn(move || follow(folder, position, &out, &flag))?;
            Ok((stream, stop))
        };
        let (stream, stop) =
            start().map_err(|e| busy(&format!("no job can be followed now: {e}")))?;
        let deadline = Box::pin(sleep_until(Instant::now() + wait));
        Ok(Self { stream, stop, deadline, expired: false, _permit: permit })
    }

    /// Returns whether it was stopped before the job's end.
    pub(crate) fn was_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns a response with these frames as its body.
    pub(crate) fn frames(self) -> Response {
        frames(ReadBody::endless(self))
    }
}

impl Drop for FollowedBody {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl AsyncRead for FollowedBody {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.expired && self.deadline.as_mut().poll(context).is_ready() {
            // The follower stops at the next event and closes the stream.
            self.expired = true;
            self.stop.store(true, Ordering::Relaxed);
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

/// Returns a response whose body is frames.
pub(crate) fn frames(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(FRAMES));
    response
}

/// Parses frames from a stream.
pub(crate) struct FrameReader<R> {
    from: R,
    buffer: Vec<u8>,
    used: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), used: 0 }
    }

    pub(crate) fn source(&self) -> &R {
        &self.from
    }

    /// Returns the next frame; `None` at the end. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<Option<(FrameKind, Vec<u8>)>> {
        loop {
            let parsed = frame::parse(&self.buffer[self.used..]).map_err(io::Error::other)?;
            if let Some((frame, used)) = parsed {
                let owned = (frame.kind, frame.body.to_vec());
                self.used += used;
                return Ok(Some(owned));
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            self.buffer.reserve(BODY_PIECE_BYTES);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}
