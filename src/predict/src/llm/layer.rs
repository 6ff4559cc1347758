//! Predicts the kernels and collectives of a step, layer by layer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Deployment, tier_rate};
use crate::Dtype;
use crate::collective::{self, CollectiveTime, Op};
use crate::config::{AttentionShape, Layer, MlpShape, Model};
use crate::hw::Tier;
use crate::kernel::gemm::group_work;
use crate::kernel::launch::SmallOp;
use crate::kernel::{
    Attention, Context, Experts, Fusion, Gemm, KernelTime, OpKind, QuantizedGemm, StreamingKernel,
};

/// The phase that a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Reads prompts.
    Prefill,
    /// Makes one token per sequence.
    Decode,
}

/// One step of a replica (all GPUs that run one copy of the model).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Whether it reads prompts or generates tokens.
    pub phase: Phase,
    /// Number of sequences.
    pub sequences: f64,
    /// New tokens per sequence.
    pub queries: f64,
    /// Tokens per sequence that attention reads, including the new ones.
    pub keys: f64,
}

impl Step {
    /// The prompts of `sequences` requests.
    #[must_use]
    pub fn prefill(sequences: f64, tokens: f64) -> Self {
        Self { phase: Phase::Prefill, sequences, queries: tokens, keys: tokens }
    }

    /// The next token of `sequences` requests.
    #[must_use]
    pub fn decode(sequences: f64, context: f64) -> Self {
        Self { phase: Phase::Decode, sequences, queries: 1.0, keys: context }
    }
}

/// One operation of a step: a kernel, a collective or a fetch.
// Most of them are kernels, so boxing those would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepOperation {
    /// A kernel.
    Kernel(KernelTime),
    /// A collective.
    Collective(CollectiveTime),
    /// A transfer of data that are not in HBM and are needed first.
    Fetch {
        /// The memory that holds the data.
        tier: Tier,
        /// Number of bytes.
        bytes: f64,
        /// Time in ns. It overlaps with the layer's kernels.
        ns: f64,
    },
}

/// Sums over the operations of a step on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PhaseTime {
    /// The predicted time in ns.
    pub time_ns: f64,
    /// The speed-of-light bound in ns.
    pub bound_ns: f64,
    /// The time in collectives, in ns.
    pub collective_ns: f64,
    /// The launch overhead, in ns.
    pub launch_ns: f64,
    /// Number of floating-point operations.
    pub flops: f64,
    /// Bytes moved over HBM.
    pub bytes: f64,
    /// Number of launches.
    pub launches: f64,
    /// Whether every kernel and collective had measured efficiencies.
    pub is_calibrated: bool,
}

impl PhaseTime {
    /// The time of no operations: 0 in every part.
    pub const ZERO: Self = Self {
        time_ns: 0.0,
        bound_ns: 0.0,
        collective_ns: 0.0,
        launch_ns: 0.0,
        flops: 0.0,
        bytes: 0.0,
        launches: 0.0,
        is_calibrated: true,
    };

    fn add(&mut self, part: &StepOperation) {
        match part {
            StepOperation::Kernel(kernel) => {
                self.time_ns += kernel.time_ns();
                self.bound_ns += kernel.bound_ns();
                self.launch_ns += kernel.launch_ns;
                self.flops += kernel.work.flops;
                self.bytes += kernel.work.bytes;
                self.launches += kernel.work.launches;
                self.is_calibrated &= kernel.is_calibrated;
            }
            StepOperation::Collective(collective) => {
                self.time_ns += collective.time_ns();
                self.bound_ns += collective.bound_ns;
                self.collective_ns += collective.time_ns();
                self.is_calibrated &= collective.is_calibrated;
            }
            StepOperation::Fetch { ns, .. } => {
                // Fetching runs beside the kernels, so only what is longer counts.
                self.time_ns = self.time_ns.max(*ns);
                self.bound_ns = self.bound_ns.max(*ns);
            }
        }
    }

    /// Adds `other`, multiplied by `times`.
    #[must_use]
    pub fn add_scaled(mut self, other: &Self, times: f64) -> Self {
        self.time_ns += other.time_ns * times;
        self.bound_ns += other.bound_ns * times;
        self.collective_ns += other.collective_ns * times;
        self.launch_ns += other.launch_ns * times;
        self.flops += other.flops * times;
        self.bytes += other.bytes * times;
        self.launches += other.launches * times;
        self.is_calibrated &= other.is_calibrated;
        self
    }

