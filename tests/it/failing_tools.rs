//! Tools that fail: which rung is reached, why not a better one, and with which exit status.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use rgpu_model::Profile;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, built, status};

/// What a run came to.
struct End {
    profile: Profile,
    /// Every refused rung with its reason.
    refused: Vec<(String, String)>,
}

/// Profiles under some mischief; the run must end with this status and print a profile.
fn end(mischief: &str, line: &str, expected: i32) -> End {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief(mischief);
    let output = laptop.run(line);
    assert_eq!(status(&output), expected, "{mischief}{}", laptop.shown(line, &output));
    let profile: Profile = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{mischief}{e}\n{}", laptop.shown(line, &output)));
    laptop.wait_until_quiet();
    let refused = profile.ladder.iter().filter(|record| !record.ok);
    let refused = refused.map(|record| (record.rung.clone(), record.code.clone())).collect();
    End { profile, refused }
}

/// A failing run's error document.
fn error(mischief: &str, line: &str) -> (i32, serde_json::Value) {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief(mischief);
    let output = laptop.run(line);
    let text = laptop.shown(line, &output);
    let value: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(value["schema"], "rgpu.error/1", "{text}");
    assert_eq!(value["exit"], status(&output), "{text}");
    laptop.wait_until_quiet();
    (status(&output), value["error"].clone())
}

const NCU: &str = "profile --kernel vecadd --mode ncu --remote h200 --json";
const NSYS: &str = "profile --kernel nested-regions --mode nsys --remote h200 --json";
const MEMCHECK: &str =
    "profile --kernel vecadd --mode sanitizer --tool memcheck --remote h200 --json";

fn has(end: &End, rung: &str, code: &str) -> bool {
    end.refused.iter().any(|(r, c)| r == rung && c == code)
}

#[test]
fn a_compiler_that_prints_without_end_is_stopped_and_fails_its_step() {
    for (tool, stream, line) in [
        ("cc", "", "profile --kernel vecadd --mode verify --remote h200 --json"),
        ("nvcc", ">&2", "build --kernel vecadd --arch sm_90a --remote h200 --json"),
        ("nvcc", "", "profile --kernel vecadd --mode bench --remote h200 --json"),
    ] {
        let laptop = Laptop::new();
        let tools = ["ncu", "nsys", "compute-sanitizer", "nvidia-smi"];
        FakeHost::with(&laptop, &tools);
        let path = laptop.path("h200/bin").join(tool);
        let version = "Cuda compilation tools, release 12.8, V12.8.93";
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = --version ]; then echo '{version}'; else exec yes {stream}; fi\n"
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        if tool == "cc" {
            symlink(built("rgpu-fake"), laptop.path("h200/bin/nvcc")).unwrap();
        }
        let output = laptop.run(line);
        let shown = laptop.shown(line, &output);
        assert_ne!(status(&output), 0, "{shown}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["error"]["code"], "too_much_output", "{shown}");
        assert!(shown.contains("it printed more than 64 MiB and was stopped"), "{shown}");
        assert!(shown.contains(" bytes were dropped"), "{shown}");
        // Not the limit of the plan.
        let logs = walkdir::WalkDir::new(laptop.latest()).into_iter().flatten();
        let bytes: u64 = logs.map(|entry| entry.metadata().unwrap().len()).sum();
        assert!((64 << 20..66 << 20).contains(&bytes), "{bytes}");
        laptop.wait_until_quiet();
    }
}

#[test]
fn counters_that_are_refused_lead_to_launch_facts_without_counters() {
    let end = end("ncu counters-refused full\nncu counters-refused basic\n", NCU, 0);
    assert!(has(&end, "ncu.asked", "counters_refused"), "{:?}", end.refused);
    assert_eq!(end.profile.rung, "ncu.launch");
    assert!(end.profile.data_lost_on_rung().is_some_and(|lost| lost.contains("counter")));
}

#[test]
fn counters_that_are_refused_altogether_lead_to_a_trace() {
    let end = end("ncu counters-refused\n", NCU, 0);
    assert!(end.profile.rung.starts_with("nsys"), "{} {:?}", end.profile.rung, end.refused);
    assert!(!end.profile.launches.is_empty());
}

#[test]
fn status_zero_without_data_is_no_success() {
    let end = end("ncu no-kernels\n", NCU, 0);
    assert!(has(&end, "ncu.asked", "no_kernels"), "{:?}", end.refused);
    assert!(!end.profile.rung.starts_with("ncu"), "{}", end.profile.rung);
}

