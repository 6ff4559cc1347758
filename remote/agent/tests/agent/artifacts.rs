//! Artifacts of jobs.

use std::process::Command;

use rgpu_protocol::digest::sha256;
use rgpu_protocol::plan::PULLED;
use rgpu_protocol::{Digest, EventBody, FromAgent, Outcome, PIECE_BYTES, Plan, ToAgent};
use serde_json::json;

use crate::client::{Client, Host, JobOutput, input, plan, sh, step};

fn announced(story: &JobOutput) -> Vec<(String, u64)> {
    let artifacts = story.events.iter().filter_map(|e| match &e.body {
        EventBody::Artifact { path, size, .. } => Some((path.clone(), *size)),
        _ => None,
    });
    artifacts.collect()
}

fn fetch(client: &mut Client, path: &str, offset: u64, len: u64) -> Vec<u8> {
    client.send(&ToAgent::Fetch { job: "j".into(), path: path.into(), offset, len });
    match client.next() {
        FromAgent::Data { len, stored, zstd, .. } => client.data(len, stored, zstd),
        other => panic!("{other:?}"),
    }
}

#[test]
fn artifacts_are_announced_with_their_hash_and_fetched_by_range() {
    let host = Host::new();
    let mut client = host.connect();
    let text = "mkdir raw; seq 1 2000000 > raw/big; head -c 100000 /dev/urandom > raw/noise; echo small > raw/s";
    let rungs = json!([{"id": "r", "argv": ["sh", "-c", text], "artifacts": [{"path": "raw/*", "kind": "log"}]}]);
    client.submit_with(&plan("j", json!({"steps": [step("main", rungs)]})), json!({}), 1000);
    let story = client.follow_to_end();
    let big = std::fs::read(host.job("j").join("work/raw/big")).unwrap();
    assert_eq!(
        announced(&story),
        [("raw/big".into(), big.len() as u64), ("raw/noise".into(), 100_000), ("raw/s".into(), 6)]
    );
    let digests = story.events.iter().filter_map(|e| match &e.body {
        EventBody::Artifact { digest, composite, .. } => Some((digest.clone(), composite.clone())),
        _ => None,
    });
    let digests: Vec<_> = digests.collect();
    let pieces: Vec<_> = big.chunks(PIECE_BYTES as usize).map(sha256).collect();
    assert_eq!(digests[0], (Digest::sha256(&big), Some(Digest::composite(&pieces))));
    assert_eq!((&digests[1].1, &digests[2].1), (&None, &None), "files of one piece");
    // Only the small one was sent without a request.
    assert_eq!(story.data.keys().collect::<Vec<_>>(), ["raw/s"]);
    assert_eq!(story.data["raw/s"], b"small\n");

    let mut got = Vec::new();
    while got.len() < big.len() {
        got.extend(fetch(&mut client, "raw/big", got.len() as u64, u64::MAX));
    }
    assert!(got == big);
    assert_eq!(fetch(&mut client, "raw/big", 10, 5), big[10..15]);
    assert_eq!(fetch(&mut client, "raw/big", 1 << 40, 5), b"");
    let noise = std::fs::read(host.job("j").join("work/raw/noise")).unwrap();
    assert!(fetch(&mut client, "raw/noise", 0, 1 << 20) == noise);
}

#[test]
fn an_artifact_can_be_an_input_of_the_next_plan_without_travelling() {
    let host = Host::new();
    let mut client = host.connect();
    let rungs = json!([{"id": "r", "argv": ["sh", "-c", "printf made > k.cubin"],
        "artifacts": [{"path": "k.cubin", "kind": "cubin"}]}]);
    client.run(&plan("j.1", json!({"steps": [step("build", rungs)]})));
    let next =
        json!({"files": [input("in/k.cubin", b"made")], "steps": [sh("main", "cat in/k.cubin")]});
    assert_eq!(client.run(&plan("j.2", next)).stdout("main"), "made");
}

/// A job that creates one file of each kind, reports it, and continues.
fn maker(job: &str) -> Plan {
    let text = "mkdir out raw; seq 1 2000000 > out/long; echo a > out/a; echo r > raw/r; echo made; sleep 1000";
    let rungs = json!([{"id": "r", "argv": ["sh", "-c", text],
        "artifacts": [{"path": "raw/*", "kind": "log"}, {"path": "out/**", "kind": PULLED}]}]);
    plan(job, json!({"steps": [step("main", rungs)]}))
}

