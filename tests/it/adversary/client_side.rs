//! A hostile client: every message of the protocol, false in every way, at every state of the real
//! agent's connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rgpu_protocol::frame::{self, FrameKind, MAGIC};
use rgpu_protocol::{FromAgent, PROTOCOL};
use serde_json::{Value, json};

use super::invalid_messages::{self, InvalidMessage, framed};
use super::{FILE, JOB, samples, table};
use crate::floods::peak_kib;
use crate::laptop::{Laptop, built, status, wait_for};

/// No answer and no end may take longer, whatever the machine does beside it.
const HANG: Duration = Duration::from_secs(60);

/// An agent that a client cannot make larger than this, in KiB: 64 MiB above an honest client's.
const MAX_KIB: u64 = (64 + 16) << 10;

/// What the agent does while the client lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// It waits for the client's hello.
    Greeting,
    /// It waits for a request.
    Idle,
    /// A plan waits for its blobs.
    Waiting,
    /// Half of a blob has arrived.
    Receiving,
    /// A job runs and takes input.
    Running,
    /// A job has ended.
    Ended,
}

impl State {
    const ALL: [Self; 6] =
        [Self::Greeting, Self::Idle, Self::Waiting, Self::Receiving, Self::Running, Self::Ended];
}

struct Connection {
    process: Child,
    input: Option<ChildStdin>,
    messages: Receiver<FromAgent>,
    said: Receiver<String>,
}

impl Connection {
    fn open(laptop: &Laptop) -> Self {
        let mut process = Command::new(built("rgpu-agent"))
            .arg("stdio")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", laptop.path("home"))
            .env("TMPDIR", laptop.path("tmp"))
            .env("RGPU_AGENT_HOME", laptop.path("agent"))
            .env("RGPU_LOCK_DIR", laptop.path("lock"))
            .current_dir(laptop.path("project"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdout, mut stderr) =
            (process.stdout.take().unwrap(), process.stderr.take().unwrap());
        let (to_messages, messages) = channel();
        std::thread::spawn(move || {
            let mut magic = vec![0; MAGIC.len()];
            if stdout.read_exact(&mut magic).is_err() {
                return;
            }
            let mut header = [0; frame::HEADER];
            while stdout.read_exact(&mut header).is_ok() {
                let mut body = vec![
                    0;
                    u32::from_le_bytes([header[0], header[1], header[2], header[3]])
                        as usize
                ];
                if stdout.read_exact(&mut body).is_err() {
                    return;
                }
                // The agent's hello is no message, and bytes of files and output are not needed.
                if let Ok(message) = serde_json::from_slice(&body) {
                    let _ = to_messages.send(message);
                }
            }
        });
        let (to_said, said) = channel();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            let _ = to_said.send(String::from_utf8_lossy(&text).into_owned());
        });
        let input = process.stdin.take();
        Self { process, input, messages, said }
    }

    /// Sends bytes, as far as the agent takes them.
    fn send(&mut self, bytes: &[u8]) {
        if let Some(input) = &mut self.input {
            let _ = input.write_all(bytes).and_then(|()| input.flush());
        }
    }

    fn say(&mut self, message: &Value) {
        self.send(&framed(FrameKind::Message, &serde_json::to_vec(message).unwrap()));
    }

    /// Waits for a message; `false`: the agent hung up.
    fn until(&self, wanted: impl Fn(&FromAgent) -> bool) -> Result<bool, String> {
        loop {
            match self.messages.recv_timeout(HANG) {
                Ok(message) if wanted(&message) => return Ok(true),
                Ok(_) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Ok(false),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => return Err("hangs".to_owned()),
            }
        }
    }

    /// Brings the agent into `state`, with this job.
    fn reach(&mut self, state: State, job: &str) {
        if state == State::Greeting {
            return;
        }
        self.say(&json!({"rgpu": PROTOCOL}));
        let program = match state {
            State::Running => "cat",
            _ => "true",
        };
        let mut plan = samples::plan();
        plan.job = job.to_owned();
        let mut plan = serde_json::to_value(&plan).unwrap();
        plan["steps"][0]["rungs"][0]["argv"] = json!([program]);
        plan["steps"][0]["stdin"] = json!("client");
        match state {
            State::Greeting | State::Idle => return,
            State::Waiting => {
                // No blob has this digest.
                let digest = "0".repeat(64);
                plan["files"][0]["digest"] = json!(digest);
                plan["files"][0]["blobs"] = json!([digest]);
            }
            State::Receiving => {
                let digest = rgpu_protocol::Digest::sha256(FILE);
                let size = FILE.len();
                self.say(&json!({"do": "blob", "digest": digest, "size": size, "stored": size}));
                return self.send(&framed(FrameKind::Blob, &FILE[..4]));
            }
            State::Running | State::Ended => plan["files"] = json!([]),
        }
        self.say(&json!({"do": "submit", "plan": plan, "await_blobs": true}));
        let ready = |message: &FromAgent| match message {
            FromAgent::Missing { .. } => state == State::Waiting,
            FromAgent::Event { event, .. } => match &event.body {
                rgpu_protocol::EventBody::RungStarted { .. } => state == State::Running,
                rgpu_protocol::EventBody::Ended { .. } => state == State::Ended,
                _ => false,
            },
            FromAgent::Refused { code, text, .. } => panic!("{code}: {text}"),
            _ => false,
        };
        assert_eq!(self.until(ready), Ok(true));
    }

    /// Closes the connection; the peak of the agent's memory, or the promise that was broken.
    fn close(mut self) -> Result<(), String> {
        let peak = peak_kib(&self.process);
        self.input = None;
        let code = wait_for("the end of the agent", || self.process.try_wait().unwrap());
        let said = self.said.recv_timeout(HANG).map_err(|_| "stderr stays open".to_owned())?;
        let output = std::process::Output { status: code, stdout: Vec::new(), stderr: Vec::new() };
        if ![0, 1].contains(&status(&output)) || said.contains("panicked") {
            return Err(format!("status {}: {said}", status(&output)));
        }
        if peak > MAX_KIB {
            return Err(format!("{peak} KiB"));
        }
        Ok(())
    }
}

