//! Finds work that seems to run after later work of its stream has ended.
//!
//! The work of one stream runs one after the other. Two things may overlap: a kernel that was
//! launched as dependent on the one before may start early, and the nodes of a CUDA graph may run
//! side by side. So only work is found *inside* of which later work of the same stream starts and
//! ends.

use std::collections::HashMap;

/// Work must end this much after work inside of it, in nanoseconds: clocks are not exact.
const SLACK_NS: i64 = 10_000;

/// Dependent launches may end before the kernel that they depend on if they never wait for it. A
/// chain of so many does not happen.
const MOST_DEPENDENT: u64 = 8;

/// A stream of one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamKey {
    pub(crate) process: u64,
    pub(crate) device: u32,
    pub(crate) context: u32,
    pub(crate) stream: u64,
}

/// One piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRow {
    pub(crate) key: StreamKey,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// The number of its row in its table.
    pub(crate) row: u64,
    /// The call that started it, by process and correlation id.
    pub(crate) call: Option<(u64, i64)>,
}

/// Work that seems to end too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlong {
    /// The number of its row.
    pub(crate) row: u64,
    /// The start of the next work of its stream.
    pub(crate) next_ns: i64,
    /// How many later pieces of work lie inside of it.
    inside: u64,
    /// Its call, and that of the first work inside.
    pub(crate) calls: [Option<(u64, i64)>; 2],
}

/// The last work of a stream.
#[derive(Clone, Copy, Debug)]
struct Last {
    latest: StreamRow,
    start_ns: i64,
    found: Option<Overlong>,
    next: Option<(i64, Option<(u64, i64)>)>,
}

/// Takes the work of all streams, each in order of start.
#[derive(Debug, Default)]
pub(crate) struct StreamOrder {
    streams: HashMap<StreamKey, Last>,
    found: Vec<Overlong>,
    /// Whether a row came that is earlier than the one before, so that nothing is known.
    pub(crate) is_unsorted: bool,
}

impl StreamOrder {
    pub(crate) fn see(&mut self, row: StreamRow) {
        let begin =
            |latest: StreamRow| Last { latest, start_ns: latest.start_ns, found: None, next: None };
        let Some(last) = self.streams.get_mut(&row.key) else {
            self.streams.insert(row.key, begin(row));
            return;
        };
        if row.start_ns < last.start_ns {
            self.is_unsorted = true;
            return;
        }
        last.start_ns = row.start_ns;
        if row.start_ns >= last.latest.end_ns {
            self.found.extend(last.found);
            *last = begin(row);
            return;
        }
        let (next_ns, next_call) = *last.next.get_or_insert((row.start_ns, row.call));
        if row.end_ns <= last.latest.end_ns.saturating_sub(SLACK_NS) {
            if row.end_ns > row.start_ns {
                let calls = [last.latest.call, next_call];
                let first = Overlong { row: last.latest.row, next_ns, inside: 0, calls };
                last.found.get_or_insert(first).inside += 1;
            }
        } else if row.end_ns > last.latest.end_ns {
            self.found.extend(last.found);
            *last = begin(row);
        }
    }

    /// What was found.
    pub(crate) fn finish(mut self) -> Vec<Overlong> {
        self.found.extend(self.streams.into_values().filter_map(|last| last.found));
        self.found.sort_unstable_by_key(|found| found.row);
        self.found
    }

    /// Takes all rows at once, in any order.
    pub(crate) fn from_rows(mut rows: Vec<StreamRow>) -> StreamOrder {
        rows.sort_unstable_by_key(|row| (row.start_ns, row.row));
        let mut order = StreamOrder::default();
        rows.into_iter().for_each(|row| order.see(row));
        order
    }
}

/// Whether the stream's order forbids what was found, from the names of the two calls. Launches of
/// graphs may overlap, and launches with attributes may be dependent ones.
pub(crate) fn is_forbidden(found: &Overlong, calls: [Option<&str>; 2]) -> bool {
    let any = |part: &str| calls.iter().flatten().any(|name| name.contains(part));
    !any("GraphLaunch") && (!any("LaunchKernelEx") || found.inside > MOST_DEPENDENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(spans: &[(i64, i64)]) -> Vec<Overlong> {
        let key = StreamKey { process: 1, device: 0, context: 0, stream: 7 };
        let rows = spans.iter().zip(0..).map(|((start_ns, end_ns), row)| StreamRow {
            key,
            start_ns: *start_ns,
            end_ns: *end_ns,
            row,
            call: None,
        });
        StreamOrder::from_rows(rows.collect()).finish()
    }

    #[test]
    fn work_around_later_work_of_its_stream_is_found() {
        let second = 1_000_000_000;
        let found = found(&[(0, 100), (200, 3 * second), (11_200, 20_000), (30_000, 40_000)]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].row, found[0].next_ns, found[0].inside), (1, 11_200, 2));
        assert!(is_forbidden(&found[0], [Some("cudaLaunchKernel_v7000"); 2]));
        assert!(!is_forbidden(&found[0], [None, Some("cudaGraphLaunch_v10000")]));
        assert!(!is_forbidden(&found[0], [None, Some("cudaLaunchKernelExC_v11060")]));
    }

    #[test]
    fn a_dependent_launch_that_starts_early_is_legal() {
        assert_eq!(found(&[(0, 100_000), (40_000, 180_000), (150_000, 250_000)]), []);
        // The clock is not exact, and an instant has no length.
        assert_eq!(found(&[(0, 100_000), (98_000, 99_500), (50_000, 50_000)]), []);
    }
}
