//! `rgpu bench`: suites on a played GPU host.

use std::fs;

use rgpu::model::comparison::TimeVerdict;
use rgpu::model::suite::{RowState, SuiteComparison, SuiteRun, SuiteState, SuiteVerdict};
use rgpu::model::suite_history::History;
use rustix::process::{Pid, Signal, kill_process};

use crate::browser::Browser;
use crate::documents::printed_keeps;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for};

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

#[test]
fn a_suite_has_a_row_and_a_run_for_each_case_and_reports_in_every_format() {
    let (laptop, _host) = laptop_with(SUITE);
    let run = suite(&laptop, "bench run --run-id night", 0);
    assert_eq!(
        states(&run),
        [
            ("memory:vecadd[n=1000]", RowState::Ok),
            ("memory:vecadd[n=4000]", RowState::Ok),
            ("memory:transpose", RowState::Ok),
        ]
    );
    assert!(run.clean && run.state == SuiteState::Done);
    let pair = run.rows[2].pair.as_ref().unwrap();
    assert_eq!(
        (pair.verdict, pair.speedup, pair.too_close),
        (TimeVerdict::Faster, Some(2.0), false)
    );
    assert_eq!(run.rows[2].times.len(), 2);
    let time = &run.rows[0].times[0];
    assert_eq!((time.key.sizes.as_str(), time.key.dtype.as_str()), ("n=1000", "f32"));
    assert!(time.key.gpu.contains("H200") && time.key.method.contains("l2_flush"), "{time:?}");
    assert_eq!(time.against.as_ref().unwrap().verdict, SuiteVerdict::New);
    let folder = laptop.project("artifacts/runs/night");
    for row in &run.rows {
        let own = laptop.project("artifacts/runs").join(row.run.as_ref().unwrap());
        let record: serde_json::Value =
            serde_json::from_slice(&fs::read(own.join("run.json")).unwrap()).unwrap();
        assert_eq!(record["parent"]["suite"], "night");
        assert_eq!(record["state"], "done");
        let side = if row.baseline.is_some() { "b/samples.jsonl" } else { "samples.jsonl" };
        assert_eq!(fs::read_to_string(own.join(side)).unwrap().lines().count(), 31);
    }
    // The second case takes what the first one built.
    let builds = |run: &str| {
        let plan = laptop.project("artifacts/runs").join(run).join("plan-1.json");
        fs::read_to_string(plan).unwrap().matches("\"id\": \"build\"").count()
    };
    let built: Vec<usize> =
        run.rows[..2].iter().map(|row| builds(row.run.as_ref().unwrap())).collect();
    assert_eq!(built, [1, 0]);
    assert_eq!(run.rows[1].times[0].key.toolkit, run.rows[0].times[0].key.toolkit);
    for (file, words) in [
        ("report.md", "| memory:transpose"),
        ("suite.csv", "memory:vecadd[n=1000],memory:vecadd,h200,ok"),
        ("junit.xml", "<testcase name=\"memory:transpose\""),
        ("index.html", "memory:vecadd against n"),
        ("run.json", "bench, 3 cases"),
    ] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        assert!(text.contains(words), "{file}: {text}");
    }
    for format in ["table", "markdown", "csv", "junit"] {
        let shown = laptop.run(&format!("bench show night --format {format}"));
        assert!(String::from_utf8_lossy(&shown.stdout).contains("memory:transpose"));
    }
    // The runs of its cases begin with its name, too, and are not counted.
    let shown = laptop.show("bench show nig");
    assert!(shown.contains("memory:transpose") && shown.ends_with("status 0\n"), "{shown}");
    fs::create_dir(laptop.project("artifacts/runs/nightly")).unwrap();
    for file in ["run.json", "suite.json"] {
        let other = laptop.project("artifacts/runs/nightly").join(file);
        fs::copy(folder.join(file), other).unwrap();
    }
    let shown = laptop.show("bench show nig");
    assert!(shown.contains("nightly") && !shown.contains("night-001"), "{shown}");
    assert!(shown.ends_with("status 2\n"), "{shown}");
    laptop.wait_until_quiet();
}

