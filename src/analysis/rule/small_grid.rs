//! The grid is smaller than one wave of blocks.

use super::blocks::blocks;
use super::{Conclusion, Confidence, Kind, Rule};
use crate::analysis::concept::WAVES;
use crate::analysis::threshold::{Limits, TAIL_LOST, WAVES_FULL};
use crate::model::Launch;

pub(super) const RULE: Rule =
    Rule { id: "small_grid", category: "occupancy", kind: Kind::Bound, apply };

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (id, waves) = launch.first_number(WAVES)?;
    // A grid just below one wave loses too little to be worth a finding.
    if waves > limits.threshold(&WAVES_FULL).value - limits.threshold(&TAIL_LOST).value {
        return None;
    }
    let size = match waves {
        waves if waves < 0.01 => "less than 0.01".to_owned(),
        waves => format!("{waves:.2}"),
    };
    let grid = match blocks(launch) {
        Some(1) => "the grid of 1 block".to_owned(),
        Some(blocks) => format!("the grid of {blocks} blocks"),
        None => "the grid".to_owned(),
    };
    Some(Conclusion {
        score: 1.0 - waves.max(0.0),
        confidence: Confidence::High,
        evidence: vec![limits.threshold(&WAVES_FULL).evidence(id, waves, "")],
        text: format!("{grid} is {size} waves"),
        hint: "split the work into more or smaller blocks (split-k, several blocks a row), or run \
               other kernels beside this one"
            .to_owned(),
    })
}
