//! Rows of an nsys trace: launches, copies, API calls, NVTX events and GPUs.
//!
//! The reader of the report (`nsys_rep`) and that of the SQLite export (`nsys_sqlite`) both produce
//! them, so that importers need not know the format. Times are nanoseconds since the start of the
//! capture. String ids are resolved through [`Strings`].

use std::collections::HashMap;
use std::sync::Arc;

/// Key of a name in the table `StringIds`.
pub type StringId = i64;

/// A start or an end that the file does not have, or that is no number.
pub const NO_TIME: i64 = i64::MIN;

/// One launch of a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Start, in nanoseconds since the start of the capture.
    pub start_ns: i64,
    /// End, on the same clock.
    pub end_ns: i64,
    /// CUDA device number in its process.
    pub device: Option<u32>,
    /// CUDA context number in its process.
    pub context: Option<u32>,
    /// CUDA stream number in its context.
    pub stream: Option<u32>,
    /// Correlation id of the API call that launched it, unique in its process.
    pub correlation: Option<i64>,
    /// Process id, as in the upper bits of a `globalTid`.
    pub global_pid: Option<i64>,
    /// Demangled name with arguments.
    pub demangled: Option<StringId>,
    /// Demangled name without arguments.
    pub short: Option<StringId>,
    /// Mangled name; missing in older versions.
    pub mangled: Option<StringId>,
    /// Blocks in x, y, z.
    pub grid: Option<[u32; 3]>,
    /// Threads per block in x, y, z.
    pub block: Option<[u32; 3]>,
    /// Blocks per cluster (from nsys 2025.6 on).
    pub cluster: Option<[u32; 3]>,
    /// Registers per thread; `None` if the trace lacks them.
    pub registers: Option<u32>,
    /// Static shared memory per block.
    pub static_shared_bytes: Option<u64>,
    /// Dynamic shared memory per block.
    pub dynamic_shared_bytes: Option<u64>,
    /// Local memory per thread.
    pub local_bytes_per_thread: Option<u64>,
    /// Node of a CUDA graph, if it was launched by one.
    pub graph_node: Option<i64>,
}

/// The fields of a [`Kernel`] that are needed to sum times by kernel. Reading only these is faster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelInterval {
    /// Start, in nanoseconds since the start of the capture.
    pub start_ns: i64,
    /// End, on the same clock.
    pub end_ns: i64,
    /// CUDA device number in its process.
    pub device: Option<u32>,
    /// CUDA context number in its process.
    pub context: Option<u32>,
    /// CUDA stream number in its context.
    pub stream: Option<u32>,
    /// Correlation id of the API call that launched it, unique in its process.
    pub correlation: Option<i64>,
    /// Process id, as in the upper bits of a `globalTid`.
    pub global_pid: Option<i64>,
    /// Demangled name with arguments.
    pub demangled: Option<StringId>,
    /// Demangled name without arguments.
    pub short: Option<StringId>,
    /// Node of a CUDA graph, if it was launched by one.
    pub graph_node: Option<i64>,
    /// Its grid, block and dynamic shared memory, if the trace has the first two.
    pub shape: Option<KernelShape>,
}

/// What a launch of a kernel may change from the last: its grid, block and dynamic shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct KernelShape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads per block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block; 0 if the trace does not tell.
    pub shared_bytes: u64,
}

impl KernelShape {
    /// The shape; `None` without a grid or a block.
    pub fn new(
        grid: Option<[u32; 3]>,
        block: Option<[u32; 3]>,
        shared_bytes: Option<u64>,
    ) -> Option<KernelShape> {
        Some(KernelShape { grid: grid?, block: block?, shared_bytes: shared_bytes.unwrap_or(0) })
    }
}

