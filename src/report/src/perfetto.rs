//! The timeline as a Perfetto trace: threads with their ranges and calls, GPU streams with kernels
//! and copies, flows from each call to the work that it launched, and counters of the memory of a
//! framework's allocator.
//!
//! A trace is a sequence of `TracePacket`s. A `TrackDescriptor` names a track; a slice is a
//! `TrackEvent` that begins it and one that ends it. Field numbers: `protos/perfetto/trace/` in
//! Perfetto's repository, checked against the compiled protos of the PyPI package `perfetto`.
//! Slices of one track must nest, so events that cross each other go to different tracks.

mod nest;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use nest::{Slice, lanes};
use wire::Message;

use super::{Document, ReportInput, Style};
use rgpu_model::memory::MemoryPoint;
use rgpu_model::trace::{Trace, TraceWorkKind};

/// Values of `TrackEvent.type`: a slice begins or ends, a counter changes.
const BEGIN: u64 = 1;
const END: u64 = 2;
const COUNTER: u64 = 4;
/// `CounterDescriptor.unit`.
const UNIT_BYTES: u64 = 3;
/// The `trusted_packet_sequence_id`: this trace has a single writer.
const SEQUENCE: u64 = 1;
/// The process id of the program, or of its rank 0; our traces do not record the real one.
const PID: u64 = 1;

