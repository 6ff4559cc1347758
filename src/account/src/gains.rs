//! Puts it together: the process, its steps, the account, and the findings with their gains.
//!
//! A gain is a difference of two replays of the same steps: unchanged, and with the edits of a
//! cause. Each cause gives two sets of edits, where the change gives least and where it gives most,
//! so that a gain is an interval.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rgpu_model::account::{AccountPart, TogetherGain};
use rgpu_model::finding::{CoveredKernel, GainKind, GainScope, PotentialGain};
use rgpu_model::trace::TraceWork;
use rgpu_model::{Account, Finding, Trace};

use crate::benchmark;
use crate::between;
use crate::cause::{CAUSES, Cause, Found};
use crate::class::{self, KernelFamily};
use crate::edits::{Edits, ToolTime};
use crate::facts::GpuFacts;
use crate::graph::Graph;
use crate::path;
use crate::program;
use crate::steps::{self, Steps};
use crate::view::View;

/// The replay of the unchanged steps may differ from the recording by this part of a step.
const MOST_REPLAY_ERROR: f64 = 0.02;
/// A smaller gain is not reported at all.
const LEAST_SHARE: f64 = 0.002;
const LEAST_UNSURE_SHARE: f64 = 0.03;
/// A profiler adds no more to a call, in nanoseconds: torch's, with stacks, adds up to that.
const MOST_TOOL_NS: u64 = 1 << 18;
/// Nanoseconds to which that time is found.
const TOOL_PRECISION_NS: u64 = 250;
/// In programs that call each operator from Python, nsys sees many more calls than it lists, and adds
/// to the host's time by a multiple: on one H200 1.36 to 1.71 in steps of torch programs of which the
/// host is the limit, up to 1.8 in others. In one call, and the time before the next, it adds no more
/// than these nanoseconds.
const PYTHON_SLOWDOWN: [f64; 2] = [1.3, 1.8];
const MOST_PYTHON_TOOL_NS: u64 = 40_000;
/// Causes whose change rewrites much of a program, and those that only name a place: what their
/// gain counts in the order, so that a plain mistake of about the same gain comes first.
const GENERAL: &[(&str, f64)] = &[
    ("launch_bound", 0.2),
    ("host_work_per_launch", 0.2),
    ("unfused_element_wise", 0.6),
    ("same_work_again", 0.6),
    ("host_pause", 0.75),
];
/// Causes that speak of the host's time for each launch, to which the profiler adds most: the larger
/// the part of a step in which the GPU works, the less they are the limit without it.
const OF_LAUNCHES: &[&str] = &["launch_bound", "host_work_per_launch"];
/// Causes whose findings say already that something is made anew in each step.
const TELL_COMPILING: &[&str] = &["compiled_in_loop", "autotuning", "graph_made_in_loop"];
/// What a replay does not know (caches, clocks, other work that changes with the program) makes gains
/// differ from it: on an H200 most programs whose cause was found first gained at least this part of
/// the least gain, and at most the most one with this part of itself, or this of the rest. The work
/// that is left may be shorter by this part, too.
const LEAST_OF_LOW: f64 = 0.85;
const MORE_OF_HIGH: f64 = 0.2;
const MORE_OF_REST: f64 = 0.2;
const LESS_WORK: f64 = 0.05;
/// A step was measured without the profiler to this: the replay's may be shorter or longer.
const PLAIN_PRECISION: f64 = 0.03;
/// Causes that are replayed together.
const TOGETHER: usize = 3;
/// A finding that adds less than this part of its own gain to those before it tells the same again.
const LEAST_OWN_SHARE: f64 = 0.2;
/// Then the first finding beside which it adds less than this part names its change, of at most so
/// many.
const MOST_SHARED: f64 = 0.5;
const MAX_INSTEAD: usize = 2;
/// The part of a step that is most of it, and what a finding about it stands for without a gain.
const MOST_OF_STEP: f64 = 0.5;
const WEIGHT_WITHOUT_GAIN: f64 = 0.12;
/// What an upper bound of a change that may not be possible counts in the order.
const BOUND_WEIGHT: f64 = 0.6;
/// Kernels that a finding names.
const MAX_COVERED: usize = 5;

