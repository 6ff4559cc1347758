//! One honest sample of each message of the protocol. A message without a sample fails the tests.

use std::collections::BTreeSet;

use rgpu_protocol::frame::FrameKind;
use rgpu_protocol::message::{JobLine, ReceivedOutput};
use rgpu_protocol::plan::Plan;
use rgpu_protocol::probe::{AgentFacts, ProbeAnswer};
use rgpu_protocol::{
    Digest, Event, EventBody, FromAgent, Outcome, Probe, RungRecord, Stream, ToAgent,
};
use serde_json::{Value, json};

use super::{ARTIFACT, FILE, JOB, OUTPUT};

/// A message with the bytes that follow it.
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) message: Value,
    pub(crate) bytes: Vec<(FrameKind, Vec<u8>)>,
}

/// The name of an agent's message. A new message does not compile without a line here, and fails
/// [`from_agent`] without a sample.
fn name(message: &FromAgent) -> &'static str {
    match message {
        FromAgent::Facts { .. } => "facts",
        FromAgent::Missing { .. } => "missing",
        FromAgent::Stored { .. } => "stored",
        FromAgent::Following { .. } => "following",
        FromAgent::Event { event, .. } => match &event.body {
            EventBody::Started { .. } => "event started",
            EventBody::Queued { .. } => "event queued",
            EventBody::GpuLocked { .. } => "event gpu_locked",
            EventBody::GpuReleased {} => "event gpu_released",
            EventBody::StepStarted { .. } => "event step_started",
            EventBody::StepSkipped { .. } => "event step_skipped",
            EventBody::RungStarted { .. } => "event rung_started",
            EventBody::Output { .. } => "event output",
            EventBody::OutputDropped { .. } => "event output_dropped",
            EventBody::RungEnded(_) => "event rung_ended",
            EventBody::StepEnded { .. } => "event step_ended",
            EventBody::Artifact { .. } => "event artifact",
            EventBody::Warning { .. } => "event warning",
            EventBody::Ended { .. } => "event ended",
            EventBody::Unknown => "event unknown",
        },
        FromAgent::Output { .. } => "output",
        FromAgent::Ahead { .. } => "ahead",
        FromAgent::Data { .. } => "data",
        FromAgent::Jobs { .. } => "jobs",
        FromAgent::Plan { .. } => "plan",
        FromAgent::Refused { .. } => "refused",
        FromAgent::Done { .. } => "done",
        FromAgent::Pong {} => "pong",
        FromAgent::Unknown => "unknown",
    }
}

/// The events of an honest job, and those that it does not send.
pub(crate) fn events() -> Vec<EventBody> {
    let (step, rung) = ("exec".to_owned(), "exec".to_owned());
    let stream = Stream::Stdout;
    let len = OUTPUT.len() as u64;
    vec![
        EventBody::Started { folder: "/jobs/adversary.1".into() },
        EventBody::Queued { position: 1, holder: "someone's job".into() },
        EventBody::GpuLocked { uuid: "GPU-1".into(), index: 0, name: "NVIDIA H200".into() },
        EventBody::GpuReleased {},
        EventBody::StepStarted { step: step.clone(), title: "running prog".into() },
        EventBody::StepSkipped { step: step.clone(), needs: "build".into() },
        EventBody::RungStarted {
            step: step.clone(),
            rung: rung.clone(),
            argv: vec!["prog".into()],
        },
        EventBody::Output { step: step.clone(), stream, offset: 0, len },
        EventBody::OutputDropped { step: step.clone(), stream, bytes: 9 },
        EventBody::RungEnded(rung_record()),
        EventBody::StepEnded { step: step.clone(), rung: Some(rung), code: String::new() },
        artifact_event(),
        EventBody::Warning { code: "foreign_processes".into(), text: "beware".into() },
        EventBody::Ended { outcome: Outcome::Failed { step, code: "exit".into() } },
        EventBody::Unknown,
    ]
}

