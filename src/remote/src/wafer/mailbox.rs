//! Carries a stream to an agent in commands; see [`rgpu_protocol::mail`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use bytes::Bytes;
use rgpu_protocol::mail::{ANSWER_BEGIN, ANSWER_END, MailRequest, PrintedHead};

use super::error::WaferError;
use super::exec::WorkspaceShell;
use super::install::install;
use crate::deploy::commands::{CommandReply, PIECE_BYTES};
use crate::deploy::{self, AgentStart};
use crate::http::Attempts;
use crate::mail::{Mail, MailCarrier, MailLimits, nonce, stream};
use crate::stream::AgentStream;
use crate::{RemoteError, UserPrompt};

/// How long a command waits for the agent's bytes, in milliseconds.
const COMMAND_WAIT_MS: u64 = 5000;

/// The time that a command may take beyond its wait.
const COMMAND_MARGIN: Duration = Duration::from_secs(45);

/// Attempts of a command, and the pause before the second.
const MAX_TRIES: u32 = 5;
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Opens streams to agents in one workspace.
#[derive(Clone)]
pub(super) struct MailboxClient {
    shell: WorkspaceShell,
    start: Arc<AgentStart>,
    user_prompt: Arc<dyn UserPrompt>,
    /// The duration of the last short command in milliseconds.
    round_trip: Arc<AtomicU64>,
}

/// One stream to an agent.
struct Mailbox {
    client: MailboxClient,
    name: String,
}

/// The result of a `mail` command.
enum MailOutcome {
    Mail(Mail),
    /// The workspace has no agent; the text describes the workspace.
    Absent(String),
}

impl MailboxClient {
    pub(super) fn new(
        shell: WorkspaceShell,
        start: AgentStart,
        user_prompt: Arc<dyn UserPrompt>,
    ) -> Self {
        Self { shell, start: Arc::new(start), user_prompt, round_trip: Arc::new(AtomicU64::new(0)) }
    }

    /// The duration of a short command.
    pub(super) fn round_trip(&self) -> Duration {
        Duration::from_millis(self.round_trip.load(Ordering::Relaxed))
    }

    /// Opens a stream to an agent, and uploads the agent first if it is missing.
    pub(super) async fn open(&self) -> Result<AgentStream, RemoteError> {
        let begun = Instant::now();
        let mut begun_twice = false;
        let (mailbox, first) = loop {
            let mailbox = Mailbox { client: self.clone(), name: nonce() };
            let first = self.begin(&mailbox).await?;
            // The first answer was cut and its container died meanwhile; try again in the new one.
            let died = first.head.ended && first.bytes.is_empty();
            if !died || std::mem::replace(&mut begun_twice, true) {
                break (mailbox, first);
            }
        };
        self.record_round_trip(begun);
        deploy::await_magic(stream(mailbox, first), &*self.user_prompt).await
    }

    fn record_round_trip(&self, begun: Instant) {
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.round_trip.store(ms, Ordering::Relaxed);
    }

    /// Starts the agent and returns its first bytes.
    async fn begin(&self, mailbox: &Mailbox) -> Result<Mail, RemoteError> {
        let wait_ms = COMMAND_WAIT_MS;
        let begin = MailRequest { begin: true, wait_ms, ..MailRequest::default() };
        match mailbox.send(begin, &[]).await? {
            MailOutcome::Mail(mail) => return Ok(mail),
            MailOutcome::Absent(host) => {
                install(&self.shell, &self.start, &host, &*self.user_prompt).await?
            }
        }
        match mailbox.send(begin, &[]).await? {
            MailOutcome::Mail(mail) => Ok(mail),
            MailOutcome::Absent(_) => {
                let what = "the agent was installed there and has disappeared".to_owned();
                Err(RemoteError::ProtocolViolation { what })
            }
        }
    }
}

#[async_trait::async_trait]
impl MailCarrier for Mailbox {
    fn limits(&self) -> MailLimits {
        let fill_pause = Duration::from_millis(1);
        MailLimits { piece_bytes: PIECE_BYTES, fill_pause, wait_ms: COMMAND_WAIT_MS }
    }

    async fn exchange(&self, request: MailRequest, bytes: Bytes) -> Result<Mail, RemoteError> {
        let begun = Instant::now();
        match self.send(request, &bytes).await? {
            MailOutcome::Mail(mail) => {
                if request.wait_ms == 0 {
                    self.client.record_round_trip(begun);
                }
                Ok(mail)
            }
            MailOutcome::Absent(_) => Err(damaged("the agent in the workspace is gone").into()),
        }
    }
}

