//! What compute-sanitizer (or the runner's guarded run) found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The result of one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SanitizerResult {
    /// `memcheck`, `racecheck`, `initcheck`, `synccheck`, or `guard` for the runner's own.
    pub tool: String,
    /// `clean` only on that tool's own explicit zero; else `found` or `unknown`.
    pub verdict: String,
    /// Errors as the tool counts them in its summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<u64>,
    /// Causes: follow-up records are grouped under what set them off.
    #[serde(default)]
    pub causes: Vec<SanitizerCause>,
    /// Why the verdict is unknown, in the tool's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The artifact: path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// One cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SanitizerCause {
    /// `out_of_bounds`, `misaligned`, `race`, `uninitialized`, `barrier`, `leak`, `api_error` …
    pub kind: String,
    /// The tool's own head line.
    pub text: String,
    /// The kernel, where known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// Source file as the compiler recorded it, translated to the local path where possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// How often it was reported (threads, hazards).
    pub count: u64,
    /// Block and thread of the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<[u32; 3]>,
    /// See `block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<[u32; 3]>,
    /// More of the tool's words: the nearest allocation, the other access of a race.
    #[serde(default)]
    pub details: Vec<String>,
    /// Records that merely follow from this cause.
    #[serde(default)]
    pub follow_ups: u64,
}
