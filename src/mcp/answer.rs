//! What a tool answers: a document that fits into a language model's context.

use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::consent::Consent;
use super::limit::{MAX_RESULT_BYTES, fit};
use super::run_result::ErrorFigures;
use crate::error::{Exit, Failure, Result};
use crate::store::RunState;

/// A document, and whether it tells of a failure.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    value: Value,
    is_error: bool,
}

/// Why a tool did not do its work.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct ErrorResult {
    /// `rgpu.mcp-error/1`.
    schema: String,
    /// What happened, why, and what to do next.
    error: ErrorFigures,
}

impl Answer {
    /// A result.
    pub(super) fn of(result: &impl Serialize) -> Result<Self> {
        Self::with(result, false)
    }

    /// A result that may be a failure.
    pub(super) fn with(result: &impl Serialize, is_error: bool) -> Result<Self> {
        let value = serde_json::to_value(result).map_err(|e| {
            Failure::new(Exit::Bug, "bug", "a result cannot be written as JSON").cause(e)
        })?;
        Ok(Self { value, is_error })
    }

    /// The id of the run that goes on, if one does.
    pub(super) fn running(&self) -> Option<&str> {
        let is_running = !self.is_error && self.value["state"] == RunState::Running.as_str();
        self.value["run"].as_str().filter(|_| is_running)
    }

    /// What the user has to agree to before the call can succeed.
    pub(super) fn wanted_consent(&self) -> Option<Consent> {
        Consent::for_answer(&self.value).filter(|_| self.is_error)
    }

    /// The result as the protocol has it, short enough.
    pub(super) fn into_result(self) -> CallToolResult {
        let value = fit(self.value, MAX_RESULT_BYTES);
        match self.is_error {
            true => CallToolResult::structured_error(value),
            false => CallToolResult::structured(value),
        }
    }
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        let error = ErrorFigures::from(failure);
        let result = ErrorResult { schema: "rgpu.mcp-error/1".to_owned(), error };
        Self { value: serde_json::to_value(result).unwrap_or_default(), is_error: true }
    }
}

/// The schema of a type, without references, since some clients do not follow them.
pub(super) fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = Value::from(settings.into_generator().into_root_schema_for::<T>());
    if let Value::Object(fields) = &mut schema {
        fields.shift_remove("title");
    }
    schema
}

/// The schema of a tool's arguments.
pub(super) fn input<T: JsonSchema>() -> Arc<JsonObject> {
    object(schema::<T>())
}

/// The schema of a tool's result: one of some types, or an error.
pub(super) fn output(results: &[fn() -> Value]) -> Arc<JsonObject> {
    let results = results.iter().map(|schema| schema());
    let any: Vec<Value> = results.chain([schema::<ErrorResult>()]).collect();
    object(json!({"type": "object", "anyOf": any}))
}

/// A schema without its words, for the list of tools: most clients show no words about results. The
/// resource `rgpu://tools/NAME/result` has them.
pub(super) fn without_descriptions(schema: &JsonObject) -> JsonObject {
    let is_word =
        |key: &str, value: &Value| matches!(key, "description" | "format") && value.is_string();
    let kept = schema.iter().filter(|(key, value)| !is_word(key, value));
    let strip = |(key, value): (&String, &Value)| {
        let value = match (key.as_str(), value) {
            // The names of fields, which may be such words.
            ("properties", Value::Object(fields)) => {
                let fields = fields.iter().map(|(name, field)| (name.clone(), strip_value(field)));
                Value::Object(fields.collect())
            }
            _ => strip_value(value),
        };
        (key.clone(), value)
    };
    kept.map(strip).collect()
}

fn strip_value(value: &Value) -> Value {
    match value {
        Value::Object(schema) => Value::Object(without_descriptions(schema)),
        Value::Array(schemas) => schemas.iter().map(strip_value).collect(),
        other => other.clone(),
    }
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(fields) => Arc::new(fields),
        _ => Arc::new(Map::new()),
    }
}
