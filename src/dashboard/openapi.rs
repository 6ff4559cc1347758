//! The API as an OpenAPI 3.1 document (`schemas/dashboard-openapi.json`), generated from the types that
//! the server sends.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::access::KEY_HEADER;
use super::action::{ActionRequest, ActionResult};
use super::host::HostList;
use super::live::{LiveChange, RunUpdate};
use super::overview::Overview;
use super::queue_and_loops::LoopList;
use super::run_detail::RunDetail;
use super::run_query::{RunPage, RunQuery};
use super::suites::{PredictionList, SuiteList};
use super::text_document::TextDocument;
use rgpu_model::Comparison;
use rgpu_model::error::ErrorDocument;
use rgpu_model::suite::SuiteRun;
use rgpu_model::suite_history::History;
use rgpu_work::loops::LoopStatus;
use rgpu_work::queue::{QueueDocument, QueueEntryDocument};

struct SpecBuilder {
    schemas: SchemaGenerator,
    paths: Map<String, Value>,
}

/// Returns the OpenAPI document.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut spec = SpecBuilder { schemas: settings.into_generator(), paths: Map::new() };
    let runs = query_of::<RunQuery>();
    let text = |name: &str, text: &str| parameter("query", name, false, text);
    spec.get::<Overview>("/overview", "Hosts, runs, suites, queue and loops at one glance", vec![]);
    spec.get::<HostList>("/hosts", "The hosts as they were last seen", vec![]);
    spec.get::<RunPage>("/runs", "A page of the list of runs", runs);
    spec.get::<RunDetail>("/runs/{id}", "One run", vec![]);
    spec.get::<TextDocument>("/runs/{id}/log/{name}", "The end of a log of a run", vec![]);
    let two = vec![
        parameter("query", "a", true, "the id of the base"),
        parameter("query", "b", true, "the id of the run compared with it"),
        json!({"name": "force", "in": "query", "required": false, "schema": {"type": "boolean"},
            "description": "compare although the conditions differ"}),
    ];
    spec.get::<Comparison>("/compare", "Two runs compared, as `rgpu compare` does it", two);
    spec.get::<SuiteList>("/suites", "The suites, newest first", vec![]);
    spec.get::<SuiteRun>("/suites/{id}", "The result of a suite", vec![]);
    let of_cases = vec![
        text("case", "the case, with `*` and `?` for any characters"),
        text("gpu", "the GPU, or a part of its name"),
    ];
    spec.get::<History>("/history", "The times of cases over the suites", of_cases);
    spec.get::<QueueDocument>("/queue", "The queue in its order", vec![]);
    spec.get::<QueueEntryDocument>("/queue/{id}", "An entry with the end of its output", vec![]);
    spec.get::<LoopList>("/loops", "The loops, newest first", vec![]);
    spec.get::<LoopStatus>("/loops/{id}", "A loop with its iterations", vec![]);
    let path = "/loops/{id}/iterations/{iteration}/patch";
    spec.get::<TextDocument>(path, "The change of an iteration", vec![]);
    spec.get::<PredictionList>("/model", "Predictions beside measurements", vec![]);
    spec.stream::<LiveChange>("/live", "Messages `changed`, each a `LiveChange`");
    let about = "Messages `run` and a last one `end`, each a `RunUpdate`";
    spec.stream::<RunUpdate>("/runs/{id}/live", about);
    spec.actions();
    let SpecBuilder { mut schemas, paths } = spec;
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "rgpu dashboard",
            "version": "1",
            "summary": "What the page of `rgpu dashboard` shows.",
            "description": "Documents of other commands are those that the commands print with \
                --json. An address that cannot be answered gives an `ErrorDocument`.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8710/api/v1"}],
        "security": [{"session": [], "key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "rgpu-dashboard-PORT"},
                "key": {"type": "apiKey", "in": "header", "name": KEY_HEADER},
            },
        },
    })
}

fn parameter(place: &str, name: &str, required: bool, text: &str) -> Value {
    json!({"name": name, "in": place, "required": required, "schema": {"type": "string"},
        "description": text})
}

/// The fields of a query as parameters.
fn query_of<T: JsonSchema>() -> Vec<Value> {
    let schema = schemars::schema_for!(T).to_value();
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, mut schema): (String, Value)| {
        let text = schema.as_object_mut().and_then(|fields| fields.remove("description"));
        json!({"name": name, "in": "query", "required": false, "schema": schema,
            "description": text})
    };
    fields.into_iter().map(parameter).collect()
}

impl SpecBuilder {
    fn content<T: JsonSchema>(&mut self, kind: &str) -> Value {
        json!({kind: {"schema": self.schemas.subschema_for::<T>()}})
    }

    fn get<T: JsonSchema>(&mut self, path: &str, summary: &str, query: Vec<Value>) {
        let content = self.content::<T>("application/json");
        self.route("get", path, summary, query, &json!({"description": "it", "content": content}));
    }

    fn stream<T: JsonSchema>(&mut self, path: &str, summary: &str) {
        let content = self.content::<T>("text/event-stream");
        let last = "where to continue: the id of the last message";
        let key = "the key, from a client that can send no header";
        let query = vec![
            parameter("header", "Last-Event-ID", false, last),
            parameter("query", "last", false, last),
            parameter("query", "key", false, key),
        ];
        let answer = json!({"description": "server-sent events", "content": content});
        self.route("get", path, summary, query, &answer);
    }

    fn actions(&mut self) {
        let body = self.content::<ActionRequest>("application/json");
        let content = self.content::<ActionResult>("application/json");
        let answer = json!({"description": "its outcome", "content": content});
        let summary = "Start one of rgpu's own commands, or show it";
        self.route("post", "/actions", summary, vec![], &answer);
        self.paths["/actions"]["post"]["requestBody"] = json!({"required": true, "content": body});
    }

    fn route(&mut self, method: &str, path: &str, summary: &str, more: Vec<Value>, answer: &Value) {
        let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let about = |name: &str| match name {
            "id" => "the id or number",
            "name" => "the name of the log",
            _ => "the number of the iteration",
        };
        let parameters: Vec<Value> =
            names.map(|name| parameter("path", name, true, about(name))).chain(more).collect();
        let refused = self.content::<ErrorDocument>("application/json");
        let mut operation = json!({
            "summary": summary,
            "responses": {
                "200": answer,
                "default": {"description": "why there is none", "content": refused},
            },
        });
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        let entry = self.paths.entry(path).or_insert_with(|| json!({}));
        entry[method] = operation;
    }
}

/// All names of fields in the documents, for the page: reading another name is a bug of the page.
pub(super) fn field_names() -> Vec<String> {
    let mut names = std::collections::BTreeSet::new();
    collect(&document()["components"]["schemas"], &mut names);
    names.into_iter().collect()
}

fn collect(schema: &Value, names: &mut std::collections::BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                if let ("properties", Value::Object(own)) = (key.as_str(), value) {
                    names.extend(own.keys().cloned());
                }
                collect(value, names);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        _ => {}
    }
}
