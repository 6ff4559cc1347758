//! A connection to an agent over short commands: the definitions that both sides share.
//!
//! On a platform that only runs commands and shows their output, each command brings bytes of the
//! frame stream for the agent and returns some of the agent's. Both directions are counted from the
//! beginning, so nothing is lost or repeated if a command runs twice or its output is lost: bytes
//! received before are skipped, and unconfirmed bytes are printed again.
//!
//! `rgpu-agent mail CONVERSATION TAKE FROM WAIT_MS NONCE [begin|eof]` reads base64 on standard
//! input (the client's bytes from byte `TAKE` on), waits for bytes from the agent beyond byte
//! `FROM`, and prints:
//!
//! ```text
//! rgpu-mail-1 NONCE {"taken":120,"from":4096,"len":700,"sha256":"…","ended":false}
//! base64, in lines
//! rgpu-mail-end NONCE
//! ```
//!
//! Text before the first line is ignored. An answer without its last line was cut off.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// First word of an answer's first line.
pub const ANSWER_BEGIN: &str = "rgpu-mail-1";

/// First word of an answer's last line.
pub const ANSWER_END: &str = "rgpu-mail-end";

/// Length of a line of base64, in characters.
pub const BASE64_LINE_CHARS: usize = 4096;

/// Longest name of a conversation (lower-case hex), in characters.
pub const MAX_NAME_CHARS: usize = 32;

/// Most bytes from the agent in one answer.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The header of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailHead {
    /// Bytes that the agent has received from the client so far.
    pub taken: u64,
    /// Offset of this answer's bytes in the agent's stream.
    pub from: u64,
    /// Number of bytes in this answer.
    pub len: u64,
    /// sha256 of those bytes.
    pub sha256: Digest,
    /// Whether the agent's stream has ended.
    pub ended: bool,
}

impl MailHead {
    /// Returns the answer for a conversation that no longer exists.
    pub fn gone(from: u64) -> Self {
        // The sha256 of no bytes.
        const NOTHING: [u8; 32] = [
            0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f,
            0xb9, 0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b,
            0x78, 0x52, 0xb8, 0x55,
        ];
        Self { taken: 0, from, len: 0, sha256: Digest::from_bytes(&NOTHING), ended: true }
    }
}

/// Returns whether `name` is a valid name of a conversation.
pub fn valid_name(name: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
