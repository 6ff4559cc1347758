//! gpt-oss: windows in every other layer, sinks, biases, and experts in MXFP4.

use serde_json::Value;

use super::{Architecture, AttentionShape, ConfigError, Fields, Layer, MlpShape, Model};

/// The reader for gpt-oss.
pub(super) static GPT_OSS: Architecture = Architecture { names: &["GptOssForCausalLM"], read };

fn read(fields: &Fields<'_>) -> Result<Model, ConfigError> {
    let mut model = fields.model()?;
    let hidden = model.hidden;
    let heads = fields.count("num_attention_heads")?;
    let kv_heads = fields.kv_heads(heads)?;
    let head_dim = fields.head_dim(hidden, heads)?;
    let (experts, chosen) = fields.experts("num_local_experts", "num_experts_per_tok")?;
    let inner = fields.count("intermediate_size")?;
    let window = Some(fields.count("sliding_window")?);
    if let Some(also) = fields.optional_count("experts_per_token")?.filter(|also| *also != chosen) {
        return Err(ConfigError::Contradiction {
            field: "experts_per_token".into(),
            other: "num_experts_per_tok".into(),
            text: format!("{also} is not {chosen}"),
        });
    }
    let mut norms_and_biases = 2.0 * hidden + heads + experts + experts * (2.0 * inner + hidden);
    if fields.flag("attention_bias", true)? {
        norms_and_biases += head_dim * (heads + 2.0 * kv_heads) + hidden;
    }
    let layer = |window| Layer {
        attention: AttentionShape::Grouped { heads, kv_heads, head_dim, window },
        mlp: MlpShape::Experts { experts, chosen, inner, shared: 0.0 },
        norms_and_biases,
    };
    model.kinds = vec![layer(window), layer(None)];
    let layers = fields.layers()?;
    let types = fields.get("layer_types");
    model.order = match types.map(|types| (types, types.as_array())) {
        None => (0..layers).map(|layer| (layer % 2) as u8).collect(),
        Some((_, Some(list))) if list.len() == layers => {
            let kind = |value: &Value| match value.as_str() {
                Some("sliding_attention") => Ok(0),
                Some("full_attention") => Ok(1),
                _ => Err(ConfigError::Value {
                    field: "layer_types".into(),
                    expected: "sliding_attention or full_attention",
                    value: value.to_string(),
                }),
            };
            list.iter().map(kind).collect::<Result<_, _>>()?
        }
        Some((_, Some(list))) => {
            return Err(ConfigError::Contradiction {
                field: "layer_types".into(),
                other: "num_hidden_layers".into(),
                text: format!("{} is not {layers}", list.len()),
            });
        }
        Some((types, None)) => {
            return Err(ConfigError::Value {
                field: "layer_types".into(),
                expected: "a list",
                value: types.to_string().chars().take(80).collect(),
            });
        }
    };
    fields.ignore(&["initial_context_length", "swiglu_limit", "rope_ntk_alpha", "rope_ntk_beta"]);
    Ok(model)
}