#[test]
fn a_cancelled_job_brings_what_the_user_asked_for_by_name_and_nothing_else() {
    let host = Host::new();
    let mut client = host.connect();
    client.submit(&maker("j"));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "made");
    client.send(&ToAgent::Cancel { job: "j".into() });
    client.finish(&mut story);
    assert_eq!(*story.outcome(), Outcome::Cancelled);
    assert_eq!(announced(&story), [("out/a".into(), 2), ("out/long".into(), 14_888_896)]);
    assert_eq!(fetch(&mut client, "out/a", 0, 10), b"a\n");
}

#[test]
fn a_job_whose_supervisor_was_killed_brings_it_too() {
    let host = Host::new();
    let mut client = host.connect();
    client.submit(&maker("j"));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "made");
    let supervisor = host.supervisor("j").to_string();
    assert!(Command::new("kill").args(["-9", &supervisor]).status().unwrap().success());
    client.finish(&mut story);
    assert!(
        matches!(story.outcome(), Outcome::HostError { code, .. } if code == "supervisor_died")
    );
    assert_eq!(announced(&story), [("out/a".into(), 2), ("out/long".into(), 14_888_896)]);
    let long = std::fs::read(host.job("j").join("work/out/long")).unwrap();
    let mut digests = story.events.iter().filter_map(|e| match &e.body {
        EventBody::Artifact { digest, .. } => Some(digest.clone()),
        _ => None,
    });
    assert_eq!(digests.next_back(), Some(Digest::sha256(&long)));
    assert_eq!(fetch(&mut client, "out/a", 0, 10), b"a\n");
}

#[test]
fn links_and_odd_names_are_not_brought_back() {
    let host = Host::new();
    let mut client = host.connect();
    let text = "mkdir raw out; ln -s /etc/passwd raw/link; ln -s /etc out/dir; mkfifo raw/pipe; printf x > \"raw/new\nline\"; echo y > raw/good";
    let rungs = json!([{"id": "r", "argv": ["sh", "-c", text],
        "artifacts": [{"path": "raw/*", "kind": "k"}, {"path": "out/**", "kind": "k"}, {"path": "out/dir/passwd", "kind": "k"}]}]);
    let story = client.run(&plan("j", json!({"steps": [step("main", rungs)]})));
    assert_eq!(announced(&story), [("raw/good".into(), 2)]);
    let warnings = story.events.iter().filter(
        |e| matches!(&e.body, EventBody::Warning { code, .. } if code == "artifact_refused"),
    );
    assert_eq!(warnings.count(), 5);
    for path in
        ["raw/link", "out/dir/passwd", "../plan.json", "/etc/passwd", "raw/pipe", "raw/../raw/good"]
    {
        client.send(&ToAgent::Fetch { job: "j".into(), path: path.into(), offset: 0, len: 10 });
        assert_eq!(client.refusal(), ("fetch".into(), "bad_path".into()), "{path}");
    }
    client.send(&ToAgent::Fetch { job: "j".into(), path: "raw/none".into(), offset: 0, len: 1 });
    assert_eq!(client.refusal().1, "no_such_file");
}

#[test]
fn a_file_that_a_later_rung_wrote_anew_is_announced_anew() {
    let host = Host::new();
    let artifacts = json!([{"path": "out", "kind": "k"}]);
    let rungs = json!([
        {"id": "a", "argv": ["sh", "-c", "echo first > out; exit 1"], "artifacts": artifacts},
        {"id": "b", "argv": ["sh", "-c", "exit 1"], "artifacts": artifacts},
        {"id": "c", "argv": ["sh", "-c", "echo third time > out"], "artifacts": artifacts}]);
    let story = host.connect().run(&plan("j", json!({"steps": [step("main", rungs)]})));
    assert_eq!(announced(&story), [("out".into(), 6), ("out".into(), 11)]);
}

#[test]
fn the_version_names_the_hash_of_the_program() {
    let out = Command::new(crate::client::AGENT).arg("--version").output().unwrap();
    let sha = Digest::sha256(&std::fs::read(crate::client::AGENT).unwrap());
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(text, format!("rgpu-agent {} sha256:{sha}\n", env!("CARGO_PKG_VERSION")));
}
