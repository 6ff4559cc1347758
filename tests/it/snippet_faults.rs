//! `rgpu exec` when something is wrong: what users mistype, what programs do, what folders hold.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for};
use crate::over_ssh::add_remote_to_config;
use crate::snippets::with_rust;
use crate::sshd::{Cutter, Sshd};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn exactly_one_thing_is_executed() {
    let laptop = Laptop::new();
    laptop.write("a.py", "print(1)\n");
    insta::assert_snapshot!(laptop.show("exec"));
    insta::assert_snapshot!(laptop.show("exec a.py --code 'print(2)'"));
    insta::assert_snapshot!(laptop.show("exec --lang py -- ls"));
    insta::assert_snapshot!(laptop.show("exec a.py b.py"));
}

#[test]
fn a_language_that_is_none_or_cannot_be_told_is_a_usage_error() {
    let laptop = Laptop::new();
    laptop.write("notes.txt", "hello\n");
    laptop.write("empty.py", "\n");
    laptop.write("latin.rs", "");
    fs::write(laptop.project("latin.rs"), b"fn main() { /* \xe9 */ }\n").unwrap();
    insta::assert_snapshot!(laptop.show("exec notes.txt"));
    insta::assert_snapshot!(laptop.show("exec notes.txt --lang pyhton"));
    insta::assert_snapshot!(laptop.show("exec empty.py"));
    insta::assert_snapshot!(laptop.show("exec nothing.py"));
    insta::assert_snapshot!(laptop.show("exec --code hello"));
    insta::assert_snapshot!(laptop.show("exec latin.rs"));
    insta::assert_snapshot!(laptop.show("exec notes.txt --set full"));
}

#[test]
fn heads_that_cannot_be_read_name_their_line() {
    let laptop = Laptop::new();
    laptop.write("a.py", "x = 1\n# /// script\n# dependencies = [\n");
    laptop.write("a.rs", "---\n[dependencies]\nrand = \n---\nfn main() {}\n");
    laptop.write(".env", "A=1\nno value here\n");
    insta::assert_snapshot!(laptop.show("exec a.py"));
    insta::assert_snapshot!(laptop.show("exec a.rs"));
    insta::assert_snapshot!(laptop.show("exec --env-file .env -- true"));
}

#[test]
fn a_python_file_with_a_syntax_error_is_pythons_own_affair() {
    let laptop = Laptop::new();
    laptop.write("bad.py", "def f(:\n    pass\n");
    let output = laptop.run("exec bad.py");
    assert_eq!(status(&output), 1);
    assert!(text(&output.stderr).contains("SyntaxError"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("line 1"), "{}", text(&output.stderr));
}

#[test]
fn a_module_that_is_missing_is_pythons_own_affair_and_a_crate_that_is_nowhere_cargos() {
    let laptop = Laptop::new();
    laptop.write("lacks.py", "import surely_nobody_has_this\n");
    let output = laptop.run("exec lacks.py");
    assert_eq!(status(&output), 1);
    let words = text(&output.stderr);
    assert!(words.contains("No module named 'surely_nobody_has_this'"), "{words}");
    laptop.write(
        "lacks.rs",
        "---\n[dependencies]\nnowhere = { path = \"/nowhere/at/all\" }\n---\nfn main() {}\n",
    );
    let output = with_rust(&laptop, "exec lacks.rs").output().unwrap();
    assert_eq!(status(&output), 125);
    let words = text(&output.stderr);
    assert!(words.contains("`lacks.rs` has dependencies that cargo cannot resolve"), "{words}");
    assert!(words.contains("/nowhere/at/all"), "{words}");
}

#[test]
fn a_dependency_that_no_index_has_is_named_and_no_environment_is_left() {
    let laptop = Laptop::new();
    // An index that knows no package.
    let index = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = index.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in index.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
    });
    laptop.write("a.py", "# /// script\n# dependencies = [\"nobody-has-this\"]\n# ///\n");
    let output =
        laptop.run(&format!("exec a.py --env PIP_INDEX_URL=http://127.0.0.1:{port}/simple"));
    let words = text(&output.stderr);
    assert_eq!(status(&output), 125, "{words}");
    assert_eq!(words.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{words}");
    assert!(words.contains("nobody-has-this"), "{words}");
    assert_eq!(laptop.latest_json("error.json")["error"]["code"], "python_unresolved", "{words}");
    laptop.wait_until_quiet();
    let made = walkdir::WalkDir::new(laptop.path("agent/python")).into_iter().flatten();
    assert!(!made.into_iter().any(|entry| entry.file_name() == ".ready"));
}

