//! The results that commands print as JSON, each with its schema. The text output is made from the
//! same values.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::collective::{Algorithm, CollectiveTime, Op, Protocol};
use crate::config::{AttentionShape, MlpShape, Model};
use crate::dtype::MathKind;
use crate::hw::{Hardware, LinkKind, Problem, Tier};
use crate::kernel::{Context, KernelTime, LimitedBy, OpKind};
use crate::llm::layer::{visit_embedding, visit_head, visit_layer};
use crate::llm::memory::{layer_kv_bytes, layer_weight_bytes};
use crate::llm::serve::DEFINITIONS;
use crate::llm::{
    Candidate, Deployment, Load, Parallelism, Phase, PhaseTime, Placement, Serving, StageMemory,
    Step, StepOperation,
};
use crate::term::{Input, Term};

/// Whether measured efficiencies were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CalibrationState {
    /// Measured efficiencies were used everywhere.
    Calibrated,
    /// Measured efficiencies were missing for some parts or for all: those use an efficiency of 1
    /// (kernels) or NCCL's own model (collectives).
    Uncalibrated,
}

impl CalibrationState {
    /// `Calibrated` if the flag is set.
    #[must_use]
    pub fn from_bool(is_calibrated: bool) -> Self {
        if is_calibrated { Self::Calibrated } else { Self::Uncalibrated }
    }

    /// The word for it in texts.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::Uncalibrated => "uncalibrated",
        }
    }
}

/// A GPU with what follows from its numbers (`rgpu.model-gpu/1`).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GpuDocument {
    /// Name and version of this schema: `rgpu.model-gpu/1`.
    pub schema: &'static str,
    /// The hardware file.
    pub hardware: Hardware,
    /// FLOP per byte of HBM traffic above which matrix multiplication limits, and not HBM, by
    /// format.
    pub ridge_flop_per_byte: BTreeMap<String, f64>,
    /// The rate of each link in one direction, in B/s, by kind.
    pub links_one_way: BTreeMap<&'static str, f64>,
    /// The bandwidth of each memory, in B/s, by tier.
    pub bandwidths: BTreeMap<String, f64>,
}

/// A hardware file with what follows from it.
#[must_use]
pub fn gpu_document(hardware: &Hardware) -> GpuDocument {
    let dense = hardware.compute.iter().map(|peak| peak.dtype);
    let ridge = |dtype: crate::Dtype| Some((dtype.to_string(), hardware.ridge(dtype.math())?));
    let link = |(name, kind)| Some((name, hardware.link(kind)?));
    let links = [("nvlink", LinkKind::Nvlink), ("host", LinkKind::Host), ("nic", LinkKind::Nic)];
    let bandwidth =
        |tier: Tier| Some((format!("{tier:?}").to_lowercase(), hardware.bandwidth(tier)?));
    GpuDocument {
        schema: "rgpu.model-gpu/1",
        hardware: hardware.clone(),
        ridge_flop_per_byte: dense.filter_map(ridge).collect(),
        links_one_way: links.into_iter().filter_map(link).collect(),
        bandwidths: hardware.memory.iter().filter_map(|memory| bandwidth(memory.tier)).collect(),
    }
}

/// All GPUs that can be named (`rgpu.model-gpus/1`).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GpuList {
    /// Name and version of this schema: `rgpu.model-gpus/1`.
    pub schema: &'static str,
    /// The GPUs of the catalogue.
    pub gpus: Vec<GpuLine>,
}

/// A GPU in a list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct GpuLine {
    /// The name that `--gpu` takes.
    pub id: String,
    /// The product's name.
    pub name: String,
    /// HBM capacity, in bytes.
    pub hbm_bytes: f64,
    /// HBM bandwidth, in B/s.
    pub hbm_bandwidth: f64,
    /// Dense BF16 peak, in FLOP/s.
    pub bf16: f64,
    /// Dense FP8 peak, in FLOP/s; 0 if the GPU has none.
    pub fp8: f64,
    /// Dense FP4 peak, in FLOP/s; 0 if the GPU has none.
    pub fp4: f64,
    /// NVLink rate in one direction, in B/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink: Option<f64>,
    /// `shipped`, or the file that defines it.
    pub from: String,
}

