//! Ways to spread a model over GPUs, best first, and what rules the others out.

use super::{Deployment, Load, Parallelism, PlacementError, Serving, serve};
use crate::config::Model;
use crate::kernel::Context;

/// A choice of parallelism with its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// How the model is split over GPUs.
    pub parallelism: Parallelism,
    /// The performance, or why the model cannot run.
    pub outcome: Result<Serving, PlacementError>,
}

/// All ways to spread `model` over `gpus` GPUs in powers of two: those that run by their tokens a
/// second, then the others.
#[must_use]
pub fn suggest(
    model: &Model,
    deployment: &Deployment,
    load: &Load,
    gpus: u32,
    context: &Context<'_>,
) -> Vec<Candidate> {
    let powers = || (0..).map(|power| 1_u32 << power).take_while(|n| *n <= gpus.min(1 << 16));
    let has_experts = model.kinds.iter().any(|kind| kind.mlp.expert_parameters(1.0) > 0.0);
    let mut candidates = Vec::new();
    for pp in powers() {
        for tp in powers().filter(|tp| tp * pp == gpus) {
            for ep in powers().filter(|ep| *ep <= tp && (*ep == 1 || has_experts)) {
                for dp_attention in [false, true].into_iter().take(if tp > 1 { 2 } else { 1 }) {
                    let parallelism = Parallelism { tp, pp, ep, sp: false, dp_attention };
                    let deployment = Deployment { parallelism, ..*deployment };
                    let served = serve(model, &deployment, load, context);
                    let outcome = served.map(|served| served.serving);
                    candidates.push(Candidate { parallelism, outcome });
                }
            }
        }
    }
    let rate = |candidate: &Candidate| {
        candidate.outcome.as_ref().map_or(-1.0, |serving| serving.output_tokens_per_s)
    };
    candidates.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    candidates
}
