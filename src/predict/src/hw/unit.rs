//! The units that hardware files may use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Unit {
    /// A count, without unit.
    #[serde(rename = "count")]
    Count,
    /// 10^6 Hz.
    #[serde(rename = "MHz")]
    Megahertz,
    /// 10^12 FLOP a second.
    #[serde(rename = "TFLOP/s")]
    Teraflops,
    /// 10^15 FLOP a second.
    #[serde(rename = "PFLOP/s")]
    Petaflops,
    /// 10^9 bytes a second.
    #[serde(rename = "GB/s")]
    GigabytesPerSecond,
    /// 10^12 bytes a second.
    #[serde(rename = "TB/s")]
    TerabytesPerSecond,
    /// 10^9 bits a second.
    #[serde(rename = "Gb/s")]
    GigabitsPerSecond,
    /// Bytes a clock, for the whole GPU.
    #[serde(rename = "B/clk")]
    BytesPerClock,
    /// Bytes a clock, for each SM.
    #[serde(rename = "B/clk/SM")]
    BytesPerClockSm,
    /// 10^6 bytes.
    #[serde(rename = "MB")]
    Megabytes,
    /// 10^9 bytes.
    #[serde(rename = "GB")]
    Gigabytes,
    /// 10^12 bytes.
    #[serde(rename = "TB")]
    Terabytes,
    /// 2^20 bytes.
    #[serde(rename = "MiB")]
    Mebibytes,
    /// 2^30 bytes.
    #[serde(rename = "GiB")]
    Gibibytes,
    /// 2^10 bytes for each SM.
    #[serde(rename = "KiB/SM")]
    KibibytesPerSm,
    /// 32-bit words for each SM.
    #[serde(rename = "word/SM")]
    WordsPerSm,
}

/// The physical quantity of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A count, without unit.
    Count,
    /// A frequency; its base unit is Hz.
    Frequency,
    /// A compute rate; its base unit is FLOP/s.
    Compute,
    /// A data rate; its base unit is B/s.
    Bandwidth,
    /// A size; its base unit is bytes.
    Capacity,
}

impl Unit {
    /// `value` of this unit in Hz, FLOP/s, B/s, B, or bytes a clock.
    #[must_use]
    pub fn base(self, value: f64) -> f64 {
        value
            * match self {
                Self::Count | Self::BytesPerClock | Self::BytesPerClockSm => 1.0,
                Self::Megahertz | Self::Megabytes => 1e6,
                Self::Teraflops | Self::TerabytesPerSecond | Self::Terabytes => 1e12,
                Self::Petaflops => 1e15,
                Self::GigabytesPerSecond | Self::Gigabytes => 1e9,
                Self::GigabitsPerSecond => 1e9 / 8.0,
                Self::Mebibytes => 1_048_576.0,
                Self::Gibibytes => 1_073_741_824.0,
                Self::KibibytesPerSm => 1024.0,
                Self::WordsPerSm => 4.0,
            }
    }

    /// The quantity that this unit measures.
    #[must_use]
    pub fn quantity(self) -> Quantity {
        match self {
            Self::Count => Quantity::Count,
            Self::Megahertz => Quantity::Frequency,
            Self::Teraflops | Self::Petaflops => Quantity::Compute,
            Self::GigabytesPerSecond
            | Self::TerabytesPerSecond
            | Self::GigabitsPerSecond
            | Self::BytesPerClock
            | Self::BytesPerClockSm => Quantity::Bandwidth,
            Self::Megabytes
            | Self::Gigabytes
            | Self::Terabytes
            | Self::Mebibytes
            | Self::Gibibytes
            | Self::KibibytesPerSm
            | Self::WordsPerSm => Quantity::Capacity,
        }
    }

    /// Whether a number of this unit is for each SM.
    #[must_use]
    pub fn is_per_sm(self) -> bool {
        matches!(self, Self::BytesPerClockSm | Self::KibibytesPerSm | Self::WordsPerSm)
    }
}
