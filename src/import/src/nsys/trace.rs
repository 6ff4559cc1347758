//! Reads an nsys trace into memory, reduced to what its attribution to regions needs ([`Trace`]). A
//! trace may have millions of rows, so rows that need not be listed are only summed.

use std::collections::HashMap;
use std::sync::Arc;

use rgpu_format::nsys_row::{CopyKind, Kernel, KernelShape, NvtxEvent, NvtxKind, Strings};

use super::calls::{CallCollector, ListedCalls};
use super::first::{EarliestRows, Timed};
use super::numbers::ValueNumbers;
use super::pieces::{Call, PieceKind, WorkPieces};
use super::ranks::{NcclMessage, NcclRange};
use super::rows::TraceRows;
use super::sound_rows::RowsWithoutRoom;
use super::stacks::{self, PYTHON_DOMAIN, TimedStacks};
use super::sums::{Totals, copy_name};
use crate::region_tree::{NvtxRangeKind, Range, UNNAMED, part};
use crate::trace_events::MAX_WORK;
use rgpu_model::trace::MAX_LISTED;

/// A trace, with single rows only where they are listed or joined.
#[derive(Default)]
pub(super) struct Trace {
    /// The first GPU work in time order, which is listed one by one.
    pub(super) listed: Vec<ListedWork>,
    /// Processes by [`ListedWork::process`].
    pub(super) processes: ValueNumbers,
    /// Number of kernels, graphs, copies and memsets; then of kernels, and of graphs.
    pub(super) work_count: u64,
    pub(super) kernel_count: u64,
    pub(super) graph_count: u64,
    /// Sums over all GPU work.
    pub(super) totals: Totals,
    /// All work that can be joined to a call.
    pub(super) pieces: WorkPieces,
    /// Names of kernels, indexed by [`NsysWorkKind::Kernel`].
    pub(super) kernels: Vec<String>,
    /// Shapes of kernels, by the number that [`ListedWork`] has; the first [`MAX_SHAPES`].
    pub(super) shapes: Vec<KernelShape>,
    /// The first kernels in time order, with all columns.
    pub(super) first_kernels: Vec<(NsysWork, Kernel)>,
    /// Mangled names by string id.
    pub(super) strings: Strings,
    /// NVTX ranges, with their domain and name as one path component.
    pub(super) ranges: Vec<Range>,
    /// Messages of NCCL, with the ranges around their calls.
    pub(super) messages: Vec<NcclRange>,
    /// The earliest timestamp in the trace.
    pub(super) first_ns: i64,
    /// The latest timestamp in the trace.
    pub(super) last_ns: i64,
    /// API calls listed one by one.
    pub(super) calls: ListedCalls,
    /// From where calls came.
    pub(super) stacks: TimedStacks,
    /// Number of ranges that were still open at the end.
    pub(super) open_ranges: u64,
    /// Rows that were left out for want of memory.
    pub(super) without_room: Option<RowsWithoutRoom>,
    /// Most ranges to list, if there is not enough memory for all.
    pub(super) max_ranges: Option<usize>,
}

/// Memory of events beyond that of their rows: of GPU work, calls and ranges.
const WORK_EVENT_BYTES: u64 = 48;
const CALL_EVENT_BYTES: u64 = 48;
const RANGE_EVENT_BYTES: u64 = 80;

/// Memory of the name of a kernel or range: its copies, its sums and their text.
const KERNEL_NAME_BYTES: usize = 700;
const RANGE_NAME_BYTES: usize = 160;
const COPIES_OF_NAME: usize = 3;

/// Shapes of kernels that are kept. Programs have few; more are those of a program that launches
/// each kernel with another grid.
const MAX_SHAPES: usize = 1 << 16;

/// One piece of work on a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct NsysWork {
    pub(super) what: NsysWorkKind,
    /// Its number in reading order. Kernels are read first, so for a kernel this is its row.
    pub(super) number: u64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) process: u64,
    pub(super) correlation: Option<i64>,
    pub(super) device: u32,
    pub(super) stream: u32,
    /// The number of the kernel's grid, block and shared memory among those of the trace.
    pub(super) shape: Option<u32>,
}

