//! Too few blocks to fill the GPU once.

use super::blocks::blocks;
use super::{Conclusion, Confidence, Kind, Rule};
use crate::analysis::concept::WAVES;
use crate::analysis::threshold::{Limits, TAIL_LOST, WAVES_FULL};
use crate::model::Launch;

pub(super) const RULE: Rule =
    Rule { id: "small_grid", category: "occupancy", kind: Kind::Bound, apply };

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (id, waves) = launch.first_number(WAVES)?;
    // A few empty places cost nothing that could be won back.
    if waves > limits.of(&WAVES_FULL).value - limits.of(&TAIL_LOST).value {
        return None;
    }
    let filled = match waves * 100.0 {
        percent if percent < 1.0 => "less than 1 %".to_owned(),
        percent => format!("{percent:.0} %"),
    };
    let (subject, fill) = match blocks(launch) {
        Some(1) => ("1 block".to_owned(), "fills"),
        Some(blocks) => (format!("{blocks} blocks"), "fill"),
        None => ("the blocks".to_owned(), "fill"),
    };
    Some(Conclusion {
        score: 1.0 - waves.max(0.0),
        confidence: Confidence::High,
        evidence: vec![limits.of(&WAVES_FULL).evidence(id, waves, "")],
        text: format!("{subject} {fill} {filled} of the GPU's places for blocks"),
        hint: "split the work into more or smaller blocks (split-k, several blocks a row), or run \
               other kernels beside this one"
            .to_owned(),
    })
}
