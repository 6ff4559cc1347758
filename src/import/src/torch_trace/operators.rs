//! Sums of operators by name, with the places in the source where they were called.

use std::collections::{HashMap, HashSet};

use rgpu_format::torch_trace::{EventKind, TorchEvent, TorchTrace};

use super::{places, products, work};
use rgpu_model::Operator;
use rgpu_model::operator::{CallSite, OperatorInputs};
use rgpu_model::timeline::KernelSum;

/// Deeper operators count for their ancestor at this depth. This bounds the work for a hostile file
/// to a multiple of its size.
const MAX_DEPTH: usize = 128;
/// Most places listed for an operator.
const MAX_PLACES: usize = 5;
/// Most inputs listed for an operator.
const MAX_INPUTS: usize = 16;

/// The sums of one name.
#[derive(Default)]
struct Sum {
    calls: u64,
    host_ns: u64,
    host_self_ns: u64,
    gpu_ns: u64,
    gpu_self_ns: u64,
    kernels: HashMap<u32, KernelSum>,
    shapes: String,
    /// Floating-point operations of the calls with work on the GPU.
    flops: f64,
    /// Calls whose operations are known from their shapes.
    calls_with_flops: u64,
    /// Calls, and GPU time of the operator's own work, by place.
    places: HashMap<u32, (u64, u64)>,
    /// Calls with GPU work of their own, and the time of it, by [`OpenOperators::inputs`].
    inputs: HashMap<u32, (u64, u64)>,
}

/// The shapes of an operator's inputs, and the number of the name that lists their types.
type Inputs<'a> = (&'a str, Option<u32>);

/// The operators that were open at calls into CUDA. Calls share what is open around them, so a
/// call takes the same memory at any depth.
#[derive(Default)]
struct OpenOperators<'a> {
    /// The name of each operator that was open, and the one around it.
    opened: Vec<(u32, Option<u32>)>,
    /// The distinct inputs, and which of them each operator that was open has.
    inputs: Vec<Inputs<'a>>,
    inputs_of: Vec<u32>,
    /// The innermost operator at each call, by correlation, and its place.
    at_calls: HashMap<i64, (Option<u32>, Option<u32>)>,
}

impl OpenOperators<'_> {
    /// The names of an operator and of those around it, innermost first.
    fn names(&self, innermost: Option<u32>) -> Vec<u32> {
        let opened = |at: u32| self.opened.get(at as usize).copied();
        let around =
            std::iter::successors(innermost.and_then(opened), |(_, outer)| opened((*outer)?));
        around.map(|(name, _)| name).collect()
    }
}

/// All operators, sorted by GPU time, or by their own host time if there is no GPU time.
/// `places` has their places.
pub(super) fn sum(trace: &TorchTrace, places: &HashMap<usize, u32>, from: &str) -> Vec<Operator> {
    let mut sums: HashMap<u32, Sum> = HashMap::new();
    let on_gpu = trace.events.iter().any(|event| work(event.kind));
    let open_at = host(trace, places, on_gpu, &mut sums);
    let mut launching = HashSet::new();
    for event in trace.events.iter().filter(|event| work(event.kind)) {
        let call = event.correlation.and_then(|id| open_at.at_calls.get(&id));
        if let Some((innermost, place)) = call {
            let names = open_at.names(*innermost);
            gpu(trace, event, &names, *place, &mut sums);
            let inputs = innermost.and_then(|at| open_at.inputs_of.get(at as usize));
            let sum = names.first().and_then(|name| sums.get_mut(name));
            if let (Some(inputs), Some(sum)) = (inputs, sum) {
                let (calls, ns) = sum.inputs.entry(*inputs).or_default();
                *calls += u64::from(launching.insert(*innermost));
                *ns = ns.saturating_add(event.duration_ns);
            }
        }
    }
    let mut operators: Vec<Operator> = sums
        .into_iter()
        .map(|(name, sum)| {
            let mut kernels: Vec<_> = sum.kernels.into_values().collect();
            kernels.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then(a.kernel.cmp(&b.kernel)));
            let mut places: Vec<_> = sum
                .places
                .into_iter()
                .map(|(place, (calls, gpu_ns))| CallSite {
                    function: places::place_text(trace, place),
                    calls,
                    gpu_self_ns: on_gpu.then_some(gpu_ns),
                })
                .collect();
            let key = |place: &CallSite| (place.gpu_self_ns, place.calls);
            places.sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.function.cmp(&b.function)));
            places.truncate(MAX_PLACES);
            let inputs = inputs(trace, &sum.inputs, &open_at.inputs);
            Operator {
                name: trace.names.get(name as usize).cloned().unwrap_or_default(),
                calls: sum.calls,
                host_ns: sum.host_ns,
                host_self_ns: sum.host_self_ns,
                gpu_ns: on_gpu.then_some(sum.gpu_ns),
                gpu_self_ns: on_gpu.then_some(sum.gpu_self_ns),
                kernels,
                places,
                flops: (sum.flops > 0.0 && sum.calls_with_flops == sum.calls).then_some(sum.flops),
                shapes: sum.shapes,
                inputs,
                from: from.to_owned(),
            }
        })
        .collect();
    operators.sort_by(|a, b| {
        let key = |o: &Operator| (o.gpu_self_ns, o.host_self_ns);
        key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
    });
    operators
}

