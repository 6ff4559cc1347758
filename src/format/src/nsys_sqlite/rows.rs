//! The rows of the event tables.
//!
//! Times are nanoseconds since the start of the capture. Ids of strings are resolved through
//! [`super::Strings`].

use super::table::{Fields, Strings};

/// Key of `StringIds`.
pub type StringId = i64;

/// A kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// CUDA device.
    pub device: Option<u32>,
    /// CUDA context.
    pub context: Option<u32>,
    /// CUDA stream.
    pub stream: Option<u32>,
    /// Joins to the API call that launched it, within one process.
    pub correlation: Option<i64>,
    /// Process, as in the upper bits of a `globalTid`.
    pub global_pid: Option<i64>,
    /// Demangled name.
    pub demangled: Option<StringId>,
    /// Name without arguments.
    pub short: Option<StringId>,
    /// Mangled name (not in older versions).
    pub mangled: Option<StringId>,
    /// Blocks.
    pub grid: Option<[u32; 3]>,
    /// Threads per block.
    pub block: Option<[u32; 3]>,
    /// Blocks per cluster (from nsys 2025.6 on).
    pub cluster: Option<[u32; 3]>,
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Static shared memory per block.
    pub static_shared_bytes: Option<u64>,
    /// Dynamic shared memory per block.
    pub dynamic_shared_bytes: Option<u64>,
    /// Local memory per thread.
    pub local_bytes_per_thread: Option<u64>,
    /// Node of a CUDA graph.
    pub graph_node: Option<i64>,
}

impl Kernel {
    pub(super) const TABLE: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
    pub(super) const COLUMNS: [&str; 24] = [
        "start",
        "end",
        "deviceId",
        "contextId",
        "streamId",
        "correlationId",
        "globalPid",
        "demangledName",
        "shortName",
        "mangledName",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
        "clusterX",
        "clusterY",
        "clusterZ",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "localMemoryPerThread",
        "graphNodeId",
    ];

    pub(super) fn read(f: &Fields<'_, '_>) -> Kernel {
        Kernel {
            start_ns: f.int(0).unwrap_or(0),
            end_ns: f.int(1).unwrap_or(0),
            device: f.small(2),
            context: f.small(3),
            stream: f.small(4),
            correlation: f.int(5),
            global_pid: f.int(6),
            demangled: f.int(7),
            short: f.int(8),
            mangled: f.int(9),
            grid: f.triple(10),
            block: f.triple(13),
            cluster: f.triple(16),
            registers: f.small(19),
            static_shared_bytes: f.unsigned(20),
            dynamic_shared_bytes: f.unsigned(21),
            local_bytes_per_thread: f.unsigned(22),
            graph_node: f.int(23),
        }
    }
}

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CopyKind {
    /// Host to device.
    HostToDevice,
    /// Device to host.
    DeviceToHost,
    /// Within a device.
    DeviceToDevice,
    /// Host to host.
    HostToHost,
    /// Between devices.
    PeerToPeer,
    /// Any other number of CUPTI's `CUpti_ActivityMemcpyKind`.
    Other(i64),
}

impl CopyKind {
    fn from_number(n: i64) -> CopyKind {
        match n {
            1 => CopyKind::HostToDevice,
            2 => CopyKind::DeviceToHost,
            8 => CopyKind::DeviceToDevice,
            9 => CopyKind::HostToHost,
            10 => CopyKind::PeerToPeer,
            n => CopyKind::Other(n),
        }
    }
}

/// A copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memcpy {
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Bytes moved.
    pub bytes: u64,
    /// Direction.
    pub kind: CopyKind,
    /// CUDA device.
    pub device: Option<u32>,
    /// CUDA stream.
    pub stream: Option<u32>,
    /// Joins to the API call.
    pub correlation: Option<i64>,
    /// Process.
    pub global_pid: Option<i64>,
}

impl Memcpy {
    pub(super) const TABLE: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
    pub(super) const COLUMNS: [&str; 8] =
        ["start", "end", "bytes", "copyKind", "deviceId", "streamId", "correlationId", "globalPid"];

    pub(super) fn read(f: &Fields<'_, '_>) -> Memcpy {
        Memcpy {
            start_ns: f.int(0).unwrap_or(0),
            end_ns: f.int(1).unwrap_or(0),
            bytes: f.unsigned(2).unwrap_or(0),
            kind: CopyKind::from_number(f.int(3).unwrap_or(0)),
            device: f.small(4),
            stream: f.small(5),
            correlation: f.int(6),
            global_pid: f.int(7),
        }
    }
}

/// A fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memset {
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Bytes filled.
    pub bytes: u64,
    /// What with.
    pub value: Option<i64>,
    /// CUDA device.
    pub device: Option<u32>,
    /// CUDA stream.
    pub stream: Option<u32>,
    /// Joins to the API call.
    pub correlation: Option<i64>,
    /// Process.
    pub global_pid: Option<i64>,
}

