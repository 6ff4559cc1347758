//! A conversation where only short commands can be run, see [`rgpu_protocol::mail`].
//!
//! `mail` is one such command. The first of a conversation starts a keeper, which lives apart from
//! it, holds an ordinary conversation (`rgpu-agent stdio`) on two pipes, and hands its bytes to
//! later commands over a socket in the agent's folder. A keeper that hears nothing for five minutes
//! ends; jobs live elsewhere.

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
use rgpu_protocol::Digest;
use rgpu_protocol::mail::{BEGIN, END, LINE, MOST, MailHead, valid_name};
use serde::{Deserialize, Serialize};

use crate::blob;
use crate::control;
use crate::host_fault::{DoingContext, HostFault};
use crate::root::{RootCandidate, Roots};

pub use keeper::keep;

/// The keeper's socket.
const SOCKET: &str = "sock";

/// How long a keeper may take to start.
const START: Duration = Duration::from_secs(10);

/// The longest that one command waits.
const LONGEST: Duration = Duration::from_secs(60);

/// Bytes of input that one command brings at most, in base64.
const INPUT: u64 = 4 << 20;

/// What a command asks of a keeper, before its bytes.
#[derive(Debug, Serialize, Deserialize)]
struct MailRequest {
    /// Where the bytes belong among the client's.
    take: u64,
    len: u64,
    /// The client says nothing more.
    eof: bool,
    /// The first byte wanted of the agent's.
    from: u64,
    wait_ms: u64,
}

/// Runs `mail NAME TAKE FROM WAIT_MS NONCE [begin|eof]`.
///
/// # Errors
/// In words for the client.
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
    let bytes = input().map_err(|e| format!("its input cannot be read: {e}"))?;
    let asked = MailRequest { take, len: bytes.len() as u64, eof: last == "eof", from, wait_ms };
    let link = reach(candidates, name, last == "begin").map_err(|e| e.to_string())?;
    let (head, answer) = match link.map(|link| exchange(link, &asked, &bytes)) {
        Some(Ok(answer)) => answer,
        // A keeper that is gone says nothing more, ever.
        None | Some(Err(_)) => (MailHead::gone(from), Vec::new()),
    };
    print(&head, &answer, nonce).map_err(|e| e.to_string())
}

/// Standard input: base64 with white space in it.
fn input() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    io::stdin().lock().take(INPUT).read_to_end(&mut text)?;
    text.retain(|b| !b.is_ascii_whitespace());
    let text = String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData)?;
    Base64::decode_vec(&text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))
}

/// The way to the keeper of a conversation, which is started where it begins; `None`: it is gone.
fn reach(
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
    let begun = begin && make(&folder)?;
    if begun {
        start(&folder)?;
    }
    let since = Instant::now();
    loop {
        match control::connect(&folder, SOCKET) {
            Ok(link) => return Ok(Some(link)),
            // Another command of the same beginning may be starting it.
            Err(_) if begin && since.elapsed() < START => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) if begun => return Err(HostFault::new("reach the keeper", error)),
            // It began, and died since: with its container, say.
            Err(_) => return Ok(None),
        }
    }
}

/// Makes the folder of a conversation; whether it was not there.
fn make(folder: &Path) -> Result<bool, HostFault> {
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

/// Starts a keeper. It holds nothing of ours: whoever waits for our output must not wait for its.
fn start(folder: &Path) -> Result<(), HostFault> {
    let program = Path::new("/proc/self/exe");
    let mut command = Command::new(program);
    command.arg0("rgpu-agent").arg("keep").arg(folder).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).doing("start", program)
}

/// Sends what is asked, and reads the answer.
fn exchange(
    mut link: UnixStream,
    asked: &MailRequest,
    bytes: &[u8],
) -> io::Result<(MailHead, Vec<u8>)> {
    let wait = Duration::from_millis(asked.wait_ms).min(LONGEST);
    link.set_read_timeout(Some(wait + LONGEST))?;
    let mut line = serde_json::to_vec(asked)?;
    line.push(b'\n');
    link.write_all(&line)?;
    link.write_all(bytes)?;
    let mut link = BufReader::new(link);
    let mut head = String::new();
    link.read_line(&mut head)?;
    let head: MailHead = serde_json::from_str(&head)?;
    let mut answer = vec![0; usize::try_from(head.len).unwrap_or(usize::MAX).min(MOST)];
    link.read_exact(&mut answer)?;
    Ok((head, answer))
}

fn print(head: &MailHead, bytes: &[u8], nonce: &str) -> io::Result<()> {
    let text = Base64::encode_string(bytes);
    // Its own line, whatever a shell's files have printed.
    let mut out = format!("\n{BEGIN} {nonce} {}\n", serde_json::to_string(head)?);
    for line in text.as_bytes().chunks(LINE) {
        // Base64 is ASCII.
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(&format!("{END} {nonce}\n"));
    let mut stdout = io::stdout().lock();
    stdout.write_all(out.as_bytes())?;
    stdout.flush()
}

/// The head of an answer with these bytes.
fn head(taken: u64, from: u64, bytes: &[u8], ended: bool) -> MailHead {
    let sha256: Digest = blob::hash(bytes);
    MailHead { taken, from, len: bytes.len() as u64, sha256, ended }
}
