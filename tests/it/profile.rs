//! `rgpu profile` on a played H200: every mode on its top rung, and what a run leaves behind.

use std::fs;
use std::path::Path;

use rgpu_model::Profile;
use rgpu_protocol::Digest;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

/// The profile that `--json` prints, checked against the type that the schema is made of.
fn profile(laptop: &Laptop, line: &str, expected: i32) -> Profile {
    let output = laptop.run(line);
    assert_eq!(status(&output), expected, "{}", laptop.shown(line, &output));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let profile: Profile = serde_json::from_value(value.clone()).unwrap();
    // No field is lost or renamed on the way through the type, so the document is as its schema.
    assert_eq!(serde_json::to_value(&profile).unwrap(), value);
    let kept: serde_json::Value =
        serde_json::from_slice(&fs::read(laptop.latest().join("profile.json")).unwrap()).unwrap();
    assert_eq!(kept, value, "profile.json is not what was printed");
    profile
}

#[test]
fn ncu_gives_counters_of_each_launch() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let profile = profile(&laptop, "profile --kernel vecadd --mode ncu --remote h200 --json", 0);
    assert_eq!(profile.schema, "rgpu.profile/1");
    assert_eq!((profile.rung.as_str(), profile.run.mode.as_str()), ("ncu.asked", "ncu"));
    let launch = &profile.launches[0];
    assert_eq!(launch.kernel, "vecadd");
    assert!(launch.metrics.contains_key("gpu__time_duration.sum"));
    assert!(launch.metrics.len() > 500, "{} metrics", launch.metrics.len());
    assert!(!launch.stalls.is_empty() && !profile.findings.is_empty());
    // The time is the runner's, not the tool's.
    assert_eq!(profile.timing.as_ref().unwrap().median_ns, 20_000.0);
    assert_eq!(profile.correctness.as_ref().unwrap().verdict, "right");
    let host = profile.host.as_ref().unwrap();
    assert_eq!((host.driver.as_deref(), host.cuda.as_deref()), (Some("580.159.04"), Some("13.0")));
    let hot = laptop.run("disasm latest --hot");
    let listing = String::from_utf8_lossy(&hot.stdout);
    assert!(listing.starts_with("vecadd, launch 0: ") && listing.contains("FADD"), "{listing}");
    // Newer runs without values per instruction are passed over.
    assert_eq!(status(&laptop.run("build vecadd --arch sm_90a --remote h200")), 0);
    assert_eq!(laptop.run("disasm latest --hot").stdout, hot.stdout);
    laptop.wait_until_quiet();
}

#[test]
fn every_mode_reaches_its_top_rung() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    for (line, rung) in [
        ("--kernel tiled-matmul --mode ncu --set full", "ncu.asked"),
        ("--kernel nested-regions --mode nsys", "nsys.full"),
        ("--kernel vecadd --mode sanitizer --tool memcheck", "sanitizer"),
        ("--kernel vecadd --mode bench --problem-sizes n=16777216", "events"),
        ("--kernel vecadd --mode verify", "verify"),
    ] {
        let profile = profile(&laptop, &format!("profile {line} --remote h200 --json"), 0);
        assert_eq!(profile.rung, rung, "{line}");
        let refused: Vec<_> = profile.ladder.iter().filter(|record| !record.ok).collect();
        assert!(refused.is_empty(), "{line}: {refused:#?}");
    }
    laptop.wait_until_quiet();
}

#[test]
fn the_table_of_each_mode_is_what_a_user_sees() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    insta::assert_snapshot!(laptop.show("profile --kernel vecadd --mode ncu --remote h200"));
    insta::assert_snapshot!(
        laptop.show("profile --kernel nested-regions --mode nsys --remote h200")
    );
    insta::assert_snapshot!(laptop.show("profile --kernel race --mode sanitizer --remote h200"));
    insta::assert_snapshot!(laptop.show("profile --kernel vecadd --mode bench --remote h200 -q"));
}

