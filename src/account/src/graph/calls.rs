//! The calls of one process: which belong to it, and which are within others.

use std::collections::{HashMap, HashSet};

use rgpu_model::Trace;
use rgpu_model::trace::CallEvent;

use super::{NONE, bounded_ns, position};

/// An outermost call.
#[derive(Clone, Debug)]
pub(super) struct CallNode {
    /// Index into the trace's calls.
    pub(super) index: u32,
    /// Index into the trace's names.
    pub(super) name: u32,
    /// Number of its thread within the graph.
    pub(super) thread: u32,
    /// Start in nanoseconds.
    pub(super) start_ns: i64,
    /// End in nanoseconds.
    pub(super) end_ns: i64,
    /// Whether it, or a call within it, waits for the GPU.
    pub(super) waits: bool,
    /// The call of the same thread before it, as a position in the graph's calls.
    pub(super) previous: Option<u32>,
    /// The call of the same thread after it.
    pub(super) next: Option<u32>,
    /// The first work that it launched, as a position in the graph's works.
    pub(super) first_work: Option<u32>,
}

impl CallNode {
    /// Its duration in nanoseconds.
    pub(super) fn duration_ns(&self) -> i64 {
        self.end_ns - self.start_ns
    }
}

/// The calls of a graph.
pub(super) struct Calls {
    /// The outermost calls; those of one thread in order of start.
    pub(super) nodes: Vec<CallNode>,
    /// Position in `nodes` of the outermost call by the trace's index, or [`NONE`].
    pub(super) call_at: Vec<u32>,
}

/// A thread while calls are read.
struct Thread {
    /// Its number.
    number: u32,
    /// Its last outermost call.
    last: Option<Outermost>,
    /// Its last call that is a node.
    last_node: Option<u32>,
}

/// An outermost call while calls are read.
struct Outermost {
    index: u32,
    start_ns: i64,
    end_ns: i64,
    waits: bool,
    node: Option<u32>,
}

/// The least number of a thread that nsys made of a host, a process and a thread.
const MIN_GLOBAL_THREAD: u64 = 1 << 48;

/// The process of a thread: nsys puts it above the 24 bits of the thread. Other tools number
/// threads only; then all are of one process.
fn process(thread: u64) -> u64 {
    if thread >= MIN_GLOBAL_THREAD { thread >> 24 } else { 0 }
}

/// The process that a call belongs to.
fn owner(call: &CallEvent) -> (Option<u32>, u64) {
    (call.rank, process(call.thread))
}

/// The calls of the processes that launched `work`, from the first launch to the last, and the last
/// call of each thread before that.
pub(super) fn select(trace: &Trace, work: &[u32]) -> Calls {
    let mut owners = HashSet::new();
    let (mut first_ns, mut last_ns) = (i64::MAX, i64::MIN);
    for at in work {
        let call = trace.work.get(*at as usize).and_then(|work| work.call);
        let Some(call) = call.and_then(|call| trace.calls.get(call as usize)) else { continue };
        owners.insert(owner(call));
        first_ns = first_ns.min(bounded_ns(call.start_ns));
        last_ns = last_ns.max(bounded_ns(call.start_ns));
    }
    let mut calls = Calls { nodes: Vec::new(), call_at: vec![NONE; trace.calls.len()] };
    let mut threads: HashMap<(Option<u32>, u64), Thread> = HashMap::new();
    for index in in_order(&trace.calls) {
        let Some(call) = trace.calls.get(index as usize) else { continue };
        let start_ns = bounded_ns(call.start_ns);
        if start_ns > last_ns {
            break;
        }
        if !owners.contains(&owner(call)) {
            continue;
        }
        let end_ns = bounded_ns(call.start_ns.saturating_add(call.duration_ns));
        let number = position(threads.len());
        let thread = threads.entry((call.rank, call.thread)).or_insert(Thread {
            number,
            last: None,
            last_node: None,
        });
        let is_nested = thread
            .last
            .as_ref()
            .is_some_and(|outer| start_ns < outer.end_ns && end_ns <= outer.end_ns);
        if !is_nested {
            let within = start_ns >= first_ns;
            if within {
                make_node(trace, thread, &mut calls);
            }
            thread.last =
                Some(Outermost { index, start_ns, end_ns, waits: call.waits, node: None });
        }
        if start_ns >= first_ns {
            let node = make_node(trace, thread, &mut calls);
            if let Some(slot) = calls.call_at.get_mut(index as usize) {
                *slot = node.unwrap_or(NONE);
            }
            let node = node.and_then(|node| calls.nodes.get_mut(node as usize));
            if let Some(node) = node {
                node.waits |= call.waits;
            }
        } else if let Some(outer) = &mut thread.last {
            outer.waits |= call.waits;
        }
    }
    calls
}

/// Makes the thread's last outermost call a node, unless it is one. Its position.
fn make_node(trace: &Trace, thread: &mut Thread, calls: &mut Calls) -> Option<u32> {
    let outer = thread.last.as_mut()?;
    if outer.node.is_some() {
        return outer.node;
    }
    let node = position(calls.nodes.len());
    calls.nodes.push(CallNode {
        index: outer.index,
        name: trace.calls.get(outer.index as usize).map_or(NONE, |call| call.name),
        thread: thread.number,
        start_ns: outer.start_ns,
        end_ns: outer.end_ns,
        waits: outer.waits,
        previous: thread.last_node,
        next: None,
        first_work: None,
    });
    if let Some(slot) = calls.call_at.get_mut(outer.index as usize) {
        *slot = node;
    }
    let before = thread.last_node.and_then(|before| calls.nodes.get_mut(before as usize));
    if let Some(before) = before {
        before.next = Some(node);
    }
    outer.node = Some(node);
    thread.last_node = Some(node);
    Some(node)
}

/// Indexes of calls by start; of those that start together, the longest first.
fn in_order(calls: &[CallEvent]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..position(calls.len())).collect();
    order.sort_by_key(|at| {
        calls.get(*at as usize).map(|call| (call.start_ns, u64::MAX - call.duration_ns))
    });
    order
}
