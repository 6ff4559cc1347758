//! Files that come from a host, and what they find here.

use std::fs;
use std::os::unix::fs::symlink;

use crate::laptop::{Laptop, built, status, wait_for};

/// Files that were only being written.
fn leftovers(laptop: &Laptop) -> Vec<String> {
    let all = walkdir::WalkDir::new(laptop.path("project")).into_iter().flatten();
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".writing-")).collect()
}

#[test]
fn names_that_differ_by_case_alone_are_pulled_under_the_hosts_names() {
    let laptop = Laptop::new();
    let line = "exec --pull x --pull X -- sh -c 'echo 1 > x; head -c 3000000 /dev/zero > X'";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let length = |name: &str| fs::metadata(laptop.project(name)).unwrap().len();
    assert_eq!((length("x"), length("X")), (2, 3_000_000));
    let names = fs::read_dir(laptop.project("")).unwrap().map(|e| e.unwrap().file_name());
    assert_eq!(names.count(), 3, "the files and the runs");
    assert_eq!(leftovers(&laptop), [""; 0]);
}

#[test]
fn a_profile_brings_the_files_that_its_program_leaves() {
    let laptop = Laptop::new();
    laptop.write("in/kept.txt", "sent\n");
    let script = "mkdir out; echo 1 > out/a; echo 2 > out/b; echo 3 > other";
    let line = format!(
        "profile --mode nsys --allow-unmeasured --mount in --pull 'out/*' --pull kept.txt \
         -- sh -c {script:?}"
    );
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    let text = |name: &str| fs::read_to_string(laptop.project(name)).unwrap_or_default();
    assert_eq!((text("in/out/a"), text("in/out/b")), ("1\n".into(), "2\n".into()), "{shown}");
    assert!(!laptop.project("in/other").exists() && shown.contains("pulled out/a, out/b"));
    let line = "profile --mode nsys --allow-unmeasured --pull gone -- true";
    let shown = laptop.shown(line, &laptop.run(line));
    assert!(shown.contains("warning: nothing was pulled"), "{shown}");
    let output = laptop.run("profile --mode nsys --pull ../out -- true");
    assert_eq!(status(&output), 2);
}

#[test]
fn what_was_written_here_while_the_program_ran_stays_and_is_told() {
    let laptop = Laptop::new();
    for name in ["mine.txt", "theirs.txt", "long", "touched.txt"] {
        laptop.write(&format!("repo/{name}"), "sent\n");
    }
    let go = laptop.path("go");
    let script = format!(
        "echo up; while [ ! -e {} ]; do sleep 0.05; done; head -c 3000000 /dev/zero > long; \
         for f in mine.txt theirs.txt touched.txt new.txt; do echo remote > $f; done",
        go.display()
    );
    let line = format!("exec --run-id one --mount repo --pull '**' --json -- sh -c {script:?}");
    let child = laptop.start(&line);
    let log = laptop.project("artifacts/runs/one/log/exec.stdout");
    wait_for("output", || fs::read_to_string(&log).is_ok_and(|t| !t.is_empty()).then_some(()));
    for name in ["mine.txt", "long", "new.txt"] {
        laptop.write(&format!("repo/{name}"), "mine\n");
    }
    // What is written anew and has not changed is as it was sent.
    laptop.write("repo/touched.txt", "sent\n");
    fs::write(go, "").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = laptop.shown("", &output);
    assert_eq!(status(&output), 0, "{said}");
    let read = |name: &str| fs::read_to_string(laptop.project(name)).unwrap();
    for name in ["mine.txt", "long", "new.txt"] {
        assert_eq!(read(&format!("repo/{name}")), "mine\n", "{name}");
        let kept = format!("artifacts/runs/one/pulled/{name}");
        let told = format!(
            "warning: `{name}` was changed here after the run began and is kept; the host's version is {kept}\n"
        );
        assert!(said.contains(&told), "{said}");
    }
    assert_eq!(read("artifacts/runs/one/pulled/mine.txt"), "remote\n");
    assert_eq!(read("artifacts/runs/one/pulled/long").len(), 3_000_000);
    assert_eq!(
        (read("repo/theirs.txt"), read("repo/touched.txt")),
        ("remote\n".into(), "remote\n".into())
    );
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["pulled"], serde_json::json!(["theirs.txt", "touched.txt"]));
    let first = &result["skipped"][0];
    assert_eq!((&first["name"], &first["why"]), (&"long".into(), &"written_here".into()));
    laptop.write("exec.json", &String::from_utf8_lossy(&output.stdout));
    let checked = laptop.run("schema exec --check exec.json");
    assert_eq!(status(&checked), 0, "{}", String::from_utf8_lossy(&checked.stderr));
    assert_eq!(leftovers(&laptop), [""; 0]);
}