/// The calls of an operator by their inputs, most GPU time first.
fn inputs(
    trace: &TorchTrace,
    sums: &HashMap<u32, (u64, u64)>,
    known: &[Inputs<'_>],
) -> Vec<OperatorInputs> {
    let of = |(at, (calls, gpu_self_ns)): (&u32, &(u64, u64))| {
        let (shapes, types) = known.get(*at as usize).filter(|(shapes, _)| !shapes.is_empty())?;
        let types = types.and_then(|types| trace.names.get(types as usize));
        Some(OperatorInputs {
            shapes: (*shapes).to_owned(),
            types: types.cloned().unwrap_or_default(),
            calls: *calls,
            gpu_self_ns: *gpu_self_ns,
        })
    };
    let mut inputs: Vec<OperatorInputs> = sums.iter().filter_map(of).collect();
    inputs.sort_by(|a, b| b.gpu_self_ns.cmp(&a.gpu_self_ns).then_with(|| a.shapes.cmp(&b.shapes)));
    inputs.truncate(MAX_INPUTS);
    inputs
}

/// An open operator of a thread.
struct OpenOperator {
    name: u32,
    /// Its number in [`OpenOperators::opened`].
    number: u32,
    end_ns: i64,
    duration_ns: u64,
    inner_ns: u64,
    place: Option<u32>,
    /// Whether an outer operator has the same name.
    again: bool,
    /// Floating-point operations, if it is a product.
    flops: Option<f64>,
    /// Whether it started GPU work, by inner operators too.
    has_gpu_work: bool,
}

/// Sums the host times. Returns the operators open at each call into CUDA.
fn host<'a>(
    trace: &'a TorchTrace,
    places: &HashMap<usize, u32>,
    on_gpu: bool,
    sums: &mut HashMap<u32, Sum>,
) -> OpenOperators<'a> {
    let started: HashSet<i64> = trace
        .events
        .iter()
        .filter(|event| work(event.kind))
        .filter_map(|event| event.correlation)
        .collect();
    let mut order: Vec<(usize, &TorchEvent)> = trace
        .events
        .iter()
        .enumerate()
        .filter(|(_, event)| matches!(event.kind, EventKind::Operator | EventKind::Call))
        .collect();
    // Sorted by thread and time. Of events that start together the longer comes first, and an
    // operator comes before its call.
    order.sort_by_key(|(_, event)| {
        let call = event.kind == EventKind::Call;
        (event.pid, event.tid, event.start_ns, std::cmp::Reverse(event.duration_ns), call)
    });
    let mut open_at = OpenOperators::default();
    let mut input_numbers: HashMap<Inputs<'a>, u32> = HashMap::new();
    let mut open: Vec<OpenOperator> = Vec::new();
    let mut thread = None;
    for (at, event) in order {
        if thread != Some((event.pid, event.tid)) {
            thread = Some((event.pid, event.tid));
            while close(&mut open, sums) {}
        }
        while open.last().is_some_and(|top| top.end_ns <= event.start_ns) {
            close(&mut open, sums);
        }
        if event.kind == EventKind::Call {
            if let Some(id) = event.correlation {
                if started.contains(&id) {
                    open.iter_mut().for_each(|open| open.has_gpu_work = true);
                }
                let innermost = open.last().map(|open| open.number);
                let place = open.last().and_then(|open| open.place);
                open_at.at_calls.insert(id, (innermost, place));
            }
            continue;
        }
        let sum = sums.entry(event.name).or_default();
        sum.calls += 1;
        if sum.shapes.is_empty() {
            sum.shapes.clone_from(&event.shapes);
        }
        let name = trace.names.get(event.name as usize).map(String::as_str).unwrap_or_default();
        let again = open.iter().any(|outer| outer.name == event.name);
        let flops = products::flops(name, &event.shapes);
        sum.calls_with_flops += u64::from(flops.is_some());
        // An operator inside a backward operator has no Python function around it.
        let outer = || open.last().and_then(|open| open.place);
        let place = places.get(&at).copied().or_else(outer);
        if let Some(place) = place {
            sum.places.entry(place).or_default().0 += 1;
        }
        if open.len() >= MAX_DEPTH {
            continue;
        }
        let number = u32::try_from(open_at.opened.len()).unwrap_or(u32::MAX);
        open_at.opened.push((event.name, open.last().map(|outer| outer.number)));
        let inputs = (event.shapes.as_str(), event.types);
        open_at.inputs_of.push(*input_numbers.entry(inputs).or_insert_with(|| {
            open_at.inputs.push(inputs);
            u32::try_from(open_at.inputs.len() - 1).unwrap_or(u32::MAX)
        }));
        open.push(OpenOperator {
            name: event.name,
            number,
            end_ns: super::end(event),
            duration_ns: event.duration_ns,
            inner_ns: 0,
            place,
            again,
            flops,
            // A trace of the host alone has the operations of all calls.
            has_gpu_work: !on_gpu,
        });
    }
    while close(&mut open, sums) {}
    open_at
}

