//! Reader of the Chrome trace that `torch.profiler` exports (`*.pt.trace.json`).
//!
//! One JSON object: `schemaVersion`, `deviceProperties` [{`id`, `name`, `computeMajor` …}],
//! `distributedInfo`, and `traceEvents`, of which we take those with a duration (`"ph": "X"`):
//!
//! | `cat` | what | `args` that we take |
//! |---|---|---|
//! | `cpu_op`, `Operator` | an operator on a thread | `External id`, `Input Dims`, `Input type`, `Sequence number` |
//! | `user_annotation` | a `record_function` range, a profiler's step | |
//! | `cuda_runtime`, `cuda_driver`, `Runtime` | a call into CUDA | `correlation` |
//! | `kernel`, `Kernel` | a kernel; `pid` is the device, `tid` the stream | `correlation`, `External id`, `device`, `stream`, `grid`, `block`, `registers per thread`, `shared memory` |
//! | `gpu_memcpy`, `Memcpy` | a copy | `correlation`, `bytes` |
//! | `gpu_memset`, `Memset` | a fill | `correlation`, `bytes` |
//! | `python_function` | a call of a Python function: `file.py(12): name`, with the line of its `def` | |
//!
//! With `"ph": "i"` and the name `[memory]`, an event is a change of an allocator, from whose
//! `args` we take `Device Type` (0 is the host), `Device Id`, `Total Allocated` and
//! `Total Reserved`. Backward operators have the `Sequence number` of their forward operator and
//! its `Fwd thread id`, which is 0 for forward operators. The keys `rgpu` ([`Recording`]) and
//! `rgpu_plain_step_ns` are our own.
//!
//! Kernels of NCCL have the arguments of their collective since torch 2.3: `Collective name`,
//! `In msg nelems`, `Out msg nelems`, `dtype`, `Group size`, `Process Group Name`,
//! `Process Group Ranks`. `distributedInfo` has `rank` and `world_size`; `baseTimeNanoseconds` is
//! the time since 1970 that `ts` begins at.
//!
//! `ts` and `dur` are microseconds, as whole numbers before 2024 and with three decimals since. The
//! capitalised categories are those of 2021. Arrows between calls and kernels (`ac2g`) only repeat
//! the correlations. Everything else is counted and skipped.
//!
//! JAX's traces (`*.trace.json.gz`) have no `cat`. Events of metadata name the processes and
//! threads: `/device:GPU:0` and `Stream #7(…)`. There an event with the argument `kernel_details`
//! (`regs:32 static_shared:0 dynamic_shared:0 grid:1,1,1 block:32,1,1 …`) is a kernel, one with
//! `memcpy_details` (`… size:4096 …`) a copy, one with `memset_details` a fill; `correlation_id` is
//! text. The other events of a GPU repeat them by module and operation.
//!
//! Tested with public recordings of 2023 and 2024 (schema 1) from HolisticTraceAnalysis, and with
//! recordings of torch 2.x on a CPU.

mod jax;
mod recording;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use thiserror::Error;

use crate::memory::{MemoryBudget, OverBudget};

pub use recording::{RangeWork, RecordedMemory, RecordedModel, Recording};

