//! A stream to an agent, carried by requests with answers; see [`rgpu_protocol::mail`].
//!
//! The session's bytes go out in pieces, several at a time; the agent's bytes are fetched by
//! requests that wait for them. Both directions are counted, so a request whose answer was cut is
//! simply sent again. A carrier sends one request: over HTTP, or as a command.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rgpu_protocol::mail::{MailHead, MailRequest};
use tokio::io::{AsyncReadExt, AsyncWrite, DuplexStream, WriteHalf};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::RemoteError;
use crate::http::HttpError;
use crate::stream::{AgentStream, FrameReader, StreamEnd};

/// The size of the pipe between a session and the task that carries its bytes.
const PIPE_BYTES: usize = 1 << 20;

/// Pieces sent to the agent at the same time.
const MAX_PIECES_IN_FLIGHT: usize = 4;

/// Attempts for a piece before which others have not arrived.
const MAX_TRIES: u32 = 5;

/// Answers that may wait for the session.
const MAX_QUEUED_ANSWERS: usize = 1;

/// The least time between two requests for the same bytes.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_millis(200);

/// An answer.
pub(crate) struct Mail {
    pub(crate) head: MailHead,
    /// Bytes of the agent.
    pub(crate) bytes: Vec<u8>,
}

/// What suits a carrier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MailLimits {
    /// Most bytes of one request.
    pub(crate) piece_bytes: usize,
    /// How long the session gets to add to a piece.
    pub(crate) fill_pause: Duration,
    /// How long a request waits for the agent's bytes, in milliseconds.
    pub(crate) wait_ms: u64,
}

/// Carries requests to one agent.
#[async_trait::async_trait]
pub(crate) trait MailCarrier: Send + Sync + 'static {
    fn limits(&self) -> MailLimits;

    /// Sends a request, and repeats it if that may help.
    async fn exchange(&self, request: MailRequest, bytes: Bytes) -> Result<Mail, RemoteError>;
}

/// 32 random hexadecimal digits: the name of a conversation, or of one command's output.
pub(crate) fn nonce() -> String {
    // Each hasher has its own random keys.
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

/// The stream of an agent that has begun with the answer `first`.
pub(crate) fn stream(carrier: impl MailCarrier, first: Mail) -> AgentStream {
    let (session_end, our_end) = tokio::io::duplex(PIPE_BYTES);
    let (_, write) = tokio::io::split(session_end);
    let (out, answers) = mpsc::channel(MAX_QUEUED_ANSWERS);
    let ending = StreamEnd::default();
    let (ended, all_sent) = oneshot::channel();
    let recorded_end = ending.clone();
    tokio::spawn(async move {
        let carrier = Arc::new(carrier);
        let why = tokio::select! {
            why = send_to_agent(carrier.clone(), our_end) => why,
            why = fetch_from_agent(&*carrier, first, &out) => why,
        };
        // Set before the stream ends, because its reader asks for the reason.
        recorded_end.record_end(why);
        let _ = ended.send(());
    });
    let writer = Box::new(ClosingWriter { inner: write, all_sent });
    AgentStream { reader: FrameReader::from_groups(answers), writer, ending }
}

/// The writing side of a session. Its shutdown completes once everything written was sent.
struct ClosingWriter {
    inner: WriteHalf<DuplexStream>,
    all_sent: oneshot::Receiver<()>,
}

impl AsyncWrite for ClosingWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_shutdown(context))?;
        // A sender that is gone has nothing more to send.
        let _ = ready!(Pin::new(&mut self.all_sent).poll(context));
        Poll::Ready(Ok(()))
    }
}

