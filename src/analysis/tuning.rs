//! Finds kernels that serve only a compiler's tuning, not the program: set-up that happens once.
//!
//! XLA's autotuning has kernels of its own. Triton's benchmarks fill a buffer as large as the L2 before
//! each launch of a candidate, with torch's fill of integers.

use std::collections::HashMap;

use super::known_kernel::{Author, author, is_autotuning};
use crate::model::Launch;

/// Fewer fills may be the program's own.
const MIN_FLUSHES: usize = 100;

/// The kernels of tuning among these launches, which are in the order of their start, each with what
/// it does.
pub(crate) fn kernels(launches: &[Launch]) -> HashMap<&str, &'static str> {
    let mut all: HashMap<&str, &'static str> = HashMap::new();
    let mut fills: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, launch) in launches.iter().enumerate() {
        if is_autotuning(&launch.kernel) {
            all.insert(&launch.kernel, "autotuning of XLA");
        } else if launch.kernel.contains("FillFunctor<int>") {
            fills.entry(&launch.kernel).or_default().push(at);
        }
    }
    for (kernel, at) in fills {
        let of_one_size = at.iter().all(|fill| launches[*fill].grid == launches[at[0]].grid);
        // Some flushes are timed alone, one after the other.
        let next = at.iter().filter_map(|fill| launches.get(fill + 1));
        let next: Vec<&Launch> = next.filter(|next| next.kernel != kernel).collect();
        let candidates = next.iter().filter(|next| author(&next.kernel) == Author::User).count();
        if candidates >= MIN_FLUSHES && of_one_size && candidates * 4 >= next.len() * 3 {
            all.insert(kernel, "flushes the L2 for Triton's benchmarks");
        }
    }
    all
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
