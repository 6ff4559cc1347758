//! Configs become models with the parameters that their makers publish, and bad ones are refused.

use rgpu_predict::config::{ARCHITECTURES, ConfigError, Model};
use serde_json::json;

use super::{config, model};

/// A config, its parameters to the unit, and those that a token uses to a few percent: as
/// published (gpt-oss: 5.13 B, and 0.58 B of the embedding that OpenAI does not count).
const KNOWN: &[(&str, f64, f64)] = &[
    ("llama-3.1-8b", 8_030_261_248.0, 8_030_261_248.0),
    ("llama-3.1-70b", 70_553_706_496.0, 70_553_706_496.0),
    ("qwen3-8b", 8_190_735_360.0, 8_190_735_360.0),
    ("qwen3-30b-a3b", 30_532_122_624.0, 3_300_000_000.0),
    ("mixtral-8x7b", 46_702_792_704.0, 12_900_000_000.0),
    ("gpt-oss-120b", 116_829_156_672.0, 5_710_000_000.0),
    ("deepseek-v3", 671_026_419_200.0, 37_000_000_000.0),
];

#[test]
fn parameters_are_those_that_the_makers_publish() {
    for (name, all, active) in KNOWN {
        let model = model(name);
        assert_eq!(model.parameters(), *all, "{name}");
        let off = (model.active_parameters() - active) / active;
        assert!(off.abs() < 0.05, "{name}: {}", model.active_parameters());
    }
}

#[test]
fn every_architecture_has_a_config_of_known_size() {
    for architecture in ARCHITECTURES {
        let has_known = KNOWN.iter().any(|(name, ..)| {
            let of_config = config(name)["architectures"][0].as_str().unwrap().to_owned();
            architecture.names.contains(&of_config.as_str())
        });
        assert!(has_known, "{:?}", architecture.names);
    }
}

fn refused(name: &str, field: &str, value: serde_json::Value) -> ConfigError {
    let mut config = config(name);
    if value.is_null() {
        drop(config.as_object_mut().unwrap().remove(field))
    } else {
        config[field] = value
    }
    Model::from_config(&config).unwrap_err()
}

#[test]
fn a_field_that_nobody_knows_is_an_error_with_the_nearest() {
    let error = refused("llama-3.1-8b", "num_key_values_heads", json!(8));
    let text = error.to_string();
    assert!(
        text.contains("/num_key_values_heads") && text.contains("`num_key_value_heads`"),
        "{text}"
    );
    assert!(refused("llama-3.1-8b", "q_lora_rank", json!(8)).to_string().contains("/q_lora_rank"));
}

#[test]
fn missing_wrong_and_contradictory_fields_are_named() {
    let error = refused("llama-3.1-8b", "hidden_size", json!(null));
    assert_eq!(error.to_string(), "the config lacks /hidden_size");
    let error = refused("llama-3.1-8b", "num_key_value_heads", json!(5));
    assert!(matches!(error, ConfigError::Contradiction { .. }), "{error}");
    let error = refused("llama-3.1-8b", "num_attention_heads", json!(-1));
    assert!(error.to_string().contains("whole number from 1 to 4294967296, is -1"), "{error}");
    let error = refused("llama-3.1-8b", "num_hidden_layers", json!(4_000_000_000_u64));
    assert!(error.to_string().contains("at most 4096"), "{error}");
    let error = refused("mixtral-8x7b", "num_experts_per_tok", json!(9));
    assert!(error.to_string().contains("/num_experts_per_tok"), "{error}");
    let error = refused("gpt-oss-120b", "layer_types", json!(["full_attention"]));
    assert!(error.to_string().contains("1 is not 36"), "{error}");
    let error = refused("llama-3.1-8b", "architectures", json!(["LlamaForCausalML"]));
    assert!(error.to_string().contains("nearest is `LlamaForCausalLM`"), "{error}");
    let error = refused("deepseek-v3", "quantization_config", json!({"quant_method": "magic"}));
    assert!(error.to_string().contains("/quantization_config"), "{error}");
}

#[test]
fn anything_that_is_no_object_is_refused() {
    for value in [json!(null), json!([]), json!("x"), json!({}), json!({"architectures": 3})] {
        assert!(Model::from_config(&value).is_err());
    }
}
