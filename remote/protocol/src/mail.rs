//! A conversation with an agent where only short commands can be run: what both sides must spell
//! alike.
//!
//! A platform that runs commands and shows what they print, and nothing else, carries the frames of
//! a conversation all the same: each command brings bytes for the agent and takes some of its own.
//! Both are counted from the beginning, so that a command may be run twice, or its output be lost,
//! and nothing is: bytes that came before are passed over, and those that were not confirmed are
//! shown again.
//!
//! `rgpu-agent mail CONVERSATION TAKE FROM WAIT_MS NONCE [begin|eof]` reads base64 on standard input, the
//! client's bytes from byte `TAKE` on, waits for bytes of the agent's beyond byte `FROM` and prints:
//!
//! ```text
//! rgpu-mail-1 NONCE {"taken":120,"from":4096,"len":700,"sha256":"…","ended":false}
//! base64, in lines
//! rgpu-mail-end NONCE
//! ```
//!
//! What stands before the first line is none of it. An answer without its last line was cut.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// What the first line of an answer begins with.
pub const BEGIN: &str = "rgpu-mail-1";

/// What its last line begins with.
pub const END: &str = "rgpu-mail-end";

/// The characters of a line of base64.
pub const LINE: usize = 4096;

/// The longest name of a conversation: lower hex.
pub const NAME: usize = 32;

/// Bytes of the agent's that one answer brings at most.
pub const MOST: usize = 1 << 20;

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailHead {
    /// Bytes of the client's that the agent has had.
    pub taken: u64,
    /// Where the bytes of this answer begin among the agent's.
    pub from: u64,
    /// How many they are.
    pub len: u64,
    /// sha256 of them.
    pub sha256: Digest,
    /// Whether the agent says nothing more, ever.
    pub ended: bool,
}

impl MailHead {
    /// Of a conversation that is not there any more.
    pub fn gone(from: u64) -> Self {
        // sha256 of nothing.
        const NOTHING: [u8; 32] = [
            0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f,
            0xb9, 0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b,
            0x78, 0x52, 0xb8, 0x55,
        ];
        Self { taken: 0, from, len: 0, sha256: Digest::from_bytes(&NOTHING), ended: true }
    }
}

/// Whether this can be the name of a conversation.
pub fn valid_name(name: &str) -> bool {
    (1..=NAME).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
