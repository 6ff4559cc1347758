//! FP64 work on a device with few FP64 units.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{FP64_PIPE, FP64_RATIO as RATIO_IDS};
use crate::threshold::{FP64_BUSY, FP64_RATIO, Limits};
use rgpu_model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "fp64_trickle",
    category: "compute",
    kind: VerdictRole::Cause,
    gain: GainLimit::Work,
    plural_predicate: "compute in FP64 on few units",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (ratio_id, ratio) = launch.first_number(RATIO_IDS)?;
    let (pipe_id, pipe) = launch.first_number(FP64_PIPE)?;
    let (rare, busy) = (limits.threshold(&FP64_RATIO), limits.threshold(&FP64_BUSY));
    if ratio < rare.value || pipe < busy.value {
        return None;
    }
    Some(Conclusion {
        score: pipe / 100.0,
        confidence: Confidence::High,
        evidence: vec![busy.evidence(pipe_id, pipe, "%"), rare.evidence(ratio_id, ratio, "")],
        text: format!(
            "the FP64 pipe is busy for {pipe:.0} % of the time, on a device with one FP64 operation \
             for {ratio:.0} in FP32"
        ),
        hint:
            "compute in FP32 where it suffices (literals with an `f`, compensated sums), or use a \
               data centre GPU"
                .to_owned(),
    })
}
