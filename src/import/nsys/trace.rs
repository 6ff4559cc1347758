//! A trace in memory: what attribution needs of every row, and no more.

use std::collections::HashMap;
use std::sync::Arc;

use rgpu_format::nsys_row::{CopyKind, Kernel, NvtxEvent, NvtxKind, Strings};

use super::calls::{Gather, ListedCalls};
use super::correlated::{Correlated, Finger};
use super::rows::Rows;
use crate::import::event_list::MAX_WORK;
use crate::import::region_tree::{Kind, Range, UNNAMED, part};

/// All that is needed of a trace.
#[derive(Default)]
pub(super) struct Trace {
    /// Work on the GPU, in time order.
    pub(super) work: Vec<Work>,
    /// Names of kernels, which [`What::Kernel`] numbers.
    pub(super) kernels: Vec<String>,
    /// The first kernels in time order, as the file has them, with their index in `work`.
    pub(super) first_kernels: Vec<(usize, Kernel)>,
    /// Mangled names by string id.
    pub(super) strings: Strings,
    /// NVTX ranges.
    pub(super) ranges: Vec<Range>,
    /// API calls by process and correlation id, where they put work on the GPU.
    pub(super) calls: Correlated<Call>,
    /// The earliest moment in the trace.
    pub(super) first_ns: i64,
    /// The latest.
    pub(super) last_ns: i64,
    /// API calls listed one by one.
    pub(super) listed: ListedCalls,
    /// Ranges that were still open at the end.
    pub(super) open_ranges: u64,
}

/// Where and when the host asked for some work.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) thread: u64,
    pub(super) at_ns: i64,
}

/// One piece of work on a GPU.
pub(super) struct Work {
    pub(super) what: What,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) process: u64,
    pub(super) correlation: Option<i64>,
    pub(super) device: u32,
    pub(super) stream: u32,
}

/// What the GPU did.
#[derive(Clone, Copy)]
pub(super) enum What {
    /// A kernel, by the number of its name and of its row.
    Kernel { name: usize, row: u64 },
    /// A copy.
    Copy { kind: CopyKind, bytes: u64 },
    /// A fill.
    Set { bytes: u64 },
    /// A whole CUDA graph.
    Graph,
}

impl Work {
    pub(super) fn ns(&self) -> u64 {
        u64::try_from(self.end_ns.saturating_sub(self.start_ns)).unwrap_or(0)
    }
}

/// The process part of nsys's ids of processes and threads: all but the lowest 24 bits.
pub(super) fn process(global: Option<i64>) -> u64 {
    global.unwrap_or(0).cast_unsigned() & !0xff_ffff
}

/// Reads the trace; the first `keep` kernels in full.
pub(super) fn read<R: Rows>(file: &R, keep: usize) -> Result<Trace, R::Error> {
    let mut trace = Trace { strings: file.strings()?, ..Trace::default() };
    read_work(file, &mut trace)?;
    trace.work.sort_by_key(|work| work.start_ns);
    read_first_kernels(file, &mut trace, keep)?;
    trace.first_ns = trace.work.first().map_or(i64::MAX, |work| work.start_ns);
    read_calls(file, &mut trace)?;
    read_ranges(file, &mut trace)?;
    if trace.first_ns == i64::MAX {
        (trace.first_ns, trace.last_ns) = (0, 0);
    }
    Ok(trace)
}

fn read_work<R: Rows>(file: &R, trace: &mut Trace) -> Result<(), R::Error> {
    let mut numbers: HashMap<Option<i64>, usize> = HashMap::new();
    let mut row = 0;
    file.kernel_runs(|k| {
        let id = k.demangled.or(k.short);
        let name = *numbers.entry(id).or_insert_with(|| {
            let name = id.and_then(|id| trace.strings.get(id)).unwrap_or("(unnamed)");
            trace.kernels.push(name.to_owned());
            trace.kernels.len() - 1
        });
        trace.work.push(Work {
            what: What::Kernel { name, row },
            start_ns: k.start_ns,
            end_ns: k.end_ns,
            process: process(k.global_pid),
            correlation: k.correlation,
            device: k.device.unwrap_or(0),
            stream: k.stream.unwrap_or(0),
        });
        row += 1;
    })?;
    let work = &mut trace.work;
    file.memcpys(|c| {
        work.push(Work {
            what: What::Copy { kind: c.kind, bytes: c.bytes },
            start_ns: c.start_ns,
            end_ns: c.end_ns,
            process: process(c.global_pid),
            correlation: c.correlation,
            device: c.device.unwrap_or(0),
            stream: c.stream.unwrap_or(0),
        });
    })?;
    file.memsets(|s| {
        work.push(Work {
            what: What::Set { bytes: s.bytes },
            start_ns: s.start_ns,
            end_ns: s.end_ns,
            process: process(s.global_pid),
            correlation: s.correlation,
            device: s.device.unwrap_or(0),
            stream: s.stream.unwrap_or(0),
        });
    })?;
    file.graph_launches(|g| {
        work.push(Work {
            what: What::Graph,
            start_ns: g.start_ns,
            end_ns: g.end_ns,
            process: process(g.global_pid),
            correlation: g.correlation,
            // The table has no column for it.
            device: 0,
            stream: g.stream.unwrap_or(0),
        });
    })?;
    Ok(())
}

