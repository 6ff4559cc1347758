//! Uncoalesced atomics: nearly every lane touches a different sector.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{ATOMICS, L2_THROUGHPUT};
use crate::threshold::{ATOMIC_SECTORS, Limits};
use rgpu_model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "uncoalesced_atomics",
    category: "memory",
    kind: VerdictRole::Cause,
    gain: GainLimit::Work,
    plural_predicate: "have atomics that spread over many sectors",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let limit = limits.threshold(&ATOMIC_SECTORS);
    let counted = ATOMICS.iter().filter_map(|(requests, sectors)| {
        let requests = launch.number(requests).filter(|count| *count > 0.0)?;
        Some((*sectors, launch.number(sectors)? / requests))
    });
    let (id, each) = counted.max_by(|a, b| a.1.total_cmp(&b.1))?;
    if each <= limit.value {
        return None;
    }
    let busy = launch.first_number(L2_THROUGHPUT).map_or(0.5, |(_, value)| value / 100.0);
    Some(Conclusion {
        score: (1.0 - limit.value / each) * busy,
        confidence: Confidence::Medium,
        evidence: vec![limit.evidence(id, each, "sector/request")],
        text: format!("an atomic of a warp touches {each:.1} sectors; neighbouring words need 4"),
        hint: "sum within the warp or the block first (shuffles, shared memory) and let one lane \
               add the sum; let neighbouring lanes update neighbouring words"
            .to_owned(),
    })
}
