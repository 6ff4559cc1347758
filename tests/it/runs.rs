//! `rgpu runs`: what was run, and our own disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for};

#[test]
fn where_no_run_folder_can_be_made_the_help_names_another_place() {
    let laptop = Laptop::new();
    // Nobody may make folders there, not even root.
    let mut command = laptop.rgpu(["exec", "--", "true"]);
    let output = command.env("RGPU_RUNS_DIR", "/sys/rgpu-runs").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("cannot create `/sys/rgpu-runs"), "{text}");
    assert!(text.contains("folder of your own, or set RGPU_RUNS_DIR"), "{text}");
}

#[test]
fn runs_are_listed_shown_and_cleaned() {
    let laptop = Laptop::new();
    let mut story = laptop.show("runs list");
    for id in ["one", "two", "three"] {
        assert_eq!(status(&laptop.run(&format!("exec --run-id {id} -- echo {id}"))), 0);
    }
    assert_eq!(status(&laptop.run("exec --run-id four -- false")), 1);
    for line in [
        "runs list",
        "runs show",
        "runs show latest~1",
        "runs show tw",
        "runs show t",
        "runs show latest~9",
        "runs attach two",
        "runs cancel two",
        "runs clean --keep 2 --dry-run",
        "runs clean --keep 2",
        "runs clean --keep 2 --yes",
        "runs list",
    ] {
        story += &laptop.show(line);
    }
    // Columns are as wide as times and sizes are long.
    let story = regex::Regex::new(" {2,}").unwrap().replace_all(&story, "  ");
    insta::assert_snapshot!(story);
    let ids: serde_json::Value =
        serde_json::from_slice(&laptop.run("runs list --json").stdout).unwrap();
    let (schema, ids) = (&ids["schema"], &ids["runs"]);
    assert_eq!(schema, "rgpu.runs/1");
    assert_eq!((&ids[0]["id"], &ids[1]["id"]), (&"four".into(), &"three".into()));
}

#[test]
fn a_failed_run_says_why_and_ends_in_lists_with_the_status_of_its_command() {
    let laptop = Laptop::new();
    laptop.write("a.cu", "int main() { return 0; }\n");
    let mut story = laptop.show("exec --run-id one -- no-such-program");
    story += &laptop.show("runs show one");
    assert_eq!(laptop.latest_json("run.json")["exit"], 127);
    assert_eq!(laptop.latest_json("error.json")["exit"], 127);
    FakeHost::new(&laptop).mischief("rgpu-runner wrong-result\n");
    let line = "profile --kernel vecadd --mode verify --remote h200 --run-id two -q";
    assert_eq!(status(&laptop.run(line)), 6);
    let shown = laptop.show("runs show two");
    assert!(shown.contains("  error: the kernel computes wrong results"), "{shown}");
    story += &laptop.show("runs list");
    let story = regex::Regex::new(" {2,}").unwrap().replace_all(&story, "  ");
    insta::assert_snapshot!(story);
}

#[test]
fn nothing_is_latest_once_all_runs_are_removed() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("exec --run-id one -- true")), 0);
    let story = laptop.show("runs clean --keep 0 --all --yes") + &laptop.show("runs show");
    insta::assert_snapshot!(story);
    assert!(!laptop.project("artifacts/runs/latest").exists());
}

#[test]
fn an_id_is_taken_once_and_a_folder_must_be_empty() {
    let laptop = Laptop::new();
    let mut story = laptop.show("exec --run-id mine -- true");
    story += &laptop.show("exec --run-id mine -- touch never-run");
    story += &laptop.show("exec --run-id ../mine -- true");
    laptop.write("out/precious.txt", "kept");
    story += &laptop.show("exec --out out -- true");
    story += &laptop.show("exec --out fresh -- true");
    insta::assert_snapshot!(story);
    assert_eq!(fs::read_to_string(laptop.project("out/precious.txt")).unwrap(), "kept");
    assert!(laptop.project("fresh/run.json").is_file());
}

#[test]
fn runs_lie_in_a_folder_that_git_ignores() {
    let laptop = Laptop::new();
    laptop.run("exec -- true");
    assert_eq!(
        fs::read_to_string(laptop.project("artifacts/runs/.gitignore")).unwrap().trim(),
        "*"
    );
    let mut command = laptop.rgpu(["exec", "--", "true"]);
    assert!(command.env("RGPU_RUNS_DIR", laptop.path("elsewhere")).status().unwrap().success());
    assert!(laptop.path("elsewhere/.latest").is_file());
}

