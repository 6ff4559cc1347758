//! What tests of remotes share: the built agent, plans, and following a job to its end.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rgpu_protocol::plan::{ArtifactSpec, InputFile, Rung, Step, Success};
use rgpu_protocol::{Digest, EventBody, Outcome, PIECE_BYTES, Plan, Stream};
use rgpu_remote::{
    BlobReader, ConnectOptions, HostKeyQuestion, HostLink, JobMessage, RemoteError, RemoteSpec,
    Submission, UnknownHostPolicy, UserPrompt,
};

use crate::laptop::PATIENCE;

/// The agent that cargo built beside this test; built now when it is not there.
pub(crate) fn agent() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let agent = own.parent().unwrap().parent().unwrap().join("rgpu-agent");
    if !agent.exists() {
        let status = std::process::Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "rgpu-agent"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(status.success());
    }
    agent
}

/// A user who answers every question alike and keeps what is said.
#[derive(Default)]
pub(crate) struct User {
    pub(crate) says_yes: bool,
    /// Whether a terminal is said to be there.
    pub(crate) attended: bool,
    pub(crate) heard: Mutex<Vec<String>>,
    pub(crate) asked: Mutex<Vec<HostKeyQuestion>>,
}

impl User {
    /// All that was said, one line each.
    pub(crate) fn heard(&self) -> String {
        self.heard.lock().unwrap().join("\n")
    }
}

impl UserPrompt for User {
    fn ask_host_key(&self, question: &HostKeyQuestion) -> bool {
        self.asked.lock().unwrap().push(question.clone());
        self.says_yes
    }

    fn is_attended(&self) -> bool {
        self.attended
    }

    fn verbose(&self, line: &str) {
        self.heard.lock().unwrap().push(line.to_owned());
    }
}

/// Connects with the built agent.
pub(crate) async fn connect(
    spec: &RemoteSpec,
    unknown_host_policy: UnknownHostPolicy,
    user: &Arc<User>,
) -> Result<HostLink, RemoteError> {
    let options = ConnectOptions {
        agent: agent(),
        unknown_host_policy,
        user_prompt: user.clone(),
        run: String::new(),
        host_request: Default::default(),
    };
    HostLink::connect(Arc::from(spec.open()?), options).await
}

#[derive(Default)]
struct Blobs(BTreeMap<Digest, Vec<u8>>);

impl BlobReader for Blobs {
    fn open(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        self.0.get(digest).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest::sha256(bytes)
}

/// A plan of one step that runs `argv`, with `files` in its folder and `artifacts` to bring back.
pub(crate) fn submission(argv: &[&str], files: &[(&str, &[u8])], artifacts: &[&str]) -> Submission {
    let mut blobs = Blobs::default();
    let mut inputs = Vec::new();
    for (path, bytes) in files {
        let pieces: Vec<_> = bytes.chunks(PIECE_BYTES as usize).collect();
        for piece in &pieces {
            blobs.0.insert(digest(piece), piece.to_vec());
        }
        inputs.push(InputFile {
            path: (*path).to_owned(),
            size: bytes.len() as u64,
            digest: digest(bytes),
            blobs: pieces.into_iter().map(digest).collect(),
            piece_bytes: PIECE_BYTES,
            executable: false,
        });
    }
    let rung = Rung {
        id: "host".into(),
        needs: Vec::new(),
        argv: argv.iter().map(|word| (*word).into()).collect(),
        env: BTreeMap::new(),
        cwd: String::new(),
        success: Success::default(),
        diagnosis: Vec::new(),
        artifacts: artifacts
            .iter()
            .map(|path| ArtifactSpec { path: (*path).to_owned(), kind: "file".into() })
            .collect(),
        loses: String::new(),
        stop: None,
        hang: None,
    };
    let step = Step {
        id: "run".into(),
        title: "run".into(),
        gpu: false,
        needs: Vec::new(),
        on_failure: Default::default(),
        timeout_s: 60,
        max_output_bytes: None,
        stdin: Default::default(),
        rungs: vec![rung],
    };
    let plan = Plan {
        job: format!("test-{}.1", unique()),
        title: "a test".into(),
        facts: None,
        files: inputs,
        steps: vec![step],
        gpu: None,
        env: BTreeMap::new(),
        secrets: Vec::new(),
        origin: None,
        limits: Default::default(),
    };
    Submission { plan, blobs: Arc::new(blobs), secrets: BTreeMap::new() }
}

fn unique() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("{}-{}", std::process::id(), now.as_nanos())
}

/// The output and events of a job.
#[derive(Debug, Default)]
pub(crate) struct JobOutput {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) events: Vec<EventBody>,
}

impl JobOutput {
    /// How the job ended.
    pub(crate) fn outcome(&self) -> &Outcome {
        match self.events.last() {
            Some(EventBody::Ended { outcome }) => outcome,
            other => panic!("no terminal event, but {other:?}"),
        }
    }
}

/// Follows the job to its terminal event.
pub(crate) async fn follow(follow: &mut HostLink) -> Result<JobOutput, RemoteError> {
    let mut story = JobOutput::default();
    while let Some(message) = follow.next().await? {
        match message {
            JobMessage::Event(event) => story.events.push(event.body),
            JobMessage::Output { stream: Stream::Stdout, bytes, .. } => story.stdout.extend(bytes),
            JobMessage::Output { stream: Stream::Stderr, bytes, .. } => story.stderr.extend(bytes),
        }
    }
    Ok(story)
}

/// Waits until `condition` holds, while the test's other futures go on.
pub(crate) async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, holds).await;
    assert!(waited.is_ok(), "waited too long for {what}");
}

/// Everything under a folder, for "nothing is left behind".
pub(crate) fn files_in(folder: &Path) -> Vec<PathBuf> {
    walkdir::WalkDir::new(folder)
        .into_iter()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .collect()
}
