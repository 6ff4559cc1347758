//! A language model on GPUs: what a layer, a phase and a request take, and what fits.
//!
//! One pipeline stage has `tp` GPUs. Attention is split over its heads, or, with `dp_attention`,
//! over its sequences. `ep` of the stage's GPUs share the experts, and the rest of `tp` splits
//! each expert. A model runs on `tp · pp` GPUs.

pub mod layer;
pub mod memory;
pub mod serve;
pub mod suggest;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use layer::{Phase, PhaseTime, Step, StepOperation, phase};
pub use memory::{StageMemory, stages};
pub use serve::{Load, Serving, serve, serve_after};
pub use suggest::{Candidate, suggest};

use crate::Dtype;
use crate::collective::Topology;
use crate::config::{MlpShape, Model};
use crate::hw::{Gpu, Tier};
use crate::kernel::{AttentionKind, Fusion};

/// How a model is split over GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Parallelism {
    /// Number of GPUs per pipeline stage (tensor parallelism).
    pub tp: u32,
    /// Number of pipeline stages.
    pub pp: u32,
    /// Number of GPUs of a stage that share the experts (expert parallelism).
    pub ep: u32,
    /// Whether norms and residuals are split over the tokens (sequence parallelism).
    pub sp: bool,
    /// Whether attention is split over sequences instead of heads.
    pub dp_attention: bool,
}

impl Parallelism {
    /// Everything on one GPU.
    pub const NONE: Self = Self { tp: 1, pp: 1, ep: 1, sp: false, dp_attention: false };

    /// Number of all GPUs.
    #[must_use]
    pub fn gpus(&self) -> f64 {
        f64::from(self.tp) * f64::from(self.pp)
    }
}

/// The memory of a model's weights and KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// The memory of the weights.
    pub weights: Tier,
    /// The memory of the KV cache.
    pub kv: Tier,
}

/// The settings with which a model runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deployment {
    /// How the model is spread over GPUs.
    pub parallelism: Parallelism,
    /// The memory of weights and KV cache.
    pub placement: Placement,
    /// The format of the KV cache.
    pub kv_dtype: Dtype,
    /// The operations that share a kernel.
    pub fusion: Fusion,
    /// How attention treats its score matrix.
    pub attention: AttentionKind,
    /// The links between GPUs.
    pub topology: Topology,
}

impl Deployment {
    /// One GPU, everything in HBM, the cache in the activations' format.
    #[must_use]
    pub fn new(model: &Model, topology: Topology) -> Self {
        Self {
            parallelism: Parallelism::NONE,
            placement: Placement { weights: Tier::Hbm, kv: Tier::Hbm },
            kv_dtype: model.dtype,
            fusion: Fusion::Fused,
            attention: AttentionKind::Flash,
            topology,
        }
    }
}

/// Why a model cannot run with the chosen parallelism.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlacementError {
    /// A size is not a multiple of the GPUs that share it.
    #[error("{what} ({size}) cannot be split over {ways} GPUs: use one of {allowed}")]
    Split {
        /// The size that is split, in words.
        what: &'static str,
        /// Its value.
        size: f64,
        /// Number of GPUs to split it over.
        ways: u32,
        /// The numbers of GPUs that divide it.
        allowed: String,
    },
    /// There are more stages than layers.
    #[error("{layers} layers cannot be {stages} stages")]
    Stages {
        /// Number of layers.
        layers: usize,
        /// Number of pipeline stages.
        stages: u32,
    },
    /// EP without experts, or more than TP.
    #[error("ep {ep} needs a model with experts, and must divide tp {tp}")]
    Experts {
        /// The number of GPUs that should share the experts.
        ep: u32,
        /// The number of GPUs per stage.
        tp: u32,
    },
    /// The links do not join that many GPUs.
    #[error("{gpus} GPUs need a network between nodes, and none is known: give --topology")]
    Network {
        /// The number of GPUs.
        gpus: f64,
    },
    /// The rate of a memory is not known.
    #[error("the rate of `{tier:?}` is not known: add it to the GPU's file, or place data in hbm")]
    Tier {
        /// The memory.
        tier: Tier,
    },
    /// A stage needs more memory than there is.
    #[error(
        "stage {stage} needs {needed_gb:.1} GB of {tier:?} a GPU and there are {capacity_gb:.1} GB: \
         {missing_gb:.1} GB too much"
    )]
    Memory {
        /// The number of the stage, from 0.
        stage: usize,
        /// The memory.
        tier: Tier,
        /// The needed size per GPU, in GB.
        needed_gb: f64,
        /// The capacity per GPU, in GB.
        capacity_gb: f64,
        /// The difference, in GB.
        missing_gb: f64,
    },
    /// The context is longer than the model's.
    #[error("{tokens} tokens are more than the model's context of {most}")]
    Context {
        /// Prompt and output length together, in tokens.
        tokens: u64,
        /// The model's longest context, in tokens.
        most: u64,
    },
}

fn divisors(size: f64) -> String {
    let fits = [1_u32, 2, 4, 8, 16, 32, 64].into_iter().filter(|n| size % f64::from(*n) == 0.0);
    fits.map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
}

/// Fails if `model` cannot be spread like this, whatever the memory.
///
/// # Errors
/// A size does not divide, or a link or tier is not known.
pub fn check_parallelism(
    model: &Model,
    deployment: &Deployment,
    gpu: &Gpu,
) -> Result<(), PlacementError> {
    let Parallelism { tp, pp, ep, dp_attention, .. } = deployment.parallelism;
    let split = |what, size: f64, ways: u32| {
        if size % f64::from(ways) == 0.0 {
            Ok(())
        } else {
            Err(PlacementError::Split { what, size, ways, allowed: divisors(size) })
        }
    };
    if pp as usize > model.order.len() || pp == 0 || tp == 0 {
        return Err(PlacementError::Stages { layers: model.order.len(), stages: pp });
    }
    let has_experts = model.kinds.iter().any(|kind| matches!(kind.mlp, MlpShape::Experts { .. }));
    if ep == 0 || !tp.is_multiple_of(ep) || (ep > 1 && !has_experts) {
        return Err(PlacementError::Experts { ep, tp });
    }
    for kind in &model.kinds {
        if !dp_attention {
            split("attention heads", kind.attention.heads(), tp)?;
        }
        match kind.mlp {
            MlpShape::Gated { inner } => split("the MLP's width", inner, tp)?,
            MlpShape::Experts { experts, inner, .. } => {
                split("experts", experts, ep)?;
                split("an expert's width", inner, tp / ep)?;
            }
        }
    }
    let gpus = deployment.parallelism.gpus();
    if !deployment.topology.joins(gpus) {
        return Err(PlacementError::Network { gpus });
    }
    for tier in [deployment.placement.weights, deployment.placement.kv] {
        if tier_rate(gpu, tier, &deployment.topology).is_none() {
            return Err(PlacementError::Tier { tier });
        }
    }
    Ok(())
}

/// How fast a GPU reads a tier in B/s. `None` if that is not known.
#[must_use]
pub fn tier_rate(gpu: &Gpu, tier: Tier, topology: &Topology) -> Option<f64> {
    match tier {
        Tier::Hbm => Some(gpu.hbm),
        Tier::Host => gpu.host,
        Tier::Pool => topology.has_nvlink.then_some(topology.inside),
        // A drive is behind the host's link.
        Tier::Nvme => Some(gpu.nvme?.min(gpu.host?)),
        Tier::Registers | Tier::Shared | Tier::L2 | Tier::L3 => None,
    }
}
