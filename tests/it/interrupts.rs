//! Ctrl-C, killed commands and taking runs up again: nothing half-written, nothing left running.

use std::fs;
use std::process::Child;

use rgpu_model::Profile;
use rustix::process::{Pid, Signal, kill_process};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for};

const NCU: &str = "profile --kernel vecadd --mode ncu --remote h200 --json";

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits until a file of the newest run holds `text`.
fn wait_for_log(laptop: &Laptop, log: &str, text: &str) {
    let runs = laptop.project("artifacts/runs");
    wait_for(text, || {
        let id = fs::read_to_string(runs.join(".latest")).ok()?;
        fs::read_to_string(runs.join(id.trim()).join(log)).ok()?.contains(text).then_some(())
    });
}

#[test]
fn ctrl_c_stops_the_whole_process_tree_and_ends_with_130() {
    let laptop = Laptop::new();
    // The program ignores SIGINT and SIGTERM and has a daemon that left its session.
    let child = laptop.start(
        r#"exec -- sh -c 'trap "" INT TERM; setsid sleep 1000 & echo started; sleep 1000; sleep 1000'"#,
    );
    wait_for_log(&laptop, "log/exec.stdout", "started");
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", String::from_utf8_lossy(&output.stderr));
    laptop.wait_until_quiet();
    let record = laptop.latest_json("run.json");
    assert_eq!((&record["state"], &record["exit"]), (&"cancelled".into(), &130.into()));
}

#[test]
fn a_command_that_cannot_act_on_a_signal_ends_with_its_document_and_the_terminals_old_mode() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};
    for tty in [false, true] {
        let laptop = Laptop::new();
        let fifo = laptop.path("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        // It has a reader that reads nothing, so that the command blocks in its own output.
        let _reader = fs::File::options().read(true).write(true).open(&fifo).unwrap();
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let line = fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let is_raw = || !tcgetattr(&line).unwrap().local_modes.contains(LocalModes::ICANON);
        let tty_flag = if tty { "--tty" } else { "--json" };
        let command = format!(
            "exec {tty_flag} --events {} -- sh -c 'while :; do echo x; sleep 0.001; done'",
            fifo.display()
        );
        let mut command = laptop.rgpu(crate::laptop::words(&command));
        if tty {
            command.stdin(line.try_clone().unwrap());
        }
        let child = command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The pipe is full once its size no longer changes.
        let mut last = 0;
        wait_for("a full pipe", || {
            std::thread::sleep(std::time::Duration::from_millis(500));
            let waiting = rustix::io::ioctl_fionread(&_reader).unwrap();
            (waiting > 60_000 && std::mem::replace(&mut last, waiting) == waiting).then_some(())
        });
        assert_eq!(is_raw(), tty);
        signal(&child, Signal::TERM);
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(status(&output), 130, "{told}");
        assert!(told.contains("error: cancelled"), "{told}");
        assert!(!is_raw());
        if !tty {
            let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(document["error"]["code"], "cancelled");
        }
    }
}

#[test]
fn ctrl_c_brings_what_was_made_until_then_and_asked_for() {
    let laptop = Laptop::new();
    laptop.write("in/a.txt", "a\n");
    // One file is small and one is not; the last words of the program count, too.
    let script = "trap 'echo end > out/last; exit 3' INT; mkdir out; echo b > out/b.txt; \
                  head -c 3000000 /dev/zero > out/long; echo made; sleep 1000";
    let line = format!("exec --run-id made --mount in --pull 'out/**' -- bash -c {script:?}");
    let child = laptop.start(&line);
    wait_for_log(&laptop, "log/exec.stdout", "made");
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let said = laptop.shown(&line, &output);
    assert_eq!(status(&output), 130, "{said}");
    assert!(said.contains("pulled out/b.txt, out/last, out/long\nerror: cancelled"), "{said}");
    let read = |name: &str| fs::read_to_string(laptop.project("in/out").join(name)).unwrap();
    assert_eq!(
        (read("b.txt"), read("last"), read("long").len()),
        ("b\n".into(), "end\n".into(), 3_000_000)
    );
    assert!(laptop.latest().join("pulled/out/long").is_file());
    assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
    laptop.wait_until_quiet();
    // What nothing fits is said, too.
    let child = laptop.start("exec --run-id none --pull 'out/**' -- sh -c 'echo up; sleep 1000'");
    wait_for_log(&laptop, "log/exec.stdout", "up");
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let said = laptop.shown("", &output);
    assert!(said.contains("warning: nothing was pulled") && status(&output) == 130, "{said}");
}

#[test]
fn what_a_run_cancelled_from_another_terminal_had_made_is_brought_by_attach() {
    let laptop = Laptop::new();
    let line = "exec --detach --pull out -- sh -c 'echo made > out; echo made; sleep 1000'";
    assert_eq!(status(&laptop.run(line)), 0);
    wait_for("a file", || {
        let mut made = walkdir::WalkDir::new(laptop.path("agent")).into_iter().flatten();
        made.find(|e| e.file_name() == "out" && e.metadata().is_ok_and(|m| m.len() > 0))
    });
    let cancelled = laptop.show("runs cancel");
    assert!(
        cancelled.contains("`rgpu runs attach [RUN exec-sh]` fetches the files"),
        "{cancelled}"
    );
    let output = laptop.run("runs attach");
    assert_eq!(status(&output), 130, "{}", laptop.shown("runs attach", &output));
    assert_eq!(fs::read_to_string(laptop.project("out")).unwrap(), "made\n");
}

