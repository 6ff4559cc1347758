//! Reader of the log that rgpu's own collector writes (`nvtx.jsonl.<pid>`), format 1: NVTX ranges
//! and the GPU work that CUPTI reports.
//!
//! One JSON object per line; the crate documentation of the collector (`harness/collector`)
//! describes the format. Unknown events and fields are skipped and counted. A log may hold several
//! sessions: a program that replaces itself with `exec` opens the same file again, and thread,
//! domain and range numbers start anew.

use crate::memory::{MemoryBudget, OverBudget};
use serde::Deserialize;
use std::collections::BTreeMap;
use thiserror::Error;

/// The contents of one log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NvtxLog {
    /// One per `opened` line.
    pub sessions: Vec<Session>,
    /// Number of lines with an unknown `event`.
    pub unknown_lines: u64,
    /// Number of lines that are not a JSON object of a known form. The last line of a log may be
    /// cut short.
    pub broken_lines: u64,
    /// Offset of the first broken line, in bytes.
    pub first_broken: Option<u64>,
}

/// The lines from one `opened` line to the next.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Session {
    /// The process that wrote the session.
    pub opened: SessionHeader,
    /// Names of domains by number; 0 is the default domain and has none.
    pub domains: BTreeMap<u64, String>,
    /// Names of threads by number.
    pub threads: BTreeMap<u64, String>,
    /// Names of categories by domain and number.
    pub categories: BTreeMap<(u64, u32), String>,
    /// Pushes, pops, starts, ends and marks in file order, which is sorted by time only within a
    /// thread.
    pub events: Vec<NvtxLogEvent>,
    /// State of CUPTI; `None` if it was not used.
    pub cupti: Option<Cupti>,
    /// Names of kernels (mangled) and calls by number.
    pub names: BTreeMap<u32, String>,
    /// Kernels, copies and fills, in file order.
    pub work: Vec<LoggedWork>,
    /// Calls into CUDA, in file order.
    pub calls: Vec<Call>,
    /// The last line; missing when the process was killed.
    pub closed: Option<SessionFooter>,
}

/// The first line of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct SessionHeader {
    /// Version of the format.
    pub format: u32,
    /// The process id on the host; 0 if the log does not state it.
    #[serde(default)]
    pub pid: u32,
    /// Process id of the parent.
    #[serde(default)]
    pub ppid: u32,
    /// Path of the program.
    #[serde(default)]
    pub exe: Option<String>,
    /// `ns` of this line on the log's clock.
    #[serde(default)]
    pub ns: u64,
    /// The same time on the wall clock.
    #[serde(default)]
    pub unix_ns: u64,
}

/// The last line of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct SessionFooter {
    /// Time in nanoseconds on the log's clock.
    #[serde(default)]
    pub ns: u64,
    /// Number of NVTX events in the file.
    #[serde(default)]
    pub events: u64,
    /// Lines left out because the log was full or could not be written.
    #[serde(default)]
    pub dropped: u64,
    /// Pops without an open range.
    #[serde(default)]
    pub unbalanced: u64,
    /// Kernels, copies and fills written.
    #[serde(default)]
    pub work: u64,
    /// Number of CUDA calls in the file.
    #[serde(default)]
    pub calls: u64,
    /// Records that CUPTI dropped, or that could not be read.
    #[serde(default)]
    pub lost: u64,
}

/// Whether CUPTI records were collected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Cupti {
    /// `on` or `off`; empty if the log does not state it.
    #[serde(default)]
    pub state: String,
    /// Version number of CUPTI; `None` if no library was loaded.
    #[serde(default)]
    pub version: Option<u32>,
    /// Path of the library.
    #[serde(default)]
    pub path: Option<String>,
    /// `ours`: times are on the log's own clock; `compared`: they were shifted after a single
    /// comparison.
    #[serde(default)]
    pub clock: Option<String>,
    /// Why CUPTI is off.
    #[serde(default)]
    pub text: Option<String>,
}

/// Kind of GPU work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedWorkKind {
    /// A launch of a kernel, with its facts.
    Kernel(KernelFacts),
    /// A copy of memory that a GPU made.
    Copy {
        /// CUPTI's number for the direction.
        kind: u8,
    },
    /// A fill of device memory.
    Set {
        /// The value that is repeated; `None` if CUPTI did not report it.
        value: Option<u32>,
    },
}

/// Facts about a kernel launch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// Number in the table of names.
    pub name: Option<u32>,
    /// Blocks in x, y, z.
    pub grid: Option<[u32; 3]>,
    /// Threads per block in x, y, z.
    pub block: Option<[u32; 3]>,
    /// Registers per thread; `None` if the log lacks them.
    pub registers: Option<u32>,
    /// Static shared memory per block.
    pub static_bytes: Option<u64>,
    /// Dynamic shared memory per block.
    pub dynamic_bytes: Option<u64>,
    /// Local memory per thread.
    pub local_bytes: Option<u64>,
    /// Node of a CUDA graph.
    pub graph_node: Option<u64>,
}

