//! What a second recording of the same program tells of the first: from where its calls came, and
//! which kernels are inside its CUDA graphs.
//!
//! Recording either lengthens what is recorded, so all times come from the first recording. Two runs of a program make the same calls in the same order, but for their beginnings and for
//! loops that end at another time. So a call is known by what its thread called before it: the
//! names of the last 64 calls that launch work or wait, and of that work; of fewer, if those 64 are not found. A
//! call gets a stack if the second run's calls with the same history nearly all have that one. A
//! polynomial over the hashes of the names makes each history one number, whatever its length.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use rgpu_model::Trace;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

/// Numbers of calls that make a history, longest first.
const HISTORIES: [u64; 4] = [64, 16, 4, 1];
/// The part of the calls with a history that must have the same stack.
const MIN_SAME: f64 = 0.8;
/// Most calls of the second recording that are looked at: many steps of any program.
const MAX_CALLS: usize = 400_000;
/// The key of what a graph launches, whether it was recorded as a whole or node by node.
const GRAPH: u64 = 1;
/// The polynomial's variable: odd, so that no power of it is 0.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Gives the calls of `first` the stacks of `second`, a later recording of the same program, and
/// returns the number of calls that got one. Stacks that `first` has are replaced.
pub fn add_stacks(first: &mut Trace, second: &Trace) -> usize {
    let known = Known::new(second);
    let keys = keys(first, usize::MAX);
    let mut found: Vec<(u32, u32)> = Vec::new();
    for (call, histories) in histories(&keys) {
        found.extend(known.find(&histories).map(|entry| (call, entry)));
    }
    let mut stacks = second.stacks.clone();
    stacks.set_calls(found);
    first.stacks = stacks;
    first.stacks.call_count()
}

/// Most work of a trace to which that inside of graphs is added.
const MAX_WORK: usize = 2_000_000;

/// Puts the kernels inside the CUDA graphs of `second`, a recording node by node, in place of the
/// whole graphs of `first`, and returns the number of graphs that were replaced. A graph takes as
/// long as it did in `first`: the times of its nodes are shortened alike to fit into it.
pub fn add_graph_nodes(first: &mut Trace, second: &Trace) -> usize {
    let mut nodes: HashMap<u32, Vec<&TraceWork>> = HashMap::new();
    for work in second.work.iter().filter(|work| work.kind != TraceWorkKind::Graph) {
        if let Some(call) = work.call.filter(|call| is_graph_launch(second, *call)) {
            nodes.entry(call).or_default().push(work);
        }
    }
    // Of launches with one history the last is the steadiest.
    let mut known: [HashMap<u64, u32>; HISTORIES.len()] = Default::default();
    for (call, histories) in histories(&keys(second, MAX_CALLS)) {
        if nodes.contains_key(&call) {
            for (map, history) in known.iter_mut().zip(histories) {
                map.insert(history, call);
            }
        }
    }
    let like: HashMap<u32, u32> = histories(&keys(first, usize::MAX))
        .filter_map(|(call, histories)| {
            let found = known.iter().zip(histories).find_map(|(map, of)| map.get(&of).copied());
            Some((call, found?))
        })
        .collect();
    let mut names = NodeNames::new(first, second);
    let whole = std::mem::take(&mut first.work);
    let mut left = MAX_WORK.saturating_sub(whole.len());
    let mut replaced = 0;
    for work in whole {
        let of_graph = work.call.filter(|_| work.kind == TraceWorkKind::Graph);
        let found = of_graph.and_then(|call| nodes.get(like.get(&call)?));
        match found.filter(|nodes| nodes.len() <= left) {
            Some(nodes) => {
                left -= nodes.len();
                replaced += 1;
                place_nodes(&work, nodes, &mut names, &mut first.work);
            }
            None => first.work.push(work),
        }
    }
    first.names = names.all;
    first.work.sort_by_key(|work| work.start_ns);
    replaced
}

fn is_graph_launch(trace: &Trace, call: u32) -> bool {
    let call = trace.calls.get(call as usize);
    let name = call.and_then(|call| trace.names.get(call.name as usize));
    name.is_some_and(|name| name.contains("GraphLaunch"))
}

