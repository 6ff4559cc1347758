//! A stream to an agent, carried in commands; see [`rgpu_protocol::mail`].
//!
//! The session's bytes go out in pieces, several at a time; the agent's bytes are fetched by
//! commands that wait for them. Both directions are counted, so a command whose answer was cut is
//! simply run again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use rgpu_protocol::Digest;
use rgpu_protocol::mail::{ANSWER_BEGIN, ANSWER_END, MailHead};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use super::error::WaferError;
use super::exec::{WorkspaceShell, nonce};
use super::install::install;
use crate::deploy::commands::{CommandReply, PIECE_BYTES};
use crate::deploy::{self, AgentStart};
use crate::http::Attempts;
use crate::stream::{AgentStream, FrameReader, StreamEnd};
use crate::worker::ClosingWriter;
use crate::{RemoteError, UserPrompt};

/// The size of the pipe between a session and its mailbox.
const PIPE_BYTES: usize = 1 << 20;

/// Pieces sent to the agent at the same time.
const MAX_PIECES_IN_FLIGHT: usize = 4;

/// How long a command waits for the agent's bytes.
const COMMAND_WAIT: Duration = Duration::from_secs(5);

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
#[derive(Clone)]
struct Mailbox {
    client: MailboxClient,
    name: Arc<str>,
}

/// The arguments of a `mail` command.
struct MailCommand<'a> {
    take: u64,
    bytes: &'a [u8],
    from: u64,
    wait: Duration,
    /// `begin`, `eof` or nothing.
    word: &'static str,
}

/// The result of a `mail` command.
enum MailOutcome {
    Mail(MailHead, Vec<u8>),
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
        let (mailbox, head, bytes) = loop {
            let mailbox = Mailbox { client: self.clone(), name: nonce().into() };
            let (head, bytes) = self.begin(&mailbox).await?;
            // The first answer was cut and its container died meanwhile; try again in the new one.
            let died = head.ended && bytes.is_empty();
            if !died || std::mem::replace(&mut begun_twice, true) {
                break (mailbox, head, bytes);
            }
        };
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.round_trip.store(ms, Ordering::Relaxed);
        let (session_end, mailbox_end) = tokio::io::duplex(PIPE_BYTES);
        let (read, write) = tokio::io::split(session_end);
        let ending = StreamEnd::default();
        let (ended, all_sent) = oneshot::channel();
        tokio::spawn(run_stream(mailbox, mailbox_end, (head, bytes), ending.clone(), ended));
        let wire = AgentStream {
            reader: FrameReader::new(Box::new(read)),
            writer: Box::new(ClosingWriter::new(write, all_sent)),
            ending,
        };
        deploy::await_magic(wire, &*self.user_prompt).await
    }

    /// Starts the agent and returns its first bytes.
    async fn begin(&self, mailbox: &Mailbox) -> Result<(MailHead, Vec<u8>), RemoteError> {
        let begin = MailCommand { take: 0, bytes: &[], from: 0, wait: COMMAND_WAIT, word: "begin" };
        match mailbox.send(&begin).await? {
            MailOutcome::Mail(head, bytes) => return Ok((head, bytes)),
            MailOutcome::Absent(host) => {
                install(&self.shell, &self.start, &host, &*self.user_prompt).await?
            }
        }
        match mailbox.send(&begin).await? {
            MailOutcome::Mail(head, bytes) => Ok((head, bytes)),
            MailOutcome::Absent(_) => {
                let what = "the agent was installed there and has disappeared".to_owned();
                Err(RemoteError::ProtocolViolation { what })
            }
        }
    }
}

async fn run_stream(
    mailbox: Mailbox,
    pipe: DuplexStream,
    first: (MailHead, Vec<u8>),
    ending: StreamEnd,
    ended: oneshot::Sender<()>,
) {
    let (read, write) = tokio::io::split(pipe);
    let why = tokio::select! {
        why = mailbox.clone().send_to_agent(read) => why,
        why = mailbox.fetch(write, first) => why,
    };
    // Set before the stream ends, because its reader asks for the reason.
    ending.record_end(why);
    let _ = ended.send(());
}

