//! Models, read from a Hugging Face `config.json`.
//!
//! An architecture is one file in `config/` and one line in [`ARCHITECTURES`]. A field that an
//! architecture does not know is an error: it may change the model.

mod deepseek_v3;
pub mod fields;
mod gpt_oss;
mod llama;
mod mixtral;
mod qwen;
mod qwen_moe;

use std::ops::Range;

use serde_json::Value;

pub use fields::{ConfigError, Fields};

use crate::{Dtype, nearest};

/// A model architecture and the reader of its configs.
pub struct Architecture {
    /// The names that `architectures` of a config may have.
    pub names: &'static [&'static str],
    /// Builds the model from a config of this architecture.
    pub read: fn(&Fields<'_>) -> Result<Model, ConfigError>,
}

/// Every architecture whose configs can be read. To add one: write its file and add it here.
pub static ARCHITECTURES: &[&Architecture] = &[
    &llama::LLAMA,
    &qwen::QWEN,
    &qwen_moe::QWEN_MOE,
    &mixtral::MIXTRAL,
    &deepseek_v3::DEEPSEEK_V3,
    &gpt_oss::GPT_OSS,
];

/// The sizes of a layer's attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AttentionShape {
    /// Heads that share keys and values in groups; one head a group is multi-head attention.
    Grouped {
        /// Number of query heads.
        heads: f64,
        /// Number of heads of keys and values.
        kv_heads: f64,
        /// The head dimension, in elements.
        head_dim: f64,
        /// A query sees at most this many keys.
        window: Option<f64>,
    },
    /// One latent that all heads share (multi-head latent attention).
    Latent {
        /// Number of heads.
        heads: f64,
        /// The rank of queries; `None` if they are not compressed.
        query_rank: Option<f64>,
        /// The dimension of the latent, in elements.
        kv_rank: f64,
        /// The dimension of the part of a key without rotation.
        nope: f64,
        /// The dimension of the part of a key with rotation.
        rope: f64,
        /// The dimension of a value, in elements.
        value: f64,
    },
}

/// The sizes of a layer's MLP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MlpShape {
    /// Three matrices: gate, up and down.
    Gated {
        /// The intermediate size, in elements.
        inner: f64,
    },
    /// Routed experts, each gate, up and down.
    Experts {
        /// Number of routed experts.
        experts: f64,
        /// Number of routed experts that each token uses.
        chosen: f64,
        /// The intermediate size of one expert, in elements.
        inner: f64,
        /// The width inside the experts that every token takes; 0 if there are none.
        shared: f64,
    },
}

/// A kind of layer: layers with the same sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// The sizes of its attention.
    pub attention: AttentionShape,
    /// The sizes of its MLP.
    pub mlp: MlpShape,
    /// Number of parameters of its norms, biases and sinks.
    pub norms_and_biases: f64,
}

/// A decoder-only language model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The architecture's name in the config.
    pub architecture: String,
    /// The hidden size, in elements.
    pub hidden: f64,
    /// The vocabulary size, in tokens.
    pub vocabulary: f64,
    /// Whether the output shares the embedding's weights.
    pub is_tied: bool,
    /// The different kinds of layers.
    pub kinds: Vec<Layer>,
    /// The kind of each layer, as an index into `kinds`.
    pub order: Vec<u8>,
    /// The format of activations, norms and embeddings.
    pub dtype: Dtype,
    /// The format of the weights of attention, of gated MLPs and of shared experts.
    pub linear_dtype: Dtype,
    /// The format of the weights of routed experts.
    pub expert_dtype: Dtype,
    /// The longest context; `None` if the config does not tell.
    pub max_context: Option<u64>,
}

impl AttentionShape {
    /// Number of query heads.
    #[must_use]
    pub fn heads(&self) -> f64 {
        match *self {
            Self::Grouped { heads, .. } | Self::Latent { heads, .. } => heads,
        }
    }

    /// Number of weights of its matrices.
    #[must_use]
    pub fn parameters(&self, hidden: f64) -> f64 {
        match *self {
            Self::Grouped { heads, kv_heads, head_dim, .. } => {
                hidden * head_dim * (2.0 * heads + 2.0 * kv_heads)
            }
            Self::Latent { heads, query_rank, kv_rank, nope, rope, value } => {
                let query = heads * (nope + rope);
                let query = query_rank.map_or(hidden * query, |rank| rank * (hidden + query));
                query
                    + hidden * (kv_rank + rope)
                    + kv_rank * heads * (nope + value)
                    + heads * value * hidden
            }
        }
    }

