//! Mixture of experts: which experts a batch touches, and the grouped products over them.

use super::gemm::group_work;
use super::{Context, Gemm, KernelTime, OpKind};
use crate::Dtype;

/// The routed experts of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// Number of routed experts.
    pub experts: f64,
    /// Number of routed experts that each token uses.
    pub chosen: f64,
    /// The hidden size, in elements.
    pub hidden: f64,
    /// The intermediate size of one expert on one GPU, in elements.
    pub inner: f64,
    /// Number of GPUs that share the experts (expert parallelism).
    pub expert_ranks: f64,
    /// The number format of activations.
    pub a: Dtype,
    /// The number format of weights.
    pub b: Dtype,
}

impl Experts {
    /// Number of experts that `tokens` tokens touch, if each expert is equally likely:
    /// E·(1 − (1 − k/E)^tokens).
    #[must_use]
    pub fn touched(&self, tokens: f64) -> f64 {
        self.experts * (1.0 - (1.0 - self.chosen / self.experts).powf(tokens))
    }

    /// The bytes of one expert's three matrices.
    #[must_use]
    pub fn expert_bytes(&self) -> f64 {
        self.b.bytes(2.0 * self.inner, self.hidden) + self.b.bytes(self.hidden, self.inner)
    }

    /// Rows that one GPU computes if the experts are evenly loaded.
    #[must_use]
    pub fn mean_rows(&self, tokens: f64) -> f64 {
        tokens * self.chosen / self.expert_ranks
    }

    /// Rows of the GPU with most: the mean, and √(2·ln ranks) standard deviations of a binomial.
    #[must_use]
    pub fn most_rows(&self, tokens: f64) -> f64 {
        let mean = self.mean_rows(tokens);
        let share = 1.0 / self.expert_ranks;
        let deviation = (mean * (1.0 - share)).sqrt();
        let most = tokens * self.chosen.min(self.experts * share);
        (mean + deviation * (2.0 * self.expert_ranks.ln()).sqrt()).min(most)
    }

    /// Both grouped products: gate and up together, then down. The bound is for evenly loaded
    /// GPUs, the time is that of the GPU with most rows.
    #[must_use]
    pub fn products(&self, tokens: f64, context: &Context<'_>) -> [KernelTime; 2] {
        let touched = (self.touched(tokens) / self.expert_ranks).max(f64::MIN_POSITIVE);
        let shapes = [(2.0 * self.inner, self.hidden), (self.hidden, self.inner)];
        let work = |rows: f64, n: f64, k: f64| {
            let m = rows / touched;
            let gemm = Gemm { m, n, k, batch: 1.0, a: self.a, b: self.b, c: Dtype::Bf16 };
            group_work(&[gemm], touched, context, OpKind::GroupedGemm)
        };
        shapes.map(|(n, k)| {
            let mean = work(self.mean_rows(tokens), n, k);
            if self.expert_ranks <= 1.0 {
                return mean.time(context);
            }
            let bound = mean.time(context);
            KernelTime {
                bound_compute_ns: bound.bound_compute_ns,
                bound_memory_ns: bound.bound_memory_ns,
                ..work(self.most_rows(tokens), n, k).time(context)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::find;

    const MIXTRAL: Experts = Experts {
        experts: 8.0,
        chosen: 2.0,
        hidden: 4096.0,
        inner: 14336.0,
        expert_ranks: 1.0,
        a: Dtype::Bf16,
        b: Dtype::Bf16,
    };

    #[test]
    fn one_token_touches_the_experts_it_chose_and_many_touch_all() {
        assert!((MIXTRAL.touched(1.0) - 2.0).abs() < 1e-12);
        // Two tokens: 8·(1 − 0.75²) = 3.5.
        assert!((MIXTRAL.touched(2.0) - 3.5).abs() < 1e-12);
        assert!((MIXTRAL.touched(1e6) - 8.0).abs() < 1e-12);
    }

    #[test]
    fn one_token_reads_two_experts() {
        let gpu = find("h200").unwrap().gpu().unwrap();
        let [up, down] = MIXTRAL.products(1.0, &Context::new(&gpu));
        let read = up.work.bytes + down.work.bytes;
        // 2 · 3 · 4096 · 14336 · 2 B = 704.6 MB of weights, and some activations.
        let weights = 2.0 * MIXTRAL.expert_bytes();
        assert!(read > weights && read < 1.001 * weights, "{read} {weights}");
    }

    #[test]
    fn the_fullest_gpu_has_more_than_the_mean_and_no_more_than_all() {
        let shared = Experts { expert_ranks: 4.0, ..MIXTRAL };
        for tokens in [1.0, 16.0, 4096.0] {
            let (mean, most) = (shared.mean_rows(tokens), shared.most_rows(tokens));
            assert!(most > mean && most <= tokens * 2.0, "{tokens}: {mean} {most}");
        }
        assert_eq!(MIXTRAL.most_rows(16.0), MIXTRAL.mean_rows(16.0));
    }
}
