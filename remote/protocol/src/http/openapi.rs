//! The HTTP interface as an OpenAPI 3.1 document. The schemas of bodies come from the protocol's
//! types; paths, parameters and texts are written here.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{
    Events, FRAMES, FactsRequest, IDEMPOTENCY_KEY, MAX_WAIT_S, MissingBlobs, MissingRequest,
    PLAIN_SIZE, SHA256, SubmitRequest, UPLOAD_OFFSET,
};
use crate::message::JobLine;
use crate::{FromAgent, Hello};

/// Returns the OpenAPI document.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut builder = SpecBuilder { schemas: settings.into_generator(), paths: Map::new() };
    builder.host();
    builder.blobs();
    builder.jobs();
    builder.follow();
    let SpecBuilder { mut schemas, paths } = builder;
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "rgpu-agent over HTTP",
            "version": "1",
            "summary": "Carries out plans on a GPU host.",
            "description": "The messages of rgpu's agent as resources. A job is submitted under \
                its own name, so submitting it again attaches to it; its events and output are \
                resumed by number and offset; every file is fetched in ranges and checked by its \
                sha256. A request that is not met is answered with the message `refused`.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8790"}],
        "security": [{"bearer": []}, {"proxy_key": [], "proxy_secret": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "proxy_key": {"type": "apiKey", "in": "header", "name": "Modal-Key"},
                "proxy_secret": {"type": "apiKey", "in": "header", "name": "Modal-Secret"},
            },
        },
    })
}

struct SpecBuilder {
    schemas: SchemaGenerator,
    paths: Map<String, Value>,
}

/// The parameters, body and answers of one operation.
#[derive(Default)]
struct Operation {
    params: Vec<Value>,
    body: Option<Value>,
    answers: Map<String, Value>,
}

impl Operation {
    fn param(mut self, location: &str, name: &str, schema: Value, text: &str) -> Self {
        self.params.push(json!({
            "name": name, "in": location, "required": location == "path",
            "schema": schema, "description": text,
        }));
        self
    }

    fn query(self, name: &str, text: &str) -> Self {
        self.param(
            "query",
            name,
            json!({"type": "integer", "minimum": 0, "maximum": 1u64 << 53}),
            text,
        )
    }

    fn header(self, name: &str, text: &str) -> Self {
        self.param("header", name, json!({"type": "string"}), text)
    }

    fn job(self) -> Self {
        let schema = json!({"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]{0,119}$"});
        self.param("path", "job", schema, "the plan's `job`")
    }

    fn bytes(mut self) -> Self {
        let binary = json!({"schema": {"type": "string", "format": "binary"}});
        self.body =
            Some(json!({"required": true, "content": {"application/octet-stream": binary}}));
        self
    }

    fn answer(self, status: &str, text: &str, content: Value) -> Self {
        self.answer_with(status, text, content, &[])
    }

    fn answer_with(
        mut self,
        status: &str,
        text: &str,
        content: Value,
        headers: &[(&str, &str)],
    ) -> Self {
        let headers: Map<String, Value> = headers
            .iter()
            .map(|(name, text)| {
                let header = json!({"description": text, "schema": {"type": "string"}});
                ((*name).to_owned(), header)
            })
            .collect();
        let mut answer = json!({"description": text, "content": content});
        if !headers.is_empty() {
            answer["headers"] = Value::Object(headers);
        }
        self.answers.insert(status.to_owned(), answer);
        self
    }
}

impl SpecBuilder {
    fn json<T: JsonSchema>(&mut self) -> Value {
        json!({"application/json": {"schema": self.schemas.subschema_for::<T>()}})
    }

    fn message(&mut self) -> Value {
        self.json::<FromAgent>()
    }

    fn body<T: JsonSchema>(&mut self) -> Operation {
        let body = json!({"required": true, "content": self.json::<T>()});
        Operation { body: Some(body), ..Operation::default() }
    }

    fn route(&mut self, method: &str, path: &str, id: &str, text: &str, spec: Operation) {
        let Operation { params, body, mut answers } = spec;
        let refused =
            json!({"description": "`refused`, with a code and words", "content": self.message()});
        answers.insert("default".into(), refused);
        let mut operation = json!({"operationId": id, "summary": text, "responses": answers});
        if !params.is_empty() {
            operation["parameters"] = params.into();
        }
        if let Some(body) = body {
            operation["requestBody"] = body;
        }
        let entry = self.paths.entry(path).or_insert_with(|| json!({}));
        entry[method] = operation;
    }

    fn host(&mut self) {
        let hello = self.json::<Hello>();
        let operation = Operation::default().answer("200", "the agent's greeting", hello);
        self.route("get", "/v1/health", "health", "Whether the agent answers", operation);
        let any = json!({"application/json": {"schema": {"type": "object"}}});
        let operation = Operation::default().answer("200", "this document", any);
        self.route("get", "/v1/openapi.json", "openapi", "This document", operation);
        let facts = self.message();
        let operation = self.body::<FactsRequest>().answer("200", "`facts`", facts);
        self.route("post", "/v1/facts", "facts", "What the host has", operation);
    }