    /// Elements of the KV cache for one token.
    #[must_use]
    pub fn cached(&self) -> f64 {
        match *self {
            Self::Grouped { kv_heads, head_dim, .. } => 2.0 * kv_heads * head_dim,
            Self::Latent { kv_rank, rope, .. } => kv_rank + rope,
        }
    }
}

impl MlpShape {
    /// Weights of its products that every token uses, without the router.
    #[must_use]
    pub fn dense_parameters(&self, hidden: f64) -> f64 {
        match *self {
            Self::Gated { inner } => 3.0 * hidden * inner,
            Self::Experts { shared, .. } => 3.0 * hidden * shared,
        }
    }

    /// Number of weights of the routed experts.
    #[must_use]
    pub fn expert_parameters(&self, hidden: f64) -> f64 {
        match *self {
            Self::Gated { .. } => 0.0,
            Self::Experts { experts, inner, .. } => 3.0 * hidden * inner * experts,
        }
    }

    /// Number of weights of the router.
    #[must_use]
    pub fn router_parameters(&self, hidden: f64) -> f64 {
        match *self {
            Self::Gated { .. } => 0.0,
            Self::Experts { experts, .. } => hidden * experts,
        }
    }

    /// Weights of the routed experts that one token uses.
    #[must_use]
    pub fn chosen_parameters(&self, hidden: f64) -> f64 {
        match *self {
            Self::Gated { .. } => 0.0,
            Self::Experts { chosen, inner, .. } => 3.0 * hidden * inner * chosen,
        }
    }
}

impl Model {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// The architecture is not known, a field is missing, wrong, contradictory or not known.
    pub fn from_config(config: &Value) -> Result<Self, ConfigError> {
        let fields = Fields::new(config)?;
        let name = fields.architecture()?;
        let known = || ARCHITECTURES.iter().flat_map(|a| a.names.iter().copied());
        let architecture = ARCHITECTURES.iter().find(|a| a.names.contains(&name.as_str()));
        let architecture = architecture.ok_or_else(|| ConfigError::Architecture {
            name: name.clone(),
            nearest: nearest(&name, known()).unwrap_or_default().to_owned(),
        })?;
        let model = (architecture.read)(&fields)?;
        fields.finish()?;
        Ok(model)
    }

    /// The layers in order.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.order.iter().filter_map(|kind| self.kinds.get(usize::from(*kind)))
    }

    /// The kinds of layers of a range of layers, each with its place in [`Model::kinds`] and the
    /// number of its layers there.
    pub fn kinds_in(&self, layers: Range<usize>) -> impl Iterator<Item = (usize, &Layer, f64)> {
        let order = &self.order[layers];
        self.kinds.iter().enumerate().filter_map(|(at, layer)| {
            let count = order.iter().filter(|kind| usize::from(**kind) == at).count();
            (count > 0).then_some((at, layer, count as f64))
        })
    }

    /// Number of layers of a kind.
    #[must_use]
    pub fn count(&self, kind: usize) -> f64 {
        self.order.iter().filter(|k| usize::from(**k) == kind).count() as f64
    }

    /// Number of all parameters.
    #[must_use]
    pub fn parameters(&self) -> f64 {
        let embeddings = if self.is_tied { 1.0 } else { 2.0 } * self.vocabulary * self.hidden;
        embeddings + self.hidden + self.sum(|layer| self.layer_parameters(layer))
    }

    /// Number of parameters that one token uses.
    #[must_use]
    pub fn active_parameters(&self) -> f64 {
        let unused = |layer: &Layer| {
            layer.mlp.expert_parameters(self.hidden) - layer.mlp.chosen_parameters(self.hidden)
        };
        self.parameters() - self.sum(unused)
    }

    /// Number of parameters of one layer.
    #[must_use]
    pub fn layer_parameters(&self, layer: &Layer) -> f64 {
        layer.attention.parameters(self.hidden)
            + layer.mlp.dense_parameters(self.hidden)
            + layer.mlp.expert_parameters(self.hidden)
            + layer.mlp.router_parameters(self.hidden)
            + layer.norms_and_biases
    }

    fn sum(&self, value: impl Fn(&Layer) -> f64) -> f64 {
        self.layers().map(value).sum()
    }
}