/// A piece of work that is listed one by one. There may be millions.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListedWork {
    pub(super) start_ns: i64,
    pub(super) ns: u64,
    correlation: i64,
    /// Bytes copied or set.
    pub(super) bytes: u64,
    /// [What it is](super::pieces::PieceKind::number).
    pub(super) what: u32,
    /// The number of the shape; [`NO_SHAPE`] without one.
    shape: u32,
    pub(super) device: u32,
    pub(super) stream: u32,
    /// The number of its process among [`Trace::processes`].
    pub(super) process: u32,
    /// Its number in reading order.
    number: u32,
    has_correlation: bool,
    pub(super) pageable: Option<bool>,
}

const NO_SHAPE: u32 = u32::MAX;

impl ListedWork {
    fn new(work: &NsysWork, what: u32, process: u32) -> ListedWork {
        let (bytes, pageable) = match work.what {
            NsysWorkKind::Copy { bytes, pageable, .. } => (bytes, pageable),
            NsysWorkKind::Set { bytes } => (bytes, None),
            NsysWorkKind::Kernel { .. } | NsysWorkKind::Graph => (0, None),
        };
        ListedWork {
            start_ns: work.start_ns,
            ns: work.ns(),
            correlation: work.correlation.unwrap_or(0),
            bytes,
            what,
            shape: work.shape.unwrap_or(NO_SHAPE),
            device: work.device,
            stream: work.stream,
            process,
            number: u32::try_from(work.number).unwrap_or(u32::MAX),
            has_correlation: work.correlation.is_some(),
            pageable,
        }
    }

    /// The id that the work shares with its API call.
    pub(super) fn correlation(&self) -> Option<i64> {
        self.has_correlation.then_some(self.correlation)
    }

    pub(super) fn shape(&self) -> Option<u32> {
        (self.shape != NO_SHAPE).then_some(self.shape)
    }

    /// Its number in reading order. Kernels are read first, so for a kernel this is its row.
    pub(super) fn number(&self) -> u64 {
        u64::from(self.number)
    }
}

impl Timed for ListedWork {
    fn time(&self) -> (i64, u64) {
        (self.start_ns, u64::from(self.number))
    }
}

impl Timed for NsysWork {
    fn time(&self) -> (i64, u64) {
        (self.start_ns, self.number)
    }
}

/// The kind of GPU work.
#[derive(Clone, Copy, Debug)]
pub(super) enum NsysWorkKind {
    /// A kernel, with the number of its name.
    Kernel {
        name: u32,
    },
    Copy {
        kind: CopyKind,
        bytes: u64,
        pageable: Option<bool>,
    },
    Set {
        bytes: u64,
    },
    /// A CUDA graph as a whole.
    Graph,
}

/// Work that is no kernel, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OtherWork {
    Copy(CopyKind),
    Set,
    Graph,
}

impl NsysWork {
    pub(super) fn ns(&self) -> u64 {
        u64::try_from(self.end_ns.saturating_sub(self.start_ns)).unwrap_or(0)
    }

    /// The key that the work shares with its API call.
    pub(super) fn key(&self) -> Option<(u64, i64)> {
        Some((self.process, self.correlation?))
    }
}

impl Trace {
    /// Shortens the lists of events until they fit into `left` bytes of memory, but not further
    /// than to those of the document.
    pub(super) fn limit_lists(&mut self, left: u64) {
        let bytes = |count: usize, each: u64| (count as u64).saturating_mul(each);
        let needed = bytes(self.listed.len(), WORK_EVENT_BYTES)
            .saturating_add(bytes(self.calls.calls.len(), CALL_EVENT_BYTES))
            .saturating_add(bytes(self.ranges.len(), RANGE_EVENT_BYTES));
        if needed <= left {
            return;
        }
        let fitting = |count: usize| {
            let count = u128::from(left) * count as u128 / u128::from(needed);
            usize::try_from(count).unwrap_or(usize::MAX).max(MAX_LISTED)
        };
        self.listed.truncate(fitting(self.listed.len()));
        self.calls.truncate(fitting(self.calls.calls.len()));
        self.max_ranges = Some(fitting(self.ranges.len()));
    }

