//! The calls of a window's process, with what each launched and the host's own time before it.

use std::collections::{BTreeMap, HashMap};

use rgpu_model::trace::CallEvent;

use crate::graph::Label;
use crate::view::View;

mod kind;

/// Pauses from this time on may end because another thread is done, in nanoseconds.
const HANDOVER_NS: u64 = 50_000;

pub use kind::{CallKind, Framework};

/// The outermost calls of the window's process.
#[derive(Clone, Debug, Default)]
pub struct HostCalls {
    /// The calls in order of start: from the launch of the window's first work to the launch of
    /// the following step's first work (or of the window's last work, if no step follows).
    pub all: Vec<HostCall>,
    /// What the program is written in, by the names of its kernels.
    pub framework: Framework,
    /// Nanoseconds on the critical path by work, for the whole window.
    work_path: HashMap<u32, WorkPath>,
}

/// One outermost call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCall {
    /// Index into the trace's calls.
    pub at: u32,
    /// Start in nanoseconds since the first event.
    pub start_ns: u64,
    /// End in nanoseconds since the first event.
    pub end_ns: u64,
    /// Id of the thread.
    pub thread: u64,
    /// Index into the trace's names.
    pub name: u32,
    /// What the call does.
    pub kind: CallKind,
    /// Whether it, or a call nested in it, waits for the GPU.
    pub waits: bool,
    /// Number of the step within the window, from 0; the number of steps for the following step's
    /// first launch.
    pub step: u32,
    /// From the end of the thread's previous call to the start of this one, in nanoseconds; if
    /// another thread worked in that pause, only what follows that one's last call. 0 for the
    /// first call of a thread.
    pub before_ns: u64,
    /// Nanoseconds of `before_ns` on the critical path.
    pub before_path_ns: u64,
    /// Nanoseconds of the call's own time, and of its return from a wait, on the critical path.
    pub path_ns: u64,
    /// Nanoseconds of the critical path from the end of the work that it waits for until the next
    /// work is launched: what the GPU lost by the wait.
    pub after_wait_ns: u64,
    /// The first work that it launched (index into the trace's work), if any is in the window or
    /// the step after it.
    pub work: Option<u32>,
    /// Number of pieces of work that it launched.
    pub work_count: u32,
}

impl HostCall {
    /// Duration in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// Nanoseconds of the critical path that belong to a piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkPath {
    /// While it ran.
    pub run_ns: u64,
    /// From its launch to its start, where the launch held it up.
    pub launch_ns: u64,
    /// From the end of work of another stream to its start.
    pub event_ns: u64,
}

/// Which calls belong to the process whose steps are looked at.
struct ProcessFilter {
    rank: Option<u32>,
    process: Option<u64>,
}

impl ProcessFilter {
    /// nsys puts the process above the lowest 24 bits of a thread's id. Ids of other tools are
    /// small: then all calls of the rank count.
    fn new(launch: &CallEvent) -> ProcessFilter {
        let process = Some(launch.thread >> 24).filter(|process| *process != 0);
        ProcessFilter { rank: launch.rank, process }
    }

    fn has(&self, call: &CallEvent) -> bool {
        call.rank == self.rank && self.process.is_none_or(|process| call.thread >> 24 == process)
    }
}

