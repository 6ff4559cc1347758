//! What the kernels of a step take, layer by layer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Deployment, tier_rate};
use crate::Dtype;
use crate::collective::{self, CollectiveTime, Op};
use crate::config::{AttentionShape, Layer, MlpShape, Model};
use crate::hw::Tier;
use crate::kernel::launch::SmallOp;
use crate::kernel::{Attention, Context, Experts, Gemm, KernelTime, StreamingKernel};

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Reads prompts.
    Prefill,
    /// Makes one token a sequence.
    Decode,
}

/// One step of a replica: all its GPUs together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Which phase.
    pub phase: Phase,
    /// Sequences.
    pub sequences: f64,
    /// New tokens a sequence.
    pub queries: f64,
    /// Tokens a sequence that are seen, with the new ones.
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

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// A kernel.
    Kernel(KernelTime),
    /// A collective.
    Collective(CollectiveTime),
    /// Data that are not in HBM and must come first: bytes, and ns.
    Fetch {
        /// Where they are.
        tier: Tier,
        /// How many.
        bytes: f64,
        /// How long, beside the layer's kernels.
        ns: f64,
    },
}

/// Sums over parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PhaseTime {
    /// The predicted time.
    pub time_ns: f64,
    /// The speed of light.
    pub bound_ns: f64,
    /// The part of the time in collectives.
    pub collective_ns: f64,
    /// The part of the time in launches.
    pub launch_ns: f64,
    /// FLOPs of one GPU.
    pub flops: f64,
    /// Bytes over HBM of one GPU.
    pub bytes: f64,
    /// Launches.
    pub launches: f64,
    /// Whether every kernel and collective had measured efficiencies.
    pub is_calibrated: bool,
}

impl PhaseTime {
    /// Nothing yet.
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

    fn add(&mut self, part: &Part) {
        match part {
            Part::Kernel(kernel) => {
                self.time_ns += kernel.time_ns();
                self.bound_ns += kernel.bound_ns();
                self.launch_ns += kernel.launch_ns;
                self.flops += kernel.work.flops;
                self.bytes += kernel.work.bytes;
                self.launches += kernel.work.launches;
                self.is_calibrated &= kernel.is_calibrated;
            }
            Part::Collective(collective) => {
                self.time_ns += collective.time_ns();
                self.bound_ns += collective.bound_ns;
                self.collective_ns += collective.time_ns();
                self.is_calibrated &= collective.is_calibrated;
            }
            Part::Fetch { ns, .. } => {
                // Fetching runs beside the kernels, so only what is longer counts.
                self.time_ns = self.time_ns.max(*ns);
                self.bound_ns = self.bound_ns.max(*ns);
            }
        }
    }

    /// These sums `times` times, added to `self`.
    #[must_use]
    pub fn plus(mut self, other: &Self, times: f64) -> Self {
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

    /// The share of the peak that products reach.
    #[must_use]
    pub fn mfu(&self, peak: f64) -> f64 {
        if self.time_ns > 0.0 { self.flops / (self.time_ns / 1e9) / peak } else { 0.0 }
    }
}

/// A phase: one line for each kind of layer, the ends, and each stage.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseTimes {
    /// One layer of each kind, as in [`Model::kinds`].
    pub layers: Vec<PhaseTime>,
    /// The embedding, on the first stage.
    pub embedding: PhaseTime,
    /// The last norm and the output, on the last stage.
    pub head: PhaseTime,
    /// Every stage.
    pub stages: Vec<PhaseTime>,
    /// What one stage sends to the next.
    pub between: CollectiveTime,
}

impl PhaseTimes {
    /// The longest stage in ns.
    #[must_use]
    pub fn longest_stage_ns(&self) -> f64 {
        self.stages.iter().map(|stage| stage.time_ns).fold(0.0, f64::max)
    }

    /// All stages, one after the other, with what they send.
    #[must_use]
    pub fn through_ns(&self) -> f64 {
        let stages: f64 = self.stages.iter().map(|stage| stage.time_ns).sum();
        stages + (self.stages.len() as f64 - 1.0) * self.between.time_ns()
    }

    /// The same for the bound.
    #[must_use]
    pub fn through_bound_ns(&self) -> f64 {
        let stages: f64 = self.stages.iter().map(|stage| stage.bound_ns).sum();
        stages + (self.stages.len() as f64 - 1.0) * self.between.bound_ns
    }
}

