//! `--hang`: a program of two ranks that hangs is stopped, its ranks and their stacks are named,
//! and what was measured is kept.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rgpu_model::Profile;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

fn script(path: PathBuf, text: &str) -> String {
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// A host whose py-spy knows where rank 0 is, and has no right to look at the others.
fn host() -> Laptop {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let stack = "Thread 7 (active): \\\"MainThread\\\"\\n    wait (streams.py:225)\\n    \
                 all_reduce (distributed_c10d.py:2809)\\n";
    let text = format!(
        "#!/bin/sh\nfor pid; do :; done\nif tr '\\0' '\\n' <\"/proc/$pid/environ\" | grep -q '^RANK=0$'\n\
         then printf \"{stack}\"; else echo 'Permission Denied' >&2; exit 1; fi\n"
    );
    script(laptop.path("h200/bin/py-spy"), &text);
    script(laptop.path("h200/bin/gdb"), "#!/bin/sh\necho 'ptrace: not permitted' >&2; exit 1\n");
    laptop
}

/// A launcher with two ranks, each with a child, that print once and then hang.
fn hanging(laptop: &Laptop) -> String {
    let rank = "sh -c 'echo rank $RANK; while :; do sleep 0.1; done'";
    let text = format!(
        "#!/bin/sh\ntrap 'echo stopped; exit 130' INT\nRANK=0 {rank} &\nRANK=1 {rank} &\n\
         while :; do sleep 0.1; done\n"
    );
    script(laptop.path("vecadd"), &text)
}

fn has_both_ranks(text: &str) {
    assert!(text.contains("no output for 1 s"), "{text}");
    assert!(text.contains("rank 0 (process "), "{text}");
    assert!(text.contains("all_reduce (distributed_c10d.py:2809)"), "{text}");
    assert!(text.contains("rank 1 (process "), "{text}");
}

#[test]
fn a_program_that_hangs_is_stopped_and_its_ranks_are_named() {
    let laptop = host();
    let program = hanging(&laptop);
    let line = format!("exec --hang 1s --remote h200 --json -- {program}");
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!(status(&output), 124, "{shown}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&shown);
    assert_eq!((&result["hung"], &result["timed_out"]), (&true.into(), &false.into()));
    assert!(shown.contains("hung and was stopped: it printed nothing for "), "{shown}");
    let stacks = fs::read_to_string(laptop.latest().join("raw/hang.txt")).unwrap();
    has_both_ranks(&stacks);
    assert_eq!(stacks.matches("rank 1 (process ").count(), 1, "its child is no rank: {stacks}");
    assert!(stacks.contains("no stack by py-spy: Permission Denied"), "{stacks}");
    assert!(stacks.contains("no stack by gdb: ptrace: not permitted"), "{stacks}");
    assert!(stacks.contains("kernel's syscall"), "{stacks}");
    let log = fs::read_to_string(laptop.latest().join("log/exec.stdout")).unwrap();
    assert!(log.ends_with("stopped\n"), "it was stopped as by Ctrl-C: {log}");
    laptop.wait_until_quiet();
}

#[test]
fn a_profile_keeps_what_was_measured_until_the_program_hung() {
    let laptop = host();
    let program = hanging(&laptop);
    let line = format!("profile --mode nsys --hang 1s --remote h200 -- {program}");
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!(status(&output), 6, "{shown}");
    assert!(shown.contains("the program hung and was stopped"), "{shown}");
    has_both_ranks(&String::from_utf8_lossy(&output.stderr));
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    assert_eq!(profile.rung, "nsys.full", "{:#?}", profile.ladder);
    let tried = profile.ladder.iter().filter(|record| record.step == "profile").count();
    assert_eq!(tried, 1, "no other rung was tried: {:#?}", profile.ladder);
    assert!(profile.timeline.is_some() || !profile.launches.is_empty(), "{shown}");
    assert!(profile.warnings.iter().any(|warning| warning.code == "hung"), "{shown}");
    assert!(profile.artifacts.iter().any(|file| file.path == "raw/hang.txt"), "{shown}");
    // `exec` has a status of its own for it.
    let line = line.replace("profile", "exec");
    let output = laptop.run(&line);
    assert_eq!(status(&output), 124, "{}", laptop.shown(&line, &output));
    laptop.wait_until_quiet();
}

#[test]
fn a_program_that_prints_is_not_stopped() {
    let laptop = host();
    let text = "#!/bin/sh\nfor i in 1 2 3 4 5 6; do sleep 0.4; echo $i; done\n";
    let program = script(laptop.path("vecadd"), text);
    let line = format!("exec --hang 1s --remote h200 -- {program}");
    let output = laptop.run(&line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(&line, &output));
    assert!(!laptop.latest().join("raw/hang.txt").exists());
    for line in ["exec --hang 0s -- true", "profile --hang 5s --kernel vecadd"] {
        assert_eq!(status(&laptop.run(line)), 2, "{line}");
    }
}
