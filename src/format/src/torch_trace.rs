//! Reader of the Chrome trace that `torch.profiler` exports (`*.pt.trace.json`).
//!
//! One JSON object: `schemaVersion`, `deviceProperties` [{`id`, `name`, `computeMajor` …}],
//! `distributedInfo`, and `traceEvents`, of which we take those with a duration (`"ph": "X"`):
//!
//! | `cat` | what | `args` that we take |
//! |---|---|---|
//! | `cpu_op`, `Operator` | an operator on a thread | `External id`, `Input Dims`, `Sequence number` |
//! | `user_annotation` | a `record_function` range, a profiler's step | |
//! | `cuda_runtime`, `cuda_driver`, `Runtime` | a call into CUDA | `correlation` |
//! | `kernel`, `Kernel` | a kernel; `pid` is the device, `tid` the stream | `correlation`, `External id`, `device`, `stream`, `grid`, `block`, `registers per thread`, `shared memory` |
//! | `gpu_memcpy`, `Memcpy` | a copy | `correlation`, `bytes` |
//! | `gpu_memset`, `Memset` | a fill | `correlation`, `bytes` |
//! | `python_function` | a call of a Python function: `file.py(12): name`, with the line of its `def` | |
//!
//! With `"ph": "i"` and the name `[memory]`, an event is a change of an allocator, from whose `args` we
//! take `Device Type` (0 is the host), `Device Id`, `Total Allocated` and `Total Reserved`. Backward
//! operators have the `Sequence number` of their forward operator and its `Fwd thread id`, which is 0
//! for forward operators. The keys `rgpu` ([`Recording`]) and `rgpu_plain_step_ns` are our own.
//!
//! Kernels of NCCL have the arguments of their collective since torch 2.3: `Collective name`, `In msg
//! nelems`, `Out msg nelems`, `dtype`, `Group size`, `Process Group Name`, `Process Group Ranks`.
//! `distributedInfo` has `rank` and `world_size`; `baseTimeNanoseconds` is the time since 1970 that
//! `ts` begins at.
//!
//! `ts` and `dur` are microseconds, as whole numbers before 2024 and with three decimals since. The
//! capitalised categories are those of 2021. Arrows between calls and kernels (`ac2g`) only repeat
//! the correlations. Everything else is counted and skipped.
//!
//! JAX's traces (`*.trace.json.gz`) have no `cat`. Events of metadata name the processes and threads:
//! `/device:GPU:0` and `Stream #7(…)`. There an event with the argument `kernel_details` (`regs:32
//! static_shared:0 dynamic_shared:0 grid:1,1,1 block:32,1,1 …`) is a kernel, one with
//! `memcpy_details` (`… size:4096 …`) a copy, one with `memset_details` a fill; `correlation_id` is
//! text. The other events of a GPU repeat them by module and operation.
//!
//! Tested with public recordings of 2023 and 2024 (schema 1) from HolisticTraceAnalysis, and with
//! recordings of torch 2.x on a CPU.

mod jax;
mod recording;