/// A piece of work on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedWork {
    /// Whether it is a kernel, a copy or a fill.
    pub kind: LoggedWorkKind,
    /// Start and end on the log's clock; `None` if CUPTI did not know them.
    pub span_ns: Option<(u64, u64)>,
    /// CUPTI's correlation id, shared with the [`Call`] that started it.
    pub id: u32,
    /// CUDA device number in its process.
    pub device: u32,
    /// CUDA context number in its process.
    pub context: u32,
    /// CUDA stream number in its context.
    pub stream: u32,
    /// Number of bytes, for copies and fills.
    pub bytes: u64,
}

/// A call into CUDA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Start on the log's clock.
    pub start_ns: u64,
    /// End on the log's clock.
    pub end_ns: u64,
    /// CUPTI's correlation id, shared with the [`LoggedWork`] that it started.
    pub id: u32,
    /// Thread id on the host of the caller.
    pub tid: u64,
    /// Number in the table of names.
    pub name: Option<u32>,
    /// Result of the call; 0 is success.
    pub result: u32,
}

/// The NVTX call that an event records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// Opens a range of this thread.
    Push,
    /// Closes this thread's innermost range of the domain.
    Pop,
    /// Opens a range that any thread may close.
    Start,
    /// Closes a started range.
    End,
    /// A point in time.
    Mark,
}

/// One NVTX call of a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct NvtxLogEvent {
    /// The NVTX call.
    pub kind: EventKind,
    /// Time in nanoseconds of the monotonic clock.
    pub ns: u64,
    /// Thread id on the host of the caller.
    pub tid: u64,
    /// Number of the domain in the log's table of domains.
    pub domain: u64,
    /// Depth of a push or pop; 0 is outermost.
    pub level: Option<u32>,
    /// Id of a start or end.
    pub id: Option<u64>,
    /// Name; `None` if the program gave none.
    pub message: Option<String>,
    /// Category in its domain.
    pub category: Option<u32>,
    /// The number that the program attached; `None` if it attached none.
    pub payload: Option<f64>,
}

/// The reason why a log could not be read.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum NvtxLogError {
    /// The file was not written by the collector.
    #[error("not a log of the NVTX collector: it starts with `{start}`")]
    NotALog {
        /// At most 60 first bytes of the line, escaped.
        start: String,
    },
    /// The log was written by a newer collector.
    #[error("NVTX log of format {format} at offset {offset}; this reader knows format 1")]
    UnsupportedFormat {
        /// Format version in the file.
        format: u32,
        /// Offset of the `opened` line.
        offset: u64,
    },
    /// The lines take too much memory.
    #[error("the line at offset {offset}: {over}")]
    TooMuchMemory {
        /// Offset of the line that no longer fits.
        offset: u64,
        /// The limit.
        over: OverBudget,
    },
}

/// Memory of a line, in bytes, with all that a profile makes of it, and of a session.
const LINE_BYTES: usize = 640;
const SESSION_BYTES: usize = 4 << 10;
/// How often a text of a line is kept.
const TEXT_COPIES: usize = 2;

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    Opened(SessionHeader),
    Domain {
        domain: u64,
        name: String,
    },
    Category {
        domain: u64,
        category: u32,
        name: String,
    },
    Thread {
        tid: u64,
        name: String,
    },
    Push(NvtxFields),
    Pop(NvtxFields),
    Start(NvtxFields),
    End(NvtxFields),
    Mark(NvtxFields),
    Cupti(Cupti),
    Name {
        id: u32,
        text: String,
    },
    Kernel(Activity),
    Copy(Activity),
    Set(Activity),
    Call(Activity),
    Closed(SessionFooter),
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct NvtxFields {
    ns: u64,
    #[serde(default)]
    tid: u64,
    #[serde(default)]
    domain: u64,
    #[serde(default)]
    level: Option<u32>,
    #[serde(default)]
    id: Option<u64>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    category: Option<u32>,
    #[serde(default)]
    payload: Option<f64>,
}

#[derive(Deserialize)]
struct Activity {
    #[serde(default)]
    ns: Option<u64>,
    #[serde(default)]
    end_ns: Option<u64>,
    #[serde(default)]
    id: u32,
    #[serde(default)]
    tid: u64,
    #[serde(default)]
    device: u32,
    #[serde(default)]
    context: u32,
    #[serde(default)]
    stream: u32,
    #[serde(default)]
    name: Option<u32>,
    #[serde(default)]
    grid: Option<[u32; 3]>,
    #[serde(default)]
    block: Option<[u32; 3]>,
    #[serde(default)]
    registers: Option<u32>,
    #[serde(default)]
    static_bytes: Option<u64>,
    #[serde(default)]
    dynamic_bytes: Option<u64>,
    #[serde(default)]
    local_bytes: Option<u64>,
    #[serde(default)]
    graph_node: Option<u64>,
    #[serde(default)]
    kind: Option<u8>,
    #[serde(default)]
    value: Option<u32>,
    #[serde(default)]
    bytes: Option<u64>,
    #[serde(default)]
    result: u32,
}