/// A line of a list. `None` if the file lacks a number that predictions need.
#[must_use]
pub fn gpu_line(hardware: &Hardware, from: &str) -> Option<GpuLine> {
    let gpu = hardware.gpu().ok()?;
    Some(GpuLine {
        id: hardware.id.clone(),
        name: hardware.name.clone(),
        hbm_bytes: gpu.hbm_bytes,
        hbm_bandwidth: gpu.hbm,
        bf16: gpu.peaks[MathKind::Half.index()],
        fp8: gpu.peaks[MathKind::Fp8.index()],
        fp4: gpu.peaks[MathKind::Fp4.index()],
        nvlink: gpu.nvlink,
        from: from.to_owned(),
    })
}

/// The result of checking hardware files and known results (`rgpu.model-check/1`).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CheckDocument {
    /// Name and version of this schema: `rgpu.model-check/1`.
    pub schema: &'static str,
    /// Whether no problem was found.
    pub passed: bool,
    /// Each checked file, GPU or known result.
    pub checks: Vec<CheckedItem>,
}

/// A checked file, GPU or known result.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CheckedItem {
    /// Its path or name.
    pub subject: String,
    /// The problems found; empty if there are none.
    pub problems: Vec<Problem>,
}

/// A kernel (`rgpu.model-kernel/1`).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct KernelDocument {
    /// Name and version of this schema: `rgpu.model-kernel/1`.
    pub schema: &'static str,
    /// The GPU's name in the catalogue.
    pub gpu: String,
    /// The kernel with its sizes.
    pub subject: String,
    /// The kind of kernel.
    pub op: OpKind,
    /// FLOPs that the result needs.
    pub flops: f64,
    /// Bytes that must cross HBM.
    pub bytes: f64,
    /// Arithmetic intensity, in FLOP per byte of HBM traffic.
    pub intensity: f64,
    /// The speed-of-light bound, in ns.
    pub bound_ns: f64,
    /// The predicted time, in ns.
    pub time_ns: f64,
    /// The range that covers 80 % of the measured times of rows held out of the fit. Absent
    /// without a calibration.
    pub likely_ns: Option<[f64; 2]>,
    /// One call of many in a row, where the power limit slows them.
    pub repeated: Option<RepeatedCall>,
    /// The longest term of the prediction.
    pub limited_by: LimitedBy,
    /// Whether measured efficiencies were used.
    pub calibration: CalibrationState,
    /// The tile of a matrix product: rows, columns, and the number of parts that the inner
    /// dimension is split into.
    pub tile: Option<Tile>,
    /// A measured time in relation to the bound. Absent without `--measured-us`.
    pub shares: Option<Shares>,
    /// Remarks, as sentences.
    pub notes: Vec<String>,
    /// The terms of the bound and of the prediction.
    pub terms: Vec<Term>,
}

/// A call among many in a row.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RepeatedCall {
    /// The predicted time of a call, in ns.
    pub time_ns: f64,
    /// The median SM clock that the power limit allowed in such calls, in MHz.
    pub clock_mhz: Option<f64>,
}

/// The tile of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Tile {
    /// Rows of the tile.
    pub rows: f64,
    /// Columns of the tile.
    pub columns: f64,
    /// Number of parts that the inner dimension is split into.
    pub split: f64,
}

/// A measured time in relation to the bound.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Shares {
    /// The measured time, in ns.
    pub measured_ns: f64,
    /// The bound at the specified clock, divided by the measured time: 1 is the speed of light.
    pub of_bound: f64,
    /// The measured clock, in MHz.
    pub clock_mhz: Option<f64>,
    /// The bound at the measured clock, divided by the measured time.
    pub of_bound_at_clock: Option<f64>,
}

/// Makes the document of a kernel.
#[must_use]
pub fn kernel_document(
    subject: String,
    time: &KernelTime,
    hardware: &Hardware,
    context: &Context<'_>,
) -> KernelDocument {
    let work = &time.work;
    let [rows, columns, split] = work.tile;
    KernelDocument {
        schema: "rgpu.model-kernel/1",
        gpu: hardware.id.clone(),
        subject,
        op: work.op,
        flops: work.flops,
        bytes: work.bytes,
        intensity: if work.bytes > 0.0 { work.flops / work.bytes } else { 0.0 },
        bound_ns: time.bound_ns(),
        time_ns: time.time_ns(),
        likely_ns: None,
        repeated: repeated_call(time, context),
        limited_by: time.limited_by(),
        calibration: CalibrationState::from_bool(time.is_calibrated),
        tile: (rows > 0.0).then_some(Tile { rows, columns, split }),
        shares: None,
        notes: Vec::new(),
        terms: time.terms(hardware, context.launch),
    }
}

