//! A connection over requests with answers; see [`rgpu_protocol::mail`].
//!
//! A [`Keeper`] has the bytes of an ordinary connection until a client's requests fetch them. The
//! HTTP server has one for each of its clients. For short commands, the first `mail` starts a
//! process (`keep`) with a keeper, which runs `rgpu-agent stdio` on two pipes and passes its bytes
//! to later commands over a socket in the agent's folder. That process ends after five minutes
//! without a command; jobs are separate processes.

mod keeper;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use rgpu_protocol::mail::{
    ANSWER_BEGIN, ANSWER_END, BASE64_LINE_CHARS, MAX_PRINTED_BYTES, MailHead, MailRequest,
    PrintedHead, valid_name,
};
use serde::{Deserialize, Serialize};

use crate::control;
use crate::host_fault::{HostFault, IoContext};
use crate::root::{RootCandidate, Roots};

pub use keeper::{Keeper, keep};

/// Name of the keeper's socket.
const SOCKET: &str = "sock";

/// How long a keeper may take to start.
const KEEPER_START_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait of one request.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Most input of one command, as base64.
const MAX_INPUT_BYTES: u64 = 4 << 20;

/// A command's request to the process with the keeper. Its bytes follow.
#[derive(Debug, Serialize, Deserialize)]
struct BroughtMail {
    request: MailRequest,
    /// Number of bytes.
    len: u64,
}

/// Runs `mail NAME TAKE FROM WAIT_MS NONCE [begin|eof]`.
pub fn post(candidates: &[RootCandidate], args: &[OsString]) -> Result<(), String> {
    const USAGE: &str = "usage: rgpu-agent mail NAME TAKE FROM WAIT_MS NONCE [begin|eof]";
    let words: Option<Vec<&str>> = args.iter().map(|arg| arg.to_str()).collect();
    let words = words.ok_or(USAGE)?;
    let (name, numbers, nonce, last) = match words[..] {
        [name, take, from, wait, nonce] => (name, [take, from, wait], nonce, ""),
        [name, take, from, wait, nonce, last @ ("begin" | "eof")] => {
            (name, [take, from, wait], nonce, last)
        }
        _ => return Err(USAGE.into()),
    };
    if !valid_name(name) || !valid_name(nonce) {
        return Err(USAGE.into());
    }
    let number = |text: &str| text.parse::<u64>().map_err(|_| USAGE.to_owned());
    let [take, from, wait_ms] = [number(numbers[0])?, number(numbers[1])?, number(numbers[2])?];
    let bytes = read_input().map_err(|e| format!("its input cannot be read: {e}"))?;
    let (begin, eof) = (last == "begin", last == "eof");
    let request = MailRequest { take, from, wait_ms, begin, eof };
    let link = connect_keeper(candidates, name, begin).map_err(|e| e.to_string())?;
    let (head, answer) = match link.map(|link| exchange(link, request, &bytes)) {
        Some(Ok(answer)) => answer,
        // If the keeper is gone, the agent's stream has ended.
        None | Some(Err(_)) => (MailHead::gone(from), Vec::new()),
    };
    print(head, &answer, nonce).map_err(|e| e.to_string())
}

/// Reads standard input: base64 with white space in it.
fn read_input() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    io::stdin().lock().take(MAX_INPUT_BYTES).read_to_end(&mut text)?;
    text.retain(|b| !b.is_ascii_whitespace());
    let text = String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData)?;
    Base64::decode_vec(&text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))
}

/// Connects to a conversation's keeper, and starts it at the beginning. `None` if it is gone.
fn connect_keeper(
    candidates: &[RootCandidate],
    name: &str,
    begin: bool,
) -> Result<Option<UnixStream>, HostFault> {
    let roots = Roots::choose(candidates);
    let root = match roots.main() {
        Ok(root) => root,
        Err(error) => {
            return Err(HostFault::new("use a folder", io::Error::other(error.to_string())));
        }
    };
    let folder = root.join("mail").join(name);
    let is_new = begin && create_folder(&folder)?;
    if is_new {
        start_keeper(&folder)?;
    }
    let since = Instant::now();
    loop {
        match control::connect(&folder, SOCKET) {
            Ok(link) => return Ok(Some(link)),
            // Another first command may be starting the keeper.
            Err(_) if begin && since.elapsed() < KEEPER_START_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) if is_new => return Err(HostFault::new("reach the keeper", error)),
            // The keeper has died since, for example with its container.
            Err(_) => return Ok(None),
        }
    }
}

/// Creates the folder of a conversation. Returns whether it is new.
fn create_folder(folder: &Path) -> Result<bool, HostFault> {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700);
    if let Some(mail) = folder.parent()
        && let Err(error) = builder.create(mail)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(HostFault::new(format!("make `{}`", mail.display()), error));
    }
    match builder.create(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(HostFault::new(format!("make `{}`", folder.display()), error)),
    }
}

/// Starts a keeper. It shares no files with us, so that readers of our output do not wait for it to
/// end.
fn start_keeper(folder: &Path) -> Result<(), HostFault> {
    let program = Path::new("/proc/self/exe");
    let mut command = Command::new(program);
    command.arg0("rgpu-agent").arg("keep").arg(folder).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).context("start", program)
}

/// Sends a request and reads the answer.
fn exchange(
    mut link: UnixStream,
    request: MailRequest,
    bytes: &[u8],
) -> io::Result<(MailHead, Vec<u8>)> {
    let wait = Duration::from_millis(request.wait_ms).min(MAX_WAIT);
    link.set_read_timeout(Some(wait + MAX_WAIT))?;
    let mut line = serde_json::to_vec(&BroughtMail { request, len: bytes.len() as u64 })?;
    line.push(b'\n');
    link.write_all(&line)?;
    link.write_all(bytes)?;
    let mut link = BufReader::new(link);
    let mut head = String::new();
    link.read_line(&mut head)?;
    let PrintedHead { head, len, .. } = serde_json::from_str(&head)?;
    let mut answer = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(MAX_PRINTED_BYTES)];
    link.read_exact(&mut answer)?;
    Ok((head, answer))
}

fn print(head: MailHead, bytes: &[u8], nonce: &str) -> io::Result<()> {
    let head = serde_json::to_string(&PrintedHead::new(head, bytes))?;
    let text = Base64::encode_string(bytes);
    // Begin on a new line, in case a shell's start-up files have printed something.
    let mut out = format!("\n{ANSWER_BEGIN} {nonce} {head}\n");
    for line in text.as_bytes().chunks(BASE64_LINE_CHARS) {
        // Base64 is ASCII.
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(&format!("{ANSWER_END} {nonce}\n"));
    let mut stdout = io::stdout().lock();
    stdout.write_all(out.as_bytes())?;
    stdout.flush()
}