pub(crate) fn rung_record() -> RungRecord {
    RungRecord {
        step: "exec".into(),
        rung: "exec".into(),
        argv: vec!["prog".into()],
        ok: true,
        message: "fine".into(),
        exit: Some(0),
        seconds: 0.5,
        stdout_tail: "x".into(),
        notes: vec![("code".into(), "text".into())],
        ..RungRecord::default()
    }
}

pub(crate) fn artifact_event() -> EventBody {
    EventBody::Artifact {
        step: "exec".into(),
        path: "here/out.txt".into(),
        kind: rgpu_protocol::plan::PULLED.into(),
        size: ARTIFACT.len() as u64,
        digest: Digest::sha256(ARTIFACT),
        composite: None,
    }
}

pub(crate) fn facts() -> AgentFacts {
    let answer = ProbeAnswer {
        name: "nvidia-smi".into(),
        path: Some("/usr/bin/nvidia-smi".into()),
        found: vec!["/usr/bin/nvidia-smi".into()],
        exit: Some(0),
        text: "580.0".into(),
        error: None,
    };
    AgentFacts { arch: "x86_64".into(), answers: vec![answer], ..AgentFacts::default() }
}

pub(crate) fn plan() -> Plan {
    let step = json!({"id": "exec", "title": "t", "timeout_s": 60,
        "rungs": [{"id": "exec", "argv": ["true"], "artifacts": [{"path": "here/*", "kind": "pulled"}]}]});
    let file = json!({"path": "here/in.bin", "size": FILE.len(), "digest": Digest::sha256(FILE),
        "blobs": [Digest::sha256(FILE)], "piece_bytes": 1 << 20, "executable": false});
    serde_json::from_value(json!({"job": JOB, "title": "t", "files": [file], "steps": [step]}))
        .unwrap()
}

fn sample(message: FromAgent) -> Sample {
    let bytes = match &message {
        FromAgent::Output { .. } => vec![(FrameKind::Output, OUTPUT.to_vec())],
        FromAgent::Data { .. } => vec![(FrameKind::Blob, ARTIFACT.to_vec())],
        _ => Vec::new(),
    };
    Sample {
        name: name(&message).to_owned(),
        message: serde_json::to_value(&message).unwrap(),
        bytes,
    }
}

/// A sample of each message that an agent can send.
pub(crate) fn from_agent() -> Vec<Sample> {
    let (job, path) = (JOB.to_owned(), "here/out.txt".to_owned());
    let len = ARTIFACT.len() as u64;
    let line = JobLine {
        job: job.clone(),
        title: "t".into(),
        started_ms: 1,
        ended: Some(Outcome::Done),
        ended_ms: Some(2),
        queued: Some(1),
        step: "exec".into(),
        bytes: 7,
    };
    let (step, stream) = ("exec".to_owned(), Stream::Stdout);
    let messages = vec![
        FromAgent::Facts { facts: Box::new(facts()) },
        FromAgent::Missing { job: job.clone(), digests: vec![Digest::sha256(FILE)], awaited: true },
        FromAgent::Stored { digest: Digest::sha256(FILE) },
        FromAgent::Following { job: job.clone() },
        FromAgent::Output { job: job.clone(), step, stream, offset: 0, len: OUTPUT.len() as u64 },
        FromAgent::Ahead { job: job.clone(), path: path.clone(), len },
        FromAgent::Data { job: job.clone(), path, offset: 0, len, stored: len, zstd: false },
        FromAgent::Jobs { jobs: vec![line], now_ms: 3, used_bytes: 4, quota_bytes: 5 },
        FromAgent::Plan { plan: Box::new(plan()) },
        FromAgent::Refused { request: "submit".into(), code: "quota".into(), text: "full".into() },
        FromAgent::Done { request: "forget".into() },
        FromAgent::Pong {},
        FromAgent::Unknown,
    ];
    let event = |body| {
        let event = Event { seq: 1, at_ms: 5, body };
        sample(FromAgent::Event { job: job.clone(), event })
    };
    messages.into_iter().map(sample).chain(events().into_iter().map(event)).collect()
}

