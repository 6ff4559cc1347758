//! Connections end while jobs continue.

use std::time::{Duration, Instant};

use rgpu_protocol::message::ReceivedOutput;
use rgpu_protocol::{EventBody, FromAgent, Outcome, Stream, ToAgent};
use serde_json::json;

use crate::client::{Host, JobOutput, plan, script, sh};

#[test]
fn a_cut_connection_loses_nothing_when_it_is_resumed_by_offset() {
    let host = Host::new();
    let text = "i=0; while [ $i -lt 400 ]; do echo line $i; echo err $i >&2; i=$((i+1)); [ $((i % 20)) = 0 ] && sleep 0.02; done";
    let whole: String = (0..400).map(|i| format!("line {i}\n")).collect();
    let job = script("j", text);
    let mut client = host.connect();
    client.submit(&job);
    let mut story = JobOutput::default();
    let mut cuts = 0;
    loop {
        // Cut after some messages, wherever that is.
        for _ in 0..(7 + 13 * cuts) {
            client.read_into(&mut story);
            if matches!(story.events.last().map(|e| &e.body), Some(EventBody::Ended { .. })) {
                break;
            }
        }
        if matches!(story.events.last().map(|e| &e.body), Some(EventBody::Ended { .. })) {
            break;
        }
        client.cut();
        cuts += 1;
        client = host.connect();
        let had = story
            .output
            .iter()
            .map(|((step, stream), bytes)| ReceivedOutput {
                step: step.clone(),
                stream: *stream,
                bytes: bytes.len() as u64,
            })
            .collect();
        let from_seq = story.events.last().map_or(1, |e| e.seq + 1);
        client.attach("j", from_seq, had);
    }
    assert!(cuts > 2, "{cuts} cuts");
    assert_eq!(story.stdout("main"), whole);
    assert_eq!(story.stderr("main"), whole.replace("line", "err"));
    let seqs: Vec<u64> = story.events.iter().map(|e| e.seq).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_stream_cut_after_any_number_of_bytes_is_resumed_without_gap_or_repetition() {
    let host = Host::new();
    let job = |n: usize| script(&format!("j.{n}"), "echo one; echo two >&2; printf three");
    let mut reference = host.connect();
    let whole = reference.run(&job(0));
    for n in (1..2600).step_by(53) {
        let mut story = JobOutput::default();
        host.read_only(n, &job(n), &mut story);
        let had = story
            .output
            .iter()
            .map(|((step, stream), bytes)| ReceivedOutput {
                step: step.clone(),
                stream: *stream,
                bytes: bytes.len() as u64,
            })
            .collect();
        if matches!(story.events.last().map(|e| &e.body), Some(EventBody::Ended { .. })) {
            continue;
        }
        let from_seq = story.events.last().map_or(1, |e| e.seq + 1);
        if story.events.is_empty() {
            // The plan may not have arrived: submit it again.
            reference.submit(&job(n));
            story = JobOutput::default();
        } else {
            reference.attach(&format!("j.{n}"), from_seq, had);
        }
        reference.finish(&mut story);
        assert_eq!(story.output, whole.output, "cut after {n} bytes");
        let seqs: Vec<u64> = story.events.iter().map(|e| e.seq).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "cut after {n} bytes");
    }
}

#[test]
fn a_job_outlives_its_connection_and_can_be_read_from_any_point() {
    let host = Host::new();
    let job = script("j", "echo one; sleep 0.3; echo two");
    let mut client = host.connect();
    client.submit(&job);
    let mut first = JobOutput::default();
    client.until_output(&mut first, "main", "one");
    client.cut();
    let mut second = host.connect();
    // Submitting the same plan again attaches to the job.
    second.submit(&job);
    let all = second.follow_to_end();
    assert_eq!(all.stdout("main"), "one\ntwo\n");
    let had = vec![ReceivedOutput { step: "main".into(), stream: Stream::Stdout, bytes: 4 }];
    let last = first.events.last().map_or(1, |e| e.seq + 1);
    second.attach("j", last, had);
    second.finish(&mut first);
    assert_eq!(first.stdout("main"), "one\ntwo\n");
}

#[test]
fn several_clients_follow_the_same_job() {
    let host = Host::new();
    let mut clients: Vec<_> = (0..3).map(|_| host.connect()).collect();
    let job = script("j", "for i in 1 2 3 4 5; do echo $i; sleep 0.05; done");
    for client in &mut clients {
        client.submit(&job);
    }
    let stories: Vec<JobOutput> =
        clients.iter_mut().map(crate::client::Client::follow_to_end).collect();
    for story in &stories {
        assert_eq!(story.stdout("main"), "1\n2\n3\n4\n5\n");
        assert_eq!(story.events, stories[0].events, "it ran once");
    }
}

