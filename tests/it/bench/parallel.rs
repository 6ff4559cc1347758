//! Cases that are spread over the GPUs of a host.

use std::fs;

use rgpu_model::suite::SuiteRun;

use super::{SUITE, laptop_with, suite};
use crate::laptop::{Laptop, status, wait_for};

/// The GPU that a run's job locked; `None` before.
fn locked_gpu(laptop: &Laptop, run: &str) -> Option<String> {
    let path = laptop.project("artifacts/runs").join(run).join("events.jsonl");
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.contains("gpu_locked"))?;
    let (_, rest) = line.split_once("\"uuid\":\"")?;
    Some(rest.split('"').next().unwrap_or_default().to_owned())
}

#[test]
fn cases_are_spread_over_the_gpus_of_one_host() {
    let (laptop, host) = laptop_with(SUITE);
    host.gpus(2);
    host.mischief("rgpu-runner gate\n");
    // There is no third GPU, so no third case begins.
    let child = laptop.start("bench run --parallel 3 --run-id night --json");
    let first = ["night-001-memory-vecadd-n-1000", "night-002-memory-vecadd-n-4000"];
    let [one, other] = first.map(|run| wait_for("a GPU", || locked_gpu(&laptop, run)));
    assert_ne!(one, other);
    assert_eq!(locked_gpu(&laptop, "night-003-memory-transpose"), None);
    host.open_gate("rgpu-runner");
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 0, "{}", laptop.shown("bench run", &output));
    let run: SuiteRun = serde_json::from_slice(&output.stdout).unwrap();
    assert!(run.clean && run.options.parallel == Some(3), "{run:#?}");
    assert!(run.rows.iter().all(|row| row.host_number.is_none()), "{run:#?}");
    laptop.wait_until_quiet();
}

#[test]
fn one_gpu_takes_all_cases_and_is_not_spread_over_if_a_case_needs_it() {
    let (laptop, _host) = laptop_with(SUITE);
    let run = suite(&laptop, "bench run --parallel 4 --run-id night", 0);
    assert!(run.clean, "{run:#?}");
    let shown = laptop.show("bench run --parallel 2 --gpu 0");
    assert!(shown.contains("`h200` is one machine, and `memory:vecadd[n=1000]` needs"), "{shown}");
    assert!(shown.ends_with("status 2\n"), "{shown}");
    laptop.wait_until_quiet();
}
