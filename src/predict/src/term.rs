//! A term of a prediction: how long, by which formula, from which source.

use schemars::JsonSchema;
use serde::Serialize;

/// One term of a predicted time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Term {
    /// A short name, for example `memory`.
    pub name: &'static str,
    /// The time of the term, in ns.
    pub ns: f64,
    /// Whether this time is part of the sum `time_ns`. A term that is hidden behind a longer one
    /// is not.
    pub counts: bool,
    /// The formula, in the symbols of `inputs`.
    pub formula: &'static str,
    /// The values that went into the formula.
    pub inputs: Vec<Input>,
}

/// An input of a formula.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Input {
    /// Its symbol in the formula.
    pub symbol: &'static str,
    /// Its value, in `unit`.
    pub value: f64,
    /// The unit of the value.
    pub unit: &'static str,
    /// Where the value comes from. Absent if it was computed from the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Input {
    /// A value that was computed from the arguments.
    #[must_use]
    pub fn computed(symbol: &'static str, value: f64, unit: &'static str) -> Self {
        Self { symbol, value, unit, source: None }
    }

    /// A value with a source.
    #[must_use]
    pub fn with_source(symbol: &'static str, value: f64, unit: &'static str, source: &str) -> Self {
        Self { symbol, value, unit, source: Some(source.to_owned()) }
    }
}
