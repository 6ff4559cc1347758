//! Uncoalesced global accesses: little of each moved sector is used.
//!
//! ncu counts sectors from the addresses of each instruction. If neighbouring instructions use the
//! rest of a sector soon, L1 absorbs what is excessive. Where the report has the sectors that L1
//! requested of L2, only those count.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{L1_THROUGHPUT, L2_THROUGHPUT};
use crate::roofs::{Unit, WorkLeft};
use crate::threshold::{EXCESS_SECTORS, Limits, THROUGHPUT_LOW};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "uncoalesced",
    category: "memory",
    kind: VerdictRole::Cause,
    gain: GainLimit::Relief(work_left),
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
const LOAD_MISSES: &str = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_miss.sum";
const STORES: &str = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum";
const SECTOR_BYTES: f64 = 32.0;

/// L1 and L2 move only sectors that are used. DRAM moves as much less as L2 does, or as much as
/// before: where other warps used the rest of the sectors in time.
fn work_left(launch: &Launch) -> Vec<WorkLeft> {
    let Some((_, share)) = excess(launch) else { return Vec::new() };
    let below = share_below_l1(launch).map_or(share, |below| below.min(share));
    vec![
        (Unit::L1, [1.0 - share; 2]),
        (Unit::L2, [1.0 - below; 2]),
        (Unit::Dram, [1.0 - below, 1.0]),
        (Unit::Memory, [1.0 - below, 1.0]),
    ]
}

/// The share of excessive sectors, and the metric that tells it.
fn excess(launch: &Launch) -> Option<(&'static str, f64)> {
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
    share.is_finite().then_some((id, share))
}

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (id, share) = excess(launch)?;
    if share < limits.threshold(&EXCESS_SECTORS).value {
        return None;
    }
    let l1 = launch.first_number(L1_THROUGHPUT);
    let busiest = l1.into_iter().chain(launch.first_number(L2_THROUGHPUT));
    let busiest = busiest.max_by(|a, b| a.1.total_cmp(&b.1));
    let below = share_below_l1(launch).map(|below| below.min(share));
    let absorbed = below.is_some_and(|below| below < limits.threshold(&EXCESS_SECTORS).value);
    // What L1 absorbs costs time only in L1.
    let busy = if absorbed {
        Some(l1.filter(|(_, percent)| *percent >= limits.threshold(&THROUGHPUT_LOW).value)?)
    } else {
        busiest
    };
    let costly = below.filter(|_| !absorbed).unwrap_or(share);
    let mut evidence =
        vec![limits.threshold(&EXCESS_SECTORS).share_evidence(id, share, "of the sectors")];
    evidence.extend(busy.map(|(id, value)| Evidence::number(id, value, "%")));
    Some(Conclusion {
        score: costly * busy.map_or(0.5, |(_, value)| value / 100.0),
        confidence: Confidence::High,
        evidence,
        text: format!(
            "{:.0} % of the sectors of global accesses are excessive: coalesced ones need fewer{}",
            share * 100.0,
            if absorbed { "; L1 absorbs them" } else { "" }
        ),
        hint: "let neighbouring lanes access neighbouring addresses: swap the loops, transpose \
               through shared memory, or store a structure of arrays"
            .to_owned(),
    })
}

/// The excessive share of the sectors that L1 requests of L2: loads that miss, and all stores.
fn share_below_l1(launch: &Launch) -> Option<f64> {
    let moved = launch.number(LOAD_MISSES)? + launch.number(STORES)?;
    let excess = (moved - launch.number(IDEAL)?) / moved;
    excess.is_finite().then(|| excess.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Thresholds;

    /// Sectors of a recorded launch, all and ideal, misses of its loads and its stores, and how
    /// busy L1 and L2 are.
    fn concluded(sectors: [f64; 4], l1: f64, l2: f64) -> Option<Conclusion> {
        let ids = [SECTORS, IDEAL, LOAD_MISSES, STORES, L1_THROUGHPUT[0], L2_THROUGHPUT[0]];
        let values = sectors.into_iter().chain([l1, l2]);
        let metrics: Vec<(&str, f64)> = ids.into_iter().zip(values).collect();
        let launch = Launch::from_numbers(&metrics);
        apply(&launch, &Limits::new(&Thresholds::default(), Some(9)))
    }

    /// Triton's `rms_norm`: 4.33 million of 20.97 million loaded sectors miss L1.
    #[test]
    fn sectors_that_l1_absorbs_count_only_if_l1_is_busy() {
        let norm = [25_165_824.0, 16_777_216.0, 4_329_472.0, 4_194_304.0];
        assert_eq!(concluded(norm, 41.6, 85.8), None);
        let busy = concluded(norm, 90.0, 50.0).unwrap();
        assert!((busy.score - 0.3).abs() < 0.01, "{}", busy.score);
        assert!(busy.text.ends_with("L1 absorbs them"), "{}", busy.text);
    }

    /// The kernel `uncoalesced`: L1 absorbs its loads, and its stores pass.
    #[test]
    fn of_loads_and_stores_what_reaches_l2_counts() {
        let strided = [33_554_432.0, 4_194_304.0, 2_097_152.0, 16_810_917.0];
        let told = concluded(strided, 40.0, 90.0).unwrap();
        assert!(told.text.starts_with("88 %") && told.text.ends_with("fewer"), "{}", told.text);
        assert!((told.score - 0.778 * 0.9).abs() < 0.001, "{}", told.score);
    }
}