/// See [`crate::account`].
pub(crate) fn account(trace: &Trace, facts: &GpuFacts) -> Option<(Account, Vec<Finding>)> {
    let order = busiest_process(trace)?;
    let rank = order.first().and_then(|at| trace.work.get(*at as usize)?.rank);
    let (program_ns, program_parts) = program(trace, &order);
    let mut account =
        Account { program_ns, program_parts, rank, from: trace.from.clone(), ..Account::default() };
    let benchmark = benchmark::find(trace, &order);
    if let Some(benchmark) = benchmark.as_ref().filter(|benchmark| benchmark.is_program()) {
        account.no_gains = Some("it measures kernels one by one, and has no steps".to_owned());
        return Some((account, vec![benchmark.finding(trace)]));
    }
    let steps = steps::find(trace, &order);
    let mut findings = match &steps {
        Some(steps) => account_of_steps(trace, facts, steps, &mut account),
        None => {
            account.no_gains = Some("nothing repeats that could be called a step".to_owned());
            let (ns, parts) = (account.program_ns, &account.program_parts);
            program::findings(trace, facts, &order, ns, parts)
        }
    };
    let is_told = findings.iter().any(|finding| TELL_COMPILING.contains(&finding.id.as_str()));
    let all = steps.as_ref().map_or(&[][..], |steps| steps.all.as_slice());
    let again = between::compiled_again(trace, &order, all);
    let program_ns = account.program_ns;
    let tuning = benchmark.and_then(|benchmark| benchmark.tuning(trace, program_ns));
    let of_program = again.filter(|_| !is_told).into_iter();
    let of_program = of_program.chain(between::host_alone(trace, &order, program_ns));
    let of_program = of_program.chain(tuning);
    for finding in of_program {
        let share = |finding: &Finding| finding.stake.as_ref().map_or(0.0, |stake| stake.share);
        let at = findings.iter().position(|other| share(other) < share(&finding));
        findings.insert(at.unwrap_or(findings.len()), finding);
    }
    Some((account, findings))
}

/// The work of the process with the most GPU time, in the order of the launches; `None` if there is
/// no work.
fn busiest_process(trace: &Trace) -> Option<Vec<u32>> {
    let mut processes: BTreeMap<(Option<u32>, u64), (u64, Vec<u32>)> = BTreeMap::new();
    let of_work = |work: &TraceWork| {
        let call = work.call.and_then(|call| trace.calls.get(call as usize));
        (work.rank, call.map_or(0, |call| process_of(call.thread)))
    };
    for (work, at) in trace.work.iter().zip(0_u32..) {
        let (ns, all) = processes.entry(of_work(work)).or_default();
        *ns = ns.saturating_add(work.duration_ns);
        all.push(at);
    }
    // Work whose call is not listed counts as a process of its own within its rank.
    let (_, (_, mut order)) = processes.into_iter().max_by_key(|(_, (ns, _))| *ns)?;
    order.sort_by_key(|at| launched_ns(trace, *at));
    Some(order)
}

/// The process of a thread. nsys's thread ids hold it above the lowest 24 bits; other tools' ids
/// are smaller, and of one process.
pub(crate) fn process_of(thread: u64) -> u64 {
    thread >> 24
}

/// When a piece of work was launched, or started if the call is not known; then its start.
fn launched_ns(trace: &Trace, at: u32) -> (u64, u64) {
    let Some(work) = trace.work.get(at as usize) else { return (u64::MAX, u64::MAX) };
    let call = work.call.and_then(|call| trace.calls.get(call as usize));
    (call.map_or(work.start_ns, |call| call.start_ns), work.start_ns)
}

