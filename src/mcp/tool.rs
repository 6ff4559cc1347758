//! The tools: one file each, and their table. A description says what a tool does, when to use it,
//! and which other tool to use instead, since language models choose by these words alone.

mod build;
mod campaign;
mod compare;
mod disasm;
mod exec;
mod hosts;
mod layout;
mod model;
mod profile;
mod report;
mod runs;

mod command;
mod inputs;

use std::pin::Pin;
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};

use super::answer::{Answer, listed_input, outline};
use super::call::Call;
use rgpu_model::error::Result;

/// A call that is being answered.
type AnswerFuture = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

/// A tool.
pub struct ToolInfo {
    /// Its name.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What it does.
    pub does: &'static str,
    /// When to use it, after "Use when".
    pub use_when: &'static str,
    /// What it is not for, after "Not for", each with the tool to use instead.
    pub not_for: &'static [(&'static str, &'static str)],
    /// Whether it changes nothing.
    pub read_only: bool,
    /// Whether it may stop or change what is there.
    pub destructive: bool,
    /// Whether a call may start a run and return before its end.
    pub(super) starts_runs: bool,
    /// The schema of its arguments.
    pub(super) input: fn() -> Arc<JsonObject>,
    /// The schema of its result.
    pub(super) output: fn() -> Arc<JsonObject>,
    /// Answers a call.
    pub(super) call: fn(Call) -> AnswerFuture,
}

/// All tools.
pub static TOOLS: &[ToolInfo] = &[
    profile::TOOL,
    exec::TOOL,
    build::TOOL,
    disasm::TOOL,
    report::TOOL,
    compare::TOOL,
    hosts::TOOL,
    runs::TOOL,
    campaign::TOOL,
    layout::TOOL,
    model::TOOL,
];

/// The tool with this name.
pub(super) fn find(name: &str) -> Option<&'static ToolInfo> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The tools as a client sees them.
pub fn tools() -> Vec<Tool> {
    TOOLS.iter().map(ToolInfo::definition).collect()
}

impl ToolInfo {
    /// The description that clients show to a language model.
    pub fn description(&self) -> String {
        let not_for = self.not_for.iter().map(|(what, instead)| format!("{what} (use {instead})"));
        let not_for: Vec<String> = not_for.collect();
        let (does, use_when) = (self.does, self.use_when);
        format!("{does} Use when {use_when}. Not for {}.", not_for.join(", "))
    }

    /// The whole schema of its result, with the words about each field.
    pub(super) fn result_schema(&self) -> Arc<JsonObject> {
        (self.output)()
    }

    fn definition(&self) -> Tool {
        let annotations = ToolAnnotations::new()
            .read_only(self.read_only)
            .destructive(self.destructive)
            .open_world(!self.read_only);
        Tool::new(self.name, self.description(), Arc::new(listed_input(&(self.input)())))
            .with_title(self.title)
            .with_raw_output_schema(Arc::new(outline(&(self.output)())))
            .with_annotations(annotations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of tools that were confused, in rgpu or in servers of its kind.
    const CONFUSED: &[(&str, &str)] = &[
        ("profile", "exec"),
        ("profile", "report"),
        ("profile", "compare"),
        ("profile", "build"),
        ("profile", "campaign"),
        ("profile", "model"),
        ("report", "compare"),
        ("report", "disasm"),
        ("report", "runs"),
        ("build", "disasm"),
        ("hosts", "runs"),
        ("runs", "campaign"),
        ("layout", "model"),
    ];

    #[test]
    fn tools_that_are_confused_name_each_other() {
        for (a, b) in CONFUSED {
            for (one, other) in [(a, b), (b, a)] {
                let tool = find(one).unwrap();
                let named = tool.not_for.iter().any(|(_, instead)| instead == other);
                assert!(named, "`{one}` does not say that `{other}` is another tool");
            }
        }
        for tool in TOOLS {
            for (_, instead) in tool.not_for {
                let other = find(instead).unwrap_or_else(|| panic!("{}: {instead}", tool.name));
                let back = other.not_for.iter().any(|(_, back)| *back == tool.name);
                assert!(back, "`{instead}` does not name `{}`", tool.name);
            }
        }
    }

    #[test]
    fn every_description_says_when_and_when_not_and_there_are_few() {
        assert!(TOOLS.len() <= 12);
        for tool in TOOLS {
            let text = tool.description();
            assert!(!tool.does.is_empty() && text.contains(" Use when "), "{text}");
            assert!(text.contains(" Not for ") && text.len() < 1200, "{} {text}", text.len());
            assert!(!tool.use_when.ends_with('.') && tool.does.ends_with('.'), "{text}");
            assert!(!(tool.read_only && tool.destructive), "{}", tool.name);
        }
    }

    #[test]
    fn listed_schemas_of_results_have_all_fields_with_their_types() {
        for tool in TOOLS {
            let whole = serde_json::Value::Object((*tool.result_schema()).clone());
            let listed = serde_json::Value::Object(outline(&tool.result_schema()));
            let kinds = whole["anyOf"].as_array().unwrap();
            assert_eq!(listed["type"], "object", "{}", tool.name);
            assert_eq!(listed["anyOf"].as_array().unwrap().len(), kinds.len(), "{}", tool.name);
            for (kind, listed) in kinds.iter().zip(listed["anyOf"].as_array().unwrap()) {
                assert_eq!(kind["required"], listed["required"], "{}", tool.name);
                let names = |kind: &serde_json::Value| -> Vec<String> {
                    kind["properties"].as_object().unwrap().keys().cloned().collect()
                };
                assert_eq!(names(kind), names(listed), "{}", tool.name);
                for (name, field) in listed["properties"].as_object().unwrap() {
                    assert_eq!(field["type"], kind["properties"][name]["type"], "{name}");
                    assert!(field.as_object().unwrap().keys().all(|key| key == "type"), "{name}");
                }
            }
        }
    }

    #[test]
    fn listed_arguments_are_those_that_are_read() {
        for tool in TOOLS {
            let read = (tool.input)();
            let listed = listed_input(&read);
            let (listed, read) = (&listed["properties"], &read["properties"]);
            let names = |fields: &serde_json::Value| -> Vec<String> {
                fields.as_object().unwrap().keys().cloned().collect()
            };
            assert_eq!(names(listed), names(read), "{}", tool.name);
            let text = listed.to_string();
            assert!(!text.contains("\"format\":") && !text.contains("\"default\":null"), "{text}");
            assert!(!text.contains("\"null\""), "{text}");
        }
    }

    #[test]
    fn arguments_and_results_are_objects_whose_unknown_fields_are_refused() {
        for tool in TOOLS {
            let input = serde_json::to_value((tool.input)()).unwrap();
            assert_eq!(input["type"], "object", "{}", tool.name);
            assert_eq!(input["additionalProperties"], false, "{}", tool.name);
            for (name, field) in input["properties"].as_object().unwrap() {
                assert!(field["description"].is_string(), "{}: {name} is not told", tool.name);
            }
            let text = input.to_string();
            assert!(!text.contains("$ref"), "{}: {text}", tool.name);
            let output = serde_json::to_value((tool.output)()).unwrap();
            assert_eq!(output["type"], "object", "{}", tool.name);
        }
        let all = serde_json::to_string(&tools()).unwrap();
        // docs/mcp.md names this size.
        assert!(all.len() < 31_200, "{} bytes of definitions", all.len());
    }
}
