//! A worker that changes what is measured, removes the state, or prints without end.

use std::fs;

use super::{TestLoop, outcomes};
use crate::laptop::status;

/// A loop whose worker changes a copy ends with an error that names the file and both digests.
fn ends_at_a_changed_copy(copy: &str) {
    let test = TestLoop::new(&[&format!("slow-{copy}"), "nothing"]);
    let output = test.laptop.run("loop start loop.toml max_iterations=2");
    let shown = test.laptop.shown("loop start", &output);
    assert_eq!(status(&output), 7, "{shown}");
    let file = format!("{copy}/kernels/k/k.cu` is not what loop");
    assert!(shown.contains(&file), "{shown}");
    let digests = shown.matches("file ").count();
    assert!(digests >= 2 && shown.contains(" then, "), "{shown}");
    let report = test.report();
    assert_eq!(report["kept"], 0, "{report:#}");
    // Nothing goes on from there.
    let output = test.laptop.run("loop resume");
    assert_eq!(status(&output), 7, "{}", test.laptop.shown("loop resume", &output));
}

#[test]
fn a_comment_is_not_kept_because_the_worker_made_the_best_slower() {
    ends_at_a_changed_copy("best");
}

#[test]
fn a_worker_that_changes_the_start_ends_the_loop() {
    ends_at_a_changed_copy("start");
}

#[test]
fn a_loop_whose_state_was_removed_ends_with_an_error() {
    let test = TestLoop::new(&["vanish", "nothing"]);
    let output = test.laptop.run("loop start loop.toml max_iterations=2");
    let shown = test.laptop.shown("loop start", &output);
    assert_eq!(status(&output), 8, "{shown}");
    assert!(shown.contains("state.db` was removed or replaced"), "{shown}");
}

#[test]
fn a_worker_that_prints_without_end_fills_no_disk() {
    let test = TestLoop::new(&["flood"]);
    let report = test.run("max_iterations=1", 0);
    assert_eq!(outcomes(&report), ["unchanged"]);
    let log = fs::read(test.folder().join("run.log")).unwrap();
    assert!(log.len() < 70 << 20, "{} bytes", log.len());
    let text = String::from_utf8_lossy(&log);
    assert!(text.contains(" bytes of output were dropped"), "{}", &text[..300]);
    assert!(text.contains("the end of it\n"));
}
