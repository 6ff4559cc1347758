//! What the sanitizer reports, in one shape for the log and the XML.

/// One record: an error, a warning or a piece of information.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is about.
    pub kind: Kind,
    /// How bad the tool thinks it is.
    pub severity: Severity,
    /// The head line (log) or `what.text` (XML), as printed.
    pub message: String,
    /// What was accessed, for memory errors.
    pub access: Option<Access>,
    /// The instruction.
    pub place: Option<Place>,
    /// The thread and its block.
    pub position: Option<Position>,
    /// The address in question.
    pub address: Option<u64>,
    /// What is wrong with the address: `out of bounds`, `misaligned` …
    pub problem: Option<String>,
    /// Where the address lies relative to the nearest allocation.
    pub allocation: Option<Allocation>,
    /// The accesses of a race, in the tool's order; empty otherwise.
    pub race: Vec<RaceSide>,
    /// The kind of hazard, in racecheck's hazard mode.
    pub hazard: Option<Hazard>,
    /// A failed CUDA call.
    pub api: Option<ApiError>,
    /// An allocation that was never freed.
    pub leak: Option<Leak>,
    /// Device functions from the instruction outwards; the last is the kernel.
    pub device_stack: Vec<Frame>,
    /// Which moment the host stack shows, such as `kernel launch time`.
    pub host_stack_at: Option<String>,
    /// Host functions, innermost first.
    pub host_stack: Vec<Frame>,
    /// Detail lines that this reader does not interpret, as printed.
    pub details: Vec<String>,
    /// Where the record starts in its file, in bytes.
    pub offset: u64,
}

impl Record {
    pub(super) fn new(kind: Kind, severity: Severity, message: &str, offset: u64) -> Record {
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

    /// The kernel: the outermost device function that is known.
    pub fn kernel(&self) -> Option<&str> {
        let frame = self.device_stack.last().and_then(|f| f.function.as_deref());
        let place = || self.place.as_ref().and_then(|p| p.function.as_deref());
        let race = || self.race.first().and_then(|r| r.place.function.as_deref());
        frame.or_else(place).or_else(race)
    }
}

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
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
    /// A CUDA call that reads or writes memory which it should not.
    HostAccess,
    /// synccheck: a barrier or another synchronisation used wrongly.
    Synchronization,
    /// racecheck: two places that race (analysis).
    Race,
    /// racecheck: two accesses that race (hazard).
    Hazard,
    /// Anything else that has the form of a record.
    Other,
}

/// How bad a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Probably wrong.
    Warning,
    /// Wrong.
    Error,
}

/// A memory access.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// The address space as printed, without underscores: `global`, `shared`, `local` …
    pub space: Option<String>,
    /// Which way.
    pub direction: Option<Direction>,
    /// Bytes.
    pub bytes: Option<u64>,
}

/// The direction of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// A load.
    Read,
    /// A store.
    Write,
    /// Both.
    Atomic,
}

/// Where an instruction is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Function, with its arguments in the log and without them in the XML.
    pub function: Option<String>,
    /// Offset of the instruction from the function's start.
    pub pc: Option<u64>,
    /// Source file: the name in the log, the whole path in the XML.
    pub file: Option<String>,
    /// Source line, from 1.
    pub line: Option<u32>,
}

/// A thread and its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// `threadIdx`.
    pub thread: [u32; 3],
    /// `blockIdx`.
    pub block: [u32; 3],
}

/// Where an address lies relative to the nearest allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// `before`, `after` or `inside`, as printed.
    pub relation: String,
    /// Bytes from the allocation's edge (1 is the first byte outside).
    pub distance_bytes: Option<u64>,
    /// The allocation's address.
    pub address: Option<u64>,
    /// The allocation's size.
    pub bytes: Option<u64>,
}

/// One side of a race.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaceSide {
    /// Which way.
    pub direction: Option<Direction>,
    /// The instruction.
    pub place: Place,
    /// The thread, in hazard mode.
    pub thread: Option<[u32; 3]>,
    /// How many hazards this pair stands for, in analysis mode.
    pub hazards: Option<u64>,
}

/// The order of two accesses that race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hazard {
    /// Read after write.
    Raw,
    /// Write after read.
    War,
    /// Write after write.
    Waw,
}

/// A CUDA call that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiError {
    /// The call.
    pub call: Option<String>,
    /// The error's name, such as `cudaErrorLaunchFailure`.
    pub name: Option<String>,
    /// The error's number.
    pub code: Option<i64>,
    /// CUDA's own text.
    pub text: Option<String>,
}

/// Memory that was never freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leak {
    /// Its size.
    pub bytes: u64,
    /// Its address.
    pub address: Option<u64>,
}

/// One frame of a stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// The function, where it is known.
    pub function: Option<String>,
    /// Offset in the module (host) or in the function (device).
    pub pc: Option<u64>,
    /// Library or executable.
    pub module: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<u32>,
}
