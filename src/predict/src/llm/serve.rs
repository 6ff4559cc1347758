//! A server under a steady load: time to first token, time per output token, throughput.

use schemars::JsonSchema;
use serde::Serialize;

use super::layer::{Phase, PhaseTimes, Step, phase};
use super::{Deployment, PlacementError, StageMemory, check_parallelism, memory};
use crate::collective::{self, Op};
use crate::config::Model;
use crate::kernel::Context;

/// A steady load of equal requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Prompt length, in tokens.
    pub input: f64,
    /// Output length, in tokens.
    pub output: f64,
    /// Number of concurrent requests; one that ends is replaced by the next.
    pub concurrency: f64,
    /// Number of GPUs that only read prompts. `None` if every GPU does both.
    pub prefill_gpus: Option<u32>,
}

/// The definitions of the numbers of [`Serving`].
pub const DEFINITIONS: &[(&str, &str)] = &[
    (
        "ttft_ns",
        "from the start of a request's prompt on an idle server to its first token: one \
      prefill through all stages; with separate prefill GPUs also the transfer of its KV cache",
    ),
    (
        "tpot_ns",
        "one decode step of all requests, at a context of the prompt and half the answer; \
      no prefill in between",
    ),
    (
        "tpot_mixed_ns",
        "the time of a request after its first token over its other tokens, with \
      the prefills of all other requests in between",
    ),
    ("request_ns", "ttft_ns + (output - 1) * tpot_mixed_ns"),
    ("output_tokens_per_s", "concurrency * output / request_ns"),
    (
        "bubble",
        "the share of a step in which a stage waits: (p - 1) / (m + p - 1) for m \
      micro-batches on p stages",
    ),
];

/// The performance of a server under a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Serving {
    /// Time to first token, in ns.
    pub ttft_ns: f64,
    /// The speed-of-light bound of the time to first token, in ns.
    pub ttft_bound_ns: f64,
    /// Time per output token without prefills in between, in ns.
    pub tpot_ns: f64,
    /// The speed-of-light bound of the time per output token, in ns.
    pub tpot_bound_ns: f64,
    /// Time per output token with prefills in between, in ns.
    pub tpot_mixed_ns: f64,
    /// Time of a whole request, in ns.
    pub request_ns: f64,
    /// Output tokens per second, of all requests.
    pub output_tokens_per_s: f64,
    /// Output tokens per second and GPU.
    pub output_tokens_per_s_gpu: f64,
    /// The fraction of a decode step in which a stage waits.
    pub bubble: f64,
    /// Number of GPUs, including those that only read prompts.
    pub gpus: f64,
    /// Whether every kernel and collective had measured efficiencies.
    pub is_calibrated: bool,
}

/// The result for a load, with the phases and the memory it is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadResult {
    /// The performance.
    pub serving: Serving,
    /// The prefill of one prompt.
    pub prefill: PhaseTimes,
    /// One decode step of one micro-batch.
    pub decode: PhaseTimes,
    /// The memory of every stage.
    pub memory: Vec<StageMemory>,
    /// Number of micro-batches of decode.
    pub micro_batches: f64,
    /// Time to transfer the KV cache of one request between separate GPUs, in ns.
    pub kv_transfer_ns: f64,
}

/// Predicts the performance of `model` under `load`.
///
/// # Errors
/// It cannot be spread like this, or does not fit.
pub fn serve(
    model: &Model,
    deployment: &Deployment,
    load: &Load,
    context: &Context<'_>,
) -> Result<LoadResult, PlacementError> {
    serve_after(None, model, deployment, load, context)
}

/// As [`serve`], after a load that differs in the number of requests alone: its prefill is the
/// same and not predicted again.
///
/// # Errors
/// It cannot be spread like this, or does not fit.
pub fn serve_after(
    other: Option<&LoadResult>,
    model: &Model,
    deployment: &Deployment,
    load: &Load,
    context: &Context<'_>,
) -> Result<LoadResult, PlacementError> {
    check_parallelism(model, deployment, context.gpu)?;
    let tokens = (load.input + load.output) as u64;
    if let Some(most) = model.max_context.filter(|most| tokens > *most) {
        return Err(PlacementError::Context { tokens, most });
    }
    let memory = memory::stages(model, deployment, load, context.gpu);
    memory::check(&memory, deployment, context.gpu)?;

    let stages = f64::from(deployment.parallelism.pp);
    let prefill = match other {
        Some(other) => other.prefill.clone(),
        None => phase(model, deployment, &Step::prefill(1.0, load.input), context),
    };
    // Fewer micro-batches than stages leave stages idle.
    let micro_batches = stages.min(load.concurrency);
    let sequences = (load.concurrency / micro_batches).ceil();
    let seen = load.input + load.output / 2.0;
    let step = Step { phase: Phase::Decode, sequences, queries: 1.0, keys: seen };
    let decode = phase(model, deployment, &step, context);

    let kv_transfer_ns = match load.prefill_gpus {
        None => 0.0,
        Some(_) => {
            let kv: f64 = (model.layers())
                .map(|layer| load.input * memory::layer_kv_bytes(layer, deployment))
                .sum::<f64>()
                / stages;
            let ranks = deployment.topology.domain + 1.0;
            let ranks = if deployment.topology.joins(ranks) { ranks } else { 2.0 };
            collective::predict(Op::P2p, kv, ranks, &deployment.topology, context.calibration)
                .time_ns()
        }
    };
    let ttft_ns = prefill.pipeline_latency_ns() + kv_transfer_ns;
    // A step passes all stages; the next can start when the slowest stage has done all
    // micro-batches.
    let tpot_ns = decode.pipeline_latency_ns().max(micro_batches * decode.longest_stage_ns());
    let bound = |times: &PhaseTimes| times.stages.iter().map(|s| s.bound_ns).fold(0.0, f64::max);
    let tpot_bound_ns = decode.pipeline_latency_bound_ns().max(micro_batches * bound(&decode));

    let others = (load.output - 1.0).max(1.0);
    let (tpot_mixed_ns, gpus) = match load.prefill_gpus {
        Some(extra) => {
            // Prefills do not disturb, but may not come fast enough.
            let replicas = (f64::from(extra) / deployment.parallelism.gpus()).max(1.0);
            let prompts_ns = load.concurrency * prefill.longest_stage_ns() / replicas;
            let answers_ns = ttft_ns + others * tpot_ns;
            let mixed = (answers_ns.max(prompts_ns) - ttft_ns) / others;
            (mixed, deployment.parallelism.gpus() + f64::from(extra))
        }
        None => {
            // While a request makes its tokens, every other request is prefilled once.
            let prompts_ns = (load.concurrency - 1.0) * prefill.longest_stage_ns();
            (tpot_ns + prompts_ns / others, deployment.parallelism.gpus())
        }
    };
    let request_ns = ttft_ns + (load.output - 1.0) * tpot_mixed_ns;
    let output_tokens_per_s = load.concurrency * load.output / (request_ns / 1e9);
    let serving = Serving {
        ttft_ns,
        ttft_bound_ns: prefill.pipeline_latency_bound_ns(),
        tpot_ns,
        tpot_bound_ns,
        tpot_mixed_ns,
        request_ns,
        output_tokens_per_s,
        output_tokens_per_s_gpu: output_tokens_per_s / gpus,
        bubble: (stages - 1.0) / (micro_batches + stages - 1.0),
        gpus,
        is_calibrated: prefill.is_calibrated() && decode.is_calibrated(),
    };
    Ok(LoadResult { serving, prefill, decode, memory, micro_batches, kv_transfer_ns })
}
