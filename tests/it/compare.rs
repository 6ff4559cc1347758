//! `rgpu compare`: report files of a real H200, and runs and kernels on a played one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rgpu_model::Comparison;
use rgpu_model::comparison::TimeVerdict;
use rustix::process::{Pid, Signal, kill_process};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, fixture, status};

/// A recorded report, unpacked into the project under its recording's name.
fn recorded(laptop: &Laptop, name: &str) -> PathBuf {
    let folder = fixture("ncu/2025.3.1");
    let packed = fs::read(folder.join(name).join("report.ncu-repz")).unwrap();
    let file = laptop.project(format!("{name}.ncu-rep"));
    fs::write(&file, zstd::decode_all(packed.as_slice()).unwrap()).unwrap();
    file
}

/// The comparison that `--json` prints, checked against the type that the schema is made of.
fn compared(laptop: &Laptop, line: &str, expected: i32) -> Comparison {
    let output = laptop.run(line);
    assert_eq!(status(&output), expected, "{}", laptop.shown(line, &output));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let comparison: Comparison = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(serde_json::to_value(&comparison).unwrap(), value);
    comparison
}

#[test]
fn padding_is_faster_and_the_bank_conflicts_are_the_reason() {
    let laptop = Laptop::new();
    recorded(&laptop, "eight-transpose-conflicts");
    recorded(&laptop, "eight-transpose-padded");
    let line = "compare eight-transpose-conflicts.ncu-rep eight-transpose-padded.ncu-rep";
    let there = compared(&laptop, &format!("{line} --json --fail-on slower"), 0);
    assert_eq!(there.verdict, TimeVerdict::Faster);
    let reason = "shared-memory load bank conflicts 32-way → none";
    assert!(there.summary.contains(reason), "{}", there.summary);
    let bound = there.kernels[0].bound.clone().unwrap();
    assert_eq!(bound[0], "bank_conflicts");
    assert_ne!(bound[1], "bank_conflicts");
    insta::assert_snapshot!(laptop.show(line));

    let back = "compare eight-transpose-padded.ncu-rep eight-transpose-conflicts.ncu-rep --json";
    let back = compared(&laptop, &format!("{back} --fail-on slower"), 1);
    assert_eq!(back.verdict, TimeVerdict::Slower);
    let ratio = there.time.unwrap().speedup * back.time.unwrap().speedup;
    assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
    compared(&laptop, &format!("{line} --json --fail-under 1.5"), 0);
    compared(&laptop, &format!("{line} --json --fail-under 2.5"), 1);
}

#[test]
fn one_launch_of_each_is_undecided_with_what_changed() {
    let laptop = Laptop::new();
    recorded(&laptop, "full-transpose-conflicts");
    recorded(&laptop, "full-transpose-padded");
    let line = "compare full-transpose-conflicts.ncu-rep full-transpose-padded.ncu-rep";
    let there = compared(&laptop, &format!("{line} --json"), 0);
    assert_eq!(there.verdict, TimeVerdict::Ambiguous);
    assert!(there.summary.contains("32-way → none"), "{}", there.summary);
    let stalls = there.kernels[0].metrics.iter().filter(|m| m.metric.contains("stalled"));
    assert_eq!(
        stalls.clone().next().unwrap().label,
        "cycles per instruction lost to short scoreboard"
    );
    compared(&laptop, &format!("{line} --json --fail-on ambiguous"), 1);
}

#[test]
fn a_report_against_itself_changed_nothing() {
    let laptop = Laptop::new();
    recorded(&laptop, "eight-transpose-conflicts");
    let file = "eight-transpose-conflicts.ncu-rep";
    // Eight launches lie within 3 % of each other.
    let same = compared(&laptop, &format!("compare {file} {file} --threshold 3% --json"), 0);
    assert_eq!(same.verdict, TimeVerdict::Same);
    assert!(same.kernels[0].metrics.is_empty(), "{:#?}", same.kernels[0].metrics);
    recorded(&laptop, "full-transpose-conflicts");
    let file = "full-transpose-conflicts.ncu-rep";
    // One launch has no interval; but the same bytes are the same.
    let one = compared(&laptop, &format!("compare {file} {file} --json"), 0);
    assert_eq!(one.verdict, TimeVerdict::Same);
    assert_eq!(one.summary, "both sides are the same file");
    assert_eq!(one.time.unwrap().verdict, TimeVerdict::Same);
}