/// Adds the nodes of a graph in the time of the whole graph.
fn place_nodes(
    graph: &TraceWork,
    nodes: &[&TraceWork],
    names: &mut NodeNames<'_>,
    to: &mut Vec<TraceWork>,
) {
    let begin_ns = nodes.iter().map(|node| node.start_ns).min().unwrap_or(0);
    let end_ns = nodes.iter().map(|node| node.end_ns()).max().unwrap_or(0);
    let span_ns = u128::from(end_ns.saturating_sub(begin_ns).max(1));
    // At most the graph's own time, so it fits.
    let fit = |ns: u64| {
        let ns = u128::from(ns) * u128::from(graph.duration_ns) / span_ns;
        u64::try_from(ns).unwrap_or(u64::MAX)
    };
    for node in nodes {
        let after_ns = fit(node.start_ns.saturating_sub(begin_ns));
        let until_ns = fit(node.end_ns().saturating_sub(begin_ns));
        to.push(TraceWork {
            kind: node.kind,
            name: names.number(node.name),
            start_ns: graph.start_ns.saturating_add(after_ns),
            duration_ns: until_ns.saturating_sub(after_ns),
            bytes: node.bytes,
            pageable: node.pageable,
            device: node.device,
            stream: node.stream,
            // Shapes of the two recordings have other numbers.
            shape: None,
            launch: None,
            ..graph.clone()
        });
    }
}

/// The names of the first recording, to which those of nodes are added.
struct NodeNames<'s> {
    all: Vec<String>,
    numbers: HashMap<String, u32>,
    second: &'s [String],
}

