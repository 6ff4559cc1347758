//! Two commands that look after one run: one follows it, the other is told.

use std::fs;
use std::path::Path;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for};

/// A program that says `before`, waits for the file, and says `after`.
fn gated(go: &Path) -> String {
    let go = go.display();
    format!("-- sh -c 'echo before; while [ ! -e {go} ]; do sleep 0.05; done; echo after'")
}

/// Waits until all that was printed so far is here, and noted in the events.
fn wait_for_output(laptop: &Laptop) {
    let log = laptop.project("artifacts/runs/live/log/exec.stdout");
    let events = laptop.project("artifacts/runs/live/events.jsonl");
    let holds = |file: &Path, word: &str| fs::read_to_string(file).is_ok_and(|t| t.contains(word));
    wait_for("output", || (holds(&log, "before") && holds(&events, "\"output\"")).then_some(()));
}

/// Everything in the folder of the run `live`.
fn kept(laptop: &Laptop) -> Vec<(String, Vec<u8>)> {
    let folder = laptop.project("artifacts/runs/live");
    let files = walkdir::WalkDir::new(&folder).sort_by_file_name().into_iter().flatten();
    let files = files.filter(|entry| entry.file_type().is_file());
    files.map(|e| (e.path().display().to_string(), fs::read(e.path()).unwrap())).collect()
}

fn without_pid(text: &str) -> String {
    regex::Regex::new(r"process \d+").unwrap().replace_all(text, "process [PID]").into_owned()
}

#[test]
fn a_run_that_a_command_follows_is_not_taken_up_by_another() {
    let laptop = Laptop::new();
    let go = laptop.path("go");
    let child = laptop.start(&format!("exec --run-id live --pull out.txt {}", gated(&go)));
    wait_for_output(&laptop);
    let before = kept(&laptop);
    let mut story = laptop.show("runs attach live") + &laptop.show("runs attach live --json");
    assert!(story.contains(&format!("process {}", child.id())), "{story}");
    // The first would write over it.
    let note = laptop.run("runs note live 'kept for the paper'");
    assert_eq!(status(&note), 2, "{}", laptop.shown("runs note", &note));
    assert!(before == kept(&laptop), "the second command wrote into the folder");
    story += &laptop.show("runs show live");
    let story = regex::Regex::new(" {2,}").unwrap().replace_all(&story, "  ").into_owned();
    insta::assert_snapshot!(without_pid(&story));
    fs::write(go, "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((status(&output), &*output.stdout), (0, &b"before\nafter\n"[..]));
    let folder = laptop.project("artifacts/runs/live");
    assert_eq!(fs::read_to_string(folder.join("log/exec.stdout")).unwrap(), "before\nafter\n");
    assert!(!folder.join(".followed").exists());
    assert_eq!(status(&laptop.run("runs attach live")), 0);
    laptop.wait_until_quiet();
}

#[test]
fn of_two_that_take_up_a_detached_run_one_brings_it_home() {
    let laptop = Laptop::new();
    let go = laptop.path("go");
    let begun = laptop.run(&format!("exec --run-id live --detach {}", gated(&go)));
    assert_eq!(status(&begun), 0, "{}", laptop.shown("", &begun));
    let first = laptop.start("runs attach live");
    wait_for_output(&laptop);
    let second = laptop.run("runs attach live");
    assert_eq!(status(&second), 2, "{}", laptop.shown("runs attach live", &second));
    fs::write(go, "").unwrap();
    let output = first.wait_with_output().unwrap();
    assert_eq!((status(&output), &*output.stdout), (0, &b"before\nafter\n"[..]));
    let events = fs::read_to_string(laptop.project("artifacts/runs/live/events.jsonl")).unwrap();
    let numbers: Vec<u64> = events
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64())
        .map(Option::unwrap)
        .collect();
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
    laptop.wait_until_quiet();
}

#[test]
fn a_run_is_cancelled_while_another_command_follows_it() {
    let laptop = Laptop::new();
    let child = laptop.start(&format!("exec --run-id live {}", gated(&laptop.path("never"))));
    wait_for_output(&laptop);
    let cancel = laptop.run("runs cancel live --json");
    assert_eq!(status(&cancel), 0, "{}", laptop.shown("runs cancel live --json", &cancel));
    let record: serde_json::Value = serde_json::from_slice(&cancel.stdout).unwrap();
    assert_eq!(record["state"], "cancelled");
    assert_eq!(status(&child.wait_with_output().unwrap()), 130);
    let record = laptop.latest_json("run.json");
    assert_eq!((&record["state"], &record["exit"]), (&"cancelled".into(), &130.into()));
    assert_eq!(record["jobs"][0]["outcome"]["how"], "cancelled", "{record}");
    laptop.wait_until_quiet();
}

#[test]
fn a_profile_that_is_followed_is_not_taken_up_by_another() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let child = laptop.start("profile --kernel vecadd --mode ncu --remote h200 --run-id live");
    host.wait_for_gate("ncu");
    let second = laptop.run("runs attach live --json");
    let error: serde_json::Value = serde_json::from_slice(&second.stdout).unwrap();
    assert_eq!((status(&second), &error["error"]["code"]), (2, &"followed".into()));
    host.open_gate("ncu");
    assert_eq!(status(&child.wait_with_output().unwrap()), 0);
    laptop.wait_until_quiet();
}
