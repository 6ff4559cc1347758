//! Sums of a path by cause.

use std::collections::HashMap;
use std::sync::Arc;

use rgpu_model::Trace;
use rgpu_model::account::{AccountCause, AccountPart, AccountRow};
use rgpu_model::timeline::display_path;

use crate::class;
use crate::graph::{Graph, Label};

use super::Segment;
use super::host::HostNames;

/// Rows that a part lists.
const MAX_ROWS: usize = 8;

/// The parts of an account: `segments` by cause, divided by `steps`, most time first.
///
/// The parts add up to the time of the segments. Work and calls that run beside the path are
/// hidden: what of their cause has no time on it is a part with 0 ns. The count of a part is of all
/// its work in the time of the segments, for causes of the host of its segments; the count of a row
/// is of segments.
pub fn parts(graph: &Graph<'_>, segments: &[Segment], steps: f64) -> Vec<AccountPart> {
    let steps = if steps.is_finite() && steps > 0.0 { steps } else { 1.0 };
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else { return Vec::new() };
    let mut sums = Sums::new(graph);
    for segment in segments {
        sums.add(segment);
    }
    sums.add_hidden(first.start_ns, last.end_ns);
    sums.finish(steps)
}

/// A start that is later than its launch and other work explain by at least this has a cause that
/// the trace does not tell. Latencies vary by less.
const MIN_UNKNOWN_NS: u64 = 20_000;

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RowKey {
    /// Work or a call, by the index of its name.
    Name(u32),
    /// The host before a call, by the index of the call's name.
    Before(u32),
    /// An operator or function of the host.
    Host(Arc<str>),
}

/// Where the time of a row is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PlaceKey {
    /// A region of the trace.
    Region(u32),
    /// A function of the host.
    Function(Arc<str>),
}

/// A row while it is summed.
#[derive(Default)]
struct RowSum {
    ns: u64,
    count: u64,
    places: HashMap<PlaceKey, u64>,
}

/// A part while it is summed.
struct PartSum {
    cause: AccountCause,
    /// Time on the path in nanoseconds.
    ns: u64,
    /// That part of it in which work runs or a call is in its body.
    busy_on_path_ns: u64,
    /// Segments of the path.
    segments: u64,
    /// Work that starts in the time of the path.
    work: u64,
    /// Time in nanoseconds in which work or calls of this cause run, on the path or beside it.
    busy_ns: u64,
    /// End of that time so far.
    busy_until_ns: u64,
    rows: HashMap<RowKey, RowSum>,
}

/// The parts while they are summed.
struct Sums<'g, 't> {
    graph: &'g Graph<'t>,
    parts: Vec<PartSum>,
    part_of: HashMap<AccountCause, usize>,
    /// Causes of work that were looked up: by name, kind and memory.
    known: HashMap<(u32, u8, Option<bool>), AccountCause>,
    /// Causes of calls by name.
    known_calls: HashMap<u32, AccountCause>,
    host: Option<HostNames<'t>>,
}

impl<'g, 't> Sums<'g, 't> {
    fn new(graph: &'g Graph<'t>) -> Sums<'g, 't> {
        Sums {
            graph,
            parts: Vec::new(),
            part_of: HashMap::new(),
            known: HashMap::new(),
            known_calls: HashMap::new(),
            host: None,
        }
    }

    fn add(&mut self, segment: &Segment) {
        let ns = segment.end_ns.saturating_sub(segment.start_ns);
        let cause = self.cause(segment.label);
        let unknown_ns = self.unknown_ns(segment.label).min(ns);
        if unknown_ns > 0 {
            self.add_time(AccountCause::Unknown, unknown_ns, segment);
        }
        if ns > unknown_ns {
            self.add_time(cause, ns - unknown_ns, segment);
        }
    }

    /// The time before the start of work that neither its launch nor other work explains, in
    /// nanoseconds; 0 if it is short.
    fn unknown_ns(&self, label: Label) -> u64 {
        let (Label::LaunchLatency(work) | Label::Turnaround(work) | Label::Event(work)) = label
        else {
            return 0;
        };
        self.graph.residual_ns(work).filter(|ns| *ns >= MIN_UNKNOWN_NS).unwrap_or_default()
    }

    fn add_time(&mut self, cause: AccountCause, ns: u64, segment: &Segment) {
        let (row, place) = self.row(segment);
        let is_busy = matches!(segment.label, Label::Work(_) | Label::Call(_));
        let Some(part) = self.part_mut(cause) else { return };
        part.ns = part.ns.saturating_add(ns);
        part.segments += 1;
        if is_busy {
            part.busy_on_path_ns = part.busy_on_path_ns.saturating_add(ns);
        }
        let row = part.rows.entry(row).or_default();
        row.ns = row.ns.saturating_add(ns);
        row.count += 1;
        if let Some(place) = place {
            *row.places.entry(place).or_default() += ns;
        }
    }

