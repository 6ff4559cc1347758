//! What is added is what runs, byte for byte, and how lists show it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use regex::Regex;
use rgpu_run::store::{Repository, repository};

use super::TestQueue;
use crate::laptop::status;

#[test]
fn a_day_with_the_queue() {
    let queue = TestQueue::new();
    let laptop = &queue.laptop;
    laptop.write("nightly.sh", "echo night; exit 3\n");
    let mut story = String::new();
    for line in [
        "queue ls",
        "queue add -- echo 'two words'",
        "queue add --file nightly.sh --retries 1 --tag nvtx --priority 5",
        "queue add --after 2 --timeout 2h --name last -- true",
        "queue add --after 2:any --gpu 1 -- true",
        "queue ls",
        "queue run --once",
        "queue ls",
        "queue show 2",
        "queue log 1",
        "queue wait 1",
        "queue wait",
        "queue wait 2 3",
        "queue requeue --failed",
        "queue cancel 2",
        "queue cancel 2",
        "queue requeue 99",
        "queue show 99",
        "queue pause",
        "queue run --once",
        "queue resume",
        "queue prune --keep 0",
        "queue prune --keep 0 --yes",
        "queue ls",
    ] {
        story += &laptop.show(line);
    }
    let story = Regex::new(" {2,}").unwrap().replace_all(&story, "  ");
    insta::assert_snapshot!(story);
    let log: String = queue.ends().join("\n");
    let log = Regex::new(r"dur=[0-9.]+s").unwrap().replace_all(&log, "dur=[N]");
    insta::assert_snapshot!(log, @r"
    END id=2 attempt=1 rc=3 status=failed dur=[N] log=.rgpu/queue/2/1.log
    END id=2 attempt=2 rc=3 status=failed dur=[N] log=.rgpu/queue/2/2.log
    END id=1 attempt=1 rc=0 status=ok dur=[N] log=.rgpu/queue/1/1.log
    END id=3 attempt=0 rc=- status=skipped dur=- log=-
    END id=4 attempt=1 rc=0 status=ok dur=[N] log=.rgpu/queue/4/1.log
    END id=2 attempt=0 rc=- status=cancelled dur=- log=-
    ");
}

#[test]
fn scripts_run_byte_for_byte() {
    let queue = TestQueue::new();
    let heredoc =
        b"#!/bin/sh\ncat <<'END'\nit's \"$HOME\" `x` \\\n\ttab \xc3\xbc\nEND\nprintf '%s|' \"a b\"";
    let first = queue.add_script("", heredoc);
    // The shell reads up to `exit`; what follows is data of the script.
    let mut with_data = b"tail -c +30 \"$0\"; exit 0\n     ".to_vec();
    with_data.truncate(29);
    let mut data: Vec<u8> = (0..=255).collect();
    data.extend(vec![b'\0'; 1000]);
    data.resize(10_000_000, b'\xfe');
    with_data.extend(&data);
    let second = queue.add_script("--lang sh --name data", &with_data);
    let third = queue.add_script("--lang py", "print('ü', end='')\n".as_bytes());
    queue.run_once();
    assert_eq!(queue.output(first), b"it's \"$HOME\" `x` \\\n\ttab \xc3\xbc\na b|");
    assert!(queue.output(second) == data, "{:?}", queue.entry(second));
    assert_eq!(queue.output(third), "ü".as_bytes());
    assert_eq!(queue.entry(second)["script"]["bytes"], with_data.len());
}

#[test]
fn arguments_of_any_bytes_come_through() {
    let queue = TestQueue::new();
    let odd = OsStr::from_bytes(b"\xff\xfe\n'\"$x");
    let args: Vec<OsString> = ["queue", "add", "--", "printf", "%s|", "", "a b", "--json"]
        .map(OsString::from)
        .into_iter()
        .chain([odd.to_owned()])
        .collect();
    let id = queue.added(&queue.laptop.rgpu(args).output().unwrap());
    queue.run_once();
    assert_eq!(queue.output(id), [b"|a b|--json|".as_slice(), odd.as_bytes(), b"|"].concat());
}

#[test]
fn the_environment_is_what_add_had_and_secrets_come_from_the_runner() {
    let queue = TestQueue::new();
    let laptop = &queue.laptop;
    let add = "queue add --env PLAIN=1=2 --env TOKEN -- sh -c 'env; pwd'";
    let mut command = laptop.rgpu(crate::laptop::words(add));
    command.env("PATH", "/usr/bin:/bin:/mine").env("TOKEN", "of-add").env("OTHER", "x");
    let id = queue.added(&command.output().unwrap());
    let missing = queue.add("--env NOWHERE -- true");
    let mut run = laptop.rgpu(["queue", "run", "--once"]);
    run.env("TOKEN", "of-runner").env("OTHER", "x").current_dir(laptop.project(""));
    assert!(run.output().unwrap().status.success());
    let output = String::from_utf8(queue.output(id)).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    for line in ["PLAIN=1=2", "TOKEN=of-runner", "PATH=/usr/bin:/bin:/mine"] {
        assert!(lines.contains(&line), "{line}: {output}");
    }
    assert!(!output.contains("OTHER="), "{output}");
    assert!(output.ends_with(&format!("{}\n", laptop.project("").display()).replace("/\n", "\n")));
    let entry = queue.entry(missing);
    assert_eq!(entry["state"], "failed");
    let reason = entry["reason"].as_str().unwrap();
    assert!(reason.contains("`NOWHERE`: it is not set where the runner was started"), "{reason}");
    for file in ["state.db", "state.db-wal"] {
        let bytes = fs::read(laptop.project(".rgpu").join(file)).unwrap_or_default();
        assert!(!bytes.windows(6).any(|part| part == b"of-add"), "{file}");
    }
}

#[test]
fn what_is_added_wrongly_adds_nothing() {
    let queue = TestQueue::new();
    let laptop = &queue.laptop;
    laptop.write("what", "echo\n");
    let mut story = String::new();
    for line in [
        "queue add",
        "queue add --file none.sh",
        "queue add --file what",
        "queue add --file what --lang cobol",
        "queue add --after 7 -- true",
        "queue add --after x -- true",
        "queue add --snapshot patch -- true",
        "queue add --lang py -- true",
        "queue add --env =x -- true",
        "queue add --env 1BAD=x -- true",
        "queue add --name '' -- true",
        "queue add --tag '' -- true",
        "queue add --tag 'two words' -- true",
        "queue add --stdin --lang sh",
        "queue add --gpu '' -- true",
        "queue add --gpu 0,x -- true",
        "queue add --remote '' -- true",
        "queue add --timeout 3x -- true",
        "queue add --stdin -- true",
    ] {
        story += &laptop.show(line);
    }
    insta::assert_snapshot!(story);
    assert!(queue.json("ls")["entries"].as_array().unwrap().is_empty());
}

#[test]
fn an_entry_that_is_named_twice_is_waited_for_once() {
    let queue = TestQueue::new();
    queue.add("-- true");
    let id = queue.add("--after 1,1:any --after 1 -- true");
    assert_eq!(queue.entry(id)["after"], serde_json::json!([{"entry": 1, "any": false}]));
}

#[test]
fn a_name_is_one_line_without_controls() {
    let queue = TestQueue::new();
    let name = "one\ntwo\x1b[8mhidden\x1b]0;title\x07";
    let args = ["queue", "add", "--name", name, "--env", "TOKEN", "--env", "N=1", "--", "true"];
    let mut add = queue.laptop.rgpu(args);
    let id = queue.added(&add.output().unwrap());
    let shown = String::from_utf8(queue.laptop.run(&format!("queue show {id}")).stdout).unwrap();
    let listed = String::from_utf8(queue.laptop.run("queue ls").stdout).unwrap();
    let run = queue.laptop.run("queue run --once");
    let said = String::from_utf8(run.stderr).unwrap();
    for text in [&shown, &listed, &said] {
        assert!(text.contains("one two [8mhidden ]0;title"), "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
    assert!(
        shown.contains("  priority  0\n") && shown.contains(" all of this machine\n"),
        "{shown}"
    );
    assert!(shown.contains(" N ") && shown.contains("  of runner TOKEN\n"), "{shown}");
    assert!(!shown.contains("N=1"), "{shown}");
}

#[test]
fn a_folder_below_a_queue_gets_its_own_and_says_so() {
    let queue = TestQueue::new();
    queue.add("-- true");
    fs::create_dir(queue.laptop.project("inner")).unwrap();
    let run = |line: &str| {
        let mut command = queue.laptop.rgpu(crate::laptop::words(line));
        let output = command.current_dir(queue.laptop.project("inner")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (status(&output), said.replace(&queue.laptop.project("").display().to_string(), "[P]"))
    };
    let (code, said) = run("queue ls");
    assert_eq!(code, 2);
    assert!(said.contains("project` has one"), "{said}");
    let (code, said) = run("queue add -- true");
    assert_eq!(code, 0);
    assert!(said.contains("this is a new queue, in `[P]inner`"), "{said}");
    let (_, said) = run("queue add -- true");
    assert!(!said.contains("new queue"), "{said}");
}

#[test]
fn a_file_that_is_no_database_is_named_with_a_way_out() {
    let queue = TestQueue::new();
    queue.laptop.write(".rgpu/state.db", &"no database ".repeat(1000));
    let output = queue.laptop.run("queue ls");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 3, "{said}");
    assert!(said.contains(".rgpu/state.db` is not a state database of rgpu"), "{said}");
    assert!(said.contains("move it away"), "{said}");
}

#[test]
fn a_snapshot_runs_the_files_as_they_were() {
    let queue = TestQueue::new();
    let laptop = &queue.laptop;
    let git = |line: &str| git(&laptop.project(""), line);
    laptop.write("inner/code.sh", "echo committed\n");
    laptop.write("same", "same\n");
    laptop.write(".gitignore", "ignored\n");
    git("init -q");
    let early = laptop.show("queue add --snapshot patch -- true");
    assert!(early.contains("the repository has no commit yet"), "{early}");
    git("add -A");
    git("commit -q -m x");
    laptop.write("inner/code.sh", "cat same ../same new 2>/dev/null; echo changed; cat ../zero\n");
    laptop.write("inner/new", "new\n");
    laptop.write("ignored", "ignored\n");
    fs::write(laptop.project("zero"), b"\0\xff").unwrap();
    let add = |mode: &str| {
        let line = format!("queue add --retries 1 --snapshot {mode} -- sh ./code.sh");
        let mut command = laptop.rgpu(crate::laptop::words(&line));
        command.current_dir(laptop.project("inner"));
        // The project is above, as `rgpu.toml` tells.
        queue.added(&command.output().unwrap())
    };
    laptop.write("rgpu.toml", "");
    let (patch, copy, none) = (add("patch"), add("copy"), add("none"));
    laptop.write("inner/code.sh", "echo later\n");
    laptop.write("inner/new", "later\n");
    fs::remove_file(laptop.project("zero")).unwrap();
    let before = git_objects(laptop.project(".git"));
    queue.run_once();
    for id in [patch, copy] {
        let output = queue.output(id);
        assert_eq!(output, b"same\nnew\nchanged\n\0\xff", "{id}: {:?}", queue.entry(id));
        let tree = laptop.project(format!(".rgpu/queue/{id}/1.tree"));
        assert!(tree.join("rgpu.toml").exists() && !tree.join("ignored").exists());
    }
    assert_eq!(queue.output(none), b"later\n");
    assert_eq!(git_objects(laptop.project(".git")), before, "git's own files are not touched");
}

/// What git says inside the entry, and what the records of runs get.
#[test]
fn a_snapshot_is_at_the_commit_that_was_kept() {
    let queue = TestQueue::new();
    let laptop = &queue.laptop;
    let git = |line: &str| git(&laptop.project(""), line);
    laptop.write("code", "one\n");
    git("init -q");
    git("add -A");
    git("commit -q -m x");
    let kept = git("rev-parse HEAD");
    let script = "git rev-parse HEAD; git status --porcelain";
    let add = |mode: &str| queue.add(&format!("--snapshot {mode} -- sh -c '{script}'"));
    let clean = [add("patch"), add("copy")];
    laptop.write("code", "two\n");
    laptop.write("new", "new\n");
    let dirty = [add("patch"), add("copy")];
    git("add -A");
    git("commit -q -m later");
    queue.run_once();
    for (ids, changes) in [(clean, ""), (dirty, " M code\n?? new\n")] {
        for id in ids {
            let want = format!("{kept}{changes}");
            assert_eq!(String::from_utf8_lossy(&queue.output(id)), want, "{:?}", queue.entry(id));
            let recorded = repository(&laptop.project(format!(".rgpu/queue/{id}/1.tree")));
            let (commit, dirty) = (kept.trim().to_owned(), !changes.is_empty());
            assert_eq!(recorded, Some(Repository { commit, dirty }), "{id}");
        }
    }
}

#[test]
fn files_that_git_keeps_although_it_ignores_their_names_are_in_every_snapshot() {
    let queue = TestQueue::new();
    let laptop = &queue.laptop;
    let git = |line: &str| git(&laptop.project(""), line);
    laptop.write(".gitignore", "*.dat\nout/\n");
    laptop.write("kept.dat", "kept\n");
    laptop.write("out/deep/kept", "deep\n");
    git("init -q");
    git("add -A -f");
    git("commit -q -m x");
    laptop.write("made.dat", "made\n");
    laptop.write("out/made", "made\n");
    for mode in ["patch", "copy"] {
        let command = "sh -c 'cat kept.dat out/deep/kept; ls *.dat out'";
        let id = queue.add(&format!("--snapshot {mode} -- {command}"));
        queue.run_once();
        let printed = queue.output(id);
        let printed = String::from_utf8_lossy(&printed);
        assert_eq!(printed, "kept\ndeep\nkept.dat\n\nout:\ndeep\n", "{mode}");
    }
}

#[test]
fn settings_of_git_for_people_who_read_patches_do_not_count() {
    let queue = TestQueue::new();
    let laptop = &queue.laptop;
    let git = |line: &str| git(&laptop.project(""), line);
    laptop.write("lib/code", "one\ntwo\nthree\n");
    git("init -q");
    git("add -A");
    git("commit -q -m x");
    for setting in [
        "color.ui always",
        "diff.noprefix true",
        "diff.mnemonicPrefix true",
        "diff.srcPrefix x/",
        "diff.dstPrefix y/",
        "diff.context 0",
        "diff.relative true",
        "diff.submodule log",
        "core.quotePath false",
        "apply.whitespace error",
    ] {
        git(&format!("config {setting}"));
    }
    laptop.write("lib/code", "one\n2\nthree\n");
    laptop.write("lib/zä", "new\n");
    let id = queue.add("--snapshot patch -- sh -c 'cat lib/*'");
    queue.run_once();
    let printed = queue.output(id);
    let printed = String::from_utf8_lossy(&printed);
    assert_eq!(printed, "one\n2\nthree\nnew\n", "{:?}", queue.entry(id));
}

#[test]
fn a_submodule_is_in_a_copy_and_refused_for_a_patch() {
    let queue = TestQueue::new();
    let laptop = &queue.laptop;
    for (folder, file) in [("lib/inner", "lib/inner/code"), ("", "code")] {
        laptop.write(file, "echo it\n");
        git(&laptop.project(folder), "init -q");
        git(&laptop.project(folder), "add -A");
        git(&laptop.project(folder), "commit -q -m x");
    }
    let output = laptop.run("queue add --snapshot patch -- sh lib/inner/code");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 3, "{said}");
    assert!(said.contains("`lib/inner` is a submodule"), "{said}");
    assert!(said.contains("`--snapshot copy`"), "{said}");
    let id = queue.add("--snapshot copy -- sh lib/inner/code");
    fs::remove_dir_all(laptop.project("lib/inner")).unwrap();
    queue.run_once();
    assert_eq!(queue.output(id), b"it\n", "{:?}", queue.entry(id));
    // Without its files there is nothing that a patch would miss.
    fs::create_dir(laptop.project("lib/inner")).unwrap();
    let id = queue.add("--snapshot patch -- sh code");
    queue.run_once();
    assert_eq!(queue.output(id), b"it\n", "{:?}", queue.entry(id));
}

/// Runs git as its user, and returns what it printed.
fn git(folder: &std::path::Path, line: &str) -> String {
    let mut git = std::process::Command::new("git");
    git.arg("-C").arg(folder).args(["-c", "user.name=x", "-c", "user.email=x@x"]);
    let output = git.args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn git_objects(git: std::path::PathBuf) -> Vec<std::path::PathBuf> {
    let files = walkdir::WalkDir::new(git).sort_by_file_name().into_iter().flatten();
    files.map(walkdir::DirEntry::into_path).collect()
}

#[test]
fn an_entry_that_runs_rgpu_shows_its_run() {
    let queue = TestQueue::new();
    let rgpu = env!("CARGO_BIN_EXE_rgpu");
    let id = queue.add(&format!("-- {rgpu} exec --run-id mine -- echo hello"));
    let other = queue.add("-- true");
    queue.run_once();
    assert_eq!(queue.state(id), "ok", "{}", String::from_utf8_lossy(&queue.output(id)));
    let shown = queue.json(&format!("show {id}"));
    assert_eq!(shown["runs"], serde_json::json!([{"id": "mine", "state": "done"}]));
    assert!(queue.json(&format!("show {other}"))["runs"].is_null());
    queue.laptop.wait_until_quiet();
}

#[test]
fn a_queue_that_came_with_a_project_runs_nothing() {
    let queue = TestQueue::new();
    queue.add("-- touch ran");
    let laptop = &queue.laptop;
    fs::remove_file(laptop.path("home/.local/share/rgpu/state-ids")).unwrap();
    let id = Regex::new("[0-9a-f]{32}").unwrap();
    let story = laptop.show("queue run --once") + &laptop.show("queue ls");
    insta::assert_snapshot!(id.replace_all(&story, "[ID]"));
    assert!(!laptop.project("ran").exists());
}

#[test]
fn a_database_of_a_later_version_is_left_alone() {
    let queue = TestQueue::new();
    queue.add("-- true");
    let db = queue.laptop.project(".rgpu/state.db");
    let connection = rusqlite::Connection::open(&db).unwrap();
    connection.pragma_update(None, "user_version", 1000).unwrap();
    drop(connection);
    let story = queue.laptop.show("queue ls") + &queue.laptop.show("queue add -- true");
    insta::assert_snapshot!(story);
}

#[test]
fn watching_prints_each_change_until_nothing_is_left() {
    let queue = TestQueue::new();
    queue.add("--name first -- sleep 1");
    let runner = queue.start_runner(None);
    let output = queue.laptop.run("queue watch");
    assert_eq!(status(&output), 0);
    let printed = String::from_utf8(output.stdout).unwrap();
    let tables: Vec<&str> = printed.trim_end().split("\n\n").collect();
    assert!(tables.len() >= 2, "{printed}");
    assert!(tables.last().unwrap().contains(" ok "), "{printed}");
    runner.wait_with_output().unwrap();
    assert_eq!(queue.json("watch")["entries"][0]["state"], "ok");
}

#[test]
fn output_is_followed_over_attempts_until_the_end() {
    let queue = TestQueue::new();
    let script =
        b"n=$(cat n 2>/dev/null); echo x$n > n; echo one; sleep 0.3; echo two$n; test -n \"$n\"";
    let id = queue.add_script("--lang sh --retries 1", script);
    let follower = queue.laptop.start(&format!("queue log -f {id}"));
    queue.run_once();
    let output = follower.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\none\ntwox\n");
    let first = queue.laptop.run(&format!("queue log {id} --attempt 1"));
    assert_eq!(first.stdout, b"one\ntwo\n");
    assert_eq!(queue.json(&format!("log {id}"))["output"], "one\ntwox\n");
    for line in ["--attempt 9", "--attempt 0", "--attempt 0 --json", "-f --attempt 9"] {
        assert_eq!(status(&queue.laptop.run(&format!("queue log {id} {line}"))), 2, "{line}");
    }
}