#[test]
fn the_page_of_a_suite_draws_samples_and_roofline_and_filters_both() {
    let text =
        SUITE.to_owned() + "[[target]]\nname = \"compute:matmul\"\nkernel = \"tiled-matmul\"\n";
    let (laptop, _host) = laptop_with(&text);
    for id in ["one", "two"] {
        suite(&laptop, &format!("bench run --run-id {id}"), 0);
    }
    let page = laptop.project("artifacts/runs/two/index.html");
    let Some(mut browser) = Browser::start() else { return };
    let target = std::path::Path::new(env!("CARGO_BIN_EXE_rgpu")).ancestors().nth(2).unwrap();
    for (width, name) in [(390, "narrow"), (1280, "wide")] {
        browser.resize(width);
        for scheme in ["light", "dark"] {
            browser.wish(scheme);
            browser.open(&page);
            browser.picture(&target.join(format!("pages/suite-{name}-{scheme}.png")));
            let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
            assert!(wide <= u64::from(width), "{wide} pixels wide");
        }
    }
    let mut count = |what: &str| {
        let counted = browser.value(&format!("document.querySelectorAll({what:?}).length"));
        counted.as_u64().unwrap()
    };
    // Two sizes of vecadd and the product have counted work; the pair may have it, too.
    let points = count("svg.roofline circle");
    assert!(points >= 3, "{points}");
    assert!(count("svg.roofline .roof") >= 2 && count("svg.roofline text.k0") >= 1);
    assert_eq!(count("svg.spread"), 5);
    assert!(count("svg.spread .median") == 5 && count("svg.spread .band") == 5);
    let filled = "getComputedStyle(document.querySelector('td svg polyline')).fill";
    assert_eq!(browser.value(filled), "none");
    browser.value(
        "(() => { const f = document.getElementById('filter'); f.value = 'matmul'; \
         f.dispatchEvent(new Event('input')); })()",
    );
    let shown = "[...document.querySelectorAll('[data-point]')].filter(g => g.style.display !== 'none').length";
    assert_eq!(browser.value(shown), 1);
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
    laptop.wait_until_quiet();
}

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
    let run = suite(&laptop, "bench run --failed --reason wrong", 0);
    assert!(run.clean && run.id == "night");
    assert!(run.rows.iter().all(|row| row.attempts == 2));
    let ids: Vec<_> = run.rows.iter().filter_map(|row| row.run.as_deref()).collect();
    assert!(ids[0].starts_with("night-001-") && ids[0].ends_with("-2"), "{ids:?}");
    laptop.wait_until_quiet();
}

