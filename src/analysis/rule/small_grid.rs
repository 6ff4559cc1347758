//! Too few blocks to fill the GPU once.

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
    let blocks: u64 = launch.grid.iter().map(|size| u64::from(*size)).product();
    Some(Conclusion {
        score: 1.0 - waves.max(0.0),
        confidence: Confidence::High,
        evidence: vec![limits.of(&WAVES_FULL).evidence(id, waves, "")],
        text: format!("{blocks} blocks fill {:.0} % of the GPU's places for blocks", waves * 100.0),
        hint: "split the work into more or smaller blocks (split-k, several blocks a row), or run \
               other kernels beside this one"
            .to_owned(),
    })
}