/// A product among many in a row. `None` if the power limit does not slow it.
fn repeated_call(time: &KernelTime, context: &Context<'_>) -> Option<RepeatedCall> {
    let is_product = matches!(time.work.op, OpKind::Gemm | OpKind::GroupedGemm);
    let calibration = context.calibration.filter(|_| is_product && time.is_calibrated)?;
    let sustained = calibration.sustained(time.work.math)?;
    let time_ns = time.repeated(sustained).time_ns();
    (time_ns > time.time_ns()).then_some(RepeatedCall { time_ns, clock_mhz: sustained.clock_mhz })
}

/// A collective (`rgpu.model-collective/1`).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CollectiveDocument {
    /// Name and version of this schema: `rgpu.model-collective/1`.
    pub schema: &'static str,
    /// The GPU's name in the catalogue.
    pub gpu: String,
    /// The collective.
    pub op: Op,
    /// Number of ranks.
    pub gpus: f64,
    /// The size in bytes.
    pub bytes: f64,
    /// The bound by the links, in ns; reductions inside the switch are not considered.
    pub bound_ns: f64,
    /// The predicted time, in ns.
    pub time_ns: f64,
    /// The bus bandwidth as nccl-tests computes it, in B/s.
    pub bus_bandwidth: f64,
    /// The fastest algorithm; `measured` with a calibration.
    pub algorithm: Algorithm,
    /// The NCCL protocol of that algorithm; without a meaning for `measured`.
    pub protocol: Protocol,
    /// Whether a measured latency and rate were used.
    pub calibration: CalibrationState,
    /// Predictions for other sizes.
    pub sizes: Vec<SizeLine>,
    /// The terms of the prediction.
    pub terms: Vec<Term>,
}

/// A collective with one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SizeLine {
    /// The size in bytes.
    pub bytes: f64,
    /// The predicted time, in ns.
    pub time_ns: f64,
    /// The range that covers 80 % of the measured times of rows held out of the fit. Absent
    /// without a calibration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub likely_ns: Option<[f64; 2]>,
    /// Its speed-of-light bound in nanoseconds.
    pub bound_ns: f64,
    /// The bus bandwidth as nccl-tests computes it, in B/s.
    pub bus_bandwidth: f64,
    /// The fastest algorithm; `measured` with a calibration.
    pub algorithm: Algorithm,
    /// The NCCL protocol of that algorithm; without a meaning for `measured`.
    pub protocol: Protocol,
}

/// Makes the line of one size.
#[must_use]
pub fn size_line(time: &CollectiveTime) -> SizeLine {
    SizeLine {
        bytes: time.bytes,
        time_ns: time.time_ns(),
        likely_ns: None,
        bound_ns: time.bound_ns,
        bus_bandwidth: time.bus_bandwidth(),
        algorithm: time.algorithm,
        protocol: time.protocol,
    }
}

/// The document of a collective, with `sizes` beside it.
#[must_use]
pub fn collective_document(
    gpu: &str,
    time: &CollectiveTime,
    sizes: Vec<SizeLine>,
    link_source: &str,
) -> CollectiveDocument {
    CollectiveDocument {
        schema: "rgpu.model-collective/1",
        gpu: gpu.to_owned(),
        op: time.op,
        gpus: time.ranks,
        bytes: time.bytes,
        bound_ns: time.bound_ns,
        time_ns: time.time_ns(),
        bus_bandwidth: time.bus_bandwidth(),
        algorithm: time.algorithm,
        protocol: time.protocol,
        calibration: CalibrationState::from_bool(time.is_calibrated),
        sizes,
        terms: time.terms(link_source),
    }
}

