//! No process of a job outlives it: time limits, cancellation, daemons, fork storms.

use std::process::Command;
use std::time::{Duration, Instant};

use rgpu_protocol::{EventBody, Outcome, ToAgent};
use serde_json::json;

use crate::client::{AGENT, Host, JobOutput, living, plan, script, sh};

/// A word that only this test's processes have in their command line.
fn mark(name: &str) -> String {
    format!("rgpu-mark-{name}-{}", std::process::id())
}

#[test]
fn a_time_limit_ends_the_whole_tree() {
    let host = Host::new();
    let mark = mark("timeout");
    let text = format!(
        "setsid sh -c 'sleep 1000; : {mark}' & (sh -c 'sleep 1000; : {mark}' &) ; sh -c 'sleep 1000; : {mark}'"
    );
    let mut limited = sh("main", &text);
    limited["timeout_s"] = json!(1);
    let story = host.connect().run(&plan("j", json!({"steps": [limited]})));
    assert_eq!(story.rungs(), ["host:timeout"]);
    assert_eq!(*story.outcome(), Outcome::Failed { step: "main".into(), code: "timeout".into() });
    assert_eq!(living(&mark), [0i32; 0]);
}

#[test]
fn programs_that_ignore_the_polite_signal_are_killed() {
    let host = Host::new();
    let mark = mark("ignore");
    let mut stubborn = sh("main", &format!("trap '' TERM; while :; do sleep 0.05; : {mark}; done"));
    stubborn["timeout_s"] = json!(1);
    let start = Instant::now();
    let story = host.connect().run(&plan("j", json!({"steps": [stubborn]})));
    assert_eq!(story.rungs(), ["host:timeout"]);
    assert!(start.elapsed() < Duration::from_secs(15));
    assert_eq!(living(&mark), [0i32; 0]);
}

#[test]
fn last_words_after_the_polite_signal_are_kept() {
    let host = Host::new();
    let mut polite =
        sh("main", "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
    polite["timeout_s"] = json!(1);
    let story = host.connect().run(&plan("j", json!({"steps": [polite]})));
    assert_eq!(story.stdout("main"), "ready\nsaved\n");
    assert_eq!(story.rungs(), ["host:timeout"]);
}

#[test]
fn a_fork_storm_of_daemons_is_ended() {
    let host = Host::new();
    let mark = mark("storm");
    // Every process starts two more in their own sessions, down to a certain depth: bounded, but
    // fast.
    let storm = host.dir.path().join("storm.sh");
    crate::client::write(
        &storm,
        &format!(
            ": {mark}\nn=$1\n[ $n -gt 0 ] && for i in 1 2; do setsid sh {0} $((n-1)) {mark} & done\necho x\nsleep 1000\n:\n",
            storm.display()
        ),
    );
    let mut client = host.connect();
    client.submit(&script("j", &format!("sh {} 6 {mark}; wait", storm.display())));
    let mut story = JobOutput::default();
    while story.stdout("main").len() < 2 * 60 {
        client.read_into(&mut story);
    }
    assert!(living(&mark).len() > 60);
    client.send(&ToAgent::Cancel { job: "j".into() });
    client.finish(&mut story);
    assert_eq!(*story.outcome(), Outcome::Cancelled);
    assert_eq!(living(&mark), [0i32; 0]);
}

#[test]
fn a_holder_that_is_killed_takes_its_jobs_with_it() {
    let mut host = Host::new();
    let mark = mark("holder");
    let folder = host.dir.path().join("holder");
    std::fs::create_dir(&folder).unwrap();
    let mut holder = Command::new(AGENT);
    let mut holder = holder.arg("hold").arg(&folder).arg("60").envs(&host.env).spawn().unwrap();
    host.env.insert("RGPU_AGENT_REACH".into(), folder.display().to_string());
    let mut client = host.connect();
    client.submit(&script("j", &format!("echo up; sleep 1000; : {mark}")));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "up");
    // As a batch system does that finds nothing but its own script.
    holder.kill().unwrap();
    holder.wait().unwrap();
    let job = host.job("j").display().to_string();
    let start = Instant::now();
    while !living(&mark).is_empty() || !living(&job).is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{:?} {:?}",
            living(&mark),
            living(&job)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_chain_of_processes_that_replace_themselves_is_ended() {
    let host = Host::new();
    let mark = mark("chain");
    let chain = host.dir.path().join("chain.sh");
    // None of its processes lives longer than a millisecond or two, but the chain lasts for
    // minutes.
    let text =
        format!("n=$1\n[ $n -lt 50000 ] && sh {} $((n+1)) {mark} &\nexit\n", chain.display());
    crate::client::write(&chain, &text);
    let start = Instant::now();
    let story = host.connect().run(&script("j", &format!("sh {} 0 {mark}", chain.display())));
    assert_eq!(*story.outcome(), Outcome::Done);
    assert_eq!(living(&mark), [0i32; 0]);
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
}

#[test]
fn a_daemon_that_floods_its_output_does_not_keep_the_rung_alive() {
    let host = Host::new();
    let limits = json!({"log_bytes": 1000});
    let flood = sh("main", "yes & sleep 0.2; echo last >&2");
    let start = Instant::now();
    let story = host.connect().run(&plan("j", json!({"limits": limits, "steps": [flood]})));
    assert_eq!(*story.outcome(), Outcome::Done);
    assert_eq!(story.stderr("main"), "last\n");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn daemons_that_a_tool_leaves_behind_do_not_reach_the_next_rung() {
    let host = Host::new();
    let mark = mark("daemon");
    let leaves = sh("a", &format!("setsid sh -c 'sleep 1000; : {mark}' & echo started"));
    let looks =
        sh("b", &format!("grep -l {mark} /proc/[0-9]*/cmdline 2>/dev/null | grep -v /$$/ ; true"));
    let start = Instant::now();
    let story = host.connect().run(&plan("j", json!({"steps": [leaves, looks]})));
    assert_eq!(*story.outcome(), Outcome::Done);
    assert_eq!(living(&mark), [0i32; 0]);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_cancellation_is_confirmed_when_nothing_is_left() {
    let host = Host::new();
    let mark = mark("cancel");
    let mut client = host.connect();
    client.submit(&script("j", &format!("echo up; sleep 1000; : {mark}")));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "up");
    assert!(!living(&mark).is_empty());
    client.send(&ToAgent::Cancel { job: "j".into() });
    client.finish(&mut story);
    assert_eq!(*story.outcome(), Outcome::Cancelled);
    assert_eq!(living(&mark), [0i32; 0]);
    // Once is enough.
    client.send(&ToAgent::Cancel { job: "j".into() });
    client.attach("j", 1, Vec::new());
    let ends = client
        .follow_to_end()
        .events
        .iter()
        .filter(|e| matches!(e.body, EventBody::Ended { .. }))
        .count();
    assert_eq!(ends, 1);
}
