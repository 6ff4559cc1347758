//! Work that a cause is about: its time, its names, and what changes of it do to the graph.

use std::collections::{BTreeMap, HashMap};

use rgpu_model::account::AccountCause;
use rgpu_model::trace::TraceWork;

use super::words::{self, short_name};
use crate::class::KernelFamily;
use crate::edits::Edits;
use crate::host_calls::HostCall;
use crate::view::View;

/// Causes with less of a step's time are not told.
const MIN_SHARE: f64 = 0.01;

/// Work of the window, by index into the trace's work.
pub(super) struct Picked<'v, 't> {
    view: &'v View<'t>,
    /// The work, in the order of the window.
    pub(super) at: Vec<u32>,
}

impl<'v, 't> Picked<'v, 't> {
    /// Work that is listed.
    pub(super) fn new(view: &'v View<'t>, at: Vec<u32>) -> Picked<'v, 't> {
        Picked { view, at }
    }

    /// The work of the window for which `is_it` holds.
    pub(super) fn find(view: &'v View<'t>, is_it: impl Fn(&TraceWork) -> bool) -> Picked<'v, 't> {
        let at = view.work().filter(|(_, work)| is_it(work)).map(|(at, _)| at).collect();
        Picked { view, at }
    }

    /// The work.
    fn work(&self) -> impl Iterator<Item = &'t TraceWork> + '_ {
        let all = &self.view.trace.work;
        self.at.iter().filter_map(|at| all.get(*at as usize))
    }

    /// Its time in nanoseconds per step.
    pub(super) fn ns(&self) -> f64 {
        self.work().map(|work| work.duration_ns as f64).sum::<f64>() / self.view.step_count()
    }

    /// Its part of a step, 0 if steps have no time.
    pub(super) fn share(&self) -> f64 {
        let step = self.view.step_ns();
        if step > 0.0 { self.ns() / step } else { 0.0 }
    }

    /// Launches per step.
    pub(super) fn count(&self) -> f64 {
        self.at.len() as f64 / self.view.step_count()
    }

    /// Whether its time is worth a finding.
    pub(super) fn matters(&self) -> bool {
        self.share() >= MIN_SHARE
    }

    /// Time, share and count of the work, and the names with most of its time.
    pub(super) fn words(&self) -> String {
        let share = 100.0 * self.share();
        let step = words::time(self.view.step_ns());
        let (time, count) = (words::time(self.ns()), count_words(self.count()));
        format!("{time} of a step of {step} ({share:.1} %) in {count}: {}", self.names(3))
    }

