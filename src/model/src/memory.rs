//! Memory of a framework's allocator on a GPU: its peaks go into the profile, its course over time
//! into `trace.json`. Both come from torch's trace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest use of one GPU's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryUse {
    /// Number of the GPU.
    pub device: u32,
    /// Largest number of bytes in tensors.
    pub peak_allocated_bytes: u64,
    /// Largest number of bytes that the allocator held.
    pub peak_reserved_bytes: u64,
    /// Bytes of the GPU; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// The part of the program over which the peaks were taken.
    pub scope: MemoryScope,
    /// Source of the numbers: path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// The state of a GPU's allocator at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryPoint {
    /// Time in nanoseconds since the first event of the trace.
    pub at_ns: u64,
    /// Number of the GPU.
    pub device: u32,
    /// Bytes that the allocator has given to tensors.
    pub allocated_bytes: u64,
    /// Bytes that the allocator held.
    pub reserved_bytes: u64,
}

super::open_enum::open_enum! {
    /// Part of a program.
    pub enum MemoryScope {
        /// From the program's start until its recording ended.
        Program = "program",
        /// Only while the trace was recorded.
        Trace = "trace",
    }
}
