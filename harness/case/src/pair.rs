//! What interleaved calls of two Cases gave.

use serde::{Deserialize, Serialize};

/// One data set of two Cases, called in rounds of four: a, b, b, a and b, a, a, b in turn. A drift of
/// the clocks that is steady over a round weighs on both alike, so each round's ratio is free of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairedTiming {
    /// Name of the other Case's kernel.
    pub against: String,
    /// Rounds that count: those of which no sample was discarded.
    pub rounds: usize,
    /// How many times as fast the other Case is: the median over the rounds of
    /// `sqrt(a1 a2 / (b1 b2))`.
    pub speedup: f64,
    /// Order-statistic interval of that median at 95 % or more.
    pub ci95: [f64; 2],
    /// Whether the interval reached the asked width before the limits.
    pub converged: bool,
}
