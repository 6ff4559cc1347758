//! Mode `deep`: the kernels that hold the time are found first and looked at closely then.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rgpu_model::{Launch, Profile};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

/// A deep run of a program on a host with these tools.
fn deep(tools: &[&str], program: &str, more: &str) -> (Profile, String) {
    let laptop = Laptop::new();
    FakeHost::with(&laptop, tools);
    let script = laptop.write(program, "#!/bin/sh\necho done\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    let line = format!("profile --mode deep --remote h200 --json {more} -- ./{program}");
    let output = laptop.run(&line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(&line, &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    laptop.wait_until_quiet();
    let run = &profile.run.id;
    let commands = laptop.project(format!("artifacts/runs/{run}/commands.sh"));
    let commands = fs::read_to_string(commands).unwrap();
    (profile, commands)
}

/// Checks that the number of profiled launches of each chosen kernel is that of the launches with
/// counters.
fn assert_profiled_is_counted(profile: &Profile) {
    for choice in &profile.selection.as_ref().unwrap().kernels {
        let of_kernel = |l: &&Launch| l.kernel == choice.kernel && !l.metrics.is_empty();
        let counted = profile.launches.iter().filter(of_kernel).count() as u64;
        assert_eq!(choice.profiled, counted, "{}", choice.kernel);
    }
}

#[test]
fn three_of_ten_kernels_hold_the_time_and_ncu_is_asked_for_exactly_those() {
    let (profile, _) = deep(&["ncu", "nvidia-smi"], "ten_kernels", "--top 3");
    assert_eq!(profile.run.mode, "deep");
    let selection = profile.selection.as_ref().unwrap();
    let names: Vec<&str> = selection.kernels.iter().map(|k| k.kernel.as_str()).collect();
    assert_eq!(
        names,
        [
            "heavy(float *, long long)",
            "void tile<float, (int)4>(T1 *, long long)",
            "void tile<double, (int)2>(T1 *, long long)"
        ]
    );
    // The chosen kernels hold 92 % of the time. The host's ncu profiled only some of them, and only
    // those count as covered.
    let kernels = || selection.kernels.iter();
    let chosen: f64 = kernels().map(|k| k.percent).sum();
    assert!((90.0..94.0).contains(&chosen), "{chosen}");
    let profiled: f64 = kernels().filter(|k| k.profiled > 0).map(|k| k.percent).sum();
    assert!(profiled > 0.0 && profiled < chosen, "{profiled} of {chosen}");
    assert_eq!(selection.covered_percent, Some(profiled));
    // Up to three launches of each, from all of the run, in one process. The host's ncu always
    // writes the same report, and the selection says what was profiled in the end.
    let seen: Vec<u64> = selection.kernels.iter().map(|k| k.launches).collect();
    assert_eq!(seen, [3, 8, 2]);
    assert_profiled_is_counted(&profile);
    let names = "^(_Z5heavyPfx|_Z4tileIfLi4EEvPT_x|_Z4tileIdLi2EEvPT_x)$";
    let passes: Vec<String> = profile
        .ladder
        .iter()
        .filter(|record| record.step.starts_with("profile"))
        .map(|record| record.argv.join(" "))
        .collect();
    let chosen = format!(
        "--kernel-id ::regex:{names}:^(1|2|3|7)$ --kernel-name-base mangled --launch-count 9"
    );
    assert!(passes.len() == 1 && passes[0].contains(&chosen), "{passes:?}");
    // No nsys there: ncu's own times stand in, which is said.
    assert!(profile.ladder.iter().any(|r| r.rung == "nsys.full" && r.code == "tool_missing"));
    assert!(profile.ladder.iter().any(|r| r.rung == "ncu.times" && r.ok));
    assert_eq!(profile.rung, "ncu.asked", "{:?}", profile.ladder);
    assert_eq!(profile.launches.len(), 3);
    assert!(profile.launches.iter().all(|launch| launch.metrics.len() > 50));
    assert_eq!(profile.kernels.len(), 10);
}

#[test]
fn a_small_budget_takes_fewer_launches_of_each_kernel() {
    let (profile, commands) =
        deep(&["ncu", "nvidia-smi"], "ten_kernels", "--top 2 --budget 4MB --set full");
    let selection = profile.selection.as_ref().unwrap();
    assert_profiled_is_counted(&profile);
    assert!(selection.left_out.iter().any(|gap| gap.code == "budget_launches"));
    assert_eq!(selection.price.as_ref().unwrap().limit_bytes, Some(4_000_000));
    assert!(commands.contains("^(2)$") && commands.contains("--launch-count 2"), "{commands}");
}

#[test]
fn the_users_own_launches_are_taken_in_a_row_by_a_pass_for_each_kernel() {
    let (profile, commands) =
        deep(&["ncu", "nvidia-smi"], "ten_kernels", "--top 2 --launch-count 2");
    assert_profiled_is_counted(&profile);
    assert!(!commands.contains("--kernel-id"), "{commands}");
    assert!(commands.contains("--launch-count 2"), "{commands}");
    let steps: Vec<&str> = profile.ladder.iter().map(|r| r.step.as_str()).collect();
    assert!(steps.contains(&"profile") && steps.contains(&"profile-2"), "{steps:?}");
}

#[test]
fn launches_that_ncu_counts_otherwise_are_taken_by_a_pass_for_each_kernel() {
    let laptop = Laptop::new();
    let host = FakeHost::with(&laptop, &["ncu", "nvidia-smi"]);
    host.mischief("ncu no-kernels --kernel-id\n");
    let script = laptop.write("ten_kernels", "#!/bin/sh\necho done\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    let line = "profile --mode deep --top 2 --remote h200 --json -- ./ten_kernels";
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    let passes: Vec<_> = profile
        .ladder
        .iter()
        .filter(|record| record.step.starts_with("profile"))
        .map(|record| (record.step.as_str(), record.ok, record.code.as_str()))
        .collect();
    let expected =
        [("profile", false, "no_kernels"), ("profile-2", true, ""), ("profile-3", true, "")];
    assert_eq!(passes, expected, "{shown}");
    assert_eq!(profile.rung, "ncu.asked");
    assert!(!profile.launches.is_empty());
    let second = profile.ladder.iter().find(|record| record.step == "profile-3").unwrap();
    let argv = second.argv.join(" ");
    let expected = "--kernel-name regex:^_Z4tileIfLi4EEvPT_x$ --kernel-name-base mangled";
    assert!(argv.contains(expected) && argv.contains("--launch-count 4"), "{argv}");
}

#[test]
fn the_least_budget_still_takes_one_launch_and_says_what_it_left_out() {
    let (profile, _) = deep(&["ncu", "nvidia-smi"], "ten_kernels", "--budget 1s");
    let selection = profile.selection.as_ref().unwrap();
    assert_profiled_is_counted(&profile);
    assert_eq!(selection.set.as_deref(), Some("minimal"));
    let codes: Vec<&str> = selection.left_out.iter().map(|gap| gap.code.as_str()).collect();
    for code in ["budget_launches", "budget_kernel", "budget_sections", "over_budget"] {
        assert!(codes.contains(&code), "{code}: {codes:?}");
    }
}

#[test]
fn filters_narrow_what_the_top_is_chosen_from() {
    let more = "--top 1 -k regex:^(add|tile)$ --kernel-exclude tile --light";
    let (profile, commands) = deep(&["ncu", "nvidia-smi"], "ten_kernels", more);
    let selection = profile.selection.as_ref().unwrap();
    assert_eq!(selection.kernels[0].kernel, "add(float *, long long)");
    assert_eq!(selection.set.as_deref(), Some("minimal"));
    assert!(commands.contains("^_Z3addPfx$"), "{commands}");
}

#[test]
fn a_profile_holds_the_time_line_of_nsys_and_the_counters_of_ncu() {
    let (profile, commands) =
        deep(&["ncu", "nsys", "nvidia-smi"], "regions", "--top 1 --regions A");
    let kinds: Vec<&str> = profile.artifacts.iter().map(|a| a.kind.as_str()).collect();
    assert!(
        kinds.contains(&"nsys_rep") && kinds.contains(&"ncu_rep"),
        "{kinds:?} {:?}",
        profile.ladder
    );
    assert!(profile.ladder.iter().any(|r| r.rung == "nsys.full" && r.ok));
    assert!(profile.launches.iter().all(|launch| !launch.metrics.is_empty()));
    assert!(!profile.regions.is_empty() && !profile.copies.is_empty());
    let selection = profile.selection.as_ref().unwrap();
    assert_eq!(selection.kernels[0].kernel, "tiled_matmul");
    assert!(commands.contains("^tiled_matmul$"), "{commands}");
    assert!(commands.contains("--nvtx-include A/"), "{commands}");
}

#[test]
fn counters_that_are_refused_leave_the_time_line_standing() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("ncu counters-refused\n");
    let line = "profile --kernel nested-regions --mode deep --remote h200 --json";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "nsys.full");
    assert!(!profile.launches.is_empty());
    let selection = profile.selection.unwrap();
    assert!(selection.left_out.iter().any(|gap| gap.code == "counters_refused"), "{selection:?}");
}

#[test]
fn a_crash_under_ncu_is_told_although_a_lower_rung_measures_the_program() {
    let laptop = Laptop::new();
    let host = FakeHost::with(&laptop, &["ncu", "nsys", "nvidia-smi"]);
    host.mischief("ncu crash full\nncu crash detailed\n");
    let script = laptop.write("regions", "#!/bin/sh\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let line = format!("profile --mode deep --top 1 --remote h200 -- {}", script.display());
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    assert_eq!(profile.rung, "ncu.basic", "{shown}");
    let warnings: Vec<&str> = profile.warnings.iter().map(|gap| gap.text.as_str()).collect();
    let [text] = warnings[..] else { panic!("{warnings:?}") };
    let crash = "the program was ended by signal 6 (SIGABRT) on rung ncu.asked, but not on rung \
                 nsys.full; ncu seems to crash it";
    assert!(text.starts_with(crash) && text.contains("--replay-mode application"), "{text}");
}

/// JAX programs are known to end with a segmentation fault under ncu.
#[test]
fn a_program_that_only_ncu_crashes_keeps_its_time_line_and_its_own_status() {
    let laptop = Laptop::new();
    let host = FakeHost::with(&laptop, &["ncu", "nsys", "nvidia-smi"]);
    host.mischief("ncu program-crashes\n");
    let runs = laptop.path("runs");
    let script = laptop.write("regions", &format!("#!/bin/sh\necho >>{}\n", runs.display()));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for command in ["profile", "exec"] {
        let line = format!("{command} --mode deep --top 1 --remote h200 -- {}", script.display());
        let output = laptop.run(&line);
        let shown = laptop.shown(&line, &output);
        assert_eq!(status(&output), 0, "{shown}");
        // The survey shows that the program runs: it is not run without a tool.
        assert_eq!(fs::read_to_string(&runs).unwrap().lines().count(), 2, "{shown}");
        fs::remove_file(&runs).unwrap();
        let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
        assert_eq!(profile.rung, "nsys.full", "{shown}");
        assert!(!profile.launches.is_empty() && !profile.kernels.is_empty());
        let warnings: Vec<&str> = profile.warnings.iter().map(|gap| gap.text.as_str()).collect();
        let [text] = warnings[..] else { panic!("{warnings:?}") };
        let crash = "the program was ended by signal 11 (SIGSEGV) on rung ncu.asked, but not on \
                     rung nsys.full; ncu seems to crash it";
        assert!(text.starts_with(crash) && text.contains("--replay-mode application"), "{text}");
        assert!(!text.contains("JAX"), "it is no program of Python: {text}");
        let gaps = &profile.selection.as_ref().unwrap().left_out;
        assert!(gaps.iter().any(|gap| gap.code == "program_failed"), "{gaps:?}");
    }
}