#[test]
fn counters_that_another_tool_holds_are_named() {
    let end = end("ncu counters-taken\n", NCU, 0);
    assert!(has(&end, "ncu.asked", "counters_busy"), "{:?}", end.refused);
}

#[test]
fn a_report_that_is_cut_off_is_refused_by_the_laptop() {
    let end = end("ncu cut-report full\n", NCU, 0);
    assert!(end.refused.iter().any(|(rung, _)| rung == "ncu.asked"), "{:?}", end.refused);
    assert_ne!(end.profile.rung, "ncu.asked");
}

#[test]
fn a_tool_that_crashes_fails_or_lies_about_its_status_costs_one_rung() {
    for (word, code) in [("crash", "signal"), ("fail", "exit"), ("exit-line", "exit")] {
        let end = end(&format!("ncu {word} full\n"), NCU, 0);
        assert!(has(&end, "ncu.asked", code), "{word}: {:?}", end.refused);
        assert_eq!(end.profile.rung, "ncu.basic", "{word}");
    }
}

#[test]
fn storms_control_sequences_and_bytes_that_are_no_text_do_no_harm() {
    for word in ["storm", "control", "invalid-utf8"] {
        let laptop = Laptop::new();
        FakeHost::new(&laptop).mischief(&format!("ncu {word}\n"));
        let output = laptop.run(NCU);
        assert_eq!(status(&output), 0, "{word}");
        let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(profile.rung, "ncu.asked", "{word}");
        for record in &profile.ladder {
            assert!(record.stdout_tail.len() <= 3_000, "{word}");
            let plain = |c: char| c == '\n' || c == '\t' || !c.is_control();
            assert!(record.stdout_tail.chars().all(plain), "{word}: {:?}", record.stdout_tail);
        }
        assert_eq!(status(&laptop.run("runs show")), 0);
    }
}

#[test]
fn metrics_that_this_gpu_lacks_are_dropped_and_listed() {
    let line = "profile --kernel vecadd --mode ncu --metrics sm__throughput.avg.pct_of_peak_sustained_elapsed,nosuch__metric.sum --remote h200 --json";
    let end = end("", line, 0);
    assert_eq!(end.profile.rung, "ncu.asked", "{:?}", end.refused);
    let gap = end.profile.gaps.iter().find(|gap| gap.code == "unknown_metric");
    assert!(
        gap.is_some_and(|gap| gap.text.contains("nosuch__metric.sum")),
        "{:#?}",
        end.profile.gaps
    );
}

#[test]
fn a_trace_without_gpu_rows_ends_with_ranges_alone() {
    let end = end("nsys no-gpu-rows\n", NSYS, 0);
    assert!(end.refused.iter().any(|(rung, _)| rung == "nsys.full"), "{:?}", end.refused);
    assert!(end.refused.iter().any(|(rung, _)| rung == "nsys.cuda"), "{:?}", end.refused);
    assert!(!end.profile.regions.is_empty());
    assert!(end.profile.launches.is_empty());
}

#[test]
fn an_importer_that_does_not_start_is_named() {
    let end = end("nsys importer-missing\n", NSYS, 0);
    assert!(has(&end, "nsys.full", "importer_broken"), "{:?}", end.refused);
    assert!(!end.profile.rung.starts_with("nsys"), "{}", end.profile.rung);
}

/// Profiles on a host with these tools and a libcupti.
fn with_libcupti(tools: &[&str], mischief: &str, line: &str) -> End {
    let laptop = Laptop::new();
    FakeHost::with(&laptop, tools).with_libcupti().mischief(mischief);
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{mischief}{}", laptop.shown(line, &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    laptop.wait_until_quiet();
    let refused = profile.ladder.iter().filter(|record| !record.ok);
    let refused = refused.map(|record| (record.rung.clone(), record.code.clone())).collect();
    End { profile, refused }
}

const BARE: &[&str] = &["nvcc", "nvidia-smi"];