#[test]
fn ctrl_c_keeps_what_is_done_and_resume_runs_the_rest() {
    let (laptop, host) = laptop_with(&SUITE.replace("mode = \"bench\"\n", ""));
    // The pair is last and uses ncu on both sides.
    host.mischief("ncu gate --against\nrgpu-runner gate --against\n");
    let child = laptop.start("bench run --run-id night --json");
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
    let run = suite(&laptop, "bench resume", 0);
    assert!(run.clean);
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

#[test]
fn each_size_of_a_pair_has_its_own_speedup() {
    let (laptop, _host) = laptop_with(&(SUITE.to_owned() + "sizes = \"odd|large\"\n"));
    let run = suite(&laptop, "bench run -t memory:transpose --run-id night", 0);
    let pair = run.rows[0].pair.as_ref().unwrap();
    let sizes: Vec<&str> = pair.sizes.iter().map(|one| one.size.as_str()).collect();
    assert_eq!(sizes, ["odd", "large"]);
    assert!(pair.sizes.iter().all(|one| one.speedup > 1.0), "{pair:?}");
    let shown = laptop.show("bench show night");
    assert_eq!(shown.matches("geomean of 2").count(), 1, "{shown}");
    laptop.wait_until_quiet();
}

#[test]
fn a_pair_that_is_too_close_to_call_grows_and_says_so() {
    let same =
        SUITE.replace("optimised = \"transpose-padded\"", "optimised = \"transpose-conflicts\"");
    let grow = "grow = { vars = [\"rows\"], factor = 2, times = 1 }\n";
    let (laptop, _host) = laptop_with(&(same + grow));
    let run = suite(&laptop, "bench run -t memory:transpose --run-id night", 0);
    let pair = run.rows[0].pair.as_ref().unwrap();
    assert!(pair.too_close && pair.verdict == TimeVerdict::Same, "{pair:?}");
    assert_eq!(pair.grown.len(), 1);
    assert_eq!(pair.grown[0].sizes, "cols=4096,rows=4096");
    assert_eq!(run.rows[0].times[0].key.sizes, "cols=4096,rows=8192");
    let report = fs::read_to_string(laptop.project("artifacts/runs/night/report.md")).unwrap();
    assert!(report.contains(". Too close to call. At cols"), "{report}");
    laptop.wait_until_quiet();
}

#[test]
fn expectations_come_from_three_sessions_of_a_clean_tree_and_judge_later_ones() {
    let (laptop, _host) = laptop_with(SUITE);
    laptop.write(".gitignore", "artifacts/\n.rgpu/\nexpectations/\n");
    let git = |line: &str| {
        let words = ["-c", "user.name=x", "-c", "user.email=x@x"];
        let mut git = std::process::Command::new("git");
        git.current_dir(laptop.project("")).args(words).args(line.split(' '));
        assert!(git.output().unwrap().status.success(), "git {line}");
    };
    git("init -q");
    git("add .");
    git("commit -qm suite");
    let run = |n: usize, flags: &str, expected| {
        let line = format!("bench run -t memory:vecadd --run-id s{n} {flags}");
        let output = laptop.run(&line);
        let shown = laptop.shown(&line, &output);
        assert_eq!(status(&output), expected, "{shown}");
        shown
    };
    run(1, "", 0);
    let shown = run(2, "--update-expectations", 0);
    assert!(
        shown.contains("fewer than 3 sessions") && shown.contains("--accept few-sessions"),
        "{shown}"
    );
    let folder = laptop.project("expectations");
    assert!(!folder.exists());
    let shown = run(3, "--update-expectations", 0);
    assert!(shown.contains("2 of 2 expected times written"), "{shown}");
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&file).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    printed_keeps("expectations", &value);
    assert_eq!(value["entries"][0]["sessions"], 3);
    // Faster and slower by the file alone: the played times never change.
    let times = |text: &str, by: f64| {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        for entry in value["entries"].as_array_mut().unwrap() {
            entry["median_ns"] = (entry["median_ns"].as_f64().unwrap() * by).into();
            for at in 0..2 {
                entry["ci95_ns"][at] = (entry["ci95_ns"][at].as_f64().unwrap() * by).into();
            }
        }
        fs::write(&file, value.to_string()).unwrap();
    };
    let judged = |n: usize, flags: &str, expected| {
        let run =
            suite(&laptop, &format!("bench run -t memory:vecadd --run-id s{n} {flags}"), expected);
        run.rows[0].times[0].against.as_ref().unwrap().verdict
    };
    assert_eq!(judged(4, "--fail-on slower --validity strict", 0), SuiteVerdict::Same);
    times(&text, 0.9);
    assert_eq!(judged(5, "--fail-on slower", 1), SuiteVerdict::Slower);
    times(&text, 1.1);
    assert_eq!(judged(6, "--fail-on slower", 0), SuiteVerdict::Faster);
    // At other clocks it would be slower or faster for no cause in the kernel.
    let shown = laptop.show("bench run -t memory:vecadd --run-id locked --lock-clocks 1500");
    for words in ["expected: 2 times", "INCOMPARABLE: expected under another clock policy"] {
        assert!(shown.contains(words), "{shown}");
    }
    assert!(shown.ends_with("status 0\n"), "{shown}");
    // Two remotes name their cases apart; what is expected is of the GPU.
    let config = laptop.path("config/config.toml");
    let settings = fs::read_to_string(&config).unwrap();
    let twin = settings.replace("[remote.h200]", "[remote.twin]");
    fs::write(&config, settings + &twin).unwrap();
    let run_twins = suite(&laptop, "bench run -t memory:vecadd --remote h200,twin", 0);
    assert_eq!((run_twins.rows.len(), run_twins.times().count()), (4, 4));
    for (row, time) in run_twins.times() {
        assert!(row.case.contains('@'), "{}", row.case);
        assert_eq!(time.against.as_ref().unwrap().verdict, SuiteVerdict::Faster);
    }
    let output = laptop.run("bench history memory:vecadd --json");
    let history: History = serde_json::from_slice(&output.stdout).unwrap();
    let has = |case: &str| history.series.iter().any(|series| series.key.case == case);
    assert!(has("memory:vecadd[n=1000]") && has("memory:vecadd[n=1000]@twin"), "{history:#?}");
    // A baseline of its own name begins anew, beside the others.
    let shown = laptop.show("bench run -t memory:vecadd --baseline v1");
    assert!(
        shown.contains("there is no baseline `v1`") && shown.ends_with("status 3\n"),
        "{shown}"
    );
    let line = "bench run -t memory:vecadd --run-id v1 --baseline v1 --update-expectations";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    assert_eq!(fs::read_dir(folder.join("v1")).unwrap().count(), 1);
    fs::write(&file, "{").unwrap();
    let run_v1 = suite(&laptop, "bench run -t memory:vecadd --baseline v1 --fail-on new", 0);
    assert!(run_v1.times().all(|(_, time)| {
        time.against.as_ref().is_some_and(|judged| judged.verdict == SuiteVerdict::Same)
    }));
    fs::write(&file, &text).unwrap();
    // A changed file is another state of the tree.
    laptop.write("later.txt", "x");
    let shown = run(7, "--update-expectations", 0);
    assert!(shown.contains("files differ from the commit"), "{shown}");
    fs::write(&file, text.replace("memory:vecadd[n=1000]", "memory:gone")).unwrap();
    let shown = run(8, "", 3);
    assert!(shown.contains("`memory:gone`"), "{shown}");
    let audit = laptop.run("bench audit --json");
    let audit: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    printed_keeps("audit", &audit);
    assert!(audit.to_string().contains("expectation_without_case"), "{audit:#}");
    // Another file has cases of its own, and so has a project without one.
    laptop.write("other.toml", &SUITE.replace("memory:", "other:"));
    let other = suite(&laptop, "bench run -t other:vecadd --file other.toml", 0);
    assert!(other.orphans.is_empty(), "{other:#?}");
    let shown = laptop.show("bench audit --file other.toml");
    assert!(!shown.contains("expectation_without_case"), "{shown}");
    assert!(shown.contains("the expectations are of the project's own bench.toml"), "{shown}");
    let own = suite(&laptop, "bench run -t memory:vecadd --file ./bench.toml", 3);
    assert_eq!(own.orphans.len(), 1, "{own:#?}");
    // Damage is told before anything runs, and by an audit in the same words.
    fs::write(&file, "{").unwrap();
    for flags in ["", "--update-expectations"] {
        let shown = run(9, flags, 3);
        for words in ["the expectations are not JSON", "restore it with git, or remove it"] {
            assert!(shown.contains(words), "{shown}");
        }
        assert!(!laptop.project("artifacts/runs/s9").exists(), "{shown}");
    }
    let shown = laptop.show("bench audit");
    assert!(shown.contains("the expectations are not JSON"), "{shown}");
    assert!(shown.ends_with("status 3\n"), "{shown}");
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
    laptop.wait_until_quiet();
}

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

