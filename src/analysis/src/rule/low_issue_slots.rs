//! Most issue slots are unused, and no single stall reason dominates.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{ISSUE_ACTIVE, WARPS_ELIGIBLE};
use crate::threshold::{ISSUE_SLOTS, Limits, STALL_SHARE};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "low_issue_slots",
    category: "latency",
    kind: VerdictRole::Symptom,
    gain: GainLimit::Score,
    plural_predicate: "leave most issue slots unused",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (id, issue) = launch.first_number(ISSUE_ACTIVE)?;
    let limit = limits.threshold(&ISSUE_SLOTS);
    if issue >= limit.value {
        return None;
    }
    // The `stalled` rule reports a dominant reason.
    let reasons = launch.stalls.iter().filter(|stall| stall.reason != "not_selected");
    let largest = reasons.filter_map(|stall| stall.percent).fold(0.0, f64::max);
    if largest / 100.0 > limits.threshold(&STALL_SHARE).value {
        return None;
    }
    let mut evidence = vec![limit.evidence(id, issue, "inst/cycle")];
    let mut text = format!("a scheduler issues {issue:.2} instructions per cycle of at most 1");
    if let Some((id, eligible)) = launch.first_number(WARPS_ELIGIBLE) {
        evidence.push(Evidence::number(id, eligible, "warp"));
        text.push_str(&format!("; {eligible:.2} of its warps are eligible on average"));
    }
    Some(Conclusion {
        // Scored low, because it is a symptom of the stalls.
        score: (1.0 - issue).clamp(0.0, 1.0) / 4.0,
        confidence: Confidence::Medium,
        evidence,
        text,
        hint: "look at the stall reasons; more independent instructions per thread and more warps \
               fill the slots"
            .to_owned(),
    })
}
