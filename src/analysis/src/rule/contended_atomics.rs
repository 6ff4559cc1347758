//! Atomics on few addresses: one slice of the L2 executes them one after another.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::threshold::{ATOMIC_SLICE, ATOMIC_SPREAD, Limits};
use rgpu_model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "contended_atomics",
    category: "memory",
    kind: VerdictRole::Cause,
    gain: GainLimit::Work,
    plural_predicate: "have atomics on few addresses, which wait for one another",
    apply,
};

/// How busy the atomic unit of the busiest slice is, and that of the average one.
const BUSIEST: &str = "lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed";
const MEAN: &str = "lts__d_atomic_input_cycles_active.avg.pct_of_peak_sustained_elapsed";

/// An address belongs to one slice, whose unit executes all atomics on it. Atomics on many addresses
/// keep all slices equally busy.
fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (busiest, mean) = (launch.number(BUSIEST)?, launch.number(MEAN)?);
    let (busy, spread) = (limits.threshold(&ATOMIC_SLICE), limits.threshold(&ATOMIC_SPREAD));
    let share = mean / busiest;
    // The share is NaN without atomics.
    if busiest < busy.value || share.is_nan() || share >= spread.value {
        return None;
    }
    Some(Conclusion {
        // With the same atomics spread over all slices, the busiest one would have the mean.
        score: (busiest - mean) / 100.0,
        confidence: Confidence::Medium,
        evidence: vec![
            busy.evidence(BUSIEST, busiest, "%"),
            spread.share_evidence(MEAN, share, "of the busiest slice's"),
        ],
        text: format!(
            "atomics on few addresses wait for one another: the atomic unit of one L2 slice is \
             busy for {busiest:.0} % of the time, the average one for {mean:.2} %"
        ),
        hint: "sum within the warp and the block first (shuffles, shared memory, \
               `cub::BlockReduce`) and let one thread of a block add the sum; or spread a counter \
               over several addresses and sum them at the end"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Thresholds;

    fn score(busiest: f64, mean: f64) -> Option<f64> {
        let launch = Launch::from_numbers(&[(BUSIEST, busiest), (MEAN, mean)]);
        let told = apply(&launch, &Limits::new(&Thresholds::default(), Some(9)));
        told.map(|conclusion| conclusion.score)
    }

    #[test]
    fn atomics_on_few_addresses_are_told_if_a_slice_is_busy_with_them() {
        assert!(score(94.0, 1.0).is_some_and(|score| (score - 0.93).abs() < 1e-9));
        assert_eq!(score(94.0, 80.0), None, "all slices are busy");
        // 2112 additions to one address, one a warp, in 386 µs: as recorded on an H200.
        assert_eq!(score(0.320_548, 0.003_410), None);
        assert_eq!(score(0.0, 0.0), None);
    }
}