impl HostCalls {
    /// The calls of the view's window.
    pub fn new(view: &View<'_>) -> HostCalls {
        let framework = Framework::of(view);
        let work_path = work_path(view);
        let mut found = HostCalls { all: Vec::new(), framework, work_path };
        let Some((first, last, starts)) = limits(view) else { return found };
        let Some(filter) = view.trace.calls.get(first as usize).map(ProcessFilter::new) else {
            return found;
        };
        let mut launched: HashMap<u32, (u32, u32)> = HashMap::new();
        let following = view.steps.all.get(view.steps.window.end).into_iter();
        let steps = view.window().iter().chain(following);
        for at in steps.flat_map(|step| &step.work) {
            if let Some(call) = view.trace.work.get(*at as usize).and_then(|work| work.call) {
                launched.entry(call).or_insert((*at, 0)).1 += 1;
            }
        }
        let call_path = call_path(view, &launched);
        let listed = view.trace.calls.get(first as usize..=last as usize).unwrap_or_default();
        let mut open: BTreeMap<u64, usize> = BTreeMap::new();
        for (call, at) in listed.iter().zip(first..) {
            if !filter.has(call) {
                continue;
            }
            let end_ns = call.start_ns.saturating_add(call.duration_ns);
            let (work, work_count) =
                launched.get(&at).map_or((None, 0), |(work, count)| (Some(*work), *count));
            let outer = open.get(&call.thread).and_then(|pos| found.all.get_mut(*pos));
            if let Some(outer) = outer.filter(|outer| call.start_ns < outer.end_ns) {
                // A driver call within a runtime call: one call for the host.
                outer.end_ns = outer.end_ns.max(end_ns);
                outer.waits |= call.waits;
                outer.work = outer.work.or(work);
                outer.work_count = outer.work_count.saturating_add(work_count);
                continue;
            }
            let previous = open.get(&call.thread).and_then(|pos| found.all.get(*pos));
            let before_ns = previous.map_or(0, |previous| {
                let pause_ns = call.start_ns.saturating_sub(previous.end_ns);
                after_handover_ns(&found.all, &open, call, pause_ns)
            });
            let kind = CallKind::of(view.call_name(call));
            // Also an asynchronous copy to pageable memory holds the host.
            let work_of_call = work.and_then(|work| view.trace.work.get(work as usize));
            let is_held = kind == CallKind::Copy
                && work_of_call.is_some_and(|work| {
                    work.pageable == Some(true) && view.name(work).starts_with("DtoH")
                });
            let path = call_path.get(&at).copied().unwrap_or_default();
            let step = starts.partition_point(|start| *start <= at).saturating_sub(1);
            open.insert(call.thread, found.all.len());
            found.all.push(HostCall {
                at,
                start_ns: call.start_ns,
                end_ns,
                thread: call.thread,
                name: call.name,
                kind,
                waits: call.waits || is_held,
                step: u32::try_from(step).unwrap_or(u32::MAX),
                before_ns,
                before_path_ns: path.before_ns,
                path_ns: path.own_ns,
                after_wait_ns: path.after_wait_ns,
                work,
                work_count,
            });
        }
        found
    }

    /// Nanoseconds of the window's critical path that belong to `work`.
    pub fn work_path(&self, work: u32) -> WorkPath {
        self.work_path.get(&work).copied().unwrap_or_default()
    }

    /// The outermost call with the index `at` in the trace's calls.
    pub fn call(&self, at: u32) -> Option<&HostCall> {
        let pos = self.all.binary_search_by_key(&at, |call| call.at).ok()?;
        self.all.get(pos)
    }

    /// The calls of each thread, in order; threads in order of their first call.
    pub fn threads(&self) -> Vec<Vec<&HostCall>> {
        let mut number: HashMap<u64, usize> = HashMap::new();
        let mut threads: Vec<Vec<&HostCall>> = Vec::new();
        for call in &self.all {
            let at = *number.entry(call.thread).or_insert(threads.len());
            if at == threads.len() {
                threads.push(Vec::new());
            }
            if let Some(thread) = threads.get_mut(at) {
                thread.push(call);
            }
        }
        threads
    }

    /// The median host time before a launch, in nanoseconds; 0 without launches.
    pub fn median_before_launch_ns(&self) -> u64 {
        // Calls that only ask for something stand between launches; their times before add up.
        let mut times = Vec::new();
        let mut waiting: HashMap<u64, u64> = HashMap::new();
        for call in &self.all {
            let before = waiting.entry(call.thread).or_default();
            *before = before.saturating_add(call.before_ns);
            if call.kind == CallKind::Launch {
                times.push(*before);
            }
            if call.kind != CallKind::Other {
                *before = 0;
            }
        }
        median(times)
    }

    /// From how many nanoseconds the host's time before a call is a pause of its own, and not the
    /// usual time between launches.
    ///
    /// A framework takes 5 to 50 µs for an operation, 84 µs at most under a profiler with stacks:
    /// a pause is longer than ten of this program's own, and than 150 µs.
    pub fn pause_ns(&self) -> u64 {
        self.median_before_launch_ns().saturating_mul(10).max(150_000)
    }
}

