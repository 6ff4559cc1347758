//! Finds kernels and launches that serve only a compiler's tuning, not the program: set-up that
//! happens once.
//!
//! XLA's autotuning has kernels of its own. Triton's benchmarks, also those of `torch.compile`, fill a
//! buffer as large as the L2 before each timed launch of a candidate, with torch's fill of integers. A
//! candidate also runs a few times without fills, before it is timed.

use std::collections::{HashMap, HashSet};

use super::known_kernel::{Author, author, is_autotuning};
use crate::model::Launch;

/// Fewer fills may be the program's own.
const MIN_FLUSHES: usize = 100;
/// Nanoseconds. A shorter fill does not write as much as the L2 holds.
const MIN_FLUSH_NS: f64 = 5000.0;
/// Kernels of a candidate: a product with split sums has two, and the next candidate's first launch
/// may follow. The program itself runs more kernels between two benchmarks.
const MAX_CANDIDATE_KERNELS: usize = 3;

/// A kernel in the order of starts: its name, nanoseconds and grid.
pub(super) type OrderedKernel<'a> = (&'a str, Option<f64>, [u32; 3]);

/// The kernels of tuning among these launches, which are in the order of their start, each with what
/// it does.
pub(crate) fn kernels(launches: &[Launch]) -> HashMap<&str, &'static str> {
    let xla = launches.iter().filter(|launch| is_autotuning(&launch.kernel));
    let xla = xla.map(|launch| (launch.kernel.as_str(), "autotuning of XLA"));
    let order = order(launches);
    let flushes = flushes(&order);
    let benchmarked = benchmarked(&order, &flushes);
    let named = |at: usize| (order[at].0, "a candidate of Triton's autotuning that was not chosen");
    // The program goes on after the last benchmark, unless the list was cut before.
    let after = benchmarked.iter().rposition(|inside| *inside).map_or(0, |last| last + 1);
    let used: HashSet<&str> =
        order.iter().zip(&benchmarked).filter(|(_, inside)| !**inside).map(|(k, _)| k.0).collect();
    let all = if after < order.len() { after } else { 0 };
    let candidates = (0..all).filter(|at| benchmarked[*at] && !used.contains(order[*at].0));
    let flushes = flushes.iter().map(|fill| (*fill, "flushes the L2 for Triton's benchmarks"));
    candidates.map(named).chain(xla).chain(flushes).collect()
}

/// Ids of the launches that Triton's benchmarks made, of launches in the order of their start.
pub(super) fn benchmarked_launches(launches: &[Launch]) -> HashSet<u32> {
    let order = order(launches);
    let benchmarked = benchmarked(&order, &flushes(&order));
    let inside = launches.iter().zip(benchmarked).filter(|(_, inside)| *inside);
    inside.map(|(launch, _)| launch.id).collect()
}

fn order(launches: &[Launch]) -> Vec<OrderedKernel<'_>> {
    launches.iter().map(|l| (l.kernel.as_str(), l.duration_ns, l.grid)).collect()
}

/// For each kernel whether it belongs to a benchmark of Triton, given the fills that flush the L2:
/// it lies between two fills with few other kernels, or directly after the last one.
pub(super) fn benchmarked(order: &[OrderedKernel<'_>], flushes: &HashSet<&str>) -> Vec<bool> {
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
        candidates >= MIN_FLUSHES && of_one_size && candidates * 4 >= next.len() * 3
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
        assert_eq!(kernels(&flushed).into_keys().collect::<Vec<_>>(), [FILL]);
        assert!(kernels(&flushed[..100]).is_empty(), "too few");
        assert!(kernels(&pairs("triton_poi_fused_gelu_view_6", |n| n + 1)).is_empty());
        assert!(kernels(&pairs("void at::native::add(int)", |_| 15_360)).is_empty());
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
            let (inside, outside): (Vec<_>, Vec<_>) = of_it.partition(|l| inside.contains(&l.id));
            (inside.len(), outside.len())
        };
        // The first candidate's launches before the first fill cannot be told from the program's.
        assert_eq!(of("triton_mm_0"), (50, 10));
        assert_eq!(of("triton_mm_1"), (60, 21));
        assert_eq!(of("triton_mm_2"), (60, 0));
        assert_eq!(of("triton_red"), (50, 10));
        assert_eq!(of("nvjet_a"), (0, 21));
        let kernels: HashSet<&str> = kernels(&launches).into_keys().collect();
        assert_eq!(kernels, [FILL, "triton_mm_2"].into());
        // Of a list that was cut during the benchmarks, no candidate can be told to be unused.
        let cut = super::kernels(&launches[..300]);
        assert_eq!(cut.into_keys().collect::<Vec<_>>(), [FILL]);
    }

    #[test]
    fn kernels_of_xlas_autotuning_are_known_by_their_names() {
        let launches = [
            launch("stream_executor::gpu::<unnamed>::DelayKernel(volatile int *)", 1),
            launch("gemm_fusion_dot", 128),
        ];
        assert_eq!(kernels(&launches).into_values().collect::<Vec<_>>(), ["autotuning of XLA"]);
    }
}