impl From<Kernel> for KernelInterval {
    fn from(kernel: Kernel) -> KernelInterval {
        let shape = KernelShape::new(kernel.grid, kernel.block, kernel.dynamic_shared_bytes);
        KernelInterval {
            start_ns: kernel.start_ns,
            end_ns: kernel.end_ns,
            device: kernel.device,
            context: kernel.context,
            stream: kernel.stream,
            correlation: kernel.correlation,
            global_pid: kernel.global_pid,
            demangled: kernel.demangled,
            short: kernel.short,
            graph_node: kernel.graph_node,
            shape,
        }
    }
}

/// From where to where a copy moves bytes, whatever memory holds them there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyDirection {
    /// From the host to a device.
    FromHost,
    /// From a device to the host.
    ToHost,
    /// Within the memory of the host.
    OnHost,
    /// Within the memory of a device, or from one device to another.
    OnDevice,
    /// A migration of unified memory, or unknown.
    Unknown,
}

/// The kind of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CopyKind {
    /// From memory of the host to memory of a device.
    HostToDevice,
    /// From memory of a device to memory of the host.
    DeviceToHost,
    /// Within the memory of a device.
    DeviceToDevice,
    /// Within the memory of the host.
    HostToHost,
    /// From one device to another.
    PeerToPeer,
    /// From memory of the host to an array of a device.
    HostToArray,
    /// From an array of a device to memory of the host.
    ArrayToHost,
    /// From one array to another.
    ArrayToArray,
    /// From an array to memory of a device.
    ArrayToDevice,
    /// From memory of a device to an array.
    DeviceToArray,
    /// Unified memory that moved to a device.
    UnifiedToDevice,
    /// Unified memory that moved to the host.
    UnifiedToHost,
    /// Unified memory that moved from one device to another.
    UnifiedBetweenDevices,
    /// Any other number of CUPTI's `CUpti_ActivityMemcpyKind`.
    Other(i64),
}

impl CopyKind {
    /// The direction of a copy that a call asked for.
    pub fn direction(self) -> CopyDirection {
        match self {
            CopyKind::HostToDevice | CopyKind::HostToArray => CopyDirection::FromHost,
            CopyKind::DeviceToHost | CopyKind::ArrayToHost => CopyDirection::ToHost,
            CopyKind::HostToHost => CopyDirection::OnHost,
            CopyKind::DeviceToDevice
            | CopyKind::PeerToPeer
            | CopyKind::ArrayToArray
            | CopyKind::ArrayToDevice
            | CopyKind::DeviceToArray => CopyDirection::OnDevice,
            CopyKind::UnifiedToDevice
            | CopyKind::UnifiedToHost
            | CopyKind::UnifiedBetweenDevices
            | CopyKind::Other(_) => CopyDirection::Unknown,
        }
    }