#[test]
fn launches_that_only_one_report_has_make_it_neither_faster_nor_slower() {
    let laptop = Laptop::new();
    let nsys = fixture("nsys/2025.3.1");
    for name in ["timeline-graph", "timeline-node"] {
        let file = laptop.project(format!("{name}.nsys-rep"));
        fs::copy(nsys.join(name).join("report.nsys-rep"), file).unwrap();
    }
    let line = "compare timeline-graph.nsys-rep timeline-node.nsys-rep";
    let there = compared(&laptop, &format!("{line} --json --fail-on slower"), 0);
    let time = there.time.unwrap();
    assert!((0.97..1.03).contains(&time.speedup), "{}", there.summary);
    let shown = laptop.show(line);
    assert!(
        shown.contains("`vecadd` was launched 23 and 38 times: compared per launch"),
        "{shown}"
    );

    for name in ["regions", "regions-include"] {
        recorded(&laptop, name);
    }
    let line = "compare regions.ncu-rep regions-include.ncu-rep --json --fail-under 2";
    let there = compared(&laptop, line, 1);
    assert_eq!(there.verdict, TimeVerdict::Ambiguous);
    assert!((there.time.unwrap().speedup - 1.0).abs() < 0.02, "{}", there.summary);
}

#[test]
fn reports_without_times_do_not_pass_for_ones_that_are_not_slower() {
    let laptop = Laptop::new();
    let event = |ts: u32| {
        format!(r#"{{"ph":"X","cat":"cpu_op","name":"k","pid":1,"tid":1,"ts":{ts},"dur":2}}"#)
    };
    for (name, ts) in [("before", 1), ("after", 3)] {
        let text = format!(r#"{{"schemaVersion":1,"traceEvents":[{}]}}"#, event(ts));
        laptop.write(&format!("{name}.json"), &text);
    }
    let line = "compare before.json after.json";
    assert_eq!(compared(&laptop, &format!("{line} --json"), 0).time, None);
    compared(&laptop, &format!("{line} --json --fail-on slower"), 5);
    assert_eq!(status(&laptop.run(&format!("{line} --fail-on slower --allow-unmeasured"))), 0);
}

#[test]
fn cubins_and_sanitizer_logs_hold_no_times_to_compare() {
    let laptop = Laptop::new();
    let fixtures = fixture("");
    for (file, fixture) in [
        ("a.cubin", "cubin/13.5/facts/sm_80.cubin"),
        ("b.cubin", "cubin/13.5/facts/sm_90a.cubin"),
        ("clean.xml", "sanitizer/2025.3.1/memcheck-clean-xml/findings.xml"),
        ("leak.xml", "sanitizer/2025.3.1/memcheck-leak-xml/findings.xml"),
    ] {
        fs::copy(fixtures.join(fixture), laptop.project(file)).unwrap();
    }
    let hints = ["rgpu disasm --diff a.cubin b.cubin", "`rgpu report clean.xml` shows"];
    for (line, hint) in
        ["compare a.cubin b.cubin", "compare clean.xml leak.xml --force"].into_iter().zip(hints)
    {
        let output = laptop.run(line);
        let shown = laptop.shown(line, &output);
        assert_eq!(status(&output), 2, "{shown}");
        assert!(shown.contains(hint), "{shown}");
    }
}

#[test]
fn two_runs_of_one_binary_are_the_same_and_unlike_ones_are_refused() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    for run in ["one", "two"] {
        laptop.run(&format!("profile --kernel vecadd --mode bench --remote h200 --run-id {run}"));
    }
    let line = "profile --kernel vecadd --mode bench --problem-sizes n=1000 --remote h200";
    laptop.run(&format!("{line} --run-id small"));
    let same = compared(&laptop, "compare one two --json", 0);
    assert_eq!(same.verdict, TimeVerdict::Same);
    assert_eq!(same.cases.len(), 1);
    insta::assert_snapshot!(laptop.show("compare one small"));
    let forced = compared(&laptop, "compare one small --force --json", 0);
    assert_eq!(forced.differences[0].what, "sizes");
    assert!(forced.summary.contains("although these differ: sizes"), "{}", forced.summary);
}

#[test]
fn reports_of_other_kernels_have_no_ratio_or_are_refused() {
    let laptop = Laptop::new();
    for name in ["ten-times", "full-vecadd", "full-tiled-matmul"] {
        recorded(&laptop, name);
    }
    let none = compared(&laptop, "compare ten-times.ncu-rep full-vecadd.ncu-rep --json", 0);
    assert_eq!((none.verdict, none.time.is_none()), (TimeVerdict::Ambiguous, true));
    assert!(none.summary.contains("the sides have no kernel in common"), "{}", none.summary);
    let line = "compare full-vecadd.ncu-rep full-tiled-matmul.ncu-rep";
    let refused = laptop.run(line);
    assert_eq!(status(&refused), 2, "{}", laptop.shown(line, &refused));
    let forced = compared(&laptop, &format!("{line} --force --json"), 0);
    assert!(forced.summary.starts_with("the compared kernels `"), "{}", forced.summary);
    assert!(!forced.summary.contains("although these differ"), "told once: {}", forced.summary);
    assert!(forced.differences.iter().any(|found| found.what == "kernel"), "{}", forced.summary);
}

#[test]
fn a_side_that_does_not_compile_shows_its_error_once() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let vecadd = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/vecadd");
    fs::create_dir_all(laptop.project("broken")).unwrap();
    for entry in fs::read_dir(vecadd).unwrap().flatten() {
        fs::copy(entry.path(), laptop.project("broken").join(entry.file_name())).unwrap();
    }
    let source = laptop.project("broken/vecadd.cu");
    let text = fs::read_to_string(&source).unwrap() + "does_not_compile\n";
    fs::write(source, text).unwrap();
    let line = "compare --kernel ./broken --kernel vecadd --remote h200 --mode bench";
    let shown = laptop.show(line);
    assert!(shown.ends_with("status 6\n"), "{shown}");
    assert_eq!(shown.matches("is undefined").count(), 1, "{shown}");
    assert!(shown.contains("it is side `a`"), "{shown}");
    assert!(shown.contains("on `large`, the default of"), "{shown}");
}