/// Closes the innermost open operator. Returns false if none was open.
fn close(open: &mut Vec<OpenOperator>, sums: &mut HashMap<u32, Sum>) -> bool {
    let Some(top) = open.pop() else { return false };
    let sum = sums.entry(top.name).or_default();
    sum.host_self_ns =
        sum.host_self_ns.saturating_add(top.duration_ns.saturating_sub(top.inner_ns));
    if !top.again {
        sum.host_ns = sum.host_ns.saturating_add(top.duration_ns);
        // Autocast calls a product once more inside itself: the work is done once. A call without
        // work on the GPU, as a compiler makes it with tensors that have no data, computes nothing.
        if top.has_gpu_work {
            sum.flops += top.flops.unwrap_or(0.0);
        }
    }
    if let Some(outer) = open.last_mut() {
        outer.inner_ns = outer.inner_ns.saturating_add(top.duration_ns);
    }
    true
}

/// Adds GPU work to the operators that were open at its launch: their names, innermost first, and
/// the place of the innermost.
fn gpu(
    trace: &TorchTrace,
    event: &TorchEvent,
    open: &[u32],
    place: Option<u32>,
    sums: &mut HashMap<u32, Sum>,
) {
    let ns = event.duration_ns;
    for (depth, name) in open.iter().enumerate() {
        let Some(sum) = sums.get_mut(name) else { continue };
        if depth == 0 {
            sum.gpu_self_ns = sum.gpu_self_ns.saturating_add(ns);
            if let Some((_, spent)) = place.and_then(|place| sum.places.get_mut(&place)) {
                *spent = spent.saturating_add(ns);
            }
            if event.kind == EventKind::Kernel {
                let kernel = sum.kernels.entry(event.name).or_insert_with(|| KernelSum {
                    kernel: trace.name(event).to_owned(),
                    min_ns: u64::MAX,
                    ..KernelSum::default()
                });
                kernel.launches += 1;
                kernel.total_ns = kernel.total_ns.saturating_add(ns);
                kernel.min_ns = kernel.min_ns.min(ns);
                kernel.max_ns = kernel.max_ns.max(ns);
            }
        }
        // An operator nested in itself is counted once.
        if !open[..depth].contains(name) {
            sum.gpu_ns = sum.gpu_ns.saturating_add(ns);
        }
    }
}