#[test]
fn results_of_earlier_runs_are_replaced_as_ever() {
    let laptop = Laptop::new();
    for n in ["1", "2"] {
        let output = laptop.run(&format!("exec --pull out -- sh -c 'echo {n} > out'"));
        assert_eq!(status(&output), 0, "{}", laptop.shown("", &output));
        assert_eq!(fs::read_to_string(laptop.project("out")).unwrap(), format!("{n}\n"));
    }
}

#[test]
fn nothing_is_written_through_a_link_of_this_machine() {
    let laptop = Laptop::new();
    let elsewhere = laptop.write("elsewhere/victim", "precious\n");
    let other = laptop.write("elsewhere/other", "precious\n");
    fs::create_dir(laptop.project("out")).unwrap();
    symlink("../elsewhere", laptop.project("out/evil")).unwrap();
    symlink("../elsewhere/other", laptop.project("out/last")).unwrap();
    let script = "mkdir -p out/evil/deep; head -c 3000000 /dev/zero > out/evil/victim; \
                  for f in evil/deep/new last good; do echo remote > out/$f; done";
    let words = |flag| ["exec", flag, "--pull", "out/**", "--", "sh", "-c", script];
    let output = laptop.rgpu(words("--accept-new")).output().unwrap();
    let said = laptop.shown("", &output);
    assert_eq!(status(&output), 0, "{said}");
    insta::assert_snapshot!(said);
    let read = |name: &str| fs::read_to_string(laptop.project(name)).unwrap();
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious\n");
    assert!(!laptop.project("elsewhere/deep").exists());
    assert_eq!(read("out/good"), "remote\n");
    // A link in the file's own place gives way to the file; what it led to stays.
    assert!(!laptop.project("out/last").is_symlink());
    assert_eq!(
        (read("out/last"), fs::read_to_string(other).unwrap()),
        ("remote\n".into(), "precious\n".into())
    );
    assert_eq!(leftovers(&laptop), [""; 0]);
    let output = laptop.rgpu(words("--json")).output().unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let skipped = &result["skipped"][0];
    assert_eq!((&skipped["why"], &skipped["link"]), (&"behind_link".into(), &"out/evil".into()));
}

#[test]
fn nothing_of_a_hosts_is_put_where_git_would_run_it() {
    let laptop = Laptop::new();
    laptop.write(".git/config", "ours\n");
    let script = "mkdir -p .git/hooks sub; head -c 3000000 /dev/zero > .git/hooks/pre-commit; \
                  for f in .git/config sub/.GIT sub/.gitignore; do echo remote > $f; done";
    let words =
        |flag| ["exec", flag, "--pull", "**", "--pull", "sub/.gitignore", "--", "sh", "-c", script];
    let output = laptop.rgpu(words("--accept-new")).output().unwrap();
    let said = laptop.shown("", &output);
    assert_eq!(status(&output), 0, "{said}");
    let kept = "warning: git runs files in `.git`, so no pulled file is written there";
    assert!(said.contains(kept) && said.contains("`sub/.GIT`"), "{said}");
    assert_eq!(fs::read_to_string(laptop.project(".git/config")).unwrap(), "ours\n");
    assert!(!laptop.project(".git/hooks").exists() && !laptop.project("sub/.GIT").exists());
    assert_eq!(fs::read_to_string(laptop.project("sub/.gitignore")).unwrap(), "remote\n");
    let output = laptop.rgpu(words("--json")).output().unwrap();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let skipped = &result["skipped"][0];
    assert_eq!((&skipped["why"], &skipped["git"]), (&"of_git".into(), &".git".into()));
    let file = fs::read(skipped["file"].as_str().unwrap()).unwrap();
    assert!([7, 3_000_000].contains(&file.len()), "{}", file.len());
    laptop.write("exec.json", &String::from_utf8_lossy(&output.stdout));
    assert_eq!(status(&laptop.run("schema exec --check exec.json")), 0);
    assert_eq!(leftovers(&laptop), [""; 0]);
}