/// Reads a log. Broken lines are counted and not fatal, since the last line may be cut.
///
/// # Errors
/// [`NvtxLogError`] if it is another kind of file, or of a newer format.
pub fn read(data: &[u8]) -> Result<NvtxLog, NvtxLogError> {
    let mut log = NvtxLog::default();
    let mut budget = MemoryBudget::for_file(data.len());
    let mut offset = 0u64;
    for raw in data.split(|b| *b == b'\n') {
        let start = offset;
        offset += raw.len() as u64 + 1;
        if raw.trim_ascii().is_empty() {
            continue;
        }
        let line = match serde_json::from_slice::<Line>(raw) {
            Ok(line) => line,
            Err(_) if log.sessions.is_empty() => {
                let start = raw[..raw.len().min(60)].escape_ascii().to_string();
                return Err(NvtxLogError::NotALog { start });
            }
            Err(_) => {
                log.broken_lines += 1;
                log.first_broken.get_or_insert(start);
                continue;
            }
        };
        let own_bytes = match line {
            Line::Opened(_) => SESSION_BYTES,
            Line::Unknown => 0,
            _ => LINE_BYTES,
        };
        let taken = budget.take(own_bytes + TEXT_COPIES * raw.len());
        taken.map_err(|over| NvtxLogError::TooMuchMemory { offset: start, over })?;
        if let Line::Opened(opened) = line {
            if opened.format != 1 {
                let format = opened.format;
                return Err(NvtxLogError::UnsupportedFormat { format, offset: start });
            }
            log.sessions.push(Session { opened, ..Session::default() });
            continue;
        }
        let Some(session) = log.sessions.last_mut() else {
            let start = "a line before `opened`".to_owned();
            return Err(NvtxLogError::NotALog { start });
        };
        match line {
            Line::Opened(_) => {}
            Line::Domain { domain, name } => drop(session.domains.insert(domain, name)),
            Line::Category { domain, category, name } => {
                session.categories.insert((domain, category), name);
            }
            Line::Thread { tid, name } => drop(session.threads.insert(tid, name)),
            Line::Push(fields) => session.events.push(fields.event(EventKind::Push)),
            Line::Pop(fields) => session.events.push(fields.event(EventKind::Pop)),
            Line::Start(fields) => session.events.push(fields.event(EventKind::Start)),
            Line::End(fields) => session.events.push(fields.event(EventKind::End)),
            Line::Mark(fields) => session.events.push(fields.event(EventKind::Mark)),
            Line::Cupti(cupti) => session.cupti = Some(cupti),
            Line::Name { id, text } => drop(session.names.insert(id, text)),
            Line::Kernel(line) => {
                let kind = LoggedWorkKind::Kernel(KernelFacts {
                    name: line.name,
                    grid: line.grid,
                    block: line.block,
                    registers: line.registers,
                    static_bytes: line.static_bytes,
                    dynamic_bytes: line.dynamic_bytes,
                    local_bytes: line.local_bytes,
                    graph_node: line.graph_node,
                });
                session.work.push(line.work(kind));
            }
            Line::Copy(line) => {
                let kind = LoggedWorkKind::Copy { kind: line.kind.unwrap_or(0) };
                session.work.push(line.work(kind));
            }
            Line::Set(line) => {
                let kind = LoggedWorkKind::Set { value: line.value };
                session.work.push(line.work(kind));
            }
            Line::Call(line) => session.calls.extend(line.call()),
            Line::Closed(closed) => session.closed = Some(closed),
            Line::Unknown => log.unknown_lines += 1,
        }
    }
    if log.sessions.is_empty() {
        return Err(NvtxLogError::NotALog { start: String::new() });
    }
    Ok(log)
}

impl Activity {
    fn span_ns(&self) -> Option<(u64, u64)> {
        Some((self.ns?, self.end_ns?))
    }

    fn work(self, kind: LoggedWorkKind) -> LoggedWork {
        LoggedWork {
            kind,
            span_ns: self.span_ns(),
            id: self.id,
            device: self.device,
            context: self.context,
            stream: self.stream,
            bytes: self.bytes.unwrap_or(0),
        }
    }

    /// A call; `None` if its times are missing.
    fn call(self) -> Option<Call> {
        let (start_ns, end_ns) = self.span_ns()?;
        Some(Call {
            start_ns,
            end_ns,
            id: self.id,
            tid: self.tid,
            name: self.name,
            result: self.result,
        })
    }
}

impl NvtxFields {
    fn event(self, kind: EventKind) -> NvtxLogEvent {
        NvtxLogEvent {
            kind,
            ns: self.ns,
            tid: self.tid,
            domain: self.domain,
            level: self.level,
            id: self.id,
            message: self.message,
            category: self.category,
            payload: self.payload,
        }
    }
}