    /// The short name of the kind, as NVIDIA's tools write it: `HtoD`, or `AtoH` for an array.
    /// Migrations of unified memory begin with `unified`. `None` for a kind that has no name.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            CopyKind::HostToDevice => "HtoD",
            CopyKind::DeviceToHost => "DtoH",
            CopyKind::DeviceToDevice => "DtoD",
            CopyKind::HostToHost => "HtoH",
            CopyKind::PeerToPeer => "PtoP",
            CopyKind::HostToArray => "HtoA",
            CopyKind::ArrayToHost => "AtoH",
            CopyKind::ArrayToArray => "AtoA",
            CopyKind::ArrayToDevice => "AtoD",
            CopyKind::DeviceToArray => "DtoA",
            CopyKind::UnifiedToDevice => "unified HtoD",
            CopyKind::UnifiedToHost => "unified DtoH",
            CopyKind::UnifiedBetweenDevices => "unified DtoD",
            CopyKind::Other(_) => return None,
        })
    }

    /// Converts a number of CUPTI's `CUpti_ActivityMemcpyKind`, or one of the three that nsys adds
    /// for unified memory.
    pub fn from_number(n: i64) -> CopyKind {
        match n {
            1 => CopyKind::HostToDevice,
            2 => CopyKind::DeviceToHost,
            3 => CopyKind::HostToArray,
            4 => CopyKind::ArrayToHost,
            5 => CopyKind::ArrayToArray,
            6 => CopyKind::ArrayToDevice,
            7 => CopyKind::DeviceToArray,
            8 => CopyKind::DeviceToDevice,
            9 => CopyKind::HostToHost,
            10 => CopyKind::PeerToPeer,
            11 => CopyKind::UnifiedToDevice,
            12 => CopyKind::UnifiedToHost,
            13 => CopyKind::UnifiedBetweenDevices,
            n => CopyKind::Other(n),
        }
    }

    /// Whether the host's side of a copy is pageable memory, from nsys's numbers of
    /// `ENUM_CUDA_MEM_KIND` for its source and its target. `None` without a side on the host, and
    /// for other kinds of memory. CUPTI's own numbers of kinds are others.
    pub fn is_pageable(self, source: Option<i64>, target: Option<i64>) -> Option<bool> {
        let host = match self.direction() {
            CopyDirection::FromHost => source?,
            CopyDirection::ToHost => target?,
            CopyDirection::OnHost | CopyDirection::OnDevice | CopyDirection::Unknown => {
                return None;
            }
        };
        match host {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        }
    }
}

/// One copy of memory that a GPU made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memcpy {
    /// Start, in nanoseconds since the start of the capture.
    pub start_ns: i64,
    /// End, on the same clock.
    pub end_ns: i64,
    /// Number of bytes copied.
    pub bytes: u64,
    /// The memories that it reads and writes.
    pub kind: CopyKind,
    /// Whether the host's side of it is pageable memory, not pinned. `None` without a side on the
    /// host, or if its memory is not known.
    pub pageable: Option<bool>,
    /// CUDA device number in its process.
    pub device: Option<u32>,
    /// CUDA stream number in its context.
    pub stream: Option<u32>,
    /// Correlation id of the API call that started it.
    pub correlation: Option<i64>,
    /// Process id, as in the upper bits of a `globalTid`.
    pub global_pid: Option<i64>,
}

/// One fill of device memory with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memset {
    /// Start, in nanoseconds since the start of the capture.
    pub start_ns: i64,
    /// End, on the same clock.
    pub end_ns: i64,
    /// Number of bytes filled.
    pub bytes: u64,
    /// The value that is repeated.
    pub value: Option<i64>,
    /// CUDA device number in its process.
    pub device: Option<u32>,
    /// CUDA stream number in its context.
    pub stream: Option<u32>,
    /// Correlation id of the API call that started it.
    pub correlation: Option<i64>,
    /// Process id, as in the upper bits of a `globalTid`.
    pub global_pid: Option<i64>,
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
    /// Correlation id of the GPU work that it started, unique in its process.
    pub correlation: Option<i64>,
    /// Name, such as `cudaLaunchKernel_v7000`.
    pub name: Option<StringId>,
    /// The result of the call; 0 is success.
    pub return_value: Option<i64>,
}

/// The native frames from which a call of CUDA came, as nsys unwound them (`--cudabacktrace`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NativeStack {
    /// Start of the time that it took; the call begins some nanoseconds later.
    pub start_ns: i64,
    /// End of that time: some nanoseconds after the call's end.
    pub end_ns: i64,
    /// Thread, as in [`ApiCall`].
    pub global_tid: Option<i64>,
    /// Correlation id of the call, unique in its process.
    pub correlation: Option<i64>,
    /// The frames, innermost first.
    pub frames: Vec<NativeFrame>,
}

/// A frame of a [`NativeStack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NativeFrame {
    /// The function's name, or its address if it was not resolved.
    pub symbol: StringId,
    /// The executable or library.
    pub module: StringId,
    /// Whether `symbol` is a name.
    pub is_resolved: bool,
}