/// What is left of a pause of a thread after the last call of another thread in it: nothing of the
/// pause before is the thread's own time, if the other one was busy in its second half.
fn after_handover_ns(
    calls: &[HostCall],
    last_of_threads: &BTreeMap<u64, usize>,
    call: &CallEvent,
    pause_ns: u64,
) -> u64 {
    if pause_ns < HANDOVER_NS {
        return pause_ns;
    }
    let others = last_of_threads.iter().filter(|(thread, _)| **thread != call.thread);
    let others = others.filter_map(|(_, pos)| calls.get(*pos));
    let ended = others.filter(|other| other.end_ns <= call.start_ns);
    let rest = ended.map(|other| call.start_ns - other.end_ns).min();
    rest.filter(|rest| *rest <= pause_ns / 2).unwrap_or(pause_ns)
}

/// The middle of `values`; 0 if there are none.
pub fn median(mut values: Vec<u64>) -> u64 {
    let middle = values.len() / 2;
    if values.is_empty() { 0 } else { *values.select_nth_unstable(middle).1 }
}

/// The first and last call of the window, and the first call of each step, of the following one too.
fn limits(view: &View<'_>) -> Option<(u32, u32, Vec<u32>)> {
    let launch = |work: &u32| view.trace.work.get(*work as usize)?.call;
    let mut starts: Vec<u32> =
        view.window().iter().filter_map(|step| step.work.iter().find_map(launch)).collect();
    let first = *starts.first()?;
    let following = view.steps.all.get(view.steps.window.end);
    let following = following.and_then(|step| step.work.iter().find_map(launch));
    let last = match following {
        Some(last) => last,
        None => view.window().iter().flat_map(|step| &step.work).filter_map(launch).max()?,
    };
    starts.extend(following);
    let is_sorted = starts.is_sorted() && last >= first;
    (is_sorted && (last as usize) < view.trace.calls.len()).then_some((first, last, starts))
}

/// Nanoseconds of the critical path that belong to a call.
#[derive(Clone, Copy, Default)]
struct CallPath {
    before_ns: u64,
    own_ns: u64,
    after_wait_ns: u64,
}

fn call_path(view: &View<'_>, launched: &HashMap<u32, (u32, u32)>) -> HashMap<u32, CallPath> {
    let mut paths: HashMap<u32, CallPath> = HashMap::new();
    // The wait after which no work has started yet.
    let mut waited = None;
    for segment in view.path {
        let ns = segment.end_ns.saturating_sub(segment.start_ns);
        match segment.label {
            Label::Call(at) => paths.entry(at).or_default().own_ns += ns,
            Label::HostBefore(at) => paths.entry(at).or_default().before_ns += ns,
            Label::WaitReturn(at) => {
                paths.entry(at).or_default().own_ns += ns;
                waited = Some(at);
            }
            Label::Work(_) => waited = None,
            Label::LaunchLatency(_) | Label::Turnaround(_) | Label::Event(_) => {}
        }
        if let Some(wait) = waited {
            paths.entry(wait).or_default().after_wait_ns += ns;
        }
        // The host may stay on the path for long; the wait's loss ends with the next launch.
        if let Label::Call(at) | Label::WaitReturn(at) = segment.label
            && launched.contains_key(&at)
            && waited != Some(at)
        {
            waited = None;
        }
    }
    paths
}

fn work_path(view: &View<'_>) -> HashMap<u32, WorkPath> {
    let mut paths: HashMap<u32, WorkPath> = HashMap::new();
    for segment in view.path {
        let ns = segment.end_ns.saturating_sub(segment.start_ns);
        match segment.label {
            Label::Work(at) => paths.entry(at).or_default().run_ns += ns,
            Label::LaunchLatency(at) => paths.entry(at).or_default().launch_ns += ns,
            Label::Event(at) => paths.entry(at).or_default().event_ns += ns,
            _ => {}
        }
    }
    paths
}

#[cfg(test)]
mod tests;
