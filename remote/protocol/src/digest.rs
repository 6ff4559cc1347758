//! The one hash of the project: sha256, written as 64 lower-case hex digits.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A sha256 in lower hex. Parsing checks the form, so a digest can be used as a file name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// A text that is no digest.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a sha256 in lower hex")]
pub struct NotADigest(String);

impl Digest {
    /// The digest of 32 raw bytes.
    pub fn from_bytes(raw: &[u8; 32]) -> Self {
        use fmt::Write;
        let mut text = String::with_capacity(64);
        for byte in raw {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// The 64 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Digest {
    type Error = NotADigest;

    fn try_from(text: String) -> Result<Self, NotADigest> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 64 && text.bytes().all(hex) {
            Ok(Self(text))
        } else {
            Err(NotADigest(text.chars().take(80).collect()))
        }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", &self.0[..12])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_64_lower_hex_digits_and_nothing_else() {
        assert!(Digest::try_from("a".repeat(64)).is_ok());
        assert!(Digest::try_from("A".repeat(64)).is_err());
        assert!(Digest::try_from("../".repeat(22)).is_err());
        assert_eq!(Digest::from_bytes(&[0xab; 32]).as_str(), "ab".repeat(32));
    }
}