    fn part_mut(&mut self, cause: AccountCause) -> Option<&mut PartSum> {
        let next = self.parts.len();
        let at = *self.part_of.entry(cause.clone()).or_insert(next);
        if at == next {
            self.parts.push(PartSum {
                cause,
                ns: 0,
                busy_on_path_ns: 0,
                segments: 0,
                work: 0,
                busy_ns: 0,
                busy_until_ns: 0,
                rows: HashMap::new(),
            });
        }
        self.parts.get_mut(at)
    }

    fn cause(&mut self, label: Label) -> AccountCause {
        match label {
            Label::Work(work) => self.cause_of_work(work),
            Label::LaunchLatency(_) | Label::Turnaround(_) | Label::Event(_) => {
                AccountCause::LaunchLatency
            }
            Label::Call(call) => self.cause_of_call(call),
            Label::HostBefore(_) => AccountCause::Host,
            Label::WaitReturn(_) => AccountCause::Synchronisation,
        }
    }

    fn cause_of_work(&mut self, work: u32) -> AccountCause {
        let trace = self.graph.trace;
        let Some(work) = trace.work.get(work as usize) else { return AccountCause::Unknown };
        let key = (work.name, work.kind as u8, work.pageable);
        self.known.entry(key).or_insert_with(|| class::of_work(trace, work)).clone()
    }

    fn cause_of_call(&mut self, call: u32) -> AccountCause {
        let trace = self.graph.trace;
        let Some(call) = trace.calls.get(call as usize) else { return AccountCause::Unknown };
        if call.waits {
            return AccountCause::Synchronisation;
        }
        let name = call.name;
        let of_name = || class::of_call(trace.names.get(name as usize).map_or("", String::as_str));
        self.known_calls.entry(name).or_insert_with(of_name).clone()
    }

    /// The row that a segment belongs to, and its place.
    fn row(&mut self, segment: &Segment) -> (RowKey, Option<PlaceKey>) {
        match segment.label {
            Label::Work(work)
            | Label::LaunchLatency(work)
            | Label::Turnaround(work)
            | Label::Event(work) => {
                let event = self.graph.trace.work.get(work as usize);
                (RowKey::Name(event.map_or(u32::MAX, |work| work.name)), self.region(Some(work)))
            }
            Label::Call(call) | Label::WaitReturn(call) => {
                let place = self.region(self.graph.first_launched(call));
                (RowKey::Name(self.name_of_call(call)), place)
            }
            Label::HostBefore(call) => self.host_row(call, segment),
        }
    }

    fn host_row(&mut self, call: u32, segment: &Segment) -> (RowKey, Option<PlaceKey>) {
        let trace: &'t Trace = self.graph.trace;
        if let Some(thread) = trace.calls.get(call as usize).map(|call| call.thread)
            && !trace.host.is_empty()
        {
            let host = self.host.get_or_insert_with(|| HostNames::new(&trace.host));
            if let Some(event) = host.find(thread, segment.start_ns, segment.end_ns) {
                let function = event.function.clone();
                let named = event.operator.clone().or_else(|| function.clone());
                if let Some(name) = named {
                    let place = function.filter(|function| *function != name);
                    return (RowKey::Host(name), place.map(PlaceKey::Function));
                }
            }
        }
        let graph = self.graph;
        let is_more = |call| self.cause_of_call(call) != AccountCause::OtherCall;
        let call = graph.purpose(call, is_more);
        (RowKey::Before(self.name_of_call(call)), self.region(graph.first_launched(call)))
    }

    fn name_of_call(&self, call: u32) -> u32 {
        self.graph.trace.calls.get(call as usize).map_or(u32::MAX, |call| call.name)
    }

    fn region(&self, work: Option<u32>) -> Option<PlaceKey> {
        let work = self.graph.trace.work.get(work? as usize)?;
        work.regions.first().map(|region| PlaceKey::Region(*region))
    }

    /// Adds the time in which work, and calls that do not wait, are busy.
    fn add_hidden(&mut self, from_ns: u64, to_ns: u64) {
        let graph = self.graph;
        let trace = graph.trace;
        let mut busy: Vec<(u64, u64, AccountCause)> = Vec::new();
        for at in graph.work_indexes() {
            let Some(work) = trace.work.get(at as usize) else { continue };
            let (start_ns, end_ns) = (work.start_ns.max(from_ns), work.end_ns().min(to_ns));
            let cause = self.cause_of_work(at);
            if (from_ns..to_ns).contains(&work.start_ns)
                && let Some(part) = self.part_mut(cause.clone())
            {
                part.work += 1;
            }
            if start_ns < end_ns {
                busy.push((start_ns, end_ns, cause));
            }
        }
        for at in graph.busy_calls() {
            let Some(call) = trace.calls.get(at as usize) else { continue };
            let end_ns = call.start_ns.saturating_add(call.duration_ns).min(to_ns);
            let start_ns = call.start_ns.max(from_ns);
            if start_ns < end_ns {
                let cause = self.cause_of_call(at);
                busy.push((start_ns, end_ns, cause));
            }
        }
        busy.sort_unstable_by_key(|(start_ns, end_ns, _)| (*start_ns, *end_ns));
        for (start_ns, end_ns, cause) in busy {
            let Some(part) = self.part_mut(cause) else { continue };
            let start_ns = start_ns.max(part.busy_until_ns);
            part.busy_ns = part.busy_ns.saturating_add(end_ns.saturating_sub(start_ns));
            part.busy_until_ns = part.busy_until_ns.max(end_ns);
        }
    }

