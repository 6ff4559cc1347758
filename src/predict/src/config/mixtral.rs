//! Mixtral: Mistral with experts in every layer.

use super::{Architecture, AttentionShape, ConfigError, Fields, Layer, MlpShape, Model};

/// The reader for Mixtral.
pub(super) static MIXTRAL: Architecture = Architecture { names: &["MixtralForCausalLM"], read };

fn read(fields: &Fields<'_>) -> Result<Model, ConfigError> {
    let mut model = fields.model()?;
    let heads = fields.count("num_attention_heads")?;
    let (experts, chosen) = fields.experts("num_local_experts", "num_experts_per_tok")?;
    model.kinds.push(Layer {
        attention: AttentionShape::Grouped {
            heads,
            kv_heads: fields.kv_heads(heads)?,
            head_dim: fields.head_dim(model.hidden, heads)?,
            window: fields.optional_count("sliding_window")?,
        },
        mlp: MlpShape::Experts {
            experts,
            chosen,
            inner: fields.count("intermediate_size")?,
            shared: 0.0,
        },
        norms_and_biases: 2.0 * model.hidden,
    });
    fields.ignore(&["router_jitter_noise"]);
    model.order = vec![0; fields.layers()?];
    Ok(model)
}
