//! From a trace to launches, sums and regions.

use std::collections::{BTreeMap, HashMap};

use rgpu_format::nsys_row::{CopyKind, Kernel, Strings};

use super::correlated::Finger;
use super::trace::{Trace, What, Work};
use crate::import::Imported;
use crate::import::region_tree::{Moment, Tree};
use crate::model::launch::Launch;
use crate::model::profile::Gap;
use crate::model::timeline::{CopySum, KernelSum};

/// In which regions each piece of work was launched.
pub(super) struct Placed {
    pub(super) tree: Tree,
    /// Pairs of work and region, by work: the innermost push/pop region first, then start/end ones.
    pairs: Vec<(usize, usize)>,
    /// How many pieces of work have a known call.
    known: usize,
}

impl Placed {
    pub(super) fn new(trace: &Trace) -> Placed {
        // Work whose call is known, and the moment of that call.
        let mut known: Vec<usize> = Vec::new();
        let mut moments: Vec<Moment> = Vec::new();
        let mut finger = Finger::default();
        for (index, work) in trace.work.iter().enumerate() {
            let key = work.correlation.map(|id| (work.process, id));
            let call = key.and_then(|key| trace.calls.get(key, &mut finger));
            if let Some(call) = call {
                known.push(index);
                let (process, thread, at_ns) = (work.process, call.thread, call.at_ns);
                moments.push(Moment { process, thread, at_ns });
            }
        }
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        let tree = Tree::build(&trace.ranges, &moments, |moment, nodes| {
            pairs.extend(nodes.iter().map(|node| (known[moment], *node)));
        });
        Placed { tree, pairs, known: known.len() }
    }

    /// The regions of one piece of work.
    pub(super) fn regions_of(&self, work: usize) -> Vec<usize> {
        let first = self.pairs.partition_point(|(index, _)| *index < work);
        let pairs = self.pairs[first..].iter().take_while(|(index, _)| *index == work);
        pairs.map(|(_, node)| *node).collect()
    }
}

/// Adds everything that `trace` says to `imported`, but the single events.
pub(super) fn add(trace: &Trace, placed: &Placed, from: &str, imported: &mut Imported) {
    let tree = &placed.tree;
    let mut sums: Vec<Sums> = Vec::new();
    sums.resize_with(tree.len(), Sums::default);
    for (work, node) in &placed.pairs {
        sums[*node].add(&trace.work[*work]);
    }
    // A region's parent has the smaller number: each is whole before its parent takes it.
    for node in (0..sums.len()).rev() {
        let (below, rest) = sums.split_at_mut(node);
        if let (_, Some(parent), _) = tree.place(node) {
            below[parent].merge(&rest[0]);
        }
    }
    let mut all = Sums::default();
    trace.work.iter().for_each(|work| all.add(work));

    let gpu_times_known = !trace.work.is_empty();
    imported.regions = tree
        .regions(from)
        .into_iter()
        .map(|(node, mut region)| {
            region.gpu_ns = gpu_times_known.then_some(sums[node].gpu_ns);
            region.kernels = sums[node].kernels(trace);
            region
        })
        .collect();
    imported.kernels = all.kernels(trace);
    imported.copies = all.copies();
    imported.launches = launches(trace, placed);
    imported.gaps.extend(gaps(trace, placed.known, from));
}

/// Sums over some of the work.
#[derive(Default)]
struct Sums {
    gpu_ns: u64,
    /// By the number of the kernel's name: launches, total, least, greatest.
    kernels: HashMap<usize, (u64, u64, u64, u64)>,
    /// By kind, fills being of none: count, bytes, total.
    copies: BTreeMap<Option<CopyKind>, (u64, u64, u64)>,
}

impl Sums {
    fn add(&mut self, work: &Work) {
        let ns = work.ns();
        self.gpu_ns = self.gpu_ns.saturating_add(ns);
        let (kind, bytes) = match work.what {
            What::Kernel { name, .. } => {
                let sum = self.kernels.entry(name).or_insert((0, 0, u64::MAX, 0));
                let (count, total, least, most) = *sum;
                *sum = (count + 1, total.saturating_add(ns), least.min(ns), most.max(ns));
                return;
            }
            What::Graph => return,
            What::Copy { kind, bytes } => (Some(kind), bytes),
            What::Set { bytes } => (None, bytes),
        };
        let (count, sum, total) = self.copies.entry(kind).or_default();
        *count += 1;
        *sum = sum.saturating_add(bytes);
        *total = total.saturating_add(ns);
    }