/// The time of the whole program, and its parts.
fn program(trace: &Trace, order: &[u32]) -> (u64, Vec<AccountPart>) {
    let last = order.iter().copied().max_by_key(|at| end_ns(trace, *at));
    let Some(last) = last else { return (0, Vec::new()) };
    let begin_ns = order.iter().map(|at| launched_ns(trace, *at).0).min().unwrap_or(0);
    let graph = Graph::new(trace, order);
    let segments = path::walk(&graph, last, true, begin_ns);
    let ns = segments.iter().map(|segment| segment.end_ns - segment.start_ns).sum();
    (ns, path::parts(&graph, &segments, 1.0))
}

fn end_ns(trace: &Trace, at: u32) -> u64 {
    trace.work.get(at as usize).map_or(0, TraceWork::end_ns)
}

/// Adds the account of the steps, and returns the findings.
fn account_of_steps(
    trace: &Trace,
    facts: &GpuFacts,
    steps: &Steps,
    account: &mut Account,
) -> Vec<Finding> {
    account.step = Some(steps.time.clone());
    let window = steps.window.clone();
    let Some(shown) = steps.all.get(window.clone()).filter(|steps| !steps.is_empty()) else {
        account.no_gains = Some("no step is followed by another one".to_owned());
        return Vec::new();
    };
    // One step after the window: its start is the end of the last one.
    let with_next = steps.all.get(window.start..=window.end).unwrap_or(shown);
    let work: Vec<u32> = with_next.iter().flat_map(|step| &step.work).copied().collect();
    let mut boundaries = Vec::with_capacity(with_next.len());
    let mut position = 0_u32;
    for step in with_next {
        boundaries.push(position);
        position = position.saturating_add(u32::try_from(step.work.len()).unwrap_or(u32::MAX));
    }
    let end = boundaries.last().and_then(|at| work.get(*at as usize)).copied();
    let (Some(first), Some(end), true) = (shown.first(), end, with_next.len() > shown.len()) else {
        account.no_gains = Some("no step is followed by another one".to_owned());
        return Vec::new();
    };
    let graph = Graph::new(trace, &work);
    let path = path::walk(&graph, end, false, first.start_ns);
    let count = shown.len() as f64;
    account.parts = path::parts(&graph, &path, count);
    let Some(base_ns) = graph.replay(&Edits::default()).step_ns(&boundaries) else {
        account.no_gains = Some("the steps could not be replayed".to_owned());
        return Vec::new();
    };
    account.replayed_ns = Some(base_ns.max(0.0) as u64);
    let Some(step_ns) = recorded_step_ns(trace, &graph, &work, &boundaries) else {
        account.no_gains = Some("the steps have no length".to_owned());
        return Vec::new();
    };
    if (base_ns - step_ns).abs() > MOST_REPLAY_ERROR * step_ns {
        account.no_gains = Some(format!(
            "the replay of the unchanged steps takes {:.1} % of the recorded time",
            100.0 * base_ns / step_ns.max(1.0)
        ));
        return Vec::new();
    }
    let tools = tool_times(&graph, &work, &boundaries, facts);
    let Some(replays) = Replays::new(&graph, &boundaries, tools) else {
        account.no_gains = Some("the steps could not be replayed".to_owned());
        return Vec::new();
    };
    let view = View::new(trace, facts, steps, &graph, &path);
    let mut gains: Vec<Gain<'_>> = CAUSES
        .iter()
        .filter_map(|cause| Some(Gain::new(cause, (cause.find)(&view)?, &view, &replays)))
        .collect();
    gains.retain(|gain| gain.found.most.is_empty() || gain.high >= gain.least_share());
    gains.sort_by(|a, b| b.weight(&view).total_cmp(&a.weight(&view)));
    let gains = drop_told(gains, &replays);
    account.together = together(&gains, &replays);
    gains.iter().map(|gain| gain.finding(&view, &replays)).collect()
}