    fn blobs(&mut self) {
        let missing = self.json::<MissingBlobs>();
        let operation =
            self.body::<MissingRequest>().answer("200", "those that are not here", missing);
        self.route("post", "/v1/blobs/missing", "missing", "Which blobs are not here", operation);
        let digest = || {
            let schema = json!({"type": "string", "pattern": "^[0-9a-f]{64}$"});
            Operation::default().param("path", "digest", schema, "sha256 of the plain bytes")
        };
        let offset = [(UPLOAD_OFFSET, "bytes that are here")];
        let operation = digest().answer_with("200", "it is here", json!({}), &offset).answer_with(
            "404",
            "it is not, or not whole",
            json!({}),
            &offset,
        );
        self.route("head", "/v1/blobs/{digest}", "blob", "How much of a blob is here", operation);
        let stored = self.message();
        let operation = digest()
            .header("content-range", "`bytes FIRST-LAST/TOTAL` of a part")
            .header("content-encoding", "`zstd`, of a whole blob")
            .header(PLAIN_SIZE, "with zstd: the plain bytes")
            .bytes()
            .answer("200", "`stored`: it is here, and is what its name says", stored.clone())
            .answer_with("202", "the part was taken, more must come", stored, &offset);
        self.route(
            "put",
            "/v1/blobs/{digest}",
            "put_blob",
            "Store a blob, or continue one",
            operation,
        );
    }

    fn jobs(&mut self) {
        let message = self.message();
        let mut following = message.clone();
        following[FRAMES] = json!({"schema": {"type": "string", "format": "binary"}});
        let operation = self
            .body::<SubmitRequest>()
            .header(IDEMPOTENCY_KEY, "the plan's `job`")
            .query("wait", "with frames: seconds to follow for")
            .query("inline", "with frames: files up to this many bytes come with the end")
            .answer("201", "`following`: it was started", message.clone())
            .answer("200", "`following`: it was here already; or its frames", following)
            .answer("409", "`missing`: these blobs must come first; or `refused`", message.clone());
        self.route("post", "/v1/jobs", "submit", "Carry out a plan", operation);
        let operation = Operation::default().answer("200", "`jobs`, newest first", message.clone());
        self.route("get", "/v1/jobs", "jobs", "The jobs on this host", operation);
        let line = self.json::<JobLine>();
        let operation = Operation::default().job().answer("200", "the job", line);
        self.route("get", "/v1/jobs/{job}", "job", "One job", operation);
        let operation = Operation::default().job().answer("200", "`plan`", message.clone());
        let text = "A job's plan, without the values of secrets";
        self.route("get", "/v1/jobs/{job}/plan", "plan", text, operation);
        let done =
            |message: &Value| Operation::default().job().answer("200", "`done`", message.clone());
        let operation = done(&message);
        self.route("delete", "/v1/jobs/{job}", "forget", "Remove an ended job", operation);
        for (word, text) in [
            ("renew", "Renew the lease: a client still follows the job"),
            ("detach", "Leave the job to its own limits"),
            ("cancel", "Stop the job; its terminal event confirms"),
        ] {
            self.route("post", &format!("/v1/jobs/{{job}}/{word}"), word, text, done(&message));
        }
        let flag = json!({"type": "boolean"});
        let operation = done(&message)
            .param("query", "eof", flag, "nothing more will come")
            .query("offset", "where in the whole input they stand: what came before is passed over")
            .bytes();
        let text = "Bytes for the running step's standard input";
        self.route("post", "/v1/jobs/{job}/stdin", "stdin", text, operation);
    }

    fn follow(&mut self) {
        let mut kinds = self.json::<Events>();
        let text = json!({"schema": {"type": "string"}});
        kinds["text/event-stream"] = text;
        let binary = json!({"schema": {"type": "string", "format": "binary"}});
        kinds[FRAMES] = binary.clone();
        let had = json!({"type": "array", "items": {"type": "string"}});
        let wait = format!(
            "seconds to wait for the first new event, or to stream for, at most {MAX_WAIT_S}"
        );
        let operation = Operation::default()
            .job()
            .query("after", "the last event that the client has")
            .query("wait", &wait)
            .query("inline", "with frames: files up to this many bytes come with the end")
            .param(
                "query",
                "had",
                had,
                "output that the client has: STEP.STREAM:BYTES; without it, what its events name",
            )
            .header("last-event-id", "as `after`")
            .answer("200", "events with their output", kinds);
        self.route("get", "/v1/jobs/{job}/events", "events", "Follow a job", operation);
        let headers = [("etag", "the state of the file"), (SHA256, "as its event names it")];
        let file = json!({"application/octet-stream": binary, FRAMES: binary});
        let schema = json!({"type": "string", "minLength": 1});
        let operation = Operation::default()
            .job()
            .param(
                "path",
                "path",
                schema,
                "the file's path in the job's folder; slashes as they are",
            )
            .header("range", "one range of bytes")
            .header("if-range", "an etag: all is sent when the file changed")
            .header("if-match", "an etag: 412 when the file changed")
            .header("if-none-match", "an etag: 304 when the file did not change")
            .answer_with("200", "the file", file.clone(), &headers)
            .answer_with("206", "the range", file, &headers)
            .answer("304", "it did not change", json!({}));
        self.route(
            "get",
            "/v1/jobs/{job}/artifacts/{path}",
            "artifact",
            "A file of a job",
            operation,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_document_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/openapi.json");
        let there: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert!(there == document(), "run `cargo xtask schemas`");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut left = vec![&document];
        while let Some(value) = left.pop() {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(to)) = fields.get("$ref") {
                        let pointer = to.trim_start_matches('#');
                        assert!(document.pointer(pointer).is_some(), "{to}");
                    }
                    left.extend(fields.values());
                }
                Value::Array(items) => left.extend(items),
                _ => {}
            }
        }
    }
}