#[test]
fn a_host_that_goes_down_under_a_program_is_told_and_nothing_of_it_is_left() {
    let laptop = Laptop::new();
    let child = laptop.start("exec -- sh -c 'echo up; sleep 1000'");
    let log = laptop.project("artifacts/runs/.latest");
    let supervisor = wait_for("the program", || {
        let id = fs::read_to_string(&log).ok()?;
        let out = log.with_file_name(id.trim()).join("log/exec.stdout");
        fs::read_to_string(out).ok().filter(|text| text == "up\n")?;
        laptop.running().into_iter().find(|line| line.contains(" job "))
    });
    let pid = supervisor.split(' ').next().and_then(|pid| pid.parse().ok()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let words = text(&output.stderr);
    assert_eq!(status(&output), 125, "{words}");
    assert!(words.contains("supervisor died"), "{words}");
    laptop.wait_until_quiet();
}

#[test]
fn a_program_that_prints_what_other_tools_take_for_an_end_is_passed_through() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    laptop.write(
        "odd.py",
        "import sys\nsys.stdout.buffer.write(b'[EXIT:0]\\n[DONE]\\ndata: x\\n\\x1b[2J\\x00\\xff no newline')\nsys.stderr.buffer.write(b'\\xfe')\nsys.exit(9)\n",
    );
    let output = laptop.run("exec -q odd.py --remote box --accept-new");
    assert_eq!(status(&output), 9);
    assert_eq!(output.stdout, b"[EXIT:0]\n[DONE]\ndata: x\n\x1b[2J\x00\xff no newline");
    assert_eq!(output.stderr, b"\xfe");
}

#[test]
fn megabytes_of_output_pass_whole_on_both_streams() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    let script = "head -c 30000000 /dev/zero; head -c 20000000 /dev/zero >&2";
    let output = laptop.run(&format!("exec -q --remote box --accept-new -- sh -c '{script}'"));
    assert_eq!((status(&output), output.stdout.len()), (0, 30_000_000));
    assert_eq!(output.stderr.len(), 20_000_000);
}

#[test]
fn a_tree_that_grows_without_end_is_stopped_by_its_time_limit() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    // Each generation starts the next before it ends, in sessions of their own and deaf to
    // SIGTERM; bounded, so that a machine that tests this stays usable.
    let bomb = "trap '' TERM INT HUP\nn=$1\n[ \"$n\" -gt 40 ] && exec sleep 1000\nsetsid sh \"$0\" $((n + 1)) &\nsetsid sleep 1000 &\n[ \"$n\" -gt 0 ] || sleep 1000\n";
    laptop.write("bomb.sh", bomb);
    let output = laptop.run("exec bomb.sh --remote box --accept-new --timeout 2s -- 0");
    assert_eq!(status(&output), 124, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("`bomb.sh` was stopped after 2 s"));
    laptop.wait_until_quiet();
}

#[test]
fn a_true_fork_bomb_is_stopped_by_its_time_limit() {
    if !rustix::process::geteuid().is_root() {
        // Only root can give it a user of its own, whose processes alone are counted and limited.
        return;
    }
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    let bomb = "exec setpriv --reuid 64321 --regid 64321 --clear-groups prlimit --nproc=60 nice -n 19 \\\n  sh -c 'bomb() { bomb | bomb & }; echo lit; bomb 2>/dev/null; while :; do sleep 1; done' 2>/dev/null\n";
    laptop.write("bomb.sh", bomb);
    let output = laptop.run("exec bomb.sh --remote box --accept-new --timeout 3s");
    assert_eq!(
        (status(&output), text(&output.stdout).as_str()),
        (124, "lit\n"),
        "{}",
        text(&output.stderr)
    );
    laptop.wait_until_quiet();
    let ours = |pid: &str| {
        fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|s| s.contains("Uid:\t64321"))
    };
    let names = fs::read_dir("/proc").unwrap().flatten().map(|e| e.file_name());
    let left: Vec<_> = names.filter(|name| ours(&name.to_string_lossy())).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Waits until an event of this kind stands in the file that `--events` names.