/// The recorded time of a step by the measure of [`Replayed::step_ns`](crate::graph::Replayed):
/// the distance of equal points over the last half of the steps, on the GPU or on the host.
fn recorded_step_ns(
    trace: &Trace,
    graph: &Graph<'_>,
    work: &[u32],
    boundaries: &[u32],
) -> Option<f64> {
    let steps = boundaries.len().checked_sub(1).filter(|steps| *steps > 0)?;
    let work_at = |step: usize| work.get(*boundaries.get(step)? as usize).copied();
    let (first, last) = (work_at(steps / 2)?, work_at(steps)?);
    let start_ns = |work: u32| Some(trace.work.get(work as usize)?.start_ns);
    let gpu_ns = start_ns(last)?.saturating_sub(start_ns(first)?);
    let launch_ns = |work: u32| {
        let call = graph.launch_call(work)?;
        Some(trace.calls.get(call as usize)?.start_ns)
    };
    let host_ns =
        launch_ns(last).zip(launch_ns(first)).map(|(last, first)| last.saturating_sub(first));
    let ns = gpu_ns.max(host_ns.unwrap_or(0));
    Some(ns as f64 / (steps - steps / 2) as f64).filter(|ns| *ns > 0.0)
}

/// What the profiler adds to each call: least and most. If a step was measured without it, the times
/// that make the replayed step as long.
fn tool_times(
    graph: &Graph<'_>,
    work: &[u32],
    boundaries: &[u32],
    facts: &GpuFacts,
) -> [ToolTime; 2] {
    let of_ns = |ns: u64| ToolTime { ns, ..ToolTime::default() };
    if let Some(plain_ns) = facts.plain_step_ns.filter(|ns| *ns > 0) {
        let plain_ns = plain_ns as f64;
        let shares = [1.0 + PLAIN_PRECISION, 1.0 - PLAIN_PRECISION];
        return shares.map(|share| of_ns(tool_ns_of_step(graph, boundaries, plain_ns * share)));
    }
    let Some((least_ns, most_ns)) = facts.tool_ns else { return [ToolTime::default(); 2] };
    if !is_called_from_python(graph.trace, work) {
        return [least_ns, most_ns].map(of_ns);
    }
    PYTHON_SLOWDOWN
        .map(|multiple| ToolTime { ns: MOST_PYTHON_TOOL_NS, most_share: 1.0 - 1.0 / multiple })
}

/// The most that the profiler may add to each call, in nanoseconds, if a step without it takes
/// `least_step_ns` or longer, found by halving an interval. Where the GPU is the limit, any time of
/// the profiler explains the step.
fn tool_ns_of_step(graph: &Graph<'_>, boundaries: &[u32], least_step_ns: f64) -> u64 {
    let (mut low_ns, mut high_ns) = (0, MOST_TOOL_NS);
    while high_ns - low_ns > TOOL_PRECISION_NS {
        let ns = low_ns + (high_ns - low_ns) / 2;
        let tool = ToolTime { ns, ..ToolTime::default() };
        let replayed = graph.replay(&Edits { tool, ..Edits::default() });
        if replayed.step_ns(boundaries).is_some_and(|step_ns| step_ns > least_step_ns) {
            low_ns = ns;
        } else {
            high_ns = ns;
        }
    }
    low_ns
}

/// Whether each operator of a program is a call from Python: it has kernels of torch, CuPy or XLA.
fn is_called_from_python(trace: &Trace, work: &[u32]) -> bool {
    let work = work.iter().filter_map(|at| trace.work.get(*at as usize));
    let names: BTreeSet<u32> = work.map(|work| work.name).collect();
    let mut names = names.into_iter().filter_map(|name| trace.names.get(name as usize));
    names.any(|name| {
        let family = class::family(name);
        matches!(family, KernelFamily::Torch | KernelFamily::Cupy | KernelFamily::Xla)
    })
}

/// Replays of one window: with the least and with the most time of the profiler taken out.
struct Replays<'g> {
    graph: &'g Graph<'g>,
    boundaries: &'g [u32],
    bases: [Base; 2],
}

