//! Latency bound: neither compute nor memory throughput is high.

use super::matrix::tensor_clause;
use super::small_grid::leaves_sms_empty;
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{MEMORY_THROUGHPUT, SM_THROUGHPUT};
use crate::threshold::{Limits, THROUGHPUT_LOW};
use rgpu_model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "latency_bound",
    category: "latency",
    kind: VerdictRole::Bound,
    gain: GainLimit::Headroom,
    plural_predicate: "wait: neither compute nor memory comes near its peak",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (sm_id, sm) = launch.first_number(SM_THROUGHPUT)?;
    let (memory_id, memory) = launch.first_number(MEMORY_THROUGHPUT)?;
    let max = sm.max(memory);
    // A grid clearly below one wave gets the verdict `small_grid` instead.
    if max >= limits.threshold(&THROUGHPUT_LOW).value || leaves_sms_empty(launch, limits) {
        return None;
    }
    // `not_selected` is no wait: another warp was issued.
    let mut stalls = launch.stalls.iter().filter(|stall| stall.reason != "not_selected");
    let stall = stalls.next().and_then(|stall| Some((&stall.reason, stall.percent?)));
    let mut text =
        format!("compute runs at {sm:.0} % and memory at {memory:.0} % of their peaks: warps wait");
    if let Some((reason, percent)) = stall {
        text.push_str(&format!(", most for `{reason}` ({percent:.0} %)"));
    }
    // The result of a whole range has no grid.
    let range = launch.grid == [0, 0, 0];
    if range {
        text.push_str(", or the GPU is idle between the range's kernels");
    }
    text.push_str(&tensor_clause(launch, limits));
    let confidence = match stall {
        _ if range => Confidence::Low,
        Some(_) => Confidence::High,
        None => Confidence::Medium,
    };
    Some(Conclusion {
        score: 1.0 - max / 100.0,
        confidence,
        evidence: vec![
            limits.threshold(&THROUGHPUT_LOW).evidence(sm_id, sm, "%"),
            limits.threshold(&THROUGHPUT_LOW).evidence(memory_id, memory, "%"),
        ],
        text,
        hint: "give each scheduler more to issue: more independent work per thread (unrolling, \
               several loads in flight), more warps, shorter dependency chains"
            .to_owned(),
    })
}