#[test]
fn what_is_no_pair_is_a_usage_error() {
    let laptop = Laptop::new();
    for line in ["compare", "compare one", "compare a b --threshold 200%"] {
        let output = laptop.run(line);
        assert_eq!(status(&output), 2, "{}", laptop.shown(line, &output));
    }
}

#[test]
fn two_kernels_are_timed_interleaved_in_one_job_and_looked_at_by_ncu() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let line = "compare --kernel transpose-conflicts --kernel transpose-padded --remote h200";
    let there = compared(&laptop, &format!("{line} --json"), 0);
    assert_eq!(there.verdict, TimeVerdict::Faster);
    let time = there.time.clone().unwrap();
    assert_eq!((time.source.as_str(), time.rounds, time.speedup), ("abba", Some(31), 2.0));
    assert!(there.summary.contains("32-way → none"), "{}", there.summary);
    let parts: Vec<_> = there.parts.iter().map(|p| (p.part.as_str(), p.there)).collect();
    assert_eq!(parts, [("speedup", true), ("nsys", false), ("ncu", true)], "{:#?}", there.parts);
    let run = laptop.latest();
    let kept: Comparison =
        serde_json::from_slice(&fs::read(run.join("compare.json")).unwrap()).unwrap();
    assert_eq!(kept, there);
    for file in
        ["compare.md", "a/raw/report.ncu-rep", "b/raw/report.ncu-rep", "a/log/profile.stdout"]
    {
        assert!(run.join(file).is_file(), "`{file}` is missing");
    }
    assert!(run.join("a/cubin").is_dir() && run.join("b/cubin").is_dir());
    // One job, and each side's folder reads like a run's.
    assert_eq!(laptop.latest_json("run.json")["jobs"].as_array().unwrap().len(), 1);
    let (a, b) = (run.join("a"), run.join("b"));
    let again = compared(&laptop, &format!("compare {} {} --json", a.display(), b.display()), 0);
    assert_eq!(again.verdict, TimeVerdict::Faster);
    assert_eq!(again.time.unwrap().source, "samples");
    let line = format!("compare {} latest", a.display());
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!(status(&output), 2, "{shown}");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(err.contains("`latest` is a comparison") && err.contains("/b`"), "{shown}");
    insta::assert_snapshot!(fs::read_to_string(run.join("compare.md")).unwrap());
    // The run is shown again from its folder alone.
    for line in ["report latest --json", "runs show latest --json"] {
        assert_eq!(compared(&laptop, line, 0), there);
    }
    let shown = laptop.run("report latest --format markdown");
    assert!(shown.stdout == fs::read(run.join("compare.md")).unwrap());
    let html = laptop.run("report latest --format csv");
    assert_eq!(status(&html), 7, "{}", laptop.shown("report latest --format csv", &html));
    for line in ["report latest --out x.txt", "report latest --format markdown --open"] {
        let output = laptop.run(line);
        let shown = laptop.shown(line, &output);
        assert_eq!(status(&output), 2, "{shown}");
        assert!(shown.contains("it is only printed"), "{shown}");
    }
    assert!(!laptop.project("x.txt").exists());
    laptop.wait_until_quiet();
}

