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
    // A nearly full wave leaves nothing to win back.
    if waves > limits.of(&WAVES_FULL).value - limits.of(&TAIL_LOST).value {
        return None;
    }
    let waves_text = match waves {
        waves if waves < 0.01 => "less than 0.01 waves".to_owned(),
        waves => format!("{waves:.2} waves"),
    };
    let grid = match blocks(launch) {
        Some(1) => "the grid of 1 block".to_owned(),
        Some(blocks) => format!("the grid of {blocks} blocks"),
        None => "the grid".to_owned(),
    };
    Some(Conclusion {
        score: 1.0 - waves.max(0.0),
        confidence: Confidence::High,
        evidence: vec![limits.of(&WAVES_FULL).evidence(id, waves, "")],
        text: format!("{grid} is {waves_text}: it does not fill the GPU once"),
        hint: "split the work into more or smaller blocks (split-k, several blocks a row), or run \
               other kernels beside this one"
            .to_owned(),
    })
}