#[test]
fn nsys_puts_kernels_into_their_regions() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let line = "profile --kernel nested-regions --mode nsys --remote h200 --json";
    let profile = profile(&laptop, line, 0);
    let names: Vec<String> = profile.regions.iter().map(|r| r.path.join("::")).collect();
    for name in ["A", "A::A1", "B"] {
        assert!(names.iter().any(|n| n == name), "`{name}` is not among {names:?}");
    }
    assert_eq!(profile.launches.len(), 7);
}

#[test]
fn findings_of_the_sanitizer_are_status_one_with_file_and_line() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    for (kernel, tool, file) in [
        ("oob", "memcheck", "oob.cu"),
        ("race", "racecheck", "race.cu"),
        ("uninit", "initcheck", "uninit.cu"),
        ("bad-barrier", "synccheck", "bad_barrier.cu"),
    ] {
        let line = format!(
            "profile --kernel {kernel} --mode sanitizer --tool {tool} --remote h200 --json"
        );
        let profile = profile(&laptop, &line, 1);
        let result = &profile.sanitizer[0];
        assert_eq!((result.tool.as_str(), result.verdict.as_str()), (tool, "found"));
        let cause = &result.causes[0];
        assert!(cause.file.as_deref().is_some_and(|f| f.ends_with(file)), "{cause:#?}");
        assert!(cause.line.is_some(), "{cause:#?}");
    }
    // Clean only on the tool's own word.
    let clean =
        profile(&laptop, "profile --kernel vecadd --mode sanitizer --remote h200 --json", 0);
    assert_eq!(clean.sanitizer.len(), 4);
    assert!(clean.sanitizer.iter().all(|s| s.verdict == "clean"), "{:#?}", clean.sanitizer);
}

#[test]
fn a_program_is_profiled_as_it_is() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let app = laptop.path("vecadd");
    std::os::unix::fs::symlink("/bin/echo", &app).unwrap();
    let line = format!("profile --mode ncu --remote h200 --json -- {} hello", app.display());
    let profile = profile(&laptop, &line, 0);
    assert_eq!(
        (profile.kernel.language.as_str(), profile.kernel.name.as_str()),
        ("program", "vecadd")
    );
    assert_eq!(profile.launches[0].kernel, "vecadd");
    let log = fs::read_to_string(laptop.latest().join("log/profile.stdout")).unwrap();
    assert!(log.lines().any(|line| line == "hello"), "{log}");
}

#[test]
fn a_run_leaves_everything_to_read_it_again_and_every_artifact_is_whole() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let line = "profile --kernel vecadd --mode ncu --remote h200 --label who=me --json";
    let profile = profile(&laptop, line, 0);
    let run = laptop.latest();
    for file in [
        "run.json",
        "plan-1.json",
        "events.jsonl",
        "env.json",
        "inputs.json",
        "commands.sh",
        "profile.json",
        "log/profile.stdout",
    ] {
        assert!(run.join(file).is_file(), "`{file}` is missing");
    }
    assert_eq!(profile.run.labels["who"], "me");
    assert!(profile.artifacts.iter().any(|a| a.kind == "ncu_rep"));
    for artifact in &profile.artifacts {
        let bytes = fs::read(run.join(&artifact.path)).unwrap();
        assert_eq!(bytes.len() as u64, artifact.size, "{}", artifact.path);
        assert_eq!(Digest::sha256(&bytes).as_str(), artifact.sha256, "{}", artifact.path);
    }
    assert!(laptop.project("artifacts/vecadd.sm_90a.cubin").is_file());
    let commands = fs::read_to_string(run.join("commands.sh")).unwrap();
    assert!(commands.contains("ncu") && commands.contains("--set"), "{commands}");
    // The same profile again, without the host.
    fs::remove_dir_all(laptop.path("h200")).unwrap();
    let shown = laptop.run("runs show latest --json");
    let kept = fs::read(run.join("profile.json")).unwrap();
    assert!(shown.stdout == kept, "{}", laptop.shown("runs show latest --json", &shown));
    assert_no_partial_files(&run);
}