#[test]
fn a_folder_that_cannot_be_written_is_our_own_disks_failure() {
    let laptop = Laptop::new();
    // Root writes everywhere, but not below a file.
    laptop.write("artifacts", "a file");
    insta::assert_snapshot!(laptop.show("exec -- true"));
    if !rustix::process::geteuid().is_root() {
        fs::remove_file(laptop.project("artifacts")).unwrap();
        fs::create_dir(laptop.project("artifacts")).unwrap();
        let read_only = fs::Permissions::from_mode(0o500);
        fs::set_permissions(laptop.project("artifacts"), read_only).unwrap();
        assert_eq!(status(&laptop.run("exec -- true")), 125);
    }
    insta::assert_snapshot!(laptop.show("profile --kernel vecadd --json"));
    laptop.wait_until_quiet();
}

#[test]
fn a_list_that_is_cut_says_so_and_notes_stay_with_their_runs() {
    let laptop = Laptop::new();
    for (id, note) in [("one", ""), ("two", "the good one"), ("three", "")] {
        let line = format!("exec --run-id {id} --note '{note}' -- true");
        assert_eq!(status(&laptop.run(&line)), 0);
    }
    let mut story = String::new();
    for line in [
        "runs list --count 2",
        "runs note one 'kept for the paper'",
        "runs show one",
        "runs note two ''",
        "runs clean --keep 1 --yes",
        "runs list",
        "runs clean --keep 1 --all --yes",
    ] {
        story += &laptop.show(line);
    }
    let story = regex::Regex::new(" {2,}").unwrap().replace_all(&story, "  ");
    insta::assert_snapshot!(story);
}

#[test]
fn the_setting_keep_prunes_ended_runs_without_a_note() {
    let laptop = Laptop::new();
    laptop.write("rgpu.toml", "keep = 1\n");
    laptop.run("exec --run-id noted --note stays -- true");
    for id in ["one", "two", "three"] {
        assert_eq!(status(&laptop.run(&format!("exec --run-id {id} -- true"))), 0);
    }
    let runs = laptop.project("artifacts/runs");
    for (id, there) in [("noted", true), ("one", false), ("two", false), ("three", true)] {
        assert_eq!(runs.join(id).exists(), there, "{id}");
    }
    // A project's own file may not prune what lies elsewhere.
    let elsewhere = laptop.path("elsewhere");
    for id in ["one", "two", "three"] {
        let mut command = laptop.rgpu(["exec", "--run-id", id, "--", "true"]);
        assert!(command.env("RGPU_RUNS_DIR", &elsewhere).status().unwrap().success());
    }
    assert!(laptop.path("elsewhere/one").exists());
}

#[test]
fn a_run_is_exported_whole_or_without_what_must_not_leave_the_house() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let made = laptop.run("profile --kernel vecadd --mode ncu --remote h200 --run-id mine --json");
    assert_eq!(status(&made), 0, "{}", laptop.shown("", &made));
    let exported = laptop.run("runs export mine --json --out mine-once.tar.zst").stdout;
    crate::documents::printed_keeps("exported", &serde_json::from_slice(&exported).unwrap());
    let story = laptop.show("runs export mine") + &laptop.show("runs export mine");
    let story = story + &laptop.show("runs export mine --redact --out pass-on.tar.zst");
    let size = regex::Regex::new(r"[0-9.]+ [kM]?B\b").unwrap();
    insta::assert_snapshot!(size.replace_all(&story, "[SIZE]"));
    let whole = unpacked(&laptop.project("mine.tar.zst"));
    for file in ["run.json", "profile.json", "events.jsonl", "raw/report.ncu-rep", "commands.sh"] {
        assert!(whole.iter().any(|(name, _)| name == &format!("mine/{file}")), "{file}");
    }
    let home = laptop.path("").display().to_string();
    let redacted = unpacked(&laptop.project("pass-on.tar.zst"));
    assert!(redacted.iter().any(|(name, _)| name == "mine/report.html"));
    for (name, bytes) in redacted {
        assert!(!String::from_utf8_lossy(&bytes).contains(&home), "{name} names a folder");
        assert!(!name.contains("raw/") && !name.contains("log/"), "{name}");
    }
    laptop.run("exec --run-id plain -- true");
    insta::assert_snapshot!(laptop.show("runs export plain --redact"));
}

