//! Standard input of a followed job.

use rgpu_protocol::ToAgent;
use rgpu_protocol::frame::FrameKind;

use crate::RemoteError;
use crate::stream::FrameWriter;

/// Sends a job's standard input. Does not borrow the session, which must be read while input waits:
/// a program may print as much as it reads.
#[derive(Clone)]
pub struct JobStdin {
    pub(super) job: String,
    pub(super) writer: FrameWriter,
    /// Whether the agent takes the offset of each chunk and skips input that the job already has.
    pub(super) takes_offset: bool,
}

impl JobStdin {
    /// Whether all input may be sent again over a new link, because the agent skips the part that
    /// the job already has.
    pub fn may_repeat(&self) -> bool {
        self.takes_offset
    }

    /// Sends the start of `bytes`, which begin at `offset` of the whole input, and returns how many
    /// were sent. Cancel-safe: a dropped call has sent nothing.
    pub async fn send(&self, offset: u64, bytes: &[u8]) -> Result<usize, RemoteError> {
        let bytes = &bytes[..bytes.len().min(rgpu_protocol::frame::MAX_BODY)];
        self.send_chunk(offset, bytes, false).await.map(|()| bytes.len())
    }

    /// Ends the input, whose length is `offset` bytes. Cancel-safe.
    pub async fn end(&self, offset: u64) -> Result<(), RemoteError> {
        self.send_chunk(offset, &[], true).await
    }

    async fn send_chunk(&self, offset: u64, bytes: &[u8], eof: bool) -> Result<(), RemoteError> {
        let offset = self.takes_offset.then_some(offset);
        let message =
            ToAgent::Stdin { job: self.job.clone(), len: bytes.len() as u64, eof, offset };
        self.writer.send_with_bytes(&message, FrameKind::Output, bytes).await
    }
}
