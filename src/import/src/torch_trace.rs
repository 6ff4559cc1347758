//! Traces of `torch.profiler` and of JAX to operators, launches, copies and regions.
//!
//! The trace is converted to the same rows as nsys's, so that work, regions and single events are
//! imported the same way; annotations (`record_function`, the profiler's steps) are the ranges.
//! Operators are summed as well: GPU time belongs to the operators that were open on the launching
//! thread.

mod host;
mod memory;
mod operators;
mod places;
mod products;
mod ranks;
mod recording;
mod sound;

use std::collections::HashMap;
use std::convert::Infallible;

use rgpu_format::nsys_row::{
    ApiCall, CopyKind, GraphLaunch, Kernel, Memcpy, Memset, NvtxEvent, NvtxKind, Strings,
};
use rgpu_format::torch_trace::{EventKind, TorchEvent, TorchTrace};
use rgpu_format::unpack;

use super::nsys::ranks::CollectiveFacts;
use super::nsys::rows::TraceRows;
use super::{ImportedArtifact, Importer, RejectedReport, nsys};
use rgpu_model::profile::ArtifactKind;
use rgpu_model::profile::Gap;

/// `torch_trace`: the Chrome trace that torch.profiler exports.
pub(super) const IMPORTER: Importer = Importer {
    kind: ArtifactKind::TorchTrace,
    recognises: |_, head| TorchTrace::is_trace(&unpack::head(head, HEAD_BYTES)),
    import: |source| {
        let (bytes, cut) = source.unpacked()?;
        let mut trace = TorchTrace::read(&bytes).map_err(|cause| source.broken(cause))?;
        drop(bytes);
        if let Some(cut) = cut {
            trace.broken = Some(cut.to_string());
        }
        let left_out = sound::leave_out(&mut trace);
        let mut imported = import_as(&trace, source.from, source.is_rank);
        imported.gaps.extend(left_out.gaps(source.from));
        Ok(imported)
    },
};

/// Most bytes of a packed trace that are unpacked to recognise it.
const HEAD_BYTES: usize = 64 << 10;

/// Imports a trace; `from` is its path in the run folder.
pub fn import(trace: &TorchTrace, from: &str) -> ImportedArtifact {
    import_as(trace, from, false)
}

/// Imports a trace; with `is_rank`, its process is a rank of a program of several.
fn import_as(trace: &TorchTrace, from: &str, is_rank: bool) -> ImportedArtifact {
    let Ok(mut imported) = nsys::import(&TorchRows(trace), from, is_rank);
    for rank in imported.sidecars.ranks.iter_mut().flat_map(|joined| &mut joined.ranks) {
        ranks::add_rank_location(rank, trace);
    }
    imported.refusals.retain(|refusal| refusal.code != nsys::NO_GPU_ROWS);
    let on_gpu = trace.events.iter().any(|event| work(event.kind));
    let places = places::operator_places(trace);
    imported.operators = operators::sum(trace, &places, from);
    imported.device = trace.devices.first().cloned();
    imported.memory = memory::peaks(trace, from);
    if let Some(events) = &mut imported.sidecars.trace {
        events.memory = memory::points(trace, first_ns(trace));
        events.host = host::events(trace, &places, first_ns(trace));
    }
    if let Some(known) = &trace.recording {
        imported.program_model = recording::model(known);
        imported.stages = recording::stages(known, trace.plain_step_ns, &imported.regions);
        imported.gaps.extend(recording::gaps(known, from));
        if known.cuda && !on_gpu {
            imported.refusals.push(RejectedReport {
                code: nsys::NO_GPU_ROWS,
                text: format!(
                    "{from}: the program used the GPU, but torch's profiler recorded none of it: \
                     CUPTI is missing in its environment, refused, or used by another profiler"
                ),
                ..RejectedReport::default()
            });
        }
    }
    let mut gap = |code: &str, text: String| {
        imported.gaps.push(Gap { code: code.to_owned(), text: format!("{from}: {text}") });
    };
    if !on_gpu {
        gap("no_gpu_rows", without_gpu(trace));
    }
    if let Some(cause) = &trace.broken {
        gap(
            "damaged_report",
            format!("{cause}; the {} events before are kept", trace.events.len()),
        );
    }
    if trace.malformed > 0 {
        gap("damaged_report", format!("{} events lack a time or are malformed", trace.malformed));
    }
    imported
}

/// What a trace without GPU work has, and why it may have none.
fn without_gpu(trace: &TorchTrace) -> String {
    let count = |kind| trace.events.iter().filter(|event| event.kind == kind).count() as u64;
    let calls = count(EventKind::Call);
    let parts = [
        (count(EventKind::Operator), "operators"),
        (count(EventKind::Annotation), "ranges"),
        (calls, "CUDA calls"),
        (trace.python_calls.len() as u64, "calls of Python functions"),
        (trace.other, "other events"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> =
        parts.map(|(count, what)| format!("{} {what}", nsys::grouped(count))).collect();
    let why = if calls > 0 {
        "Its calls used a GPU, and no work was recorded: another profiler may have used CUPTI, or \
         the work ended after the recording"
    } else {
        "`ProfilerActivity.CUDA` may be missing, or the program may have used no GPU"
    };
    format!(
        "the trace has no GPU work; its times are host times. It has {}. {why}",
        if parts.is_empty() { "nothing else".to_owned() } else { parts.join(", ") }
    )
}

/// The time that single events are relative to: the start of the first one that is listed.
fn first_ns(trace: &TorchTrace) -> i64 {
    let listed = trace.events.iter().filter(|event| event.kind != EventKind::Operator);
    listed.map(|event| event.start_ns).min().unwrap_or_default()
}

/// Whether an event is GPU work.
fn work(kind: EventKind) -> bool {
    matches!(kind, EventKind::Kernel | EventKind::Copy | EventKind::Fill)
}

/// The trace as rows. It has one process, so all ids have the same process part.
struct TorchRows<'a>(&'a TorchTrace);

const PROCESS_ID: i64 = 1 << 24;

fn thread_id(tid: i64) -> i64 {
    PROCESS_ID | (tid & (PROCESS_ID - 1))
}

impl TorchRows<'_> {
    fn each(&self, kind: EventKind, mut row: impl FnMut(&TorchEvent)) -> Result<(), Infallible> {
        self.0.events.iter().filter(|event| event.kind == kind).for_each(&mut row);
        Ok(())
    }
}