/// The files of an archive.
fn unpacked(path: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    use std::io::Read;
    let packed = zstd::stream::Decoder::new(fs::File::open(path).unwrap()).unwrap();
    let mut archive = tar::Archive::new(packed);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (entry.path().unwrap().display().to_string(), bytes)
    });
    entries.collect()
}

#[test]
fn jobs_of_a_remote_are_listed_with_their_age_and_cleaned_once_they_are_home() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    // What `exec` has brought home the host drops by itself.
    laptop.run("exec --remote h200 --run-id hello -- echo hello");
    laptop.run("profile --kernel vecadd --mode ncu --remote h200 --run-id home");
    laptop.run("exec --remote h200 --run-id away --detach -- true");
    let running = laptop.start("exec --remote h200 --run-id busy -- sh -c 'echo up; sleep 1000'");
    let log = laptop.project("artifacts/runs/busy/log/exec.stdout");
    wait_for("a job that runs", || fs::metadata(&log).ok().filter(|m| m.len() > 0));
    let list = wait_for("the end of the job that nobody follows", || {
        let list = laptop.show("runs list --remote h200");
        list.lines().any(|row| row.starts_with("away.1") && row.contains("done")).then_some(list)
    });
    for row in ["busy.1 exec sh at step exec", "home.1 profile vecadd done"] {
        let row: Vec<&str> = row.split(' ').collect();
        let has = |line: &str| row.iter().all(|word| line.contains(word));
        assert!(list.lines().any(has), "{row:?}:\n{list}");
    }
    assert!(list.contains("of 21.5 GB on `h200`") || list.contains("of 21 GB on `h200`"), "{list}");
    let cleaned = laptop.run("runs clean --remote h200 --dry-run --json").stdout;
    let cleaned: serde_json::Value = serde_json::from_slice(&cleaned).unwrap();
    crate::documents::printed_keeps("cleaned", &cleaned);
    let story = laptop.show("runs clean --remote h200 --dry-run")
        + &laptop.show("runs clean --remote h200")
        + &laptop.show("runs clean --remote h200 --yes")
        + &laptop.show("runs clean --remote h200 --all")
        + &laptop.show("runs clean --remote h200 --all --yes");
    let size = regex::Regex::new(r"[0-9.]+ [kM]?B\b").unwrap();
    insta::assert_snapshot!(size.replace_all(&story, "[SIZE]"));
    let left = laptop.run("runs list --remote h200 --json");
    let left: serde_json::Value = serde_json::from_slice(&left.stdout).unwrap();
    crate::documents::printed_keeps("jobs", &left);
    assert_eq!((&left["total"], &left["jobs"][0]["job"]), (&1.into(), &"busy.1".into()));
    assert_eq!(status(&laptop.run("runs cancel busy")), 0);
    running.wait_with_output().unwrap();
    laptop.wait_until_quiet();
}

#[test]
fn a_cancel_after_the_follower_has_removed_the_job_says_how_it_ended() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("exec --run-id quick -- true")), 0);
    let job = laptop.path("agent/jobs/quick.1");
    wait_for("the removal of the job", || (!job.exists()).then_some(()));
    // As it is before the command that followed the run has saved its record.
    let path = laptop.latest().join("run.json");
    let mut record = laptop.latest_json("run.json");
    record["state"] = "running".into();
    record["exit"] = serde_json::Value::Null;
    record["jobs"][0]["outcome"] = serde_json::Value::Null;
    fs::write(&path, record.to_string()).unwrap();
    let output = laptop.run("runs cancel quick");
    let said = laptop.shown("runs cancel quick", &output);
    assert_eq!(status(&output), 0, "{said}");
    assert!(said.contains("`quick` is stopped on `local`: done"), "{said}");
    assert_eq!(laptop.latest_json("run.json")["jobs"][0]["outcome"]["how"], "done");
}