/// Returns why there is nothing to render; a trace without events would show as empty.
pub(super) fn lacks(subject: &ReportInput<'_>) -> Option<&'static str> {
    let events = |t: &Trace| t.work.len() + t.ranges.len() + t.calls.len() + t.memory.len();
    match subject.trace {
        Some(trace) if events(trace) > 0 => None,
        _ => {
            Some("the run has no timeline: nsys, the CUPTI collector and torch.profiler record one")
        }
    }
}

/// Renders the trace; it has no tracks if there is no timeline.
pub(super) fn render(subject: &ReportInput<'_>, _: &Style) -> Vec<Document<'static>> {
    let mut file = TraceWriter::default();
    if let Some(trace) = subject.trace {
        file.host(trace, &subject.profile.kernel.name);
        file.gpus(trace);
    }
    vec![Document::new("trace.pftrace", file.bytes)]
}

/// Ranges and calls by thread.
type Threads<'a> = BTreeMap<u64, [Vec<Slice<'a>>; 2]>;

#[derive(Default)]
struct TraceWriter {
    bytes: Vec<u8>,
    /// The number of tracks so far; a track's number is its `uuid`.
    tracks: u64,
}

impl TraceWriter {
    /// Adds a packet with `body` as its field `field`.
    fn packet(&mut self, field: u32, body: &Message, at_ns: Option<u64>) {
        let mut packet = Message::default();
        if let Some(at_ns) = at_ns {
            packet.number(8, at_ns);
        }
        packet.number(10, SEQUENCE);
        packet.message(field, body);
        let mut file = Message::default();
        file.message(1, &packet);
        self.bytes.extend(file.into_bytes());
    }

    /// Adds a track under `parent` and returns its number; `kind` is the descriptor of its kind.
    fn track(&mut self, name: &str, parent: Option<u64>, kind: Option<(u32, Message)>) -> u64 {
        self.tracks += 1;
        let mut track = Message::default();
        track.number(1, self.tracks);
        track.text(2, name);
        if let Some((field, body)) = kind {
            track.message(field, &body);
        }
        if let Some(parent) = parent {
            track.number(5, parent);
        }
        self.packet(60, &track, None);
        self.tracks
    }

    /// Adds the begin or end event of a slice.
    fn event(&mut self, kind: u64, track: u64, at_ns: u64, slice: Option<&Slice<'_>>) {
        let mut event = Message::default();
        event.number(9, kind);
        event.number(11, track);
        if let Some(slice) = slice {
            event.text(22, slice.category);
            event.text(23, slice.name);
            if let Some(flow) = slice.flow {
                event.fixed(47, flow);
            }
            for (key, value) in &slice.facts {
                let mut fact = Message::default();
                fact.number(3, *value);
                fact.text(10, key);
                event.message(4, &fact);
            }
        }
        self.packet(11, &event, Some(at_ns));
    }

    /// Adds slices under `parent`. Slices that cross others get another track of the same name.
    fn slices(&mut self, name: &str, parent: u64, slices: Vec<Slice<'_>>) {
        for lane in lanes(slices) {
            let track = self.track(name, Some(parent), None);
            let mut open: Vec<u64> = Vec::new();
            for slice in &lane {
                while let Some(end) = open.pop_if(|end| *end <= slice.start_ns) {
                    self.event(END, track, end, None);
                }
                self.event(BEGIN, track, slice.start_ns, Some(slice));
                open.push(slice.end_ns);
            }
            while let Some(end) = open.pop() {
                self.event(END, track, end, None);
            }
        }
    }

    fn host(&mut self, trace: &Trace, program: &str) {
        // The threads of each rank, or of the only process.
        let mut processes: BTreeMap<Option<u32>, Threads<'_>> = BTreeMap::new();
        for range in &trace.ranges {
            // A range that was never closed lasts to the end of the trace.
            let length = range.duration_ns.unwrap_or(trace.span_ns.saturating_sub(range.start_ns));
            let slice = Slice::new(name(trace, range.name), "nvtx", range.start_ns, length);
            let threads = processes.entry(range.rank).or_default();
            threads.entry(range.thread).or_default()[0].push(slice);
        }
        for (at, call) in trace.calls.iter().enumerate() {
            let mut slice =
                Slice::new(name(trace, call.name), "cuda", call.start_ns, call.duration_ns);
            slice.flow = Some(flow(at));
            let threads = processes.entry(call.rank).or_default();
            threads.entry(call.thread).or_default()[1].push(slice);
        }
        for (rank, threads) in processes {
            let name = match rank {
                Some(rank) => format!("rank {rank}"),
                None => program.to_owned(),
            };
            self.process(&name, PID + u64::from(rank.unwrap_or(0)), threads);
        }
    }

    fn process(&mut self, name: &str, pid: u64, threads: Threads<'_>) {
        let mut process = Message::default();
        process.number(1, pid);
        process.text(6, name);
        let process = self.track(name, None, Some((3, process)));
        for (at, (id, [ranges, calls])) in threads.into_iter().enumerate() {
            let label = format!("thread {id}");
            let mut thread = Message::default();
            thread.number(1, pid);
            // Tools pack process and thread into one number, but the field has only 31 bits.
            thread.number(2, at as u64 + 1);
            thread.text(5, &label);
            let thread = self.track(&label, Some(process), Some((4, thread)));
            self.slices("NVTX", thread, ranges);
            self.slices("CUDA calls", thread, calls);
        }
    }

    fn gpus(&mut self, trace: &Trace) {
        let mut gpus: BTreeMap<(Option<u32>, u32), BTreeMap<u64, Vec<Slice<'_>>>> = BTreeMap::new();
        for work in &trace.work {
            let category = match work.kind {
                TraceWorkKind::Kernel => "kernel",
                TraceWorkKind::Copy => "copy",
                TraceWorkKind::Set => "memset",
                TraceWorkKind::Graph => "graph",
            };
            let mut slice =
                Slice::new(name(trace, work.name), category, work.start_ns, work.duration_ns);
            slice.flow = work.call.map(|call| flow(call as usize));
            slice.facts.extend(work.bytes.map(|n| ("bytes", n)));
            slice.facts.extend(work.launch.map(|n| ("launch", n.into())));
            let gpu = (work.rank, work.device);
            gpus.entry(gpu).or_default().entry(work.stream).or_default().push(slice);
        }
        for point in &trace.memory {
            if !gpus.keys().any(|(_, gpu)| *gpu == point.device) {
                gpus.entry((None, point.device)).or_default();
            }
        }
        let mut with_memory = BTreeSet::new();
        for ((rank, gpu), streams) in gpus {
            let of_rank = rank.map_or_else(String::new, |rank| format!("rank {rank}, "));
            let parent = self.track(&format!("{of_rank}GPU {gpu}"), None, None);
            for (stream, slices) in streams {
                self.slices(&format!("stream {stream}"), parent, slices);
            }
            if with_memory.insert(gpu) {
                self.memory(trace, gpu, parent);
            }
        }
    }

    /// Adds the allocator's memory on a GPU as two counters, with PyTorch's words.
    fn memory(&mut self, trace: &Trace, gpu: u32, parent: u64) {
        let points = || trace.memory.iter().filter(|point| point.device == gpu);
        if points().next().is_none() {
            return;
        }
        let counters: [(&str, fn(&MemoryPoint) -> u64); 2] = [
            ("allocated memory", |point| point.allocated_bytes),
            ("reserved memory", |point| point.reserved_bytes),
        ];
        for (name, bytes_of) in counters {
            let mut unit = Message::default();
            unit.number(3, UNIT_BYTES);
            let track = self.track(name, Some(parent), Some((8, unit)));
            for point in points() {
                let mut event = Message::default();
                event.number(9, COUNTER);
                event.number(11, track);
                event.number(30, bytes_of(point));
                self.packet(11, &event, Some(point.at_ns));
            }
        }
    }
}

/// The flow id of a call: its index plus 1, since 0 means no flow.
fn flow(call: usize) -> u64 {
    call as u64 + 1
}

fn name(trace: &Trace, at: u32) -> &str {
    trace.names.get(at as usize).map_or("?", String::as_str)
}
