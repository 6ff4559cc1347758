//! How much of a trace's time its GPUs worked.

use crate::model::Trace;

/// Busy time against the span from the first to the last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Busy {
    /// Nanoseconds in which at least one piece of work ran.
    pub(super) busy_ns: u64,
    /// Nanoseconds from the first event to the end of the last.
    pub(super) span_ns: u64,
}

impl Busy {
    /// The share in percent.
    pub(super) fn percent(self) -> f64 {
        100.0 * self.busy_ns as f64 / self.span_ns.max(1) as f64
    }
}

/// The union of all work; nothing without work, or where some of it was cut from the trace.
pub(super) fn busy(trace: &Trace) -> Option<Busy> {
    if trace.work.is_empty() || trace.cut.work > 0 {
        return None;
    }
    let mut spans: Vec<(u64, u64)> =
        trace.work.iter().map(|w| (w.start_ns, w.start_ns.saturating_add(w.duration_ns))).collect();
    spans.sort_unstable();
    let mut busy_ns = 0_u64;
    let mut reached = 0;
    for (start, end) in spans {
        let from = start.max(reached);
        busy_ns = busy_ns.saturating_add(end.saturating_sub(from));
        reached = reached.max(end);
    }
    Some(Busy { busy_ns, span_ns: trace.span_ns.max(reached) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace::{Work, WorkKind};

    #[test]
    fn work_that_overlaps_is_counted_once() {
        let work = |start_ns, duration_ns| Work {
            kind: WorkKind::Kernel,
            name: 0,
            start_ns,
            duration_ns,
            device: 0,
            stream: 1,
            bytes: None,
            call: None,
            launch: None,
            regions: Vec::new(),
        };
        let trace = Trace {
            span_ns: 100,
            work: vec![work(0, 20), work(10, 30), work(60, 10), work(62, 2)],
            ..Trace::default()
        };
        assert_eq!(busy(&trace), Some(Busy { busy_ns: 50, span_ns: 100 }));
        assert_eq!(busy(&Trace::default()), None);
    }
}