    /// Model FLOPs utilization: the FLOPs per second, as a fraction of `peak`.
    #[must_use]
    pub fn mfu(&self, peak: f64) -> f64 {
        if self.time_ns > 0.0 { self.flops / (self.time_ns / 1e9) / peak } else { 0.0 }
    }
}

/// The times of a phase (prefill or decode) by layer kind, end and pipeline stage.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseTimes {
    /// One layer of each kind, as in [`Model::kinds`].
    pub layers: Vec<PhaseTime>,
    /// The embedding, on the first stage.
    pub embedding: PhaseTime,
    /// The last norm and the output, on the last stage.
    pub head: PhaseTime,
    /// Each pipeline stage, in order.
    pub stages: Vec<PhaseTime>,
    /// The transfer from one stage to the next; zero with one stage.
    pub between: CollectiveTime,
}

impl PhaseTimes {
    /// The time of the longest stage, in ns.
    #[must_use]
    pub fn longest_stage_ns(&self) -> f64 {
        self.stages.iter().map(|stage| stage.time_ns).fold(0.0, f64::max)
    }

    /// Time of one micro-batch through all stages, in ns, including the transfers between them.
    #[must_use]
    pub fn pipeline_latency_ns(&self) -> f64 {
        let stages: f64 = self.stages.iter().map(|stage| stage.time_ns).sum();
        stages + (self.stages.len() as f64 - 1.0) * self.between.time_ns()
    }

    /// Number of launches of all stages.
    #[must_use]
    pub fn launches(&self) -> f64 {
        self.stages.iter().map(|stage| stage.launches).sum()
    }

    /// Whether all stages had measured efficiencies.
    #[must_use]
    pub fn is_calibrated(&self) -> bool {
        self.stages.iter().all(|stage| stage.is_calibrated)
    }

    /// The speed-of-light bound of [`PhaseTimes::pipeline_latency_ns`].
    #[must_use]
    pub fn pipeline_latency_bound_ns(&self) -> f64 {
        let stages: f64 = self.stages.iter().map(|stage| stage.bound_ns).sum();
        stages + (self.stages.len() as f64 - 1.0) * self.between.bound_ns
    }
}

/// Predicts a step on every kind of layer and every stage.
#[must_use]
pub fn phase(
    model: &Model,
    deployment: &Deployment,
    step: &Step,
    context: &Context<'_>,
) -> PhaseTimes {
    let mut layers = Vec::with_capacity(model.kinds.len());
    for layer in &model.kinds {
        let mut total = PhaseTime::ZERO;
        visit_layer(model, layer, deployment, step, context, &mut |_, part| total.add(&part));
        layers.push(total);
    }
    let (mut embedding, mut head) = (PhaseTime::ZERO, PhaseTime::ZERO);
    visit_embedding(model, deployment, step, context, &mut |_, part| embedding.add(&part));
    visit_head(model, deployment, step, context, &mut |_, part| head.add(&part));
    let count = deployment.parallelism.pp as usize;
    let mut stages = Vec::with_capacity(count);
    for stage in 0..count {
        let mut total = PhaseTime::ZERO;
        for (kind, _, times) in model.kinds_in(stage_layers(model.order.len(), count, stage)) {
            total = total.add_scaled(&layers[kind], times);
        }
        if stage == 0 {
            total = total.add_scaled(&embedding, 1.0);
        }
        if stage + 1 == count {
            total = total.add_scaled(&head, 1.0);
        }
        stages.push(total);
    }
    let tokens = step.sequences * step.queries;
    let sent = model.dtype.bytes(tokens, model.hidden) / f64::from(deployment.parallelism.tp);
    let between = match count {
        0 | 1 => CollectiveTime::none(Op::P2p),
        _ => {
            // Neighbouring stages lie in one domain as long as the model does.
            let ranks = if deployment.topology.nodes(deployment.parallelism.gpus()) > 1.0 {
                deployment.topology.domain + 1.0
            } else {
                2.0
            };
            collective::predict(Op::P2p, sent, ranks, &deployment.topology, context.calibration)
        }
    };
    PhaseTimes { layers, embedding, head, stages, between }
}

