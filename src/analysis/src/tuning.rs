//! Finds kernels and launches that serve only a compiler's tuning, not the program: set-up that
//! happens once.
//!
//! XLA's autotuning has kernels of its own. It launches each candidate once, delays the stream, and
//! launches it again to time it; before and after it prepares and checks buffers. Triton's
//! benchmarks, also those of `torch.compile`, fill a buffer as large as the L2 before each timed
//! launch of a candidate, with torch's fill of integers. A candidate also runs a few times without
//! fills, before it is timed.

use std::collections::{HashMap, HashSet};

use super::known_kernel::{Author, author, delays_autotuning, is_autotuning};
use rgpu_model::Launch;
use rgpu_model::timeline::KernelSum;

/// Fewer fills may be the program's own.
const MIN_FLUSHES: usize = 100;
/// The same before kernels that Inductor wrote: it fills before few others.
const MIN_INDUCTOR_FLUSHES: usize = 5;
/// Nanoseconds. A shorter fill does not write as much as the L2 holds.
const MIN_FLUSH_NS: f64 = 5000.0;
/// Kernels of a candidate: a product with split sums has two, and the next candidate's first launch
/// may follow. The program itself runs more kernels between two benchmarks.
const MAX_CANDIDATE_KERNELS: usize = 3;

/// A kernel in the order of starts: its name, nanoseconds and grid.
pub(super) type OrderedKernel<'a> = (&'a str, Option<f64>, [u32; 3]);

/// The kernels of tuning among these launches, which are in the order of their start, each with
/// what it does. `sums` also count launches that are not listed.
pub fn kernels<'a>(launches: &'a [Launch], sums: &[KernelSum]) -> HashMap<&'a str, &'static str> {
    let xla = launches.iter().filter(|launch| is_autotuning(&launch.kernel));
    let xla = xla.map(|launch| (launch.kernel.as_str(), "autotuning of XLA"));
    let order = order(launches);
    let flushes = flushes(&order);
    let of_triton = benchmarked_by_triton(&order, &flushes);
    let of_xla = benchmarked_by_xla(&order);
    let inside = |at: usize| of_triton[at] || of_xla[at];
    let mut launched: HashMap<&str, u64> = HashMap::new();
    let mut used: HashSet<&str> = HashSet::new();
    for (at, (kernel, ..)) in order.iter().enumerate() {
        *launched.entry(kernel).or_default() += 1;
        if !inside(at) {
            used.insert(kernel);
        }
    }
    let sums: HashMap<&str, u64> =
        sums.iter().map(|sum| (sum.kernel.as_str(), sum.launches)).collect();
    // The program continues after the last benchmark, unless the list was cut before. But a kernel
    // with no other launches was used nowhere else.
    let after = (0..order.len()).rev().find(|at| inside(*at)).map_or(0, |last| last + 1);
    let goes_on = after < order.len();
    let is_listed = |kernel: &str| sums.get(kernel) == launched.get(kernel);
    let is_unused = |at: &usize| {
        let kernel = order[*at].0;
        inside(*at) && !used.contains(kernel) && (goes_on || is_listed(kernel))
    };
    let named = |at: usize| {
        if of_triton[at] {
            (order[at].0, "a candidate of Triton's autotuning that was not chosen")
        } else {
            (order[at].0, "a candidate of XLA's autotuning")
        }
    };
    let candidates = (0..order.len()).filter(is_unused).map(named);
    let flushes = flushes.iter().map(|fill| (*fill, "flushes the L2 for Triton's benchmarks"));
    candidates.chain(xla).chain(flushes).collect()
}

/// The compiler that benchmarks a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuner {
    /// Inductor keeps its choices between runs of a program.
    Triton,
    /// XLA tunes in each run.
    Xla,
}

