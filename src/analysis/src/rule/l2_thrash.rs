//! L2 thrashing: the working set does not fit in the L2.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{DRAM_READ, DRAM_THROUGHPUT, L2_BYTES, L2_HIT_RATE};
use crate::threshold::{L2_FOOTPRINT, L2_HIT_RATE as LOW, Limits, THROUGHPUT_LOW};
use rgpu_model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "l2_thrash",
    category: "memory",
    kind: VerdictRole::Symptom,
    gain: GainLimit::Work,
    plural_predicate: "read more from DRAM than the L2 holds",
    apply,
};

/// Confidence is low because counters cannot distinguish data that is read twice from data that is
/// read once: a kernel that streams its input has the same low hit rate, which is no fault.
fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (hit_id, hit) = launch.first_number(L2_HIT_RATE)?;
    let (dram_id, dram) = launch.first_number(DRAM_THROUGHPUT)?;
    let (read_id, read) = launch.first_number(DRAM_READ)?;
    let (_, size) = launch.first_number(L2_BYTES).filter(|(_, size)| *size > 0.0)?;
    let (low, busy) = (limits.threshold(&LOW), limits.threshold(&THROUGHPUT_LOW));
    let footprint = limits.threshold(&L2_FOOTPRINT);
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
            "the L2 hit rate is {hit:.0} %, and {:.1} times the size of the L2 is read from DRAM",
            read / size
        ),
        hint: "if data is read more than once, let blocks that share it run at the same time: \
               order the grid in square groups of tiles, or pin what is reused (an access policy \
               window)"
            .to_owned(),
    })
}