/// The unchanged steps.
#[derive(Clone, Copy, Default)]
struct Base {
    /// What the profiler adds, which is taken out.
    tool: ToolTime,
    /// The steady time of a step, in nanoseconds.
    step_ns: f64,
    /// From the end of a step's work to that of the next, in nanoseconds.
    completion_ns: Option<f64>,
}

impl<'g> Replays<'g> {
    /// `None` if the steps have no length.
    fn new(
        graph: &'g Graph<'g>,
        boundaries: &'g [u32],
        tools: [ToolTime; 2],
    ) -> Option<Replays<'g>> {
        let mut bases = [Base::default(); 2];
        for (base, tool) in bases.iter_mut().zip(tools) {
            let replayed = graph.replay(&Edits { tool, ..Edits::default() });
            let step_ns = replayed.step_ns(boundaries).filter(|ns| *ns > 0.0)?;
            let completion_ns = replayed.completion_ns(boundaries);
            *base = Base { tool, step_ns, completion_ns };
        }
        Some(Replays { graph, boundaries, bases })
    }

    /// The steady time of a step after `edits`, in nanoseconds: by the starts of steps or by the
    /// ends of their work, whichever gives back less. `None` if the steps have no length.
    fn step_ns(&self, edits: &Edits, base: &Base) -> Option<f64> {
        let edits = Edits { tool: base.tool, ..edits.clone() };
        let replayed = self.graph.replay(&edits);
        let by_starts_ns = replayed.step_ns(self.boundaries)?;
        let completion_ns = replayed.completion_ns(self.boundaries);
        let gain_ns = base.completion_ns.zip(completion_ns).map(|(before, after)| before - after);
        let by_ends_ns = gain_ns.map(|gain_ns| base.step_ns - gain_ns);
        Some(by_ends_ns.map_or(by_starts_ns, |by_ends_ns| by_starts_ns.max(by_ends_ns)))
    }

    /// Time of an unchanged step in nanoseconds, in the middle of what is known.
    fn base_ns(&self) -> f64 {
        let [first, second] = self.bases;
        (first.step_ns + second.step_ns) / 2.0
    }

    /// The least and the most part of a step that `edits` give back, 0 to 1.
    fn gains(&self, edits: &Edits) -> (f64, f64) {
        if edits.is_empty() {
            return (0.0, 0.0);
        }
        let [first, second] = self.bases.each_ref().map(|base| self.gain(edits, base));
        (first.min(second), first.max(second))
    }

    fn gain(&self, edits: &Edits, base: &Base) -> f64 {
        let after_ns = self.step_ns(edits, base).unwrap_or(base.step_ns);
        (1.0 - after_ns / base.step_ns).clamp(0.0, 1.0)
    }
}

/// A cause with what its change gives back: parts of a step, 0 to 1.
struct Gain<'c> {
    cause: &'c Cause,
    found: Found,
    low: f64,
    high: f64,
    /// Nanoseconds of a step that the work of the busiest stream takes after the change at most.
    left_ns: f64,
    /// Changes of findings that are not told because this one gives back their time.
    instead: Vec<String>,
}