#[test]
fn without_nsight_cupti_tells_the_times_of_kernels_in_every_region() {
    let end = with_libcupti(BARE, "", NSYS);
    assert_eq!(end.profile.rung, "cupti", "{:?}", end.refused);
    assert!(has(&end, "nsys.full", "tool_missing"), "{:?}", end.refused);
    let regions: Vec<_> =
        end.profile.regions.iter().map(|r| (r.path.join("::"), r.gpu_ns)).collect();
    for name in ["rgpu@timed", "A", "A::A1", "B"] {
        let found = regions.iter().find(|(path, _)| path.ends_with(name));
        assert!(found.is_some_and(|(_, ns)| ns.is_some_and(|ns| ns >= 20_000)), "{regions:?}");
    }
    assert_eq!(end.profile.launches[0].grid, [128, 1, 1]);
    assert!(end.profile.data_lost_on_rung().is_some_and(|lost| lost.contains("CPU sampling")));
    // Under ncu the same, and more is lost.
    let end = with_libcupti(BARE, "", NCU);
    assert_eq!(end.profile.rung, "cupti", "{:?}", end.refused);
    assert!(has(&end, "ncu.asked", "tool_missing") && has(&end, "nsys.cuda", "tool_missing"));
    assert!(end.profile.data_lost_on_rung().is_some_and(|lost| lost.contains("hardware counters")));
    assert_eq!(end.profile.kernels.len(), 1);
}

#[test]
fn nsys_without_gpu_rows_and_without_its_importer_leads_to_cupti() {
    for (mischief, code) in
        [("nsys no-gpu-rows\n", "no_gpu_rows"), ("nsys importer-missing\n", "importer_broken")]
    {
        let end = with_libcupti(&["nvcc", "nvidia-smi", "nsys"], mischief, NSYS);
        assert_eq!(end.profile.rung, "cupti", "{mischief}{:?}", end.refused);
        assert!(has(&end, "nsys.full", code), "{mischief}{:?}", end.refused);
        assert!(!end.profile.launches.is_empty());
    }
}

#[test]
fn cupti_that_does_not_work_or_saw_nothing_leaves_the_ranges_of_the_same_run() {
    for (mischief, code) in [
        ("rgpu-runner cupti-unusable\n", "cupti_unusable"),
        ("rgpu-runner cupti-saw-nothing\n", "no_gpu_rows"),
    ] {
        let end = with_libcupti(BARE, mischief, NSYS);
        assert_eq!(end.profile.rung, "nvtx", "{:?}", end.refused);
        assert!(has(&end, "cupti", code), "{:?}", end.refused);
        assert!(!end.profile.regions.is_empty() && end.profile.launches.is_empty());
        assert!(
            end.profile.data_lost_on_rung().is_some_and(|lost| lost.contains("only NVTX ranges"))
        );
        let gap = end.profile.gaps.iter().find(|gap| gap.code == code);
        assert!(gap.is_some(), "{:#?}", end.profile.gaps);
        // It was not run again for that.
        let tried = end.profile.ladder.iter().filter(|r| r.step == "profile" && !r.argv.is_empty());
        assert_eq!(tried.count(), 2, "one run, told twice: {:#?}", end.profile.ladder);
    }
}