/// The sizes of a model (`rgpu.model-config/1`).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ModelDocument {
    /// Name and version of this schema: `rgpu.model-config/1`.
    pub schema: &'static str,
    /// The architecture's name.
    pub architecture: String,
    /// Number of parameters.
    pub parameters: f64,
    /// Number of parameters that one token uses.
    pub active_parameters: f64,
    /// The hidden size, in elements.
    pub hidden: f64,
    /// The vocabulary size, in tokens.
    pub vocabulary: f64,
    /// Number of layers.
    pub layers: usize,
    /// The different kinds of layers.
    pub kinds: Vec<LayerKind>,
    /// The format of activations.
    pub dtype: crate::Dtype,
    /// The format of linear weights.
    pub linear_dtype: crate::Dtype,
    /// The format of experts' weights.
    pub expert_dtype: crate::Dtype,
    /// Bytes of KV cache a token in all layers, in the activations' format.
    pub kv_bytes_per_token: f64,
    /// The longest context, in tokens; absent if the config does not state it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_context: Option<u64>,
}

/// A kind of layer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LayerKind {
    /// Its attention and MLP in words.
    pub name: String,
    /// Number of layers of this kind.
    pub count: f64,
    /// Number of parameters of one such layer.
    pub parameters: f64,
}

/// A kind of layer in words, for example `grouped 32/8x128; gated 14336`.
#[must_use]
pub fn layer_name(layer: &crate::config::Layer) -> String {
    let attention = match layer.attention {
        AttentionShape::Grouped { heads, kv_heads, head_dim, window } => {
            let window = window.map(|w| format!(" window {w}")).unwrap_or_default();
            format!("grouped {heads}/{kv_heads}x{head_dim}{window}")
        }
        AttentionShape::Latent { heads, kv_rank, rope, .. } => {
            format!("latent {heads} heads, {kv_rank}+{rope}")
        }
    };
    let mlp = match layer.mlp {
        MlpShape::Gated { inner } => format!("gated {inner}"),
        MlpShape::Experts { experts, chosen, inner, shared } if shared > 0.0 => {
            format!("{chosen} of {experts} experts of {inner}, {shared} shared")
        }
        MlpShape::Experts { experts, chosen, inner, .. } => {
            format!("{chosen} of {experts} experts of {inner}")
        }
    };
    format!("{attention}; {mlp}")
}

/// Makes the document of a model.
#[must_use]
pub fn model_document(model: &Model) -> ModelDocument {
    let kinds = model.kinds.iter().enumerate().map(|(at, layer)| LayerKind {
        name: layer_name(layer),
        count: model.count(at),
        parameters: model.layer_parameters(layer),
    });
    let cached: f64 = model.layers().map(|layer| layer.attention.cached()).sum();
    ModelDocument {
        schema: "rgpu.model-config/1",
        architecture: model.architecture.clone(),
        parameters: model.parameters(),
        active_parameters: model.active_parameters(),
        hidden: model.hidden,
        vocabulary: model.vocabulary,
        layers: model.order.len(),
        kinds: kinds.filter(|kind| kind.count > 0.0).collect(),
        dtype: model.dtype,
        linear_dtype: model.linear_dtype,
        expert_dtype: model.expert_dtype,
        kv_bytes_per_token: model.dtype.bytes(1.0, cached),
        max_context: model.max_context,
    }
}

/// The prediction for a model on GPUs (`rgpu.model-llm/1`).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LlmDocument {
    /// Name and version of this schema: `rgpu.model-llm/1`.
    pub schema: &'static str,
    /// The GPU's name in the catalogue.
    pub gpu: String,
    /// The sizes of the model.
    pub model: ModelDocument,
    /// How the model is split over GPUs.
    pub parallelism: Parallelism,
    /// The memory of weights and KV cache.
    pub placement: Placement,
    /// Whether measured efficiencies were used for the first load that runs.
    pub calibration: CalibrationState,
    /// The result for each load.
    pub points: Vec<LoadPoint>,
    /// Prefill and decode of the first load that runs.
    pub phases: Vec<PhaseDocument>,
    /// The memory of every stage under that load.
    pub stages: Vec<StageMemory>,
    /// Other ways to spread the model over as many GPUs, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<Suggestion>,
    /// The definitions of the numbers, by name.
    pub definitions: BTreeMap<&'static str, &'static str>,
    /// Remarks, as sentences.
    pub notes: Vec<String>,
}

