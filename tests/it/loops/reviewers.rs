//! A reviewer that the loop starts: its prompt, its hint, its time limit, and a kill while it
//! works.

use std::fs;

use super::{TestLoop, outcomes};
use crate::laptop::status;

/// A reviewer that has a hint for each iteration.
const REVIEWER: &str = r#"#!/bin/sh
nonce=$(sed -n 's/.*"nonce": "\([0-9a-f]*\)".*/\1/p' "$1" | head -1)
iter=$(sed -n 's/.*"iteration": \([0-9]*\),.*/\1/p' "$1" | head -1)
echo "{\"iteration\": $iter, \"nonce\": \"$nonce\", \"verdict\": \"CONTINUE\", \"confidence\": \"high\", \"reason\": \"seen $iter\", \"next_change_hint\": \"unroll by 4$iter\"}" > "$2/new"
mv "$2/new" "$2/reviewer_verdict.json"
"#;

/// Settings with that reviewer.
const SETTINGS: &str = "'reviewer_command=sh reviewer.sh {prompt} {iter_dir}'";

fn test_loop(proposals: &[&str]) -> TestLoop {
    let test = TestLoop::new(proposals);
    test.laptop.write("reviewer.sh", REVIEWER);
    test
}

#[test]
fn a_reviewers_hint_is_in_the_next_prompt() {
    let test = test_loop(&["time 1.5", "time 0.5"]);
    let report = test.run(&format!("max_iterations=2 {SETTINGS}"), 0);
    assert_eq!(outcomes(&report), ["slower", "kept"]);
    assert_eq!(report["iterations"][1]["verdict"]["reason"], "seen 2");
    let prompt = |number: u32| {
        let file = format!("iter_{number:04}/worker_prompt.txt");
        fs::read_to_string(test.folder().join(file)).unwrap()
    };
    assert!(prompt(2).contains("## The reviewer's hint\nunroll by 41\n"), "{}", prompt(2));
    assert!(!prompt(1).contains("unroll by"));
}

#[test]
fn a_reviewer_that_hangs_ends_with_all_its_processes_and_the_loop_goes_on() {
    let test = test_loop(&["time 0.5"]);
    test.laptop.write("reviewer.sh", "sleep 1000; true\n");
    let report = test.run(&format!("max_iterations=1 reviewer_timeout=1s {SETTINGS}"), 0);
    assert_eq!(outcomes(&report), ["kept"]);
    assert!(report["iterations"][0].get("verdict").is_none());
    let log = fs::read_to_string(test.folder().join("run.log")).unwrap();
    assert!(log.contains("the reviewer wrote no verdict: its time limit ended it"), "{log}");
    assert!(test.laptop.running().is_empty(), "{:?}", test.laptop.running());
}

#[test]
fn killed_while_it_reviews_it_ends_as_one_that_was_not() {
    for point in ["loop in reviewer", "loop child of reviewer"] {
        let test = test_loop(&["time 0.5", "time 1.5"]);
        let overrides = format!("max_iterations=2 {SETTINGS}");
        test.start(&overrides, Some(point)).wait().unwrap();
        assert_eq!(test.json("status")["state"], "RUN_REVIEWER", "{point}");
        let output = test.laptop.run("loop resume");
        let shown = test.laptop.shown("loop resume", &output);
        assert_eq!(status(&output), 0, "{point}: {shown}");
        let report = test.report();
        assert_eq!(outcomes(&report), ["kept", "slower"], "{point}");
        for (at, reason) in ["seen 1", "seen 2"].iter().enumerate() {
            assert_eq!(report["iterations"][at]["verdict"]["reason"], *reason, "{point}");
        }
    }
}

#[test]
fn a_reviewers_prompt_keeps_its_limit_with_a_profile_and_a_long_change() {
    let test = test_loop(&["long"]);
    let overrides = format!("max_iterations=1 prompt_bytes=9000 profile_mode=bench {SETTINGS}");
    let report = test.run(&overrides, 0);
    assert_eq!(outcomes(&report), ["kept"]);
    let folder = test.folder().join("iter_0001");
    let patch = fs::read_to_string(folder.join("git_diff.patch")).unwrap();
    assert!(patch.len() > 20_000, "{}", patch.len());
    let prompt = fs::read_to_string(folder.join("reviewer_prompt.txt")).unwrap();
    assert!(prompt.len() <= 9000, "{}", prompt.len());
    for title in ["## The comparison with the best", "## The change", "## The profile"] {
        assert!(prompt.contains(title), "{title}: {prompt}");
    }
    let brief = fs::read_to_string(folder.join("brief.txt")).unwrap();
    let first = brief.lines().find(|line| !line.trim().is_empty()).unwrap();
    assert!(prompt.contains(first), "{first}: {prompt}");
    // No section takes the place of the others.
    let change = prompt.split("## The change\n").nth(1).unwrap();
    let change = change.split("\n## ").next().unwrap();
    assert!(change.len() <= 3600 && change.contains("bytes left out"), "{change}");
}
