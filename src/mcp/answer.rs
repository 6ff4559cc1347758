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
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::store::RunState;

/// A document, and whether it tells of a failure.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    value: Value,
    is_error: bool,
}

/// Why a tool did not do its work.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct ErrorResult {
    /// Name and version of this schema: `rgpu.mcp-error/1`.
    schema: String,
    /// What happened, why, and what to do next.
    error: ErrorFigures,
}

impl Answer {
    /// A result.
    pub(super) fn from_result(result: &impl Serialize) -> Result<Self> {
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
        if self.is_error {
            CallToolResult::structured_error(value)
        } else {
            CallToolResult::structured(value)
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

/// What the list of tools has of the schema of a result: of each kind of result the fields with
/// their types, and those that are always there. It is a small part of the whole, which clients
/// rarely show to a model, and every result that keeps to the whole keeps to it.
pub(super) fn outline(schema: &JsonObject) -> JsonObject {
    let is_kept = |key: &str| matches!(key, "type" | "anyOf" | "properties" | "required");
    let kept = schema.iter().filter(|(key, _)| is_kept(key));
    let shorten = |(key, value): (&String, &Value)| {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                let fields = fields.iter().map(|(name, field)| (name.clone(), type_of(field)));
                Value::Object(fields.collect())
            }
            ("anyOf", Value::Array(kinds)) => kinds
                .iter()
                .filter_map(Value::as_object)
                .map(|kind| Value::Object(outline(kind)))
                .collect(),
            (_, other) => other.clone(),
        };
        (key.clone(), value)
    };
    kept.map(shorten).collect()
}

/// The type of a field alone; any, if its schema names none.
fn type_of(field: &Value) -> Value {
    field.get("type").map_or_else(|| json!({}), |kind| json!({"type": kind}))
}

/// The schema of arguments for the list of tools, without the sizes of Rust's integers, and without
/// null as a type or default.
pub(super) fn listed_input(schema: &JsonObject) -> JsonObject {
    let mut listed = schema.clone();
    if let Some(Value::Object(fields)) = listed.get_mut("properties") {
        for field in fields.values_mut().filter_map(Value::as_object_mut) {
            field.retain(|key, value| key != "format" && !(key == "default" && value.is_null()));
            drop_null(field);
        }
    }
    listed
}

/// Takes null from the types of a field that may be left out: some clients read a field's type as
/// one word, and send a list as a text then.
fn drop_null(field: &mut JsonObject) {
    let other = |kinds: &Value| match kinds.as_array().map(Vec::as_slice) {
        Some([kind, null]) if null == "null" || null["type"] == "null" => Some(kind.clone()),
        _ => None,
    };
    if let Some(kind) = field.get("type").and_then(other) {
        field.insert("type".to_owned(), kind);
    }
    if let Some(Value::Object(kind)) = field.get("anyOf").and_then(other) {
        field.shift_remove("anyOf");
        field.extend(kind);
    }
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(fields) => Arc::new(fields),
        _ => Arc::new(Map::new()),
    }
}
