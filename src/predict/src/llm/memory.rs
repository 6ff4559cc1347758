//! The memory of each pipeline stage, and whether it fits.

use schemars::JsonSchema;
use serde::Serialize;

use super::layer::stage_layers;
use super::{Deployment, Load, PlacementError};
use crate::config::{Layer, MlpShape, Model};
use crate::hw::{Gpu, Tier};

/// The memory of one GPU of a stage, in bytes. The runtime's own needs, such as the CUDA context
/// and NCCL's buffers, are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StageMemory {
    /// The first layer of the stage, from 0.
    pub first_layer: usize,
    /// Number of layers of the stage.
    pub layers: usize,
    /// Bytes of weights.
    pub weights_bytes: f64,
    /// Bytes of the KV cache of all requests at their full length, or of the window where a layer
    /// has one.
    pub kv_bytes: f64,
    /// Bytes of the largest activations of a prompt.
    pub activation_bytes: f64,
    /// Bytes that must be in HBM.
    pub hbm_bytes: f64,
    /// HBM capacity, in bytes.
    pub hbm_capacity_bytes: f64,
}

/// Bytes of weights of one layer on one GPU.
#[must_use]
pub fn layer_weight_bytes(model: &Model, layer: &Layer, deployment: &Deployment) -> f64 {
    let parallelism = deployment.parallelism;
    let (tp, hidden) = (f64::from(parallelism.tp), model.hidden);
    let attention_ways = if parallelism.dp_attention { 1.0 } else { tp };
    let linear = model.linear_dtype;
    // One row of all parameters: the size is the same as long as the matrix's rows are multiples of
    // the scale block.
    let attention = linear.bytes(1.0, layer.attention.parameters(hidden) / attention_ways);
    let dense = linear.bytes(1.0, layer.mlp.dense_parameters(hidden) / tp);
    let experts = model.expert_dtype.bytes(1.0, layer.mlp.expert_parameters(hidden) / tp);
    let rest = model.dtype.bytes(1.0, layer.mlp.router_parameters(hidden) + layer.norms_and_biases);
    attention + dense + experts + rest
}

/// Bytes of KV cache per token of one layer on one GPU.
#[must_use]
pub fn layer_kv_bytes(layer: &Layer, deployment: &Deployment) -> f64 {
    use crate::config::AttentionShape::{Grouped, Latent};
    let tp = f64::from(deployment.parallelism.tp);
    let all = deployment.kv_dtype.bytes(1.0, layer.attention.cached());
    match layer.attention {
        // Each GPU keeps the KV of its own sequences.
        _ if deployment.parallelism.dp_attention => all / tp,
        Grouped { kv_heads, .. } => all / tp.min(kv_heads),
        // Every GPU keeps the latent.
        Latent { .. } => all,
    }
}

/// The memory of each stage under `load`.
#[must_use]
pub fn stages(model: &Model, deployment: &Deployment, load: &Load, gpu: &Gpu) -> Vec<StageMemory> {
    let parallelism = deployment.parallelism;
    let (tp, count) = (f64::from(parallelism.tp), parallelism.pp as usize);
    let tokens = load.concurrency * (load.input + load.output);
    let embedding = model.dtype.bytes(model.vocabulary / tp, model.hidden);
    (0..count)
        .map(|stage| {
            let range = stage_layers(model.order.len(), count, stage);
            let (mut weights, mut kv, mut activations) = (0.0, 0.0, 0.0_f64);
            for (_, layer, times) in model.kinds_in(range.clone()) {
                weights += times * layer_weight_bytes(model, layer, deployment);
                let cached = cached_tokens(layer, load, tokens);
                kv += times * cached * layer_kv_bytes(layer, deployment);
                activations = activations.max(activation_bytes(model, layer, load, tp));
            }
            if stage == 0 {
                weights += embedding;
            }
            if stage + 1 == count && !(model.is_tied && stage == 0) {
                weights += embedding;
            }
            let in_hbm = |tier, bytes: f64| if tier == Tier::Hbm { bytes } else { 0.0 };
            StageMemory {
                first_layer: range.start,
                layers: range.len(),
                weights_bytes: weights,
                kv_bytes: kv,
                activation_bytes: activations,
                hbm_bytes: in_hbm(deployment.placement.weights, weights)
                    + in_hbm(deployment.placement.kv, kv)
                    + activations,
                hbm_capacity_bytes: gpu.hbm_bytes,
            }
        })
        .collect()
}

/// Tokens whose KV a layer keeps: with a window, at most the window per sequence.
fn cached_tokens(layer: &Layer, load: &Load, tokens: f64) -> f64 {
    match layer.attention {
        crate::config::AttentionShape::Grouped { window: Some(window), .. } => {
            tokens.min(load.concurrency * window)
        }
        _ => tokens,
    }
}

/// The input, the residual and the widest result of one prompt.
fn activation_bytes(model: &Model, layer: &Layer, load: &Load, tp: f64) -> f64 {
    let widest = match layer.mlp {
        MlpShape::Gated { inner } => 3.0 * inner / tp,
        MlpShape::Experts { chosen, inner, shared, .. } => 3.0 * (chosen * inner + shared) / tp,
    };
    model.dtype.bytes(load.input, 2.0 * model.hidden + widest)
}

/// Checks that each stage fits.
///
/// # Errors
/// A stage does not fit; the error says by how much.
pub fn check(
    stages: &[StageMemory],
    deployment: &Deployment,
    gpu: &Gpu,
) -> Result<(), PlacementError> {
    for (stage, memory) in stages.iter().enumerate() {
        let places = [
            (Tier::Hbm, memory.hbm_bytes, Some(gpu.hbm_bytes)),
            (Tier::Host, bytes_in(memory, deployment, Tier::Host), gpu.host_bytes),
            (Tier::Nvme, bytes_in(memory, deployment, Tier::Nvme), gpu.nvme_bytes),
        ];
        for (tier, needed, capacity) in places {
            if let Some(capacity) = capacity.filter(|capacity| needed > *capacity) {
                return Err(PlacementError::Memory {
                    stage,
                    tier,
                    needed_gb: needed / 1e9,
                    capacity_gb: capacity / 1e9,
                    missing_gb: (needed - capacity) / 1e9,
                });
            }
        }
    }
    Ok(())
}

fn bytes_in(memory: &StageMemory, deployment: &Deployment, tier: Tier) -> f64 {
    let placement = deployment.placement;
    let weights = if placement.weights == tier { memory.weights_bytes } else { 0.0 };
    weights + if placement.kv == tier { memory.kv_bytes } else { 0.0 }
}
