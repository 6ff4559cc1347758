//! Single events in time order: the document `trace.json` (`rgpu.trace/1`).
//!
//! The profile holds sums; the trace holds the events that a timeline is drawn and analysed from,
//! whichever tool recorded them (nsys, the CUPTI collector, torch.profiler). All times are
//! nanoseconds since the first event. In memory the lists have millions of events;
//! [`Trace::cut_to_document`] leaves those of the document. `cut` counts the events left out.

mod document;
mod stacks;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::memory::MemoryPoint;
use super::ranks::RankLocation;
use super::shared_list::SharedList;

pub use document::MAX_LISTED;
pub use stacks::{CodeFrame, StackMaker, Stacks};

/// The schema name that every trace carries.
pub const SCHEMA: &str = "rgpu.trace/1";

/// Events of one run or report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// Name and version of this schema: `rgpu.trace/1`.
    pub schema: String,
    /// Time from the start of the first event to the end of the last, in nanoseconds.
    pub span_ns: u64,
    /// Names that events refer to by index.
    #[serde(default)]
    pub names: Vec<String>,
    /// The regions that the listed ranges belong to, parents before children.
    #[serde(default)]
    pub regions: Vec<TraceRegion>,
    /// Work on the GPU, in order of start.
    #[serde(default)]
    pub work: Vec<TraceWork>,
    /// Grids and blocks of kernels, which work refers to by index; empty if the tool does not tell.
    /// They are not in the document.
    #[serde(skip)]
    pub shapes: Vec<KernelShape>,
    /// NVTX ranges, in order of start.
    #[serde(default)]
    pub ranges: Vec<RangeEvent>,
    /// Calls into CUDA on the host, in order of start.
    #[serde(default)]
    pub calls: Vec<CallEvent>,
    /// What threads of the host did, in order of start; empty unless the trace of a framework
    /// tells. They are not in the document: the trace that they come from has them.
    #[serde(skip)]
    pub host: Vec<HostEvent>,
    /// From where in the program CUDA was called; empty unless the recording has stacks. They are
    /// not in the document.
    #[serde(skip)]
    pub stacks: Stacks,
    /// The ranks of the program, by number; empty for one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankLocation>,
    /// Memory of a framework's allocator, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryPoint>,
    /// Number of events of each kind that are not listed.
    #[serde(default)]
    pub cut: UnlistedEvents,
    /// The artifact that the events come from, as its path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// One piece of work on the GPU.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceWork {
    /// The kind of GPU work.
    pub kind: TraceWorkKind,
    /// Index into `names`: the kernel's demangled name, or `HtoD`, `DtoH`, `memset`, `graph` …
    pub name: u32,
    /// Start in nanoseconds since the first event.
    pub start_ns: u64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
    /// Number of the GPU in the tool's numbering.
    pub device: u32,
    /// Number of the CUDA stream.
    pub stream: u64,
    /// Bytes copied or set; only for copies and memsets.
    pub bytes: Option<u64>,
    /// Whether the host's side of a copy is pageable memory, not pinned; absent if the copy has no
    /// side on the host, or the tool does not tell.
    pub pageable: Option<bool>,
    /// The call that submitted it (index into `calls`), if known and listed.
    pub call: Option<u32>,
    /// Id of the launch in the profile, for kernels listed there.
    pub launch: Option<u32>,
    /// Regions in which it was launched (indexes into `regions`): the innermost push/pop region
    /// first, without its ancestors, then every start/end region.
    #[serde(default, skip_serializing_if = "SharedList::is_empty")]
    pub regions: SharedList<u32>,
    /// Number of the rank; absent for one process.
    pub rank: Option<u32>,
    /// The kernel's shape (index into `shapes`): launches of the same grid, block and shared memory
    /// have the same. `None` if the tool does not tell. It is not in the document.
    #[serde(skip)]
    pub shape: Option<u32>,
}

impl TraceWork {
    /// End in nanoseconds since the first event.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// What the launch of a kernel asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelShape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads per block in x, y, z.
    pub block: [u32; 3],
}

impl KernelShape {
    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        product(self.grid)
    }

    /// Number of threads of a block.
    pub fn threads(&self) -> u64 {
        product(self.block)
    }
}

fn product(sides: [u32; 3]) -> u64 {
    sides.iter().fold(1, |product: u64, side| product.saturating_mul(u64::from(*side)))
}

/// A region that events refer to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceRegion {
    /// Path, as in [`super::Region`].
    pub path: Vec<String>,
    /// The enclosing region (index into `regions`); absent for outermost and start/end regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Whether its ranges were opened with start/end, not push/pop.
    #[serde(default)]
    pub start_end: bool,
}

/// Kinds of GPU work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TraceWorkKind {
    /// A kernel launch.
    #[default]
    Kernel,
    /// A memory copy.
    Copy,
    /// A memset.
    Set,
    /// A whole CUDA graph.
    Graph,
}

/// One instance of an NVTX range.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RangeEvent {
    /// Index into `names`: `name`, or `domain@name`.
    pub name: u32,
    /// Start in nanoseconds since the first event.
    pub start_ns: u64,
    /// Duration in nanoseconds; absent if the range was never closed.
    pub duration_ns: Option<u64>,
    /// Id of the thread, as the tool gives it.
    pub thread: u64,
    /// Number of ranges of this thread around it.
    pub depth: u32,
    /// Whether it was opened with start and closed by its id, so that it may cross threads.
    #[serde(default)]
    pub start_end: bool,
    /// The region that it is an instance of (index into `regions`), if the tool reports how ranges
    /// nest.
    pub region: Option<u32>,
    /// Number of the rank; absent for one process.
    pub rank: Option<u32>,
}

/// One call into CUDA on the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallEvent {
    /// Index into `names`: `cudaLaunchKernel` …
    pub name: u32,
    /// Start in nanoseconds since the first event.
    pub start_ns: u64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
    /// Id of the thread, as the tool gives it.
    pub thread: u64,
    /// Whether the call waits for the GPU: a synchronisation, a copy that does not return before
    /// the GPU has reached it, or one that frees memory of a GPU at work.
    #[serde(default)]
    pub waits: bool,
    /// Number of the rank; absent for one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

/// A call of an operator, a range or a Python function on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEvent {
    /// The operator or range; `None` for a function.
    pub operator: Option<Arc<str>>,
    /// The function, or the one that called the operator; `None` if the trace does not tell.
    pub function: Option<Arc<str>>,
    /// Start in nanoseconds since the first event.
    pub start_ns: u64,
    /// Duration in nanoseconds, with the calls inside.
    pub duration_ns: u64,
    /// Id of the thread, as calls have it.
    pub thread: u64,
}

/// Number of events that are not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnlistedEvents {
    /// GPU work left out.
    #[serde(default)]
    pub work: u64,
    /// Number of ranges left out.
    #[serde(default)]
    pub ranges: u64,
    /// Number of calls left out.
    #[serde(default)]
    pub calls: u64,
}