/// The reason why a trace could not be read.
#[derive(Debug, Error)]
pub enum TorchTraceError {
    /// The file is not JSON, or the JSON is broken or cut off.
    #[error("no trace of torch.profiler: {0}")]
    Json(serde_json::Error),
    /// The JSON contains no events.
    #[error("JSON without `traceEvents`")]
    NoEvents,
    /// Its text takes too much memory, once bytes that are no UTF-8 and numbers that are no JSON
    /// are replaced.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

/// Memory that is left to the regions that are made of annotations.
const REGION_BYTES: usize = 16 << 20;
/// Memory of a name: its copies for the lookup and the import, and the sums by name.
const NAME_BYTES: usize = 1200;
/// Memory of each of the first kernels, which are listed one by one, and how many those are.
const LISTED_KERNEL_BYTES: usize = 2000;
const MAX_LISTED_KERNELS: u64 = 10_000;
/// Shapes of inputs that are longer are not kept.
const MAX_SHAPES_BYTES: usize = 16 << 10;
/// Memory of a call of a Python function, with its places.
const PYTHON_CALL_BYTES: usize = 128;
/// Memory of a change of GPU memory, with its point in the list of events.
const MEMORY_CHANGE_BYTES: usize = 96;
/// Memory of a GPU's name.
const DEVICE_BYTES: usize = 96;
/// Memory of a range's work in [`Recording`].
const RANGE_WORK_BYTES: usize = 400;

/// Memory of an event, with the rows and sums that are made of it.
fn event_bytes(kind: EventKind) -> usize {
    match kind {
        EventKind::Operator => 320,
        EventKind::Call => 420,
        EventKind::Annotation => 560,
        EventKind::Kernel | EventKind::Copy | EventKind::Fill => 640,
    }
}

/// Kind of work of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// An operator of PyTorch, on a host thread.
    Operator,
    /// A range of the user or the profiler.
    Annotation,
    /// A call into CUDA.
    Call,
    /// A kernel on a GPU.
    Kernel,
    /// A copy of memory that a GPU made.
    Copy,
    /// A fill of device memory.
    Fill,
}

/// An event with a duration.
#[derive(Debug, Clone, PartialEq)]
pub struct TorchEvent {
    /// Whether it is an operator, a call into CUDA or GPU work.
    pub kind: EventKind,
    /// Its name, as an index into [`TorchTrace::names`].
    pub name: u32,
    /// Process id, or the device for GPU work.
    pub pid: i64,
    /// Thread id, or the stream for GPU work.
    pub tid: i64,
    /// Start in nanoseconds on the trace's own clock.
    pub start_ns: i64,
    /// Duration in nanoseconds, from `dur`.
    pub duration_ns: u64,
    /// Matches GPU work with the call that started it.
    pub correlation: Option<i64>,
    /// Device, for GPU work.
    pub device: Option<u32>,
    /// Stream, for GPU work.
    pub stream: Option<u64>,
    /// Node of a CUDA graph, for kernels that one launched.
    pub graph_node: Option<i64>,
    /// Number of bytes, for copies and fills.
    pub bytes: Option<u64>,
    /// Blocks of the grid, for kernels.
    pub grid: Option<[u32; 3]>,
    /// Threads per block, for kernels.
    pub block: Option<[u32; 3]>,
    /// Registers per thread, for kernels.
    pub registers: Option<u32>,
    /// Shared memory per block in bytes, for kernels.
    pub shared_bytes: Option<u64>,
    /// Shapes of an operator's inputs, as written in the trace.
    pub shapes: String,
    /// Types of an operator's inputs, as written in the trace: a number of [`TorchTrace::names`].
    pub types: Option<u32>,
    /// Number that a forward operator and its backward operators share.
    pub sequence: Option<i64>,
    /// Whether it is a backward operator.
    pub is_backward: bool,
    /// The collective, for kernels of NCCL.
    pub collective: Option<Box<TorchCollective>>,
}

/// The collective that a kernel of NCCL carries out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TorchCollective {
    /// Its name in torch: `allreduce`, `_allgather_base` …
    pub name: String,
    /// Elements that this rank puts in.
    pub in_elements: Option<u64>,
    /// Elements that this rank gets.
    pub out_elements: Option<u64>,
    /// Type of the elements, in torch's words: `Float`, `BFloat16` …
    pub dtype: String,
    /// Number of ranks in the group.
    pub group_size: Option<u32>,
    /// Name of the process group.
    pub group: String,
    /// Ranks of the group, as torch writes the list.
    pub group_ranks: String,
}

/// `distributedInfo` of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct DistributedInfo {
    /// Number of the rank.
    #[serde(default)]
    pub rank: Option<u32>,
    /// Number of ranks of the job; `None` if the trace does not state it.
    #[serde(default)]
    pub world_size: Option<u32>,
}

