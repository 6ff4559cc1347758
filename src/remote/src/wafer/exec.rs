//! Runs one shell command in a Wafer workspace and returns the lines that it printed.
//!
//! The output comes over HTTP as a stream of server-sent events. The service reports the end of a
//! command on the same lines as its output, and a stream that just stops reports nothing. So the
//! command itself must print a line with a random nonce when it is done. Without that line the
//! command failed, whatever else it printed. Bills on the stream are kept in [`PendingBills`].

use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use serde::Serialize;
use tokio::time::timeout;

use super::api::{Api, JSON, json};
use super::error::WaferError;
use super::sse::SseLine;
use super::workspace::{Workspace, exec_path};
use crate::foreign_text::excerpt;
use crate::{BillReader, PendingBills, UserPrompt};

/// How long the service may take to close the stream after the command printed its end line.
const END_REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the stream may be silent beyond the command's own limit while the service may still
/// wait for a GPU.
const MAX_SILENCE: Duration = Duration::from_secs(300);
/// The same once the command runs.
const MAX_SILENCE_RUNNING: Duration = Duration::from_secs(30);

/// The status that the service reports once the command runs.
const RUNNING: &str = "running";

/// Limit on the output of a command. The longest is an answer of the agent: 1 MiB in base64. Each
/// line also counts [`LINE_BYTES`] for its `String`.
const MAX_OUTPUT_BYTES: usize = 8 << 20;
const LINE_BYTES: usize = 64;

/// Last lines of output that the error of a failed command quotes.
const MAX_QUOTED_LINES: usize = 20;

/// Runs commands in one workspace.

#[derive(Clone)]
pub(super) struct WorkspaceShell {
    api: Api,
    path: String,
    /// The container: `gpu`, `cpu`, `baremetal`, `auto`; `None`: the service's default.
    routing: Option<String>,
    user_prompt: Arc<dyn UserPrompt>,
    bills: PendingBills,
}

/// The body of a request to run a command.
#[derive(Serialize)]
struct ExecBody<'a> {
    command_b64: String,
    pull_image: bool,
    timeout_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    requirements: Option<Requirements<'a>>,
}

#[derive(Serialize)]
struct Requirements<'a> {
    routing: &'a str,
}

impl WorkspaceShell {
    pub(super) fn new(
        api: Api,
        workspace: &Workspace,
        routing: Option<String>,
        user_prompt: Arc<dyn UserPrompt>,
        bills: PendingBills,
    ) -> Self {
        Self { api, path: exec_path(workspace), routing, user_prompt, bills }
    }

    /// Runs a command until it prints the line `end`, and returns the lines before it. The service
    /// ends the command after `limit`. `doing` completes "while …" in errors.
    pub(super) async fn run(
        &self,
        command: &str,
        end: &str,
        limit: Duration,
        doing: &'static str,
    ) -> Result<Vec<String>, WaferError> {
        let routing = self.routing.as_deref();
        let body = json(&ExecBody {
            command_b64: Base64::encode_string(command.as_bytes()),
            pull_image: false,
            timeout_seconds: limit.as_secs().max(1),
            requirements: routing.map(|routing| Requirements { routing }),
        })?;
        let mut stream =
            self.api.stream(&self.path, Some((JSON, body)), doing, limit + MAX_SILENCE).await?;
        let mut bill_reader = BillReader::new(&self.bills);
        let mut lines: Vec<String> = Vec::new();
        let mut printed = 0;
        loop {
            let line = stream.next().await?;
            if matches!(&line, Some(SseLine::Status(message)) if message == RUNNING)
                || matches!(line, Some(SseLine::Text(_)))
            {
                stream.set_max_silence(limit + MAX_SILENCE_RUNNING);
            }
            match line {
                Some(SseLine::Text(line)) if line.trim() == end => {
                    // Read to the end, so that the connection can be reused.
                    let rest = async {
                        while let Ok(Some(line)) = stream.next().await {
                            if let SseLine::Billing(message) = line {
                                self.record_bill(&mut bill_reader, &message);
                            }
                        }
                    };
                    let _ = timeout(END_REPORT_TIMEOUT, rest).await;
                    return Ok(lines);
                }
                Some(SseLine::Text(line)) => {
                    printed += line.len() + LINE_BYTES;
                    if printed > MAX_OUTPUT_BYTES {
                        let why = format!("it printed more than {MAX_OUTPUT_BYTES} bytes");
                        return Err(WaferError::Command { doing, message: why });
                    }
                    lines.push(line);
                }
                Some(SseLine::Phase(message)) => self.user_prompt.starting(&message),
                Some(SseLine::Billing(message)) => self.record_bill(&mut bill_reader, &message),
                Some(SseLine::Status(message)) if message != RUNNING => {
                    self.user_prompt.starting(&message)
                }
                Some(SseLine::Status(_) | SseLine::Ssh | SseLine::Notice | SseLine::Report(_)) => {}
                Some(SseLine::Error(message)) => {
                    return Err(WaferError::from_stream(&message, doing));
                }
                Some(SseLine::Exit(Some(status))) if status != 0 => {
                    let tail = output_tail(&lines);
                    let message = format!("it ended with status {status}: {tail}");
                    return Err(WaferError::Command { doing, message });
                }
                Some(SseLine::Exit(_) | SseLine::Done) => {
                    let why =
                        format!("the service calls it ended too early: {}", output_tail(&lines));
                    return Err(WaferError::cut(doing, why));
                }
                None => {
                    let why = "the stream stopped before the command had ended";
                    return Err(WaferError::cut(doing, why));
                }
            }
        }
    }
}

impl WorkspaceShell {
    fn record_bill(&self, bill_reader: &mut BillReader, message: &str) {
        if let Some(message) = bill_reader.read(message) {
            self.user_prompt.starting(message);
        }
    }
}

/// An excerpt of the last lines, for an error.
fn output_tail(lines: &[String]) -> String {
    match excerpt(&lines[lines.len().saturating_sub(MAX_QUOTED_LINES)..].join(" ")) {
        text if text.is_empty() => "it printed nothing".to_owned(),
        text => text,
    }
}
