//! What ncu's own rules estimate, to stand beside the verdicts that are about the same.

use rgpu_model::{Evidence, Launch};

/// Verdicts, and the rules of ncu about the same cause.
const SAME: &[(&str, &[&str])] = &[
    ("bank_conflicts", &["SharedMemoryConflicts", "UncoalescedSharedAccess"]),
    ("divergence", &["ThreadDivergence"]),
    ("imbalance", &["WorkloadImbalance"]),
    ("occupancy_limited", &["TheoreticalOccupancy"]),
    ("occupancy_not_reached", &["AchievedOccupancy"]),
    ("tail", &["TailEffect"]),
    ("uncoalesced", &["UncoalescedGlobalAccess"]),
];

/// The largest speedup in percent that ncu's rules estimate for this verdict, as a number that only
/// explains; `None` if the report has none.
pub(super) fn of(launch: &Launch, verdict: &str) -> Option<Evidence> {
    let (_, rules) = SAME.iter().find(|(id, _)| *id == verdict)?;
    let estimates = launch.rules.iter().filter(|message| rules.contains(&message.rule.as_str()));
    let estimates = estimates.filter_map(|message| Some((message, message.speedup_percent?)));
    let (message, percent) = estimates.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let metric = format!("ncu.{}.estimated_speedup", message.rule);
    Some(Evidence::number(&metric, percent, "%")).filter(|_| percent.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::launch::RuleMessage;

    #[test]
    fn the_largest_estimate_about_the_same_cause_is_taken() {
        let message = |rule: &str, percent| RuleMessage {
            rule: rule.to_owned(),
            speedup_percent: percent,
            ..RuleMessage::default()
        };
        // As of the kernel `weigh` of a recording on an H200.
        let rules = vec![
            message("SharedMemoryConflicts", Some(4.86)),
            message("UncoalescedSharedAccess", Some(68.4)),
            message("SharedMemoryConflicts", None),
        ];
        let launch = Launch { rules, ..Launch::default() };
        let told = of(&launch, "bank_conflicts").unwrap();
        assert_eq!(told.metric, "ncu.UncoalescedSharedAccess.estimated_speedup");
        assert_eq!((told.value, told.threshold), (68.4, None));
        assert_eq!(of(&launch, "divergence"), None);
        assert_eq!(of(&launch, "memory_bound"), None);
    }
}
