//! The one hash of the project: sha256, written as 64 lower-case hex digits.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A sha256 in lower-case hex. Parsing checks the form, so a digest is safe as a file name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// Returns the sha256 of `bytes` as raw bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The text is not a digest.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a sha256 in lower hex")]
pub struct NotADigest(String);

impl Digest {
    /// Formats 32 raw bytes.
    pub fn from_bytes(raw: &[u8; 32]) -> Self {
        // Faster than formatting: a large binary has thousands of digests.
        let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
        Self(raw.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect())
    }

    /// Returns the sha256 of `bytes`.
    pub fn sha256(bytes: &[u8]) -> Self {
        Self::from_bytes(&sha256(bytes))
    }

    /// Returns the digest of all pieces of a file: the sha256 of their concatenated sha256s, like a
    /// composite checksum in Amazon S3 (User Guide, "Checking object integrity").
    pub fn composite(pieces: &[[u8; 32]]) -> Self {
        Self::sha256(pieces.as_flattened())
    }

    /// Returns the 64 hex digits.
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

    #[test]
    fn a_composite_is_the_sha256_of_sha256s() {
        // printf a | sha256sum; (printf a | sha256sum | xxd -r -p; printf b | …) | sha256sum
        let a = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
        let ab = "e5a01fee14e0ed5c48714f22180f25ad8365b53f9779f79dc4a3d7e93963f94a";
        assert_eq!(Digest::sha256(b"a").as_str(), a);
        assert_eq!(Digest::composite(&[sha256(b"a"), sha256(b"b")]).as_str(), ab);
    }
}
