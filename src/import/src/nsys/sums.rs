//! Sums the GPU work of an nsys trace by kernel, by kind of copy, and by region.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use rgpu_format::nsys_row::CopyKind;

use super::pieces::PieceTime;
use super::trace::{NsysWork, NsysWorkKind};
use rgpu_model::timeline::{CopySum, KernelSum, WHOLE_GRAPHS};

/// The durations of one kernel's launches.
#[derive(Clone, Copy, Debug)]
struct KernelTimes {
    launches: u64,
    total: u64,
    least: u64,
    most: u64,
}

impl Default for KernelTimes {
    fn default() -> KernelTimes {
        KernelTimes { launches: 0, total: 0, least: u64::MAX, most: 0 }
    }
}

impl KernelTimes {
    fn add(&mut self, ns: u64) {
        self.launches += 1;
        self.total = self.total.saturating_add(ns);
        self.least = self.least.min(ns);
        self.most = self.most.max(ns);
    }

    fn merge(&mut self, more: &KernelTimes) {
        self.launches += more.launches;
        self.total = self.total.saturating_add(more.total);
        self.least = self.least.min(more.least);
        self.most = self.most.max(more.most);
    }

    fn named(&self, kernel: &str) -> KernelSum {
        KernelSum {
            kernel: kernel.to_owned(),
            launches: self.launches,
            total_ns: self.total,
            set_up_ns: None,
            min_ns: self.least,
            max_ns: self.most,
        }
    }
}

fn sorted(mut sums: Vec<KernelSum>) -> Vec<KernelSum> {
    sums.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.kernel.cmp(&b.kernel)));
    sums
}

/// Sums over all GPU work of a trace.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// By number of the kernel's name.
    kernels: Vec<KernelTimes>,
    /// CUDA graphs that were traced as a whole.
    graphs: KernelTimes,
    /// Count, bytes and total time by kind; `None` is for fills.
    copies: BTreeMap<Option<CopyKind>, (u64, u64, u64)>,
}

impl Totals {
    pub(super) fn add(&mut self, work: &NsysWork) {
        let (kind, bytes) = match work.what {
            NsysWorkKind::Kernel { name } => {
                let name = name as usize;
                if self.kernels.len() <= name {
                    self.kernels.resize_with(name + 1, KernelTimes::default);
                }
                self.kernels[name].add(work.ns());
                return;
            }
            NsysWorkKind::Graph => {
                self.graphs.add(work.ns());
                return;
            }
            NsysWorkKind::Copy { kind, bytes, .. } => (Some(kind), bytes),
            NsysWorkKind::Set { bytes } => (None, bytes),
        };
        let (count, sum, total) = self.copies.entry(kind).or_default();
        *count += 1;
        *sum = sum.saturating_add(bytes);
        *total = total.saturating_add(work.ns());
    }

    /// Sums by kernel, and of all graphs, longest first. `names` are the kernels' names by number.
    pub(super) fn kernels(&self, names: &[String]) -> Vec<KernelSum> {
        let kernels = self.kernels.iter().zip(names).map(|(times, name)| times.named(name));
        let graphs = (self.graphs.launches > 0).then(|| self.graphs.named(WHOLE_GRAPHS));
        sorted(kernels.chain(graphs).collect())
    }

    pub(super) fn copies(&self) -> Vec<CopySum> {
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

/// Sums over the GPU work of one region.
#[derive(Debug, Default)]
pub(super) struct RegionSums {
    pub(super) gpu_ns: u64,
    /// The part of `gpu_ns` that a thread without ranges launched.
    pub(super) inferred_ns: u64,
    kernels: HashMap<u32, KernelTimes, BuildHasherDefault<SmallIntHasher>>,
}

impl RegionSums {
    pub(super) fn add(&mut self, spent: PieceTime) {
        self.gpu_ns = self.gpu_ns.saturating_add(spent.ns);
        if let Some(kernel) = spent.kernel {
            self.kernels.entry(kernel).or_default().add(spent.ns);
        }
    }

    /// Adds the sums of an inner region.
    pub(super) fn merge(&mut self, inner: &RegionSums) {
        self.gpu_ns = self.gpu_ns.saturating_add(inner.gpu_ns);
        self.inferred_ns = self.inferred_ns.saturating_add(inner.inferred_ns);
        for (kernel, times) in &inner.kernels {
            self.kernels.entry(*kernel).or_default().merge(times);
        }
    }

    /// Number of its kernels.
    pub(super) fn kernel_count(&self) -> usize {
        self.kernels.len()
    }

    /// Sums by kernel, as in [`Totals::kernels`], and of no more kernels than `most`.
    pub(super) fn kernels(&self, names: &[String], most: usize) -> Vec<KernelSum> {
        let sums = self.kernels.iter();
        let mut sums: Vec<(&KernelTimes, &String)> =
            sums.filter_map(|(name, times)| Some((times, names.get(*name as usize)?))).collect();
        sums.sort_by(|(a, of_a), (b, of_b)| b.total.cmp(&a.total).then_with(|| of_a.cmp(of_b)));
        sums.into_iter().take(most).map(|(times, name)| times.named(name)).collect()
    }
}

/// A fast hasher for our own small numbers, which an attacker cannot choose.
#[derive(Debug, Default)]
pub(super) struct SmallIntHasher(u64);

impl Hasher for SmallIntHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        // 2^64 divided by the golden ratio spreads neighbouring numbers far apart.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub(super) fn copy_name(kind: CopyKind) -> String {
    match (kind.name(), kind) {
        (Some(name), _) => name.to_owned(),
        (None, CopyKind::Other(n)) => format!("copy kind {n}"),
        (None, _) => "copy".to_owned(),
    }
}
