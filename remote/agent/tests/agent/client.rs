//! A small client: one agent home in a temporary folder, and any number of connections to it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rgpu_agent::wire::{FrameReader, write_frame, write_message};
use rgpu_protocol::frame::{FrameKind, MAGIC};
use rgpu_protocol::message::{Hello, ReceivedOutput};
use rgpu_protocol::plan::{InputFile, Plan};
use rgpu_protocol::{Digest, Event, EventBody, FromAgent, Outcome, Stream, ToAgent};
use serde_json::{Value, json};

pub(crate) const AGENT: &str = env!("CARGO_BIN_EXE_rgpu-agent");

/// A GPU host with an empty agent home.
pub(crate) struct Host {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) env: BTreeMap<String, String>,
}

impl Host {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home").display().to_string();
        let locks = dir.path().join("locks").display().to_string();
        let env = [("RGPU_AGENT_HOME", home), ("RGPU_LOCK_DIR", locks)];
        let env = env.map(|(k, v)| (k.to_owned(), v)).into_iter().collect();
        Self { dir, env }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.env["RGPU_AGENT_HOME"].clone().into()
    }

    pub(crate) fn job(&self, job: &str) -> PathBuf {
        self.home().join("jobs").join(job)
    }

    pub(crate) fn connect(&self) -> Client {
        Client::start(Command::new(AGENT).envs(&self.env))
    }

    /// Submits a plan on a connection that is cut after `n` bytes of output.
    pub(crate) fn read_only(&self, n: usize, plan: &Plan, story: &mut JobOutput) {
        let mut command = Command::new(AGENT);
        command.arg("stdio").envs(&self.env).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut input = process.stdin.take().unwrap();
        write_message(&mut input, &json!({"rgpu": 1})).unwrap();
        write_message(&mut input, &json!({"do": "submit", "plan": plan})).unwrap();
        let mut bytes = Vec::new();
        let mut stdout = process.stdout.take().unwrap();
        let last_words = br#"{"how":"done"}}}"#;
        while bytes.len() < n && !bytes.ends_with(last_words) {
            let mut byte = [0];
            std::io::Read::read_exact(&mut stdout, &mut byte).unwrap();
            bytes.push(byte[0]);
        }
        process.kill().unwrap();
        process.wait().unwrap();
        // Like a laptop, use complete frames and ignore the rest.
        let mut reader = FrameReader::new(bytes.get(MAGIC.len()..).unwrap_or_default());
        let mut hello = true;
        while let Some((kind, body)) = reader.next_frame().unwrap().map(|(k, b)| (k, b.to_vec())) {
            assert_eq!(kind, FrameKind::Message);
            if std::mem::take(&mut hello) {
                continue;
            }
            match serde_json::from_slice(&body).unwrap() {
                FromAgent::Event { event, .. } => story.events.push(event),
                FromAgent::Output { step, stream, .. } => {
                    let Some((_, bytes)) = reader.next_frame().unwrap() else { break };
                    story.output.entry((step, stream)).or_default().extend(bytes);
                }
                _ => {}
            }
        }
    }

    /// Returns the pid of a job's supervisor.
    pub(crate) fn supervisor(&self, job: &str) -> i32 {
        supervisor(&self.job(job))
    }
}

/// Returns the pid of the supervisor of the job in `folder`, found by its command line.
pub(crate) fn supervisor(folder: &Path) -> i32 {
    let folder = folder.canonicalize().unwrap().display().to_string();
    let runs = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).ends_with(&format!("job\0{folder}\0"))
    };
    pids().into_iter().find(runs).expect("the job has a supervisor")
}

pub(crate) fn pids() -> Vec<i32> {
    let proc = std::fs::read_dir("/proc").unwrap();
    proc.filter_map(|e| e.unwrap().file_name().to_str()?.parse().ok()).collect()
}

/// Returns the living processes whose command line contains `word`.
pub(crate) fn living(word: &str) -> Vec<i32> {
    let has = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        // Read after the command line: a process that ended in between is not living.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let gone = stat.is_empty() || stat.contains(") Z ") || stat.contains(") X ");
        String::from_utf8_lossy(&line).contains(word) && !gone
    };
    pids().into_iter().filter(has).collect()
}

pub(crate) struct Client {
    pub(crate) process: Child,
    pub(crate) input: Option<ChildStdin>,
    reader: FrameReader<ChildStdout>,
}

