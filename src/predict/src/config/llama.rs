//! Llama 2 and 3, and Mistral: grouped heads and a gated MLP in every layer.

use super::{Architecture, AttentionShape, ConfigError, Fields, Layer, MlpShape, Model};

/// The reader for Llama and Mistral.
pub(super) static LLAMA: Architecture =
    Architecture { names: &["LlamaForCausalLM", "MistralForCausalLM"], read };

fn read(fields: &Fields<'_>) -> Result<Model, ConfigError> {
    let mut model = fields.model()?;
    let heads = fields.count("num_attention_heads")?;
    let kv_heads = fields.kv_heads(heads)?;
    let head_dim = fields.head_dim(model.hidden, heads)?;
    let inner = fields.count("intermediate_size")?;
    let mut norms_and_biases = 2.0 * model.hidden;
    if fields.flag("attention_bias", false)? {
        norms_and_biases += head_dim * (heads + 2.0 * kv_heads) + model.hidden;
    }
    if fields.flag("mlp_bias", false)? {
        norms_and_biases += 2.0 * inner + model.hidden;
    }
    model.kinds.push(Layer {
        attention: AttentionShape::Grouped {
            heads,
            kv_heads,
            head_dim,
            window: fields.optional_count("sliding_window")?,
        },
        mlp: MlpShape::Gated { inner },
        norms_and_biases,
    });
    model.order = vec![0; fields.layers()?];
    Ok(model)
}
