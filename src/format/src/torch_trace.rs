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
//!
//! `ts` and `dur` are microseconds, as whole numbers before 2024 and with three decimals since. The
//! capitalised categories are those of 2021. Arrows between calls and kernels (`ac2g`) only repeat
//! the correlations. Everything else is counted and skipped.
//!
//! Tested with public recordings of 2023 and 2024 (schema 1) from HolisticTraceAnalysis.

use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;
use thiserror::Error;

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
    /// Kind of the event.
    pub kind: EventKind,
    /// Its name, as an index into [`TorchTrace::names`].
    pub name: u32,
    /// Process id, or the device for GPU work.
    pub pid: i64,
    /// Thread id, or the stream for GPU work.
    pub tid: i64,
    /// Start in nanoseconds on the trace's own clock.
    pub start_ns: i64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
    /// Matches GPU work with the call that started it.
    pub correlation: Option<i64>,
    /// Device, for GPU work.
    pub device: Option<u32>,
    /// Stream, for GPU work.
    pub stream: Option<u64>,
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
}

/// A trace of torch's profiler.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TorchTrace {
    /// Events with a duration and of a known kind, in file order.
    pub events: Vec<TorchEvent>,
    /// Distinct event names.
    pub names: Vec<String>,
    /// Names of the GPUs, in the trace's order.
    pub devices: Vec<String>,
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
        let mut json = serde_json::Deserializer::from_slice(file);
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

    /// An event's name.
    pub fn name(&self, event: &TorchEvent) -> &str {
        self.names.get(event.name as usize).map_or("", String::as_str)
    }
}

#[derive(Default)]
struct TraceBuilder {
    trace: TorchTrace,
    numbers: HashMap<String, u32>,
    has_events: bool,
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

    fn int(&self) -> Option<i64> {
        self.json().parse().ok()
    }

    fn triple(&self) -> Option<[u32; 3]> {
        serde_json::from_str(self.json()).ok()
    }

    /// Converts microseconds with up to three decimals to nanoseconds exactly: `f64` cannot
    /// represent nanoseconds since 1970.
    fn nanos(&self) -> Option<i64> {
        let json = self.json();
        let json = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or(json);
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
        let kind = raw.cat.text().and_then(|category| kind(&category));
        let Some(kind) = kind.filter(|_| raw.ph.text().as_deref() == Some("X")) else {
            self.trace.other += 1;
            return;
        };
        let times = raw.ts.nanos().zip(raw.dur.nanos().and_then(|ns| u64::try_from(ns).ok()));
        let (Some((start_ns, duration_ns)), Some(name)) = (times, raw.name.text()) else {
            self.trace.malformed += 1;
            return;
        };
        let args = raw.args.and_then(|args| serde_json::from_str::<RawArgs<'_>>(args.get()).ok());
        let args = args.unwrap_or_default();
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
            correlation: args.correlation.int(),
            device: small(&args.device),
            stream: unsigned(&args.stream),
            bytes: unsigned(&args.bytes),
            grid: args.grid.triple(),
            block: args.block.triple(),
            registers: small(&args.registers),
            shared_bytes: unsigned(&args.shared),
            shapes: match kind {
                EventKind::Operator => args.shapes.json().to_owned(),
                _ => String::new(),
            },
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
