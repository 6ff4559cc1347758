//! One measured value with its unit and where it came from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A metric of a launch or a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// The value.
    pub value: Value,
    /// Base unit as NVIDIA's tools print it with `--print-units base`: `ns`, `byte`, `%`, `inst`,
    /// `byte/ns` …; empty for pure numbers and texts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// The artifact it came from, as its path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// A finite number or a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A whole number (counters exceed what f64 holds exactly).
    Int(u64),
    /// A finite number.
    Float(f64),
    /// A text.
    Text(String),
}

impl Value {
    /// The number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Float(x) => Some(*x),
            Self::Text(_) => None,
        }
    }
}
