//! Finds kernels that serve only a compiler's tuning, not the program: set-up that happens once.
//!
//! XLA's autotuning has kernels of its own. Triton's benchmarks fill a buffer as large as the L2 before
//! each launch of a candidate, with torch's fill of integers.

use std::collections::{HashMap, HashSet};

use super::known_kernel::{Author, author, is_autotuning};
use crate::model::Launch;

/// Fewer fills may be the program's own.
const MIN_FLUSHES: usize = 100;
/// Nanoseconds. A shorter fill does not write as much as the L2 holds.
const MIN_FLUSH_NS: f64 = 5000.0;

/// The kernels of tuning among these launches, which are in the order of their start, each with what
/// it does.
pub(crate) fn kernels(launches: &[Launch]) -> HashMap<&str, &'static str> {
    let xla = launches.iter().filter(|launch| is_autotuning(&launch.kernel));
    let xla = xla.map(|launch| (launch.kernel.as_str(), "autotuning of XLA"));
    let order: Vec<_> =
        launches.iter().map(|l| (l.kernel.as_str(), l.duration_ns, l.grid)).collect();
    let flushes = flushes(&order).into_iter();
    xla.chain(flushes.map(|fill| (fill, "flushes the L2 for Triton's benchmarks"))).collect()
}

/// The fills that flush the L2 for Triton's benchmarks, of kernels in the order of their start: name,
/// nanoseconds and grid of each.
pub(super) fn flushes<'a>(order: &[(&'a str, Option<f64>, [u32; 3])]) -> HashSet<&'a str> {
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
    fn kernels_of_xlas_autotuning_are_known_by_their_names() {
        let launches = [
            launch("stream_executor::gpu::<unnamed>::DelayKernel(volatile int *)", 1),
            launch("gemm_fusion_dot", 128),
        ];
        assert_eq!(kernels(&launches).into_values().collect::<Vec<_>>(), ["autotuning of XLA"]);
    }
}