#[test]
fn targets_are_listed_and_wrong_files_and_names_are_told() {
    let (laptop, _host) = laptop_with(SUITE);
    let listed = laptop.run("bench list --json");
    let value: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    printed_keeps("targets", &value);
    assert_eq!(value["cases"].as_array().unwrap().len(), 3);
    let shown = laptop.show("bench list -t pairs");
    assert!(shown.contains("memory:transpose") && !shown.contains("vecadd"), "{shown}");
    let shown = laptop.show("bench run -t memory:vecad");
    assert!(
        shown.contains("did you mean `memory:vecadd`?") && shown.ends_with("status 3\n"),
        "{shown}"
    );
    let shown = laptop.show("bench");
    assert!(shown.contains("--mode bench") && shown.ends_with("status 2\n"), "{shown}");
    suite(&laptop, "bench run -t pairs --run-id night", 0);
    let shown = laptop.show("bench run -t pairs --run-id night");
    assert!(shown.contains("there is already a run `night`"), "{shown}");
    let lost = "[[target]]\nname = \"a:lost\"\nkernel = \"kernels/lost.cu\"\n\
                [[target]]\nname = \"a:there\"\nkernel = \"vecadd\"\n\
                [[target]]\nname = \"a:typo\"\nkernel = \"vecad\"\n";
    laptop.write("bench.toml", lost);
    let shown = laptop.show("bench list");
    for warning in [
        "warning: bench.toml:3: `a:lost` at key `kernel`: there is no file `kernels/lost.cu`",
        "warning: bench.toml:9: `a:typo` at key `kernel`: there is no kernel `vecad`; did you mean \
         `vecadd`?",
    ] {
        assert!(shown.contains(warning), "{shown}");
    }
    assert!(shown.ends_with("status 0\n") && shown.matches("warning").count() == 2, "{shown}");
    let shown = laptop.show("bench list -t a:there");
    assert!(!shown.contains("warning"), "{shown}");
    // `run` refuses them with the same words, before anything begins.
    let shown = laptop.show("bench run --run-id refused --remote h200");
    for words in [
        "error: `a:lost` at key `kernel`: there is no file `kernels/lost.cu`",
        "in `bench.toml:3`",
        "also bench.toml:9: `a:typo` at key `kernel`: there is no kernel `vecad`; did you mean \
         `vecadd`?",
    ] {
        assert!(shown.contains(words), "{shown}");
    }
    assert!(shown.ends_with("status 3\n"), "{shown}");
    assert!(!laptop.project("artifacts/runs/refused").exists());
    suite(&laptop, "bench run -t a:there --mode bench --remote h200", 0);
    let audit = laptop.run("bench audit --json");
    let value: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    // Before what the results of the last suite have.
    let findings = value["findings"].as_array().unwrap();
    assert_eq!(findings[0]["code"], "missing_source", "{value:#}");
    assert_eq!(findings[1]["code"], "unknown_kernel", "{value:#}");
    assert!(findings[1]["place"].as_str().unwrap().ends_with("bench.toml:9"), "{value:#}");
    assert_eq!(status(&audit), 1);
    // What `run` fails for with other keys, and a remote that nobody has.
    let wrong = "[defaults]\nremote = \"nowhere\"\n\
                 [[target]]\nname = \"a:axis\"\nkernel = \"vecadd\"\n\
                 [target.matrix]\nsizes.n = [1000, 4000]\nsizes.m = [1]\n\
                 [[target]]\nname = \"a:outside\"\nprogram = [\"../tools/app\"]\n\
                 [[target]]\nname = \"a:kernel\"\nkernel = \"../other/k.cu\"\n";
    laptop.write("bench.toml", wrong);
    let shown = laptop.show("bench list");
    for warning in [
        "warning: bench.toml:2: `a:axis` at key `remote`: ",
        "warning: bench.toml:8: `a:axis` at key `matrix.sizes.m`: axis `m` of `a:axis` is not a \
         size of `vecadd`; its sizes: `n`",
        "warning: bench.toml:11: `a:outside` at key `program`: `../tools/app` lies outside the \
         project",
        "warning: bench.toml:14: `a:kernel` at key `kernel`: `../other/k.cu` lies outside the \
         project",
    ] {
        assert!(shown.contains(warning), "{shown}");
    }
    assert!(shown.ends_with("status 0\n") && shown.matches("warning").count() == 4, "{shown}");
    laptop.write("bench.toml", "[defaults]\nlevle = \"sol\"\n");
    let shown = laptop.show("bench list");
    assert!(shown.contains("bench.toml:2") && shown.contains("did you mean `level`?"), "{shown}");
    let many =
        "[[target]]\nname = \"a:b\"\nkernel = \"vecadd\"\n[target.matrix]\nsizes.n = \"1..5000\"\n";
    laptop.write("bench.toml", many);
    let shown = laptop.show("bench run");
    assert!(shown.contains("5000 cases, above the limit of 200"), "{shown}");
    laptop.write("bench.toml", &many.replace("\"1..5000\"", "[1]\nexclude = [{ n = 1 }]"));
    for command in ["bench run", "bench list", "bench run -t a:b"] {
        let shown = laptop.show(command);
        let told = "target `a:b` has no case: `exclude` leaves none of its matrix";
        assert!(shown.contains(told) && shown.contains("bench.toml:6"), "{shown}");
        assert!(shown.ends_with("status 3\n"), "{shown}");
    }
    fs::remove_file(laptop.project("bench.toml")).unwrap();
    let shown = laptop.show("bench list");
    assert!(shown.contains("this project has nothing to run"), "{shown}");
    fs::create_dir_all(laptop.project("kernels/mine")).unwrap();
    laptop.write("kernels/mine/kernel.toml", "");
    let shown = laptop.show("bench list");
    assert!(shown.contains("kernels:mine"), "{shown}");
    laptop.write("kernels/mine/kernel.toml", "x");
    let audit = laptop.run("bench audit --json");
    let value: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    let finding = &value["findings"][0];
    assert_eq!(finding["code"], "bad_kernel_toml", "{value:#}");
    assert!(finding["place"].as_str().unwrap().ends_with("kernel.toml:1"), "{value:#}");
    assert_eq!(status(&audit), 1);
}

#[test]
fn every_kernel_that_the_worked_suite_names_by_path_exists() {
    let kernels = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let text = std::fs::read_to_string(kernels.join("bench.toml")).unwrap();
    let file: toml::Table = text.parse().unwrap();
    let mut paths = 0;
    for target in file["target"].as_array().unwrap() {
        for key in ["kernel", "baseline", "optimised"] {
            let Some(path) = target.get(key).and_then(toml::Value::as_str) else { continue };
            if path.contains('/') {
                paths += 1;
                assert!(kernels.join(path).join("kernel.toml").is_file(), "{key} = \"{path}\"");
            }
        }
    }
    assert!(paths > 5, "{paths}");
}