/// What a step takes on every layer and stage.
#[must_use]
pub fn phase(
    model: &Model,
    deployment: &Deployment,
    step: &Step,
    context: &Context<'_>,
) -> PhaseTimes {
    let sum = |add: &dyn Fn(&mut dyn FnMut(&'static str, Part))| {
        let mut total = PhaseTime::ZERO;
        add(&mut |_, part| total.add(&part));
        total
    };
    let of_layer =
        |layer: &Layer| sum(&|visit| layer_parts(model, layer, deployment, step, context, visit));
    let layers: Vec<PhaseTime> = model.kinds.iter().map(of_layer).collect();
    let embedding = sum(&|visit| embedding_parts(model, deployment, step, context, visit));
    let head = sum(&|visit| head_parts(model, deployment, step, context, visit));
    let count = deployment.parallelism.pp as usize;
    let mut stages = Vec::with_capacity(count);
    for stage in 0..count {
        let mut total = PhaseTime::ZERO;
        for kind in &model.order[stage_layers(model.order.len(), count, stage)] {
            if let Some(layer) = layers.get(usize::from(*kind)) {
                total = total.plus(layer, 1.0);
            }
        }
        if stage == 0 {
            total = total.plus(&embedding, 1.0);
        }
        if stage + 1 == count {
            total = total.plus(&head, 1.0);
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

/// The parts of one layer, in their order.
pub fn layer_parts(
    model: &Model,
    layer: &Layer,
    deployment: &Deployment,
    step: &Step,
    context: &Context<'_>,
    visit: &mut dyn FnMut(&'static str, Part),
) {
    let parts = Parts { model, deployment, step, context };
    parts.attention(layer, visit);
    parts.mlp(layer, visit);
    parts.fetches(layer, visit);
}

struct Parts<'a> {
    model: &'a Model,
    deployment: &'a Deployment,
    step: &'a Step,
    context: &'a Context<'a>,
}

impl Parts<'_> {
    fn tp(&self) -> f64 {
        f64::from(self.deployment.parallelism.tp)
    }

    /// Tokens of the whole step.
    fn tokens(&self) -> f64 {
        self.step.sequences * self.step.queries
    }

    /// Sequences that one GPU attends to.
    fn own_sequences(&self) -> f64 {
        match self.deployment.parallelism.dp_attention {
            true => (self.step.sequences / self.tp()).ceil(),
            false => self.step.sequences,
        }
    }

    fn own_tokens(&self) -> f64 {
        self.own_sequences() * self.step.queries
    }

    /// GPUs that split one sequence's attention.
    fn attention_ways(&self) -> f64 {
        if self.deployment.parallelism.dp_attention { 1.0 } else { self.tp() }
    }

    fn small(&self, op: SmallOp, elements: f64) -> Part {
        let fusion = self.deployment.fusion;
        let kernel = StreamingKernel {
            is_norm: op == SmallOp::Norm,
            elements,
            passes: fusion.passes(op),
            flops: 0.0,
            dtype: self.model.dtype,
            launches: fusion.launches(op),
        };
        Part::Kernel(kernel.time(self.context))
    }

    /// A norm over the tokens of one GPU.
    fn norm(&self) -> Part {
        let parallelism = self.deployment.parallelism;
        let ways = if parallelism.sp && !parallelism.dp_attention { self.tp() } else { 1.0 };
        self.small(SmallOp::Norm, self.own_tokens() * self.model.hidden / ways)
    }

    fn product(&self, m: f64, n: f64, k: f64, weights: Dtype, launches: f64) -> Part {
        // Activations are narrowed to FP8 where the weights are FP8 or narrower and the GPU can
        // multiply them so; otherwise weights are widened.
        let a = match weights {
            Dtype::Fp8 | Dtype::Int8 | Dtype::Mxfp8 | Dtype::Nvfp4 => weights,
            _ => self.model.dtype,
        };
        let gemm = Gemm { m, n, k, a, b: weights, c: self.model.dtype };
        let mut work = gemm.work(self.context.gpu);
        work.launches = launches;
        Part::Kernel(work.time(self.context))
    }

    fn collective(&self, op: Op, bytes: f64) -> Part {
        Part::Collective(collective::predict(
            op,
            bytes,
            self.tp(),
            &self.deployment.topology,
            self.context.calibration,
        ))
    }

    /// The sum over GPUs that split a product, or with SP its two halves.
    fn reduce(&self, visit: &mut dyn FnMut(&'static str, Part)) {
        if self.tp() <= 1.0 {
            return;
        }
        let bytes = self.model.dtype.bytes(self.tokens(), self.model.hidden);
        if self.deployment.parallelism.sp {
            visit("reduce_scatter", self.collective(Op::ReduceScatter, bytes));
            visit("all_gather", self.collective(Op::AllGather, bytes));
        } else {
            visit("all_reduce", self.collective(Op::AllReduce, bytes));
        }
    }

    fn attention(&self, layer: &Layer, visit: &mut dyn FnMut(&'static str, Part)) {
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
                let qkv = head_dim * (heads + 2.0 * kv_heads);
                visit("qkv", self.product(tokens, qkv, hidden, weights, fusion.products(3.0)));
                visit("rope", self.small(SmallOp::Rope, tokens * qkv));
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
                visit("rope", self.small(SmallOp::Rope, tokens * (query + kv_rank + rope)));
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
        visit("attention", Part::Kernel(time.time(self.context)));
        if let (AttentionShape::Latent { heads, kv_rank, value, .. }, Phase::Decode) =
            (layer.attention, self.step.phase)
        {
            let each = Gemm {
                m: tokens,
                n: value,
                k: kv_rank,
                a: self.model.dtype,
                b: weights,
                c: self.model.dtype,
            };
            visit("v_absorb", self.batched(each, heads / ways));
        }
        visit("out", self.product(tokens, hidden, out, weights, fusion.products(1.0)));
        if !self.deployment.parallelism.dp_attention {
            self.reduce(visit);
        }
    }

    fn batched(&self, gemm: Gemm, times: f64) -> Part {
        let kind = crate::kernel::OpKind::Gemm;
        let mut work = crate::kernel::gemm::group_work(&[gemm], times, self.context.gpu, kind);
        work.launches = self.deployment.fusion.products(1.0);
        Part::Kernel(work.time(self.context))
    }

    fn mlp(&self, layer: &Layer, visit: &mut dyn FnMut(&'static str, Part)) {
        let (hidden, weights) = (self.model.hidden, self.model.linear_dtype);
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
                self.gated(tokens, inner, ["gate_up", "activation", "down"], weights, visit);
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
                    if fusion == crate::kernel::Fusion::Megakernel {
                        time.launch_ns = 0.0;
                        time.work.launches = 0.0;
                    }
                }
                visit("experts_gate_up", Part::Kernel(up));
                let rows = routed.most_rows(tokens);
                visit("experts_activation", self.small(SmallOp::Activation, rows * routed.inner));
                visit("experts_down", Part::Kernel(down));
                if shared > 0.0 {
                    let names = ["shared_gate_up", "shared_activation", "shared_down"];
                    self.gated(tokens, shared / tp, names, weights, visit);
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
        if !parallelism.dp_attention {
            self.reduce(visit);
        }
    }

    fn gated(
        &self,
        tokens: f64,
        inner: f64,
        names: [&'static str; 3],
        weights: Dtype,
        visit: &mut dyn FnMut(&'static str, Part),
    ) {
        let (hidden, fusion) = (self.model.hidden, self.deployment.fusion);
        visit(names[0], self.product(tokens, 2.0 * inner, hidden, weights, fusion.products(2.0)));
        visit(names[1], self.small(SmallOp::Activation, tokens * inner));
        visit(names[2], self.product(tokens, hidden, inner, weights, fusion.products(1.0)));
    }

    /// Weights and cache of the layer that are not in HBM.
    fn fetches(&self, layer: &Layer, visit: &mut dyn FnMut(&'static str, Part)) {
        let placement = self.deployment.placement;
        let rate = |tier| {
            tier_rate(self.context.gpu, tier, &self.deployment.topology).filter(|rate| *rate > 0.0)
        };
        if placement.weights != Tier::Hbm
            && let Some(rate) = rate(placement.weights)
        {
            let bytes = super::memory::layer_weight_bytes(self.model, layer, self.deployment);
            let ns = bytes / rate * 1e9;
            visit("fetch_weights", Part::Fetch { tier: placement.weights, bytes, ns });
        }
        if placement.kv != Tier::Hbm
            && let Some(rate) = rate(placement.kv)
        {
            let tokens = self.step.sequences * self.step.keys;
            let bytes = tokens * super::memory::layer_kv_bytes(layer, self.deployment);
            let ns = bytes / rate * 1e9;
            visit("fetch_kv", Part::Fetch { tier: placement.kv, bytes, ns });
        }
    }
}

/// The embedding.
pub fn embedding_parts(
    model: &Model,
    deployment: &Deployment,
    step: &Step,
    context: &Context<'_>,
    visit: &mut dyn FnMut(&'static str, Part),
) {
    let tokens = step.sequences * step.queries;
    let kernel = StreamingKernel {
        is_norm: false,
        elements: tokens * model.hidden,
        passes: 2.0,
        flops: 0.0,
        dtype: model.dtype,
        launches: deployment.fusion.products(1.0),
    };
    visit("embedding", Part::Kernel(kernel.time(context)));
}

/// The last norm, and the output for the last token of every sequence.
pub fn head_parts(
    model: &Model,
    deployment: &Deployment,
    step: &Step,
    context: &Context<'_>,
    visit: &mut dyn FnMut(&'static str, Part),
) {
    let parts = Parts { model, deployment, step, context };
    visit("norm_last", parts.norm());
    let vocabulary = model.vocabulary / parts.tp();
    let launches = deployment.fusion.products(1.0);
    let logits = parts.product(step.sequences, vocabulary, model.hidden, model.dtype, launches);
    visit("logits", logits);
    if parts.tp() > 1.0 {
        let bytes = model.dtype.bytes(step.sequences, model.vocabulary);
        visit("all_gather", parts.collective(Op::AllGather, bytes));
    }
}