fn assert_no_partial_files(run: &Path) {
    for entry in walkdir::WalkDir::new(run).into_iter().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(!name.contains(".part") && !name.contains(".tmp"), "{name}");
    }
}

#[test]
fn a_dry_run_goes_by_what_this_machine_said_last() {
    let laptop = Laptop::new();
    let line = "profile --kernel vecadd --dry-run";
    let unknown = "nothing is known about `local` yet";
    assert!(laptop.show(line).contains(unknown));
    assert_eq!(status(&laptop.run("remote check local")), 0);
    assert!(!laptop.show(line).contains(unknown));
}

#[test]
fn a_dry_run_prints_the_exact_commands_and_touches_nothing() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let line = "profile --kernel vecadd --mode ncu --set sol --remote h200 --dry-run";
    let shown = laptop.show(line);
    assert!(shown.ends_with("status 0\n"), "{shown}");
    for word in ["ncu", "SpeedOfLight_RooflineChart", "--nvtx-include", "rgpu-runner"] {
        assert!(shown.contains(word), "`{word}` is missing:\n{shown}");
    }
    // The kernel needs no flag, as for `build`.
    assert_eq!(
        laptop.show(&line.replace("--kernel ", "")).split_once('\n').unwrap().1,
        shown.split_once('\n').unwrap().1
    );
    let both = laptop.run("profile vecadd --kernel vecadd --remote h200");
    assert_eq!(status(&both), 2);
    assert!(!laptop.project("artifacts").exists());
}

#[test]
fn a_taken_name_and_a_folder_with_something_in_it_are_refused_before_anything_runs() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.run("exec --run-id mine -- true");
    laptop.write("out/precious.txt", "kept");
    insta::assert_snapshot!(laptop.show("profile --kernel vecadd --remote h200 --run-id mine"));
    insta::assert_snapshot!(laptop.show("profile --kernel vecadd --remote h200 --out out --json"));
}

#[test]
fn code_that_does_not_compile_is_told_in_the_compilers_words_with_the_local_path() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write(
        "kernels/bad/kernel.toml",
        "name = \"bad\"\nlanguage = \"cuda\"\nsource = \"bad.cu\"\nentry = { device = \"bad\" }\n\n[[arg]]\nname = \"y\"\ndtype = \"f32\"\nshape = [16]\nrole = \"out\"\n\n[launch]\ngrid = [1]\nblock = [16]\n",
    );
    laptop.write(
        "kernels/bad/bad.cu",
        "extern \"C\" __global__ void bad(float *y) {\n    y[threadIdx.x] = does_not_compile;\n}\n",
    );
    insta::assert_snapshot!(laptop.show("profile --kernel bad --remote h200"));
    laptop.wait_until_quiet();
}

#[test]
fn a_warm_run_asks_the_host_nothing_and_a_changed_host_is_asked_again() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    let line = "profile --kernel vecadd --mode bench --remote h200 --json";
    let first = profile(&laptop, line, 0);
    // A probe would now see no GPU; what is known still holds, as host and boot are the same.
    host.mischief("rgpu-runner none\n");
    let second = profile(&laptop, line, 0);
    assert_eq!(first.host, second.host);
}

