//! A connection to an agent over requests with answers: the definitions that both sides share.
//!
//! Where only short commands can be run, or an HTTP server answers requests, each of them brings
//! bytes of the frame stream for the agent and returns some of the agent's. Both directions are
//! counted from the beginning, so nothing is lost or repeated if a request comes twice or its
//! answer is lost: bytes received before are skipped, and unconfirmed bytes are sent again. Several
//! requests may be on their way at once.
//!
//! Over HTTP, a request is `POST /v1/mail/CONVERSATION?…` with the fields of [`MailRequest`] as its
//! query and the client's bytes as its body. The answer's body are the agent's bytes, and its
//! header [`HEAD_HEADER`] is a [`MailHead`].
//!
//! As a command, `rgpu-agent mail CONVERSATION TAKE FROM WAIT_MS NONCE [begin|eof]` reads base64 on
//! standard input, and prints:
//!
//! ```text
//! rgpu-mail-1 NONCE {"taken":120,"from":4096,"ended":false,"len":700,"sha256":"…"}
//! base64, in lines
//! rgpu-mail-end NONCE
//! ```
//!
//! Text before the first line is ignored. An answer without its last line was cut off.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// First word of a printed answer's first line.
pub const ANSWER_BEGIN: &str = "rgpu-mail-1";

/// First word of a printed answer's last line.
pub const ANSWER_END: &str = "rgpu-mail-end";

/// Length of a line of base64, in characters.
pub const BASE64_LINE_CHARS: usize = 4096;

/// Longest name of a conversation (lower-case hex), in characters.
pub const MAX_NAME_CHARS: usize = 32;

/// Most bytes from the agent in one printed answer.
pub const MAX_PRINTED_BYTES: usize = 1 << 20;

/// Most bytes of one request or answer over HTTP.
pub const MAX_HTTP_BYTES: usize = 4 << 20;

/// The header of an answer over HTTP with its [`MailHead`].
pub const HEAD_HEADER: &str = "rgpu-mail";

/// A client's request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MailRequest {
    /// Offset of the request's bytes in the client's stream.
    pub take: u64,
    /// Offset of the first byte to send of the agent's stream. Those before it are confirmed.
    pub from: u64,
    /// How long to wait for bytes from the agent.
    pub wait_ms: u64,
    /// Whether to start the agent, unless that was done before.
    pub begin: bool,
    /// Whether the client's stream ends after the request's bytes.
    pub eof: bool,
}

/// The header of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailHead {
    /// Bytes that the agent has received from the client so far.
    pub taken: u64,
    /// Offset of this answer's bytes in the agent's stream.
    pub from: u64,
    /// Whether the agent's stream has ended.
    pub ended: bool,
}

impl MailHead {
    /// Returns the answer for a conversation that no longer exists.
    #[must_use]
    pub fn gone(from: u64) -> Self {
        Self { taken: 0, from, ended: true }
    }
}

/// The header of a printed answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrintedHead {
    /// The header.
    #[serde(flatten)]
    pub head: MailHead,
    /// Number of bytes in this answer.
    pub len: u64,
    /// sha256 of those bytes.
    pub sha256: Digest,
}

impl PrintedHead {
    /// Returns the header of an answer with these bytes.
    #[must_use]
    pub fn new(head: MailHead, bytes: &[u8]) -> Self {
        Self { head, len: bytes.len() as u64, sha256: Digest::sha256(bytes) }
    }
}

/// Returns whether `name` is a valid name of a conversation.
pub fn valid_name(name: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