/// A call of a Python function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonCall {
    /// `file.py(12): name`, as an index into [`TorchTrace::names`].
    pub name: u32,
    /// Process id on the host.
    pub pid: i64,
    /// Thread id on the host.
    pub tid: i64,
    /// Start in nanoseconds on the trace's own clock.
    pub start_ns: i64,
    /// Duration in nanoseconds, with the calls that it makes.
    pub duration_ns: u64,
}

/// The state of a GPU's allocator after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryChange {
    /// Time in nanoseconds on the trace's own clock.
    pub at_ns: i64,
    /// Number of the GPU.
    pub device: u32,
    /// Bytes that tensors hold.
    pub allocated_bytes: u64,
    /// Bytes that the allocator holds.
    pub reserved_bytes: u64,
}

/// A trace of torch's profiler.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TorchTrace {
    /// Events with a duration and of a known kind, in file order.
    pub events: Vec<TorchEvent>,
    /// Calls of Python functions, in file order.
    pub python_calls: Vec<PythonCall>,
    /// Changes of GPU memory, in file order.
    pub memory: Vec<MemoryChange>,
    /// The record that our own hook added.
    pub recording: Option<Recording>,
    /// Nanoseconds of a step of the optimizer without the profiler: the median of those that our
    /// hook timed after the recording. `None` if they were too few or uneven.
    pub plain_step_ns: Option<u64>,
    /// The distinct names of events; events have an index into them.
    pub names: Vec<String>,
    /// Names of the GPUs, in the trace's order.
    pub devices: Vec<String>,
    /// The rank of the process.
    pub distributed: Option<DistributedInfo>,
    /// Nanoseconds since 1970 at which the trace's clock begins; 0 if the trace does not say.
    pub base_ns: i64,
    /// Number of events of other kinds.
    pub other: u64,
    /// Number of events of a known kind that lack a time or are malformed.
    pub malformed: u64,
    /// Why reading stopped early, if it did; earlier events are kept.
    pub broken: Option<String>,
}

impl TorchTrace {
    /// Whether the first bytes of a file look like such a trace.
    pub fn is_trace(head: &[u8]) -> bool {
        let text = String::from_utf8_lossy(head);
        let text = text.trim_start();
        let names = ["\"traceEvents\"", "\"schemaVersion\"", "\"deviceProperties\""];
        text.starts_with('{') && names.iter().any(|name| text.contains(name))
    }

    /// Reads a trace.
    ///
    /// # Errors
    /// [`TorchTraceError`]. A trace that was cut off gives the events before the cut.
    pub fn read(file: &[u8]) -> Result<TorchTrace, TorchTraceError> {
        let mut budget = MemoryBudget::for_file(file.len());
        // A budget is larger than this part of it.
        let _ = budget.take(REGION_BYTES);
        TorchTrace::read_within(file, budget)
    }

    fn read_within(file: &[u8], mut budget: MemoryBudget) -> Result<TorchTrace, TorchTraceError> {
        // Names of code that is gone are no UTF-8.
        let text = String::from_utf8_lossy(file);
        if let Cow::Owned(text) = &text {
            budget.take(text.len())?;
        }
        let text = without_bare_numbers(text, &mut budget)?;
        let mut building = TraceBuilder::new(budget);
        let mut json = serde_json::Deserializer::from_str(&text);
        let outcome = Document(&mut building).deserialize(&mut json);
        let mut trace = building.trace;
        match outcome {
            Ok(()) if !building.has_events => return Err(TorchTraceError::NoEvents),
            Ok(()) => {}
            Err(cause) if trace.events.is_empty() => return Err(TorchTraceError::Json(cause)),
            Err(cause) => trace.broken = Some(cause.to_string()),
        }
        Ok(trace)
    }

    /// The event's name; empty if its index is out of range.
    pub fn name(&self, event: &TorchEvent) -> &str {
        self.names.get(event.name as usize).map_or("", String::as_str)
    }
}