    /// The names with most time, each with its time and count per step.
    pub(super) fn names(&self, max: usize) -> String {
        let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for work in self.work() {
            let sum = sums.entry(work.name).or_default();
            *sum = (sum.0.saturating_add(work.duration_ns), sum.1.saturating_add(1));
        }
        let mut rows: Vec<(u32, u64, u64)> = sums.iter().map(|(n, s)| (*n, s.0, s.1)).collect();
        rows.sort_by_key(|(name, ns, _)| (std::cmp::Reverse(*ns), *name));
        let steps = self.view.step_count();
        let words = rows.iter().take(max).map(|(name, ns, count)| {
            let name = self.view.trace.names.get(*name as usize).map_or("", String::as_str);
            let (ns, count) = (words::time(*ns as f64 / steps), count_text(*count as f64 / steps));
            format!("`{}` {ns} in {count}", short_name(name))
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// A number of launches in words.
pub(super) fn count_words(count: f64) -> String {
    let text = count_text(count);
    if text == "1" { "1 launch".to_owned() } else { format!("{text} launches") }
}

/// A count per step: whole where it is.
fn count_text(count: f64) -> String {
    if (count - count.round()).abs() < 0.05 { format!("{count:.0}") } else { format!("{count:.1}") }
}

/// The framework that the window's kernels come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framework {
    /// torch, with or without its compiler.
    Torch,
    /// JAX, or another user of XLA.
    Jax,
    /// CuPy.
    Cupy,
    /// None of these.
    Plain,
}

impl Framework {
    /// The framework of a window.
    pub(super) fn of(view: &View<'_>) -> Framework {
        if view.has_family(KernelFamily::Torch) || view.has_family(KernelFamily::Inductor) {
            Framework::Torch
        } else if view.has_family(KernelFamily::Xla) {
            Framework::Jax
        } else if view.has_family(KernelFamily::Cupy) {
            Framework::Cupy
        } else {
            Framework::Plain
        }
    }
}

/// Makes edits of work together with the calls that launch it.
pub(super) struct Changes<'v, 't> {
    view: &'v View<'t>,
    /// Pieces of work that a call launches, in the window.
    launched: HashMap<u32, u32>,
    /// The host's own time before a call, in nanoseconds.
    host_ns: HashMap<u32, u64>,
    /// No operator costs the host more than this before its launch; longer pauses are others'.
    most_host_ns: u64,
}

impl<'v, 't> Changes<'v, 't> {
    /// Prepares edits of a window.
    pub(super) fn new(view: &'v View<'t>) -> Changes<'v, 't> {
        let mut launched: HashMap<u32, u32> = HashMap::new();
        for (_, work) in view.work() {
            if let Some(call) = work.call {
                let count = launched.entry(call).or_default();
                *count = count.saturating_add(1);
            }
        }
        let mut ends: HashMap<u64, u64> = HashMap::new();
        let mut host_ns = HashMap::new();
        for (at, call) in view.calls() {
            let end = call.start_ns.saturating_add(call.duration_ns);
            match ends.get_mut(&call.thread) {
                Some(last) => {
                    if call.start_ns >= *last {
                        host_ns.insert(at, call.start_ns - *last);
                    }
                    *last = end.max(*last);
                }
                None => {
                    ends.insert(call.thread, end);
                }
            }
        }
        let mut pauses: Vec<u64> =
            host_ns.iter().filter(|(at, _)| launched.contains_key(at)).map(|(_, ns)| *ns).collect();
        pauses.sort_unstable();
        let median = pauses.get(pauses.len() / 2).copied().unwrap_or(0);
        Changes { view, launched, host_ns, most_host_ns: median.saturating_mul(4) }
    }

    /// The host's own time before a call, in nanoseconds.
    pub(super) fn host_before_ns(&self, call: u32) -> u64 {
        self.host_ns.get(&call).copied().unwrap_or(0)
    }

    /// Removes work. Its call goes, too, if it launches nothing else, with `host_share` (0 to 1) of
    /// the host's time for it.
    pub(super) fn remove(&self, edits: &mut Edits, at: u32, host_share: f64) {
        edits.work_ns.insert(at, 0);
        let call = self.view.trace.work.get(at as usize).and_then(|work| work.call);
        let Some(call) = call.filter(|call| self.launched.get(call) == Some(&1)) else {
            return;
        };
        edits.call_ns.insert(call, 0);
        if let Some(ns) = self.host_ns.get(&call) {
            let own = (*ns).min(self.most_host_ns) as f64;
            let saved = (own * host_share.clamp(0.0, 1.0)) as u64;
            edits.host_before_ns.insert(call, ns.saturating_sub(saved));
        }
    }

    /// Removes all of the work.
    pub(super) fn without(&self, all: &[u32], host_share: f64) -> Edits {
        let mut edits = Edits::default();
        for at in all {
            self.remove(&mut edits, *at, host_share);
        }
        edits
    }

    /// Gives all of the work `factor` (0 to 1) of its time.
    pub(super) fn scaled(&self, all: &[u32], factor: f64) -> Edits {
        let mut edits = Edits::default();
        for at in all {
            self.scale(&mut edits, *at, factor);
        }
        edits
    }

    /// Gives work `factor` (0 to 1) of its time.
    pub(super) fn scale(&self, edits: &mut Edits, at: u32, factor: f64) {
        if let Some(work) = self.view.trace.work.get(at as usize) {
            let ns = work.duration_ns as f64 * factor.clamp(0.0, 1.0);
            edits.work_ns.insert(at, (ns as u64).max(1));
        }
    }

    /// Puts one kernel of `ns` nanoseconds in place of all of the work, which must be of one stream
    /// and in its order. It takes no longer than they do.
    pub(super) fn fuse(&self, edits: &mut Edits, all: &[u32], ns: f64) {
        let Some((first, rest)) = all.split_first() else { return };
        let sum: f64 = all.iter().map(|at| duration(self.view, *at)).sum();
        edits.work_ns.insert(*first, (ns.clamp(0.0, sum) as u64).max(1));
        for at in rest {
            self.remove(edits, *at, 1.0);
        }
    }
}

impl<'v> Changes<'v, '_> {
    /// As [`fuse`](Changes::fuse), for work that one call of the program launches one after the
    /// other: the host's time between the launches goes whole, or half of it, with the calls
    /// between them that only ask.
    pub(super) fn fuse_all(&self, edits: &mut Edits, all: &[u32], ns: f64, is_whole: bool) {
        self.fuse(edits, all, ns);
        let left = |ns: u64| if is_whole { 0 } else { ns / 2 };
        for at in all.iter().skip(1) {
            let call = self.view.trace.work.get(*at as usize).and_then(|work| work.call);
            let Some(call) = call.filter(|call| self.launched.get(call) == Some(&1)) else {
                continue;
            };
            if let Some(ns) = self.host_ns.get(&call) {
                edits.host_before_ns.insert(call, left(*ns));
            }
        }
        for pair in all.windows(2) {
            for call in self.calls_between(pair) {
                edits.call_ns.insert(call.at, left(call.duration_ns()));
                edits.host_before_ns.insert(call.at, left(call.before_ns));
            }
        }
    }

    /// The calls between the launches of two pieces of work, of their thread. Empty if one of them
    /// launches something or waits.
    fn calls_between(&self, pair: &[u32]) -> &'v [HostCall] {
        let mut launches = pair.iter().map(|at| self.view.graph.launch_call(*at));
        let (Some(Some(from)), Some(Some(to))) = (launches.next(), launches.next()) else {
            return &[];
        };
        let calls = &self.view.host().all;
        let begin = calls.partition_point(|call| call.at <= from);
        let end = calls.partition_point(|call| call.at < to);
        let between = calls.get(begin..end).unwrap_or_default();
        let thread = calls.get(end).map(|call| call.thread);
        let only_asks =
            |call: &HostCall| call.work.is_none() && !call.waits && Some(call.thread) == thread;
        if between.iter().all(only_asks) { between } else { &[] }
    }
}

/// The duration of work in nanoseconds; 0 if there is none.
pub(super) fn duration(view: &View<'_>, at: u32) -> f64 {
    view.trace.work.get(at as usize).map_or(0.0, |work| work.duration_ns as f64)
}

/// For each name of the trace, whether `is_it` holds for it.
pub(super) fn names_that(view: &View<'_>, is_it: impl Fn(&str) -> bool) -> Vec<bool> {
    view.trace.names.iter().map(|name| is_it(name)).collect()
}

/// Whether work has a name that was picked by [`names_that`].
pub(super) fn has_name(names: &[bool], work: &TraceWork) -> bool {
    names.get(work.name as usize).copied().unwrap_or(false)
}

/// The work of each step on each stream, in the order of the launches: what is next to each other in
/// such a list runs one after the other. A step's streams are in the order of their numbers.
pub(super) fn lanes<'t>(view: &View<'t>) -> Vec<Vec<(u32, &'t TraceWork)>> {
    let mut lanes = Vec::new();
    for step in view.window() {
        let mut streams: BTreeMap<(u32, u64), Vec<(u32, &'t TraceWork)>> = BTreeMap::new();
        for at in &step.work {
            if let Some(work) = view.trace.work.get(*at as usize) {
                streams.entry((work.device, work.stream)).or_default().push((*at, work));
            }
        }
        lanes.extend(streams.into_values());
    }
    lanes
}

/// The runs of a lane that are made of work for which `is_it` holds, at least `min` long.
pub(super) fn runs<'l, 't>(
    lane: &'l [(u32, &'t TraceWork)],
    min: usize,
    is_it: impl Fn(&TraceWork) -> bool,
) -> Vec<&'l [(u32, &'t TraceWork)]> {
    let groups = lane.chunk_by(|(_, a), (_, b)| is_it(a) == is_it(b));
    let held = groups.filter(|run| run.first().is_some_and(|(_, work)| is_it(work)));
    held.filter(|run| run.len() >= min).collect()
}

/// Whether a class is small work between larger kernels: element-wise, casts, copies, fills.
pub(super) fn is_pointwise(class: &AccountCause) -> bool {
    matches!(
        class,
        AccountCause::ElementWise
            | AccountCause::Cast
            | AccountCause::Layout
            | AccountCause::Fill
            | AccountCause::Random
    )
}
