//! Commands of rgpu as tools: an action of a table, and words that the client writes.

use std::sync::Arc;
use std::time::Instant;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::mcp::answer::{self, Answer};
use crate::mcp::arguments::{argument_error, check_words};
use crate::mcp::call::{Call, failure_of, wait};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_work::own_command::{CommandLine, RunningCommand, no_document};

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
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct McpCommandResult {
    /// Name and version of this schema: `rgpu.mcp-command/1`.
    schema: String,
    /// The command that ran, as a user would type it.
    command: String,
    /// `done`, or `running`: the same call again waits for its end.
    state: String,
    /// The exit status; 1: something was found.
    exit: Option<i32>,
    /// The document that the command printed.
    document: Option<Value>,
    /// The end of its messages, without those that the document has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    messages: String,
    /// What to call next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    next: Vec<String>,
    /// What was left out to stay short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cut: Vec<String>,
}

/// The schema of the results.
pub(super) fn output() -> Arc<JsonObject> {
    answer::output(&[answer::schema::<McpCommandResult>])
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
        return Err(argument_error(format!("`action`: there is no `{name}`")));
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
    run_checked(call, group, action, words, wait_s).await
}

/// As [`run`], with words that were checked or are rgpu's own.
pub(super) async fn run_checked(
    call: &Call,
    group: &[&str],
    action: &Action,
    words: &[String],
    wait_s: Option<u64>,
) -> Result<Answer> {
    for word in words {
        let flag = word.split('=').next().unwrap_or_default();
        if action.refused.contains(&flag) {
            return Err(argument_error(format!("`arguments`: `{flag}` cannot be used here"))
                .hint("leave it out: the result has the numbers, and a call continues by itself"));
        }
    }
    let argv = group.iter().copied().chain(action.name.split(' ')).map(ToOwned::to_owned);
    let argv: Vec<String> = argv.chain(words.iter().cloned()).collect();
    let command =
        format!("rgpu {}", shlex::try_join(argv.iter().map(|w| &**w)).unwrap_or_default());
    let ended = call.command(CommandLine::new(argv), wait_s).await?;
    let mut result = McpCommandResult {
        schema: "rgpu.mcp-command/1".to_owned(),
        command,
        state: "running".to_owned(),
        exit: None,
        document: None,
        messages: String::new(),
        next: Vec::new(),
        cut: Vec::new(),
    };
    let Some(ended) = ended else {
        result.next = next_calls(call, group, action);
        return Answer::from_result(&result);
    };
    if let Some(failure) = failure_of(&ended) {
        return Err(failure);
    }
    let is_fine = matches!(ended.status, Some(0 | 1));
    if ended.document.is_none() && !is_fine {
        return Err(no_document(ended.status, ended.messages));
    }
    result.state = "done".to_owned();
    result.exit = ended.status;
    let is_error = ended.status.is_none_or(|status| status > i32::from(Exit::Findings as u8));
    result.messages = new_lines(&ended.messages, ended.document.as_deref());
    result.document = ended.document.map(Arc::unwrap_or_clone);
    Answer::with(&result, is_error)
}

/// What to call while a command runs.
fn next_calls(call: &Call, group: &[&str], action: &Action) -> Vec<String> {
    let mut next = vec![format!("the same call waits on: {}", call.same_call_hint())];
    match (group, action.name) {
        (["queue"], "run") => {
            next.push(r#"campaign {"of": "queue", "action": "list"}"#.to_owned());
            next.push(r#"campaign {"of": "queue", "action": "stop"}"#.to_owned());
        }
        (["loop"], "start" | "resume") => {
            next.push(r#"campaign {"of": "loop", "action": "status"}"#.to_owned());
        }
        _ => {}
    }
    next
}

/// The lines of messages, each once, that the document does not have.
fn new_lines(messages: &str, document: Option<&Value>) -> String {
    let document = document.map(Value::to_string).unwrap_or_default();
    let mut lines: Vec<&str> = Vec::new();
    for line in messages.lines() {
        let text = json!(line.trim()).to_string();
        let is_told = document.contains(text.trim_matches('"')) || lines.contains(&line);
        if !line.trim().is_empty() && !is_told {
            lines.push(line);
        }
    }
    lines.join("\n")
}

/// Asks the running commands of a kind, which this server started, to stop, and waits for their
/// end. What is left to do is in `next`.
pub(super) async fn stop(call: &Call, argv: [&str; 2], wait_s: Option<u64>) -> Result<Answer> {
    let limit = wait(wait_s)?;
    let command = format!("rgpu {}", argv.join(" "));
    // Commands are named by their words.
    let named = format!("{argv:?}");
    let running = call.shared.started_commands.running(named.trim_end_matches(']'));
    if running.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "not_running",
            format!("this server has started no `{command}` that runs"),
        ));
    }
    running.iter().for_each(RunningCommand::interrupt);
    let begun = Instant::now();
    let mut has_ended = true;
    for mut started in running {
        let left = limit.saturating_sub(begun.elapsed());
        has_ended &= started.wait(left).await.is_some();
    }
    let again = "it starts no more entries and waits for running ones; repeat the call to stop \
                 waiting";
    Answer::from_result(&McpCommandResult {
        schema: "rgpu.mcp-command/1".to_owned(),
        command,
        state: if has_ended { "done" } else { "running" }.to_owned(),
        exit: None,
        document: None,
        messages: String::new(),
        next: if has_ended { Vec::new() } else { vec![again.to_owned()] },
        cut: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_repeat_are_left_out() {
        let document = json!({"checks": [{"text": "ncu \"works\""}]});
        let messages = "connecting\n  ncu \"works\"\nconnecting\n\nwarning: old driver\n";
        assert_eq!(new_lines(messages, Some(&document)), "connecting\nwarning: old driver");
        assert_eq!(new_lines("a\na", None), "a");
    }
}