/// Replaces `NaN` and `Infinity`, which Python writes for numbers and JSON lacks, by `null`.
fn without_bare_numbers<'a>(
    text: Cow<'a, str>,
    budget: &mut MemoryBudget,
) -> Result<Cow<'a, str>, OverBudget> {
    const BARE: [&str; 3] = ["NaN", "-Infinity", "Infinity"];
    if !text.contains("NaN") && !text.contains("Infinity") {
        return Ok(text);
    }
    // `null` is longer than `NaN`, by a third at most.
    budget.take(text.len() + text.len() / 3)?;
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut is_escaped) = (false, false);
    let mut rest = &*text;
    while let Some(next) = rest.chars().next() {
        if !in_string && let Some(bare) = BARE.iter().find(|bare| rest.starts_with(**bare)) {
            out.push_str("null");
            rest = &rest[bare.len()..];
            continue;
        }
        in_string ^= next == '"' && !is_escaped;
        is_escaped = in_string && next == '\\' && !is_escaped;
        out.push(next);
        rest = &rest[next.len_utf8()..];
    }
    Ok(Cow::Owned(out))
}

struct TraceBuilder {
    trace: TorchTrace,
    numbers: HashMap<String, u32>,
    has_events: bool,
    jax: jax::Places,
    budget: MemoryBudget,
    /// Kernels so far, as far as they are listed.
    kernels: u64,
}

/// An event as stored in the JSON. A value of an unexpected type counts as absent.
#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(default, borrow)]
    ph: JsonText<'a>,
    #[serde(default, borrow)]
    cat: JsonText<'a>,
    #[serde(default, borrow)]
    name: JsonText<'a>,
    #[serde(default, borrow)]
    pid: JsonText<'a>,
    #[serde(default, borrow)]
    tid: JsonText<'a>,
    #[serde(default, borrow)]
    ts: JsonText<'a>,
    #[serde(default, borrow)]
    dur: JsonText<'a>,
    #[serde(default, borrow)]
    args: Option<&'a serde_json::value::RawValue>,
}

impl<'a> RawEvent<'a> {
    /// Its arguments; all are absent if they are no object.
    fn args(&self) -> RawArgs<'a> {
        let args = self.args.and_then(|args| serde_json::from_str(args.get()).ok());
        args.unwrap_or_default()
    }
}

#[derive(Default, Deserialize)]
struct RawArgs<'a> {
    #[serde(default, borrow)]
    correlation: JsonText<'a>,
    #[serde(default, borrow)]
    device: JsonText<'a>,
    #[serde(default, borrow)]
    stream: JsonText<'a>,
    #[serde(default, borrow)]
    bytes: JsonText<'a>,
    #[serde(default, borrow)]
    grid: JsonText<'a>,
    #[serde(default, borrow)]
    block: JsonText<'a>,
    #[serde(default, borrow, rename = "registers per thread")]
    registers: JsonText<'a>,
    #[serde(default, borrow, rename = "shared memory")]
    shared: JsonText<'a>,
    #[serde(default, borrow, rename = "Input Dims", alias = "Input dims")]
    shapes: JsonText<'a>,
    #[serde(default, borrow, rename = "Input type")]
    types: JsonText<'a>,
    #[serde(default, borrow, rename = "Sequence number")]
    sequence: JsonText<'a>,
    #[serde(default, borrow, rename = "Fwd thread id")]
    forward_thread: JsonText<'a>,
    #[serde(default, borrow, rename = "Device Type")]
    device_type: JsonText<'a>,
    #[serde(default, borrow, rename = "Device Id")]
    device_id: JsonText<'a>,
    #[serde(default, borrow, rename = "Total Allocated")]
    allocated: JsonText<'a>,
    #[serde(default, borrow, rename = "Total Reserved")]
    reserved: JsonText<'a>,
    #[serde(default, borrow, rename = "Collective name")]
    collective: JsonText<'a>,
    #[serde(default, borrow, rename = "In msg nelems", alias = "In msg size")]
    in_elements: JsonText<'a>,
    #[serde(default, borrow, rename = "Out msg nelems", alias = "Out msg size")]
    out_elements: JsonText<'a>,
    #[serde(default, borrow)]
    dtype: JsonText<'a>,
    #[serde(default, borrow, rename = "Group size")]
    group_size: JsonText<'a>,
    #[serde(default, borrow, rename = "Process Group Name")]
    group: JsonText<'a>,
    #[serde(default, borrow, rename = "Process Group Ranks")]
    group_ranks: JsonText<'a>,
    #[serde(default, borrow, rename = "graph node id")]
    graph_node: JsonText<'a>,
    #[serde(default, borrow)]
    name: JsonText<'a>,
    #[serde(default, borrow)]
    kernel_details: JsonText<'a>,
    #[serde(default, borrow)]
    memcpy_details: JsonText<'a>,
    #[serde(default, borrow)]
    memset_details: JsonText<'a>,
    #[serde(default, borrow)]
    correlation_id: JsonText<'a>,
}

