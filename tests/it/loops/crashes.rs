//! A loop that is killed at any point and resumed ends as one that was not.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use super::{TestLoop, outcomes};
use crate::laptop::status;

/// Kills a loop at a point and resumes it.
fn kill_and_resume(points: &[&str]) {
    for point in points {
        let test = TestLoop::new(&["time 1.5", "time 0.5"]);
        let killed = test.start("max_iterations=2", Some(point)).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&killed.stderr);
        assert_eq!(killed.status.signal(), Some(9), "{point}: {said}");
        if *point == "loop in stopped" {
            assert_eq!(status(&test.laptop.run("loop resume")), 2, "{point}");
        } else {
            // It is not begun anew by mistake.
            assert_eq!(status(&test.laptop.run("loop start loop.toml")), 2, "{point}");
            let output = test.laptop.run("loop resume");
            let shown = test.laptop.shown("loop resume", &output);
            assert_eq!(status(&output), 0, "{point}: {shown}");
        }
        let report = test.report();
        assert_eq!(outcomes(&report), ["slower", "kept"], "{point}");
        assert_eq!(report["final_comparison"]["speedup"], 2.0, "{point}");
        assert_eq!(report["best"]["iteration"], 2, "{point}");
        assert_eq!(test.marker(), "// rgpu-fake: time 0.5", "{point}");
        test.laptop.wait_until_quiet();
    }
}

#[test]
fn killed_at_one_point_of_each_phase() {
    kill_and_resume(&["loop in worker", "loop in compare", "loop in apply"]);
}

#[test]
fn killed_at_every_point_around_its_start_and_its_workers() {
    kill_and_resume(&[
        "loop added",
        "loop child of init",
        "loop before worker",
        "loop in worker",
        "loop child of worker",
        "loop worker ended",
        "loop before verify",
        "loop in verify",
        "loop child of verify",
    ]);
}

#[test]
fn killed_at_every_point_around_its_measurements() {
    kill_and_resume(&[
        "loop before compare",
        "loop in compare",
        "loop child of compare",
        "loop before confirm",
        "loop in confirm",
        "loop child of confirm",
        "loop before profile",
        "loop in profile",
        "loop before reviewer",
        "loop in reviewer",
    ]);
}

#[test]
fn killed_at_every_point_while_it_keeps_and_restores() {
    kill_and_resume(&[
        "loop before apply",
        "loop in apply",
        "loop restoring",
        "loop restored",
        "loop kept",
        "loop before final",
        "loop in final",
        "loop child of final",
        "loop before stopped",
        "loop in stopped",
    ]);
}

#[test]
fn files_of_the_best_that_were_changed_are_not_gone_on_with() {
    let test = TestLoop::new(&["time 0.5", "time 0.4"]);
    test.start("max_iterations=2", Some("loop in compare")).wait().unwrap();
    let best = test.folder().join("best/kernels/k/k.cu");
    fs::write(&best, "// rgpu-fake: time 0.01\n").unwrap();
    let output = test.laptop.run("loop resume");
    assert_eq!(status(&output), 7, "{}", test.laptop.shown("loop resume", &output));
    // A fresh loop starts with the project as it is, which has the first proposal.
    let again = test.run("--fresh max_iterations=2", 0);
    assert_eq!(outcomes(&again), ["unchanged", "kept"]);
}

#[test]
fn a_candidate_that_changes_after_its_measurement_ends_the_loop() {
    let test = TestLoop::new(&["time 0.5"]);
    test.start("max_iterations=1", Some("loop in apply")).wait().unwrap();
    let candidate = test.folder().join("candidate/kernels/k/k.cu");
    fs::remove_file(&candidate).unwrap();
    fs::write(&candidate, "// rgpu-fake: time 0.01\n").unwrap();
    let output = test.laptop.run("loop resume");
    let shown = test.laptop.shown("loop resume", &output);
    assert_eq!(status(&output), 7, "{shown}");
    assert!(shown.contains("candidate` is not what loop"), "{shown}");
    assert_eq!(test.report()["kept"], 0);
}

#[test]
fn a_database_of_a_newer_version_is_refused_and_not_changed() {
    let test = TestLoop::new(&["nothing"]);
    test.run("max_iterations=1", 0);
    let database = test.laptop.project(".rgpu/state.db");
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.pragma_update(None, "user_version", 999).unwrap();
    drop(connection);
    for line in ["loop start loop.toml", "loop status", "loop resume"] {
        let output = test.laptop.run(line);
        let shown = test.laptop.shown(line, &output);
        assert_eq!(status(&output), 3, "{shown}");
        assert!(shown.contains("has version 999"), "{shown}");
    }
}