/// Ids of the launches that the benchmarks of Triton and XLA made, of launches in the order of
/// their start.
pub fn benchmarked_launches(launches: &[Launch]) -> HashMap<u32, Tuner> {
    let order = order(launches);
    let of_triton = benchmarked_by_triton(&order, &flushes(&order));
    let of_xla = benchmarked_by_xla(&order);
    let tuner = |at: usize| match (of_triton[at], of_xla[at]) {
        (true, _) => Some(Tuner::Triton),
        (false, true) => Some(Tuner::Xla),
        (false, false) => None,
    };
    let inside = launches.iter().enumerate();
    inside.filter_map(|(at, launch)| Some((launch.id, tuner(at)?))).collect()
}

fn order(launches: &[Launch]) -> Vec<OrderedKernel<'_>> {
    launches.iter().map(|l| (l.kernel.as_str(), l.duration_ns, l.grid)).collect()
}

/// For each kernel whether it belongs to a benchmark, given the fills that flush the L2.
pub(super) fn benchmarked(order: &[OrderedKernel<'_>], flushes: &HashSet<&str>) -> Vec<bool> {
    let of_triton = benchmarked_by_triton(order, flushes);
    of_triton.into_iter().zip(benchmarked_by_xla(order)).map(|(a, b)| a || b).collect()
}

/// Whether a kernel lies between two fills with few other kernels, or directly after the last one.
fn benchmarked_by_triton(order: &[OrderedKernel<'_>], flushes: &HashSet<&str>) -> Vec<bool> {
    let mut inside = vec![false; order.len()];
    let mut after_last = None;
    for at in (0..order.len()).filter(|at| flushes.contains(order[*at].0)) {
        if let Some(from) = after_last.filter(|from| has_few_names(&order[*from..at])) {
            inside[from..at].fill(true);
        }
        inside[at] = true;
        if let Some(candidate) = inside.get_mut(at + 1) {
            *candidate = true;
        }
        after_last = Some(at + 1);
    }
    inside
}

/// Whether a kernel is one of XLA's autotuning or a candidate: few kernels directly after a delay,
/// and the same before it with only autotuning between.
fn benchmarked_by_xla(order: &[OrderedKernel<'_>]) -> Vec<bool> {
    let mut inside: Vec<bool> = order.iter().map(|(name, ..)| is_autotuning(name)).collect();
    let tunes = inside.clone();
    // The kernels between two of autotuning, the last before the delay at hand.
    let mut earlier: Option<std::ops::Range<usize>> = None;
    let mut is_delayed = false;
    let mut at = 0;
    while at < order.len() {
        if tunes[at] {
            is_delayed = delays_autotuning(order[at].0);
            at += 1;
            continue;
        }
        let until = (at..order.len()).find(|next| tunes[*next]).unwrap_or(order.len());
        if is_delayed && has_few_names(&order[at..until]) {
            inside[at..until].fill(true);
            if let Some(range) = earlier.filter(|range| {
                order[range.start].0 == order[at].0 && has_few_names(&order[range.clone()])
            }) {
                inside[range].fill(true);
            }
        }
        // What precedes the first kernel of autotuning is the program's own.
        earlier = (at > 0 && tunes[at - 1]).then_some(at..until);
        is_delayed = false;
        at = until;
    }
    inside
}

/// Whether these are the kernels of a candidate.
fn has_few_names(kernels: &[OrderedKernel<'_>]) -> bool {
    let mut names: Vec<&str> = Vec::new();
    for (name, ..) in kernels {
        if !names.contains(name) {
            names.push(name);
        }
        if names.len() > MAX_CANDIDATE_KERNELS {
            return false;
        }
    }
    true
}

/// The fills that flush the L2 for Triton's benchmarks, of kernels in the order of their start.
pub(super) fn flushes<'a>(order: &[OrderedKernel<'a>]) -> HashSet<&'a str> {
    let mut fills: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, (kernel, ns, _)) in order.iter().enumerate() {
        if kernel.contains("FillFunctor<int>") && ns.is_none_or(|ns| ns >= MIN_FLUSH_NS) {
            fills.entry(kernel).or_default().push(at);
        }
    }
    let flushes = |(kernel, at): &(&str, Vec<usize>)| {
        let of_one_size = at.iter().all(|fill| order[*fill].2 == order[at[0]].2);
        // Some flushes are timed alone, one after the other.
        let next = at.iter().filter_map(|fill| order.get(fill + 1));
        let next: Vec<&str> = next.map(|next| next.0).filter(|next| next != kernel).collect();
        let candidates = next.iter().filter(|next| author(next) == Author::User).count();
        let of_inductor = next.iter().filter(|next| next.starts_with("triton_")).count();
        (candidates >= MIN_FLUSHES || of_inductor >= MIN_INDUCTOR_FLUSHES)
            && of_one_size
            && candidates * 4 >= next.len() * 3
    };
    fills.into_iter().filter(flushes).map(|(kernel, _)| kernel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(kernel: &str, blocks: u32) -> Launch {
        Launch { kernel: kernel.to_owned(), grid: [blocks, 1, 1], ..Launch::default() }
    }

    #[test]
    fn fills_of_one_size_before_candidates_flush_the_l2() {
        const FILL: &str = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>, std::array<char *, (unsigned long)1>>(int, T2, T3)";
        let pairs = |kernel: &str, blocks: fn(u32) -> u32| -> Vec<Launch> {
            let fill = |n| launch(FILL, blocks(n));
            (0..100).flat_map(|n| [fill(n), fill(n), launch(kernel, 64)]).collect()
        };
        let flushed = pairs("triton_poi_fused_gelu_view_6", |_| 15_360);
        assert_eq!(kernels(&flushed, &[]).into_keys().collect::<Vec<_>>(), [FILL]);
        // The first forty launches of a compiled program had six such pairs, and ended with fills.
        let few = &flushed[..18];
        assert_eq!(kernels(few, &[]).into_keys().collect::<Vec<_>>(), [FILL]);
        assert!(kernels(&flushed[..12], &[]).is_empty(), "too few");
        let named = pairs("_my_kernel", |_| 15_360);
        assert!(kernels(&named[..270], &[]).is_empty(), "too few of a kernel that any may have");
        assert!(kernels(&pairs("triton_poi_fused_gelu_view_6", |n| n + 1), &[]).is_empty());
        assert!(kernels(&pairs("void at::native::add(int)", |_| 15_360), &[]).is_empty());
    }

    #[test]
    fn candidates_between_fills_are_benchmarked_and_the_programs_own_launches_are_not() {
        const FILL: &str = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>, std::array<char *, (unsigned long)1>>(int, T2, T3)";
        let candidates = ["triton_mm_0", "triton_mm_1", "triton_mm_2"];
        let benchmark = |kernel: &'static str| {
            let warm_up = [kernel; 10];
            let timed = (0..50).flat_map(move |_| [FILL, kernel]);
            warm_up.into_iter().chain(timed)
        };
        let step = ["triton_mm_1", "triton_poi_gelu", "nvjet_a", "nvjet_b", "reduce"];
        let named = candidates.into_iter().flat_map(benchmark);
        let all = named.chain([step; 20].into_iter().flatten()).chain(benchmark("triton_red"));
        let mut launches: Vec<Launch> = all.map(|kernel| launch(kernel, 64)).collect();
        launches.extend(step.map(|kernel| launch(kernel, 64)));
        (0..).zip(&mut launches).for_each(|(id, launch)| launch.id = id);
        let inside = benchmarked_launches(&launches);
        let of = |kernel: &str| {
            let of_it = launches.iter().filter(|launch| launch.kernel == kernel);
            let (inside, outside): (Vec<_>, Vec<_>) =
                of_it.partition(|l| inside.contains_key(&l.id));
            (inside.len(), outside.len())
        };
        // The first candidate's launches before the first fill cannot be told from the program's.
        assert_eq!(of("triton_mm_0"), (50, 10));
        assert_eq!(of("triton_mm_1"), (60, 21));
        assert_eq!(of("triton_mm_2"), (60, 0));
        assert_eq!(of("triton_red"), (50, 10));
        assert_eq!(of("nvjet_a"), (0, 21));
        let kernels: HashSet<&str> = kernels(&launches, &[]).into_keys().collect();
        assert_eq!(kernels, [FILL, "triton_mm_2"].into());
        // Of a list that was cut during the benchmarks, no candidate can be told to be unused.
        let cut = super::kernels(&launches[..300], &[]);
        assert_eq!(cut.into_keys().collect::<Vec<_>>(), [FILL]);
    }

    #[test]
    fn kernels_of_xlas_autotuning_are_known_by_their_names() {
        let launches = [
            launch("stream_executor::gpu::<unnamed>::DelayKernel(volatile int *)", 1),
            launch("gemm_fusion_dot", 128),
        ];
        assert_eq!(
            kernels(&launches, &[]).into_values().collect::<Vec<_>>(),
            ["autotuning of XLA"]
        );
    }

    /// The order in which XLA tuned the products of a training step: a candidate is launched,
    /// checked, delayed and timed.
    #[test]
    fn candidates_around_a_delay_of_xla_are_benchmarked() {
        const ZONE: &str = "stream_executor::gpu::RedzoneAllocatorKernelImpl(unsigned char *)";
        const DELAY: &str = "stream_executor::gpu::<unnamed>::DelayKernel(volatile int *)";
        const COMPARE: &str = "void stream_executor::gpu::xla_fp_comparison<float>(T1 *, T1 *)";
        let mut order = vec!["loop_xor_fusion", "loop_multiply_fusion"];
        for candidate in ["gemm_fusion_dot", "gemm_fusion_dot", "sm90_xmma_gemm"] {
            order
                .extend([ZONE, ZONE, candidate, ZONE, ZONE, DELAY, candidate, ZONE, ZONE, COMPARE]);
        }
        let last = order.len();
        order.extend(["wrapped_subtract", ZONE, ZONE, "gemm_fusion_dot_1", ZONE, DELAY]);
        order.extend(["gemm_fusion_dot_1", ZONE, COMPARE]);
        let tuned = order.len();
        order.extend(["sm90_xmma_gemm", "wrapped_subtract"]);
        let mut launches: Vec<Launch> = order.iter().map(|name| launch(name, 64)).collect();
        (0..).zip(&mut launches).for_each(|(id, launch)| launch.id = id);
        let inside = benchmarked_launches(&launches);
        let outside: Vec<usize> =
            (0..order.len()).filter(|at| !inside.contains_key(&(*at as u32))).collect();
        assert_eq!(outside, [0, 1, last, tuned, tuned + 1]);
        let of_tuning = |launches: &[Launch], sums: &[KernelSum]| {
            let kernels = super::kernels(launches, sums);
            let candidates =
                kernels.into_iter().filter(|(_, what)| what.starts_with("a candidate"));
            let mut names: Vec<String> = candidates.map(|(name, _)| name.to_owned()).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(of_tuning(&launches, &[]), ["gemm_fusion_dot", "gemm_fusion_dot_1"]);
        // If the program continues with CUDA graphs, the sums show that no launch is missing.
        let listed = &launches[..tuned];
        assert!(of_tuning(listed, &[]).is_empty());
        let sum = |kernel: &str, launches| KernelSum {
            kernel: kernel.to_owned(),
            launches,
            ..KernelSum::default()
        };
        let sums = [sum("gemm_fusion_dot", 4), sum("sm90_xmma_gemm", 12)];
        assert_eq!(of_tuning(listed, &sums), ["gemm_fusion_dot"]);
    }
}
