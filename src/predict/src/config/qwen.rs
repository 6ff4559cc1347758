//! Qwen 2, 2.5 and 3 without experts: biases on Q, K and V, or norms of queries and keys.

use super::{Architecture, AttentionShape, ConfigError, Fields, Layer, MlpShape, Model};

/// The reader for Qwen 2 and 3.
pub(super) static QWEN: Architecture =
    Architecture { names: &["Qwen2ForCausalLM", "Qwen3ForCausalLM"], read };

fn read(fields: &Fields<'_>) -> Result<Model, ConfigError> {
    let mut model = fields.model()?;
    let layer = Layer {
        mlp: MlpShape::Gated { inner: fields.count("intermediate_size")? },
        ..attention_layer(fields, &model)?
    };
    fields.ignore(&["max_window_layers", "layer_types"]);
    model.kinds.push(layer);
    model.order = vec![0; fields.layers()?];
    Ok(model)
}

/// A layer with the attention of Qwen, and an MLP that the caller replaces.
pub(super) fn attention_layer(fields: &Fields<'_>, model: &Model) -> Result<Layer, ConfigError> {
    let heads = fields.count("num_attention_heads")?;
    let kv_heads = fields.kv_heads(heads)?;
    let head_dim = fields.head_dim(model.hidden, heads)?;
    let is_first = model.architecture.starts_with("Qwen2");
    let biases = if is_first { head_dim * (heads + 2.0 * kv_heads) } else { 2.0 * head_dim };
    // The window is only used with the flag.
    fields.ignore(&["sliding_window"]);
    if fields.flag("use_sliding_window", false)? {
        return Err(ConfigError::Value {
            field: "use_sliding_window".into(),
            expected: "false: which layers have a window is not known",
            value: "true".into(),
        });
    }
    if fields.flag("attention_bias", false)? {
        return Err(ConfigError::Value {
            field: "attention_bias".into(),
            expected: "false",
            value: "true".into(),
        });
    }
    Ok(Layer {
        attention: AttentionShape::Grouped { heads, kv_heads, head_dim, window: None },
        mlp: MlpShape::Gated { inner: 0.0 },
        norms_and_biases: 2.0 * model.hidden + biases,
    })
}
