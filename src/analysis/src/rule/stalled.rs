//! One stall reason dominates.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::ISSUE_ACTIVE;
use crate::threshold::{ISSUE_ACTIVE as ISSUE, Limits, STALL_SHARE};
use rgpu_model::Launch;
use rgpu_model::stall_meaning::awaited;

pub(super) const RULE: Rule = Rule {
    id: "stalled",
    category: "latency",
    kind: VerdictRole::Symptom,
    gain: GainLimit::Score,
    plural_predicate: "stall most of the time, for one reason",
    apply,
};

/// Stall reason and hint.
const HINTS: &[(&str, &str)] = &[
    ("barrier", "even out the work before barriers, use smaller blocks, or synchronise less"),
    ("branch_resolving", "use fewer jumps: unroll, or compute both sides"),
    ("dispatch_stall", "look at the hot spots; this is rare"),
    ("drain", "store earlier, and coalesced"),
    ("gmma", "keep more stages in flight, and let a second warpgroup compute meanwhile"),
    ("imc_miss", "use fewer constants in one place, so that they stay in the cache"),
    ("lg_throttle", "issue fewer and wider accesses; look for spills"),
    (
        "long_scoreboard",
        "have more loads in flight (unroll, `cp.async`, TMA), or reuse data in shared memory",
    ),
    ("math_pipe_throttle", "mix in other work, or use a faster pipe"),
    ("membar", "fence less often or in a narrower scope"),
    ("mio_throttle", "issue fewer and wider shared-memory accesses; keep more in registers"),
    ("no_instruction", "shrink the loop, or unroll less"),
    (
        "short_scoreboard",
        "remove bank conflicts; use cheaper functions; index constants alike in all lanes of a warp",
    ),
    ("sleeping", "poll less often"),
    ("tex_throttle", "issue fewer texture instructions"),
    ("wait", "have more independent instructions a thread"),
];

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (issue_id, issue) = launch.first_number(ISSUE_ACTIVE)?;
    // `not_selected` is no loss: another warp was issued.
    let stall = launch.stalls.iter().find(|stall| stall.reason != "not_selected")?;
    let share = stall.percent? / 100.0;
    if issue >= limits.threshold(&ISSUE).value || share <= limits.threshold(&STALL_SHARE).value {
        return None;
    }
    let what = awaited(&stall.reason).unwrap_or(&stall.reason);
    let hint = HINTS.iter().find(|row| row.0 == stall.reason).map_or("", |row| row.1);
    let metric =
        format!("smsp__average_warps_issue_stalled_{}_per_issue_active.ratio", stall.reason);
    Some(Conclusion {
        score: share * (1.0 - issue),
        confidence: Confidence::High,
        evidence: vec![
            limits.threshold(&STALL_SHARE).share_evidence(
                &metric,
                share,
                "of the cycles between two instructions",
            ),
            limits.threshold(&ISSUE).evidence(issue_id, issue, "inst/cycle"),
        ],
        text: format!(
            "warps spend {:.0} % of the time between two instructions waiting for {what} (`{}`)",
            share * 100.0,
            stall.reason
        ),
        hint: hint.to_owned(),
    })
}
