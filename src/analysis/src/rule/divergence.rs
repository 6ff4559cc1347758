//! Divergence: lanes of a warp take different branches.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::roofs::{PER_INSTRUCTION, WorkLeft};
use crate::threshold::{ACTIVE_THREADS, Limits};
use rgpu_model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "divergence",
    category: "compute",
    kind: VerdictRole::Cause,
    gain: GainLimit::Relief(work_left),
    plural_predicate: "diverge within their warps",
    apply,
};

const ACTIVE: &[&str] = &[
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
];
const WARP: f64 = 32.0;

/// Full warps execute fewer instructions for the same work.
fn work_left(launch: &Launch) -> Vec<WorkLeft> {
    let Some((_, active)) = launch.first_number(ACTIVE) else { return Vec::new() };
    PER_INSTRUCTION.iter().map(|unit| (*unit, [active / WARP; 2])).collect()
}

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (id, active) = launch.first_number(ACTIVE)?;
    if active >= limits.threshold(&ACTIVE_THREADS).value {
        return None;
    }
    Some(Conclusion {
        score: 1.0 - active / WARP,
        confidence: Confidence::High,
        evidence: vec![limits.threshold(&ACTIVE_THREADS).evidence(id, active, "thread")],
        text: format!("{active:.1} of 32 lanes do work in an average instruction"),
        hint: "sort or bin the work so that the lanes of a warp take the same branches and loop \
               counts, or give a whole warp to one item"
            .to_owned(),
    })
}