#[test]
fn what_a_stopped_job_had_made_stays_on_its_host_until_it_is_brought() {
    let laptop = Laptop::new();
    let made =
        "exec --run-id made --pull out.txt --detach -- sh -c 'echo made > out.txt; sleep 1000'";
    assert_eq!(status(&laptop.run(made)), 0);
    wait_for("what it makes", || {
        let files = walkdir::WalkDir::new(laptop.path("agent")).into_iter().flatten();
        files.into_iter().find(|file| file.file_name() == "out.txt")
    });
    assert_eq!(status(&laptop.run("runs cancel made")), 0);
    let cleaned = laptop.run("runs clean --remote local");
    let said = String::from_utf8_lossy(&cleaned.stderr);
    assert!(said.contains("1 ended, but their results were not fetched here"), "{said}");
    laptop.run("runs attach made");
    assert_eq!(fs::read_to_string(laptop.project("out.txt")).unwrap(), "made\n");
    laptop.wait_until_quiet();
}

#[test]
fn a_job_is_stopped_by_a_laptop_that_never_had_its_folder() {
    let laptop = Laptop::new();
    let _host = FakeHost::new(&laptop);
    for run in ["here", "gone"] {
        let line = format!("exec --remote h200 --run-id {run} --detach -- sleep 1000");
        assert_eq!(status(&laptop.run(&line)), 0);
    }
    fs::remove_dir_all(laptop.project("artifacts/runs/gone")).unwrap();
    let story = laptop.show("runs cancel --remote h200 gone.1")
        + &laptop.show("runs cancel --remote h200 here.1")
        + &laptop.show("runs cancel --remote h200 nowhere.1")
        + &laptop.show("runs cancel --remote h200");
    insta::assert_snapshot!(story);
    let record = fs::read(laptop.project("artifacts/runs/here/run.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(record["state"], "cancelled");
    laptop.wait_until_quiet();
    let output = laptop.run("runs cancel --remote h200 gone.1 --json");
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&listed["schema"], &listed["total"]), (&"rgpu.jobs/1".into(), &1.into()));
}

#[test]
fn a_job_is_taken_up_by_a_laptop_that_never_had_its_folder() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    laptop.run("exec --remote h200 --run-id gone --detach --note n -- sh -c 'echo out; exit 7'");
    host.mischief("ncu gate\n");
    let profile = "profile --kernel vecadd --mode ncu --remote h200 --run-id far --detach";
    assert_eq!(status(&laptop.run(profile)), 0);
    host.wait_for_gate("ncu");
    host.open_gate("ncu");
    fs::remove_dir_all(laptop.project("artifacts")).unwrap();
    insta::assert_snapshot!(
        laptop.show("runs attach --remote h200 gone.1")
            + &laptop.show("runs attach --remote h200 nowhere.1 --yes")
            + &laptop.show("runs attach --remote h200")
    );
    assert!(!laptop.project("artifacts/runs/gone").exists());
    let output = laptop.run("runs attach --remote h200 gone.1 --yes");
    assert_eq!((status(&output), &*output.stdout), (7, &b"out\n"[..]));
    assert_eq!(laptop.latest_json("run.json")["note"], "n");
    let output = laptop.run("runs attach --remote h200 far.1 --yes --json");
    assert_eq!(status(&output), 0, "{}", laptop.shown("", &output));
    let profile: rgpu_model::Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "ncu.asked");
    // Ended, it is shown, not run again.
    let again = laptop.run("runs attach --remote h200 far.1 --json");
    assert_eq!(again.stdout, output.stdout);
    laptop.wait_until_quiet();
}

#[test]
fn a_run_whose_command_died_before_it_sent_a_job_is_told_and_ended() {
    let laptop = Laptop::new();
    laptop.play_agent("exec sleep 1000");
    let mut child = laptop.start("exec --run-id one -- echo 'two words'");
    let record = laptop.project("artifacts/runs/one/run.json");
    wait_for("the run", || record.is_file().then_some(()));
    let state = || {
        let listed = laptop.run("runs list --json").stdout;
        let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
        listed["runs"][0]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(), "running");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(state(), "never_submitted");
    let mut story = String::new();
    for line in [
        "runs list",
        "runs show one",
        "runs cancel one",
        "runs attach one",
        "runs attach one",
        "runs show one",
    ] {
        story += &laptop.show(line);
    }
    let story = regex::Regex::new(" {2,}").unwrap().replace_all(&story, "  ").into_owned();
    let story = regex::Regex::new(r"\d+ B\b").unwrap().replace_all(&story, "[SIZE]");
    insta::assert_snapshot!(story);
    assert_eq!(laptop.latest_json("run.json")["state"], "never_submitted");
    assert_eq!(laptop.latest_json("error.json")["error"]["code"], "never_submitted");
    assert_eq!(status(&laptop.run("runs clean --keep 0 --yes")), 0);
    assert!(!laptop.project("artifacts/runs/one").exists());
}

