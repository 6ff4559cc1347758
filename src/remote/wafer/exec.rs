//! One command in a workspace, and what can be known of its end.
//!
//! The service tells the end of a command on the same lines as its output, and a stream that just
//! stops says nothing at all. So a command of ours says itself that it is done, in a line with a
//! number that nobody could know before; without that line it has not ended well, whatever else
//! came.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use serde::Serialize;
use tokio::time::timeout;

use super::api::{Api, json};
use super::error::WaferError;
use super::refusal::Refusal;
use super::sse::SseLine;
use super::workspace::{Workspace, exec_path};
use crate::remote::foreign_text::shown;
use crate::remote::{Bills, Meter, UserPrompt};

/// How long the service may take to say that a command has ended which has said so itself.
const END_REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Silence beyond a command's own limit before its stream is given up: a GPU may have to be waited
/// for first.
const MAX_SILENCE: Duration = Duration::from_secs(300);

/// Bytes that a command of ours may print: the agent's answer is 1 MiB, and is written in letters.
/// A line counts for what it takes in memory beside its text, too.
const MAX_OUTPUT_BYTES: usize = 8 << 20;
const LINE_BYTES: usize = 64;

/// Lines of output that are kept of a command that failed.
const MAX_KEPT_LINES: usize = 20;

/// Runs commands in one workspace.
#[derive(Clone)]
pub(super) struct WorkspaceShell {
    api: Api,
    path: String,
    /// Which of its containers: `gpu`, `cpu`, `baremetal`, `auto`; `None`: the service's own way.
    routing: Option<String>,
    talk: Arc<dyn UserPrompt>,
    bills: Bills,
}

/// The body of an exec.
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

/// A word that nobody knows before it is said.
pub(super) fn nonce() -> String {
    // Each hasher has random keys of its own.
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
}

impl WorkspaceShell {
    pub(super) fn new(
        api: Api,
        workspace: &Workspace,
        routing: Option<String>,
        talk: Arc<dyn UserPrompt>,
        bills: Bills,
    ) -> Self {
        Self { api, path: exec_path(workspace), routing, talk, bills }
    }

    /// Runs a command until it prints a line that is `end`; the lines before it. It may take
    /// `limit`.
    ///
    /// # Errors
    /// The link, a refusal, or a command that ended without that line.
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
            self.api.stream(&self.path, Some(body), doing, limit + MAX_SILENCE).await?;
        let mut meter = Meter::new(&self.bills);
        let mut lines: Vec<String> = Vec::new();
        let mut printed = 0;
        loop {
            match stream.next().await? {
                Some(SseLine::Text(line)) if line.trim() == end => {
                    // Read to its end, so that the connection can be used again.
                    let rest = async {
                        while let Ok(Some(line)) = stream.next().await {
                            if let SseLine::Billing(words) = line {
                                self.billed(&mut meter, &words);
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
                Some(SseLine::Phase(words)) => self.talk.starting(&words),
                Some(SseLine::Billing(words)) => self.billed(&mut meter, &words),
                Some(SseLine::Status(words)) if words != "running" => self.talk.starting(&words),
                Some(SseLine::Status(_) | SseLine::Ssh | SseLine::Notice | SseLine::Report(_)) => {}
                Some(SseLine::Error(words)) => {
                    return Err(match Refusal::said(&words) {
                        Some(refusal) => WaferError::Refused(Box::new(refusal)),
                        None => WaferError::Command { doing, words: shown(&words) },
                    });
                }
                Some(SseLine::Exit(Some(status))) if status != 0 => {
                    let said = last(&lines);
                    let words = format!("it ended with status {status}: {said}");
                    return Err(WaferError::Command { doing, words });
                }
                Some(SseLine::Exit(_) | SseLine::Done) => {
                    let why = format!("the service calls it ended too early: {}", last(&lines));
                    return Err(WaferError::Cut { doing, why });
                }
                None => {
                    let why = "the stream stopped before the command had ended".to_owned();
                    return Err(WaferError::Cut { doing, why });
                }
            }
        }
    }
}

impl WorkspaceShell {
    fn billed(&self, meter: &mut Meter, words: &str) {
        if let Some(words) = meter.read(words) {
            self.talk.starting(words);
        }
    }
}

/// The last lines of an output, shortened.
fn last(lines: &[String]) -> String {
    match shown(&lines[lines.len().saturating_sub(MAX_KEPT_LINES)..].join(" ")) {
        said if said.is_empty() => "it printed nothing".to_owned(),
        said => said,
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