#[test]
fn deep_brings_both_tools_on_one_gpu_and_a_kernel_against_itself_is_the_same() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let line = "compare --kernel vecadd --kernel vecadd --mode deep --remote h200 --json";
    let there = compared(&laptop, line, 0);
    assert_eq!(there.verdict, TimeVerdict::Same);
    assert!(there.parts.iter().all(|p| p.there), "{:#?}", there.parts);
    let line = "compare --kernel vecadd --kernel vecadd --mode bench --remote h200 --json";
    let bench = compared(&laptop, line, 0);
    assert_eq!(bench.verdict, TimeVerdict::Same);
    assert!(bench.kernels.is_empty());
    laptop.wait_until_quiet();
}

#[test]
fn a_size_is_named_as_for_profile_and_the_help_of_both_says_so() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let line = format!("{PAIR} --mode bench --problem-sizes odd --json");
    let named = compared(&laptop, &line, 0);
    let names: Vec<&str> = named.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["odd"]);
    for command in ["profile", "compare"] {
        let help = laptop.show(&format!("{command} --help"));
        assert!(help.contains("the name of a case"), "{help}");
    }
    laptop.wait_until_quiet();
}

#[test]
fn a_tool_that_fails_costs_its_part_and_not_the_speedup() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu counters-refused\n");
    let line = "compare --kernel transpose-conflicts --kernel transpose-padded --remote h200";
    let there = compared(&laptop, &format!("{line} --json"), 0);
    assert_eq!(there.verdict, TimeVerdict::Faster);
    let ncu = there.parts.iter().find(|p| p.part == "ncu").unwrap();
    assert!(!ncu.there && ncu.note.contains("nsys"), "{ncu:?}");
    laptop.wait_until_quiet();
}

#[test]
fn wrong_results_and_unlike_sizes_end_a_comparison_of_kernels() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    let unlike = laptop.run("compare --kernel vecadd --kernel transpose-padded --remote h200");
    assert_eq!(status(&unlike), 2, "{}", laptop.shown("", &unlike));
    host.mischief("rgpu-runner wrong-result\n");
    let line = "compare --kernel transpose-conflicts --kernel transpose-padded --remote h200";
    let wrong = laptop.run(line);
    assert_eq!(status(&wrong), 6, "{}", laptop.shown(line, &wrong));
    insta::assert_snapshot!(laptop.show(line));
    laptop.wait_until_quiet();
}

#[test]
fn ctrl_c_ends_a_comparison_and_leaves_nothing_running() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let line =
        "compare --kernel transpose-conflicts --kernel transpose-padded --remote h200 --json";
    let child = laptop.start(line);
    host.wait_for_gate("ncu");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", laptop.shown(line, &output));
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["schema"], "rgpu.error/1");
    laptop.wait_until_quiet();
    assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
    assert!(!laptop.latest().join("compare.json").exists());
}

const PAIR: &str = "compare --kernel transpose-conflicts --kernel transpose-padded --remote h200";

/// Cuts the link of a command for good: its agent is killed, and no other can be started. The job
/// goes on. Returns what the command then says.
fn cut_for_good(laptop: &Laptop, child: std::process::Child) -> std::process::Output {
    let agent = laptop.path("libexec/rgpu-agent");
    let program = fs::read_link(&agent).unwrap();
    fs::remove_file(&agent).unwrap();
    let running = laptop.running();
    let link = running.iter().find(|line| line.contains("rgpu-agent stdio"));
    let pid = link.and_then(|line| line.split(' ').next()?.parse().ok());
    kill_process(Pid::from_raw(pid.unwrap()).unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    symlink(program, &agent).unwrap();
    output
}

/// Checks that each job of the newest run started once, that both its sides are whole, and that it
/// is `done` with the comparison that was printed.
fn whole(laptop: &Laptop, printed: &Comparison, jobs: usize) {
    let run = laptop.latest();
    let record = laptop.latest_json("run.json");
    assert_eq!((&record["state"], &record["exit"]), (&"done".into(), &0.into()));
    assert_eq!(record["jobs"].as_array().unwrap().len(), jobs, "{record:#}");
    assert!(!run.join("error.json").exists());
    let events = fs::read_to_string(run.join("events.jsonl")).unwrap();
    assert_eq!(events.matches("\"event\":\"started\"").count(), jobs, "{events}");
    let kept: Comparison =
        serde_json::from_slice(&fs::read(run.join("compare.json")).unwrap()).unwrap();
    assert_eq!(kept, *printed);
    for side in ["a", "b"] {
        assert!(run.join(side).join("profile.json").is_file());
        let log = fs::read_to_string(run.join(side).join("log/profile.stdout")).unwrap();
        assert_eq!(log.matches("==PROF== Profiling").count(), 1, "{side}: {log}");
    }
}

#[test]
fn a_comparison_whose_link_was_cut_is_taken_up_and_runs_nothing_twice() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let child = laptop.start(&format!("{PAIR} --json"));
    host.wait_for_gate("ncu");
    let output = cut_for_good(&laptop, child);
    assert_eq!(status(&output), 4, "{}", laptop.shown(PAIR, &output));
    let record = laptop.latest_json("run.json");
    assert_eq!((&record["state"], &record["exit"]), (&"running".into(), &4.into()));
    host.open_gate("ncu");
    let taken_up = compared(&laptop, "runs attach latest --json", 0);
    assert_eq!(taken_up.verdict, TimeVerdict::Faster);
    let time = taken_up.time.clone().unwrap();
    assert_eq!((time.source.as_str(), time.speedup), ("abba", 2.0));
    whole(&laptop, &taken_up, 1);
    // Ended, it is shown.
    assert_eq!(compared(&laptop, "runs attach latest --json", 0), taken_up);
    laptop.wait_until_quiet();
}

