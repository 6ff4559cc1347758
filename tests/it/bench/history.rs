//! Suites that are compared, and the history of their times.

use std::fs;

use rgpu_model::suite::{SuiteComparison, SuiteVerdict};
use rgpu_model::suite_history::History;

use super::{SUITE, laptop_with, suite};
use crate::documents::printed_keeps;
use crate::laptop::status;

/// A fresh clone has no run folders, and the host still has the jobs of the last one.
#[test]
fn an_id_that_another_folder_used_on_the_host_can_be_used_again() {
    let (laptop, _host) = laptop_with(SUITE);
    for attempts in 1..=3 {
        let run = suite(&laptop, "bench run -t memory:* --run-id pr-7", 0);
        let all: Vec<u32> = run.rows.iter().map(|row| row.attempts).collect();
        assert_eq!(all, vec![attempts; run.rows.len()], "{run:#?}");
        // Attempts that never started leave no run.
        let listed = laptop.run("runs list --json");
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        let runs = listed["runs"].as_array().unwrap();
        assert_eq!(runs.len(), run.rows.len() + 1, "{listed:#}");
        assert!(runs.iter().all(|run| run["state"] == "done"), "{listed:#}");
        fs::remove_dir_all(laptop.project("artifacts")).unwrap();
    }
    laptop.wait_until_quiet();
}

#[test]
fn two_suites_are_compared_and_the_history_is_kept_or_made_again() {
    let (laptop, _host) = laptop_with(SUITE);
    for id in ["one", "two"] {
        suite(&laptop, &format!("bench run --run-id {id}"), 0);
    }
    let line = "bench compare one two --fail-on slower --json";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let comparison: SuiteComparison = serde_json::from_value(value).unwrap();
    assert_eq!(comparison.count(SuiteVerdict::Same), 4, "{comparison:#?}");
    let shown = laptop.show("bench compare latest~1 latest");
    assert!(shown.contains("two against one: 4 SAME"), "cases are passed over: {shown}");
    for none in ["latest~3", "latest~99", "one-001", "nothing"] {
        let shown = laptop.show(&format!("bench show {none}"));
        assert!(shown.contains(&format!("no suite `{none}`; 2 suites have run here")), "{shown}");
        assert!(shown.contains("`latest~1`") && shown.ends_with("status 2\n"), "{shown}");
    }
    for same in ["two two", "two latest", "two artifacts/runs/two"] {
        let shown = laptop.show(&format!("bench compare {same}"));
        assert!(shown.contains("are the same suite, `two`"), "{shown}");
        assert!(shown.ends_with("status 2\n"), "{shown}");
    }
    let shown = laptop.show("report two");
    assert!(shown.contains("this run is a suite") && shown.contains("rgpu bench show"), "{shown}");
    for format in ["", "--format json"] {
        let shown = laptop.show(&format!("bench history memory:* --out history.txt {format}"));
        assert!(shown.contains("`--out` is for `--format html`"), "{shown}");
        assert!(shown.ends_with("status 2\n") && !laptop.project("history.txt").exists());
    }
    for line in ["bench history memory:* --format html", "bench show --format markdown"] {
        let shown = laptop.show(&format!("{line} --json"));
        assert!(shown.contains("ask for two formats"), "{shown}");
        assert!(shown.ends_with("status 2\n"), "{shown}");
    }
    let notes = laptop.project("notes.md");
    fs::write(&notes, "# mine\n").unwrap();
    let page = "bench history memory:* --format html --out notes.md";
    let shown = laptop.show(page);
    assert!(shown.contains("not a report of this kind"), "{shown}");
    assert!(shown.ends_with("status 2\n"), "{shown}");
    assert_eq!(fs::read_to_string(&notes).unwrap(), "# mine\n");
    for again in ["--force", ""] {
        let shown = laptop.show(&format!("{page} {again}"));
        assert!(shown.ends_with("status 0\n"), "{shown}");
    }
    let long = "n".repeat(65);
    let shown = laptop.show(&format!("bench run --run-id {long}"));
    assert!(shown.contains("at most 64 characters"), "{shown}");
    assert!(!laptop.project("artifacts/runs").join(long).exists());
    let two = laptop.project("artifacts/runs/two/suite.json");
    let slower =
        fs::read_to_string(&two).unwrap().replace("\"driver\": \"580\"", "\"driver\": \"590\"");
    fs::write(&two, slower).unwrap();
    let shown = laptop.show("bench compare one two --fail-on incomparable");
    assert!(shown.contains("INCOMPARABLE") && shown.ends_with("status 1\n"), "{shown}");
    let points = || {
        let output = laptop.run("bench history memory:transpose --json");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        printed_keeps("history", &value);
        let history: History = serde_json::from_value(value).unwrap();
        history.series.iter().map(|series| series.points.len()).collect::<Vec<_>>()
    };
    assert_eq!(points(), [2, 2]);
    let unknown = laptop.show("bench history memory:vecad");
    assert!(unknown.contains("no suite has a time of `memory:vecad`"), "{unknown}");
    assert!(unknown.contains("did you mean `memory:vecadd`"), "{unknown}");
    // The case is there, and only its times are not of this GPU.
    let other = laptop.show("bench history memory:vecadd --gpu b200");
    assert!(other.contains("with `--gpu b200`") && !other.contains("did you mean"), "{other}");
    fs::remove_dir_all(laptop.project(".rgpu")).unwrap();
    let gone = laptop.run("bench history memory:transpose");
    assert_eq!(status(&gone), 2, "{}", laptop.shown("bench history", &gone));
    let reindexed = laptop.run("runs reindex --json");
    let reindexed: serde_json::Value = serde_json::from_slice(&reindexed.stdout).unwrap();
    printed_keeps("reindexed", &reindexed);
    assert_eq!((&reindexed["suites"], &reindexed["times"]), (&2.into(), &8.into()));
    // The edited suite has another driver, so another key.
    assert_eq!(points(), [1, 1, 1, 1]);
    let page = laptop.run("bench history memory:* --format html");
    assert_eq!(status(&page), 0, "{}", laptop.shown("bench history", &page));
    let page = fs::read_to_string(laptop.project("artifacts/history.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("memory:vecadd[n=4000]"));
    // A host that has lost its GPU does not pass a gate.
    let mut lost: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&two).unwrap()).unwrap();
    for row in lost["rows"].as_array_mut().unwrap() {
        row["times"] = serde_json::json!([]);
    }
    fs::write(&two, lost.to_string()).unwrap();
    for (gate, code) in [("", 0), ("--fail-on slower", 5)] {
        let shown = laptop.show(&format!("bench compare one two {gate}"));
        assert!(shown.contains("no time of `two` can be compared"), "{shown}");
        assert!(shown.ends_with(&format!("status {code}\n")), "{shown}");
    }
    laptop.wait_until_quiet();
}
