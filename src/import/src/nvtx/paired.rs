//! Pairs pushes with pops, and starts with ends.

use std::collections::HashMap;

use rgpu_format::nvtx_log::{EventKind, NvtxLogEvent, Session};

/// A range of one process.
#[derive(Clone, Debug)]
pub(super) struct Range<'a> {
    /// Whether start opened it and end closes it, by id; push and pop otherwise.
    pub(super) start_end: bool,
    /// Number of the session, which counts as one process.
    pub(super) session: u64,
    pub(super) thread: u64,
    pub(super) start_ns: u64,
    /// `None` if it never ended.
    pub(super) end_ns: Option<u64>,
    pub(super) domain: u64,
    pub(super) name: Option<&'a str>,
}

/// All ranges, with counts of those that never ended and of ends without a beginning.
#[derive(Default)]
pub(super) struct PairedRanges<'a> {
    pub(super) ranges: Vec<Range<'a>>,
    /// Number of ranges that never ended. Not counted are a start without an id, and one whose id
    /// another start took while it was open; both are in `ranges` with `end_ns: None`.
    pub(super) open: u64,
    /// Number of pops and ends without a beginning.
    pub(super) stray: u64,
}

impl<'a> PairedRanges<'a> {
    pub(super) fn add_session(&mut self, number: u64, session: &'a Session) {
        // Indices into `ranges` of the open ones. Push and pop nest per thread and domain.
        let mut stacks: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
        let mut started: HashMap<u64, usize> = HashMap::new();
        // Lines of different threads are not in order: an end may come before its start.
        let mut events: Vec<&NvtxLogEvent> = session.events.iter().collect();
        events.sort_by_key(|event| event.ns);
        for event in events {
            let start_end = match event.kind {
                EventKind::Push => false,
                EventKind::Start => true,
                EventKind::Pop => {
                    let stack = stacks.get_mut(&(event.tid, event.domain));
                    self.finish(stack.and_then(Vec::pop), event.ns);
                    continue;
                }
                EventKind::End => {
                    let range = event.id.and_then(|id| started.remove(&id));
                    self.finish(range, event.ns);
                    continue;
                }
                EventKind::Mark => continue,
            };
            let index = self.ranges.len();
            self.ranges.push(Range {
                start_end,
                session: number,
                thread: event.tid,
                start_ns: event.ns,
                end_ns: None,
                domain: event.domain,
                name: event.message.as_deref(),
            });
            match (start_end, event.id) {
                (false, _) => stacks.entry((event.tid, event.domain)).or_default().push(index),
                (true, Some(id)) => drop(started.insert(id, index)),
                (true, None) => {}
            }
        }
        let open = stacks.values().map(Vec::len).sum::<usize>() + started.len();
        self.open += open as u64;
    }

    fn finish(&mut self, range: Option<usize>, ns: u64) {
        match range {
            Some(index) => self.ranges[index].end_ns = Some(ns),
            None => self.stray += 1,
        }
    }
}