    /// The name of a piece of work.
    pub(super) fn name(&self, what: PieceKind) -> String {
        match what {
            PieceKind::Kernel(name) => self.kernels.get(name as usize).cloned().unwrap_or_default(),
            PieceKind::Other(number) => match self.pieces.other(number) {
                Some(OtherWork::Copy(kind)) => copy_name(kind),
                Some(OtherWork::Set) => "memset".to_owned(),
                Some(OtherWork::Graph) | None => "graph".to_owned(),
            },
        }
    }
}

/// The process part of nsys's ids of processes and threads: all but the lowest 24 bits.
pub(super) fn process(global: Option<i64>) -> u64 {
    global.unwrap_or(0).cast_unsigned() & !0xff_ffff
}

/// Reads the trace, and the first `keep` kernels with all columns.
pub(super) fn read<R: TraceRows>(file: &R, keep: usize) -> Result<Trace, R::Error> {
    let mut trace = Trace { strings: file.strings()?, ..Trace::default() };
    (trace.first_ns, trace.last_ns) = (i64::MAX, i64::MIN);
    let first_kernels = read_work(file, &mut trace, keep)?;
    read_first_kernels(file, &mut trace, first_kernels)?;
    read_calls(file, &mut trace)?;
    let python_domains = read_ranges(file, &mut trace)?;
    trace.stacks = stacks::read(file, &trace.strings, &python_domains)?;
    if trace.first_ns == i64::MAX {
        (trace.first_ns, trace.last_ns) = (0, 0);
    }
    Ok(trace)
}

/// Reads all work and returns the first `keep` kernels.
fn read_work<R: TraceRows>(
    file: &R,
    trace: &mut Trace,
    keep: usize,
) -> Result<Vec<NsysWork>, R::Error> {
    let mut names = KernelNames::default();
    let mut shapes = KernelShapes::default();
    let mut listed = EarliestRows::new(MAX_WORK);
    let mut first_kernels = EarliestRows::new(keep);
    let mut see = |work: NsysWork, trace: &mut Trace| {
        let work = NsysWork { number: trace.work_count, ..work };
        trace.work_count += 1;
        trace.first_ns = trace.first_ns.min(work.start_ns);
        trace.last_ns = trace.last_ns.max(work.end_ns);
        trace.totals.add(&work);
        let what = trace.pieces.add(&work);
        let (process, _) = trace.processes.number(work.process);
        listed.see(ListedWork::new(&work, what, process));
        if matches!(work.what, NsysWorkKind::Kernel { .. }) {
            first_kernels.see(work);
        }
    };
    file.kernel_intervals(|k| {
        let name = names.number(file, k.demangled.or(k.short), trace);
        let work = NsysWork {
            what: NsysWorkKind::Kernel { name },
            number: 0,
            start_ns: k.start_ns,
            end_ns: k.end_ns,
            process: process(k.global_pid),
            correlation: k.correlation,
            device: k.device.unwrap_or(0),
            stream: k.stream.unwrap_or(0),
            shape: k.shape.map(|shape| shapes.number(name, shape, &mut trace.shapes)),
        };
        trace.pieces.see_device(work.process, k.device);
        see(work, trace);
    })?;
    trace.kernel_count = trace.work_count;
    file.memcpys(|c| {
        let work = NsysWork {
            what: NsysWorkKind::Copy { kind: c.kind, bytes: c.bytes, pageable: c.pageable },
            number: 0,
            start_ns: c.start_ns,
            end_ns: c.end_ns,
            process: process(c.global_pid),
            correlation: c.correlation,
            device: c.device.unwrap_or(0),
            stream: c.stream.unwrap_or(0),
            shape: None,
        };
        trace.pieces.see_device(work.process, c.device);
        see(work, trace);
    })?;
    file.memsets(|s| {
        let work = NsysWork {
            what: NsysWorkKind::Set { bytes: s.bytes },
            number: 0,
            start_ns: s.start_ns,
            end_ns: s.end_ns,
            process: process(s.global_pid),
            correlation: s.correlation,
            device: s.device.unwrap_or(0),
            stream: s.stream.unwrap_or(0),
            shape: None,
        };
        trace.pieces.see_device(work.process, s.device);
        see(work, trace);
    })?;
    let before = trace.work_count;
    file.graph_launches(|g| {
        let work = NsysWork {
            what: NsysWorkKind::Graph,
            number: 0,
            start_ns: g.start_ns,
            end_ns: g.end_ns,
            process: process(g.global_pid),
            correlation: g.correlation,
            // The table has no device column.
            device: 0,
            stream: g.stream.unwrap_or(0),
            shape: None,
        };
        see(work, trace);
    })?;
    trace.graph_count = trace.work_count - before;
    trace.pieces.sort();
    trace.listed = listed.finish();
    Ok(first_kernels.finish())
}