    /// The parts, most time first.
    fn finish(self, steps: f64) -> Vec<AccountPart> {
        let trace = self.graph.trace;
        let total = self.parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.ns));
        let per_step = divide(self.parts.iter().map(|part| part.ns), steps);
        let listed = self.parts.into_iter().zip(per_step).map(|(part, ns)| {
            let hidden_ns = part.busy_ns.saturating_sub(part.busy_on_path_ns);
            let count =
                if part.cause.is_gpu() { part.work.max(part.segments) } else { part.segments };
            AccountPart {
                cause: part.cause,
                ns,
                share: if total == 0 { 0.0 } else { part.ns as f64 / total as f64 },
                hidden_ns: rounded(hidden_ns, steps),
                count: count as f64 / steps,
                rows: list_rows(trace, part.rows, steps),
            }
        });
        let mut listed: Vec<AccountPart> =
            listed.filter(|part| part.ns > 0 || part.hidden_ns > 0).collect();
        listed.sort_by(|a, b| {
            (b.ns, b.hidden_ns).cmp(&(a.ns, a.hidden_ns)).then_with(|| a.cause.cmp(&b.cause))
        });
        listed
    }
}

/// The rows with most time.
fn list_rows(trace: &Trace, rows: HashMap<RowKey, RowSum>, steps: f64) -> Vec<AccountRow> {
    let mut rows: Vec<(String, RowSum)> =
        rows.into_iter().map(|(key, sum)| (row_name(trace, &key), sum)).collect();
    rows.sort_by(|(a_name, a), (b_name, b)| b.ns.cmp(&a.ns).then_with(|| a_name.cmp(b_name)));
    rows.truncate(MAX_ROWS);
    let listed = rows.into_iter().map(|(name, sum)| AccountRow {
        name,
        ns: rounded(sum.ns, steps),
        count: sum.count as f64 / steps,
        place: place(trace, sum.places),
    });
    listed.collect()
}

fn row_name(trace: &Trace, key: &RowKey) -> String {
    let name_at = |at: u32| trace.names.get(at as usize).map_or("?", String::as_str);
    match key {
        RowKey::Name(at) => name_at(*at).to_owned(),
        RowKey::Before(at) => format!("before {}", name_at(*at)),
        RowKey::Host(name) => name.to_string(),
    }
}

/// The place with most time.
fn place(trace: &Trace, places: HashMap<PlaceKey, u64>) -> Option<String> {
    let named = places.into_iter().filter_map(|(key, ns)| {
        let name = match key {
            PlaceKey::Region(at) => display_path(&trace.regions.get(at as usize)?.path),
            PlaceKey::Function(name) => name.to_string(),
        };
        Some((ns, std::cmp::Reverse(name)))
    });
    named.max().map(|(_, name)| name.0)
}

/// A time divided by the number of steps, rounded.
fn rounded(ns: u64, steps: f64) -> u64 {
    // The cast saturates.
    (ns as f64 / steps).round() as u64
}

/// Times divided by the number of steps, rounded so that they add up to the rounded sum: those with
/// the largest rest are rounded up.
fn divide(times: impl Iterator<Item = u64>, steps: f64) -> Vec<u64> {
    let times: Vec<u64> = times.collect();
    if steps == 1.0 {
        return times;
    }
    let total = rounded(times.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns)), steps);
    let exact: Vec<f64> = times.iter().map(|ns| *ns as f64 / steps).collect();
    let mut divided: Vec<u64> = exact.iter().map(|ns| ns.floor() as u64).collect();
    let mut order: Vec<usize> = (0..exact.len()).collect();
    let rest = |at: usize| exact.get(at).map_or(0.0, |ns| ns.fract());
    order.sort_by(|a, b| rest(*b).total_cmp(&rest(*a)));
    let sum = divided.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
    let mut missing = total.saturating_sub(sum);
    for at in order.into_iter().take(exact.len()) {
        if missing == 0 {
            break;
        }
        if let Some(slot) = divided.get_mut(at) {
            *slot = slot.saturating_add(1);
            missing -= 1;
        }
    }
    divided
}