fn wait_for_event(laptop: &Laptop, kind: &str) {
    let said = format!("\"said\":\"{kind}\"");
    wait_for(kind, || {
        let events = fs::read_to_string(laptop.project("events.jsonl")).ok()?;
        events.contains(&said).then_some(())
    });
}

#[test]
fn ctrl_c_while_a_host_does_not_answer_ends_at_once() {
    let laptop = Laptop::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let line = format!("exec --remote ssh://me@127.0.0.1:{port} --accept-new -- true");
    let child = laptop.start(&line);
    let asked = silent.accept().unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(asked);
    assert_eq!(status(&output), 130, "{}", text(&output.stderr));
    laptop.wait_until_quiet();
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_during_an_upload_leaves_nothing_half_begun_and_the_next_goes_through() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    let slow = Cutter::before(sshd.port).await;
    add_remote_to_config(&laptop, &sshd, slow.port);
    tokio::task::block_in_place(|| {
        assert_eq!(status(&laptop.run("exec --remote box --accept-new -- true")), 0);
        // Nothing that zstd makes small: it must not fit before the place where the link stops.
        let mut noise = vec![0; 6_000_000];
        fs::File::open("/dev/urandom").unwrap().read_exact(&mut noise).unwrap();
        fs::create_dir(laptop.project("data")).unwrap();
        fs::write(laptop.project("data/noise"), noise).unwrap();
        slow.hold_after(400_000);
        let line = "exec --remote box --mount data --events events.jsonl -- cksum noise";
        let child = laptop.start(line);
        wait_for_event(&laptop, "uploading");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(status(&output), 130, "{}", text(&output.stderr));
        assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
        laptop.wait_until_quiet();
        slow.hold_after(u64::MAX);
        let output = laptop.run(line);
        assert_eq!(status(&output), 0, "{}", text(&output.stderr));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_while_results_are_fetched_stops_that_and_they_can_be_had_later() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    let slow = Cutter::before(sshd.port).await;
    add_remote_to_config(&laptop, &sshd, slow.port);
    tokio::task::block_in_place(|| {
        assert_eq!(status(&laptop.run("exec --remote box --accept-new -- true")), 0);
        slow.hold_after(2_000_000);
        let line = "exec --remote box --events events.jsonl --pull big -- sh -c 'head -c 20000000 /dev/urandom > big; cksum < big'";
        let child = laptop.start(line);
        wait_for_event(&laptop, "fetching");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(status(&output), 130, "{said}");
        assert!(said.contains("`rgpu runs attach"), "{said}");
        assert!(!laptop.project("big").exists());
        slow.hold_after(u64::MAX);
        let again = laptop.run("runs attach latest");
        assert_eq!(status(&again), 0, "{}", text(&again.stderr));
        let sum = Command::new("cksum")
            .stdin(fs::File::open(laptop.project("big")).unwrap())
            .output()
            .unwrap();
        assert_eq!(sum.stdout, output.stdout);
    });
}

#[test]
fn ctrl_c_while_the_compiler_works_stops_it() {
    let laptop = Laptop::new();
    // A cargo that never ends, and a child of it.
    let bin = laptop.path("h200/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join("cargo"), "#!/bin/sh\nsleep 1000 &\ntouch compiling\nwait\n").unwrap();
    fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    laptop.write("a.rs", "fn main() {}\n");
    let mut command = laptop.rgpu(["exec", "a.rs"]);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let rust = laptop.path("home/.cache/rgpu/exec/rust");
    wait_for("the compiler", || {
        walkdir::WalkDir::new(&rust)
            .into_iter()
            .flatten()
            .any(|entry| entry.file_name() == "compiling")
            .then_some(())
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", text(&output.stderr));
    laptop.wait_until_quiet();
    assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
}

#[test]
fn ctrl_c_while_an_environment_is_made_leaves_nothing_of_it() {
    let laptop = Laptop::new();
    // An index that never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    laptop.write("a.py", "# /// script\n# dependencies = [\"nothing-at-all\"]\n# ///\n");
    let child =
        laptop.start(&format!("exec a.py --env PIP_INDEX_URL=http://127.0.0.1:{port}/simple"));
    // pip has come to ask.
    let asked = silent.accept().unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(asked);
    assert_eq!(status(&output), 130, "{}", text(&output.stderr));
    laptop.wait_until_quiet();
    let python = laptop.path("agent/python");
    let ready = walkdir::WalkDir::new(python)
        .into_iter()
        .flatten()
        .any(|entry| entry.file_name() == ".ready");
    assert!(!ready);
}

/// Over a real server: a host with one GPU, whose nvcc never answers, and tells of it in `asked`.
fn host_that_never_answers(laptop: &Laptop, sshd: &Sshd) {
    FakeHost::with(laptop, &["nvidia-smi"]);
    let script =
        format!("#!/bin/sh\nsleep 1000 &\ntouch '{}'\nwait\n", laptop.path("asked").display());
    let nvcc = laptop.path("h200/bin/nvcc");
    fs::write(&nvcc, script).unwrap();
    fs::set_permissions(nvcc, fs::Permissions::from_mode(0o755)).unwrap();
    add_remote_to_config(laptop, sshd, sshd.port);
}

#[test]
fn ctrl_c_while_a_host_is_asked_what_it_has_ends_at_once_and_stops_the_question() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    host_that_never_answers(&laptop, &sshd);
    for line in [
        "exec --remote box --accept-new --gpus 1 -- true",
        "exec --remote box --accept-new --mode nsys -- true",
        "build --kernel vecadd --remote box --accept-new",
        "profile --kernel vecadd --remote box --accept-new",
        "doctor box --accept-new",
        "remote check box --accept-new",
    ] {
        let _ = fs::remove_file(laptop.path("asked"));
        let child = laptop.start(line);
        wait_for("the question", || laptop.path("asked").exists().then_some(()));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let begun = Instant::now();
        let output = child.wait_with_output().unwrap();
        laptop.wait_until_quiet();
        let took = begun.elapsed();
        let said = text(&output.stderr);
        assert_eq!(status(&output), 130, "{line}: {said}");
        let errors = said.lines().filter(|line| line.starts_with("error: ")).collect::<Vec<_>>();
        assert_eq!(
            errors,
            ["error: cancelled while asking the host for its GPUs and tools"],
            "{line}"
        );
        // A question may take ten seconds; nobody waited for that.
        assert!(took < Duration::from_secs(8), "{line}: {took:?}");
    }
    assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
}

#[test]
fn ctrl_c_twice_before_a_slow_host_has_the_job_leaves_nothing_that_seems_to_run() {
    let laptop = Laptop::new();
    let sshd = Sshd::start()
        .restart("ForceCommand sleep $(cat FOLDER/delay); exec sh -c \"$SSH_ORIGINAL_COMMAND\"");
    add_remote_to_config(&laptop, &sshd, sshd.port);
    // From the second command on, the plan goes out before the agent has started.
    fs::write(sshd.path("delay"), "0").unwrap();
    assert_eq!(status(&laptop.run("exec --remote box --accept-new -- true")), 0);
    fs::write(sshd.path("delay"), "6").unwrap();
    let child = laptop.start("exec --remote box --run-id slow -- true");
    let record = laptop.project("artifacts/runs/slow/run.json");
    wait_for("the submission", || {
        fs::read_to_string(&record).ok()?.contains("slow.1").then_some(())
    });
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(500));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(status(&output), 130, "{said}");
    assert!(said.contains("cancelled before the host had taken the job"), "{said}");
    assert!(!said.contains("the link is lost"), "{said}");
    let state = || laptop.latest_json("run.json")["state"].clone();
    assert_eq!(state(), "never_submitted");
    fs::write(sshd.path("delay"), "0").unwrap();
    let output = laptop.run("runs cancel slow");
    let said = text(&output.stderr);
    assert!(said.contains("`box` has no job `slow`"), "{said}");
    assert!(said.contains("its record says `never submitted` now"), "{said}");
    assert_eq!((status(&output), state()), (0, "never_submitted".into()));
}

#[test]
fn ctrl_c_in_the_queue_for_a_gpu_gives_the_place_back() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    FakeHost::new(&laptop);
    add_remote_to_config(&laptop, &sshd, sshd.port);
    let go = laptop.path("go");
    let hold = format!(
        "exec --remote box --accept-new --gpus 1 --run-id first -- sh -c 'while [ ! -e {} ]; do sleep 0.05; done'",
        go.display()
    );
    let first = laptop.start(&hold);
    let events = |run: &str| laptop.project(format!("artifacts/runs/{run}/events.jsonl"));
    let event = |run: &str, kind: &str| {
        let said = format!("\"{kind}\"");
        let file = events(run);
        wait_for(kind, || fs::read_to_string(&file).ok()?.contains(&said).then_some(()));
    };
    event("first", "gpu_locked");
    for line in [
        "exec --remote box --gpus 1 --run-id waits -- true",
        "profile --kernel vecadd --mode bench --remote box --run-id waits",
    ] {
        let child = laptop.start(line);
        event("waits", "queued");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(status(&output), 130, "{line}: {said}");
        let errors = said.lines().filter(|line| line.starts_with("error: ")).collect::<Vec<_>>();
        assert_eq!(errors, ["error: cancelled"], "{line}: {said}");
        assert_eq!(laptop.latest_json("run.json")["state"], "cancelled", "{line}");
        // Only the one that has the GPU is left there.
        let names = || fs::read_dir(laptop.path("lock")).unwrap().flatten().map(|e| e.file_name());
        let tickets: Vec<_> =
            names().filter(|name| name.to_string_lossy().starts_with("ticket-")).collect();
        assert!(tickets.is_empty(), "{line}: {tickets:?}");
        wait_for("the end of what waited", || {
            let left = laptop.running().into_iter().filter(|line| line.contains("waits"));
            (left.count() == 0).then_some(())
        });
        fs::remove_dir_all(laptop.project("artifacts/runs/waits")).unwrap();
    }
    fs::write(go, b"").unwrap();
    assert_eq!(status(&first.wait_with_output().unwrap()), 0);
    // The next one need not wait.
    let line = "exec --remote box --gpus 1 --run-id next -- true";
    assert_eq!(status(&laptop.run(line)), 0);
    assert!(!fs::read_to_string(events("next")).unwrap().contains("queued"));
    laptop.wait_until_quiet();
}

#[test]
fn a_folder_with_a_socket_and_links_travels_without_them_and_says_so() {
    let laptop = Laptop::new();
    laptop.write("repo/a.txt", "A\n");
    symlink("/etc/passwd", laptop.project("repo/out")).unwrap();
    let _socket = UnixListener::bind(laptop.project("repo/sock")).unwrap();
    fs::create_dir(laptop.project("repo/empty")).unwrap();
    insta::assert_snapshot!(laptop.show("exec --mount repo -- ls"));
}

#[test]
fn a_folder_that_is_too_big_is_refused_with_its_biggest_parts() {
    let laptop = Laptop::new();
    laptop.write("repo/a.txt", "A\n");
    // 10 GB that take no room.
    fs::create_dir_all(laptop.project("repo/checkpoints")).unwrap();
    let big = fs::File::create(laptop.project("repo/checkpoints/model.bin")).unwrap();
    big.set_len(10 << 30).unwrap();
    insta::assert_snapshot!(laptop.show("exec --mount repo -- ls"));
    insta::assert_snapshot!(laptop.show("exec --mount repo --mount-limit 1MB -- ls"));
    insta::assert_snapshot!(laptop.show("exec --mount nowhere -- ls"));
    insta::assert_snapshot!(laptop.show("exec --mount repo:../up -- ls"));
    // Named to stay, it does.
    laptop.write("repo/.rgpuignore", "checkpoints\n");
    assert_eq!(status(&laptop.run("exec --mount repo -- ls")), 0);
}

#[test]
fn more_gpus_than_there_are_is_the_hosts_failure() {
    let laptop = Laptop::new();
    insta::assert_snapshot!(laptop.show("exec --gpus 2 -- true"));
    let none = laptop.run("exec --gpus 0 -- sh -c 'echo \"[$CUDA_VISIBLE_DEVICES]\"'");
    assert_eq!(text(&none.stdout), "[]\n");
}