/// The frames of Python from which a call of CUDA came (`--python-backtrace`). nsys writes them as
/// marks of an NVTX domain of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PythonStack {
    /// When it was taken: the start of the call's [`NativeStack`].
    pub at_ns: i64,
    /// Thread, as in [`ApiCall`].
    pub global_tid: Option<i64>,
    /// The NVTX domain of the mark.
    pub domain: Option<i64>,
    /// The frames, innermost first.
    pub frames: Vec<PythonFrame>,
}

/// A frame of a [`PythonStack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// The function's name, in which `<` and `>` are written as in HTML.
    pub function: StringId,
    /// The source file.
    pub file: StringId,
    /// The line of the call, from 1.
    pub line: Option<u32>,
}

/// Most frames that are read of one stack.
pub(crate) const MAX_FRAMES: usize = 1024;

/// The payload of the marks in which nsys writes frames of Python: 16 bytes, the last 4 of which
/// are the number of frames; then for each frame 8 bytes each for the string ids of function and
/// file, 4 for the line, and 4 that are not set. All integers are little endian. `None` for bytes
/// that are laid out in another way.
pub(crate) fn python_frames(payload: &[u8]) -> Option<Vec<PythonFrame>> {
    let (head, body) = payload.split_at_checked(16)?;
    let count = u32::from_le_bytes(head.get(12..16)?.try_into().ok()?);
    let count = usize::try_from(count).ok()?;
    if count == 0 || body.len() != count.checked_mul(24)? {
        return None;
    }
    let id = |bytes: &[u8]| Some(i64::from_le_bytes(bytes.try_into().ok()?));
    let frame = |bytes: &[u8]| {
        let line = u32::from_le_bytes(bytes.get(16..20)?.try_into().ok()?);
        Some(PythonFrame {
            function: id(bytes.get(..8)?)?,
            file: id(bytes.get(8..16)?)?,
            line: (line > 0).then_some(line),
        })
    };
    body.chunks_exact(24).take(MAX_FRAMES).map(frame).collect()
}

/// A CUDA graph traced as a whole: its kernels have no rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphLaunch {
    /// Start, in nanoseconds since the start of the capture.
    pub start_ns: i64,
    /// End, on the same clock.
    pub end_ns: i64,
    /// CUDA stream number in its context.
    pub stream: Option<u32>,
    /// Correlation id of the API call that started it.
    pub correlation: Option<i64>,
    /// Process id, as in the upper bits of a `globalTid`.
    pub global_pid: Option<i64>,
    /// Id of the graph.
    pub graph: Option<i64>,
}

/// Kind of an NVTX event, from `eventType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvtxKind {
    /// A range of one thread.
    PushPop,
    /// A range that may end on another thread.
    StartEnd,
    /// A point in time.
    Mark,
    /// The name of a domain.
    Domain,
    /// The name of a category or thread, or a kind added by newer versions.
    Other(i64),
}

/// One NVTX range or mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvtxEvent {
    /// Kind of the event.
    pub kind: NvtxKind,
    /// Start; for marks, the point in time.
    pub start_ns: i64,
    /// End; `None` if the range was still open at the end of the capture.
    pub end_ns: Option<i64>,
    /// Name given by the program.
    pub text: Option<String>,
    /// Name of a registered string.
    pub text_id: Option<StringId>,
    /// Domain; 0 or absent means the default domain.
    pub domain: Option<i64>,
    /// Thread that opened it.
    pub global_tid: Option<i64>,
    /// Thread that closed it, for start/end.
    pub end_global_tid: Option<i64>,
    /// Number of a start/end range.
    pub range_id: Option<i64>,
    /// Category that the program gave; a number in its domain.
    pub category: Option<i64>,
    /// Payload of the program as JSON. NCCL gives its communicator and the size of the message.
    pub payload: Option<String>,
}