#[test]
fn attach_latest_passes_over_runs_that_were_never_submitted() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("exec --run-id good -- echo hello")), 0);
    laptop.play_agent("exec sleep 1000");
    for run in ["first", "second"] {
        let mut child = laptop.start(&format!("exec --run-id {run} -- true"));
        let record = laptop.project(format!("artifacts/runs/{run}/run.json"));
        wait_for("the run", || record.is_file().then_some(()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    insta::assert_snapshot!(laptop.show("runs attach latest") + &laptop.show("runs cancel"));
    assert_eq!(status(&laptop.run("runs attach second")), 2);
    assert_eq!(status(&laptop.run("runs clean --keep 0 --yes")), 0);
}

#[test]
fn a_list_has_the_time_and_gpu_of_each_run_on_one_line_and_latest_is_named() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let line = "profile --kernel vecadd --mode ncu --remote h200 --run-id measured -q";
    assert_eq!(status(&laptop.run(line)), 0);
    let listed = String::from_utf8(laptop.run("runs list").stdout).unwrap();
    let rows: Vec<&str> = listed.lines().collect();
    assert_eq!(rows.len(), 2, "{listed}");
    assert!(rows[0].contains("started") && rows[0].contains("kernel time"), "{listed}");
    assert!(rows[1].contains("H200") && rows[1].contains("µs"), "{listed}");
    let runs: serde_json::Value =
        serde_json::from_slice(&laptop.run("runs list --json").stdout).unwrap();
    assert!(runs["runs"][0]["median_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{runs}");
    let report = laptop.run("report latest");
    let notes = String::from_utf8(report.stderr).unwrap();
    assert!(notes.contains("`latest` is measured: profile vecadd (ncu), started 2"), "{notes}");
    assert!(laptop.run("report measured").stderr.is_empty());
}

#[test]
fn of_runs_that_left_nothing_but_output_the_newest_stay() {
    let laptop = Laptop::new();
    let noted = "exec --remote local --note kept -- true";
    assert_eq!(status(&laptop.run(noted)), 0);
    for _ in 0..22 {
        assert_eq!(status(&laptop.run("exec --remote local -- true")), 0);
    }
    let runs: serde_json::Value =
        serde_json::from_slice(&laptop.run("runs list --json").stdout).unwrap();
    assert_eq!(runs["total"], 21, "twenty and the one with a note");
}

#[test]
fn the_cache_is_shown_and_cleaned_by_part_after_a_yes() {
    let laptop = Laptop::new();
    let cache = laptop.path("home/.cache/rgpu");
    let environment = cache.join("python/0123456789");
    std::fs::create_dir_all(&environment).unwrap();
    std::fs::write(environment.join("large"), vec![1; 1 << 20]).unwrap();
    let spec = r#"{"requirements": ["nvidia-cuda-nvcc==13.0.48", "nvidia-cuda-crt==13.0.48"]}"#;
    std::fs::write(environment.join(".ready"), spec).unwrap();
    let shown = String::from_utf8(laptop.run("cache show").stdout).unwrap();
    assert!(shown.contains("nvidia-cuda-nvcc  1.0"), "{shown}");
    let refused = laptop.run("cache clean nvidia-cuda-nvcc");
    assert_eq!(status(&refused), 2);
    assert!(environment.exists());
    assert_eq!(status(&laptop.run("cache clean nvidia-cuda-nvc --yes")), 2);
    let cleaned = laptop.run("cache clean nvidia-cuda-nvcc --yes --json");
    let cleaned: serde_json::Value = serde_json::from_slice(&cleaned.stdout).unwrap();
    assert_eq!(cleaned["removed"], serde_json::json!(["nvidia-cuda-nvcc"]));
    assert!(!environment.exists());
}