/// A sample of each message that a client can send.
pub(crate) fn to_agent() -> Vec<Sample> {
    let job = JOB.to_owned();
    let had = ReceivedOutput { step: "exec".into(), stream: Stream::Stdout, bytes: 0 };
    let probe: Probe =
        serde_json::from_value(json!({"name": "p", "find": ["no-such-program"]})).unwrap();
    let digest = Digest::sha256(FILE);
    let (size, stored) = (FILE.len() as u64, FILE.len() as u64);
    let messages = vec![
        ToAgent::Setup { path: vec!["/nowhere".into()], env: [("A".into(), "b".into())].into() },
        ToAgent::Facts { probes: vec![probe] },
        ToAgent::Submit {
            plan: Box::new(plan()),
            secrets: [("S".into(), "t".into())].into(),
            inline_bytes: 0,
            ahead_bytes: 0,
            await_blobs: true,
        },
        ToAgent::Blob { digest, size, stored, zstd: false },
        ToAgent::Attach { job: job.clone(), from_seq: 1, had: vec![had], inline_bytes: 0 },
        ToAgent::Stdin { job: job.clone(), len: 4, eof: false, offset: Some(0) },
        ToAgent::Renew { job: job.clone() },
        ToAgent::Detach { job: job.clone() },
        ToAgent::Cancel { job: job.clone() },
        ToAgent::Fetch { job: job.clone(), path: "here/out.txt".into(), offset: 0, len: 7 },
        ToAgent::Jobs {},
        ToAgent::Plan { job: job.clone() },
        ToAgent::Forget { job },
        ToAgent::Ping {},
        ToAgent::Unknown,
    ];
    let sample = |message: ToAgent| {
        let (name, bytes) = match &message {
            ToAgent::Setup { .. } => ("setup", None),
            ToAgent::Facts { .. } => ("facts", None),
            ToAgent::Submit { .. } => ("submit", None),
            ToAgent::Blob { .. } => ("blob", Some((FrameKind::Blob, FILE.to_vec()))),
            ToAgent::Attach { .. } => ("attach", None),
            ToAgent::Stdin { .. } => ("stdin", Some((FrameKind::Output, b"abc\n".to_vec()))),
            ToAgent::Renew { .. } => ("renew", None),
            ToAgent::Detach { .. } => ("detach", None),
            ToAgent::Cancel { .. } => ("cancel", None),
            ToAgent::Fetch { .. } => ("fetch", None),
            ToAgent::Jobs {} => ("jobs", None),
            ToAgent::Plan { .. } => ("plan", None),
            ToAgent::Forget { .. } => ("forget", None),
            ToAgent::Ping {} => ("ping", None),
            ToAgent::Unknown => ("unknown", None),
        };
        Sample {
            name: name.to_owned(),
            message: serde_json::to_value(&message).unwrap(),
            bytes: bytes.into_iter().collect(),
        }
    };
    messages.into_iter().map(sample).collect()
}

/// The names in the JSON schema of a tagged enum.
fn names_in_schema(schema: &Value, tag: &str) -> BTreeSet<String> {
    let variants = schema["oneOf"].as_array().unwrap().iter();
    let names = variants.flat_map(|variant| match &variant["properties"][tag]["const"] {
        Value::String(name) => vec![name.clone()],
        // Variants without fields may share one entry.
        _ => variant["properties"][tag]["enum"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap().to_owned())
            .collect(),
    });
    names.collect()
}

#[test]
fn every_message_of_the_protocol_has_a_sample() {
    let schema = |schema: schemars::Schema| schema.to_value();
    let mut expected = names_in_schema(&schema(schemars::schema_for!(FromAgent)), "is");
    assert!(expected.remove("event"));
    let events = names_in_schema(&schema(schemars::schema_for!(EventBody)), "event");
    expected.extend(events.iter().map(|event| format!("event {event}")));
    let names: BTreeSet<String> = from_agent().into_iter().map(|sample| sample.name).collect();
    assert_eq!(names, expected);
    let expected = names_in_schema(&schema(schemars::schema_for!(ToAgent)), "do");
    let names: BTreeSet<String> = to_agent().into_iter().map(|sample| sample.name).collect();
    assert_eq!(names, expected);
}