    /// Adds the sums of a region inside.
    fn merge(&mut self, inner: &Sums) {
        self.gpu_ns = self.gpu_ns.saturating_add(inner.gpu_ns);
        for (name, (count, total, least, most)) in &inner.kernels {
            let sum = self.kernels.entry(*name).or_insert((0, 0, u64::MAX, 0));
            sum.0 += count;
            sum.1 = sum.1.saturating_add(*total);
            sum.2 = sum.2.min(*least);
            sum.3 = sum.3.max(*most);
        }
        for (kind, (count, bytes, total)) in &inner.copies {
            let sum = self.copies.entry(*kind).or_default();
            sum.0 += count;
            sum.1 = sum.1.saturating_add(*bytes);
            sum.2 = sum.2.saturating_add(*total);
        }
    }

    fn kernels(&self, trace: &Trace) -> Vec<KernelSum> {
        let mut all: Vec<KernelSum> = self
            .kernels
            .iter()
            .map(|(name, (launches, total_ns, min_ns, max_ns))| KernelSum {
                kernel: trace.kernels[*name].clone(),
                launches: *launches,
                total_ns: *total_ns,
                min_ns: *min_ns,
                max_ns: *max_ns,
            })
            .collect();
        all.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.kernel.cmp(&b.kernel)));
        all
    }

    fn copies(&self) -> Vec<CopySum> {
        let sums = self.copies.iter().map(|(kind, (count, bytes, total_ns))| CopySum {
            kind: kind.map_or_else(|| "memset".to_owned(), copy_name),
            count: *count,
            bytes: *bytes,
            total_ns: *total_ns,
        });
        let mut sums: Vec<CopySum> = sums.collect();
        sums.sort_by(|a, b| a.kind.cmp(&b.kind));
        sums
    }
}

pub(super) fn copy_name(kind: CopyKind) -> String {
    match kind {
        CopyKind::HostToDevice => "HtoD".to_owned(),
        CopyKind::DeviceToHost => "DtoH".to_owned(),
        CopyKind::DeviceToDevice => "DtoD".to_owned(),
        CopyKind::HostToHost => "HtoH".to_owned(),
        CopyKind::PeerToPeer => "PtoP".to_owned(),
        CopyKind::Other(n) => format!("copy kind {n}"),
    }
}

fn launches(trace: &Trace, placed: &Placed) -> Vec<Launch> {
    let kernels = trace.first_kernels.iter().zip(0..);
    kernels
        .map(|((index, kernel), id)| {
            let work = &trace.work[*index];
            let name = match work.what {
                What::Kernel { name, .. } => trace.kernels[name].clone(),
                _ => String::new(),
            };
            let mut launch = facts(kernel, &trace.strings);
            launch.id = id;
            launch.kernel = name;
            launch.duration_ns = Some(work.ns() as f64);
            launch.start_ns = u64::try_from(work.start_ns.saturating_sub(trace.first_ns)).ok();
            let inner = placed.regions_of(*index).first().copied();
            launch.region = inner.map(|node| placed.tree.path(node)).unwrap_or_default();
            launch
        })
        .collect()
}

fn facts(kernel: &Kernel, strings: &Strings) -> Launch {
    let dynamic = kernel.dynamic_shared_bytes.unwrap_or(0);
    Launch {
        mangled: kernel.mangled.and_then(|id| strings.get(id)).map(str::to_owned),
        grid: kernel.grid.unwrap_or_default(),
        block: kernel.block.unwrap_or_default(),
        stream: kernel.stream.map(u64::from),
        registers: kernel.registers,
        shared_bytes: kernel.static_shared_bytes.map(|bytes| bytes.saturating_add(dynamic)),
        ..Launch::default()
    }
}

fn gaps(trace: &Trace, placed: usize, from: &str) -> Vec<Gap> {
    let count = |wanted: fn(&What) -> bool| trace.work.iter().filter(|w| wanted(&w.what)).count();
    let kernels = count(|what| matches!(what, What::Kernel { .. }));
    let graphs = count(|what| matches!(what, What::Graph));
    let unplaced = trace.work.len() - placed;
    let kept = trace.first_kernels.len();
    let all = [
        (
            kernels > kept,
            "launches_capped",
            format!(
                "{from}: {kernels} kernels were traced; the first {kept} are listed one by one, the sums hold all"
            ),
        ),
        (
            unplaced > 0 && !trace.ranges.is_empty(),
            "unattributed_gpu_rows",
            format!(
                "{from}: {unplaced} rows of GPU work have no API call in the trace, so no region can claim them"
            ),
        ),
        (
            graphs > 0,
            "graph_level_rows",
            format!(
                "{from}: {graphs} CUDA graphs were traced as a whole; `--cuda-graph-trace=node` shows the kernels inside"
            ),
        ),
        (
            trace.open_ranges > 0,
            "open_ranges",
            format!(
                "{from}: {} NVTX ranges were never closed; they count until the last event",
                trace.open_ranges
            ),
        ),
    ];
    let gaps = all.into_iter().filter(|(holds, ..)| *holds);
    gaps.map(|(_, code, text)| Gap { code: code.to_owned(), text }).collect()
}
