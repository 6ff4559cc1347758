//! Instruction fetch: warps stall because their next instruction is not in the cache.

use super::blocks::leave_sms_empty;
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::ICACHE_HIT_RATE;
use crate::threshold::{INSTRUCTION_STALL, Limits};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "instruction_cache",
    category: "compute",
    kind: VerdictRole::Cause,
    gain: GainLimit::Score,
    plural_predicate: "wait for instructions",
    apply,
};

/// Nanoseconds below which the first misses are a large part of a launch.
const SHORT_NS: f64 = 10e3;

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let stall = launch.stalls.iter().find(|stall| stall.reason == "no_instruction")?;
    let share = stall.percent? / 100.0;
    let limit = limits.threshold(&INSTRUCTION_STALL);
    // Every kernel misses at its start, which is all that a short one or one of few blocks does.
    let starts_only = launch.duration_ns.is_some_and(|ns| ns < SHORT_NS) || leave_sms_empty(launch);
    if share < limit.value || starts_only {
        return None;
    }
    let metric = "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio";
    let mut evidence =
        vec![limit.share_evidence(metric, share, "of the cycles between two instructions")];
    // A short kernel always misses at its start, so the hit rate alone is not enough.
    let hits = launch.first_number(ICACHE_HIT_RATE);
    evidence.extend(hits.map(|(id, value)| Evidence::number(id, value, "%")));
    Some(Conclusion {
        score: share,
        confidence: Confidence::Medium,
        evidence,
        text: format!(
            "warps spend {:.0} % of the time between two instructions waiting for the next one",
            share * 100.0
        ),
        hint:
            "make the code of the loops smaller: unroll less, split the kernel, avoid long jumps \
               between cold and hot code"
                .to_owned(),
    })
}
