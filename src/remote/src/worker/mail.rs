//! Carries the frames of a session in requests to a worker.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rgpu_protocol::PIECE_BYTES;
use rgpu_protocol::mail::{HEAD_HEADER, MailHead, MailRequest};

use super::requests::{WorkerClient, WorkerRequest};
use crate::http::{GREETING, HttpError};
use crate::mail::{Mail, MailCarrier, MailLimits, nonce};
use crate::{RemoteError, limits};

/// How long a request waits for the agent's bytes, in milliseconds. Without any answer for much
/// longer, the link counts as dead.
const WAIT_MS: u64 = 10_000;
const MAX_SILENCE: Duration = Duration::from_secs(40);

const DOING: &str = "talking to the agent";

/// One conversation with the agent of a worker.
pub(super) struct WorkerMail {
    client: Arc<WorkerClient>,
    name: String,
}

impl WorkerMail {
    /// A conversation that has not begun.
    pub(super) fn new(client: Arc<WorkerClient>) -> Self {
        Self { client, name: nonce() }
    }

    /// Starts the agent and returns its first bytes.
    pub(super) async fn begin(&self) -> Result<Mail, HttpError> {
        let request = MailRequest { begin: true, wait_ms: WAIT_MS, ..MailRequest::default() };
        self.send(request, Bytes::new(), GREETING, limits::CONNECT_TIMEOUT).await
    }

    async fn send(
        &self,
        request: MailRequest,
        bytes: Bytes,
        doing: &'static str,
        limit: Duration,
    ) -> Result<Mail, HttpError> {
        let MailRequest { take, from, wait_ms, begin, eof } = request;
        let path = format!(
            "/v1/mail/{}?take={take}&from={from}&wait_ms={wait_ms}&begin={begin}&eof={eof}",
            self.name
        );
        let answer =
            self.client.send(WorkerRequest::post(path, bytes, doing).within(limit)).await?;
        let head = answer.headers.get(HEAD_HEADER);
        let head: Option<MailHead> = head.and_then(|h| serde_json::from_slice(h.as_bytes()).ok());
        match head {
            Some(head) => Ok(Mail { head, bytes: answer.body }),
            None => Err(self.client.foreign_answer(&answer.body)),
        }
    }
}

#[async_trait::async_trait]
impl MailCarrier for WorkerMail {
    fn limits(&self) -> MailLimits {
        MailLimits {
            piece_bytes: PIECE_BYTES as usize,
            fill_pause: Duration::ZERO,
            wait_ms: WAIT_MS,
        }
    }

    async fn exchange(&self, request: MailRequest, bytes: Bytes) -> Result<Mail, RemoteError> {
        // A piece may take long on a slow link.
        let limit = if bytes.is_empty() { MAX_SILENCE } else { limits::STALL_TIMEOUT };
        Ok(self.send(request, bytes, DOING, limit).await?)
    }
}