/// A second look at the kernels' table, for the facts of the first `keep` in time order.
fn read_first_kernels<R: Rows>(file: &R, trace: &mut Trace, keep: usize) -> Result<(), R::Error> {
    let mut wanted: HashMap<u64, usize> = HashMap::new();
    for (index, work) in trace.work.iter().enumerate() {
        if let What::Kernel { row, .. } = work.what {
            wanted.insert(row, index);
            if wanted.len() == keep {
                break;
            }
        }
    }
    let most = wanted.keys().max().map_or(0, |last| last + 1);
    let mut row = 0;
    file.first_kernels(most, |kernel| {
        if let Some(index) = wanted.get(&row) {
            trace.first_kernels.push((*index, kernel));
        }
        row += 1;
    })?;
    trace.first_kernels.sort_by_key(|(index, _)| *index);
    Ok(())
}

fn read_calls<R: Rows>(file: &R, trace: &mut Trace) -> Result<(), R::Error> {
    let keys = trace.work.iter().filter_map(|w| Some((w.process, w.correlation?)));
    let mut calls: Correlated<Call> = Correlated::new(keys);
    let wanted = trace.work.iter().take(MAX_WORK);
    let mut gather = Gather::new(wanted.filter_map(|w| Some((w.process, w.correlation?))));
    trace.last_ns = trace.work.iter().map(|work| work.end_ns).max().unwrap_or(i64::MIN);
    let (first_ns, last_ns) = (&mut trace.first_ns, &mut trace.last_ns);
    let mut finger = Finger::default();
    file.api_calls(|call| {
        *first_ns = call.start_ns.min(*first_ns);
        *last_ns = call.end_ns.max(*last_ns);
        gather.see(&call, &trace.strings);
        let (Some(tid), Some(correlation)) = (call.global_tid, call.correlation) else { return };
        if let Some(found) = calls.place((process(Some(tid)), correlation), &mut finger) {
            *found = Some(Call { thread: tid.cast_unsigned(), at_ns: call.start_ns });
        }
    })?;
    trace.calls = calls;
    trace.listed = gather.finish();
    Ok(())
}

fn read_ranges<R: Rows>(file: &R, trace: &mut Trace) -> Result<(), R::Error> {
    // A range that the program never closed ends, by nsys, at the moment at which it stopped.
    let stopped = file.diagnostics()?.into_iter().find(|d| d.text.trim() == STOPPED);
    let stopped = stopped.and_then(|diagnostic| diagnostic.at_ns);
    let end_of = |event: &NvtxEvent| event.end_ns.filter(|end| Some(*end) != stopped);
    let mut domains: HashMap<(u64, i64), String> = HashMap::new();
    let mut names = RangeNames::default();
    // The number of each range's name: the name of a domain may stand behind its ranges.
    let mut named: Vec<usize> = Vec::new();
    let nameless: Arc<str> = Arc::from("");
    let mut last_ns = trace.last_ns;
    file.nvtx_events(|event| {
        let end_ns = end_of(&event);
        last_ns = last_ns.max(event.start_ns).max(end_ns.unwrap_or(i64::MIN));
        let process = process(event.global_tid);
        let Some(kind) = range_kind(&event) else {
            if let (NvtxKind::Domain, Some(id)) = (event.kind, event.domain)
                && let Some(name) = event.name(&trace.strings)
            {
                domains.insert((process, id), name.to_owned());
            }
            return;
        };
        trace.first_ns = trace.first_ns.min(event.start_ns);
        trace.open_ranges += u64::from(end_ns.is_none());
        let domain = event.domain.filter(|id| *id != 0);
        named.push(names.number((process, domain), event.name(&trace.strings)));
        trace.ranges.push(Range {
            kind,
            process,
            thread: event.global_tid.unwrap_or(0).cast_unsigned(),
            start_ns: event.start_ns,
            end_ns: end_ns.unwrap_or(i64::MAX),
            part: Arc::clone(&nameless),
            open: end_ns.is_none(),
        });
    })?;
    trace.last_ns = last_ns;
    let parts = names.parts(&domains);
    for (range, number) in trace.ranges.iter_mut().zip(named) {
        range.part = Arc::clone(&parts[number]);
        if range.open {
            range.end_ns = last_ns;
        }
    }
    Ok(())
}

/// A domain by its process and id; the default one has none.
type Domain = (u64, Option<i64>);

/// Names of ranges, each once: there are millions of ranges and few names.
#[derive(Default)]
struct RangeNames {
    by_domain: HashMap<Domain, HashMap<String, usize>>,
    many: usize,
}

impl RangeNames {
    fn number(&mut self, domain: Domain, name: Option<&str>) -> usize {
        let name = name.unwrap_or(UNNAMED);
        let names = self.by_domain.entry(domain).or_default();
        if let Some(number) = names.get(name) {
            return *number;
        }
        let number = self.many;
        names.insert(name.to_owned(), number);
        self.many += 1;
        number
    }

    /// The parts of paths by number; `domains` are the names of domains.
    fn parts(self, domains: &HashMap<(u64, i64), String>) -> Vec<Arc<str>> {
        let mut parts: Vec<Arc<str>> = vec![Arc::from(""); self.many];
        for ((process, domain), names) in self.by_domain {
            let domain = domain.map(|id| match domains.get(&(process, id)) {
                Some(name) => name.clone(),
                None => format!("domain {id}"),
            });
            for (name, number) in names {
                parts[number] = part(domain.as_deref(), Some(&name)).into();
            }
        }
        parts
    }
}

/// What nsys notes when it stops.
const STOPPED: &str = "Profiling has stopped.";

fn range_kind(event: &NvtxEvent) -> Option<Kind> {
    match event.kind {
        NvtxKind::PushPop => Some(Kind::PushPop),
        NvtxKind::StartEnd => Some(Kind::StartEnd),
        _ => None,
    }
}
