//! Sweeps over the sizes and macros of one kernel.

use std::fs;

use rgpu_model::suite::SuiteRun;

use super::{SUITE, laptop_with};
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

#[test]
fn a_sweep_is_a_suite_of_its_own_with_a_plot() {
    let (laptop, _host) = laptop_with(SUITE);
    let line = "profile --kernel vecadd --sweep n=1000..4000:x2 --mode ncu --remote h200 \
                --plot sm__throughput --plot time --run-id grow";
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    assert!(shown.contains("the sweep has 3 cases\n"), "{shown}");
    assert!(
        shown.contains("sm__throughput.avg.pct_of_peak_sustained_elapsed against n"),
        "{shown}"
    );
    let page = fs::read_to_string(laptop.project("artifacts/runs/grow/plot.html")).unwrap();
    assert!(page.contains("time in ns") && page.matches("<circle").count() == 6, "{page}");
    let resumed = laptop.run("bench resume grow");
    let shown = laptop.shown("bench resume grow", &resumed);
    assert!(status(&resumed) == 2 && shown.contains("n=1000..4000:x2"), "{shown}");
    for wrong in ["--sweep n=4..1", "--sweep n", "--sweep n=1 --dry-run"] {
        let output = laptop.run(&format!("profile --kernel vecadd --mode bench {wrong}"));
        assert_eq!(status(&output), 2, "{}", laptop.shown(wrong, &output));
    }
    laptop.wait_until_quiet();
}

#[test]
fn a_sweep_has_the_limit_of_a_suite_and_tells_its_cases_before_they_run() {
    let (laptop, host) = laptop_with(SUITE);
    let line = "profile --kernel vecadd --mode bench --remote h200 --run-id wide";
    let shown = laptop.show(&format!("{line} --sweep n=1..67 --sweep TILE=1,2,4"));
    for words in [
        "target `sweep:vecadd` has 201 cases, above the limit of 200",
        "its axes: 67 n × 3 TILE",
        "help: leave values out, or sweep them in several commands",
    ] {
        assert!(shown.contains(words), "{shown}");
    }
    assert!(shown.ends_with("status 3\n"), "{shown}");
    assert!(!laptop.project("artifacts/runs/wide").exists());
    // The cases fail here, and are counted before.
    host.mischief("rgpu-runner wrong-result\n");
    let output = laptop.run(&format!("{line} --sweep n=1000,2000 --sweep TILE=1,2"));
    let notes = String::from_utf8_lossy(&output.stderr);
    let told = notes.find("the sweep has 4 cases: 2 n × 2 TILE\n");
    let first = notes.find("sweep:vecadd[n=1000,TILE=1]");
    assert!(told.is_some() && told < first, "{notes}");
    assert_eq!(status(&output), 6, "{notes}");
    laptop.wait_until_quiet();
}

#[test]
fn a_plot_without_a_number_is_an_error_and_what_was_measured_is_kept() {
    let (laptop, _host) = laptop_with(SUITE);
    let line = "profile --kernel vecadd --remote h200 --sweep n=1000,2000";
    let shown =
        laptop.show(&format!("{line} --mode ncu --plot sm_throughput --plot time --run-id near"));
    let told =
        "error: no case has a number for `--plot sm_throughput`, so it is not drawn: none of";
    assert!(shown.contains(told) && shown.contains("did you mean `sm__throughput`"), "{shown}");
    assert!(shown.contains("sweep:vecadd[n=2000]") && shown.ends_with("status 2\n"), "{shown}");
    let folder = laptop.project("artifacts/runs/near");
    let run: SuiteRun =
        serde_json::from_slice(&fs::read(folder.join("suite.json")).unwrap()).unwrap();
    assert!(run.clean && run.rows.iter().all(|row| !row.times.is_empty()));
    let page = fs::read_to_string(folder.join("plot.html")).unwrap();
    assert!(page.contains("time in ns") && page.matches("<circle").count() == 2, "{page}");
    // No metric at all, and stdout has one document.
    let output = laptop.run(&format!("{line} --mode bench --plot sm__throughput --json"));
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.contains("the cases have no metrics of launches"), "{notes}");
    assert_eq!(status(&output), 5, "{notes}");
    assert!(serde_json::from_slice::<SuiteRun>(&output.stdout).is_ok());
    // An axis that cannot be drawn is refused before anything runs.
    let line = "profile --kernel vecadd --mode bench --sweep T=a,b --sweep n=1000 --plot time";
    let shown = laptop.show(&format!("{line} --run-id words"));
    assert!(shown.contains("`T` has no numbers") && shown.ends_with("status 2\n"), "{shown}");
    assert!(!laptop.project("artifacts/runs/words").exists());
    laptop.wait_until_quiet();
}

#[test]
fn a_sweep_needs_no_targets_of_the_project() {
    let laptop = Laptop::new();
    let _host = FakeHost::new(&laptop);
    let line = "profile --kernel vecadd --sweep n=1000,2000 --mode bench --remote h200 --json";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let suite: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(suite["rows"].as_array().unwrap().len(), 2);
    laptop.wait_until_quiet();
}