/// Interns the names of kernels.
#[derive(Default)]
struct KernelNames {
    ids: ValueNumbers,
    by_id: Vec<u32>,
    unnamed: Option<u32>,
}

impl KernelNames {
    fn number<R: TraceRows>(&mut self, file: &R, id: Option<i64>, trace: &mut Trace) -> u32 {
        let mut next = |name: Option<&str>| {
            let text_bytes = name.map_or(0, str::len);
            file.take_memory(KERNEL_NAME_BYTES + COPIES_OF_NAME * text_bytes);
            trace.kernels.push(name.unwrap_or("(unnamed)").to_owned());
            (trace.kernels.len() - 1) as u32
        };
        let Some(id) = id else { return *self.unnamed.get_or_insert_with(|| next(None)) };
        let (number, new) = self.ids.number(id.cast_unsigned());
        if new {
            self.by_id.push(next(trace.strings.get(id)));
        }
        self.by_id[number as usize]
    }
}

/// Numbers the shapes of kernels. There are few, and a kernel mostly has the same as at its last
/// launch.
#[derive(Default)]
struct KernelShapes {
    numbers: HashMap<KernelShape, u32>,
    /// The last shape of each kernel, by the number of its name.
    last: Vec<Option<(KernelShape, u32)>>,
}

impl KernelShapes {
    /// The number of a shape, which is added to `all` if it is new and there is room.
    fn number(&mut self, name: u32, shape: KernelShape, all: &mut Vec<KernelShape>) -> u32 {
        let name = name as usize;
        if self.last.len() <= name {
            self.last.resize(name + 1, None);
        }
        if let Some((_, number)) = self.last[name].filter(|(last, _)| *last == shape) {
            return number;
        }
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(shape).or_insert(next);
        if number as usize == all.len() && all.len() < MAX_SHAPES {
            all.push(shape);
        }
        self.last[name] = Some((shape, number));
        number
    }
}

/// Reads the kernels' table again, for all columns of the first kernels in time order.
fn read_first_kernels<R: TraceRows>(
    file: &R,
    trace: &mut Trace,
    first: Vec<NsysWork>,
) -> Result<(), R::Error> {
    let most = first.iter().map(|work| work.number + 1).max().unwrap_or(0);
    let wanted: HashMap<u64, NsysWork> =
        first.into_iter().map(|work| (work.number, work)).collect();
    let mut row = 0;
    file.first_kernels(most, |kernel| {
        if let Some(work) = wanted.get(&row) {
            trace.first_kernels.push((*work, kernel));
        }
        row += 1;
    })?;
    trace.first_kernels.sort_by_key(|(work, _)| (work.start_ns, work.number));
    Ok(())
}

