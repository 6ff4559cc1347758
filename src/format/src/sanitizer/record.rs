//! The records of Compute Sanitizer. The readers of its log and of its XML both produce them.

/// One record: an error, a warning or a piece of information.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The fault that the tool found.
    pub kind: RecordKind,
    /// Severity according to the tool.
    pub severity: Severity,
    /// The head line (log) or `what.text` (XML), as printed.
    pub message: String,
    /// The access, for memory errors.
    pub access: Option<Access>,
    /// The position of the instruction.
    pub place: Option<InstructionLocation>,
    /// The thread and its block.
    pub position: Option<Position>,
    /// The address in question.
    pub address: Option<u64>,
    /// The problem with the address: `out of bounds`, `misaligned` …
    pub problem: Option<String>,
    /// Position of the address relative to the nearest allocation.
    pub allocation: Option<Allocation>,
    /// The accesses of a race, in the tool's order; otherwise empty.
    pub race: Vec<RaceSide>,
    /// The kind of hazard, in racecheck's hazard mode.
    pub hazard: Option<Hazard>,
    /// A failed CUDA call.
    pub api: Option<ApiError>,
    /// An allocation that was never freed.
    pub leak: Option<Leak>,
    /// Device functions from the instruction outwards; the last is the kernel.
    pub device_stack: Vec<Frame>,
    /// The time of the host stack, such as `kernel launch time`.
    pub host_stack_at: Option<String>,
    /// Host functions, innermost first.
    pub host_stack: Vec<Frame>,
    /// Detail lines that this reader does not interpret, as printed.
    pub details: Vec<String>,
    /// Offset of the record in its file, in bytes.
    pub offset: u64,
}

impl Record {
    pub(super) fn new(kind: RecordKind, severity: Severity, message: &str, offset: u64) -> Record {
        Record {
            kind,
            severity,
            message: message.to_owned(),
            access: None,
            place: None,
            position: None,
            address: None,
            problem: None,
            allocation: None,
            race: Vec::new(),
            hazard: None,
            api: None,
            leak: None,
            device_stack: Vec::new(),
            host_stack_at: None,
            host_stack: Vec::new(),
            details: Vec::new(),
            offset,
        }
    }

    /// The kernel: the outermost known device function.
    pub fn kernel(&self) -> Option<&str> {
        let frame = self.device_stack.last().and_then(|f| f.function.as_deref());
        let place = || self.place.as_ref().and_then(|p| p.function.as_deref());
        let race = || self.race.first().and_then(|r| r.place.function.as_deref());
        frame.or_else(place).or_else(race)
    }
}

/// The fault that a record reports; the tool that finds it comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// memcheck: an invalid access.
    InvalidAccess,
    /// A CUDA call that returned an error.
    Api,
    /// memcheck: memory that was never freed.
    Leak,
    /// initcheck: device memory read before it was written.
    Uninitialized,
    /// initcheck: an allocation that was not used in full.
    UnusedMemory,
    /// A CUDA call that reads or writes memory that it must not access.
    HostAccess,
    /// synccheck: a barrier or another synchronisation used incorrectly.
    Synchronization,
    /// racecheck: two code positions that race (analysis mode).
    Race,
    /// racecheck: two accesses that race (hazard mode).
    Hazard,
    /// A record that this reader has no kind for.
    Other,
}

/// Severity of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Labelled `Info:` by the tool.
    Info,
    /// Labelled `Warning:`: probably an error.
    Warning,
    /// Labelled `Error:`, or without a label.
    Error,
}

/// A memory access of an instruction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// The address space as printed, without underscores: `global`, `shared`, `local` …
    pub space: Option<String>,
    /// Direction of the access.
    pub direction: Option<Direction>,
    /// Size of the access in bytes.
    pub bytes: Option<u64>,
}

/// The direction of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// A load of a thread.
    Read,
    /// A store of a thread.
    Write,
    /// A read and a write.
    Atomic,
}

/// The location of an instruction in code and source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct InstructionLocation {
    /// Function name, with arguments in the log and without them in the XML.
    pub function: Option<String>,
    /// Offset of the instruction from the function's start.
    pub pc: Option<u64>,
    /// Source file: only the name in the log, the full path in the XML.
    pub file: Option<String>,
    /// Source line, from 1.
    pub line: Option<u32>,
}

/// A thread and its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// `threadIdx` in x, y, z.
    pub thread: [u32; 3],
    /// `blockIdx` in x, y, z.
    pub block: [u32; 3],
}

/// Position of an address relative to the nearest allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// `before`, `after` or `inside`, as printed.
    pub relation: String,
    /// Distance in bytes from the allocation's edge (1 is the first byte outside).
    pub distance_bytes: Option<u64>,
    /// The allocation's address on the GPU; `None` if the record has none.
    pub address: Option<u64>,
    /// Size of the allocation in bytes.
    pub bytes: Option<u64>,
}

/// One of the two accesses that race.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaceSide {
    /// Direction of the access.
    pub direction: Option<Direction>,
    /// Position of the instruction.
    pub place: InstructionLocation,
    /// The thread, in hazard mode.
    pub thread: Option<[u32; 3]>,
    /// Number of hazards between this pair, in analysis mode.
    pub hazards: Option<u64>,
}

/// The order of two accesses that race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hazard {
    /// A read of what another thread wrote before.
    Raw,
    /// A write to what another thread read before.
    War,
    /// A write to what another thread wrote before.
    Waw,
}

/// A CUDA call that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiError {
    /// Name of the CUDA API function.
    pub call: Option<String>,
    /// The error's name, such as `cudaErrorLaunchFailure`.
    pub name: Option<String>,
    /// CUDA's number of the error; `None` if the record has none.
    pub code: Option<i64>,
    /// CUDA's text for the error; `None` if the record has none.
    pub text: Option<String>,
}

/// Memory that was never freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leak {
    /// Size of the allocation in bytes.
    pub bytes: u64,
    /// Device address of the allocation.
    pub address: Option<u64>,
}

/// One frame of a stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// The function, if it is known.
    pub function: Option<String>,
    /// Offset in the module (host) or in the function (device).
    pub pc: Option<u64>,
    /// Path of the library or executable.
    pub module: Option<String>,
    /// Source file, as printed.
    pub file: Option<String>,
    /// Source line, from 1.
    pub line: Option<u32>,
}
