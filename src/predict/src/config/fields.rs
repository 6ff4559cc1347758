//! Typed access to the fields of a config. A field that was neither read nor listed as ignored is
//! an error.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Model;
use crate::{Dtype, nearest};

/// Fields that are never unknown: they change neither time nor memory, or are read elsewhere.
const WITHOUT_EFFECT: &[&str] = &[
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "hidden_dropout",
    "initializer_range",
    "model_type",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "router_aux_loss_coef",
    "torch_dtype",
    "transformers_version",
    "use_cache",
];

/// The largest accepted size.
const MAX_COUNT: u64 = 1 << 32;
/// The maximum number of layers.
const MAX_LAYERS: u64 = 4096;

/// Why a config cannot be read as a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The config is not a JSON object.
    #[error("the config is not a JSON object")]
    NoObject,
    /// There is no reader for this architecture.
    #[error("`{name}` at /architectures is not a known architecture; the nearest is `{nearest}`")]
    Architecture {
        /// The name in the config.
        name: String,
        /// The most similar name.
        nearest: String,
    },
    /// A field is missing.
    #[error("the config lacks /{field}")]
    Missing {
        /// The name of the field.
        field: String,
    },
    /// A field has a value that it cannot have.
    #[error("/{field} of the config must be {expected}, is {value}")]
    Value {
        /// The name of the field.
        field: String,
        /// The allowed values, in words.
        expected: &'static str,
        /// The value in the config.
        value: String,
    },
    /// A field that the architecture does not know.
    #[error("/{field} is not known for `{architecture}` and may change the model{hint}")]
    Unknown {
        /// The name of the field.
        field: String,
        /// The architecture.
        architecture: String,
        /// The most similar field that is known, as the end of the sentence.
        hint: String,
    },
    /// Two fields contradict each other.
    #[error("/{field} of the config contradicts /{other}: {text}")]
    Contradiction {
        /// The name of the field.
        field: String,
        /// The other field.
        other: String,
        /// How they contradict each other.
        text: String,
    },
}