#[test]
fn a_cancellation_is_heard_while_output_floods_a_link_that_nobody_reads() {
    let host = Host::new();
    let mut client = host.connect();
    client.submit(&script("j", "echo up; while :; do head -c 100000 /dev/zero; done"));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "up");
    // The pipe to us fills up; the agent still reads requests.
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..20 {
        client.send(&ToAgent::Renew { job: "j".into() });
    }
    client.send(&ToAgent::Cancel { job: "j".into() });
    let log = host.job("j").join("events.jsonl");
    let start = Instant::now();
    while !std::fs::read_to_string(&log).unwrap().contains(r#""how":"cancelled""#) {
        assert!(start.elapsed() < Duration::from_secs(20), "the cancellation was not heard");
        std::thread::sleep(Duration::from_millis(20));
    }
    client.finish(&mut story);
    assert_eq!(*story.outcome(), Outcome::Cancelled);
}

#[test]
fn another_plan_of_the_same_name_is_refused() {
    let host = Host::new();
    let mut client = host.connect();
    client.run(&script("j", "true"));
    client.submit(&script("j", "false"));
    assert_eq!(client.refusal(), ("submit".into(), "job_exists".into()));
}

#[test]
fn a_job_that_nobody_follows_goes_on_within_its_own_limits_and_its_input_ends() {
    let host = Host::new();
    let lease = |job: &str, text: &str, stdin: &str| {
        let mut main = sh("main", text);
        main["stdin"] = json!(stdin);
        main["timeout_s"] = json!(6);
        plan(job, json!({"limits": {"lease_s": 1}, "steps": [main]}))
    };
    let mut client = host.connect();
    client.submit(&lease("left", "sleep 3; echo late", "null"));
    client.submit(&lease("reader", "cat; echo late", "client"));
    client.submit(&lease("endless", "sleep 1000", "null"));
    client.submit(&lease("detached", "sleep 3; echo late", "null"));
    client.send(&ToAgent::Detach { job: "detached".into() });
    while !matches!(client.read_into(&mut JobOutput::default()), FromAgent::Done { .. }) {}
    client.cut();
    std::thread::sleep(Duration::from_millis(1900));
    let warned = |story: &JobOutput| {
        let is = |e: &rgpu_protocol::Event| matches!(&e.body, EventBody::Warning { code, .. } if code == "lease_expired");
        story.events.iter().filter(|e| is(e)).count()
    };
    for (job, late, warnings) in [
        ("left", "late\n", 1),
        ("reader", "late\n", 1),
        ("endless", "", 1),
        ("detached", "late\n", 0),
    ] {
        let mut client = host.connect();
        client.attach(job, 1, Vec::new());
        let story = client.follow_to_end();
        assert_eq!((&*story.stdout("main"), warned(&story)), (late, warnings), "{job}");
        match job {
            "endless" => assert_eq!(story.rungs(), ["host:timeout"]),
            _ => assert_eq!(*story.outcome(), Outcome::Done, "{job}"),
        }
    }
}

#[test]
fn any_traffic_of_the_client_renews_the_lease() {
    let host = Host::new();
    let mut client = host.connect();
    let lease = plan("j", json!({"limits": {"lease_s": 2}, "steps": [sh("main", "sleep 4")]}));
    client.submit(&lease);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        client.send(&ToAgent::Ping {});
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(*client.follow_to_end().outcome(), Outcome::Done);
}

#[test]
fn jobs_are_listed_and_forgotten() {
    let host = Host::new();
    let mut client = host.connect();
    client.run(&script("old", "true"));
    client.submit(&script("new", "echo up; sleep 1000"));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "up");
    let mut other = host.connect();
    other.send(&ToAgent::Jobs {});
    let FromAgent::Jobs { jobs, .. } = other.next() else { panic!("jobs") };
    let lines: Vec<_> = jobs.iter().map(|j| (j.job.as_str(), j.ended.clone())).collect();
    assert_eq!(lines, [("new", None), ("old", Some(Outcome::Done))]);
    assert_eq!(jobs[0].step, "main");
    other.send(&ToAgent::Forget { job: "new".into() });
    assert_eq!(other.refusal().1, "running");
    other.send(&ToAgent::Forget { job: "old".into() });
    assert_eq!(other.next(), FromAgent::Done { request: "forget".into() });
    assert!(!host.job("old").exists());
    other.attach("old", 1, Vec::new());
    assert_eq!(other.refusal().1, "no_such_job");
    other.send(&ToAgent::Cancel { job: "new".into() });
    client.finish(&mut story);
}
