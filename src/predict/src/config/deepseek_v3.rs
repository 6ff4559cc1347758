//! DeepSeek V3 and R1: multi-head latent attention (MLA), shared and routed experts, dense layers
//! at the start. The layer for multi-token prediction (MTP) is left out.

use super::{Architecture, AttentionShape, ConfigError, Fields, Layer, MlpShape, Model};

/// The reader for DeepSeek V3.
pub(super) static DEEPSEEK_V3: Architecture =
    Architecture { names: &["DeepseekV3ForCausalLM"], read };

fn read(fields: &Fields<'_>) -> Result<Model, ConfigError> {
    let mut model = fields.model()?;
    let hidden = model.hidden;
    let query_rank = fields.optional_count("q_lora_rank")?;
    let kv_rank = fields.count("kv_lora_rank")?;
    let heads = fields.count("num_attention_heads")?;
    let attention = AttentionShape::Latent {
        heads,
        query_rank,
        kv_rank,
        nope: fields.count("qk_nope_head_dim")?,
        rope: fields.count("qk_rope_head_dim")?,
        value: fields.count("v_head_dim")?,
    };
    let (experts, chosen) = fields.experts("n_routed_experts", "num_experts_per_tok")?;
    let inner = fields.count("moe_intermediate_size")?;
    let shared = fields.count_or_zero("n_shared_experts")?;
    let dense = MlpShape::Gated { inner: fields.count("intermediate_size")? };
    let norms = 2.0 * hidden + query_rank.unwrap_or(0.0) + kv_rank;
    let routed = MlpShape::Experts { experts, chosen, inner, shared: shared * inner };
    model.kinds.push(Layer { attention, mlp: dense, norms_and_biases: norms });
    // The router has a bias for each expert (`e_score_correction_bias`).
    model.kinds.push(Layer { attention, mlp: routed, norms_and_biases: norms + experts });
    let first = fields.count_or_zero("first_k_dense_replace")? as usize;
    if fields.optional_count("moe_layer_freq")?.is_some_and(|every| every != 1.0) {
        return Err(ConfigError::Value {
            field: "moe_layer_freq".into(),
            expected: "1",
            value: "another number".into(),
        });
    }
    if fields.flag("attention_bias", false)? {
        return Err(ConfigError::Value {
            field: "attention_bias".into(),
            expected: "false",
            value: "true".into(),
        });
    }
    // Only checked: MLA has no heads of keys and values.
    fields.kv_heads(heads)?;
    fields.ignore(&[
        "aux_loss_alpha",
        "ep_size",
        "n_group",
        "norm_topk_prob",
        "num_nextn_predict_layers",
        "routed_scaling_factor",
        "scoring_func",
        "seq_aux",
        "topk_group",
        "topk_method",
    ]);
    model.order = (0..fields.layers()?).map(|layer| u8::from(layer >= first)).collect();
    Ok(model)
}