impl<'c> Gain<'c> {
    fn new(cause: &'c Cause, found: Found, view: &View<'_>, replays: &Replays<'_>) -> Gain<'c> {
        let (least, most) = (replays.gains(&found.least), replays.gains(&found.most));
        let (low, high) = (least.0.min(most.0), least.1.max(most.1));
        let left_ns = work_left_ns(view, &found.most);
        Gain { cause, low, high, found, left_ns, instead: Vec::new() }
    }

    /// The least and the most gain that are promised of a step of `base_ns`: those of the replay
    /// with what it does not know. No step is shorter than the GPU's work that is left.
    fn promised(&self, base_ns: f64) -> (f64, f64) {
        let more = (MORE_OF_HIGH * self.high).min(MORE_OF_REST * (1.0 - self.high));
        let left_ns = self.left_ns * (1.0 - LESS_WORK);
        let most = (1.0 - left_ns / base_ns.max(1.0)).max(self.high);
        (self.low * LEAST_OF_LOW, (self.high + more.max(0.0)).min(most))
    }

    /// A smaller gain is not told: where nothing at all may be gained, only a larger one is.
    fn least_share(&self) -> f64 {
        let may_be_nothing = self.low < LEAST_SHARE && !self.found.is_bound;
        if may_be_nothing { LEAST_UNSURE_SHARE } else { LEAST_SHARE }
    }

    fn middle(&self) -> f64 {
        (self.low + self.high) / 2.0
    }

    /// What findings are ordered by: the middle of the gain as a part of a step. Where no gain is
    /// known, but the work takes most of a step, it stands as an eighth of it.
    fn weight(&self, view: &View<'_>) -> f64 {
        if !self.found.most.is_empty() {
            let general = GENERAL.iter().find(|(id, _)| *id == self.cause.id);
            let weight = match general {
                Some((_, weight)) => *weight,
                None if self.found.is_bound => BOUND_WEIGHT,
                None => 1.0,
            };
            let is_unsure =
                OF_LAUNCHES.contains(&self.cause.id) && view.facts.plain_step_ns.is_none();
            let idle_share = if is_unsure { 1.0 - gpu_share(view) } else { 1.0 };
            return self.middle() * weight * idle_share;
        }
        let work = self.found.work.iter().filter_map(|at| view.trace.work.get(*at as usize));
        let ns = work.map(|work| work.duration_ns as f64).sum::<f64>() / view.step_count();
        let share = ns / view.step_ns().max(1.0);
        if share >= MOST_OF_STEP { WEIGHT_WITHOUT_GAIN * share.min(1.0) } else { 0.0 }
    }

    /// The next step, with what else would give back the same time.
    fn hint(&self) -> String {
        let mut hint = self.found.hint.clone();
        if !self.instead.is_empty() {
            hint.push_str(&format!(
                "; of the same time, and so in place of it or as a part: {}",
                self.instead.join(", or ")
            ));
        }
        if let Some(decides) = &self.found.decides {
            hint.push_str(&format!("; to be sure: {decides}"));
        }
        hint
    }

    fn finding(&self, view: &View<'_>, replays: &Replays<'_>) -> Finding {
        let base_ns = replays.base_ns();
        let ns = |share: f64| (share * base_ns) as u64;
        let has_gain = !self.found.most.is_empty();
        let (low, high) = self.promised(base_ns);
        let stake = has_gain.then(|| {
            let stake = if self.found.is_bound {
                PotentialGain::bound(ns(self.high), GainScope::Step, self.high)
            } else {
                PotentialGain {
                    ns: ns(self.middle()),
                    low_ns: Some(ns(low)),
                    high_ns: Some(ns(high)),
                    share: self.middle(),
                    of: GainScope::Step,
                    kind: GainKind::Replayed,
                    ..PotentialGain::default()
                }
            };
            let change = Some(self.found.change.clone()).filter(|change| !change.is_empty());
            PotentialGain { change, step_ns: Some(base_ns as u64), ..stake }
        });
        Finding {
            stake,
            id: self.cause.id.to_owned(),
            category: "steps".to_owned(),
            text: self.found.text.clone(),
            hint: self.hint(),
            covers: covered(view, &self.found.work),
            code: view.places(&self.found.work, &self.found.calls),
            ..Finding::default()
        }
    }
}

/// Nanoseconds of a step that the work of the busiest stream takes after `edits`. Work that leaves
/// its stream counts by itself, by name.
fn work_left_ns(view: &View<'_>, edits: &Edits) -> f64 {
    let mut queues: HashMap<(u32, u64, Option<u32>), u64> = HashMap::new();
    for (at, work) in view.work() {
        let ns = edits.work_ns.get(&at).copied().unwrap_or(work.duration_ns);
        let own = edits.own_stream.contains_key(&at).then_some(work.name);
        let sum = queues.entry((work.device, work.stream, own)).or_default();
        *sum = sum.saturating_add(ns);
    }
    queues.into_values().max().unwrap_or(0) as f64 / view.step_count()
}

/// The part of a step in which the GPU works, 0 to 1.
fn gpu_share(view: &View<'_>) -> f64 {
    (view.busy_ns() / view.step_ns().max(1.0)).clamp(0.0, 1.0)
}

/// Drops findings whose gain those before them give back already. The one before that gives back
/// most of it names what they would do. A rewrite of much of a program makes no plain mistake go
/// unsaid.
fn drop_told<'c>(gains: Vec<Gain<'c>>, replays: &Replays<'_>) -> Vec<Gain<'c>> {
    let (mut all, mut plain) = (Told::default(), Told::default());
    let mut kept: Vec<Gain<'c>> = Vec::with_capacity(gains.len());
    for gain in gains {
        let is_plain = GENERAL.iter().all(|(id, _)| *id != gain.cause.id);
        let (with_all, with_plain) = (all.with(&gain, replays), plain.with(&gain, replays));
        let own_share =
            if is_plain { with_plain.share - plain.share } else { with_all.share - all.share };
        if gain.found.most.is_empty() || own_share >= LEAST_OWN_SHARE * gain.high {
            all = with_all;
            if is_plain {
                plain = with_plain;
            }
            kept.push(gain);
            continue;
        }
        let telling = kept.iter_mut().find(|other| {
            let mut both = other.found.most.clone();
            both.add(&gain.found.most);
            replays.gains(&both).1 - other.high < MOST_SHARED * gain.high
        });
        if let Some(telling) = telling.filter(|telling| telling.instead.len() < MAX_INSTEAD) {
            telling.instead.push(gain.found.change);
        }
    }
    kept
}

/// Changes that were told, and the part of a step that they give back together.
#[derive(Default)]
struct Told {
    edits: Edits,
    share: f64,
}

impl Told {
    fn with(&self, gain: &Gain<'_>, replays: &Replays<'_>) -> Told {
        let mut edits = self.edits.clone();
        edits.add(&gain.found.most);
        let (_, share) = replays.gains(&edits);
        Told { edits, share }
    }
}

/// What a step takes with the first changes together; `None` if there are fewer than two.
fn together(gains: &[Gain<'_>], replays: &Replays<'_>) -> Option<TogetherGain> {
    let with_gain = gains.iter().filter(|gain| gain.high > 0.0 && !gain.found.is_bound);
    let first: Vec<&Gain<'_>> = with_gain.take(TOGETHER).collect();
    if first.len() < 2 {
        return None;
    }
    let (mut least, mut most) = (Edits::default(), Edits::default());
    for gain in &first {
        least.add(&gain.found.least);
        most.add(&gain.found.most);
    }
    let (low, high) = (replays.gains(&least).0, replays.gains(&most).1);
    let left_ns = |share: f64| (replays.base_ns() * (1.0 - share)) as u64;
    Some(TogetherGain {
        findings: first.iter().map(|gain| gain.cause.id.to_owned()).collect(),
        low_ns: left_ns(high.max(low)),
        high_ns: left_ns(low.min(high)),
    })
}

/// The kernels among `work`, with their launches and time a step, most time first.
fn covered(view: &View<'_>, work: &[u32]) -> Vec<CoveredKernel> {
    let mut sums: HashMap<&str, (u64, u64)> = HashMap::new();
    for work in work.iter().filter_map(|at| view.trace.work.get(*at as usize)) {
        let (launches, ns) = sums.entry(view.name(work)).or_default();
        *launches += 1;
        *ns = ns.saturating_add(work.duration_ns);
    }
    let steps = view.step_count();
    let mut all: Vec<CoveredKernel> = sums
        .into_iter()
        .map(|(kernel, (launches, ns))| CoveredKernel {
            kernel: kernel.to_owned(),
            launches: (launches as f64 / steps).round() as u64,
            total_ns: (ns as f64 / steps) as u64,
            ..CoveredKernel::default()
        })
        .collect();
    all.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.kernel.cmp(&b.kernel)));
    all.truncate(MAX_COVERED);
    all
}

#[cfg(test)]
mod tests;
