//! The NVTX collector's log to regions, in host time.

use std::collections::HashMap;

use rgpu_format::nvtx_log::{self, Event, EventKind, NvtxLog, Session};

use super::event_list::{Names, Regions, cut_gap, ranges, since};
use super::region_tree::{Kind, Range, Tree, part};
use super::{Imported, Importer};
use crate::model::profile::Gap;
use crate::model::trace::{Cut, SCHEMA};
use crate::model::{Beside, Trace};

/// `nvtx_log`: what the collector writes inside a program.
pub(super) const IMPORTER: Importer = Importer {
    kind: "nvtx_log",
    recognises: |_, head| head.starts_with(b"{\"event\":\"opened\""),
    import: |source| {
        let log = nvtx_log::read(&source.bytes()?).map_err(|cause| source.broken(cause))?;
        Ok(import(&log, source.from))
    },
};

/// Imports a log; `from` is its path in the run folder.
pub fn import(log: &NvtxLog, from: &str) -> Imported {
    let mut paired = Paired::default();
    for (number, session) in (0u64..).zip(&log.sessions) {
        paired.session(number, session);
    }
    let (tree, _) = Tree::build(&paired.ranges, &[]);
    let events = events(&paired, &tree, from);
    let mut gaps = gaps(log, &paired, from);
    gaps.extend(cut_gap(&events));
    Imported {
        regions: tree.regions(from).into_iter().map(|(_, region)| region).collect(),
        gaps,
        beside: Beside { trace: Some(events), ..Beside::default() },
        ..Imported::default()
    }
}

/// The document of single events: ranges alone.
fn events(paired: &Paired, tree: &Tree, from: &str) -> Trace {
    let mut names = Names::default();
    let mut regions = Regions::default();
    let starts = paired.ranges.iter().map(|range| range.start_ns);
    let first_ns = starts.min().unwrap_or(0);
    let last_ns = paired.ranges.iter().map(|range| range.end_ns).max().unwrap_or(0);
    let (ranges, more) = ranges(&paired.ranges, tree, first_ns, &mut names, &mut regions);
    Trace {
        schema: SCHEMA.to_owned(),
        span_ns: since(first_ns, last_ns),
        names: names.into_vec(),
        regions: regions.all,
        ranges,
        cut: Cut { ranges: more, ..Cut::default() },
        from: from.to_owned(),
        ..Trace::default()
    }
}

/// Ranges with both their ends.
#[derive(Default)]
struct Paired {
    ranges: Vec<Range>,
    /// Ranges that never ended.
    open: u64,
    /// Pops and ends of ranges that never began.
    stray: u64,
}

