//! Most issue slots go by unused, and no single reason stands out.

use super::{Conclusion, Confidence, Kind, Rule};
use crate::analysis::concept::{ISSUE_ACTIVE, WARPS_ELIGIBLE};
use crate::analysis::threshold::{ISSUE_SLOTS, Limits, STALL_SHARE};
use crate::model::Launch;

pub(super) const RULE: Rule =
    Rule { id: "low_issue_slots", category: "latency", kind: Kind::Symptom, apply };

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (id, issue) = launch.first_number(ISSUE_ACTIVE)?;
    let limit = limits.of(&ISSUE_SLOTS);
    if issue >= limit.value {
        return None;
    }
    // One reason that stands out is told by its own rule, with what it means.
    let reasons = launch.stalls.iter().filter(|stall| stall.reason != "not_selected");
    let most = reasons.filter_map(|stall| stall.percent).fold(0.0, f64::max);
    if most / 100.0 > limits.of(&STALL_SHARE).value {
        return None;
    }
    let mut evidence = vec![limit.evidence(id, issue, "inst/cycle")];
    let mut text =
        format!("a scheduler issues {issue:.2} instructions a cycle of the one it could");
    if let Some((id, eligible)) = launch.first_number(WARPS_ELIGIBLE) {
        evidence.push(limit.evidence(id, eligible, "warp"));
        text.push_str(&format!("; {eligible:.2} of its warps are ready on average"));
    }
    Some(Conclusion {
        // A symptom of whatever the warps wait for.
        score: (1.0 - issue).clamp(0.0, 1.0) / 4.0,
        confidence: Confidence::Medium,
        evidence,
        text,
        hint: "see what the warps wait for (the stall reasons); more independent instructions a \
               thread and more warps fill the slots"
            .to_owned(),
    })
}