fn end(event: &TorchEvent) -> i64 {
    event.start_ns.saturating_add_unsigned(event.duration_ns)
}

fn stream(event: &TorchEvent) -> Option<u32> {
    event.stream.and_then(|stream| u32::try_from(stream).ok())
}

/// The kind of copy, from names such as `Memcpy HtoD (Pageable -> Device)`.
fn copy_kind(name: &str) -> CopyKind {
    match name.split_whitespace().nth(1) {
        Some("HtoD") => CopyKind::HostToDevice,
        Some("DtoH") => CopyKind::DeviceToHost,
        Some("DtoD") => CopyKind::DeviceToDevice,
        Some("HtoH") => CopyKind::HostToHost,
        Some("PtoP") => CopyKind::PeerToPeer,
        Some("HtoA") => CopyKind::HostToArray,
        Some("AtoH") => CopyKind::ArrayToHost,
        Some("AtoA") => CopyKind::ArrayToArray,
        Some("AtoD") => CopyKind::ArrayToDevice,
        Some("DtoA") => CopyKind::DeviceToArray,
        _ => CopyKind::Other(0),
    }
}

/// Whether the host's side of a copy is pageable memory, from such a name. `None` if it does not
/// tell.
fn is_pageable(name: &str) -> Option<bool> {
    match (name.contains("Pageable"), name.contains("Pinned")) {
        (true, _) => Some(true),
        (false, true) => Some(false),
        (false, false) => None,
    }
}

impl TraceRows for TorchRows<'_> {
    type Error = Infallible;

    fn strings(&self) -> Result<Strings, Infallible> {
        Ok((0..).zip(self.0.names.iter().cloned()).collect())
    }

    fn kernels(&self, mut row: impl FnMut(Kernel)) -> Result<(), Infallible> {
        self.each(EventKind::Kernel, |event| {
            row(Kernel {
                start_ns: event.start_ns,
                end_ns: end(event),
                device: event.device,
                stream: stream(event),
                correlation: event.correlation,
                global_pid: Some(PROCESS_ID),
                demangled: Some(i64::from(event.name)),
                grid: event.grid,
                block: event.block,
                graph_node: event.graph_node,
                registers: event.registers,
                static_shared_bytes: event.shared_bytes,
                ..Kernel::default()
            });
        })
    }

    fn memcpys(&self, mut row: impl FnMut(Memcpy)) -> Result<(), Infallible> {
        self.each(EventKind::Copy, |event| {
            row(Memcpy {
                start_ns: event.start_ns,
                end_ns: end(event),
                bytes: event.bytes.unwrap_or(0),
                kind: copy_kind(self.0.name(event)),
                pageable: is_pageable(self.0.name(event)),
                device: event.device,
                stream: stream(event),
                correlation: event.correlation,
                global_pid: Some(PROCESS_ID),
            });
        })
    }

    fn memsets(&self, mut row: impl FnMut(Memset)) -> Result<(), Infallible> {
        self.each(EventKind::Fill, |event| {
            row(Memset {
                start_ns: event.start_ns,
                end_ns: end(event),
                bytes: event.bytes.unwrap_or(0),
                value: None,
                device: event.device,
                stream: stream(event),
                correlation: event.correlation,
                global_pid: Some(PROCESS_ID),
            });
        })
    }

    fn graph_launches(&self, _: impl FnMut(GraphLaunch)) -> Result<(), Infallible> {
        Ok(())
    }

    fn api_calls(&self, mut row: impl FnMut(ApiCall)) -> Result<(), Infallible> {
        self.each(EventKind::Call, |event| {
            row(ApiCall {
                start_ns: event.start_ns,
                end_ns: end(event),
                global_tid: Some(thread_id(event.tid)),
                correlation: event.correlation,
                name: Some(i64::from(event.name)),
                return_value: None,
            });
        })
    }

    fn collectives(&self) -> HashMap<i64, CollectiveFacts> {
        ranks::collectives(self.0)
    }

    fn nvtx_events(&self, mut row: impl FnMut(NvtxEvent)) -> Result<(), Infallible> {
        self.each(EventKind::Annotation, |event| {
            row(NvtxEvent {
                kind: NvtxKind::PushPop,
                start_ns: event.start_ns,
                end_ns: Some(end(event)),
                text: None,
                text_id: Some(i64::from(event.name)),
                domain: None,
                global_tid: Some(thread_id(event.tid)),
                end_global_tid: None,
                range_id: None,
                category: None,
                payload: None,
            });
        })
    }
}

#[cfg(test)]
mod tests;
