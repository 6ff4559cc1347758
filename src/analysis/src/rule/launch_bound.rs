//! Launch bound: the kernel is about as short as the launch overhead.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::threshold::{LAUNCH_NS, Limits};
use rgpu_model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "launch_bound",
    category: "host",
    kind: VerdictRole::Bound,
    gain: GainLimit::Everything,
    plural_predicate: "are about as short as a launch takes",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let duration =
        launch.duration_ns.filter(|duration| *duration < limits.threshold(&LAUNCH_NS).value)?;
    Some(Conclusion {
        score: 1.0 - duration / limits.threshold(&LAUNCH_NS).value / 2.0,
        confidence: Confidence::Low,
        evidence: vec![limits.threshold(&LAUNCH_NS).evidence(
            "gpu__time_duration.sum",
            duration,
            "ns",
        )],
        text: format!(
            "the kernel runs for {:.1} µs{}, about as long as a launch takes",
            duration / 1e3,
            // ncu flushes caches and locks clocks, so that other tools see shorter times.
            if launch.metrics.is_empty() { "" } else { " under ncu" }
        ),
        hint: "launch less often: fuse small kernels, batch the work, or capture the sequence in \
               a CUDA graph"
            .to_owned(),
    })
}