/// Sends the session's bytes to the agent until the session closes, then ends the agent's input.
/// Returns why it ended.
async fn send_to_agent(carrier: Arc<impl MailCarrier>, mut from: DuplexStream) -> String {
    let room = Arc::new(Semaphore::new(MAX_PIECES_IN_FLIGHT));
    let mut sending: JoinSet<Result<(), RemoteError>> = JoinSet::new();
    let mut sent_bytes = 0;
    // Keeps bytes read while another branch of the select was taken.
    let mut waiting = Vec::new();
    loop {
        let read = tokio::select! {
            read = read_some(&mut from, &mut waiting, carrier.limits()) => read,
            Some(sent) = sending.join_next() => match sent {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => return cause(&error),
                Err(error) => return error.to_string(),
            },
        };
        if let Err(error) = read {
            return error.to_string();
        }
        let Ok(permit) = room.clone().acquire_owned().await else { break };
        let (carrier, bytes) = (carrier.clone(), Bytes::from(std::mem::take(&mut waiting)));
        let eof = bytes.is_empty();
        let request = MailRequest { take: sent_bytes, eof, ..MailRequest::default() };
        sent_bytes += bytes.len() as u64;
        sending.spawn(async move {
            let _permit = permit;
            deliver(&*carrier, request, bytes).await
        });
        if eof {
            break;
        }
    }
    while let Some(sent) = sending.join_next().await {
        if let Ok(Err(error)) = sent {
            return cause(&error);
        }
    }
    "the session is closed".to_owned()
}

/// Sends a piece until the agent has it.
async fn deliver(
    carrier: &impl MailCarrier,
    request: MailRequest,
    bytes: Bytes,
) -> Result<(), RemoteError> {
    let (mut tries, end_offset) = (1, request.take + bytes.len() as u64);
    loop {
        let head = carrier.exchange(request, bytes.clone()).await?.head;
        if head.taken >= end_offset {
            return Ok(());
        }
        let why = if head.ended {
            AGENT_GONE.to_owned()
        } else if tries == MAX_TRIES {
            format!("the agent has {} bytes of {end_offset}", head.taken)
        } else {
            // Earlier pieces have not arrived yet.
            tries += 1;
            continue;
        };
        return Err(RemoteError::LinkCut { doing: "sending to the agent", why });
    }
}

const AGENT_GONE: &str = "the agent has ended";

/// Passes the agent's bytes to the session until the agent ends, and returns why it ended.
async fn fetch_from_agent(
    carrier: &impl MailCarrier,
    mut came: Mail,
    out: &mpsc::Sender<Vec<u8>>,
) -> String {
    let wait_ms = carrier.limits().wait_ms;
    let mut from = 0;
    loop {
        let Mail { head, bytes } = came;
        from += bytes.len() as u64;
        // An empty group would end the stream.
        if !bytes.is_empty() && out.send(bytes).await.is_err() {
            // The session was dropped, and the sender ends with it.
            return std::future::pending().await;
        }
        if head.ended {
            return AGENT_GONE.to_owned();
        }
        let begun = Instant::now();
        let request = MailRequest { from, wait_ms, ..MailRequest::default() };
        came = match carrier.exchange(request, Bytes::new()).await {
            Ok(mail) if mail.head.from == from => mail,
            Ok(_) => return "the agent's bytes are out of order".to_owned(),
            Err(error) => return cause(&error),
        };
        if came.bytes.is_empty() && !came.head.ended {
            tokio::time::sleep(MIN_REQUEST_INTERVAL.saturating_sub(begun.elapsed())).await;
        }
    }
}

/// Waits for bytes and also takes those already there; none: the end. Cancel-safe: received bytes
/// are in `bytes`.
async fn read_some(
    from: &mut DuplexStream,
    bytes: &mut Vec<u8>,
    limits: MailLimits,
) -> io::Result<()> {
    let MailLimits { piece_bytes, fill_pause, .. } = limits;
    let mut limited = from.take((piece_bytes - bytes.len()) as u64);
    if bytes.is_empty() && limited.read_buf(bytes).await? == 0 {
        return Ok(());
    }
    while bytes.len() < piece_bytes
        && let Ok(added) = tokio::time::timeout(fill_pause, limited.read_buf(bytes)).await
        && added? > 0
    {}
    Ok(())
}

/// Why a request failed, on one line.
fn cause(error: &RemoteError) -> String {
    match error {
        RemoteError::LinkCut { why, .. }
        | RemoteError::Http(HttpError::Cut { why, .. } | HttpError::Unreachable { why, .. }) => {
            why.clone()
        }
        RemoteError::Http(error) => error.line(),
        RemoteError::Wafer(error) => error.line(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_nonces_are_equal() {
        assert_ne!(nonce(), nonce());
        assert_eq!(nonce().len(), 32);
    }
}