/// A load with its result.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LoadPoint {
    /// Prompt length, in tokens.
    pub input: f64,
    /// Output length, in tokens.
    pub output: f64,
    /// Number of concurrent requests.
    pub concurrency: f64,
    /// The performance. Absent if it cannot run.
    pub serving: Option<Serving>,
    /// The likely ranges of its times. Absent unless everything was calibrated.
    pub likely: Option<LikelyServing>,
    /// Why it cannot run. Absent if it runs.
    pub impossible: Option<String>,
}

/// The ranges of a server's times if all kernels and collectives are at the same end of the range
/// that holds 80 % of their held-out rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LikelyServing {
    /// The time to the first token, in ns.
    pub ttft_ns: [f64; 2],
    /// The time per output token, in ns.
    pub tpot_ns: [f64; 2],
    /// The time per output token with the prefills of other requests in between, in ns.
    pub tpot_mixed_ns: [f64; 2],
}

impl LikelyServing {
    /// The range between the predictions with both ends of a calibration.
    #[must_use]
    pub fn between(fast: &Serving, slow: &Serving) -> Self {
        let range = |of: fn(&Serving) -> f64| [of(fast), of(slow)];
        Self {
            ttft_ns: range(|serving| serving.ttft_ns),
            tpot_ns: range(|serving| serving.tpot_ns),
            tpot_mixed_ns: range(|serving| serving.tpot_mixed_ns),
        }
    }
}

/// A choice of parallelism.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Suggestion {
    /// How the model is split over GPUs.
    pub parallelism: Parallelism,
    /// The performance. Absent if it cannot run.
    pub serving: Option<Serving>,
    /// Why it cannot run. Absent if it runs.
    pub impossible: Option<String>,
}

impl From<Candidate> for Suggestion {
    fn from(candidate: Candidate) -> Self {
        let (serving, impossible) = match candidate.outcome {
            Ok(serving) => (Some(serving), None),
            Err(reason) => (None, Some(reason.to_string())),
        };
        Self { parallelism: candidate.parallelism, serving, impossible }
    }
}

/// A phase by kind of layer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PhaseDocument {
    /// The phase.
    pub phase: Phase,
    /// Number of sequences per step.
    pub sequences: f64,
    /// New tokens per sequence.
    pub queries: f64,
    /// Tokens per sequence that attention reads.
    pub keys: f64,
    /// The kinds of layers, then the embedding and the output.
    pub layers: Vec<LayerLine>,
}

/// One layer of a kind, the embedding, or the output.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LayerLine {
    /// Its attention and MLP in words.
    pub name: String,
    /// Number of such layers.
    pub count: f64,
    /// The sums over one layer.
    pub total: PhaseTime,
    /// Model FLOPs utilization, as a fraction of the bf16 peak.
    pub mfu: f64,
    /// Bytes of weights on one GPU, for one layer.
    pub weight_bytes: f64,
    /// KV cache of one token on one GPU, for one layer.
    pub kv_bytes_per_token: f64,
    /// Its kernels and collectives in order.
    pub parts: Vec<PartLine>,
}

/// A kernel or collective of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PartLine {
    /// The name of the kernel or collective.
    pub name: &'static str,
    /// The predicted time, in ns.
    pub time_ns: f64,
    /// The speed-of-light bound, in ns.
    pub bound_ns: f64,
    /// The longest term of the prediction.
    pub limited_by: LimitedBy,
    /// The terms of the prediction.
    pub terms: Vec<Term>,
}

/// The inputs of [`LlmParts::phase`].
pub struct LlmParts<'a> {
    /// The GPU's hardware file.
    pub hardware: &'a Hardware,
    /// The model.
    pub model: &'a Model,
    /// How the model runs.
    pub deployment: &'a Deployment,
    /// The GPU, calibration and launch mode of predictions.
    pub context: &'a Context<'a>,
}

