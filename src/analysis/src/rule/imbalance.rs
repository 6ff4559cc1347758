//! Imbalance: some SMs are active longer than others.

use super::blocks::leave_sms_empty;
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::threshold::{IMBALANCE, Limits};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "imbalance",
    category: "occupancy",
    kind: VerdictRole::Cause,
    gain: GainLimit::Score,
    plural_predicate: "keep some SMs busy for longer than others",
    apply,
};

const MAX: &str = "sm__cycles_active.max";
const AVERAGE: &str = "sm__cycles_active.avg";
const ELAPSED: &str = "sm__cycles_elapsed.max";

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (max, average) = (launch.number(MAX)?, launch.number(AVERAGE)?);
    let elapsed = launch.number(ELAPSED).unwrap_or(max).max(max);
    if elapsed <= 0.0 || leave_sms_empty(launch) {
        return None;
    }
    // The share of time that would be saved if all SMs were active equally long.
    let lost = (max - average) / elapsed;
    if lost < limits.threshold(&IMBALANCE).value {
        return None;
    }
    Some(Conclusion {
        score: lost.min(1.0),
        confidence: Confidence::Medium,
        evidence: vec![
            limits.threshold(&IMBALANCE).share_evidence(
                "sm.imbalance",
                lost,
                "of the kernel's time",
            ),
            Evidence::number(MAX, max, "cycle"),
            Evidence::number(AVERAGE, average, "cycle"),
        ],
        text: format!(
            "the busiest SM is active longer than the average SM by {:.0} % of the kernel's time",
            lost * 100.0
        ),
        hint: "spread the work evenly over blocks, or let blocks fetch work from a counter"
            .to_owned(),
    })
}
