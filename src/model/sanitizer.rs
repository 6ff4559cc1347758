//! Findings of compute-sanitizer, or of the runner's guarded run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Result of one sanitizer tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SanitizerResult {
    /// Name of the tool: `memcheck`, `racecheck`, `initcheck`, `synccheck`, or `guard` for the
    /// runner's guarded run.
    pub tool: String,
    /// `clean` only if the tool itself reports zero errors; else `found` or `unknown`.
    pub verdict: String,
    /// Number of errors in the tool's summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Causes, each with the records that follow from it.
    #[serde(default)]
    pub causes: Vec<SanitizerCause>,
    /// Why the verdict is `unknown`, in the tool's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The artifact that it comes from, as its path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// One cause of errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SanitizerCause {
    /// Kind of error: `out_of_bounds`, `misaligned`, `race`, `uninitialized`, `barrier`, `leak`,
    /// `api_error` …
    pub kind: String,
    /// First line of the tool's message.
    pub text: String,
    /// Name of the kernel, if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// Source file as the compiler recorded it, translated to the local path if possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line number in `file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Number of times it was reported (threads, hazards).
    pub count: u64,
    /// Block of the first report, in x, y, z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<[u32; 3]>,
    /// Thread of the first report, in x, y, z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<[u32; 3]>,
    /// Further lines of the tool's message: the nearest allocation, the other access of a race.
    #[serde(default)]
    pub details: Vec<String>,
    /// Number of records that only follow from this cause.
    #[serde(default)]
    pub follow_ups: u64,
}