impl NvtxKind {
    /// Converts nsys's number of an `eventType`.
    pub(crate) fn from_number(n: i64) -> NvtxKind {
        match n {
            59 => NvtxKind::PushPop,
            60 => NvtxKind::StartEnd,
            34 => NvtxKind::Mark,
            75 => NvtxKind::Domain,
            n => NvtxKind::Other(n),
        }
    }
}

impl NvtxEvent {
    /// The event's own text, otherwise the registered string.
    pub fn name<'a>(&'a self, strings: &'a Strings) -> Option<&'a str> {
        self.text.as_deref().or_else(|| self.text_id.and_then(|id| strings.get(id)))
    }
}

/// All names of a trace.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Strings {
    /// Shared, since a reader and what it made both keep all names.
    by_id: Arc<HashMap<i64, Box<str>>>,
    text_bytes: usize,
}

impl Strings {
    /// The string with this id; `None` if the trace has none.
    pub fn get(&self, id: i64) -> Option<&str> {
        self.by_id.get(&id).map(AsRef::as_ref)
    }

    /// Adds a string, or replaces that with the same id.
    pub(crate) fn insert(&mut self, id: StringId, text: String) {
        self.text_bytes += text.len();
        Arc::make_mut(&mut self.by_id).insert(id, text.into_boxed_str());
    }

    /// Memory of a string in the table.
    pub(crate) fn bytes_of(text: &str) -> usize {
        Strings::ENTRY_BYTES + text.len()
    }

    /// An entry of the map, at half its load, and the block of a text.
    const ENTRY_BYTES: usize = 110;

    /// Memory of all strings.
    pub fn bytes(&self) -> usize {
        Strings::ENTRY_BYTES * self.by_id.len() + self.text_bytes
    }

    /// Number of ids that have a name.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

impl FromIterator<(StringId, String)> for Strings {
    fn from_iter<I: IntoIterator<Item = (StringId, String)>>(strings: I) -> Self {
        let mut all = Self::default();
        strings.into_iter().for_each(|(id, text)| all.insert(id, text));
        all
    }
}

/// A GPU of the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gpu {
    /// CUDA device number, or nsys's own number.
    pub id: Option<u32>,
    /// NVIDIA's name of the GPU.
    pub name: Option<String>,
    /// UUID without the `GPU-` prefix.
    pub uuid: Option<String>,
    /// Chip, such as `GH100`.
    pub chip: Option<String>,
    /// Compute capability: major and minor number.
    pub compute: Option<(u32, u32)>,
    /// Number of streaming multiprocessors.
    pub sms: Option<u32>,
    /// SM clock in Hz.
    pub clock_hz: Option<u64>,
    /// Peak memory bandwidth in bytes per second.
    pub memory_bytes_per_s: Option<u64>,
    /// Size of the memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Size of the L2 cache in bytes.
    pub l2_bytes: Option<u64>,
}

/// A message of nsys about its own work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Time in nanoseconds since the start of the capture.
    pub at_ns: Option<i64>,
    /// Severity, a value of `ENUM_DIAGNOSTIC_SEVERITY_LEVEL`.
    pub severity: Option<i64>,
    /// Text of the message.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_python_are_read_from_their_payload() {
        let mut payload = vec![1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
        for (function, file, line) in [(36_u64, 37_u64, 1097_u32), (42, 41, 0)] {
            payload.extend(function.to_le_bytes());
            payload.extend(file.to_le_bytes());
            payload.extend(line.to_le_bytes());
            payload.extend([0xe7, 0, 0xfa, 0x7f]);
        }
        let frames = python_frames(&payload).unwrap();
        let frame = |function, file, line| PythonFrame { function, file, line };
        assert_eq!(frames, [frame(36, 37, Some(1097)), frame(42, 41, None)]);
        for length in 0..payload.len() {
            assert_eq!(python_frames(&payload[..length]), None, "{length}");
        }
        payload[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(python_frames(&payload), None);
    }
}
