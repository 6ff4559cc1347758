//! The names of all fields that the server sends. The page refuses to read another one, so a field
//! that page and server name differently is an error and not an empty cell.

use std::collections::BTreeSet;

use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

use super::action::ActionResult;
use super::host::HostList;
use super::live::{LiveChange, RunUpdate};
use super::overview::Overview;
use super::queue_and_loops::LoopList;
use super::run_detail::RunDetail;
use super::run_query::RunPage;
use super::suites::{PredictionList, SuiteList};
use super::text_document::TextDocument;
use rgpu_model::Comparison;
use rgpu_model::error::ErrorDocument;
use rgpu_model::suite::SuiteRun;
use rgpu_model::suite_history::History;
use rgpu_work::loops::LoopStatus;
use rgpu_work::queue::{QueueDocument, QueueEntryDocument};

/// The documents of the API and the messages of its streams.
const DOCUMENTS: [fn(&mut SchemaGenerator) -> Schema; 18] = [
    SchemaGenerator::subschema_for::<ActionResult>,
    SchemaGenerator::subschema_for::<Comparison>,
    SchemaGenerator::subschema_for::<ErrorDocument>,
    SchemaGenerator::subschema_for::<History>,
    SchemaGenerator::subschema_for::<HostList>,
    SchemaGenerator::subschema_for::<LiveChange>,
    SchemaGenerator::subschema_for::<LoopList>,
    SchemaGenerator::subschema_for::<LoopStatus>,
    SchemaGenerator::subschema_for::<Overview>,
    SchemaGenerator::subschema_for::<PredictionList>,
    SchemaGenerator::subschema_for::<QueueDocument>,
    SchemaGenerator::subschema_for::<QueueEntryDocument>,
    SchemaGenerator::subschema_for::<RunDetail>,
    SchemaGenerator::subschema_for::<RunPage>,
    SchemaGenerator::subschema_for::<RunUpdate>,
    SchemaGenerator::subschema_for::<SuiteList>,
    SchemaGenerator::subschema_for::<SuiteRun>,
    SchemaGenerator::subschema_for::<TextDocument>,
];

/// All names of fields in the documents, sorted.
pub(super) fn field_names() -> BTreeSet<String> {
    let mut generator = SchemaGenerator::default();
    for add_document in DOCUMENTS {
        add_document(&mut generator);
    }
    let mut names = BTreeSet::new();
    for schema in generator.definitions().values() {
        collect_names(schema, &mut names);
    }
    names
}

fn collect_names(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(keywords) => {
            if let Some(Value::Object(fields)) = keywords.get("properties") {
                names.extend(fields.keys().cloned());
            }
            keywords.values().for_each(|value| collect_names(value, names));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_names(value, names)),
        _ => {}
    }
}