impl RawArgs<'_> {
    /// The collective of a kernel. `None` for other kernels.
    fn collective(&self) -> Option<Box<TorchCollective>> {
        let count = |text: &JsonText<'_>| text.int().and_then(|n| u64::try_from(n).ok());
        Some(Box::new(TorchCollective {
            name: self.collective.text()?,
            in_elements: count(&self.in_elements),
            out_elements: count(&self.out_elements),
            dtype: self.dtype.text().unwrap_or_default(),
            group_size: self.group_size.int().and_then(|n| u32::try_from(n).ok()),
            group: self.group.text().unwrap_or_default(),
            group_ranks: match self.group_ranks.text() {
                Some(text) => text,
                None => self.group_ranks.json().to_owned(),
            },
        }))
    }

    /// The state of a GPU's allocator. `None` for the host's.
    fn memory(&self, at_ns: i64) -> Option<MemoryChange> {
        // `c10::DeviceType`: 0 is the CPU.
        self.device_type.int().filter(|kind| *kind > 0)?;
        let bytes = |text: &JsonText<'_>| text.int().and_then(|n| u64::try_from(n).ok());
        Some(MemoryChange {
            at_ns,
            device: self.device_id.int().and_then(|n| u32::try_from(n).ok())?,
            allocated_bytes: bytes(&self.allocated)?,
            reserved_bytes: bytes(&self.reserved).unwrap_or(0),
        })
    }
}

/// Any JSON value, kept as text.
#[derive(Default, Deserialize)]
#[serde(transparent)]
struct JsonText<'a>(#[serde(borrow)] Option<&'a serde_json::value::RawValue>);

impl JsonText<'_> {
    fn json(&self) -> &str {
        self.0.map_or("", serde_json::value::RawValue::get)
    }

    fn text(&self) -> Option<String> {
        serde_json::from_str(self.json()).ok()
    }

    /// A whole number, also one in quotes.
    fn int(&self) -> Option<i64> {
        self.unquoted().parse().ok()
    }

    fn unquoted(&self) -> &str {
        let json = self.json();
        json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or(json)
    }

    fn triple(&self) -> Option<[u32; 3]> {
        serde_json::from_str(self.json()).ok()
    }

    /// Converts microseconds with up to three decimals to nanoseconds exactly: `f64` cannot
    /// represent nanoseconds since 1970.
    fn nanos(&self) -> Option<i64> {
        let json = self.unquoted();
        let (whole, fraction) = json.split_once('.').unwrap_or((json, ""));
        if fraction.bytes().any(|b| !b.is_ascii_digit()) {
            return json
                .parse::<f64>()
                .ok()
                .filter(|us| us.abs() < 9e15)
                .map(|us| (us * 1e3) as i64);
        }
        let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
        let below = digits.parse::<i64>().ok()?;
        let ns = whole.parse::<i64>().ok()?.checked_mul(1000)?;
        if whole.starts_with('-') { ns.checked_sub(below) } else { ns.checked_add(below) }
    }
}

impl TraceBuilder {
    fn new(budget: MemoryBudget) -> Self {
        Self {
            trace: TorchTrace::default(),
            numbers: HashMap::new(),
            has_events: false,
            jax: jax::Places::default(),
            budget,
            kernels: 0,
        }
    }