impl LlmParts<'_> {
    /// Makes the document of one phase of a step.
    #[must_use]
    pub fn phase(&self, step: &Step, times: &crate::llm::layer::PhaseTimes) -> PhaseDocument {
        let (model, deployment, context) = (self.model, self.deployment, self.context);
        let peak = context.gpu.peaks[MathKind::Half.index()];
        let line = |name: String, count: f64, total: &PhaseTime, parts: Vec<PartLine>| LayerLine {
            name,
            count,
            total: *total,
            mfu: total.mfu(peak),
            weight_bytes: 0.0,
            kv_bytes_per_token: 0.0,
            parts,
        };
        let mut layers = Vec::new();
        for (at, (layer, total)) in model.kinds.iter().zip(&times.layers).enumerate() {
            let count = model.count(at);
            if count == 0.0 {
                continue;
            }
            let mut parts = Vec::new();
            visit_layer(model, layer, deployment, step, context, &mut |name, part| {
                parts.push(self.part(name, &part));
            });
            layers.push(LayerLine {
                weight_bytes: layer_weight_bytes(model, layer, deployment),
                kv_bytes_per_token: layer_kv_bytes(layer, deployment),
                ..line(layer_name(layer), count, total, parts)
            });
        }
        let mut parts = Vec::new();
        visit_embedding(model, deployment, step, context, &mut |name, part| {
            parts.push(self.part(name, &part));
        });
        layers.push(line("embedding".into(), 1.0, &times.embedding, parts));
        let mut parts = Vec::new();
        visit_head(model, deployment, step, context, &mut |name, part| {
            parts.push(self.part(name, &part));
        });
        layers.push(line("last norm and logits".into(), 1.0, &times.head, parts));
        PhaseDocument {
            phase: step.phase,
            sequences: step.sequences,
            queries: step.queries,
            keys: step.keys,
            layers,
        }
    }

    fn part(&self, name: &'static str, part: &StepOperation) -> PartLine {
        match part {
            StepOperation::Kernel(kernel) => PartLine {
                name,
                time_ns: kernel.time_ns(),
                bound_ns: kernel.bound_ns(),
                limited_by: kernel.limited_by(),
                terms: kernel.terms(self.hardware, self.context.launch),
            },
            StepOperation::Collective(collective) => PartLine {
                name,
                time_ns: collective.time_ns(),
                bound_ns: collective.bound_ns,
                limited_by: LimitedBy::Link,
                terms: collective.terms(&link_source(self.hardware)),
            },
            StepOperation::Fetch { tier, bytes, ns } => PartLine {
                name,
                time_ns: *ns,
                bound_ns: *ns,
                limited_by: LimitedBy::Link,
                terms: vec![Term {
                    name: "fetch",
                    ns: *ns,
                    counts: false,
                    formula: "Q / B, overlapped with the layer's kernels",
                    inputs: vec![
                        Input::computed("Q", *bytes, "B"),
                        Input::with_source(
                            "B",
                            bytes / ns * 1e9,
                            "B/s",
                            &format!("{tier:?} of {}", self.hardware.id),
                        ),
                    ],
                }],
            },
        }
    }
}

/// The source of the numbers of a GPU's links.
#[must_use]
pub fn link_source(hardware: &Hardware) -> String {
    let link = hardware.link.iter().find(|link| link.kind == LinkKind::Nvlink);
    let link = link.or_else(|| hardware.link.first());
    link.map(|link| hardware.source_text(&link.source)).unwrap_or_default()
}

/// The definitions of a server's numbers, by name.
#[must_use]
pub fn definitions() -> BTreeMap<&'static str, &'static str> {
    DEFINITIONS.iter().copied().collect()
}

/// The terms of a saved prediction (`rgpu.model-terms/1`).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TermsDocument {
    /// Name and version of this schema: `rgpu.model-terms/1`.
    pub schema: &'static str,
    /// The parts of the prediction that have terms.
    pub parts: Vec<PartTerms>,
}

/// The terms of one kernel or collective.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PartTerms {
    /// The part, with those that it belongs to: `prefill / grouped 32/8x128; gated 14336 / qkv`.
    pub part: String,
    /// Its terms, as the prediction has them.
    pub terms: Vec<serde_json::Value>,
}

/// Makes the point of a load from its result.
#[must_use]
pub fn load_point(load: &Load, outcome: &Result<Serving, String>) -> LoadPoint {
    LoadPoint {
        input: load.input,
        output: load.output,
        concurrency: load.concurrency,
        serving: outcome.as_ref().ok().copied(),
        likely: None,
        impossible: outcome.as_ref().err().cloned(),
    }
}
