//! Qwen 3 with experts.

use serde_json::Value;

use super::qwen::attention_layer;
use super::{Architecture, ConfigError, Fields, Layer, MlpShape, Model};

/// The reader for Qwen 3 MoE.
pub(super) static QWEN_MOE: Architecture = Architecture { names: &["Qwen3MoeForCausalLM"], read };

fn read(fields: &Fields<'_>) -> Result<Model, ConfigError> {
    let mut model = fields.model()?;
    let (experts, chosen) = fields.experts("num_experts", "num_experts_per_tok")?;
    let inner = fields.count("moe_intermediate_size")?;
    let dense = fields.count("intermediate_size")?;
    fields.ignore(&["max_window_layers", "norm_topk_prob", "layer_types"]);
    let layer = attention_layer(fields, &model)?;
    let routed = MlpShape::Experts { experts, chosen, inner, shared: 0.0 };
    model.kinds.push(Layer { mlp: routed, ..layer });
    model.kinds.push(Layer { mlp: MlpShape::Gated { inner: dense }, ..layer });
    let step = fields.optional_count("decoder_sparse_step")?.unwrap_or(1.0) as usize;
    let only_dense: Vec<u64> = fields
        .get("mlp_only_layers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_u64).collect())
        .unwrap_or_default();
    let kind = |layer: usize| {
        u8::from(only_dense.contains(&(layer as u64)) || !(layer + 1).is_multiple_of(step))
    };
    model.order = (0..fields.layers()?).map(kind).collect();
    Ok(model)
}