impl<'s> NodeNames<'s> {
    fn new(first: &mut Trace, second: &'s Trace) -> NodeNames<'s> {
        let all = std::mem::take(&mut first.names);
        let numbers = all.iter().cloned().zip(0_u32..).collect();
        NodeNames { all, numbers, second: &second.names }
    }

    /// The number of a name of the second recording.
    fn number(&mut self, of_second: u32) -> u32 {
        let name = self.second.get(of_second as usize).map_or("", String::as_str);
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

/// What is known of the stacks of calls by their history.
struct Known {
    /// For each length of a history: by the history the most frequent stack so far, its surplus
    /// over all others, its count, and the count of all.
    by_length: [HashMap<u64, Votes>; HISTORIES.len()],
}

/// The stacks of the calls with one history. The majority is found in one pass: a stack loses one
/// vote to each other one, and the one that is left is counted in a second pass.
#[derive(Clone, Copy, Default)]
struct Votes {
    entry: u32,
    surplus: u32,
    same: u32,
    all: u32,
}

impl Known {
    fn new(trace: &Trace) -> Known {
        let keys = keys(trace, MAX_CALLS);
        let entries: HashMap<u32, u32> = trace.stacks.calls().iter().copied().collect();
        let mut known = Known { by_length: Default::default() };
        let with_stack = || {
            let all = histories(&keys);
            all.filter_map(|(call, histories)| Some((*entries.get(&call)?, histories)))
        };
        for (entry, histories) in with_stack() {
            for (map, history) in known.by_length.iter_mut().zip(histories) {
                let votes = map.entry(history).or_default();
                if votes.surplus == 0 {
                    votes.entry = entry;
                }
                let is_same = votes.entry == entry;
                votes.surplus = if is_same { votes.surplus + 1 } else { votes.surplus - 1 };
            }
        }
        for (entry, histories) in with_stack() {
            for (map, history) in known.by_length.iter_mut().zip(histories) {
                let votes = map.entry(history).or_default();
                votes.all += 1;
                votes.same += u32::from(votes.entry == entry);
            }
        }
        known
    }

    /// The stack of the longest known history on which the second run is of one mind.
    fn find(&self, histories: &[u64; HISTORIES.len()]) -> Option<u32> {
        let votes = self.by_length.iter().zip(histories).find_map(|(map, of)| map.get(of))?;
        let is_clear = f64::from(votes.same) >= MIN_SAME * f64::from(votes.all);
        is_clear.then_some(votes.entry)
    }
}

/// A call as a history sees it.
#[derive(Clone, Copy)]
struct Key {
    call: u32,
    /// A hash of the call's name and of what it launched.
    key: u64,
    /// Whether it launches work or waits. Tools add calls that do neither.
    is_mark: bool,
}

/// The calls of each thread in their order.
fn keys(trace: &Trace, most: usize) -> Vec<Vec<Key>> {
    let hash = |value: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        value(&mut hasher);
        hasher.finish()
    };
    let of_names: Vec<u64> = trace.names.iter().map(|name| hash(&|h| name.hash(h))).collect();
    let name = |at: u32| of_names.get(at as usize).copied().unwrap_or(0);
    let mut launched: HashMap<u32, u64> = HashMap::new();
    for work in &trace.work {
        if let Some(call) = work.call {
            let own = match work.kind {
                TraceWorkKind::Graph => GRAPH,
                _ => hash(&|h| (name(work.name), work.bytes).hash(h)),
            };
            launched.entry(call).and_modify(|known| *known = GRAPH).or_insert(own);
        }
    }
    let mut threads: HashMap<u64, Vec<Key>> = HashMap::new();
    for (call, at) in trace.calls.iter().zip(0_u32..).take(most) {
        let launched = launched.get(&at).copied();
        let key = name(call.name).wrapping_mul(3).wrapping_add(launched.unwrap_or(0));
        let is_mark = launched.is_some() || call.waits;
        threads.entry(call.thread).or_default().push(Key { call: at, key, is_mark });
    }
    threads.into_values().collect()
}

/// Each call with its histories. `threads` has the calls of each thread.
fn histories(threads: &[Vec<Key>]) -> impl Iterator<Item = (u32, [u64; HISTORIES.len()])> + '_ {
    // A key leaves the history once it is as long: then it has this factor.
    let factors =
        HISTORIES.map(|length| (0..length).fold(1_u64, |product, _| product.wrapping_mul(BASE)));
    threads.iter().flat_map(move |calls| {
        let mut marks: Vec<u64> = Vec::new();
        let mut sums = [0_u64; HISTORIES.len()];
        calls.iter().map(move |call| {
            let mut with_call = sums;
            for ((sum, length), factor) in with_call.iter_mut().zip(HISTORIES).zip(factors) {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let left = marks.len().checked_sub(length).and_then(|left| marks.get(left));
                let left = left.map_or(0, |key| key.wrapping_mul(factor));
                *sum = sum.wrapping_mul(BASE).wrapping_add(call.key).wrapping_sub(left);
            }
            if call.is_mark {
                sums = with_call;
                marks.push(call.key);
            }
            (call.call, with_call)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::trace::{CallEvent, CodeFrame, StackMaker, TraceWork};

    /// A program that makes these calls, each of which is a letter and waits, but for `q`. `lines`
    /// has the line of each call's only frame.
    fn program(calls: &str, lines: impl Fn(usize) -> Option<u32>) -> Trace {
        let mut trace =
            Trace { names: ('a'..='z').map(String::from).collect(), ..Trace::default() };
        let (mut maker, mut entries) = (StackMaker::default(), Vec::new());
        for (at, letter) in calls.chars().enumerate() {
            let name = u32::from(letter) - u32::from('a');
            trace.calls.push(CallEvent {
                name,
                start_ns: 10 * at as u64,
                duration_ns: 1,
                thread: 1,
                waits: letter != 'q',
                rank: None,
            });
            let frame = |line| CodeFrame {
                file: "a.py".into(),
                line: Some(line),
                function: "f".into(),
                is_python: true,
            };
            let entry = lines(at).and_then(|line| maker.stack([frame(line)]));
            entries.extend(entry.map(|entry| (at as u32, entry)));
        }
        trace.stacks = maker.finish();
        trace.stacks.set_calls(entries);
        trace
    }

    fn lines(trace: &Trace) -> Vec<u32> {
        let line = |call| {
            let frame = trace.stacks.of_call(call).next()?;
            trace.stacks.frames().get(frame as usize)?.line
        };
        (0..trace.calls.len() as u32).map(|call| line(call).unwrap_or(0)).collect()
    }

    #[test]
    fn calls_get_the_stacks_of_equal_calls_at_the_same_place_of_a_step() {
        // The two `a` of a step come from two lines.
        let step = [1, 2, 3, 4];
        let second = program(&"abac".repeat(30), |at| Some(step[at % 4]));
        let mut first = program(&"abac".repeat(50), |_| None);
        assert_eq!(add_stacks(&mut first, &second), 200);
        let found = lines(&first);
        assert_eq!(found[80..88], [1, 2, 3, 4, 1, 2, 3, 4]);
    }

    #[test]
    fn calls_that_a_tool_adds_do_not_count() {
        let second = program(&"aqbqaqcq".repeat(30), |at| Some(at as u32 % 8 + 1));
        let mut first = program(&"abac".repeat(50), |_| None);
        assert_eq!(add_stacks(&mut first, &second), 200);
        assert_eq!(lines(&first)[80..88], [1, 3, 5, 7, 1, 3, 5, 7]);
    }

    #[test]
    fn a_call_without_a_clear_place_gets_none() {
        let second = program(&"ab".repeat(40), |at| Some(if at % 4 == 0 { 1 } else { 2 }));
        let mut first = program("zzaaaa", |_| Some(9));
        let found = add_stacks(&mut first, &second);
        assert_eq!(found, 0, "{:?}", lines(&first));
        assert_eq!(add_stacks(&mut first, &Trace::default()), 0);
    }

    #[test]
    fn what_was_launched_tells_equal_calls_apart() {
        let launches = |trace: &mut Trace| {
            for call in 0..trace.calls.len() as u32 {
                let work =
                    TraceWork { name: 20 + call % 2, call: Some(call), ..Default::default() };
                trace.work.push(work);
            }
        };
        let mut second = program(&"a".repeat(40), |at| Some(at as u32 % 2 + 1));
        let mut first = program("baaaa", |_| None);
        launches(&mut second);
        launches(&mut first);
        add_stacks(&mut first, &second);
        assert_eq!(lines(&first), [0, 2, 1, 2, 1]);
    }

    #[test]
    fn nodes_take_the_place_of_whole_graphs_in_their_time() {
        let make = |second: bool| {
            let mut trace = program(&"ab".repeat(20), |_| None);
            trace.names[1] = "cudaGraphLaunch".to_owned();
            trace.names.extend(["graph", "late"].map(str::to_owned));
            if second {
                trace.names.swap(26, 27);
            }
            for call in (1..40_u32).step_by(2) {
                let at_ns = 1000 * u64::from(call);
                let work = |kind, name, after_ns, duration_ns| TraceWork {
                    kind,
                    name,
                    start_ns: at_ns + after_ns,
                    duration_ns,
                    call: Some(call),
                    regions: vec![3].into(),
                    ..TraceWork::default()
                };
                if second {
                    trace.work.push(work(TraceWorkKind::Kernel, 2, 100, 40));
                    trace.work.push(work(TraceWorkKind::Kernel, 26, 160, 40));
                } else {
                    trace.work.push(work(TraceWorkKind::Graph, 26, 0, 50));
                }
            }
            trace
        };
        let (mut first, second) = (make(false), make(true));
        assert_eq!(add_graph_nodes(&mut first, &second), 20);
        let told = |work: &TraceWork| {
            (first.names[work.name as usize].as_str(), work.start_ns, work.duration_ns)
        };
        assert_eq!(first.work.len(), 40);
        assert_eq!(
            [told(&first.work[0]), told(&first.work[1])],
            [("c", 1000, 20), ("late", 1030, 20)]
        );
        assert_eq!((first.work[1].call, &first.work[1].regions[..]), (Some(1), &[3][..]));
        // A graph of another history stays as it is.
        let mut other = make(false);
        other.calls.iter_mut().for_each(|call| call.name = 5);
        assert_eq!(add_graph_nodes(&mut other, &second), 0);
        assert_eq!(other.work, make(false).work);
    }

    #[test]
    fn histories_are_the_same_wherever_they_begin() {
        let long = program(&("x".repeat(7) + &"abcd".repeat(40)), |_| None);
        let short = program(&"abcd".repeat(40), |_| None);
        let last = |trace: &Trace| histories(&keys(trace, usize::MAX)).last().unwrap().1;
        assert_eq!(last(&long), last(&short));
        let first = histories(&keys(&long, 8)).last().unwrap().1;
        assert_ne!(first[1], last(&long)[1]);
    }
}