impl Mailbox {
    /// Runs one command, and repeats it if that may help.
    async fn send(&self, request: MailRequest, bytes: &[u8]) -> Result<MailOutcome, WaferError> {
        let mut attempts = Attempts::new(MAX_TRIES, FIRST_RETRY_PAUSE);
        loop {
            match self.once(request, bytes).await {
                Err(error) if error.is_link() && !attempts.is_last() => {
                    self.client.user_prompt.verbose(&format!("{}; again", error.line()));
                    attempts.next().await;
                }
                done => return done,
            }
        }
    }

    async fn once(&self, request: MailRequest, bytes: &[u8]) -> Result<MailOutcome, WaferError> {
        let (nonce, MailRequest { take, from, wait_ms, begin, eof }) = (nonce(), request);
        let end = format!("{ANSWER_END} {nonce}");
        let mut verb = format!("mail {} {take} {from} {wait_ms} {nonce}", self.name);
        if begin {
            verb.push_str(" begin");
        } else if eof {
            verb.push_str(" eof");
        }
        let command = self.client.start.once(&verb, bytes, &end);
        let limit = Duration::from_millis(wait_ms) + COMMAND_MARGIN;
        let lines = self.client.shell.run(&command, &end, limit, SENDING).await?;
        match read(&lines, &nonce) {
            Some(mail) => mail,
            None => match CommandReply::find(&lines) {
                Some(CommandReply::Absent(host)) => Ok(MailOutcome::Absent(host)),
                _ => Err(damaged("its answer has no beginning")),
            },
        }
    }
}

const SENDING: &str = "talking to the agent in the workspace";

/// The answer in a command's output; `None`: it has no first line.
fn read(lines: &[String], nonce: &str) -> Option<Result<MailOutcome, WaferError>> {
    let begin = format!("{ANSWER_BEGIN} {nonce} ");
    let (at, head) = lines
        .iter()
        .enumerate()
        .find_map(|(at, line)| line.trim_end().strip_prefix(&begin).map(|head| (at, head)))?;
    Some(body(head, &lines[at + 1..]))
}

fn body(head: &str, lines: &[String]) -> Result<MailOutcome, WaferError> {
    let head: PrintedHead = serde_json::from_str(head).map_err(|e| damaged(&e.to_string()))?;
    let text: String = lines.iter().map(|line| line.trim()).collect();
    let bytes = Base64::decode_vec(&text).map_err(|e| damaged(&e.to_string()))?;
    if head != PrintedHead::new(head.head, &bytes) {
        return Err(damaged("its bytes are not those that were sent"));
    }
    Ok(MailOutcome::Mail(Mail { head: head.head, bytes }))
}

fn damaged(why: &str) -> WaferError {
    WaferError::cut(SENDING, why)
}

#[cfg(test)]
mod tests {
    use rgpu_protocol::mail::MailHead;

    use super::*;

    fn answer(nonce: &str, bytes: &[u8]) -> Vec<String> {
        let head = MailHead { taken: 3, from: 9, ended: false };
        let head = serde_json::to_string(&PrintedHead::new(head, bytes)).unwrap();
        let text = Base64::encode_string(bytes);
        let (a, b) = text.split_at(text.len() / 2);
        ["welcome".to_owned(), format!("{ANSWER_BEGIN} {nonce} {head}"), a.to_owned(), b.to_owned()]
            .into()
    }

    #[test]
    fn an_answer_is_taken_only_when_every_byte_of_it_is_there() {
        let lines = answer("ab", b"some bytes of a frame");
        match read(&lines, "ab") {
            Some(Ok(MailOutcome::Mail(Mail { head, bytes }))) => {
                assert_eq!((head.from, &*bytes), (9, &b"some bytes of a frame"[..]));
            }
            _ => panic!("it is whole"),
        }
        // Another command's answer, one with a line lost, one with a byte changed.
        assert!(read(&lines, "cd").is_none());
        assert!(matches!(read(&lines[..3], "ab"), Some(Err(error)) if error.is_link()));
        let mut changed = lines.clone();
        changed[2].replace_range(..1, if lines[2].starts_with('A') { "B" } else { "A" });
        assert!(matches!(read(&changed, "ab"), Some(Err(error)) if error.is_link()));
    }
}