/// How the agent took a lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// The connection goes on.
    Goes,
    /// The agent hung up.
    HungUp,
}

fn tell(laptop: &Laptop, state: State, lie: &InvalidMessage, job: &str) -> Result<End, String> {
    let mut connection = Connection::open(laptop);
    connection.reach(state, job);
    let bytes =
        lie.wire.bytes(&mut |message| fill(message, job, laptop.path("").to_str().unwrap()));
    connection.send(&bytes);
    if lie.cut {
        connection.input = None;
    }
    // The agent may take the first one for bytes that the lie announced.
    connection.say(&json!({"do": "ping"}));
    connection.say(&json!({"do": "ping"}));
    let goes = connection.until(|message| matches!(message, FromAgent::Pong {}))?;
    // A job that goes on must not outlive the case.
    connection.say(&json!({"do": "cancel", "job": job}));
    connection.close()?;
    Ok(if goes { End::Goes } else { End::HungUp })
}

fn fill(value: &mut Value, job: &str, sandbox: &str) {
    match value {
        Value::String(text) if text == JOB => job.clone_into(text),
        Value::String(text) if text.starts_with(invalid_messages::SANDBOX) => {
            *text = text.replacen(invalid_messages::SANDBOX, sandbox.trim_end_matches('/'), 1);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, job, sandbox)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill(field, job, sandbox)),
        _ => {}
    }
}

/// Everything in the laptop's folder but what is the agent's own.
fn others(laptop: &Laptop) -> BTreeSet<PathBuf> {
    let own = [laptop.path("agent"), laptop.path("lock")];
    let entries = walkdir::WalkDir::new(laptop.path("")).into_iter().flatten();
    let foreign = |path: &Path| !own.iter().any(|own| path.starts_with(own));
    entries.map(walkdir::DirEntry::into_path).filter(|path| foreign(path)).collect()
}

#[test]
fn no_lie_of_a_client_at_any_state_breaks_the_agent() {
    let hello = json!({"rgpu": PROTOCOL, "features": ["pieces"], "required": [], "version": "v"});
    let mut rows = vec![("hello".to_owned(), InvalidMessage::variants_of(&hello, &[]))];
    for sample in samples::to_agent() {
        rows.push((sample.name, InvalidMessage::variants_of(&sample.message, &sample.bytes)));
    }
    rows.push(("no message".to_owned(), invalid_messages::garbage()));
    let mut cases = VecDeque::new();
    for (n, state) in State::ALL.into_iter().enumerate() {
        for (message, lies) in &rows {
            let own = state == State::Greeting && message == "hello";
            // Each case starts a process, so of the lies about a message as a whole each state
            // takes its turn of a third.
            let takes = |i: usize, lie: &InvalidMessage| {
                own || lie.name.starts_with('/') || (i + n).is_multiple_of(3)
            };
            let turn = super::turn(lies, n, own).enumerate();
            for (_, lie) in turn.filter(|(i, lie)| takes(*i, lie)) {
                cases.push_back((state, message.clone(), lie.clone()));
            }
        }
    }
    let count = cases.len();
    let laptop = Laptop::new();
    fs::write(laptop.path("canary"), "mine").unwrap();
    let before = others(&laptop);
    let begun = std::time::Instant::now();
    let (cases, ends) = (Mutex::new(cases), Mutex::new(Vec::new()));
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                loop {
                    let mut queue = cases.lock().unwrap();
                    let Some((state, message, lie)) = queue.pop_front() else { return };
                    let job = format!("adv.{}", queue.len());
                    drop(queue);
                    let end = tell(&laptop, state, &lie, &job);
                    ends.lock().unwrap().push((state, message, lie.name, end));
                }
            });
        }
    });
    eprintln!("{count} cases in {:.1} s", begun.elapsed().as_secs_f64());
    let ends = ends.into_inner().unwrap();
    assert_eq!(ends.len(), count);
    let mut counts: BTreeMap<(&str, State), BTreeMap<char, usize>> = BTreeMap::new();
    let mut broken = Vec::new();
    for (state, message, lie, end) in &ends {
        let letter = match end {
            Ok(End::Goes) => 'g',
            Ok(End::HungUp) => 'u',
            Err(why) => {
                broken.push(format!("{state:?}, {message}: {lie}: {why}"));
                continue;
            }
        };
        *counts.entry((message, *state)).or_default().entry(letter).or_default() += 1;
    }
    broken.sort();
    assert!(broken.is_empty(), "{} of {count}:\n{}", broken.len(), broken.join("\n"));
    assert_eq!(others(&laptop), before, "files outside the agent's folder");
    assert_eq!(fs::read_to_string(laptop.path("canary")).unwrap(), "mine");
    let text = table("g: the connection goes on, u: the agent hangs up", &State::ALL, &counts);
    eprintln!("{text}");
    insta::assert_snapshot!(super::lies_table(&State::ALL, &counts));
}
