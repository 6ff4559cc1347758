//! Features that save round trips on a long link: plans that wait for their blobs, and artifacts
//! that are sent without a request.

use std::time::Duration;

use rgpu_protocol::plan::Plan;
use rgpu_protocol::{FromAgent, Outcome, ToAgent};
use serde_json::json;

use crate::client::{Client, Host, input, plan, sh, step};

/// Submits a plan that may wait, and returns the first answer.
fn submit_and_wait(client: &mut Client, plan: &Plan) -> FromAgent {
    client.send(&json!({"do": "submit", "plan": plan, "await_blobs": true}));
    client.next()
}

fn waits(answer: &FromAgent) -> bool {
    matches!(answer, FromAgent::Missing { awaited: true, .. })
}

#[test]
fn a_waiting_plan_begins_with_its_last_blob_whoever_brings_it() {
    let host = Host::new();
    let (mut first, mut second) = (host.connect(), host.connect());
    let files = [input("a", b"hello "), input("b", b"world")];
    let plan = plan("j", json!({"files": files, "steps": [sh("main", "cat a b")]}));
    assert!(waits(&submit_and_wait(&mut first, &plan)));
    first.blob(b"hello ");
    assert!(matches!(first.next(), FromAgent::Stored { .. }));
    assert!(!host.job("j").exists());
    second.blob(b"world");
    assert!(matches!(second.next(), FromAgent::Stored { .. }));
    assert!(matches!(first.next(), FromAgent::Following { .. }));
    assert_eq!(first.follow_to_end().stdout("main"), "hello world");
    // The job exists now: submitting attaches to it.
    assert!(matches!(submit_and_wait(&mut second, &plan), FromAgent::Following { .. }));
    assert_eq!(second.follow_to_end().stdout("main"), "hello world");
}

#[test]
fn a_plan_waits_only_where_its_client_says_so() {
    let host = Host::new();
    let mut client = host.connect();
    let files = [input("a", b"hello")];
    client.submit(&plan("j", json!({"files": files, "steps": [sh("main", "cat a")]})));
    assert!(matches!(client.next(), FromAgent::Missing { awaited: false, .. }));
    client.blob(b"hello");
    assert!(matches!(client.next(), FromAgent::Stored { .. }));
    client.send(&ToAgent::Ping {});
    assert_eq!(client.next(), FromAgent::Pong {});
    assert!(!host.job("j").exists());
}

#[test]
fn a_waiting_plan_ends_with_its_connection_its_cancellation_or_another_plan() {
    let host = Host::new();
    let mut other = host.connect();
    let waiting = |job: &str, text: &str| {
        let files = [input("a", text.as_bytes())];
        plan(job, json!({"files": files, "steps": [sh("main", "cat a")]}))
    };
    let mut gone = host.connect();
    assert!(waits(&submit_and_wait(&mut gone, &waiting("gone", "one"))));
    drop(gone);
    let mut client = host.connect();
    assert!(waits(&submit_and_wait(&mut client, &waiting("cancelled", "two"))));
    client.send(&ToAgent::Cancel { job: "cancelled".into() });
    assert_eq!(client.refusal(), ("cancel".into(), "no_such_job".into()));
    assert!(waits(&submit_and_wait(&mut client, &waiting("replaced", "three"))));
    assert!(waits(&submit_and_wait(&mut client, &waiting("last", "four"))));
    for blob in ["one", "two", "three", "four"] {
        other.blob(blob.as_bytes());
        assert!(matches!(other.next(), FromAgent::Stored { .. }));
    }
    assert!(matches!(client.next(), FromAgent::Following { .. }));
    assert_eq!(*client.follow_to_end().outcome(), Outcome::Done);
    for job in ["gone", "cancelled", "replaced"] {
        assert!(!host.job(job).exists(), "{job}");
    }
}

#[test]
fn a_plan_of_a_client_that_has_gone_is_not_begun() {
    let host = Host::new();
    let mut client = host.connect();
    let plan = plan("j", json!({"steps": [sh("main", "echo hi")]}));
    // The client has sent everything before the agent reads.
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&client.process),
        rustix::process::Signal::STOP,
    )
    .unwrap();
    client.send(&json!({"do": "submit", "plan": plan, "await_blobs": true}));
    client.input = None;
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&client.process),
        rustix::process::Signal::CONT,
    )
    .unwrap();
    client.process.wait().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(!host.job("j").exists());
    assert_eq!(host.connect().run(&plan).stdout("main"), "hi\n");
}

#[test]
fn the_larger_artifacts_begin_to_come_with_the_terminal_event() {
    const MIB: usize = 1 << 20;
    let host = Host::new();
    let mut client = host.connect();
    let mine = vec![7; 2 * MIB];
    let text = "mkdir raw; cp mine raw/copy; head -c 9437184 /dev/urandom > raw/noise; \
                echo small > raw/small; seq 1 2000000 > raw/text";
    let artifacts = json!([{"path": "raw/*", "kind": "log"}, {"path": "mine", "kind": "log"}]);
    let rungs = json!([{"id": "r", "argv": ["sh", "-c", text], "artifacts": artifacts}]);
    let plan = plan("j", json!({"files": [input("mine", &mine)], "steps": [step("main", rungs)]}));
    client.blob(&mine);
    assert!(matches!(client.next(), FromAgent::Stored { .. }));
    client.send(&json!({
        "do": "submit", "plan": plan, "inline_bytes": 1000, "ahead_bytes": 10 * MIB
    }));
    let mut story = crate::client::JobOutput::default();
    let mut ahead = Vec::new();
    loop {
        match client.read_into(&mut story) {
            FromAgent::Ahead { path, len, .. } => ahead.push((path, len)),
            FromAgent::Event { event, .. }
                if matches!(event.body, rgpu_protocol::EventBody::Ended { .. }) =>
            {
                break;
            }
            _ => {}
        }
    }
    // Files that the client sent do not come back; one over the remaining limit is cut to whole
    // pieces.
    let copy = ("raw/copy".to_owned(), 2 * MIB as u64);
    let noise = ("raw/noise".to_owned(), 8 * MIB as u64);
    assert_eq!(ahead, [copy, noise]);
    assert_eq!(story.data.keys().collect::<Vec<_>>(), ["raw/small"]);
    // Requested at once, and still sent after the unrequested ones.
    client.send(&ToAgent::Fetch {
        job: "j".into(),
        path: "raw/noise".into(),
        offset: 8 * MIB as u64,
        len: MIB as u64,
    });
    while story.data.get("raw/noise").map_or(0, Vec::len) < 9 * MIB {
        client.read_into(&mut story);
    }
    assert!(story.data["raw/copy"] == mine);
    let noise = std::fs::read(host.job("j").join("work/raw/noise")).unwrap();
    assert!(story.data["raw/noise"] == noise);
}
