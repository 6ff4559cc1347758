//! The rules: each checks one launch and decides whether its verdict holds.
//!
//! A rule returns `None` if its verdict does not hold or if the launch lacks the metrics to decide.
//! Scores of all rules are comparable: the estimated share of the launch's time that the verdict
//! concerns.

use super::roofs::WorkLeft;
use super::threshold::Limits;
use rgpu_model::{Evidence, Launch};

mod bank_conflicts;
mod blocks;
mod compute_bound;
mod constant_cache;
mod contended_atomics;
mod divergence;
mod fp32_gemm;
mod fp64_trickle;
mod imbalance;
mod instruction_cache;
mod l2_thrash;
mod latency_bound;
mod launch_bound;
mod legacy_mma;
mod local_memory;
mod low_issue_slots;
mod low_tensor_use;
mod matrix;
mod memory_bound;
mod no_tma;
mod occupancy_limited;
mod occupancy_not_reached;
mod one_cta_mma;
mod small_grid;
mod spills;
mod stalled;
mod tail;
mod tensor_bound;
mod tmem_bound;
mod uncoalesced;
mod uncoalesced_atomics;

pub(super) use tensor_bound::AT_PEAK_HINT;

/// A rule that turns a launch's metrics into findings.
pub struct Rule {
    /// The verdict's id, as in reports.
    pub id: &'static str,
    /// The category of its findings.
    pub category: &'static str,
    /// Whether the verdict names a bound, a cause or a symptom.
    pub kind: VerdictRole,
    /// How much of a launch's time acting on the verdict could give back.
    pub gain: GainLimit,
    /// The verdict as the predicate of a sentence about several launches.
    pub plural_predicate: &'static str,
    /// Applies the rule to a launch, with the thresholds that hold for that launch.
    pub apply: fn(&Launch, &Limits<'_>) -> Option<Conclusion>,
}

/// How a verdict relates to a launch's run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictRole {
    /// The limit that the launch reaches.
    Bound,
    /// A property of the code that leads to the bound, and that can be fixed.
    Cause,
    /// An effect of something else. It is the primary verdict only if no other verdict holds.
    Symptom,
}

/// How much of a launch's time acting on a verdict could give back, at most.
#[derive(Clone, Copy, Debug)]
pub enum GainLimit {
    /// The distance of the busiest unit from its peak.
    Headroom,
    /// The score of the verdict, but not more than that headroom.
    Score,
    /// The score of the verdict: there is less work to do afterwards, also for the busiest unit.
    Work,
    /// What is left of the work of some units decides: then the way to the next roof, else the score
    /// of a cause and the headroom of a bound.
    Relief(fn(&Launch) -> Vec<WorkLeft>),
    /// The whole time of the launch.
    Everything,
}

/// The result of a rule whose verdict holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// How strongly the verdict holds, 0 to 1.
    pub score: f64,
    /// How reliable the evidence is.
    pub confidence: Confidence,
    /// The numbers that the verdict is based on, the deciding one first.
    pub evidence: Vec<Evidence>,
    /// The finding in one sentence, with its number.
    pub text: String,
    /// The next concrete step.
    pub hint: String,
}

/// How reliable the evidence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// Exact counters with no other explanation.
    High,
    /// Counters that usually have this explanation.
    Medium,
    /// Only an indication.
    Low,
}

/// Every rule that profiles are checked with.
pub static RULES: &[Rule] = &[
    memory_bound::RULE,
    compute_bound::RULE,
    tensor_bound::RULE,
    latency_bound::RULE,
    launch_bound::RULE,
    small_grid::RULE,
    tail::RULE,
    occupancy_limited::RULE,
    occupancy_not_reached::RULE,
    stalled::RULE,
    bank_conflicts::RULE,
    uncoalesced::RULE,
    spills::RULE,
    divergence::RULE,
    imbalance::RULE,
    local_memory::RULE,
    uncoalesced_atomics::RULE,
    contended_atomics::RULE,
    constant_cache::RULE,
    l2_thrash::RULE,
    fp32_gemm::RULE,
    low_tensor_use::RULE,
    legacy_mma::RULE,
    no_tma::RULE,
    tmem_bound::RULE,
    one_cta_mma::RULE,
    fp64_trickle::RULE,
    instruction_cache::RULE,
    low_issue_slots::RULE,
];