impl Mailbox {
    /// Sends the session's bytes to the agent until the session closes, then ends the stream.
    async fn send_to_agent(self, mut from: ReadHalf<DuplexStream>) -> String {
        let room = Arc::new(Semaphore::new(MAX_PIECES_IN_FLIGHT));
        let mut sending: JoinSet<Result<(), WaferError>> = JoinSet::new();
        let mut sent_bytes = 0;
        // Keeps bytes read while another branch of the select was taken.
        let mut waiting = Vec::new();
        loop {
            let read = tokio::select! {
                read = read_some(&mut from, &mut waiting) => read,
                Some(sent) = sending.join_next() => match sent {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => return error_text(&error),
                    Err(error) => return error.to_string(),
                },
            };
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return error.to_string(),
            }
            let Ok(permit) = room.clone().acquire_owned().await else { break };
            let (mailbox, take, bytes) = (self.clone(), sent_bytes, std::mem::take(&mut waiting));
            sent_bytes += bytes.len() as u64;
            sending.spawn(async move {
                let _permit = permit;
                mailbox.deliver(take, &bytes).await
            });
        }
        while let Some(sent) = sending.join_next().await {
            if let Ok(Err(error)) = sent {
                return error_text(&error);
            }
        }
        let eof = MailCommand {
            take: sent_bytes,
            bytes: &[],
            from: 0,
            wait: Duration::ZERO,
            word: "eof",
        };
        // If this fails, the agent's own timeout ends it.
        let _ = self.once(&eof).await;
        "the session is closed".to_owned()
    }

    async fn deliver(&self, take: u64, bytes: &[u8]) -> Result<(), WaferError> {
        let mail = MailCommand { take, bytes, from: 0, wait: Duration::ZERO, word: "" };
        let begun = Instant::now();
        let (mut tries, end_offset) = (1, take + bytes.len() as u64);
        loop {
            let taken = match self.send(&mail).await? {
                MailOutcome::Mail(head, _) if head.ended && head.taken < end_offset => {
                    return Err(gone());
                }
                MailOutcome::Mail(head, _) => head.taken,
                MailOutcome::Absent(_) => return Err(gone()),
            };
            if taken >= end_offset {
                let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.client.round_trip.store(ms, Ordering::Relaxed);
                return Ok(());
            }
            // Earlier pieces have not arrived yet.
            if tries == MAX_TRIES {
                let why = format!("the agent has {taken} bytes of {end_offset}");
                return Err(damaged(&why));
            }
            tries += 1;
        }
    }

    /// Passes the agent's bytes to the session until either ends.
    async fn fetch(
        &self,
        mut to: WriteHalf<DuplexStream>,
        mut came: (MailHead, Vec<u8>),
    ) -> String {
        let mut from = 0;
        loop {
            let (head, bytes) = came;
            from += bytes.len() as u64;
            if let Err(error) = to.write_all(&bytes).await {
                return error.to_string();
            }
            if head.ended {
                return "the agent in the workspace has ended".to_owned();
            }
            let ask = MailCommand { take: 0, bytes: &[], from, wait: COMMAND_WAIT, word: "" };
            came = match self.send(&ask).await {
                Ok(MailOutcome::Mail(head, bytes)) if head.from == from => (head, bytes),
                Ok(MailOutcome::Mail(..)) => {
                    return "the agent's bytes are out of order".to_owned();
                }
                Ok(MailOutcome::Absent(_)) => return error_text(&gone()),
                Err(error) => return error_text(&error),
            };
        }
    }

    /// Runs one command, and repeats it if that may help.
    async fn send(&self, mail: &MailCommand<'_>) -> Result<MailOutcome, WaferError> {
        let mut attempts = Attempts::new(MAX_TRIES, FIRST_RETRY_PAUSE);
        loop {
            match self.once(mail).await {
                Err(error) if error.is_link() && !attempts.is_last() => {
                    self.client.user_prompt.verbose(&format!("{}; again", error_text(&error)));
                    attempts.next().await;
                }
                done => return done,
            }
        }
    }

    async fn once(&self, mail: &MailCommand<'_>) -> Result<MailOutcome, WaferError> {
        let (nonce, MailCommand { take, bytes, from, wait, word }) = (nonce(), mail);
        let end = format!("{ANSWER_END} {nonce}");
        let verb = format!("mail {} {take} {from} {} {nonce} {word}", self.name, wait.as_millis());
        let command = self.client.start.once(verb.trim_end(), bytes, &end);
        let limit = *wait + COMMAND_MARGIN;
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

/// Waits for bytes and also takes those already there; 0: the end. Cancel-safe: received bytes are
/// in `bytes`.
async fn read_some(
    from: &mut ReadHalf<DuplexStream>,
    bytes: &mut Vec<u8>,
) -> std::io::Result<usize> {
    let mut limited = from.take((PIECE_BYTES - bytes.len()) as u64);
    if bytes.is_empty() && limited.read_buf(bytes).await? == 0 {
        return Ok(0);
    }
    // Gives the writer a moment to add more.
    let pause = Duration::from_millis(1);
    while bytes.len() < PIECE_BYTES
        && let Ok(added) = tokio::time::timeout(pause, limited.read_buf(bytes)).await
        && added? > 0
    {}
    Ok(bytes.len())
}

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
    let head: MailHead = serde_json::from_str(head).map_err(|e| damaged(&e.to_string()))?;
    let text: String = lines.iter().map(|line| line.trim()).collect();
    let bytes = Base64::decode_vec(&text).map_err(|e| damaged(&e.to_string()))?;
    let sha256 = Digest::of(&bytes);
    if bytes.len() as u64 != head.len || sha256 != head.sha256 {
        return Err(damaged("its bytes are not those that were sent"));
    }
    Ok(MailOutcome::Mail(head, bytes))
}

fn damaged(why: &str) -> WaferError {
    WaferError::cut(SENDING, why)
}

fn gone() -> WaferError {
    damaged("the agent in the workspace is gone")
}

/// An error with its cause, on one line.
fn error_text(error: &WaferError) -> String {
    match error {
        WaferError::Http(error) => error.line(),
        WaferError::Command { message, .. } => format!("{error}: {message}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(nonce: &str, bytes: &[u8]) -> Vec<String> {
        let head = MailHead {
            taken: 3,
            from: 9,
            len: bytes.len() as u64,
            sha256: Digest::of(bytes),
            ended: false,
        };
        let head = serde_json::to_string(&head).unwrap();
        let text = Base64::encode_string(bytes);
        let (a, b) = text.split_at(text.len() / 2);
        ["welcome".to_owned(), format!("{ANSWER_BEGIN} {nonce} {head}"), a.to_owned(), b.to_owned()]
            .into()
    }

    #[test]
    fn an_answer_is_taken_only_when_every_byte_of_it_is_there() {
        let lines = answer("ab", b"some bytes of a frame");
        match read(&lines, "ab") {
            Some(Ok(MailOutcome::Mail(head, bytes))) => {
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