fn read_calls<R: TraceRows>(file: &R, trace: &mut Trace) -> Result<(), R::Error> {
    let mut gather = CallCollector::new();
    let (first_ns, last_ns) = (&mut trace.first_ns, &mut trace.last_ns);
    let pieces = &mut trace.pieces;
    file.api_calls(|call| {
        *first_ns = call.start_ns.min(*first_ns);
        *last_ns = call.end_ns.max(*last_ns);
        let number = gather.see(&call);
        let (Some(tid), Some(correlation)) = (call.global_tid, call.correlation) else { return };
        let process = process(Some(tid));
        let call = Call { process, thread: tid.cast_unsigned(), at_ns: call.start_ns };
        pieces.call(call, correlation, number);
    })?;
    trace.calls = gather.finish();
    Ok(())
}

/// Reads the ranges. Returns process and id of each domain whose marks are frames of Python.
fn read_ranges<R: TraceRows>(file: &R, trace: &mut Trace) -> Result<Vec<Domain>, R::Error> {
    // nsys ends a range that the program never closed at the time of this message.
    let stopped = file.diagnostics()?.into_iter().find(|d| d.text.trim() == STOPPED);
    let stopped = stopped.and_then(|diagnostic| diagnostic.at_ns);
    let end_of = |event: &NvtxEvent| event.end_ns.filter(|end| Some(*end) != stopped);
    let mut domains: HashMap<(u64, i64), String> = HashMap::new();
    let mut names = RangeNames::default();
    // The number of each range's name. A domain's name may come after its ranges in the file.
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
        let names_before = names.part_count;
        let name = event.name(&trace.strings);
        named.push(names.number((process, domain), name));
        if names.part_count > names_before {
            let text_bytes = name.map_or(0, str::len);
            file.take_memory(RANGE_NAME_BYTES + COPIES_OF_NAME * text_bytes);
        }
        let thread = event.global_tid.unwrap_or(0).cast_unsigned();
        if let Some(message) = event.payload.as_deref().and_then(NcclMessage::read) {
            let (start_ns, end_ns) = (event.start_ns, end_ns.unwrap_or(i64::MAX));
            trace.messages.push(NcclRange { thread, start_ns, end_ns, message });
        }
        trace.ranges.push(Range {
            kind,
            process,
            thread,
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
    let python = domains.iter().filter(|(_, name)| *name == PYTHON_DOMAIN);
    Ok(python.map(|((process, id), _)| (*process, Some(*id))).collect())
}

/// A domain by process and id; the default domain has no id.
pub(super) type Domain = (u64, Option<i64>);

/// Interns the names of ranges: there are millions of ranges and few names.
#[derive(Default)]
struct RangeNames {
    by_domain: HashMap<Domain, HashMap<String, usize>>,
    part_count: usize,
}

impl RangeNames {
    fn number(&mut self, domain: Domain, name: Option<&str>) -> usize {
        let name = name.unwrap_or(UNNAMED);
        let names = self.by_domain.entry(domain).or_default();
        if let Some(number) = names.get(name) {
            return *number;
        }
        let number = self.part_count;
        names.insert(name.to_owned(), number);
        self.part_count += 1;
        number
    }

    /// The path components by number. `domains` has the names of domains.
    fn parts(self, domains: &HashMap<(u64, i64), String>) -> Vec<Arc<str>> {
        let mut parts: Vec<Arc<str>> = vec![Arc::from(""); self.part_count];
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

/// nsys writes this message when it stops the collection.
const STOPPED: &str = "Profiling has stopped.";

fn range_kind(event: &NvtxEvent) -> Option<NvtxRangeKind> {
    match event.kind {
        NvtxKind::PushPop => Some(NvtxRangeKind::PushPop),
        NvtxKind::StartEnd => Some(NvtxRangeKind::StartEnd),
        _ => None,
    }
}