#[test]
fn without_the_kernel_that_it_tries_the_doctor_tells_all_else_and_what_to_set() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    // A program that lies where no kernels are above it.
    let built = std::path::Path::new(env!("CARGO_BIN_EXE_rgpu"));
    let lonely = tempfile::tempdir_in(built.parent().unwrap()).unwrap();
    let program = lonely.path().join("rgpu");
    fs::hard_link(built, &program).unwrap();
    let doctor = |more: &[&str]| {
        let mut command = laptop.rgpu(["doctor", "h200"].iter().chain(more));
        let mut lone = std::process::Command::new(&program);
        lone.args(command.get_args()).current_dir(laptop.path("project")).env_clear();
        lone.envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
        command.stdin(std::process::Stdio::null());
        lone.stdin(std::process::Stdio::null()).output().unwrap()
    };
    let output = doctor(&[]);
    let shown = laptop.shown("doctor h200", &output);
    assert_eq!(status(&output), 0, "{shown}");
    let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("no mode was tried: rgpu's own `vecadd` is not in"), "{shown}");
    assert!(flat.contains("set `kernel_path` in your settings"), "{shown}");
    assert!(shown.contains("H200") && shown.contains("  agent "), "{shown}");
    let document: serde_json::Value = serde_json::from_slice(&doctor(&["--json"]).stdout).unwrap();
    assert!(document["untried"].as_str().unwrap().contains("kernel_path"), "{document}");
}

#[test]
fn the_doctor_tries_every_mode_and_says_what_each_reaches() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu counters-refused\n");
    let output = laptop.run("doctor h200 --json");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", laptop.shown("doctor h200 --json", &output)));
    let reached = |mode: &str| {
        let modes = value["modes"].as_array().unwrap();
        let line = modes.iter().find(|line| line["mode"] == mode);
        line.unwrap_or_else(|| panic!("no `{mode}` in {modes:#?}")).clone()
    };
    assert_eq!(reached("ncu")["rung"], "nsys.cuda");
    assert!(reached("ncu")["why"].to_string().contains("ERR_NVGPUCTRPERM"), "{value:#}");
    assert_eq!(reached("nsys")["rung"], "nsys.full");
    assert_eq!(reached("bench")["rung"], "events");
    laptop.wait_until_quiet();
}

#[test]
fn events_and_the_result_as_json_are_not_both_put_on_stdout() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    for line in [
        "profile --kernel vecadd --remote h200",
        "profile --kernel vecadd --remote h200,local",
        "exec --lang sh --code 'echo out'",
        "exec --mode nsys --remote h200 --lang sh --code true",
        "build vecadd --remote h200",
        "compare --kernel vecadd --kernel reduce --remote h200",
        "runs attach latest",
    ] {
        let line = format!("{line} --json --events -");
        let output = laptop.run(&line);
        let shown = laptop.shown(&line, &output);
        assert_eq!(status(&output), 2, "{shown}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&shown);
        assert_eq!(document["error"]["what"], "stdout is used for the result", "{shown}");
    }
    assert!(!laptop.project("artifacts/runs/latest").exists(), "nothing was begun");
}

#[test]
fn what_no_host_could_profile_begins_no_run() {
    let laptop = Laptop::new();
    let shown = laptop.show("profile --kernel vecadd --mode torch");
    assert!(shown.contains("mode `torch` needs a Python kernel"), "{shown}");
    assert!(shown.ends_with("status 2\n"), "{shown}");
    assert!(!laptop.project("artifacts/runs/latest").exists());
}

#[test]
fn events_on_stdout_tell_the_whole_story_and_nothing_else() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let output = laptop.run("profile --kernel vecadd --mode bench --remote h200 --events - -q");
    assert_eq!(status(&output), 0, "{}", laptop.shown("", &output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().take_while(|line| line.starts_with('{'));
    let events: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let has = |word: &str| events.iter().any(|event| event.to_string().contains(word));
    for word in ["started", "gpu_locked", "rung_started", "rung_ended", "artifact", "ended"] {
        assert!(has(&format!("\"{word}\"")), "`{word}` is missing:\n{text}");
    }
}

#[test]
fn no_launches_are_no_measurement() {
    let laptop = Laptop::new();
    for line in [
        "profile --kernel vecadd --iters 0",
        "profile --kernel vecadd --launch-count 0",
        "compare --kernel vecadd --kernel softmax --iters 0",
    ] {
        let output = laptop.run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains("0 is not in 1.."), "{said}");
    }
}
