//! Memory of torch's allocator over time, and its peak.

use rgpu_format::torch_trace::{MemoryChange, TorchTrace};

use crate::trace_events::ns_since;
use rgpu_model::memory::{MemoryPoint, MemoryScope, MemoryUse};

/// Most points in the list of one trace.
const MAX_POINTS: usize = 2_000;

/// The peak of each GPU. The hook knows that of the whole program; the trace only that of its part.
pub(super) fn peaks(trace: &TorchTrace, from: &str) -> Vec<MemoryUse> {
    let known = trace.recording.as_ref().and_then(|recording| recording.memory);
    let mut peaks: Vec<MemoryUse> = Vec::new();
    for change in &trace.memory {
        let at = peaks.iter().position(|peak| peak.device == change.device);
        let at = at.unwrap_or_else(|| {
            peaks.push(MemoryUse {
                device: change.device,
                scope: MemoryScope::Trace,
                from: from.to_owned(),
                ..MemoryUse::default()
            });
            peaks.len() - 1
        });
        let peak = &mut peaks[at];
        peak.peak_allocated_bytes = peak.peak_allocated_bytes.max(change.allocated_bytes);
        peak.peak_reserved_bytes = peak.peak_reserved_bytes.max(change.reserved_bytes);
    }
    if let Some(known) = known {
        peaks.retain(|peak| peak.device != known.device);
        peaks.push(MemoryUse {
            device: known.device,
            peak_allocated_bytes: known.peak_allocated_bytes,
            peak_reserved_bytes: known.peak_reserved_bytes,
            total_bytes: Some(known.total_bytes).filter(|bytes| *bytes > 0),
            scope: MemoryScope::Program,
            from: from.to_owned(),
        });
    }
    peaks.sort_by_key(|peak| peak.device);
    peaks
}

/// The memory over time. Of neighbours, the one with the most memory stays, so that peaks are kept.
pub(super) fn points(trace: &TorchTrace, first_ns: i64) -> Vec<MemoryPoint> {
    let mut changes: Vec<&MemoryChange> = trace.memory.iter().collect();
    changes.sort_by_key(|change| (change.device, change.at_ns));
    let each = changes.len().div_ceil(MAX_POINTS).max(1);
    let mut points: Vec<MemoryPoint> = changes
        .chunk_by(|a, b| a.device == b.device)
        .flat_map(|device| device.chunks(each))
        .filter_map(|near| near.iter().max_by_key(|change| change.allocated_bytes))
        .map(|change| MemoryPoint {
            at_ns: ns_since(first_ns, change.at_ns),
            device: change.device,
            allocated_bytes: change.allocated_bytes,
            reserved_bytes: change.reserved_bytes,
        })
        .collect();
    points.sort_by_key(|point| (point.at_ns, point.device));
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at_ns: i64, device: u32, allocated_bytes: u64) -> MemoryChange {
        MemoryChange { at_ns, device, allocated_bytes, reserved_bytes: 2 * allocated_bytes }
    }

    #[test]
    fn a_long_time_line_keeps_its_peaks() {
        let mut memory: Vec<_> = (0..10_000).map(|n| change(100 + n, 0, 5)).collect();
        memory[7_777].allocated_bytes = 99;
        memory.push(change(100, 1, 7));
        let trace = TorchTrace { memory, ..TorchTrace::default() };
        let points = points(&trace, 100);
        assert!(points.len() <= MAX_POINTS + 2, "{}", points.len());
        let peak = points.iter().find(|point| point.allocated_bytes == 99).unwrap();
        assert_eq!(peak.at_ns, 7_777);
        let peaks: Vec<_> = peaks(&trace, "t")
            .into_iter()
            .map(|p| (p.device, p.peak_allocated_bytes, p.peak_reserved_bytes))
            .collect();
        assert_eq!(peaks, [(0, 99, 10), (1, 7, 14)]);
    }
}
