//! A measured value with its unit and its source.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SharedText;

/// A metric of a launch or a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// The value of the metric.
    pub value: Value,
    /// Base unit as printed by NVIDIA's tools with `--print-units base`: `ns`, `byte`, `%`, `inst`,
    /// `byte/ns` …; empty for pure numbers and texts.
    #[serde(default, skip_serializing_if = "SharedText::is_empty")]
    pub unit: SharedText,
    /// The artifact that the value comes from, as its path in the run folder.
    #[serde(default, skip_serializing_if = "SharedText::is_empty")]
    pub from: SharedText,
}

/// A finite number or a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A whole number, kept exact: counters exceed what f64 can hold.
    Int(u64),
    /// A number that is not NaN or infinite.
    Float(f64),
    /// A text instead of a number.
    Text(String),
}

impl Value {
    /// The value as a number; `None` for a text.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Float(x) => Some(*x),
            Self::Text(_) => None,
        }
    }
}
