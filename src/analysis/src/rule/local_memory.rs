//! Local memory without spills: per-thread arrays that are not held in registers.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{INSTRUCTIONS, LOCAL, SPILLING};
use crate::threshold::{LOCAL_MEMORY, Limits};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "local_memory",
    category: "memory",
    kind: VerdictRole::Cause,
    gain: GainLimit::Work,
    plural_predicate: "access local memory",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (id, local) = LOCAL.iter().find_map(|(loads, stores)| {
        Some((*loads, launch.number(loads)? + launch.number(stores)?))
    })?;
    let (all_id, all) = launch.first_number(INSTRUCTIONS).filter(|(_, all)| *all > 0.0)?;
    // The `spills` rule reports spills.
    let spilled = launch.number(SPILLING).unwrap_or_default();
    let share = (local - spilled) / all;
    let limit = limits.threshold(&LOCAL_MEMORY);
    if share <= limit.value {
        return None;
    }
    Some(Conclusion {
        score: share.min(1.0),
        confidence: if launch.number(SPILLING).is_some() {
            Confidence::High
        } else {
            Confidence::Medium
        },
        evidence: vec![
            limit.share_evidence("local.share", share, "of the instructions"),
            Evidence::number(id, local, "inst"),
            Evidence::number(all_id, all, "inst"),
        ],
        text: format!("{:.1} % of the executed instructions go to local memory", share * 100.0),
        hint:
            "index arrays of a thread with constants only (unroll the loops fully), or keep them \
               in shared memory"
                .to_owned(),
    })
}