impl Paired {
    fn session(&mut self, number: u64, session: &Session) {
        let last = session.events.iter().map(|event| event.ns).max().unwrap_or(0);
        let last = session.closed.as_ref().map_or(last, |closed| closed.ns.max(last));
        // Indices into `ranges` of what is open; push and pop nest per thread and domain.
        let mut stacks: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
        let mut started: HashMap<u64, usize> = HashMap::new();
        // Lines of different threads are not in order: an end may stand before its start.
        let mut events: Vec<&Event> = session.events.iter().collect();
        events.sort_by_key(|event| event.ns);
        for event in events {
            let kind = match event.kind {
                EventKind::Push => Kind::PushPop,
                EventKind::Start => Kind::StartEnd,
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
            let domain = session.domains.get(&event.domain).map(String::as_str);
            let index = self.ranges.len();
            self.ranges.push(Range {
                kind,
                process: number,
                thread: event.tid,
                start_ns: nanos(event.ns),
                end_ns: nanos(last),
                part: part(domain, event.message.as_deref()).into(),
                open: true,
            });
            match (kind, event.id) {
                (Kind::PushPop, _) => {
                    stacks.entry((event.tid, event.domain)).or_default().push(index);
                }
                (Kind::StartEnd, Some(id)) => drop(started.insert(id, index)),
                (Kind::StartEnd, None) => {}
            }
        }
        let open = stacks.values().map(Vec::len).sum::<usize>() + started.len();
        self.open += open as u64;
    }

    fn finish(&mut self, range: Option<usize>, ns: u64) {
        match range {
            Some(index) => {
                self.ranges[index].end_ns = nanos(ns);
                self.ranges[index].open = false;
            }
            None => self.stray += 1,
        }
    }
}

fn nanos(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

fn gaps(log: &NvtxLog, paired: &Paired, from: &str) -> Vec<Gap> {
    let closed = log.sessions.iter().filter_map(|session| session.closed.as_ref());
    let dropped: u64 = closed.map(|closed| closed.dropped).fold(0, u64::saturating_add);
    let cut = log.sessions.iter().filter(|session| session.closed.is_none()).count();
    let place = log.first_broken.unwrap_or(0);
    let all = [
        (
            log.broken_lines > 0,
            "damaged_report",
            format!(
                "{from}: {} lines cannot be read, the first at offset {place}",
                log.broken_lines
            ),
        ),
        (
            dropped > 0,
            "dropped_events",
            format!("{from}: {dropped} ranges and marks were left out, the log was full"),
        ),
        (
            cut > 0,
            "unfinished_log",
            format!(
                "{from}: the program ended without closing the log; its last 100 ms may be missing"
            ),
        ),
        (
            paired.open > 0,
            "open_ranges",
            format!(
                "{from}: {} NVTX range{} never ended; counted until the log's end",
                paired.open,
                if paired.open == 1 { "" } else { "s" }
            ),
        ),
        (
            paired.stray > 0,
            "stray_ends",
            match paired.stray {
                1 => format!("{from}: 1 pop or end closes a range that never began"),
                stray => format!("{from}: {stray} pops or ends close ranges that never began"),
            },
        ),
    ];
    let gaps = all.into_iter().filter(|(holds, ..)| *holds);
    gaps.map(|(_, code, text)| Gap { code: code.to_owned(), text }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const LOG: &str = r#"{"event":"opened","format":1,"pid":7,"ppid":1,"ns":100,"unix_ns":1}
{"event":"push","ns":110,"tid":7,"domain":0,"level":0,"message":"A"}
{"event":"domain","domain":1,"name":"rgpu"}
{"event":"start","ns":115,"tid":7,"domain":1,"id":1,"message":"whole"}
{"event":"push","ns":120,"tid":7,"domain":0,"level":1,"message":"A1"}
{"event":"pop","ns":130,"tid":7,"domain":0,"level":1}
{"event":"end","ns":140,"tid":8,"domain":1,"id":1}
{"event":"pop","ns":150,"tid":7,"domain":0,"level":0}
"#;

    fn regions(log: &str) -> (Vec<(String, String, u64)>, Vec<String>) {
        let imported = import(&nvtx_log::read(log.as_bytes()).unwrap(), "raw/nvtx.jsonl.7");
        assert!(imported.regions.iter().all(|region| region.gpu_ns.is_none()));
        (
            imported
                .regions
                .iter()
                .map(|r| (r.display(), r.kind.clone(), r.host_ns.unwrap()))
                .collect(),
            imported.gaps.into_iter().map(|gap| gap.code).collect(),
        )
    }

    #[test]
    fn ranges_become_regions_in_host_time() {
        let closed = format!("{LOG}{}\n", r#"{"event":"closed","ns":160,"events":6}"#);
        let (regions, gaps) = regions(&closed);
        let owned = |path: &str, kind: &str, ns| (path.to_owned(), kind.to_owned(), ns);
        let expected = [
            owned("A", "push_pop", 40),
            owned("A::A1", "push_pop", 10),
            owned("rgpu@whole", "start_end", 25),
        ];
        assert_eq!(regions, expected);
        assert!(gaps.is_empty(), "{gaps:?}");
    }

    #[test]
    fn a_real_log_of_two_threads_pairs_every_range() {
        let path = "tests/fixtures/nvtx/collector-1/python-threads/nvtx.jsonl";
        let log = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let imported = import(&nvtx_log::read(&log).unwrap(), "raw/nvtx.jsonl.1");
        assert!(imported.gaps.is_empty(), "{:?}", imported.gaps);
        let regions: Vec<_> =
            imported.regions.iter().map(|r| (r.display(), r.instances, r.host_ns)).collect();
        let owned = |path: &str, ns| (path.to_owned(), Some(1), Some(ns));
        let expected = [
            owned("A", 3762797179172 - 3762787704643),
            owned("A::A1", 3762797037249 - 3762787733084),
            owned("B", 3762797597580 - 3762797223393),
            owned("A1", 3762797542055 - 3762797507125),
            owned("app@whole", 3762797549980 - 3762797166893),
        ];
        assert_eq!(regions, expected);
    }

    #[test]
    fn a_killed_program_leaves_open_ranges_that_are_named() {
        let cut: String = LOG.lines().take(5).map(|line| format!("{line}\n")).collect();
        let (regions, gaps) = regions(&cut);
        assert_eq!(regions.len(), 3);
        assert_eq!(gaps, ["unfinished_log", "open_ranges"]);
        let stray = format!("{LOG}{}\n", r#"{"event":"pop","ns":160,"tid":7,"domain":0}"#);
        assert_eq!(self::regions(&stray).1, ["unfinished_log", "stray_ends"]);
    }
}
