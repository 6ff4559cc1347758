//! Clocks that are locked for a case.

use std::fs;

use rgpu_model::suite::{SuiteComparison, SuiteVerdict};
use rustix::process::{Pid, Signal, kill_process};

use super::{SUITE, laptop_with, suite};
use crate::laptop::{Laptop, status};

/// The changes of clocks on the played host, and what came between.
fn clock_changes(laptop: &Laptop) -> Vec<String> {
    let text = fs::read_to_string(laptop.path("h200/clocks")).unwrap_or_default();
    text.lines().map(|line| line.split_whitespace().next().unwrap_or_default().into()).collect()
}

const LOCK: &str = "lock-gpu-clocks=1500,1500";
const RELEASE: &str = "reset-gpu-clocks";

#[test]
fn clocks_are_locked_only_if_asked_released_after_each_case_and_part_of_the_key() {
    let (laptop, host) = laptop_with(SUITE);
    suite(&laptop, "bench run -t memory:vecadd --run-id as_found", 0);
    assert_eq!(clock_changes(&laptop), [""; 0]);
    let run = suite(&laptop, "bench run --run-id locked --lock-clocks 1500", 0);
    assert_eq!(run.options.lock_clocks_mhz, Some(1500));
    assert!(run.times().all(|(_, time)| time.key.clocks == "locked 1500 MHz"));
    for row in &run.rows[..2] {
        let own = laptop.project("artifacts/runs").join(row.run.as_ref().unwrap());
        let profile = fs::read(own.join("profile.json")).unwrap();
        let profile: serde_json::Value = serde_json::from_slice(&profile).unwrap();
        assert_eq!(profile["run"]["locked_sm_mhz"], 1500);
    }
    assert_eq!(clock_changes(&laptop), [LOCK, RELEASE, LOCK, RELEASE, LOCK, RELEASE]);
    for (name, words) in
        [("as_found", "clocks not locked"), ("locked", "clocks locked at 1500 MHz")]
    {
        let folder = laptop.project("artifacts/runs").join(name);
        for file in ["report.md", "index.html"] {
            let text = fs::read_to_string(folder.join(file)).unwrap().replace('\u{a0}', " ");
            assert!(text.contains(words), "{file}: {text}");
        }
    }
    assert!(laptop.show("bench show locked").contains("clocks locked at 1500 MHz"));
    // Times under another policy are not compared.
    let output = laptop.run("bench compare as_found locked --json");
    let comparison: SuiteComparison = serde_json::from_slice(&output.stdout).unwrap();
    let judged = &comparison.rows[0].judgement;
    assert_eq!(judged.verdict, SuiteVerdict::Incomparable);
    assert_eq!(judged.why, "another clock policy (`as_found`, now `locked 1500 MHz`)");
    // A case that fails releases them too, and so does Ctrl-C.
    fs::remove_file(laptop.path("h200/clocks")).unwrap();
    host.mischief("rgpu-runner wrong-result\n");
    suite(&laptop, "bench run -t memory:vecadd[n=1000] --lock-clocks 1500", 6);
    assert_eq!(clock_changes(&laptop), [LOCK, RELEASE]);
    host.mischief("rgpu-runner gate\n");
    let line = "bench run -t memory:vecadd --run-id cut --lock-clocks 1500";
    let child = laptop.start(line);
    host.wait_for_gate("rgpu-runner");
    assert_eq!(clock_changes(&laptop).len(), 3);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", laptop.shown(line, &output));
    assert_eq!(clock_changes(&laptop), [LOCK, RELEASE, LOCK, RELEASE]);
    laptop.wait_until_quiet();
}

#[test]
fn clocks_that_this_user_may_not_lock_are_refused_in_one_line() {
    let (laptop, host) = laptop_with(SUITE);
    host.mischief("nvidia-smi no-permission\n");
    let run = suite(&laptop, "bench run -t memory:vecadd[n=1000] --lock-clocks 1500", 4);
    let row = &run.rows[0];
    assert_eq!(row.reason.as_deref(), Some("clocks_refused"));
    let failure = row.failure.as_deref().unwrap();
    assert_eq!(failure.lines().count(), 1, "{failure}");
    assert!(failure.contains("does not let this user lock the GPU's clocks"), "{failure}");
    let log = fs::read_to_string(laptop.project(row.log.as_ref().unwrap())).unwrap();
    assert!(log.contains("does not have permission to change clocks for GPU"), "{log}");
    assert!(row.times.is_empty());
    assert_eq!(clock_changes(&laptop), [""; 0]);
    let shared = laptop.show("bench run --lock-clocks 1500 --share-gpu");
    assert!(shared.contains("cannot be used with"), "{shared}");
    laptop.wait_until_quiet();
}

#[test]
fn clocks_stay_as_they_are_where_others_use_the_gpu() {
    let (laptop, host) = laptop_with(SUITE);
    host.mischief("nvidia-smi foreign-process\n");
    let run = suite(&laptop, "bench run -t memory:vecadd[n=1000] --lock-clocks 1500", 4);
    let row = &run.rows[0];
    let failure = row.failure.as_deref().unwrap();
    assert!(failure.contains("other processes use it") && failure.contains("python3"), "{failure}");
    assert!(row.again.contains("--lock-clocks 1500"), "{}", row.again);
    assert_eq!(clock_changes(&laptop), [""; 0]);
    laptop.wait_until_quiet();
}
