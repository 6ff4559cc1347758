//! What the page can start: rgpu's own commands, which a user could type as well.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Server;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_work::own_command::{CommandLine, check_argument};

/// How long a request waits for its command, which goes on after that.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// A request to start a command.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionRequest {
    /// The command to start.
    pub(super) action: Action,
    /// Whether only the command line is asked for.
    #[serde(default)]
    pub(super) show_only: bool,
}

/// What can be started.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Action {
    /// `rgpu profile`.
    Profile {
        /// The kernel, as `rgpu profile` takes it.
        kernel: String,
        /// The mode; empty: the default.
        #[serde(default)]
        mode: String,
        /// The remote; empty: the default.
        #[serde(default)]
        remote: String,
    },
    /// `rgpu runs attach`: follows a run and fetches its results.
    Attach {
        /// The run's id.
        run: String,
    },
    /// `rgpu runs cancel`.
    CancelRun {
        /// The run's id.
        run: String,
    },
    /// `rgpu queue cancel`.
    CancelEntry {
        /// The entry's number.
        entry: i64,
    },
    /// `rgpu queue requeue`.
    Requeue {
        /// The entry's number.
        entry: i64,
    },
    /// `rgpu queue run`.
    RunQueue {},
    /// `rgpu queue pause`.
    PauseQueue {},
    /// `rgpu queue resume`.
    ResumeQueue {},
    /// `rgpu loop cancel`.
    StopLoop {
        /// The loop's id.
        id: String,
    },
    /// `rgpu remote check`: asks a host what it has.
    CheckHost {
        /// The name of the remote.
        remote: String,
    },
}

/// The outcome of an action (`rgpu.dashboard-action/1`).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct ActionResult {
    /// Name and version of this schema: `rgpu.dashboard-action/1`.
    pub(super) schema: &'static str,
    /// The command line, as a user would type it.
    pub(super) command: String,
    /// How far it got.
    pub(super) state: ActionState,
    /// The exit status. Absent until the command ended.
    pub(super) exit: Option<i32>,
    /// The end of its messages.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) messages: String,
    /// The document that it printed.
    pub(super) document: Option<Value>,
}

/// The state of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ActionState {
    /// Only the command line was asked for.
    NotStarted,
    /// The command runs.
    Running,
    /// The command has ended.
    Ended,
}

impl Action {
    /// The command line of the action.
    fn command(&self) -> Result<CommandLine> {
        let words = |words: &[&str]| CommandLine::new(words.iter().copied());
        Ok(match self {
            Self::Profile { kernel, mode, remote } => {
                let mut line = words(&["profile", "--kernel", word("kernel", kernel)?]);
                for (name, value) in [("mode", mode), ("remote", remote)] {
                    if !value.is_empty() {
                        line.arg(format!("--{name}"));
                        line.arg(word(name, value)?);
                    }
                }
                line
            }
            Self::Attach { run } => words(&["runs", "attach", word("run", run)?]),
            Self::CancelRun { run } => words(&["runs", "cancel", word("run", run)?]),
            Self::CancelEntry { entry } => numbered("cancel", *entry)?,
            Self::Requeue { entry } => numbered("requeue", *entry)?,
            Self::RunQueue {} => words(&["queue", "run"]),
            Self::PauseQueue {} => words(&["queue", "pause"]),
            Self::ResumeQueue {} => words(&["queue", "resume"]),
            Self::StopLoop { id } => words(&["loop", "cancel", word("id", id)?]),
            Self::CheckHost { remote } => words(&["remote", "check", word("remote", remote)?]),
        })
    }
}

fn numbered(what: &str, entry: i64) -> Result<CommandLine> {
    if entry > 0 {
        Ok(CommandLine::new(["queue", what, &entry.to_string()]))
    } else {
        let what = format!("`entry` cannot be `{entry}`: numbers of entries begin with 1");
        Err(Failure::new(Exit::Usage, "wrong_argument", what))
    }
}

fn word<'t>(name: &str, text: &'t str) -> Result<&'t str> {
    check_argument(name, text).map(|()| text)
}

/// Starts the command of an action and waits at most [`MAX_WAIT`] for its end.
pub(super) async fn start(server: &Server, request: &ActionRequest) -> Result<ActionResult> {
    let line = request.action.command()?;
    let mut result = ActionResult {
        schema: "rgpu.dashboard-action/1",
        command: line.display(),
        state: ActionState::NotStarted,
        exit: None,
        messages: String::new(),
        document: None,
    };
    if request.show_only {
        return Ok(result);
    }
    let name = format!("{} {}", result.command, server.next_number());
    let mut started = server.started_commands.start(&name, line, &server.own_program())?;
    let Some(ended) = started.wait(MAX_WAIT).await else {
        result.state = ActionState::Running;
        return Ok(result);
    };
    server.started_commands.forget(&name);
    result.state = ActionState::Ended;
    result.exit = ended.status;
    result.messages = ended.messages;
    result.document = ended.document.map(Arc::unwrap_or_clone);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String> {
        let request: ActionRequest = serde_json::from_str(text).unwrap();
        Ok(request.action.command()?.display())
    }

    #[test]
    fn an_action_is_a_command_that_a_user_could_type() {
        for (text, command) in [
            (
                r#"{"action": {"do": "profile", "kernel": "vecadd", "mode": "ncu"}}"#,
                "rgpu profile --kernel vecadd --mode ncu",
            ),
            (r#"{"action": {"do": "cancel_run", "run": "a"}}"#, "rgpu runs cancel a"),
            (r#"{"action": {"do": "attach", "run": "a"}}"#, "rgpu runs attach a"),
            (r#"{"action": {"do": "requeue", "entry": 7}}"#, "rgpu queue requeue 7"),
            (r#"{"action": {"do": "cancel_entry", "entry": 7}}"#, "rgpu queue cancel 7"),
            (r#"{"action": {"do": "run_queue"}}"#, "rgpu queue run"),
            (r#"{"action": {"do": "stop_loop", "id": "l"}}"#, "rgpu loop cancel l"),
            (r#"{"action": {"do": "check_host", "remote": "h"}}"#, "rgpu remote check h"),
            (r#"{"action": {"do": "attach", "run": "a b"}}"#, "rgpu runs attach 'a b'"),
        ] {
            assert_eq!(shown(text).unwrap(), command);
        }
        for wrong in ["-x", "", "--yes", "a\nb", "a\0b"] {
            let text = serde_json::json!({"action": {"do": "attach", "run": wrong}}).to_string();
            assert_eq!(shown(&text).unwrap_err().code, "wrong_argument", "{wrong}");
        }
        assert!(shown(r#"{"action": {"do": "requeue", "entry": -1}}"#).is_err());
        for wrong in [
            r#"{"action": {"do": "requeue", "entry": 1, "other": 1}}"#,
            r#"{"action": {"do": "run", "argv": ["sh"]}}"#,
            r#"{"action": {"do": "run_queue"}, "other": 1}"#,
        ] {
            assert!(serde_json::from_str::<ActionRequest>(wrong).is_err(), "{wrong}");
        }
    }
}
