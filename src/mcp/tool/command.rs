//! Commands of rgpu as tools: an action of a table, and words that the client writes.

use std::sync::Arc;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{Exit, Result};
use crate::mcp::answer::{self, Answer};
use crate::mcp::arguments::{check_words, wrong};
use crate::mcp::call::Call;
use crate::own_command::{CommandLine, no_document};

/// An action: a command of rgpu that a tool may run.
pub(super) struct Action {
    /// Its words after the group's, such as `hw list`.
    pub(super) name: &'static str,
    /// What it does and which arguments it takes, for the schema.
    pub(super) about: &'static str,
    /// Flags that write files or start programs here, and are refused.
    pub(super) refused: &'static [&'static str],
}

/// What a command printed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct CommandResult {
    /// `rgpu.mcp-command/1`.
    schema: String,
    /// The command that ran, as a user would type it.
    command: String,
    /// `done`, or `running`: the same call again waits for its end.
    state: String,
    /// The exit status; 1: something was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit: Option<i32>,
    /// The document that the command printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    document: Option<Value>,
    /// The end of its messages.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    messages: String,
    /// What was left out to stay short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cut: Vec<String>,
}

/// The schema of the results.
pub(super) fn output() -> Arc<JsonObject> {
    answer::output(&[answer::schema::<CommandResult>])
}

/// The schema of an argument that names an action.
pub(super) fn actions<'a>(groups: impl IntoIterator<Item = (&'a str, &'a [Action])>) -> Value {
    let mut names: Vec<&str> = Vec::new();
    let mut about = String::from("What to do:");
    for (group, actions) in groups {
        if !group.is_empty() {
            about.push_str(&format!("\n{group}:"));
        }
        for action in actions {
            about.push_str(&format!("\n- {}: {}", action.name, action.about));
            if !names.contains(&action.name) {
                names.push(action.name);
            }
        }
    }
    json!({"type": "string", "enum": names, "description": about})
}

/// How long a call waits for a command that only computes.
const COMPUTE_WAIT_S: u64 = 45;

/// Runs the one of `actions` that the client named, of a command that only computes.
pub(super) async fn run_one_of(
    call: &Call,
    group: &str,
    actions: &[Action],
    name: &str,
    words: &[String],
) -> Result<Answer> {
    let Some(action) = actions.iter().find(|action| action.name == name) else {
        return Err(wrong(format!("`action`: there is no `{name}`")));
    };
    run(call, &[group], action, words, Some(COMPUTE_WAIT_S)).await
}

/// Runs an action of the command `group`, and waits for its end for a while.
pub(super) async fn run(
    call: &Call,
    group: &[&str],
    action: &Action,
    words: &[String],
    wait_s: Option<u64>,
) -> Result<Answer> {
    check_words(call.context(), words)?;
    for word in words {
        let flag = word.split('=').next().unwrap_or_default();
        if action.refused.contains(&flag) {
            return Err(wrong(format!("`arguments`: `{flag}` writes files"))
                .hint("leave it out: the result has the numbers"));
        }
    }
    let argv = group.iter().copied().chain(action.name.split(' ')).map(ToOwned::to_owned);
    let argv: Vec<String> = argv.chain(words.iter().cloned()).collect();
    let command =
        format!("rgpu {}", shlex::try_join(argv.iter().map(|w| &**w)).unwrap_or_default());
    let ended = call.command(CommandLine::new(argv), wait_s).await?;
    let mut result = CommandResult {
        schema: "rgpu.mcp-command/1".to_owned(),
        command,
        state: "running".to_owned(),
        exit: None,
        document: None,
        messages: String::new(),
        cut: Vec::new(),
    };
    let Some(ended) = ended else { return Answer::of(&result) };
    if let Some(failure) = ended.failure() {
        return Err(failure);
    }
    let is_fine = matches!(ended.status, Some(0 | 1));
    if ended.document.is_none() && !is_fine {
        return Err(no_document(ended.status, ended.messages));
    }
    result.state = "done".to_owned();
    result.exit = ended.status;
    let is_error = ended.status.is_none_or(|status| status > i32::from(Exit::Findings as u8));
    result.document = ended.document.map(Arc::unwrap_or_clone);
    result.messages = ended.messages;
    Answer::with(&result, is_error)
}