#[test]
fn without_libcupti_the_collector_sees_ranges() {
    let laptop = Laptop::new();
    FakeHost::with(&laptop, BARE);
    let output = laptop.run(NSYS);
    assert_eq!(status(&output), 0, "{}", laptop.shown(NSYS, &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "nvtx");
    assert!(profile.ladder.iter().any(|r| r.rung == "cupti" && r.code == "cupti_missing"));
    assert!(profile.gaps.iter().any(|gap| gap.text.contains("no libcupti is known")));
}

#[test]
fn below_the_collector_the_clocks_are_left_first_the_gpus_then_the_hosts() {
    let events = with_libcupti(BARE, "rgpu-runner no-ranges\n", NSYS);
    assert_eq!(events.profile.rung, "events", "{:?}", events.refused);
    assert!(has(&events, "cupti", "no_file") && has(&events, "nvtx", "no_file"));
    assert_eq!(events.profile.data_lost_on_rung(), Some("all data but the kernel's time"));
    let bench = "profile --kernel vecadd --mode bench --remote h200 --json";
    let host = end("rgpu-runner no-events\n", bench, 0);
    assert_eq!(host.profile.rung, "host", "{:?}", host.refused);
    assert!(host.profile.data_lost_on_rung().is_some_and(|lost| lost.contains("launch and wait")));
}

#[test]
fn reports_without_results_or_without_numbers_are_refused_by_the_laptop() {
    for (how, code) in [("empty", "empty_report"), ("nan", "nan_counters")] {
        let laptop = Laptop::new();
        FakeHost::new(&laptop).with_spoiled_reports(how);
        let output = laptop.run(NCU);
        assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
        let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(profile.rung, "ncu.basic", "{how}");
        assert_eq!(profile.data_lost_on_rung(), Some("all sections except the basic ones"));
        let asked = profile.ladder.iter().find(|record| record.rung == "ncu.asked").unwrap();
        assert_eq!((asked.ok, asked.code.as_str()), (false, code), "{asked:#?}");
        // The host took it for good: the laptop's second plan began below it.
        assert_eq!(asked.exit, Some(0));
        assert!(laptop.latest().join("plan-2.json").is_file());
    }
}

#[test]
fn what_failed_for_a_reason_of_the_hosts_own_is_passed_over_the_second_time() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu counters-refused full\nncu counters-refused basic\n");
    let run = || -> Profile {
        let output = laptop.run(NCU);
        assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let of = |profile: &Profile, rung: &str| {
        profile.ladder.iter().find(|record| record.rung == rung).cloned().unwrap()
    };
    let first = run();
    assert!(!of(&first, "ncu.asked").argv.is_empty());
    let second = run();
    assert_eq!((first.rung.as_str(), second.rung.as_str()), ("ncu.launch", "ncu.launch"));
    for rung in ["ncu.asked", "ncu.basic"] {
        let record = of(&second, rung);
        assert!(record.argv.is_empty() && record.code == "counters_refused", "{record:#?}");
        assert!(record.message.starts_with("skipped: failed on 20"), "{}", record.message);
        assert!(record.message.contains("ERR_NVGPUCTRPERM"), "{}", record.message);
        assert!(record.message.ends_with("`rgpu doctor h200 --fresh` forgets that"));
    }
    let least = laptop.run("profile --kernel vecadd --mode ncu --at-least ncu.basic --remote h200");
    let said = String::from_utf8_lossy(&least.stderr).into_owned();
    assert!(status(&least) == 5 && said.contains("skipped: failed on"), "{said}");
    // Mended, it is still believed to fail, until the doctor has looked.
    host.mischief("");
    assert_eq!(run().rung, "ncu.launch");
    assert_eq!(status(&laptop.run("doctor h200 --fresh")), 0);
    assert_eq!(run().rung, "ncu.asked");
}

#[test]
fn what_failed_by_the_kernel_or_for_a_while_is_tried_again() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    for mischief in ["ncu counters-taken full\n", "ncu crash full\n", ""] {
        host.mischief(mischief);
        let output = laptop.run(NCU);
        let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
        let asked = profile.ladder.iter().find(|record| record.rung == "ncu.asked").unwrap();
        assert!(!asked.argv.is_empty() && asked.ok == mischief.is_empty(), "{asked:#?}");
    }
}

#[test]
fn a_rung_left_out_below_the_one_that_was_reached_is_not_spoken_of() {
    let end = end("", NCU, 0);
    assert_eq!(end.profile.rung, "ncu.asked");
    assert!(end.refused.is_empty(), "{:?}", end.refused);
    assert!(end.profile.gaps.iter().all(|gap| !gap.text.contains("cupti")));
}

#[test]
fn without_the_sanitizers_own_summary_nothing_is_clean() {
    for word in ["no-summary", "device-not-supported"] {
        let end = end(&format!("compute-sanitizer {word}\n"), MEMCHECK, 0);
        assert!(
            end.profile.sanitizer.iter().all(|s| s.verdict != "clean"),
            "{:#?}",
            end.profile.sanitizer
        );
        assert!(!end.refused.is_empty(), "{word}");
    }
}

#[test]
fn what_the_guarded_run_finds_is_a_finding() {
    let end = end("compute-sanitizer no-summary\nrgpu-runner guard-finds\n", MEMCHECK, 1);
    assert!(
        end.profile.sanitizer.iter().any(|s| s.verdict == "found"),
        "{:#?}",
        end.profile.sanitizer
    );
}

#[test]
fn a_lower_rung_than_asked_is_status_five_and_still_a_profile() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("ncu no-kernels\n");
    let line = "profile --kernel vecadd --mode ncu --at-least ncu.basic --remote h200";
    insta::assert_snapshot!(laptop.show(line));
    assert_eq!(laptop.latest_json("run.json")["exit"], 5);
    assert!(laptop.latest().join("profile.json").is_file());
}