#[test]
fn a_comparison_that_is_cut_in_its_second_pass_keeps_the_first_and_its_flags() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let line = format!("{PAIR} --mode deep --json --fail-under 3");
    let child = laptop.start(&line);
    host.wait_for_gate("ncu");
    let output = cut_for_good(&laptop, child);
    assert_eq!(status(&output), 4, "{}", laptop.shown(&line, &output));
    assert_eq!(laptop.latest_json("run.json")["jobs"].as_array().unwrap().len(), 2);
    host.open_gate("ncu");
    // It ends with the status of its own command.
    let taken_up = compared(&laptop, "runs attach latest --json", 1);
    assert!(taken_up.parts.iter().all(|part| part.there), "{:#?}", taken_up.parts);
    let record = laptop.latest_json("run.json");
    assert_eq!((&record["state"], &record["exit"]), (&"done".into(), &1.into()));
    let events = fs::read_to_string(laptop.latest().join("events.jsonl")).unwrap();
    assert_eq!(events.matches("\"event\":\"started\"").count(), 2, "{events}");
    laptop.wait_until_quiet();
}

#[test]
fn a_comparison_whose_command_was_killed_is_taken_up_between_and_in_its_passes() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    for tool in ["nsys", "ncu"] {
        host.mischief(&format!("{tool} gate\n"));
        let line = format!("{PAIR} --mode deep --json --run-id killed-in-{tool}");
        let mut child = laptop.start(&line);
        host.wait_for_gate(tool);
        child.kill().unwrap();
        child.wait().unwrap();
        host.open_gate(tool);
        let taken_up = compared(&laptop, "runs attach latest --json", 0);
        assert_eq!(taken_up.verdict, TimeVerdict::Faster);
        whole(&laptop, &taken_up, 2);
        laptop.wait_until_quiet();
    }
}

#[test]
fn a_comparison_is_taken_up_by_a_laptop_that_never_had_its_folder() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let mut child = laptop.start(&format!("{PAIR} --mode deep --json --run-id far"));
    host.wait_for_gate("ncu");
    child.kill().unwrap();
    child.wait().unwrap();
    host.open_gate("ncu");
    fs::remove_dir_all(laptop.project("artifacts")).unwrap();
    let taken_up = compared(&laptop, "runs attach --remote h200 far.2 --yes --json", 0);
    assert_eq!(taken_up.verdict, TimeVerdict::Faster);
    whole(&laptop, &taken_up, 2);
    laptop.wait_until_quiet();
}

#[test]
fn flags_of_kernels_are_refused_where_nothing_is_run() {
    let laptop = Laptop::new();
    recorded(&laptop, "full-transpose-padded");
    let file = "full-transpose-padded.ncu-rep";
    for flag in ["--mode ncu", "--remote x", "--iters 5", "--seed 2", "--out dir", "--dry-run"] {
        let output = laptop.run(&format!("compare {file} {file} {flag}"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(status(&output), 2, "{flag}: {text}");
        let name = flag.split(' ').next().unwrap();
        assert!(text.contains(name) && text.contains("nothing is run"), "{flag}: {text}");
    }
}

#[test]
fn a_dry_run_prints_the_commands_of_both_sides_and_touches_nothing() {
    let laptop = Laptop::new();
    let line = "compare --kernel transpose-conflicts --kernel transpose-padded --dry-run";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let text = String::from_utf8_lossy(&output.stdout);
    for word in [" pair ", "/a/", "/b/", "ncu "] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!laptop.project("artifacts").exists());
}
