//! The size of an element: whole bytes, or the half byte of FP4.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The size of an element: 0.5 bytes (4 bits), or 1 to 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElementSize {
    bits: i64,
}

/// The reason why a number is not a valid size of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an element has 0.5 bytes (4 bits) or 1 to 16 whole bytes")]
pub struct ElementSizeError;

impl ElementSize {
    /// 4 bits, the size of E2M1.
    pub const HALF_BYTE: Self = Self { bits: 4 };

    /// A size in whole bytes.
    ///
    /// # Errors
    /// If it is not from 1 to 16.
    pub fn from_bytes(bytes: i64) -> Result<Self, ElementSizeError> {
        if (1..=16).contains(&bytes) { Ok(Self { bits: 8 * bytes }) } else { Err(ElementSizeError) }
    }

    /// The size in bits.
    pub fn bits(self) -> i64 {
        self.bits
    }
}

impl FromStr for ElementSize {
    type Err = ElementSizeError;

    /// `0.5`, or whole bytes.
    fn from_str(text: &str) -> Result<Self, ElementSizeError> {
        match text {
            "0.5" | ".5" => Ok(Self::HALF_BYTE),
            bytes => Self::from_bytes(bytes.parse().map_err(|_| ElementSizeError)?),
        }
    }
}

impl fmt::Display for ElementSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits {
            4 => f.write_str("0.5"),
            bits => write!(f, "{}", bits / 8),
        }
    }
}

impl Serialize for ElementSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.bits {
            4 => serializer.serialize_f64(0.5),
            bits => serializer.serialize_i64(bits / 8),
        }
    }
}