use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use thiserror::Error;

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
    /// Nanoseconds of a step of the optimizer without the profiler: the median of those that our hook
    /// timed after the recording. `None` if they were too few or uneven.
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
        let mut building = TraceBuilder::default();
        // Names of code that is gone are no UTF-8.
        let text = String::from_utf8_lossy(file);
        let text = without_bare_numbers(text);
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
fn without_bare_numbers(text: Cow<'_, str>) -> Cow<'_, str> {
    const BARE: [&str; 3] = ["NaN", "-Infinity", "Infinity"];
    if !text.contains("NaN") && !text.contains("Infinity") {
        return text;
    }
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
    Cow::Owned(out)
}

#[derive(Default)]
struct TraceBuilder {
    trace: TorchTrace,
    numbers: HashMap<String, u32>,
    has_events: bool,
    jax: jax::Places,
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
    fn number(&mut self, name: String) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        let number = u32::try_from(self.trace.names.len()).unwrap_or(u32::MAX);
        self.trace.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    fn take(&mut self, raw: &RawEvent<'_>) {
        let category = raw.cat.text().unwrap_or_default();
        match raw.ph.text().as_deref() {
            Some("X") if category == "python_function" => self.take_python_call(raw),
            Some("M") => self.jax.see(raw),
            Some("X") if category.is_empty() => match self.jax.event(raw) {
                Some(kind) => self.take_event(raw, kind),
                None => self.trace.other += 1,
            },
            Some("X") => match kind(&category) {
                Some(kind) => self.take_event(raw, kind),
                None => self.trace.other += 1,
            },
            Some("i") if raw.name.json() == "\"[memory]\"" => {
                let change = raw.ts.nanos().and_then(|at_ns| raw.args().memory(at_ns));
                self.trace.memory.extend(change);
            }
            _ => self.trace.other += 1,
        }
    }

    fn take_python_call(&mut self, raw: &RawEvent<'_>) {
        let duration = raw.dur.nanos().and_then(|ns| u64::try_from(ns).ok());
        let (Some((start_ns, duration_ns)), Some(name)) =
            (raw.ts.nanos().zip(duration), raw.name.text())
        else {
            self.trace.malformed += 1;
            return;
        };
        let name = self.number(name);
        let (pid, tid) = (raw.pid.int().unwrap_or(-1), raw.tid.int().unwrap_or(-1));
        self.trace.python_calls.push(PythonCall { name, pid, tid, start_ns, duration_ns });
    }

    fn take_event(&mut self, raw: &RawEvent<'_>, kind: EventKind) {
        let times = raw.ts.nanos().zip(raw.dur.nanos().and_then(|ns| u64::try_from(ns).ok()));
        let (Some((start_ns, duration_ns)), Some(name)) = (times, raw.name.text()) else {
            self.trace.malformed += 1;
            return;
        };
        let args = raw.args();
        let of_jax = self.jax.facts(raw, &args);
        let small = |value: &JsonText<'_>| value.int().and_then(|n| u32::try_from(n).ok());
        let unsigned = |value: &JsonText<'_>| value.int().and_then(|n| u64::try_from(n).ok());
        let name = self.number(name);
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
            shapes: match kind {
                EventKind::Operator => args.shapes.json().to_owned(),
                _ => String::new(),
            },
            sequence: args.sequence.int().filter(|number| *number >= 0),
            is_backward: args.forward_thread.int().is_some_and(|thread| thread != 0),
            collective: if kind == EventKind::Kernel { args.collective() } else { None },
        });
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
        while let Some(raw) = events.next_element::<&serde_json::value::RawValue>()? {
            match serde_json::from_str::<RawEvent<'_>>(raw.get()) {
                Ok(event) => self.0.take(&event),
                Err(_) => self.0.trace.malformed += 1,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"GPU"}],"traceEvents":[
        {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":7,"tid":7,"ts":1695835542515301.5,"dur":1.25,
         "args":{"External id":2,"Input Dims":[[2,3],[3,4]]}},
        {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1695835542515302,"dur":2,
         "args":{"correlation":5,"device":0,"stream":7,"grid":[1,2,3],"block":[4,1,1],"shared memory":16}},
        {"ph":"s","cat":"ac2g","name":"ac2g"},{"ph":"X","cat":"kernel","name":"k"},3"#;

    #[test]
    fn times_are_read_to_the_nanosecond_since_1970() {
        let trace = TorchTrace::read(format!("{ONE}]}}").as_bytes()).unwrap();
        assert_eq!(trace.events[0].start_ns, 1_695_835_542_515_301_500);
        assert_eq!(trace.events[0].duration_ns, 1250);
        assert_eq!(trace.events[0].shapes, "[[2,3],[3,4]]");
        assert_eq!(trace.events[1].grid, Some([1, 2, 3]));
        assert_eq!(trace.name(&trace.events[1]), "k");
        assert_eq!((trace.other, trace.malformed, trace.broken), (1, 2, None));
        assert_eq!(trace.devices, ["GPU"]);
    }

    #[test]
    fn python_calls_memory_and_our_own_key_are_read() {
        let text = r#"{"traceEvents":[
            {"ph":"X","cat":"python_function","name":"train.py(3): step","pid":7,"tid":8,"ts":1,"dur":5,
             "args":{"Python id":1}},
            {"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":7,"tid":8,"ts":2.5,
             "args":{"Total Reserved":2048,"Total Allocated":512,"Bytes":512,"Addr":1,"Device Id":0,"Device Type":1}},
            {"ph":"i","cat":"cpu_instant_event","name":"[memory]","ts":2.5,
             "args":{"Total Allocated":512,"Device Id":-1,"Device Type":0}},
            {"ph":"X","cat":"cpu_op","name":"MmBackward0","pid":7,"tid":9,"ts":3,"dur":1,
             "args":{"Sequence number":4,"Fwd thread id":1}}],
            "rgpu":{"recorded":"steps","steps":3,"cuda":true,"model":{"name":"llama","parameters":5},
                    "work":{"LLM@prefill":{"calls":1,"flops":2e9}},"memory":{"peak_allocated_bytes":9}},
            "rgpu_plain_step_ns": 4012345}"#;
        let trace = TorchTrace::read(text.as_bytes()).unwrap();
        let call = trace.python_calls[0];
        assert_eq!(trace.names[call.name as usize], "train.py(3): step");
        assert_eq!((call.tid, call.start_ns, call.duration_ns), (8, 1000, 5000));
        let change =
            MemoryChange { at_ns: 2500, device: 0, allocated_bytes: 512, reserved_bytes: 2048 };
        assert_eq!(trace.memory, [change], "memory of the host is left out");
        assert_eq!((trace.events[0].sequence, trace.events[0].is_backward), (Some(4), true));
        let recording = trace.recording.unwrap();
        assert_eq!((recording.steps, recording.cuda, recording.cut), (3, true, false));
        assert_eq!(trace.plain_step_ns, Some(4_012_345));
        assert_eq!(recording.work["LLM@prefill"], RangeWork { calls: 1, flops: 2e9 });
        assert_eq!(recording.model.unwrap().parameters, Some(5));
        assert_eq!(recording.memory.unwrap().peak_allocated_bytes, 9);
    }

    #[test]
    fn the_rank_and_the_collectives_of_its_kernels_are_read() {
        let text = r#"{"baseTimeNanoseconds":1790857026000000000,
            "distributedInfo":{"backend":"nccl","rank":3,"world_size":4},"traceEvents":[
            {"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","pid":0,"tid":7,
             "ts":1,"dur":2,"args":{"stream":7,"correlation":5,"Collective name":"allreduce",
             "In msg nelems":1024,"Out msg nelems":1024,"Group size":4,"dtype":"Float",
             "Process Group Name":"0","Process Group Ranks":"[0, 1, 2, 3]"}}]}"#;
        let trace = TorchTrace::read(text.as_bytes()).unwrap();
        let info = DistributedInfo { rank: Some(3), world_size: Some(4) };
        assert_eq!((trace.distributed, trace.base_ns), (Some(info), 1_790_857_026_000_000_000));
        let collective = trace.events[0].collective.as_deref().unwrap();
        assert_eq!((collective.name.as_str(), collective.in_elements), ("allreduce", Some(1024)));
        assert_eq!((&*collective.group, &*collective.group_ranks), ("0", "[0, 1, 2, 3]"));
        assert_eq!((&*collective.dtype, collective.group_size), ("Float", Some(4)));
    }

    #[test]
    fn a_trace_that_was_cut_off_keeps_its_events() {
        let trace = TorchTrace::read(ONE.as_bytes()).unwrap();
        assert_eq!(trace.events.len(), 2);
        assert!(trace.broken.is_some_and(|cause| cause.contains("EOF")));
        assert!(matches!(TorchTrace::read(b"{}"), Err(TorchTraceError::NoEvents)));
        assert!(matches!(TorchTrace::read(b"[1]"), Err(TorchTraceError::Json(_))));
        for end in 0..ONE.len() {
            let _ = TorchTrace::read(&ONE.as_bytes()[..end]);
        }
    }
}
