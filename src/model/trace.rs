//! What happened when: the document `trace.json` (`rgpu.trace/1`).
//!
//! The profile holds sums; the trace holds the single events that a timeline is drawn and analysed
//! from, whichever tool saw them (nsys, the CUPTI collector, torch.profiler). All times are
//! nanoseconds since the first event. Lists are bounded; what was cut is said in `cut`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema's name, in every document.
pub const SCHEMA: &str = "rgpu.trace/1";

/// Events of one run or report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// [`SCHEMA`].
    pub schema: String,
    /// From the first event to the end of the last, in nanoseconds.
    pub span_ns: u64,
    /// Names that events refer to by index.
    #[serde(default)]
    pub names: Vec<String>,
    /// The regions that the listed ranges belong to, parents before children.
    #[serde(default)]
    pub regions: Vec<TraceRegion>,
    /// Work on the GPU, by start.
    #[serde(default)]
    pub work: Vec<Work>,
    /// NVTX ranges, by start.
    #[serde(default)]
    pub ranges: Vec<RangeEvent>,
    /// Calls into CUDA on the host, by start.
    #[serde(default)]
    pub calls: Vec<CallEvent>,
    /// How many events of each kind there are beyond those listed.
    #[serde(default)]
    pub cut: Cut,
    /// The artifact it came from, as its path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// One piece of work on the GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Work {
    /// What it was.
    pub kind: WorkKind,
    /// Index into `names`: the kernel's demangled name, or `HtoD`, `DtoH`, `memset`, `graph` …
    pub name: u32,
    /// Start.
    pub start_ns: u64,
    /// Duration.
    pub duration_ns: u64,
    /// GPU as the tool numbers it.
    pub device: u32,
    /// CUDA stream.
    pub stream: u64,
    /// Bytes, of copies and fills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The call (index into `calls`) that asked for it, where known and listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u32>,
    /// The launch in the profile, of kernels listed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<u32>,
    /// The regions (indexes into `regions`) in which it was launched: the innermost push/pop one
    /// first, without its ancestors, then every start/end one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<u32>,
}

impl Work {
    /// When it ended, in nanoseconds since the first event.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// A region as events refer to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceRegion {
    /// The path, as in [`super::Region`].
    pub path: Vec<String>,
    /// The region around it (index into `regions`); none for outermost and start/end regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Whether its ranges are start/end ones.
    #[serde(default)]
    pub start_end: bool,
}

/// Kinds of GPU work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// A kernel.
    Kernel,
    /// A copy.
    Copy,
    /// A fill.
    Set,
    /// A whole CUDA graph.
    Graph,
}

/// One instance of an NVTX range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RangeEvent {
    /// Index into `names`: `name`, or `domain@name`.
    pub name: u32,
    /// Start.
    pub start_ns: u64,
    /// Duration; absent where the range was never closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<u64>,
    /// Thread, as the tool numbers it.
    pub thread: u64,
    /// How many ranges of this thread are around it.
    pub depth: u32,
    /// Whether it was opened by start and closed by its id, and may cross threads.
    #[serde(default)]
    pub start_end: bool,
    /// The region it is an instance of (index into `regions`), where the tool tells how ranges
    /// nest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<u32>,
}

/// One call into CUDA.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallEvent {
    /// Index into `names`: `cudaLaunchKernel` …
    pub name: u32,
    /// Start.
    pub start_ns: u64,
    /// Duration.
    pub duration_ns: u64,
    /// Thread, as the tool numbers it.
    pub thread: u64,
    /// Whether it waits for the GPU by its meaning: a synchronisation.
    #[serde(default)]
    pub waits: bool,
}

/// Events beyond those listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cut {
    /// Work left out.
    #[serde(default)]
    pub work: u64,
    /// Ranges left out.
    #[serde(default)]
    pub ranges: u64,
    /// Calls left out.
    #[serde(default)]
    pub calls: u64,
}
