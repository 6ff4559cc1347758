//! `rgpu bench`: suites on a played GPU host.

mod attempts;
mod clocks;
mod expectations;
mod history;
mod pages;
mod parallel;
mod suites;
mod sweeps;
mod targets;

use rgpu_model::suite::{RowState, SuiteRun};

use crate::documents::printed_keeps;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

const SUITE: &str = r#"
[defaults]
mode = "bench"
remote = "h200"

[[target]]
name = "memory:vecadd"
kernel = "vecadd"
[target.matrix]
sizes.n = [1000, 4000]

[[target]]
name = "memory:transpose"
suites = ["pairs"]
baseline = "transpose-conflicts"
optimised = "transpose-padded"
"#;

/// A laptop with a played host and this bench.toml.
fn laptop_with(text: &str) -> (Laptop, FakeHost) {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    laptop.write("bench.toml", text);
    (laptop, host)
}

/// The suite that a command prints with `--json`.
fn suite(laptop: &Laptop, line: &str, expected: i32) -> SuiteRun {
    let output = laptop.run(&format!("{line} --json"));
    assert_eq!(status(&output), expected, "{}", laptop.shown(line, &output));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    printed_keeps("suite", &value);
    let run: SuiteRun = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(serde_json::to_value(&run).unwrap(), value);
    run
}

fn states(run: &SuiteRun) -> Vec<(&str, RowState)> {
    run.rows.iter().map(|row| (row.case.as_str(), row.state)).collect()
}
