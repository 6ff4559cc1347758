//! Cases that fail, are cut or are left, and the attempts after them.

use std::fs;

use rgpu_model::suite::{RowState, SuiteRun, SuiteState, SuiteVerdict};
use rustix::process::{Pid, Signal, kill_process};

use super::{SUITE, laptop_with, suite};
use crate::documents::printed_keeps;
use crate::laptop::status;

#[test]
fn a_case_that_fails_does_not_end_the_suite_and_is_run_again_by_its_reason() {
    let (laptop, host) = laptop_with(SUITE);
    host.mischief("rgpu-runner wrong-result\n");
    let run = suite(&laptop, "bench run --run-id night", 6);
    assert!(run.rows.iter().all(|row| row.state == RowState::Failed), "{run:#?}");
    assert!(!run.clean && run.state == SuiteState::Done);
    let row = &run.rows[0];
    assert_eq!(row.reason.as_deref(), Some("wrong_result"));
    let again = "rgpu bench run -t 'memory:vecadd[n=1000]' --remote h200";
    assert_eq!(row.again, again);
    let log = fs::read_to_string(laptop.project(row.log.as_ref().unwrap())).unwrap();
    assert!(log.contains("error: "), "{log}");
    let listed = laptop.run("runs list --failed --reason wrong");
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("wrong_result") && listed.contains("night-001"), "{listed}");
    let none = laptop.run("runs list --failed --reason nvtx");
    assert!(none.stdout.is_empty());
    let other = laptop.run("bench run --failed --reason nvtx");
    let shown = laptop.shown("bench run --failed", &other);
    assert_eq!(status(&other), 2, "{shown}");
    assert!(shown.contains("wrong_result (3)"), "{shown}");
    host.mischief("");
    let later = suite(&laptop, "bench run -t memory:transpose --run-id later", 0);
    assert!(later.clean);
    let none = laptop.show("bench resume later");
    assert!(none.contains("`later` has ended\n"), "{none}");
    // The hint names the suite, which is not the latest.
    let ended = laptop.show("bench resume night");
    assert!(ended.contains("`rgpu bench run --failed night` runs failed ones again"), "{ended}");
    let run = suite(&laptop, "bench run --failed night --reason wrong", 0);
    assert!(run.clean && run.id == "night");
    assert!(run.rows.iter().all(|row| row.attempts == 2));
    let file = laptop.project("artifacts/runs/night/suite.json");
    let before = fs::read(&file).unwrap();
    fs::remove_dir_all(laptop.project("artifacts/runs/later")).unwrap();
    for reason in ["", " --reason wrong"] {
        let shown = laptop.show(&format!("bench run --failed{reason}"));
        assert!(shown.contains("nothing of `night` failed: nothing was run"), "{shown}");
        assert!(shown.ends_with("status 0\n"), "{shown}");
    }
    assert_eq!(fs::read(&file).unwrap(), before);
    let ids: Vec<_> = run.rows.iter().filter_map(|row| row.run.as_deref()).collect();
    assert!(ids[0].starts_with("night-001-") && ids[0].ends_with("-2"), "{ids:?}");
    laptop.wait_until_quiet();
}

#[test]
fn ctrl_c_keeps_what_is_done_and_resume_runs_the_rest() {
    let (laptop, host) = laptop_with(&SUITE.replace("mode = \"bench\"\n", ""));
    // The pair is last and uses ncu on both sides.
    host.mischief("ncu gate --against\nrgpu-runner gate --against\n");
    let child = laptop.start("bench run --run-id night --update-expectations --json");
    host.wait_for_gate("rgpu-runner");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = laptop.shown("bench run", &output);
    assert_eq!(status(&output), 130, "{shown}");
    assert!(
        shown.contains("2 of 3 cases are kept; `rgpu bench resume night` continues it"),
        "{shown}"
    );
    laptop.wait_until_quiet();
    host.mischief("");
    let file = fs::read(laptop.project("artifacts/runs/night/suite.json")).unwrap();
    let interrupted: SuiteRun = serde_json::from_slice(&file).unwrap();
    assert_eq!(interrupted.updates.len(), 2, "{interrupted:#?}");
    let run = suite(&laptop, "bench resume", 0);
    assert!(run.clean);
    // The updates that the interrupted command recorded are still there.
    assert_eq!(run.updates, interrupted.updates);
    let attempts: Vec<u32> = run.rows.iter().map(|row| row.attempts).collect();
    assert_eq!(attempts, [1, 1, 2]);
    laptop.wait_until_quiet();
}

