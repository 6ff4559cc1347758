//! The grid is smaller than one wave of blocks.

use super::blocks::blocks;
use super::matrix::tensor_clause;
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::WAVES;
use crate::known_kernel::{is_collective, matrix_unit};
use crate::threshold::{LAUNCH_NS, Limits, TAIL_LOST, WAVES_FULL};
use rgpu_model::Launch;

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
    // The grid of a short kernel hardly counts, unless it multiplies matrices: a CUDA graph has
    // many such launches, and nothing else to say of them.
    let short = launch.duration_ns.is_some_and(|ns| ns < limits.threshold(&LAUNCH_NS).value)
        && matrix_unit(&launch.kernel).is_none();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Thresholds;

    /// A product of 32 by 512 by 512 that torch's profiler recorded in a CUDA graph, and its clamp.
    #[test]
    fn the_grid_of_a_short_product_counts() {
        let own = Thresholds::default();
        let limits = Limits::new(&own, None).with_sms(Some(132));
        let text = |kernel: &str| {
            let launch = Launch {
                kernel: kernel.to_owned(),
                grid: [8, 4, 1],
                duration_ns: Some(3072.0),
                ..Launch::default()
            };
            apply(&launch, &limits).map(|conclusion| conclusion.text)
        };
        let told = text("nvjet_sm90_hsh_64x8_64x16_2x4_h_bz_bias_TNT");
        let expected = "the grid of 32 blocks leaves 100 of the GPU's 132 SMs empty";
        assert_eq!(told.as_deref(), Some(expected));
        assert_eq!(text("clamp"), None);
    }
}
