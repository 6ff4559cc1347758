//! Lists the single events of a trace in memory.

use std::collections::HashMap;

use super::attribute::AttributedWork;
use super::sums::copy_name;
use super::trace::{NsysWorkKind, Trace, process, rank_of};
use crate::trace_events::{NameTable, RegionTable, list_ranges, ns_since};
use rgpu_model as model;
use rgpu_model::trace::{CallEvent, SCHEMA, TraceWork, TraceWorkKind, UnlistedEvents};

/// The document of `trace`. `placed` gives the regions in which its work was launched. `processes`
/// are the ranks.
pub(super) fn list(
    trace: &Trace,
    placed: &AttributedWork,
    from: &str,
    processes: &[u64],
) -> model::Trace {
    let rank_of_thread = |thread: u64| rank_of(processes, process(Some(thread.cast_signed())));
    let mut names = NameTable::default();
    let mut regions = RegionTable::default();
    let mut call_of: HashMap<(u64, i64), u32> = HashMap::new();
    let calls: Vec<CallEvent> = trace
        .calls
        .calls
        .iter()
        .zip(0..)
        .map(|(call, index)| {
            if let Some(key) = call.key {
                call_of.insert(key, index);
            }
            let name = call.name.and_then(|id| trace.strings.get(id)).unwrap_or("(unnamed)");
            let name = plain_name(name);
            CallEvent {
                name: names.index(name),
                start_ns: ns_since(trace.first_ns, call.start_ns),
                duration_ns: ns_since(call.start_ns, call.end_ns),
                thread: call.thread,
                waits: waits(name),
                rank: rank_of_thread(call.thread),
            }
        })
        .collect();
    let (mut ranges, more_ranges) =
        list_ranges(&trace.ranges, &placed.tree, trace.first_ns, &mut names, &mut regions);
    ranges.iter_mut().for_each(|range| range.rank = rank_of_thread(range.thread));
    let launches: HashMap<u64, u32> =
        trace.first_kernels.iter().zip(0..).map(|((work, _), id)| (work.number, id)).collect();
    let listed = trace.listed.iter().map(|work| {
        let mut is_pageable = None;
        let (kind, name, bytes) = match work.what {
            NsysWorkKind::Kernel { name } => {
                (TraceWorkKind::Kernel, names.index(&trace.kernels[name as usize]), None)
            }
            NsysWorkKind::Copy { kind, bytes, pageable } => {
                is_pageable = pageable;
                (TraceWorkKind::Copy, names.index(&copy_name(kind)), Some(bytes))
            }
            NsysWorkKind::Set { bytes } => (TraceWorkKind::Set, names.index("memset"), Some(bytes)),
            NsysWorkKind::Graph => (TraceWorkKind::Graph, names.index("graph"), None),
        };
        let inside = placed.regions_of(trace, work);
        TraceWork {
            kind,
            name,
            start_ns: ns_since(trace.first_ns, work.start_ns),
            duration_ns: work.ns(),
            device: work.device,
            stream: u64::from(work.stream),
            bytes,
            pageable: is_pageable,
            call: work.key().and_then(|key| call_of.get(&key).copied()),
            launch: launches.get(&work.number).copied(),
            regions: inside.iter().map(|node| regions.index(&placed.tree, *node)).collect(),
            rank: rank_of(processes, work.process),
            shape: None,
        }
    });
    let work: Vec<TraceWork> = listed.collect();
    model::Trace {
        schema: SCHEMA.to_owned(),
        span_ns: ns_since(trace.first_ns, trace.last_ns),
        cut: UnlistedEvents {
            work: trace.work_count - work.len() as u64,
            ranges: more_ranges,
            calls: trace.calls.cut,
        },
        names: names.into_vec(),
        regions: regions.all,
        work,
        ranges,
        calls,
        host: Vec::new(),
        ranks: Vec::new(),
        memory: Vec::new(),
        from: from.to_owned(),
    }
}

/// The name as programs write it. nsys appends the entry point's version (`_v7000`) and the kind of
/// default stream (`_ptsz`).
fn plain_name(name: &str) -> &str {
    let name = match name.rsplit_once("_v") {
        Some((plain, version)) if version.bytes().all(|b| b.is_ascii_digit()) => plain,
        _ => name,
    };
    name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name)
}

/// Whether a call waits for the GPU: a synchronisation, or a copy that is not asynchronous.
pub(super) fn waits(name: &str) -> bool {
    let name = plain_name(name);
    if name.contains("Async") || name.contains("Graph") {
        return false;
    }
    name.ends_with("Synchronize") || name.starts_with("cudaMemcpy") || name.starts_with("cuMemcpy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_lose_the_version_that_nsys_appends() {
        assert_eq!(plain_name("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
        assert_eq!(plain_name("cudaMemcpyAsync_ptsz_v7000"), "cudaMemcpyAsync");
        assert_eq!(plain_name("cuMemcpyDtoH_v2"), "cuMemcpyDtoH");
        assert_eq!(plain_name("my_value"), "my_value");
    }

    #[test]
    fn synchronisations_and_blocking_copies_wait() {
        for name in ["cudaStreamSynchronize_v3020", "cuCtxSynchronize", "cudaMemcpy_v3020"] {
            assert!(waits(name), "{name}");
        }
        for name in ["cudaMemcpyAsync_v3020", "cudaLaunchKernel", "cudaStreamWaitEvent"] {
            assert!(!waits(name), "{name}");
        }
    }
}