#[test]
fn a_budget_leaves_cases_for_resume_and_repeats_end_when_nothing_fails() {
    let (laptop, _host) = laptop_with(SUITE);
    let run = suite(&laptop, "bench run --run-id night --budget 10s", 0);
    // A case that never ran is expected to take longer.
    assert_eq!(run.count(RowState::NoBudget), 3, "{run:#?}");
    assert_eq!(run.state, SuiteState::Open);
    let run = suite(&laptop, "bench resume night --budget 30m", 0);
    assert!(run.clean);
    let run = suite(&laptop, "bench run -t memory:vecadd --until-clean 3", 0);
    assert!(run.clean && run.rows.iter().all(|row| row.attempts == 1));
    laptop.wait_until_quiet();
}

#[test]
fn a_suite_whose_cases_have_ended_keeps_its_verdicts_when_it_is_resumed() {
    let (laptop, _host) = laptop_with(SUITE);
    let run = suite(&laptop, "bench run --run-id night", 0);
    let verdicts = |run: &SuiteRun| -> Vec<SuiteVerdict> {
        run.times().map(|(_, time)| time.against.as_ref().unwrap().verdict).collect()
    };
    assert_eq!(verdicts(&run), [SuiteVerdict::New; 4]);
    let file = laptop.project("artifacts/runs/night/suite.json");
    let before = fs::read(&file).unwrap();
    // Expectations can still be taken from it, and say something else about its times.
    let line = "bench resume night --update-expectations --accept dirty,few-sessions";
    // A refusal is in the document, and is told even quietly.
    let quiet = "bench resume night --update-expectations --accept dirty -q --json";
    let output = laptop.run(quiet);
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.contains("0 of 4 expected times written"), "{notes}");
    assert!(notes.contains("`--accept few-sessions` writes the others too"), "{notes}");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    printed_keeps("suite", &value);
    let refused: SuiteRun = serde_json::from_value(value).unwrap();
    assert_eq!(refused.updates.len(), 4);
    for update in &refused.updates {
        assert_eq!((update.refused.as_deref(), update.written_ns), (Some("few-sessions"), None));
        assert!(update.file.starts_with("expectations/") && !update.why.is_empty(), "{update:?}");
    }
    let shown = laptop.show(line);
    assert!(shown.contains("4 of 4 expected times written"), "{shown}");
    assert!(laptop.project("expectations").is_dir());
    let shown = laptop.show("bench resume night");
    let told = "nothing to resume: every case of `night` has ended";
    assert!(shown.contains(told) && shown.ends_with("status 0\n"), "{shown}");
    assert_eq!(verdicts(&suite(&laptop, "bench resume night --fail-on slower", 0)), verdicts(&run));
    assert_eq!(fs::read(&file).unwrap(), before);
    let later = suite(&laptop, "bench run --run-id later", 0);
    assert_ne!(verdicts(&later), verdicts(&run));
    laptop.wait_until_quiet();
}

#[test]
fn what_cases_lack_on_their_host_fails_each_of_them_and_does_not_end_the_suite() {
    let (laptop, host) = laptop_with(SUITE);
    host.mischief("nvidia-smi no-permission\n");
    let run = suite(&laptop, "bench run --run-id night --lock-clocks 1500", 4);
    assert_eq!(run.state, SuiteState::Done);
    let reasons: Vec<_> = run.rows.iter().map(|row| row.reason.as_deref()).collect();
    assert_eq!(reasons, [Some("clocks_refused"); 3], "{run:#?}");
    laptop.wait_until_quiet();
}