/// The fields of a config.
pub struct Fields<'a> {
    object: &'a Map<String, Value>,
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Fields<'a> {
    /// The fields of a JSON object.
    ///
    /// # Errors
    /// The value is not an object.
    pub fn new(config: &'a Value) -> Result<Self, ConfigError> {
        let object = config.as_object().ok_or(ConfigError::NoObject)?;
        Ok(Self { object, read: RefCell::default() })
    }

    /// The first name in `architectures`.
    ///
    /// # Errors
    /// There is none.
    pub fn architecture(&self) -> Result<String, ConfigError> {
        let names = self.object.get("architectures");
        let first = names.and_then(|names| names.get(0)).and_then(Value::as_str);
        first.map(ToOwned::to_owned).ok_or(ConfigError::Missing { field: "architectures".into() })
    }

    /// A field that is neither absent nor null.
    pub fn get(&self, field: &'static str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(field);
        self.object.get(field).filter(|value| !value.is_null())
    }

    /// Marks fields as known without reading them.
    pub fn ignore(&self, fields: &[&'static str]) {
        self.read.borrow_mut().extend(fields);
    }

    fn wrong(field: &str, expected: &'static str, value: &Value) -> ConfigError {
        let mut shown = value.to_string();
        if shown.len() > 80 {
            shown = shown.chars().take(77).collect::<String>() + "...";
        }
        ConfigError::Value { field: field.to_owned(), expected, value: shown }
    }

    /// A whole number from 1 to 4294967296. `None` if the field is absent.
    ///
    /// # Errors
    /// It is something else.
    pub fn optional_count(&self, field: &'static str) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_u64().filter(|n| (1..=MAX_COUNT).contains(n)) {
            Some(n) => Ok(Some(n as f64)),
            None => Err(Self::wrong(field, "a whole number from 1 to 4294967296", value)),
        }
    }

    /// A whole number from 1 to 4294967296.
    ///
    /// # Errors
    /// It is absent or something else.
    pub fn count(&self, field: &'static str) -> Result<f64, ConfigError> {
        let count = self.optional_count(field)?;
        count.ok_or_else(|| ConfigError::Missing { field: field.to_owned() })
    }

    /// A whole number of 0 or more; 0 if the field is absent.
    ///
    /// # Errors
    /// It is something else.
    pub fn count_or_zero(&self, field: &'static str) -> Result<f64, ConfigError> {
        match self.get(field) {
            Some(Value::Number(n)) if n.as_u64() == Some(0) => Ok(0.0),
            Some(_) => self.count(field),
            None => Ok(0.0),
        }
    }

    /// Number of layers.
    ///
    /// # Errors
    /// The field is absent, no number, or larger than any model.
    pub fn layers(&self) -> Result<usize, ConfigError> {
        let layers = self.count("num_hidden_layers")?;
        if layers <= MAX_LAYERS as f64 {
            Ok(layers as usize)
        } else {
            Err(ConfigError::Value {
                field: "num_hidden_layers".into(),
                expected: "at most 4096",
                value: layers.to_string(),
            })
        }
    }

    /// True or false; `default` if the field is absent.
    ///
    /// # Errors
    /// It is something else.
    pub fn flag(&self, field: &'static str, default: bool) -> Result<bool, ConfigError> {
        let Some(value) = self.get(field) else { return Ok(default) };
        value.as_bool().ok_or_else(|| Self::wrong(field, "true or false", value))
    }

    /// Fails unless the field is absent or `expected`.
    ///
    /// # Errors
    /// It is something else.
    pub fn must_be(&self, field: &'static str, expected: &'static str) -> Result<(), ConfigError> {
        match self.get(field) {
            Some(value) if value.as_str() != Some(expected) => {
                Err(Self::wrong(field, expected, value))
            }
            _ => Ok(()),
        }
    }

    /// The format of activations; BF16 if the config names none.
    ///
    /// # Errors
    /// `torch_dtype` or `dtype` is not a known format.
    pub fn dtype(&self) -> Result<Dtype, ConfigError> {
        for field in ["torch_dtype", "dtype"] {
            if let Some(value) = self.get(field) {
                let dtype = value.as_str().and_then(|name| name.parse().ok());
                return dtype.ok_or_else(|| Self::wrong(field, "a number format", value));
            }
        }
        Ok(Dtype::Bf16)
    }

    /// The length of a head: `head_dim`, or the width over the heads.
    ///
    /// # Errors
    /// `head_dim` is absent and the heads do not divide the width, or it is not a count.
    pub fn head_dim(&self, hidden: f64, heads: f64) -> Result<f64, ConfigError> {
        match self.optional_count("head_dim")? {
            Some(length) => Ok(length),
            None if hidden % heads == 0.0 => Ok(hidden / heads),
            None => Err(ConfigError::Contradiction {
                field: "hidden_size".into(),
                other: "num_attention_heads".into(),
                text: format!("{heads} heads do not divide {hidden}, and there is no /head_dim"),
            }),
        }
    }

    /// The heads of keys and values, which divide `heads`.
    ///
    /// # Errors
    /// They do not.
    pub fn kv_heads(&self, heads: f64) -> Result<f64, ConfigError> {
        let kv_heads = self.optional_count("num_key_value_heads")?.unwrap_or(heads);
        if heads % kv_heads == 0.0 {
            Ok(kv_heads)
        } else {
            Err(ConfigError::Contradiction {
                field: "num_key_value_heads".into(),
                other: "num_attention_heads".into(),
                text: format!("{kv_heads} does not divide {heads}"),
            })
        }
    }

    /// Number of experts, and of experts per token. `all` and `chosen` are the fields' names.
    ///
    /// # Errors
    /// A field is missing, or more are chosen than there are.
    pub fn experts(
        &self,
        all: &'static str,
        chosen: &'static str,
    ) -> Result<(f64, f64), ConfigError> {
        let (experts, of_token) = (self.count(all)?, self.count(chosen)?);
        if of_token <= experts {
            Ok((experts, of_token))
        } else {
            Err(ConfigError::Contradiction {
                field: chosen.to_owned(),
                other: all.to_owned(),
                text: format!("{of_token} of {experts} experts cannot be chosen"),
            })
        }
    }

    /// The formats of linear weights and of experts' weights that `quantization_config` gives;
    /// `dtype` without one.
    ///
    /// # Errors
    /// The method, or its number of bits, is not supported.
    pub fn weight_dtypes(&self, dtype: Dtype) -> Result<(Dtype, Dtype), ConfigError> {
        let Some(config) = self.get("quantization_config") else { return Ok((dtype, dtype)) };
        let method = config.get("quant_method").and_then(Value::as_str);
        let bits = config.get("bits").and_then(Value::as_u64);
        match (method, bits) {
            (Some("fp8" | "fbgemm_fp8"), _) => Ok((Dtype::Fp8, Dtype::Fp8)),
            // gpt-oss: only the experts; the rest is listed in `modules_to_not_convert`.
            (Some("mxfp4"), _) => Ok((dtype, Dtype::Mxfp4)),
            (Some("awq" | "gptq"), Some(4)) => Ok((Dtype::Int4, Dtype::Int4)),
            (Some("gptq"), Some(8)) => Ok((Dtype::Int8, Dtype::Int8)),
            _ => Err(Self::wrong(
                "quantization_config",
                "of method fp8, fbgemm_fp8, mxfp4, awq or gptq of 4 bits, or gptq of 8",
                config,
            )),
        }
    }

    /// A model without layers, from the fields that all architectures share.
    ///
    /// # Errors
    /// A field is missing or wrong.
    pub fn model(&self) -> Result<Model, ConfigError> {
        let dtype = self.dtype()?;
        let (linear_dtype, expert_dtype) = self.weight_dtypes(dtype)?;
        self.must_be("hidden_act", "silu")?;
        Ok(Model {
            architecture: self.architecture()?,
            hidden: self.count("hidden_size")?,
            vocabulary: self.count("vocab_size")?,
            is_tied: self.flag("tie_word_embeddings", false)?,
            kinds: Vec::new(),
            order: Vec::new(),
            dtype,
            linear_dtype,
            expert_dtype,
            max_context: self.optional_count("max_position_embeddings")?.map(|n| n as u64),
        })
    }

    /// Fails if there is a field that nobody read.
    ///
    /// # Errors
    /// There is one.
    pub fn finish(&self) -> Result<(), ConfigError> {
        let read = self.read.borrow();
        let is_known = |name: &str| read.contains(name) || WITHOUT_EFFECT.contains(&name);
        let Some(field) = self.object.keys().find(|name| !is_known(name)) else { return Ok(()) };
        let known = read.iter().copied().chain(WITHOUT_EFFECT.iter().copied());
        let near = nearest(field, known).filter(|near| strsim::jaro(field, near) > 0.8);
        Err(ConfigError::Unknown {
            field: field.clone(),
            architecture: self.architecture()?,
            hint: near.map(|near| format!("; is it `{near}`?")).unwrap_or_default(),
        })
    }
}
