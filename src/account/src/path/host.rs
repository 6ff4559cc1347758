//! What the host did in a time without calls, where the trace tells.

use std::collections::HashMap;

use rgpu_model::trace::HostEvent;

/// Levels looked at, from the innermost out.
const MAX_LEVELS: usize = 512;

/// The host's events by thread.
pub(crate) struct HostNames<'t> {
    threads: HashMap<u64, Vec<Nested<'t>>>,
}

/// An event, and the one around it.
struct Nested<'t> {
    event: &'t HostEvent,
    start_ns: u64,
    end_ns: u64,
    /// The event around it, as a position in the thread's list.
    outer: Option<usize>,
}

impl<'t> HostNames<'t> {
    /// Sorts events by thread, and finds out which are within others.
    pub(crate) fn new(events: &'t [HostEvent]) -> HostNames<'t> {
        let mut threads: HashMap<u64, Vec<Nested<'t>>> = HashMap::new();
        for event in events {
            let end_ns = event.start_ns.saturating_add(event.duration_ns);
            let nested = Nested { event, start_ns: event.start_ns, end_ns, outer: None };
            threads.entry(event.thread).or_default().push(nested);
        }
        for list in threads.values_mut() {
            list.sort_by_key(|nested| (nested.start_ns, u64::MAX - nested.end_ns));
            let mut open: Vec<(usize, u64)> = Vec::new();
            for (at, nested) in list.iter_mut().enumerate() {
                while open.last().is_some_and(|(_, end_ns)| *end_ns <= nested.start_ns) {
                    open.pop();
                }
                nested.outer = open.last().map(|(outer, _)| *outer);
                open.push((at, nested.end_ns));
            }
        }
        HostNames { threads }
    }

    /// The innermost event of a thread that covers more than half of the time. `None` if none does.
    pub(crate) fn find(&self, thread: u64, start_ns: u64, end_ns: u64) -> Option<&'t HostEvent> {
        let list = self.threads.get(&thread)?;
        // What covers more than half of it covers its middle.
        let middle_ns = start_ns + end_ns.saturating_sub(start_ns) / 2;
        let mut at = list.partition_point(|nested| nested.start_ns <= middle_ns).checked_sub(1);
        for _ in 0..MAX_LEVELS {
            let nested = list.get(at?)?;
            let covered_ns =
                nested.end_ns.min(end_ns).saturating_sub(nested.start_ns.max(start_ns));
            if covered_ns > end_ns.saturating_sub(start_ns) / 2 {
                return Some(nested.event);
            }
            at = nested.outer;
        }
        None
    }
}
