//! Tail effect: the last wave of blocks leaves most of the GPU idle.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::WAVES;
use crate::threshold::{Limits, TAIL_LOST, TAIL_SHARE};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "tail",
    category: "occupancy",
    kind: VerdictRole::Cause,
    gain: GainLimit::Score,
    plural_predicate: "lose time in their last wave of blocks",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (id, waves) = launch.first_number(WAVES)?;
    let (whole, partial) = (waves.floor(), waves.fract());
    // The last wave takes as long as a full wave but does only `partial` of its work.
    let share = 1.0 / (1.0 + whole);
    let lost = share * (1.0 - partial);
    let partly = partial > 0.0 && lost >= limits.threshold(&TAIL_LOST).value;
    if whole < 1.0 || share < limits.threshold(&TAIL_SHARE).value || !partly {
        return None;
    }
    Some(Conclusion {
        score: lost,
        confidence: Confidence::Medium,
        evidence: vec![
            limits.threshold(&TAIL_LOST).share_evidence("waves.lost", lost, "of the kernel's time"),
            Evidence::number(id, waves, ""),
        ],
        text: format!(
            "{waves:.2} waves of blocks: the last one is {:.0} % full, up to {:.0} % of the time \
             is lost",
            partial * 100.0,
            lost * 100.0
        ),
        hint: "choose block and grid so that the waves come out whole, or let a grid of one wave \
               loop over the work"
            .to_owned(),
    })
}