impl Memset {
    pub(super) const TABLE: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
    pub(super) const COLUMNS: [&str; 8] =
        ["start", "end", "bytes", "value", "deviceId", "streamId", "correlationId", "globalPid"];

    pub(super) fn read(f: &Fields<'_, '_>) -> Memset {
        Memset {
            start_ns: f.int(0).unwrap_or(0),
            end_ns: f.int(1).unwrap_or(0),
            bytes: f.unsigned(2).unwrap_or(0),
            value: f.int(3),
            device: f.small(4),
            stream: f.small(5),
            correlation: f.int(6),
            global_pid: f.int(7),
        }
    }
}

/// A call of the CUDA runtime or driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiCall {
    /// Start, on the host.
    pub start_ns: i64,
    /// End, on the host.
    pub end_ns: i64,
    /// Thread: `pid << 24 | tid`, with more bits above.
    pub global_tid: Option<i64>,
    /// Joins to GPU rows of the same process.
    pub correlation: Option<i64>,
    /// Name, such as `cudaLaunchKernel_v7000`.
    pub name: Option<StringId>,
    /// What it returned; 0 is success.
    pub return_value: Option<i64>,
}

impl ApiCall {
    pub(super) const TABLE: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
    pub(super) const COLUMNS: [&str; 6] =
        ["start", "end", "globalTid", "correlationId", "nameId", "returnValue"];

    pub(super) fn read(f: &Fields<'_, '_>) -> ApiCall {
        ApiCall {
            start_ns: f.int(0).unwrap_or(0),
            end_ns: f.int(1).unwrap_or(0),
            global_tid: f.int(2),
            correlation: f.int(3),
            name: f.int(4),
            return_value: f.int(5),
        }
    }
}

/// A CUDA graph that was traced as a whole: the kernels inside have no rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphLaunch {
    /// Start.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// CUDA stream.
    pub stream: Option<u32>,
    /// Joins to the API call.
    pub correlation: Option<i64>,
    /// Process.
    pub global_pid: Option<i64>,
    /// The graph.
    pub graph: Option<i64>,
}

impl GraphLaunch {
    pub(super) const TABLE: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
    pub(super) const COLUMNS: [&str; 6] =
        ["start", "end", "streamId", "correlationId", "globalPid", "graphId"];

    pub(super) fn read(f: &Fields<'_, '_>) -> GraphLaunch {
        GraphLaunch {
            start_ns: f.int(0).unwrap_or(0),
            end_ns: f.int(1).unwrap_or(0),
            stream: f.small(2),
            correlation: f.int(3),
            global_pid: f.int(4),
            graph: f.int(5),
        }
    }
}

/// What an NVTX event is, from `eventType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvtxKind {
    /// A range of one thread.
    PushPop,
    /// A range that may end on another thread.
    StartEnd,
    /// A point.
    Mark,
    /// Names a domain.
    Domain,
    /// Names a category, a thread, or what newer versions add.
    Other(i64),
}

/// An NVTX event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvtxEvent {
    /// What it is.
    pub kind: NvtxKind,
    /// Start; of marks, the point.
    pub start_ns: i64,
    /// End; `None` where the range was still open when the capture ended.
    pub end_ns: Option<i64>,
    /// Name as the program gave it.
    pub text: Option<String>,
    /// Name of a registered string.
    pub text_id: Option<StringId>,
    /// Domain; 0 or absent is the default domain.
    pub domain: Option<i64>,
    /// Thread that opened it.
    pub global_tid: Option<i64>,
    /// Thread that closed it, for start/end.
    pub end_global_tid: Option<i64>,
    /// Number of the range.
    pub range_id: Option<i64>,
    /// Category.
    pub category: Option<i64>,
}

impl NvtxEvent {
    pub(super) const TABLE: &str = "NVTX_EVENTS";
    pub(super) const COLUMNS: [&str; 10] = [
        "eventType",
        "start",
        "end",
        "text",
        "textId",
        "domainId",
        "globalTid",
        "endGlobalTid",
        "rangeId",
        "category",
    ];

    pub(super) fn read(f: &Fields<'_, '_>) -> NvtxEvent {
        NvtxEvent {
            kind: match f.int(0).unwrap_or(0) {
                59 => NvtxKind::PushPop,
                60 => NvtxKind::StartEnd,
                34 => NvtxKind::Mark,
                75 => NvtxKind::Domain,
                n => NvtxKind::Other(n),
            },
            start_ns: f.int(1).unwrap_or(0),
            end_ns: f.int(2),
            text: f.text(3),
            text_id: f.int(4),
            domain: f.int(5),
            global_tid: f.int(6),
            end_global_tid: f.int(7),
            range_id: f.int(8),
            category: f.int(9),
        }
    }

    /// The name: its own text, else the registered string.
    pub fn name<'a>(&'a self, strings: &'a Strings) -> Option<&'a str> {
        self.text.as_deref().or_else(|| self.text_id.and_then(|id| strings.get(id)))
    }
}
