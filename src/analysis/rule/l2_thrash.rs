//! A working set that L2 cannot hold.

use super::{Conclusion, Confidence, Kind, Rule};
use crate::analysis::concept::{DRAM_READ, DRAM_THROUGHPUT, L2_BYTES, L2_HIT_RATE};
use crate::analysis::threshold::{L2_FOOTPRINT, L2_HIT_RATE as LOW, Limits, THROUGHPUT_LOW};
use crate::model::Launch;

pub(super) const RULE: Rule =
    Rule { id: "l2_thrash", category: "memory", kind: Kind::Symptom, apply };

/// Counters cannot tell data that is read twice from data that is read once: a stream misses L2
/// just so, and nothing is wrong with it. So this is said with low confidence.
fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (hit_id, hit) = launch.first_number(L2_HIT_RATE)?;
    let (dram_id, dram) = launch.first_number(DRAM_THROUGHPUT)?;
    let (read_id, read) = launch.first_number(DRAM_READ)?;
    let (_, size) = launch.first_number(L2_BYTES).filter(|(_, size)| *size > 0.0)?;
    let (low, busy) = (limits.of(&LOW), limits.of(&THROUGHPUT_LOW));
    let footprint = limits.of(&L2_FOOTPRINT);
    if hit >= low.value || dram < busy.value || read / size < footprint.value {
        return None;
    }
    Some(Conclusion {
        score: (1.0 - hit / 100.0) * dram / 100.0 / 2.0,
        confidence: Confidence::Low,
        evidence: vec![
            low.evidence(hit_id, hit, "%"),
            busy.evidence(dram_id, dram, "%"),
            footprint.evidence(read_id, read / size, "sizes of the L2"),
        ],
        text: format!(
            "L2 holds {hit:.0} % of what is asked of it, and DRAM is read {:.1} times its size",
            read / size
        ),
        hint: "if data is read more than once, let blocks that share it run at the same time: \
               order the grid in square groups of tiles, or pin what is reused (an access policy \
               window)"
            .to_owned(),
    })
}
