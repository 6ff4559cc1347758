//! Result of measuring two kernels with interleaved calls.

use serde::{Deserialize, Serialize};

/// One case of two kernels, called in rounds of four: alternately a, b, b, a and b, a, a, b. A
/// drift of the clocks that is steady over a round affects both alike, so it cancels in the round's
/// ratio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairedTiming {
    /// Name of the other kernel.
    pub other_kernel: String,
    /// Number of rounds counted: those without a discarded sample.
    pub rounds: usize,
    /// Speed of the other kernel relative to this one: the median over the rounds of `sqrt(a1 a2 /
    /// (b1 b2))`.
    pub speedup_of_other: f64,
    /// Interval of that median from order statistics, at 95 % or more.
    pub ci95: [f64; 2],
    /// Whether the interval became narrow enough before a limit ended sampling.
    pub converged: bool,
}
