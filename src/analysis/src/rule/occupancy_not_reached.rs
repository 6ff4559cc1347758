//! Achieved occupancy is well below theoretical occupancy.

use super::blocks::leave_sms_empty;
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{OCCUPANCY_ACHIEVED, OCCUPANCY_THEORETICAL};
use crate::threshold::{Limits, OCCUPANCY_GAP};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "occupancy_not_reached",
    category: "occupancy",
    kind: VerdictRole::Symptom,
    gain: GainLimit::Score,
    plural_predicate: "do not reach their theoretical occupancy",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (theoretical_id, theoretical) = launch.first_number(OCCUPANCY_THEORETICAL)?;
    let (achieved_id, achieved) = launch.first_number(OCCUPANCY_ACHIEVED)?;
    let gap = theoretical - achieved;
    if gap <= limits.threshold(&OCCUPANCY_GAP).value || leave_sms_empty(launch) {
        return None;
    }
    Some(Conclusion {
        score: gap / 100.0 / 2.0,
        confidence: Confidence::Low,
        evidence: vec![
            limits.threshold(&OCCUPANCY_GAP).evidence("occupancy.gap", gap, "%"),
            Evidence::number(achieved_id, achieved, "%"),
            Evidence::number(theoretical_id, theoretical, "%"),
        ],
        text: format!(
            "achieved occupancy is {achieved:.0} %, theoretical occupancy {theoretical:.0} %"
        ),
        hint: "even out the blocks' work, or launch blocks that live longer: short blocks spend \
               their time starting"
            .to_owned(),
    })
}