#[test]
fn a_rung_that_cannot_be_reached_is_refused_before_anything_is_sent() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    let refused = |line: &str, words: &str| {
        let output = laptop.run(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(status(&output), 5, "{said}");
        assert!(said.contains(words), "{said}");
        assert!(!said.contains("uploading"), "{said}");
        let record = laptop.latest_json("run.json");
        assert_eq!(
            (&record["state"], record["jobs"].as_array().unwrap().len()),
            (&"failed".into(), 0)
        );
    };
    let at_least = |mode: &str, rung: &str| {
        format!("profile --kernel vecadd --mode {mode} --at-least {rung} --remote h200")
    };
    refused(&at_least("nsys", "ncu.asked"), "reaches rung `nsys.full` at best, below `ncu.asked`");
    // What it can reach it tries.
    assert_eq!(status(&laptop.run(&at_least("nsys", "nsys.cuda"))), 0);
    assert_eq!(status(&laptop.run(&at_least("bench", "events"))), 0);
    host.mischief("nvidia-smi no-devices\n");
    let laptop_forgets = laptop.run("doctor h200 --fresh");
    assert_eq!(status(&laptop_forgets), 0);
    refused(&at_least("ncu", "ncu.basic"), "without a GPU the run cannot reach rung `ncu.basic`");
    assert_eq!(status(&laptop.run(&at_least("ncu", "cpu"))), 0);
}

#[test]
fn where_no_gpu_is_to_verify_on_nothing_was_verified_and_the_status_says_so() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("nvidia-smi no-devices\n");
    for mode in ["verify", "sanitizer"] {
        let line = format!("profile --kernel vecadd --mode {mode} --remote h200");
        let output = laptop.run(&line);
        let shown = laptop.shown(&line, &output);
        assert_eq!(status(&output), 4, "{shown}");
        // Once in the report, and as the failure with what to do next.
        let said = "error: nothing was verified: `h200` has no working GPU";
        assert!(
            shown.contains(said) && shown.contains("help: choose a host with a GPU"),
            "{shown}"
        );
        let head = format!("{mode} was requested, but h200 has no GPU: nothing was verified");
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert!(words.join(" ").contains(&head), "{shown}");
        assert!(laptop.latest().join("profile.json").is_file());
        let story = laptop.show("runs show");
        assert!(story.contains("  error: nothing was verified"), "{story}");
    }
}

#[test]
fn a_kernel_that_is_wrong_crashes_or_hangs_is_status_six() {
    for (mischief, line, code) in [
        ("rgpu-runner wrong-result\n", NCU, "wrong_result"),
        ("rgpu-runner illegal-access verify\n", NCU, "illegal_access"),
        (
            "rgpu-runner hang verify\n",
            "profile --kernel vecadd --timeout 5s --remote h200 --json",
            "timeout",
        ),
    ] {
        let (exit, error) = error(mischief, line);
        assert_eq!((exit, error["code"].as_str()), (6, Some(code)), "{error:#}");
        assert_eq!(error["side"], "kernel");
    }
}

#[test]
fn a_host_unfit_to_measure_on_is_a_warning_and_under_strict_an_error() {
    let bench = "profile --kernel vecadd --mode bench --remote h200 --json";
    let warned = end("rgpu-runner unfit\n", bench, 0);
    assert!(!warned.profile.warnings.is_empty());
    let (exit, error) = error("rgpu-runner unfit\n", &format!("{bench} --strict"));
    assert_ne!(exit, 0);
    assert!(
        error["cause"].as_str().is_some_and(|c| c.contains("not suitable for measurements")),
        "{error:#}"
    );
}

#[test]
fn a_gpu_that_others_use_is_left_alone_unless_it_may_be_shared() {
    let (exit, error) = error("nvidia-smi foreign-process\n", NCU);
    assert_eq!((exit, error["code"].as_str()), (4, Some("no_gpu")), "{error:#}");
    // Probes are always answered, so the process is seen only when the lock is asked for.
    let shared = end("nvidia-smi foreign-process\n", &format!("{NCU} --share-gpu"), 0);
    assert_eq!(shared.profile.rung, "ncu.asked");
}

#[test]
fn a_gpu_that_is_not_there_is_named_with_those_that_are() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    insta::assert_snapshot!(laptop.show("profile --kernel vecadd --remote h200 --gpu 7"));
    insta::assert_snapshot!(laptop.show("profile --kernel vecadd --remote h200 --gpu b200"));
}

#[test]
fn a_tool_that_hangs_is_stopped_with_all_it_started_and_costs_one_rung() {
    let end = end("ncu hang full\n", &format!("{NCU} --timeout 2s"), 0);
    assert!(has(&end, "ncu.asked", "timeout"), "{:?}", end.refused);
    assert_eq!(end.profile.rung, "ncu.basic");
}