    fn number(&mut self, name: String) -> Result<u32, OverBudget> {
        if let Some(number) = self.numbers.get(&name) {
            return Ok(*number);
        }
        self.budget.take(NAME_BYTES + 5 * name.len())?;
        let number = u32::try_from(self.trace.names.len()).unwrap_or(u32::MAX);
        self.trace.names.push(name.clone());
        self.numbers.insert(name, number);
        Ok(number)
    }

    fn take(&mut self, raw: &RawEvent<'_>) -> Result<(), OverBudget> {
        let category = raw.cat.text().unwrap_or_default();
        match raw.ph.text().as_deref() {
            Some("X") if category == "python_function" => self.take_python_call(raw)?,
            Some("M") => self.jax.see(raw),
            Some("X") if category.is_empty() => match self.jax.event(raw) {
                Some(kind) => self.take_event(raw, kind)?,
                None => self.trace.other += 1,
            },
            Some("X") => match kind(&category) {
                Some(kind) => self.take_event(raw, kind)?,
                None => self.trace.other += 1,
            },
            Some("i") if raw.name.json() == "\"[memory]\"" => {
                let change = raw.ts.nanos().and_then(|at_ns| raw.args().memory(at_ns));
                self.budget.take(MEMORY_CHANGE_BYTES)?;
                self.trace.memory.extend(change);
            }
            _ => self.trace.other += 1,
        }
        Ok(())
    }

    fn take_python_call(&mut self, raw: &RawEvent<'_>) -> Result<(), OverBudget> {
        let duration = raw.dur.nanos().and_then(|ns| u64::try_from(ns).ok());
        let (Some((start_ns, duration_ns)), Some(name)) =
            (raw.ts.nanos().zip(duration), raw.name.text())
        else {
            self.trace.malformed += 1;
            return Ok(());
        };
        self.budget.take(PYTHON_CALL_BYTES)?;
        let name = self.number(name)?;
        let (pid, tid) = (raw.pid.int().unwrap_or(-1), raw.tid.int().unwrap_or(-1));
        self.trace.python_calls.push(PythonCall { name, pid, tid, start_ns, duration_ns });
        Ok(())
    }

    fn take_event(&mut self, raw: &RawEvent<'_>, kind: EventKind) -> Result<(), OverBudget> {
        let times = raw.ts.nanos().zip(raw.dur.nanos().and_then(|ns| u64::try_from(ns).ok()));
        let (Some((start_ns, duration_ns)), Some(name)) = (times, raw.name.text()) else {
            self.trace.malformed += 1;
            return Ok(());
        };
        let args = raw.args();
        let shapes = match kind {
            EventKind::Operator if args.shapes.json().len() <= MAX_SHAPES_BYTES => {
                args.shapes.json()
            }
            _ => "",
        };
        let mut listed_bytes = 0;
        if kind == EventKind::Kernel && self.kernels < MAX_LISTED_KERNELS {
            self.kernels += 1;
            listed_bytes = LISTED_KERNEL_BYTES;
        }
        let collective = if kind == EventKind::Kernel { args.collective() } else { None };
        let collective_bytes = collective.as_ref().map_or(0, |collective| {
            let texts =
                [&collective.name, &collective.dtype, &collective.group, &collective.group_ranks];
            512 + 2 * texts.map(String::len).iter().sum::<usize>()
        });
        let bytes = event_bytes(kind) + listed_bytes + 2 * shapes.len() + collective_bytes;
        self.budget.take(bytes)?;
        let of_jax = self.jax.facts(raw, &args);
        let small = |value: &JsonText<'_>| value.int().and_then(|n| u32::try_from(n).ok());
        let unsigned = |value: &JsonText<'_>| value.int().and_then(|n| u64::try_from(n).ok());
        let name = self.number(name)?;
        let types = Some(args.types.json())
            .filter(|types| !shapes.is_empty() && (1..=MAX_SHAPES_BYTES).contains(&types.len()));
        let types = types.map(|types| self.number(types.into())).transpose()?;
        self.trace.events.push(TorchEvent {
            kind,
            name,
            pid: raw.pid.int().unwrap_or(-1),
            tid: raw.tid.int().unwrap_or(-1),
            start_ns,
            duration_ns,
            correlation: args.correlation.int().or(args.correlation_id.int()),
            device: small(&args.device).or(of_jax.device),
            stream: unsigned(&args.stream).or(of_jax.stream),
            graph_node: args.graph_node.int().filter(|node| *node != 0),
            bytes: unsigned(&args.bytes).or(of_jax.bytes),
            grid: args.grid.triple().or(of_jax.grid),
            block: args.block.triple().or(of_jax.block),
            registers: small(&args.registers).or(of_jax.registers),
            shared_bytes: unsigned(&args.shared).or(of_jax.shared_bytes),
            shapes: shapes.to_owned(),
            types,
            sequence: args.sequence.int().filter(|number| *number >= 0),
            is_backward: args.forward_thread.int().is_some_and(|thread| thread != 0),
            collective,
        });
        Ok(())
    }

