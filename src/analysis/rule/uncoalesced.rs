//! Uncoalesced global accesses: little of each moved sector is used.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::analysis::concept::{L1_THROUGHPUT, L2_THROUGHPUT};
use crate::analysis::threshold::{EXCESS_SECTORS, Limits};
use crate::model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "uncoalesced",
    category: "memory",
    kind: VerdictRole::Cause,
    gain: GainLimit::Work,
    plural_predicate: "access global memory uncoalesced",
    apply,
};

const SECTORS: &str = "memory_l2_theoretical_sectors_global";
const IDEAL: &str = "memory_l2_theoretical_sectors_global_ideal";
/// Bytes used per sector, for reports without per-instruction counters.
const USED: &[&str] = &[
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
];
const SECTOR_BYTES: f64 = 32.0;

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (id, share) = match (launch.number(SECTORS), launch.number(IDEAL)) {
        (Some(sectors), Some(ideal)) => (SECTORS, (sectors - ideal) / sectors),
        _ => {
            let used = USED.iter().filter_map(|id| launch.number(id).map(|used| (*id, used)));
            // The store metric of a kernel that only loads is 0.
            let used = used.filter(|(_, used)| *used > 0.0);
            let (id, used) = used.min_by(|a, b| a.1.total_cmp(&b.1))?;
            (id, 1.0 - used / SECTOR_BYTES)
        }
    };
    // The share is NaN if there are no sectors.
    if share.is_nan() || share < limits.threshold(&EXCESS_SECTORS).value {
        return None;
    }
    let busy = launch.first_number(L1_THROUGHPUT).into_iter();
    let busy = busy.chain(launch.first_number(L2_THROUGHPUT));
    let busy = busy.max_by(|a, b| a.1.total_cmp(&b.1));
    let mut evidence =
        vec![limits.threshold(&EXCESS_SECTORS).share_evidence(id, share, "of the sectors")];
    evidence.extend(busy.map(|(id, value)| Evidence::number(id, value, "%")));
    Some(Conclusion {
        score: share * busy.map_or(0.5, |(_, value)| value / 100.0),
        confidence: Confidence::High,
        evidence,
        text: format!(
            "{:.0} % of the sectors of global accesses are excessive: coalesced ones need fewer",
            share * 100.0
        ),
        hint: "let neighbouring lanes access neighbouring addresses: swap the loops, transpose \
               through shared memory, or store a structure of arrays"
            .to_owned(),
    })
}
