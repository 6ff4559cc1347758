//! Programs that never end by themselves: a part of their run is measured, then they are stopped.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rgpu_model::Profile;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

/// Runs `rgpu`, and returns its profile once it ended with 0.
fn measured(laptop: &Laptop, line: &str) -> Profile {
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    let texts = String::from_utf8_lossy(&fs::read(laptop.path("server.log")).unwrap()).into_owned();
    assert_eq!(texts, "start\nchild\nstopped\n", "{shown}");
    fs::remove_file(laptop.path("server.log")).unwrap();
    laptop.wait_until_quiet();
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    assert!(profile.warnings.is_empty(), "{:?}", profile.warnings);
    profile
}

/// A server with a child, neither of which ends by itself. On Ctrl-C it says so in a file.
fn server(laptop: &Laptop) -> String {
    let (path, log) = (laptop.path("vecadd"), laptop.path("server.log"));
    let log = log.display();
    let text = format!(
        "#!/bin/sh\necho start >>{log}\ntrap 'echo stopped >>{log}; exit 130' INT\n\
         sh -c 'echo child >>{log}; while :; do sleep 0.1; done' &\n\
         while :; do sleep 0.1; done\n"
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn nsys_measures_a_part_of_a_server_and_stops_it() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let server = server(&laptop);
    let window = "--mode nsys --after 1s --for 1s --remote h200";
    let profile = measured(&laptop, &format!("profile {window} -- {server}"));
    assert_eq!(profile.rung, "nsys.full");
    let record = profile.ladder.iter().find(|record| record.rung == "nsys.full").unwrap();
    for flag in ["--delay=1", "--duration=1", "--kill=2"] {
        assert!(record.argv.iter().any(|word| word == flag), "{flag}: {:?}", record.argv);
    }
    assert_eq!((record.exit, record.ok, record.code.as_str()), (Some(130), true, ""));
    assert!(record.seconds >= 2.0, "{}", record.seconds);
    // A program that `exec` profiles ends well, too.
    measured(&laptop, &format!("exec {window} -- {server}"));
}

#[test]
fn a_server_under_ncu_is_stopped_without_ncu() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let server = server(&laptop);
    let profile =
        measured(&laptop, &format!("profile --mode ncu --for 1s --remote h200 -- {server}"));
    assert_eq!(profile.rung, "ncu.asked", "{:#?}", profile.ladder);
    assert!(profile.launches.iter().any(|launch| !launch.metrics.is_empty()));
}

#[test]
fn a_window_that_the_tool_does_not_have_is_a_usage_error() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    for (flags, words) in [
        ("--mode ncu --after 1s -- true", "`--after` has no effect in mode `ncu`"),
        ("--mode nsys --for range -- true", "add `--capture-range`"),
        ("--mode ncu --for range -- true", "only the modes `nsys` and `torch` end with a range"),
        ("--mode nsys --capture-range A --after 3s -- true", "leave one of them out"),
        ("--mode torch --for range -- true", "add `--capture-range`"),
        ("--mode torch --capture-range A --after 3s -- true", "leave one of them out"),
        ("--mode nsys --for 300ms -- true", "whole seconds"),
        ("--mode nsys --for 3s --kernel vecadd", "belongs to programs"),
    ] {
        let line = format!("profile --remote h200 {flags}");
        let output = laptop.run(&line);
        let shown = laptop.shown(&line, &output);
        assert!(status(&output) == 2 && shown.contains(words), "{shown}");
    }
    let line = "profile --remote h200 --dry-run --mode nsys --capture-range A --for range -- true";
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert!(shown.contains("--capture-range-end=stop-shutdown"), "{shown}");
    assert!(shown.contains("--kill=2"), "{shown}");
}