    /// Takes a list or map of the trace from the budget.
    fn take_json<E: serde::de::Error>(&mut self, json: &str, value_bytes: usize) -> Result<(), E> {
        let taken = self.budget.take_json(json.as_bytes(), value_bytes, value_bytes);
        taken.map_err(E::custom)
    }
}

fn kind(category: &str) -> Option<EventKind> {
    Some(match category {
        "cpu_op" | "Operator" => EventKind::Operator,
        "user_annotation" => EventKind::Annotation,
        "cuda_runtime" | "cuda_driver" | "Runtime" => EventKind::Call,
        "kernel" | "Kernel" => EventKind::Kernel,
        "gpu_memcpy" | "Memcpy" => EventKind::Copy,
        "gpu_memset" | "Memset" => EventKind::Fill,
        _ => return None,
    })
}

/// The whole document. Events are processed one by one.
struct Document<'b>(&'b mut TraceBuilder);

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `traceEvents`")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        #[derive(Deserialize)]
        struct Device {
            #[serde(default)]
            name: Option<String>,
        }
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "traceEvents" => {
                    self.0.has_events = true;
                    map.next_value_seed(Events(self.0))?;
                }
                "deviceProperties" => {
                    let devices: &serde_json::value::RawValue = map.next_value()?;
                    self.0.take_json(devices.get(), DEVICE_BYTES)?;
                    let devices: Vec<Device> =
                        serde_json::from_str(devices.get()).unwrap_or_default();
                    self.0.trace.devices = devices.into_iter().filter_map(|d| d.name).collect();
                }
                "distributedInfo" => {
                    let info: &serde_json::value::RawValue = map.next_value()?;
                    self.0.trace.distributed = serde_json::from_str(info.get()).ok();
                }
                "baseTimeNanoseconds" => {
                    let base: &serde_json::value::RawValue = map.next_value()?;
                    self.0.trace.base_ns = base.get().parse().unwrap_or(0);
                }
                "rgpu" => {
                    let recording: &serde_json::value::RawValue = map.next_value()?;
                    self.0.take_json(recording.get(), RANGE_WORK_BYTES)?;
                    self.0.trace.recording = serde_json::from_str(recording.get()).ok();
                }
                "rgpu_plain_step_ns" => {
                    let step: &serde_json::value::RawValue = map.next_value()?;
                    self.0.trace.plain_step_ns = step.get().parse().ok();
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Events<'b>(&'b mut TraceBuilder);

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut events: S) -> Result<(), S::Error> {
        let mut number = 0_u64;
        while let Some(raw) = events.next_element::<&serde_json::value::RawValue>()? {
            number += 1;
            match serde_json::from_str::<RawEvent<'_>>(raw.get()) {
                Ok(event) => self.0.take(&event).map_err(|over| {
                    S::Error::custom(format!("event {number} does not fit: {over}"))
                })?,
                Err(_) => self.0.trace.malformed += 1,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