#[test]
fn what_a_run_whose_supervisor_was_killed_had_made_is_brought() {
    let laptop = Laptop::new();
    let line = "exec --pull out -- sh -c 'echo made > out; echo made; sleep 1000'";
    let child = laptop.start(line);
    wait_for_log(&laptop, "log/exec.stdout", "made");
    let supervises = |line: &&String| line.contains("rgpu-agent job ");
    let running = laptop.running();
    let supervisor = running.iter().find(supervises).unwrap_or_else(|| panic!("{running:?}"));
    let pid = supervisor.split(' ').next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = laptop.shown(line, &output);
    assert!(status(&output) == 125 && said.contains("supervisor died"), "{said}");
    assert!(said.contains("pulled out\n"), "{said}");
    assert_eq!(fs::read_to_string(laptop.project("out")).unwrap(), "made\n");
    laptop.wait_until_quiet();
}

#[test]
fn ctrl_c_during_a_profile_leaves_no_profile_and_nothing_running() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("ncu hang\n");
    let child = laptop.start(NCU);
    wait_for_log(&laptop, "log/profile.stdout", "hanging");
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", String::from_utf8_lossy(&output.stderr));
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&error["schema"], &error["exit"]), (&"rgpu.error/1".into(), &130.into()));
    laptop.wait_until_quiet();
    assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
}

#[test]
fn a_run_whose_command_was_killed_is_taken_up_and_gives_a_whole_profile() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let mut child = laptop.start(NCU);
    host.wait_for_gate("ncu");
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    assert_eq!(laptop.latest_json("run.json")["state"], "running");
    host.open_gate("ncu");
    let output = laptop.run("runs attach latest --json");
    assert_eq!(status(&output), 0, "{}", laptop.shown("runs attach latest --json", &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "ncu.asked");
    assert!(profile.launches[0].metrics.len() > 500);
    assert_eq!(profile.correctness.unwrap().verdict, "right");
    assert_eq!(laptop.latest_json("run.json")["state"], "done");
    // The log is whole and nothing of it twice.
    let log = fs::read_to_string(laptop.latest().join("log/profile.stdout")).unwrap();
    assert_eq!(log.matches("==PROF== Profiling \"vecadd\"").count(), 1, "{log}");
    // Taken up again it says the same.
    let again = laptop.run("runs attach latest --json");
    let kept = fs::read(laptop.latest().join("profile.json")).unwrap();
    assert!(again.stdout == kept, "{}", laptop.shown("runs attach latest --json", &again));
    laptop.wait_until_quiet();
}

#[test]
fn a_command_that_was_killed_is_taken_up_with_its_output_and_status() {
    let laptop = Laptop::new();
    let go = laptop.path("go");
    let line = format!(
        "exec -- sh -c 'echo before; while [ ! -e {0} ]; do sleep 0.05; done; echo after; exit 9'",
        go.display()
    );
    let mut child = laptop.start(&line);
    wait_for_log(&laptop, "log/exec.stdout", "before");
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    fs::write(go, b"").unwrap();
    let output = laptop.run("runs attach");
    assert_eq!(status(&output), 9, "{}", laptop.shown("runs attach", &output));
    let log = fs::read_to_string(laptop.latest().join("log/exec.stdout")).unwrap();
    assert_eq!(log, "before\nafter\n");
    laptop.wait_until_quiet();
}

#[test]
fn a_run_is_cancelled_from_another_terminal() {
    let laptop = Laptop::new();
    let mut child = laptop.start("exec -- sh -c 'echo started; sleep 1000'");
    wait_for_log(&laptop, "log/exec.stdout", "started");
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    insta::assert_snapshot!(laptop.show("runs cancel"));
    laptop.wait_until_quiet();
    insta::assert_snapshot!(laptop.show("runs cancel"));
}

#[test]
fn a_detached_run_goes_on_alone_and_is_brought_home_later() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let output = laptop.run("profile --kernel vecadd --mode ncu --remote h200 --detach");
    assert_eq!(status(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(laptop.latest_json("run.json")["state"], "detached");
    host.wait_for_gate("ncu");
    let there = String::from_utf8(laptop.run("runs list --remote h200").stdout).unwrap();
    assert!(there.contains("profile vecadd (ncu)"), "{there}");
    host.open_gate("ncu");
    let output = laptop.run("runs attach --json");
    assert_eq!(status(&output), 0, "{}", laptop.shown("runs attach --json", &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "ncu.asked");
    laptop.wait_until_quiet();
}

#[test]
fn a_second_run_waits_for_the_gpu_and_says_who_holds_it() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let first = laptop.start(&format!("{NCU} --run-id first"));
    host.wait_for_gate("ncu");
    // One gives up, one waits its turn.
    let bench = "profile --kernel vecadd --mode bench --remote h200 --json";
    let impatient = laptop.run(&format!("{bench} --queue-timeout 1s"));
    let error: serde_json::Value = serde_json::from_slice(&impatient.stdout).unwrap();
    assert_eq!((status(&impatient), &error["error"]["code"]), (4, &"queue_timeout".into()));
    let second = laptop.start(&format!("{bench} --run-id second"));
    let events = laptop.project("artifacts/runs/second/events.jsonl");
    let queued = wait_for("a place in the queue", || {
        let text = fs::read_to_string(&events).ok()?;
        text.lines().find(|line| line.contains("\"queued\"")).map(str::to_owned)
    });
    assert!(queued.contains("\"position\":1") && queued.contains("first"), "{queued}");
    host.open_gate("ncu");
    for child in [first, second] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(status(&output), 0, "{}", laptop.shown("", &output));
    }
    laptop.wait_until_quiet();
}