/// The events and output of a followed job.
#[derive(Default, Debug)]
pub(crate) struct JobOutput {
    pub(crate) events: Vec<Event>,
    pub(crate) output: BTreeMap<(String, Stream), Vec<u8>>,
    pub(crate) data: BTreeMap<String, Vec<u8>>,
}

impl JobOutput {
    pub(crate) fn outcome(&self) -> &Outcome {
        match &self.events.last().expect("an event").body {
            EventBody::Ended { outcome } => outcome,
            other => panic!("ends with {other:?}"),
        }
    }

    pub(crate) fn stdout(&self, step: &str) -> String {
        let bytes = self.output.get(&(step.into(), Stream::Stdout)).cloned().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn stderr(&self, step: &str) -> String {
        let bytes = self.output.get(&(step.into(), Stream::Stderr)).cloned().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns `rung:code` of every rung, `rung:ok` for those that succeeded.
    pub(crate) fn rungs(&self) -> Vec<String> {
        let records = self.events.iter().filter_map(|e| match &e.body {
            EventBody::RungEnded(r) => Some(r),
            _ => None,
        });
        records
            .map(|r| format!("{}:{}", r.rung, if r.ok { "ok" } else { r.code.as_str() }))
            .collect()
    }

    pub(crate) fn record(&self, rung: &str) -> &rgpu_protocol::RungRecord {
        let mut records = self.events.iter().filter_map(|e| match &e.body {
            EventBody::RungEnded(r) if r.rung == rung => Some(r),
            _ => None,
        });
        records.next().expect("the rung's record")
    }
}

impl Client {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut client = Self::silent(command);
        client.send(&json!({"rgpu": 1, "features": []}));
        client
    }

    /// Opens a connection on which the agent has sent its hello, and the client nothing.
    pub(crate) fn silent(command: &mut Command) -> Self {
        let mut process =
            command.arg("stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = process.stdout.take().unwrap();
        let mut magic = vec![0; MAGIC.len()];
        std::io::Read::read_exact(&mut stdout, &mut magic).unwrap();
        assert_eq!(magic, MAGIC);
        let input = process.stdin.take();
        let mut client = Self { process, input, reader: FrameReader::new(stdout) };
        let (_, hello) = client.frame().unwrap();
        let hello: Hello = serde_json::from_slice(&hello).unwrap();
        assert_eq!(hello.rgpu, 1);
        client
    }

    pub(crate) fn send(&mut self, message: &impl serde::Serialize) {
        let input = self.input.as_mut().unwrap();
        write_message(input, message).unwrap();
        input.flush().unwrap();
    }

    pub(crate) fn send_bytes(&mut self, kind: FrameKind, bytes: &[u8]) {
        write_frame(self.input.as_mut().unwrap(), kind, bytes).unwrap();
    }

    pub(crate) fn frame(&mut self) -> Option<(FrameKind, Vec<u8>)> {
        self.reader.next_frame().unwrap().map(|(kind, body)| (kind, body.to_vec()))
    }

    pub(crate) fn next(&mut self) -> FromAgent {
        let (kind, body) = self.frame().expect("the agent goes on");
        assert_eq!(kind, FrameKind::Message);
        serde_json::from_slice(&body).unwrap()
    }

    pub(crate) fn refusal(&mut self) -> (String, String) {
        match self.next() {
            FromAgent::Refused { request, code, .. } => (request, code),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn submit(&mut self, plan: &Plan) {
        self.submit_with(plan, json!({}), 0);
    }

    pub(crate) fn submit_with(&mut self, plan: &Plan, secrets: Value, inline_bytes: u64) {
        self.send(
            &json!({"do": "submit", "plan": plan, "secrets": secrets, "inline_bytes": inline_bytes}),
        );
    }

    pub(crate) fn attach(&mut self, job: &str, from_seq: u64, had: Vec<ReceivedOutput>) {
        self.send(&ToAgent::Attach { job: job.into(), from_seq, had, inline_bytes: 0 });
    }

    pub(crate) fn blob(&mut self, bytes: &[u8]) {
        let digest = Digest::sha256(bytes);
        let size = bytes.len() as u64;
        self.send(&ToAgent::Blob { digest, size, stored: size, zstd: false });
        for piece in bytes.chunks(1 << 20) {
            self.send_bytes(FrameKind::Blob, piece);
        }
    }

    /// Reads one message of a followed job into the story.
    pub(crate) fn read_into(&mut self, story: &mut JobOutput) -> FromAgent {
        let message = self.next();
        match &message {
            FromAgent::Event { event, .. } => {
                if let EventBody::Output { step, stream, offset, len } = &event.body {
                    let had = story.output.get(&(step.clone(), *stream)).map_or(0, Vec::len);
                    assert!(had as u64 >= offset + len, "bytes come before their event");
                }
                story.events.push(event.clone());
            }
            FromAgent::Output { step, stream, offset, len, .. } => {
                let (kind, body) = self.frame().unwrap();
                assert_eq!((kind, body.len() as u64), (FrameKind::Output, *len));
                let kept = story.output.entry((step.clone(), *stream)).or_default();
                assert_eq!(kept.len() as u64, *offset, "no gap and no overlap");
                kept.extend(body);
            }
            FromAgent::Data { path, len, stored, zstd, .. } => {
                let bytes = self.data(*len, *stored, *zstd);
                story.data.entry(path.clone()).or_default().extend(bytes);
            }
            _ => {}
        }
        message
    }

    pub(crate) fn data(&mut self, len: u64, stored: u64, zstd: bool) -> Vec<u8> {
        let mut wire = Vec::new();
        while (wire.len() as u64) < stored {
            let (kind, body) = self.frame().unwrap();
            assert_eq!(kind, FrameKind::Blob);
            wire.extend(body);
        }
        if zstd { zstd::bulk::decompress(&wire, len as usize).unwrap() } else { wire }
    }

    /// Follows until the terminal event.
    pub(crate) fn follow_to_end(&mut self) -> JobOutput {
        let mut story = JobOutput::default();
        self.finish(&mut story);
        story
    }

    pub(crate) fn finish(&mut self, story: &mut JobOutput) {
        loop {
            match self.read_into(story) {
                FromAgent::Event { event, .. } if matches!(event.body, EventBody::Ended { .. }) => {
                    return;
                }
                FromAgent::Refused { request, code, text } => panic!("{request} {code} {text}"),
                _ => {}
            }
        }
    }

    /// Reads until one of several followed jobs ends.
    pub(crate) fn next_end(&mut self) -> (String, Outcome) {
        loop {
            let Some((kind, body)) = self.frame() else { panic!("the agent went") };
            if kind != FrameKind::Message {
                continue;
            }
            if let FromAgent::Event { job, event } = serde_json::from_slice(&body).unwrap()
                && let EventBody::Ended { outcome } = event.body
            {
                return (job, outcome);
            }
        }
    }

    /// Follows until a step's output contains `words`.
    pub(crate) fn until_output(&mut self, story: &mut JobOutput, step: &str, words: &str) {
        while !story.stdout(step).contains(words) {
            self.read_into(story);
        }
    }

    /// Runs a plan to its end.
    pub(crate) fn run(&mut self, plan: &Plan) -> JobOutput {
        self.submit(plan);
        self.follow_to_end()
    }

    /// Cuts the connection as a lost link does.
    pub(crate) fn cut(mut self) {
        self.input = None;
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}

/// Parses a plan from JSON; `limits` and titles may be left out.
pub(crate) fn plan(job: &str, rest: Value) -> Plan {
    let mut all = json!({"job": job, "title": job, "steps": []});
    all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

/// Returns a step with one rung that runs a shell script.
pub(crate) fn sh(id: &str, script: &str) -> Value {
    step(id, json!([{"id": "host", "argv": ["sh", "-c", script]}]))
}

pub(crate) fn step(id: &str, rungs: Value) -> Value {
    json!({"id": id, "title": id, "timeout_s": 60, "rungs": rungs})
}

/// Returns a plan of one shell script.
pub(crate) fn script(job: &str, text: &str) -> Plan {
    plan(job, json!({"steps": [sh("main", text)]}))
}

pub(crate) fn input(path: &str, bytes: &[u8]) -> InputFile {
    let pieces = bytes.chunks(rgpu_protocol::BLOB_BYTES as usize).map(Digest::sha256).collect();
    InputFile {
        path: path.into(),
        size: bytes.len() as u64,
        digest: Digest::sha256(bytes),
        blobs: pieces,
        piece_bytes: rgpu_protocol::BLOB_BYTES,
        executable: false,
    }
}

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}