/// The layers of a stage: as even as possible, the first stages have one more.
#[must_use]
pub fn stage_layers(layers: usize, stages: usize, stage: usize) -> std::ops::Range<usize> {
    let (each, more) = (layers / stages, layers % stages);
    let start = stage * each + stage.min(more);
    start..start + each + usize::from(stage < more)
}

/// Passes the operations of one layer to `visit`, in order, each with its name.
pub fn visit_layer(
    model: &Model,
    layer: &Layer,
    deployment: &Deployment,
    step: &Step,
    context: &Context<'_>,
    visit: &mut impl FnMut(&'static str, StepOperation),
) {
    let visitor = LayerVisitor { model, deployment, step, context };
    let reduction = visitor.reduction();
    visitor.attention(layer, visit);
    reduction.into_iter().flatten().for_each(|(name, part)| visit(name, part));
    visitor.mlp(layer, visit);
    reduction.into_iter().flatten().for_each(|(name, part)| visit(name, part));
    visitor.fetches(layer, visit);
}

/// Passes the operations of a layer to a callback.
struct LayerVisitor<'a> {
    model: &'a Model,
    deployment: &'a Deployment,
    step: &'a Step,
    context: &'a Context<'a>,
}

impl LayerVisitor<'_> {
    fn tp(&self) -> f64 {
        f64::from(self.deployment.parallelism.tp)
    }

    /// Tokens of the whole step.
    fn tokens(&self) -> f64 {
        self.step.sequences * self.step.queries
    }

    /// Sequences that one GPU attends to.
    fn own_sequences(&self) -> f64 {
        if self.deployment.parallelism.dp_attention {
            (self.step.sequences / self.tp()).ceil()
        } else {
            self.step.sequences
        }
    }

    fn own_tokens(&self) -> f64 {
        self.own_sequences() * self.step.queries
    }

    /// GPUs that split one sequence's attention.
    fn attention_ways(&self) -> f64 {
        if self.deployment.parallelism.dp_attention { 1.0 } else { self.tp() }
    }

    fn small(&self, op: SmallOp, elements: f64) -> StepOperation {
        let fusion = self.deployment.fusion;
        let kernel = StreamingKernel {
            op: fusion.kind(op),
            elements,
            passes: fusion.passes(op),
            flops: 0.0,
            dtype: self.model.dtype,
            launches: fusion.launches(op),
        };
        StepOperation::Kernel(kernel.time(self.context))
    }

    /// The rotation of queries and keys and the write of keys and values into the cache: one
    /// kernel, or, where nothing shares a kernel, many. The widths are those of one token.
    fn rotation(
        &self,
        [queries, keys, values]: [f64; 3],
        tokens: f64,
        visit: &mut impl FnMut(&'static str, StepOperation),
    ) {
        if self.deployment.fusion == Fusion::Eager {
            visit("rope", self.small(SmallOp::Rope, tokens * (queries + keys)));
            visit("cache_write", self.small(SmallOp::CacheWrite, tokens * (keys + values)));
        } else {
            visit("rope", self.small(SmallOp::Rope, tokens * (queries + keys + values)));
        }
    }

    /// A norm over the tokens of one GPU.
    fn norm(&self) -> StepOperation {
        let parallelism = self.deployment.parallelism;
        let ways = if parallelism.sp && !parallelism.dp_attention { self.tp() } else { 1.0 };
        self.small(SmallOp::Norm, self.own_tokens() * self.model.hidden / ways)
    }

    fn product(&self, m: f64, n: f64, k: f64, weights: Dtype, launches: f64) -> StepOperation {
        // Activations are narrowed to FP8 where the weights are FP8 or narrower and the GPU can
        // multiply them so; otherwise weights are widened.
        let a = match weights {
            Dtype::Fp8 | Dtype::Int8 | Dtype::Mxfp8 | Dtype::Nvfp4 => weights,
            _ => self.model.dtype,
        };
        let gemm = Gemm { m, n, k, batch: 1.0, a, b: weights, c: self.model.dtype };
        let gpu = self.context.gpu;
        let mut work = if a.bits() < self.model.dtype.bits() && gpu.math(a) == a.math() {
            QuantizedGemm { gemm, activations: self.model.dtype }.work(gpu)
        } else {
            gemm.work(self.context)
        };
        work.launches *= launches;
        StepOperation::Kernel(work.time(self.context))
    }

    fn collective(&self, op: Op, bytes: f64) -> StepOperation {
        StepOperation::Collective(collective::predict(
            op,
            bytes,
            self.tp(),
            &self.deployment.topology,
            self.context.calibration,
        ))
    }

    /// The sum over GPUs that split a product, or with SP its two halves. A layer has it twice.
    fn reduction(&self) -> [Option<(&'static str, StepOperation)>; 2] {
        let parallelism = self.deployment.parallelism;
        if parallelism.tp <= 1 || parallelism.dp_attention {
            return [None, None];
        }
        let bytes = self.model.dtype.bytes(self.tokens(), self.model.hidden);
        if parallelism.sp {
            let scatter = self.collective(Op::ReduceScatter, bytes);
            let gather = self.collective(Op::AllGather, bytes);
            [Some(("reduce_scatter", scatter)), Some(("all_gather", gather))]
        } else {
            [Some(("all_reduce", self.collective(Op::AllReduce, bytes))), None]
        }
    }

    fn attention(&self, layer: &Layer, visit: &mut impl FnMut(&'static str, StepOperation)) {
        let (hidden, weights) = (self.model.hidden, self.model.linear_dtype);
        let (tokens, ways) = (self.own_tokens(), self.attention_ways());
        let fusion = self.deployment.fusion;
        let mut attention = Attention {
            batch: self.own_sequences(),
            queries: self.step.queries,
            keys: self.step.keys,
            kind: self.deployment.attention,
            ..Attention::new(1.0, 1.0, 1.0, self.model.dtype)
        };
        attention.kv_dtype = self.deployment.kv_dtype;
        visit("norm_attention", self.norm());
        let out = match layer.attention {
            AttentionShape::Grouped { heads, kv_heads, head_dim, window } => {
                let heads = heads / ways;
                // A KV head is copied where there are more GPUs than heads.
                let kv_heads = (kv_heads / ways).max(1.0);
                let kv = kv_heads * head_dim;
                let each = [("q", heads * head_dim), ("k", kv), ("v", kv)];
                self.products("qkv", &each, tokens, visit);
                self.rotation([heads * head_dim, kv, kv], tokens, visit);
                attention.heads = heads;
                attention.kv_heads = kv_heads;
                (attention.key_dim, attention.value_dim) = (head_dim, head_dim);
                attention.cached = 2.0 * head_dim;
                attention.window = window;
                heads * head_dim
            }
            AttentionShape::Latent { heads, query_rank, kv_rank, nope, rope, value } => {
                let heads = heads / ways;
                let narrow = query_rank.unwrap_or(0.0) + kv_rank + rope;
                let down = self.product(tokens, narrow, hidden, weights, fusion.products(2.0));
                visit("qkv_down", down);
                let query = heads * (nope + rope);
                let from = query_rank.unwrap_or(hidden);
                visit("q_up", self.product(tokens, query, from, weights, fusion.products(1.0)));
                self.rotation([query, kv_rank + rope, 0.0], tokens, visit);
                attention.heads = heads;
                attention.kv_heads = 1.0;
                attention.cached = kv_rank + rope;
                if self.step.phase == Phase::Decode {
                    // Keys and values stay latent: queries are taken into the latent's space and
                    // results back, head by head.
                    let each = |n, k| Gemm {
                        m: tokens,
                        n,
                        k,
                        batch: 1.0,
                        a: self.model.dtype,
                        b: weights,
                        c: self.model.dtype,
                    };
                    let absorb = self.batched(each(kv_rank, nope), heads);
                    visit("q_absorb", absorb);
                    (attention.key_dim, attention.value_dim) = (kv_rank + rope, kv_rank);
                } else {
                    let up = heads * (nope + value);
                    visit(
                        "kv_up",
                        self.product(tokens, up, kv_rank, weights, fusion.products(1.0)),
                    );
                    (attention.key_dim, attention.value_dim) = (nope + rope, value);
                    // Prefill reads the keys and values that it has just made.
                    attention.kv_heads = heads;
                    attention.cached = nope + rope + value;
                }
                heads * value
            }
        };
        let mut time = attention.work(self.context.gpu);
        time.launches *= fusion.products(1.0);
        visit("attention", StepOperation::Kernel(time.time(self.context)));
        if let (AttentionShape::Latent { heads, kv_rank, value, .. }, Phase::Decode) =
            (layer.attention, self.step.phase)
        {
            let each = Gemm {
                m: tokens,
                n: value,
                k: kv_rank,
                batch: 1.0,
                a: self.model.dtype,
                b: weights,
                c: self.model.dtype,
            };
            visit("v_absorb", self.batched(each, heads / ways));
        }
        visit("out", self.product(tokens, hidden, out, weights, fusion.products(1.0)));
    }

    fn batched(&self, gemm: Gemm, times: f64) -> StepOperation {
        let mut work = group_work(&[gemm], times, self.context, OpKind::Gemm);
        work.launches = self.deployment.fusion.products(1.0);
        StepOperation::Kernel(work.time(self.context))
    }

    fn mlp(&self, layer: &Layer, visit: &mut impl FnMut(&'static str, StepOperation)) {
        let hidden = self.model.hidden;
        let (tokens, tp) = (self.tokens(), self.tp());
        let parallelism = self.deployment.parallelism;
        let fusion = self.deployment.fusion;
        visit("norm_mlp", self.norm());
        let activations = |tokens: f64| self.model.dtype.bytes(tokens, hidden);
        let has_exchange = parallelism.dp_attention && tp > 1.0;
        let is_routed = matches!(layer.mlp, MlpShape::Experts { .. }) && parallelism.ep > 1;
        if has_exchange && !is_routed {
            visit("all_gather", self.collective(Op::AllGather, activations(tokens)));
        }
        match layer.mlp {
            MlpShape::Gated { inner } => {
                let inner = inner / tp;
                let names = ["gate_up", "gate", "up", "activation", "down"];
                self.gated(tokens, inner, names, visit);
            }
            MlpShape::Experts { experts, chosen, inner, shared } => {
                let dtype = self.model.dtype;
                let router = self.product(tokens, experts, hidden, dtype, fusion.products(1.0));
                visit("router", router);
                visit("route", self.small(SmallOp::Route, tokens * experts));
                if has_exchange && is_routed {
                    let bytes = activations(self.own_tokens() * chosen);
                    visit("dispatch", self.collective(Op::AllToAll, bytes));
                }
                let ways = f64::from(parallelism.ep);
                let routed = Experts {
                    experts,
                    chosen,
                    hidden,
                    inner: inner / (tp / ways),
                    expert_ranks: ways,
                    a: match self.model.expert_dtype {
                        Dtype::Fp8 | Dtype::Int8 | Dtype::Mxfp8 | Dtype::Nvfp4 => {
                            self.model.expert_dtype
                        }
                        _ => dtype,
                    },
                    b: self.model.expert_dtype,
                };
                let [mut up, mut down] = routed.products(tokens, self.context);
                for time in [&mut up, &mut down] {
                    if fusion == Fusion::Megakernel {
                        time.launch_ns = 0.0;
                        time.work.launches = 0.0;
                    }
                }
                visit("experts_gate_up", StepOperation::Kernel(up));
                let rows = routed.most_rows(tokens);
                visit("experts_activation", self.small(SmallOp::Activation, rows * routed.inner));
                visit("experts_down", StepOperation::Kernel(down));
                if shared > 0.0 {
                    let names = [
                        "shared_gate_up",
                        "shared_gate",
                        "shared_up",
                        "shared_activation",
                        "shared_down",
                    ];
                    self.gated(tokens, shared / tp, names, visit);
                }
                if has_exchange && is_routed {
                    let bytes = activations(self.own_tokens() * chosen);
                    visit("combine", self.collective(Op::AllToAll, bytes));
                }
            }
        }
        if has_exchange && !is_routed {
            visit("reduce_scatter", self.collective(Op::ReduceScatter, activations(tokens)));
        }
    }

    fn gated(
        &self,
        tokens: f64,
        inner: f64,
        [gate_up, gate, up, activation, down]: [&'static str; 5],
        visit: &mut impl FnMut(&'static str, StepOperation),
    ) {
        let (hidden, weights) = (self.model.hidden, self.model.linear_dtype);
        let launches = self.deployment.fusion.products(1.0);
        self.products(gate_up, &[(gate, inner), (up, inner)], tokens, visit);
        visit(activation, self.small(SmallOp::Activation, tokens * inner));
        visit(down, self.product(tokens, hidden, inner, weights, launches));
    }

    /// Products of the same activations, each with its name and width: one kernel, or, where
    /// nothing shares a kernel, one for each.
    fn products(
        &self,
        joint: &'static str,
        each: &[(&'static str, f64)],
        tokens: f64,
        visit: &mut impl FnMut(&'static str, StepOperation),
    ) {
        let (hidden, weights) = (self.model.hidden, self.model.linear_dtype);
        if self.deployment.fusion == Fusion::Eager {
            for (name, width) in each {
                visit(name, self.product(tokens, *width, hidden, weights, 1.0));
            }
        } else {
            let width = each.iter().map(|(_, width)| width).sum();
            let launches = self.deployment.fusion.products(1.0);
            visit(joint, self.product(tokens, width, hidden, weights, launches));
        }
    }

    /// Weights and cache of the layer that are not in HBM.
    fn fetches(&self, layer: &Layer, visit: &mut impl FnMut(&'static str, StepOperation)) {
        let placement = self.deployment.placement;
        let rate = |tier| {
            tier_rate(self.context.gpu, tier, &self.deployment.topology).filter(|rate| *rate > 0.0)
        };
        if placement.weights != Tier::Hbm
            && let Some(rate) = rate(placement.weights)
        {
            let bytes = super::memory::layer_weight_bytes(self.model, layer, self.deployment);
            let ns = bytes / rate * 1e9;
            visit("fetch_weights", StepOperation::Fetch { tier: placement.weights, bytes, ns });
        }
        if placement.kv != Tier::Hbm
            && let Some(rate) = rate(placement.kv)
        {
            let tokens = self.step.sequences * self.step.keys;
            let bytes = tokens * super::memory::layer_kv_bytes(layer, self.deployment);
            let ns = bytes / rate * 1e9;
            visit("fetch_kv", StepOperation::Fetch { tier: placement.kv, bytes, ns });
        }
    }
}

/// Tensor operations of Hugging Face's `LlamaRotaryEmbedding`, once for all layers: a cast, a
/// product, concatenate, cosine, sine, two scalings, two casts.
const ROTATION_TABLE_LAUNCHES: f64 = 9.0;

/// Passes the operations of the embedding to `visit`.
pub fn visit_embedding(
    model: &Model,
    deployment: &Deployment,
    step: &Step,
    context: &Context<'_>,
    visit: &mut impl FnMut(&'static str, StepOperation),
) {
    let tokens = step.sequences * step.queries;
    let is_eager = deployment.fusion == Fusion::Eager;
    let kernel = StreamingKernel {
        op: if is_eager { OpKind::EagerModule } else { OpKind::Elementwise },
        elements: tokens * model.hidden,
        passes: 2.0,
        flops: 0.0,
        dtype: model.dtype,
        launches: deployment.fusion.products(1.0 + ROTATION_TABLE_LAUNCHES),
    };
    visit("embedding", StepOperation::Kernel(kernel.time(context)));
}

/// Passes the last norm, and the output for the last token of every sequence, to `visit`.
pub fn visit_head(
    model: &Model,
    deployment: &Deployment,
    step: &Step,
    context: &Context<'_>,
    visit: &mut impl FnMut(&'static str, StepOperation),
) {
    let visitor = LayerVisitor { model, deployment, step, context };
    visit("norm_last", visitor.norm());
    let vocabulary = model.vocabulary / visitor.tp();
    let launches = deployment.fusion.products(1.0);
    let logits = visitor.product(step.sequences, vocabulary, model.hidden, model.dtype, launches);
    visit("logits", logits);
    if visitor.tp() > 1.0 {
        let bytes = model.dtype.bytes(step.sequences, model.vocabulary);
        visit("all_gather", visitor.collective(Op::AllGather, bytes));
    }
}
