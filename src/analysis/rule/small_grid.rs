//! The grid is smaller than one wave of blocks.

use super::blocks::blocks;
use super::matrix::tensor_clause;
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::analysis::concept::WAVES;
use crate::analysis::known_kernel::is_collective;
use crate::analysis::threshold::{LAUNCH_NS, Limits, TAIL_LOST, WAVES_FULL};
use crate::model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "small_grid",
    category: "occupancy",
    kind: VerdictRole::Bound,
    gain: GainLimit::Score,
    plural_predicate: "have a grid of less than one wave",
    apply,
};

const HINT: &str = "split the work into more or smaller blocks (split-k, several blocks a row), or \
     run other kernels at the same time";

/// Whether the grid is so much smaller than one wave that this is the launch's verdict. A grid just
/// below one wave loses too little to be worth a finding.
pub(super) fn leaves_sms_empty(launch: &Launch, limits: &Limits<'_>) -> bool {
    launch.first_number(WAVES).is_some_and(|(_, waves)| waves <= most_waves(limits))
}

fn most_waves(limits: &Limits<'_>) -> f64 {
    limits.threshold(&WAVES_FULL).value - limits.threshold(&TAIL_LOST).value
}

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    if is_collective(&launch.kernel) {
        return None;
    }
    if launch.metrics.is_empty() {
        return by_geometry(launch, limits);
    }
    let (id, waves) = launch.first_number(WAVES).filter(|_| leaves_sms_empty(launch, limits))?;
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
        text: format!("{grid} is {size} waves{}", tensor_clause(launch, limits)),
        hint: HINT.to_owned(),
    })
}

/// Without counters: fewer blocks than SMs, by the launch's geometry.
fn by_geometry(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let blocks = blocks(launch)?;
    let sms = limits.sms().map(u64::from).filter(|sms| *sms > 0)?;
    let share = blocks as f64 / sms as f64;
    let short = launch.duration_ns.is_some_and(|ns| ns < limits.threshold(&LAUNCH_NS).value);
    if short || share > most_waves(limits) {
        return None;
    }
    let s = if blocks == 1 { "" } else { "s" };
    Some(Conclusion {
        score: 1.0 - share,
        confidence: Confidence::Medium,
        evidence: vec![limits.threshold(&WAVES_FULL).evidence("launch.blocks_per_sm", share, "")],
        text: format!(
            "the grid of {blocks} block{s} leaves {} of the GPU's {sms} SMs empty",
            sms - blocks
        ),
        hint: HINT.to_owned(),
    })
}