#[test]
fn a_host_that_renames_a_pulled_file_overwrites_nothing_here() {
    for (to, named) in [
        ("here/.bashrc", ".bashrc"),
        ("here/rgpu.toml", "rgpu.toml"),
        ("here/sub/out.txt", "sub/out.txt"),
        ("here/other.txt", "other.txt"),
        ("outside.txt", "outside.txt"),
    ] {
        let laptop = Laptop::new();
        laptop.write(named, "# mine\n");
        let (fake, agent) = (built("rgpu-fake"), built("rgpu-agent"));
        let (fake, agent) = (fake.display(), agent.display());
        laptop.play_agent(&format!("exec '{fake}' rgpu-agent here/out.txt {to} '{agent}' \"$@\""));
        let exec = "exec --run-id one --pull out.txt -- sh -c 'echo remote > out.txt'";
        for line in [exec, "runs attach one"] {
            let output = laptop.run(line);
            let said = laptop.shown(line, &output);
            assert_eq!(status(&output), 125, "{said}");
            assert!(
                said.contains(&format!("the host sent `{to}`, which no `--pull` requested")),
                "{said}"
            );
            assert_eq!(fs::read_to_string(laptop.project(named)).unwrap(), "# mine\n", "{said}");
        }
        assert!(!laptop.project("artifacts/runs/one/pulled").exists(), "{to}");
        assert_eq!(laptop.latest_json("error.json")["error"]["code"], "hostile_name");
        laptop.wait_until_quiet();
    }
}

#[test]
fn what_steers_programs_here_is_put_here_only_where_a_pattern_names_it() {
    let laptop = Laptop::new();
    let script = "mkdir -p sub .cache; \
                  for f in .bashrc rgpu.toml sub/RGPU.TOML .cache/x good; do echo '# remote' > $f; done; \
                  head -c 3000000 /dev/zero > sub/.long";
    let output = laptop.rgpu(["exec", "--pull", "**", "--json", "--", "sh", "-c", script]).output();
    let output = output.unwrap();
    let said = laptop.shown("", &output);
    assert_eq!(status(&output), 0, "{said}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["pulled"], serde_json::json!(["good"]));
    let skipped = result["skipped"].as_array().unwrap();
    let parts: Vec<&str> = skipped.iter().map(|one| one["part"].as_str().unwrap()).collect();
    assert_eq!(parts, [".bashrc", ".cache", "rgpu.toml", "sub/.long", "sub/RGPU.TOML"]);
    for one in skipped {
        assert!(!laptop.project(one["name"].as_str().unwrap()).exists(), "{one}");
        assert!(fs::metadata(one["file"].as_str().unwrap()).unwrap().is_file());
    }
    assert!(said.contains("`.cache` may control programs here"), "{said}");
    assert_eq!(leftovers(&laptop), [""; 0]);
    let named = ["exec", "--pull", ".bashrc", "--pull", ".cache/*", "--", "sh", "-c", script];
    let output = laptop.rgpu(named).output().unwrap();
    let said = laptop.shown("", &output);
    assert_eq!(status(&output), 0, "{said}");
    assert!(said.contains("pulled .bashrc, .cache/x\n"), "{said}");
    laptop.write("exec.json", &serde_json::to_string(&result).unwrap());
    assert_eq!(status(&laptop.run("schema exec --check exec.json")), 0);
}
