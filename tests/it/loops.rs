//! `rgpu loop` as a user sees it, on a played GPU host: what is kept and what is taken back.

mod crashes;
mod hostile_workers;
mod results;
mod reviewers;
mod settings;

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::documents;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for, words};
use crate::preload::OtherClock;

/// A worker that gives the kernel the next line of `proposals`, and claims a fine time.
const WORKER: &str = r#"#!/bin/sh
nonce=$(sed -n 's/.*"nonce": "\([0-9a-f]*\)".*/\1/p' "$1" | head -1)
iter=$(sed -n 's/.*"iteration": \([0-9]*\),.*/\1/p' "$1" | head -1)
proposal=$(sed -n "${iter}p" proposals)
decision=KEEP
case $proposal in
    nothing) ;;
    delete) rm kernels/k/k.cu ;;
    reference) echo '// easier' >> kernels/k/reference.c ;;
    hide) echo '*' > .gitignore; echo x > hidden ;;
    fail) exit 3 ;;
    revert) decision=REVERT; echo '// worse' >> kernels/k/k.cu ;;
    long) sed -i "s|// rgpu-fake.*|// rgpu-fake: time 0.5|" kernels/k/k.cu
        seq 3000 | sed 's|^|// line |' >> kernels/k/k.cu ;;
    slow-best|slow-start) copy=${proposal#slow-}
        file=$(echo artifacts/loop/*/"$copy"/kernels/k/k.cu); chmod u+w "$file"
        echo '// slower' >> "$file"; sed -i 's|// rgpu-fake.*|// rgpu-fake: time 4|' "$file"
        echo '// a comment' >> kernels/k/k.cu ;;
    vanish) rm -r .rgpu; sed -i "s|// rgpu-fake.*|// rgpu-fake: time 0.5|" kernels/k/k.cu ;;
    flood) head -c 100000000 /dev/zero | tr '\0' 'x'; echo; echo the end of it ;;
    hang) echo worker; sleep 1000; true ;;
    *) sed -i "s|// rgpu-fake.*|// rgpu-fake: $proposal|" kernels/k/k.cu ;;
esac
echo "{\"iteration\": $iter, \"nonce\": \"$nonce\", \"decision\": \"$decision\", \"metric_name\": \"gmean_us\", \"metric_value\": 0.1, \"note\": \"$proposal\"}" > "$2/new"
mv "$2/new" "$2/worker_result.json"
"#;

/// A project with a kernel, a worker and a played host.
pub(crate) struct TestLoop {
    pub(crate) laptop: Laptop,
    host: FakeHost,
}

impl TestLoop {
    /// A worker that makes these proposals, one an iteration.
    pub(crate) fn new(proposals: &[&str]) -> Self {
        let laptop = Laptop::new();
        let host = FakeHost::new(&laptop);
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/transpose-conflicts");
        let read = |name: &str| fs::read_to_string(format!("{shipped}/{name}")).unwrap();
        let toml = read("kernel.toml").replace("transpose_conflicts.cu", "k.cu");
        laptop.write("kernels/k/kernel.toml", &toml);
        laptop.write("kernels/k/reference.c", &read("reference.c"));
        let source = read("transpose_conflicts.cu");
        laptop.write("kernels/k/k.cu", &format!("// rgpu-fake: time 1\n{source}"));
        laptop.write("worker.sh", WORKER);
        laptop.write("proposals", &(proposals.join("\n") + "\n"));
        laptop.write(
            "loop.toml",
            "kernel_path = \"kernels/k\"\nmode = \"command\"\nremote = \"h200\"\n\
             worker_command = \"sh worker.sh {prompt} {iter_dir} {kernel}\"\n\
             profile_mode = \"none\"\ninfra_retry_delay = 0\nmax_no_progress = 1000\n",
        );
        Self { laptop, host }
    }

    /// Starts a loop and runs it to its end, and returns its report.
    pub(crate) fn run(&self, overrides: &str, expected: i32) -> Value {
        let line = format!("loop start loop.toml {overrides}");
        let output = self.laptop.run(&line);
        assert_eq!(status(&output), expected, "{}", self.laptop.shown(&line, &output));
        self.report()
    }

    /// Starts a loop, with a point at which it is killed.
    fn start(&self, overrides: &str, kill_at: Option<&str>) -> Child {
        let mut command: Command =
            self.laptop.rgpu(words(&format!("loop start loop.toml {overrides}")));
        if let Some(point) = kill_at {
            command.env("RGPU_TEST_KILL_AT", point);
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn report(&self) -> Value {
        self.json("report")
    }

    /// What a command prints with `--json`, checked against its schema.
    fn json(&self, line: &str) -> Value {
        let output = self.laptop.run(&format!("loop {line} --json"));
        let document = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", self.laptop.shown(line, &output)));
        documents::printed_keeps("loop", &document);
        document
    }

    /// The line that says how the kernel behaves.
    fn marker(&self) -> String {
        let source = fs::read_to_string(self.laptop.project("kernels/k/k.cu")).unwrap();
        source.lines().next().unwrap().to_owned()
    }

    fn folder(&self) -> std::path::PathBuf {
        self.laptop.project(self.json("status")["folder"].as_str().unwrap())
    }

    fn wait_for_phase(&self, phase: &str, iteration: u32) {
        wait_for(phase, || {
            let output = self.laptop.run("loop status --json");
            let document: Value = serde_json::from_slice(&output.stdout).ok()?;
            (document["phase"] == phase && document["iteration"] == iteration).then_some(())
        });
    }
}

/// The outcomes of a report's iterations.
fn outcomes(report: &Value) -> Vec<String> {
    let iterations = report["iterations"].as_array().unwrap();
    iterations.iter().map(|it| it["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn of_five_proposals_exactly_the_two_faster_are_kept() {
    let test = TestLoop::new(&["time 1 wrong", "time 1.5", "time 1.002", "time 0.8", "time 0.5"]);
    let report = test.run("max_iterations=5 target=10.5 target_confirmations=4", 1);
    assert_eq!(outcomes(&report), ["wrong", "slower", "same", "kept", "kept"], "{report:#}");
    assert_eq!(test.marker(), "// rgpu-fake: time 0.5");
    assert_eq!(report["state"], "STOPPED");
    assert_eq!(report["stop"]["reason"], "max_iterations");
    // The best against the start, measured again.
    assert_eq!(report["final_comparison"]["verdict"], "FASTER");
    assert_eq!(report["final_comparison"]["speedup"], 2.0);
    let best = &report["best"];
    assert_eq!(best["iteration"], 5);
    assert!((best["time"]["gmean_us"].as_f64().unwrap() - 10.0).abs() < 0.1, "{best}");
    assert!(best["time"]["interval_us"].is_array() && best["digest"].is_string());
    // The code that was measured.
    let cubin = test.laptop.project(best["cubins"][0].as_str().unwrap());
    assert!(fs::read(cubin).unwrap().ends_with(b"rgpu-fake: time 0.5\n"));
    // A claim stands beside our numbers and decides nothing.
    assert_eq!(report["iterations"][1]["claim"]["metric_value"], 0.1);
    // Its runs know what started them.
    let record = test.laptop.latest_json("run.json");
    assert_eq!(record["parent"]["loop"], report["id"]);
    for file in ["control.json", "heartbeat.json", "run.log"] {
        assert!(test.folder().join(file).exists(), "{file}");
    }
    let iteration = test.folder().join("iter_0002");
    for file in [
        "worker_prompt.txt",
        "worker_result.json",
        "metrics_snapshot.json",
        "git_diff.patch",
        "status.json",
    ] {
        assert!(iteration.join(file).exists(), "{file}");
    }
    let patch = fs::read_to_string(iteration.join("git_diff.patch")).unwrap();
    assert!(patch.contains("-// rgpu-fake: time 1\n+// rgpu-fake: time 1.5\n"), "{patch}");
    // What was taken back is not lost.
    let changed = fs::read_to_string(iteration.join("changed/kernels/k/k.cu")).unwrap();
    assert!(changed.starts_with("// rgpu-fake: time 1.5\n"));
    let shown = test.laptop.show("loop report");
    for words in ["not reached", "best against start, measured again: ", "computes wrong results"] {
        assert!(shown.contains(words), "{shown}");
    }
    assert!(test.laptop.show("loop best").contains("iteration 5"));
}

#[test]
fn a_reached_target_stops_the_loop_with_status_0() {
    let test = TestLoop::new(&["time 0.9", "time 0.5", "time 0.4"]);
    let report = test.run("target=10.5", 0);
    assert_eq!(outcomes(&report), ["kept", "kept"]);
    assert_eq!(report["stop"]["reason"], "target_reached");
    assert_eq!(report["target"]["reached"], true);
}

#[test]
fn a_worker_that_changes_nothing_a_hundred_times_has_nothing_kept() {
    let test = TestLoop::new(&["nothing"; 100]);
    let report = test.run("max_iterations=100", 0);
    assert_eq!(outcomes(&report), vec!["unchanged"; 100]);
    assert_eq!((&report["kept"], &report["best"]["iteration"]), (&0.into(), &0.into()));
    assert_eq!(test.marker(), "// rgpu-fake: time 1");
    let report = test.run("max_iterations=100 max_no_progress=3", 0);
    assert_eq!(
        (&report["stop"]["reason"], &report["iteration"]),
        (&"no_progress".into(), &3.into())
    );
}

/// Changes nothing but a comment, `count` times, while the times vary.
fn change_comments(count: usize) {
    let proposals: Vec<String> =
        (0..count).map(|n| format!("time 1 noise 0.01 comment {n}")).collect();
    let test = TestLoop::new(&proposals.iter().map(String::as_str).collect::<Vec<_>>());
    let report = test.run(&format!("max_iterations={count} max_no_progress=1000"), 0);
    assert_eq!(report["kept"], 0, "{report:#}");
    assert_eq!(test.marker(), "// rgpu-fake: time 1");
    let speedups: std::collections::BTreeSet<String> = report["iterations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["comparison"]["speedup"].as_f64().unwrap().to_string())
        .collect();
    assert!(speedups.len() > count * 9 / 10, "each was compared: {speedups:?}");
    let odd: Vec<String> = outcomes(&report)
        .into_iter()
        .filter(|it| !["same", "ambiguous", "slower", "not_confirmed"].contains(&it.as_str()))
        .collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
fn a_change_of_a_comment_is_not_kept_however_the_times_vary() {
    change_comments(12);
}

#[test]
fn a_change_of_a_comment_is_not_kept_a_hundred_times_however_the_times_vary() {
    change_comments(100);
}

#[test]
fn what_is_faster_only_once_and_what_its_worker_withdraws_is_not_kept() {
    let test = TestLoop::new(&["time 0.5 once", "revert"]);
    let report = test.run("max_iterations=2", 0);
    assert_eq!(outcomes(&report), ["not_confirmed", "withdrawn"], "{report:#}");
    let first = &report["iterations"][0];
    assert_eq!(first["comparison"]["verdict"], "FASTER");
    assert_eq!(first["confirmation"]["verdict"], "SAME");
    let reason = first["reason"].as_str().unwrap();
    assert!(reason.starts_with("the second comparison does not agree: "), "{reason}");
    assert_eq!(report["iterations"][1]["changed"], serde_json::json!(["kernels/k/k.cu"]));
    let source = fs::read_to_string(test.laptop.project("kernels/k/k.cu")).unwrap();
    assert!(!source.contains("// worse"));
    assert_eq!(test.marker(), "// rgpu-fake: time 1");
}

#[test]
fn a_loop_ends_when_it_has_run_for_its_time() {
    let test = TestLoop::new(&["nothing"; 1000]);
    let report = test.run("max_iterations=1000 max_wall_time=3s", 0);
    assert_eq!(report["stop"]["reason"], "wall_time", "{report:#}");
    assert!(report["active_s"].as_f64().unwrap() > 3.0);
    assert_eq!(test.marker(), "// rgpu-fake: time 1");
}

#[test]
fn a_clock_that_steps_by_hours_neither_stops_a_loop_nor_changes_what_is_kept() {
    let test = TestLoop::new(&["time 0.5", "time 2", "time 0.2"]);
    let clock = OtherClock::new(&test.laptop.path("tmp"), 0);
    let file = clock.file.display();
    let step = format!(
        "#!/bin/sh\ntest $(cat {file}) = -7200 && echo 9000 > {file} || echo -7200 > {file}\n"
    );
    test.laptop.write("worker.sh", &WORKER.replacen("#!/bin/sh\n", &step, 1));
    let mut start =
        test.laptop.rgpu(words("loop start loop.toml max_iterations=3 max_wall_time=1h"));
    let output = start.env("LD_PRELOAD", &clock.library).output().unwrap();
    assert_eq!(status(&output), 0, "{}", test.laptop.shown("loop start", &output));
    let report = test.report();
    assert_eq!(outcomes(&report), ["kept", "slower", "kept"], "{report:#}");
    assert_eq!(report["stop"]["text"], "3 iterations");
    let active = report["active_s"].as_f64().unwrap();
    assert!(active > 0.0 && active < 3600.0, "{active}");
    assert_eq!(fs::read_to_string(&clock.file).unwrap().trim(), "-7200", "stepped three times");
}

#[test]
fn a_target_can_be_a_speedup_over_several_sizes() {
    let test = TestLoop::new(&["time 0.8", "time 0.5", "time 0.4"]);
    let report =
        test.run("target_metric_name=speedup target=1.9 'problem_sizes=[\"tiny\", \"odd\"]'", 0);
    assert_eq!(outcomes(&report), ["kept", "kept"]);
    assert_eq!(report["stop"]["reason"], "target_reached");
    let target = &report["target"];
    assert_eq!((&target["metric"], &target["reached"]), (&"speedup".into(), &true.into()));
    assert!((target["best"].as_f64().unwrap() - 2.0).abs() < 0.05, "{target}");
    let cases = report["best"]["time"]["cases"].as_array().unwrap();
    let names: Vec<&str> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tiny", "odd"]);
}

#[test]
fn edits_outside_the_allowed_paths_and_deleted_kernels_are_taken_back() {
    let test = TestLoop::new(&["reference", "delete", "hide", "time 0.5"]);
    let reference = fs::read(test.laptop.project("kernels/k/reference.c")).unwrap();
    let report = test.run("max_iterations=4", 0);
    assert_eq!(outcomes(&report), ["refused", "wrong", "refused", "kept"], "{report:#}");
    let reason = report["iterations"][0]["reason"].as_str().unwrap();
    assert_eq!(reason, "these files may not be changed: kernels/k/reference.c");
    assert_eq!(fs::read(test.laptop.project("kernels/k/reference.c")).unwrap(), reference);
    for file in [".gitignore", "hidden"] {
        assert!(!test.laptop.project(file).exists(), "{file}");
    }
    assert_eq!(test.marker(), "// rgpu-fake: time 0.5");
}

#[test]
fn a_worker_that_fails_and_a_host_that_is_gone_are_failures_of_the_infrastructure() {
    let test = TestLoop::new(&["fail", "time 0.9", "fail", "fail", "fail"]);
    let report = test.run("max_iterations=9", 1);
    let wanted = ["worker_failed", "kept", "worker_failed", "worker_failed", "worker_failed"];
    assert_eq!(outcomes(&report), wanted, "{report:#}");
    assert_eq!(report["stop"]["reason"], "infra_failures");
    assert!(report["iterations"][0]["reason"].as_str().unwrap().contains("exit status 3"));

    let test = TestLoop::new(&["time 0.5"; 5]);
    test.host.mischief("rgpu-runner no-driver");
    let report = test.run("max_infra_failures=2", 1);
    assert_eq!(report["stop"]["reason"], "infra_failures", "{report:#}");
    assert_eq!(report["infra_failures"], 2);
    let text = report["stop"]["text"].as_str().unwrap();
    assert!(text.starts_with("2 failures: "), "{text}");
    assert_eq!(test.marker(), "// rgpu-fake: time 1");
}

#[test]
fn a_worker_that_hangs_ends_with_all_its_processes() {
    let test = TestLoop::new(&["hang"; 3]);
    let report = test.run("worker_timeout=1s max_infra_failures=1", 1);
    let reason = report["iterations"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("its time limit ended it"), "{reason}");
    assert!(test.laptop.running().is_empty(), "{:?}", test.laptop.running());
}

#[test]
fn a_wrong_start_is_refused_and_nothing_is_changed() {
    let test = TestLoop::new(&["time 0.5"]);
    test.laptop.write("kernels/k/k.cu", "// rgpu-fake: wrong\n");
    let report = test.run("", 1);
    assert_eq!(report["stop"]["reason"], "start_refused");
    assert_eq!(test.marker(), "// rgpu-fake: wrong");
}

#[test]
fn of_two_loops_the_second_says_who_runs_and_stop_ends_the_first() {
    let test = TestLoop::new(&["time 0.5", "hang"]);
    let first = test.start("", None);
    test.wait_for_phase("worker", 2);
    let second = test.laptop.run("loop start loop.toml --fresh");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(status(&second), 2, "{said}");
    assert!(said.contains(&format!("process {} ", first.id())), "{said}");
    assert!(said.contains("`rgpu loop cancel`") && !said.contains("kill"), "{said}");
    assert_eq!(test.json("status")["pid"], first.id());
    assert_eq!(status(&test.laptop.run("loop stop")), 0);
    let output = first.wait_with_output().unwrap();
    assert_eq!(status(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    let report = test.report();
    assert_eq!(report["stop"]["reason"], "stopped");
    assert_eq!(report["final_comparison"]["verdict"], "FASTER");
    assert_eq!(test.marker(), "// rgpu-fake: time 0.5");
    test.laptop.wait_until_quiet();
    assert_eq!(status(&test.laptop.run("loop stop")), 2, "it has stopped");
    assert_eq!(status(&test.laptop.run("loop resume")), 2);
}

#[test]
fn a_signal_ends_a_dry_run_which_starts_no_program() {
    let limits = "--mode dry-run max_iterations=5000 max_no_progress=4900";
    for signal in [Signal::INT, Signal::TERM] {
        let test = TestLoop::new(&[]);
        let child = test.start(limits, None);
        wait_for("an iteration", || {
            let loops = fs::read_dir(test.laptop.project("artifacts/loop")).ok()?;
            loops.flatten().any(|folder| folder.path().join("iter_0002").exists()).then_some(())
        });
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(status(&output), 130, "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stderr).contains("rgpu loop resume"));
    }
}

#[test]
fn a_dry_run_makes_up_both_files_and_uses_no_host() {
    let test = TestLoop::new(&[]);
    fs::remove_dir_all(test.laptop.path("h200")).unwrap();
    let report = test.run("--mode dry-run max_iterations=2", 0);
    assert_eq!(outcomes(&report), ["unchanged", "unchanged"]);
    let folder = test.folder().join("iter_0001");
    assert!(folder.join("worker_result.json").exists());
    // How to answer is there, too.
    for (name, words) in [
        ("worker_prompt.txt", &["worker_result.json", "report-time --iter 1"][..]),
        ("reviewer_prompt.txt", &["reviewer_verdict.json"][..]),
    ] {
        let prompt = fs::read_to_string(folder.join(name)).unwrap();
        for words in words.iter().chain(&["\"iteration\": 1, \"nonce\": \""]) {
            assert!(prompt.contains(words), "{name}: {words}: {prompt}");
        }
    }
    assert_eq!(report["stop"]["text"], "2 iterations");
    assert!(!test.laptop.project("artifacts/runs").exists());
}

/// git in the project.
fn git(test: &TestLoop, line: &str) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=x", "-c", "user.email=x@x"]).args(words(line));
    let output: Output = git.current_dir(test.laptop.project("")).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn in_a_dirty_and_detached_repository_the_users_state_is_left_alone() {
    let test = TestLoop::new(&["time 1.5", "time 0.5"]);
    git(&test, "init -q");
    git(&test, "add -A");
    git(&test, "commit -q -m one");
    git(&test, "checkout -q --detach");
    test.laptop.write("notes.txt", "mine");
    test.laptop.write("staged.txt", "mine too");
    git(&test, "add staged.txt");
    let head = git(&test, "rev-parse HEAD");
    let report = test.run("max_iterations=2", 0);
    assert_eq!(outcomes(&report), ["slower", "kept"]);
    assert_eq!(git(&test, "rev-parse HEAD"), head);
    let state = git(&test, "status --porcelain");
    // Compiled kernels are in `artifacts`, as after any profile.
    assert_eq!(state, " M kernels/k/k.cu\nA  staged.txt\n?? artifacts/\n?? notes.txt\n");
    let commit = report["best"]["commit"].as_str().unwrap();
    let shown = git(&test, &format!("show {commit}:kernels/k/k.cu"));
    assert!(shown.starts_with("// rgpu-fake: time 0.5\n"));
    let id = report["id"].as_str().unwrap();
    assert_eq!(git(&test, &format!("rev-parse refs/rgpu/loop/{id}")).trim(), commit);
}

#[test]
fn without_git_there_is_no_commit_and_all_else_is_the_same() {
    let test = TestLoop::new(&["time 0.5"]);
    fs::create_dir(test.laptop.path("bin")).unwrap();
    let mut command = test.laptop.rgpu(words("loop start loop.toml max_iterations=1"));
    // All programs of this machine but git.
    for tool in fs::read_dir("/usr/bin").unwrap().flatten() {
        if tool.file_name() != "git" {
            let link = test.laptop.path("bin").join(tool.file_name());
            std::os::unix::fs::symlink(tool.path(), link).unwrap();
        }
    }
    let output = command.env("PATH", test.laptop.path("bin")).output().unwrap();
    assert_eq!(status(&output), 0, "{}", test.laptop.shown("loop start", &output));
    let report = test.report();
    assert_eq!(outcomes(&report), ["kept"]);
    assert!(report["best"].get("commit").is_none());
}