#[test]
fn a_tool_that_is_not_there_is_a_rung_left_out() {
    let laptop = Laptop::new();
    FakeHost::with(&laptop, &["nvcc", "nvidia-smi", "nsys"]);
    let output = laptop.run(NCU);
    assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "nsys.cuda");
    assert!(profile.ladder.iter().any(|r| r.rung == "ncu.asked" && r.code == "tool_missing"));
}

#[test]
fn a_host_without_a_gpu_runs_the_reference_and_the_first_line_says_so() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("nvidia-smi no-devices\n");
    let shown = laptop.show("profile --kernel vecadd --mode ncu --remote h200");
    assert!(shown.contains("nothing was measured on a GPU of `h200`"), "{shown}");
    assert!(shown.ends_with("status 5\n"), "{shown}");
    let (_, stdout) = shown.split_once("--- stdout\n").unwrap();
    let first = stdout.lines().next().unwrap().to_lowercase();
    assert!(first.contains("no gpu"), "{shown}");
    let profile = laptop.latest_json("profile.json");
    assert!(["cpu", "nvtx"].contains(&profile["rung"].as_str().unwrap()), "{}", profile["rung"]);
    assert!(laptop.latest().join("cubin/vecadd.cubin").is_file());
}

/// What a kernel can do that ends its process with status 0.
const EARLY_ENDS: [&str; 4] =
    ["ends-early", "leaves-no-report", "leaves-out-a-case", "checks-nothing"];

#[test]
fn a_kernel_that_ends_its_process_with_status_zero_fails_every_mode() {
    let sizes = "--kernel vecadd --problem-sizes tiny --problem-sizes odd --remote h200 --json";
    for (mode, job, ends) in [
        ("verify", "verify", &EARLY_ENDS[..]),
        ("bench", "verify", &EARLY_ENDS[..1]),
        ("bench", "time", &EARLY_ENDS[..]),
        ("ncu", "once", &EARLY_ENDS[..3]),
        ("nsys", "once", &EARLY_ENDS[..1]),
        ("nvtx", "verify", &EARLY_ENDS[..1]),
        ("deep", "once", &EARLY_ENDS[..1]),
        ("sanitizer", "once", &EARLY_ENDS[..3]),
    ] {
        for word in ends {
            let laptop = Laptop::new();
            FakeHost::new(&laptop).mischief(&format!("rgpu-runner {word} {job}\n"));
            let output = laptop.run(&format!("profile --mode {mode} {sizes}"));
            let shown = laptop.shown(mode, &output);
            assert_eq!(status(&output), 6, "{mode} {job} {word}: {shown}");
            assert!(shown.contains("kernel_failed"), "{mode} {job} {word}: {shown}");
            assert!(!shown.contains("\"clean\""), "{mode} {job} {word}: {shown}");
            // A signal ends no process with status 0.
            assert!(!shown.contains("signal"), "{mode} {job} {word}: {shown}");
            if (*word, job) == ("ends-early", "verify") {
                let told = "with status 0: something in it called `exit` or `_exit`";
                assert!(shown.contains(told), "{mode} {job} {word}: {shown}");
            }
        }
    }
}

#[test]
fn a_kernel_that_ends_its_process_with_status_zero_fails_a_comparison_and_a_suite() {
    for job in ["verify", "pair"] {
        for word in EARLY_ENDS {
            let laptop = Laptop::new();
            FakeHost::new(&laptop).mischief(&format!("rgpu-runner {word} {job}\n"));
            let line = "compare --kernel transpose-conflicts --kernel transpose-padded \
                        --mode bench --problem-sizes tiny --problem-sizes odd --remote h200";
            let output = laptop.run(line);
            // A rung without a report is left for the next one first.
            let expected = if (job, word) == ("pair", "leaves-no-report") { 5 } else { 6 };
            assert_eq!(status(&output), expected, "{job} {word}: {}", laptop.shown(line, &output));
        }
    }
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("rgpu-runner leaves-out-a-case time\n");
    laptop.write(
        "bench.toml",
        "[[target]]\nname = \"memory:vecadd\"\nkernel = \"vecadd\"\n[target.matrix]\nsizes.n = [1000]\n",
    );
    let line = "bench run --remote h200";
    let output = laptop.run(line);
    assert_ne!(status(&output), 0, "{}", laptop.shown(line, &output));
}
