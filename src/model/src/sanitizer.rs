//! Findings of compute-sanitizer, or of the runner's guarded run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;

/// Result of one sanitizer tool.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SanitizerResult {
    /// Name of the tool: `memcheck`, `racecheck`, `initcheck`, `synccheck`, or `guard` for the
    /// runner's guarded run.
    pub tool: CheckTool,
    /// Number of the rank that it checked; absent for a whole program.
    pub rank: Option<u32>,
    /// `clean` only if the tool itself reports no error of the program; else `found` or `unknown`.
    pub verdict: SanitizerVerdict,
    /// Number of errors in the tool's summary, less those that `note` says are not counted.
    pub errors: Option<u64>,
    /// Causes, each with the records that follow from it.
    #[serde(default)]
    pub causes: Vec<SanitizerCause>,
    /// Why the verdict is `unknown`, in the tool's words, and what is not counted or not seen.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The artifact that it comes from, as its path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

impl SanitizerResult {
    /// The tool, with the rank that it checked: `memcheck`, `memcheck of rank 1`.
    pub fn title(&self) -> String {
        match self.rank {
            Some(rank) => format!("{} of rank {rank}", self.tool),
            None => self.tool.to_string(),
        }
    }
}

/// One cause of errors.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SanitizerCause {
    /// Kind of error: `out_of_bounds`, `misaligned`, `race`, `uninitialized`, `barrier`, `leak`,
    /// `api_error` …
    pub kind: FaultKind,
    /// First line of the tool's message.
    pub text: String,
    /// Name of the kernel, if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// Source file as the compiler recorded it, translated to the local path if possible.
    pub file: Option<String>,
    /// Line number in `file`.
    pub line: Option<u32>,
    /// Number of times it was reported (threads, hazards).
    pub count: u64,
    /// Block of the first report, in x, y, z.
    pub block: Option<[u32; 3]>,
    /// Thread of the first report, in x, y, z.
    pub thread: Option<[u32; 3]>,
    /// Further lines of the tool's message: the nearest allocation, the other access of a race.
    #[serde(default)]
    pub details: Vec<String>,
    /// Number of records that only follow from this cause.
    #[serde(default)]
    pub follow_ups: u64,
}

open_enum! {
    /// A tool that looks for faults.
    pub enum CheckTool {
        /// Accesses outside of memory.
        Memcheck = "memcheck",
        /// Races on shared memory.
        Racecheck = "racecheck",
        /// Reads of memory that nobody wrote.
        Initcheck = "initcheck",
        /// Wrong use of barriers.
        Synccheck = "synccheck",
        /// The runner's guarded run.
        Guard = "guard",
        /// Compute Sanitizer, by a log that does not name the tool.
        Sanitizer = "sanitizer",
    }
}

open_enum! {
    /// Result of a tool that looks for faults.
    pub enum SanitizerVerdict {
        /// The tool itself reports zero errors.
        Clean = "clean",
        /// It found at least one error.
        Found = "found",
        /// It reported neither, so nothing is known.
        Unknown = "unknown",
    }
}

open_enum! {
    /// Kind of a fault.
    pub enum FaultKind {
        /// An access outside of memory.
        OutOfBounds = "out_of_bounds",
        /// An address that is not a multiple of the access's size.
        Misaligned = "misaligned",
        /// Another access that is not allowed.
        InvalidAccess = "invalid_access",
        /// A failed call of CUDA.
        ApiError = "api_error",
        /// Memory that was never freed.
        Leak = "leak",
        /// A read of memory that nobody wrote.
        Uninitialized = "uninitialized",
        /// Memory that nobody used.
        UnusedMemory = "unused_memory",
        /// An access of the host to memory of the GPU.
        HostAccess = "host_access",
        /// Wrong use of a barrier.
        Barrier = "barrier",
        /// Two accesses without an order.
        Race = "race",
        /// An output that was not written whole.
        Unwritten = "unwritten",
        /// An input that was written.
        InputWritten = "input_written",
        /// Any other error of the tool.
        Unnamed = "other",
    }
}
