//! The rules: each looks at one launch and says whether its verdict holds.
//!
//! A rule answers `None` both where its verdict does not hold and where the launch lacks the
//! metrics to say so. Scores are comparable: the share of the launch's time that the verdict is
//! about, as far as the metrics tell.

use super::threshold::Limits;
use crate::model::{Evidence, Launch};

mod bank_conflicts;
mod blocks;
mod compute_bound;
mod divergence;
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
mod tmem_bound;
mod uncoalesced;
mod uncoalesced_atomics;

/// One rule.
pub struct Rule {
    /// The verdict's id.
    pub id: &'static str,
    /// The finding's category.
    pub category: &'static str,
    /// What the verdict is to the launch.
    pub kind: Kind,
    /// What the rule says of a launch, by the thresholds that hold for it.
    pub apply: fn(&Launch, &Limits<'_>) -> Option<Conclusion>,
}

/// What a verdict is to a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What the launch runs against.
    Bound,
    /// Why it does, where the reason is the code's: something to mend.
    Cause,
    /// How it shows. It is the primary verdict only where nothing else holds.
    Symptom,
}

/// What a rule concludes where its verdict holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// How strongly it holds, 0 to 1.
    pub score: f64,
    /// How much the evidence can carry.
    pub confidence: Confidence,
    /// The numbers it rests on, the deciding one first.
    pub evidence: Vec<Evidence>,
    /// What was found, with its number.
    pub text: String,
    /// The next concrete step.
    pub hint: String,
}

/// How much the evidence can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// Exact counters that mean just this.
    High,
    /// Counters that usually mean this.
    Medium,
    /// A hint.
    Low,
}

/// All rules.
pub static RULES: &[Rule] = &[
    memory_bound::RULE,
    compute_bound::RULE,
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
    l2_thrash::RULE,
    low_tensor_use::RULE,
    legacy_mma::RULE,
    no_tma::RULE,
    tmem_bound::RULE,
    one_cta_mma::RULE,
    fp64_trickle::RULE,
    instruction_cache::RULE,
    low_issue_slots::RULE,
];
