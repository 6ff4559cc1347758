//! Runs one command in a workspace and detects its end reliably.
//!
//! The service reports the end of a command on the same lines as its output, and a stream that just
//! stops reports nothing. So our command itself prints a line with a random number when it is done.
//! Without that line it has not ended well, whatever else was printed.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use serde::Serialize;
use tokio::time::timeout;

use super::api::{Api, JSON, json};
use super::error::WaferError;
use super::sse::SseLine;
use super::workspace::{Workspace, exec_path};
use crate::remote::foreign_text::excerpt;
use crate::remote::{BillReader, PendingBills, UserPrompt};

/// How long the service may take to report the end of a command that has printed its own end line.
const END_REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Silence beyond a command's own limit before its stream is given up, while the service may wait
/// for a GPU, and once the command runs.
const MAX_SILENCE: Duration = Duration::from_secs(300);
const MAX_SILENCE_RUNNING: Duration = Duration::from_secs(30);

/// The status in which the command runs.
const RUNNING: &str = "running";

/// Bytes that our command may print: the agent's answer has 1 MiB and is encoded in base64. Each
/// line also counts [`LINE_BYTES`] for its memory.
const MAX_OUTPUT_BYTES: usize = 8 << 20;
const LINE_BYTES: usize = 64;

/// Lines of output quoted when a command failed.
const MAX_KEPT_LINES: usize = 20;

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

/// A random word that nobody can predict.
pub(in crate::remote) fn nonce() -> String {
    // Each hasher has its own random keys.
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
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

    /// Runs a command until it prints the line `end`, and returns the lines before it. The command
    /// may take `limit`.
    ///
    /// # Errors
    /// The link fails, the service refuses, or the command ends without that line.
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
        let mut meter = BillReader::new(&self.bills);
        let mut lines: Vec<String> = Vec::new();
        let mut printed = 0;
        loop {
            let line = stream.next().await?;
            if matches!(&line, Some(SseLine::Status(words)) if words == RUNNING)
                || matches!(line, Some(SseLine::Text(_)))
            {
                stream.set_max_silence(limit + MAX_SILENCE_RUNNING);
            }
            match line {
                Some(SseLine::Text(line)) if line.trim() == end => {
                    // Reads the rest, so that the connection can be reused.
                    let rest = async {
                        while let Ok(Some(line)) = stream.next().await {
                            if let SseLine::Billing(words) = line {
                                self.record_bill(&mut meter, &words);
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
                        return Err(WaferError::Command { doing, words: why });
                    }
                    lines.push(line);
                }
                Some(SseLine::Phase(words)) => self.user_prompt.starting(&words),
                Some(SseLine::Billing(words)) => self.record_bill(&mut meter, &words),
                Some(SseLine::Status(words)) if words != RUNNING => {
                    self.user_prompt.starting(&words)
                }
                Some(SseLine::Status(_) | SseLine::Ssh | SseLine::Notice | SseLine::Report(_)) => {}
                Some(SseLine::Error(words)) => {
                    return Err(WaferError::from_stream(&words, doing));
                }
                Some(SseLine::Exit(Some(status))) if status != 0 => {
                    let tail = last(&lines);
                    let words = format!("it ended with status {status}: {tail}");
                    return Err(WaferError::Command { doing, words });
                }
                Some(SseLine::Exit(_) | SseLine::Done) => {
                    let why = format!("the service calls it ended too early: {}", last(&lines));
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
    fn record_bill(&self, meter: &mut BillReader, words: &str) {
        if let Some(words) = meter.read(words) {
            self.user_prompt.starting(words);
        }
    }
}

/// The last lines of an output, shortened.
fn last(lines: &[String]) -> String {
    match excerpt(&lines[lines.len().saturating_sub(MAX_KEPT_LINES)..].join(" ")) {
        text if text.is_empty() => "it printed nothing".to_owned(),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_words_are_alike() {
        assert_ne!(nonce(), nonce());
        assert_eq!(nonce().len(), 32);
    }
}
