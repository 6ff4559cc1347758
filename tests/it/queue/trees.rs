//! The end of a command is the end of all its processes.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use super::TestQueue;
use crate::laptop::{status, wait_for};

/// Starts a child and a daemon that both ignore SIGTERM, SIGINT and SIGHUP, and waits.
const STUBBORN: &str = "trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM INT; echo daemon; sleep 1000; true' &); \
                        sh -c 'trap \"\" TERM INT; echo child; sleep 1000; true' & wait; sleep 1000; true";

#[test]
fn an_output_without_end_fills_no_disk() {
    let queue = TestQueue::new();
    let id = queue.add_script(
        "--lang sh",
        b"echo the beginning; head -c 300000000 /dev/zero | tr '\\0' x; echo; echo the end of it\n",
    );
    queue.run_once();
    assert_eq!(queue.state(id), "ok");
    let output = queue.output(id);
    assert!(output.len() < 65 << 20, "{} bytes", output.len());
    let text = String::from_utf8_lossy(&output);
    assert!(text.starts_with("the beginning\nxxx"));
    assert!(text.ends_with("x\nthe end of it\n"));
    let line = text.lines().find(|line| line.contains("bytes of output were dropped")).unwrap();
    let dropped: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
    assert!((230_000_000..300_000_000).contains(&dropped), "{line}");
    // Those who follow the log are told where it stops.
    assert!(text.contains("output is dropped from here on"));
}

#[test]
fn a_time_limit_ends_children_and_daemons_that_ignore_signals() {
    let queue = TestQueue::new();
    let id = queue.add_script("--lang sh --timeout 1s", STUBBORN.as_bytes());
    let start = Instant::now();
    queue.run_once();
    assert!(start.elapsed() < Duration::from_secs(30));
    let entry = queue.entry(id);
    assert_eq!(
        (&entry["state"], &entry["reason"]),
        (&"timeout".into(), &"its time limit of 1 s".into())
    );
    let output = String::from_utf8(queue.output(id)).unwrap();
    assert!(output.contains("daemon") && output.contains("child"), "{output}");
    assert!(queue.laptop.running().is_empty(), "{:?}", queue.laptop.running());
}

#[test]
fn cancelling_ends_the_whole_tree_and_waits_for_it() {
    let queue = TestQueue::new();
    let id = queue.add_script("--lang sh --retries 3", STUBBORN.as_bytes());
    let waiting = queue.add("-- touch never");
    let runner = queue.start_runner(None);
    wait_for("both children", || {
        let output = String::from_utf8(queue.output(id)).unwrap_or_default();
        (output.contains("daemon") && output.contains("child")).then_some(())
    });
    assert_eq!(status(&queue.laptop.run(&format!("queue cancel {waiting} {id}"))), 0);
    assert_eq!((queue.state(id), queue.state(waiting)), ("cancelled".into(), "cancelled".into()));
    runner.wait_with_output().unwrap();
    assert_eq!(queue.ends_of(id), ["attempt=1 status=cancelled"]);
    assert_eq!(queue.ends_of(waiting), ["attempt=0 status=cancelled"]);
    assert!(!queue.laptop.project("never").exists());
    assert!(queue.laptop.running().is_empty(), "{:?}", queue.laptop.running());
}

#[test]
fn cancelling_ends_what_is_left_after_the_runner_and_the_watcher_are_gone() {
    use rustix::process::{Pid, Signal, kill_process};
    let queue = TestQueue::new();
    let id = queue.add_script("--lang sh --retries 3", STUBBORN.as_bytes());
    let mut runner = queue.start_runner(None);
    wait_for("both children", || {
        let output = String::from_utf8(queue.output(id)).unwrap_or_default();
        (output.contains("daemon") && output.contains("child")).then_some(())
    });
    let watcher = i32::try_from(queue.entry(id)["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_child(&runner), Signal::KILL).unwrap();
    runner.wait().unwrap();
    kill_process(Pid::from_raw(watcher).unwrap(), Signal::KILL).unwrap();
    assert!(queue.laptop.running().len() >= 3, "{:?}", queue.laptop.running());
    let output = queue.laptop.run(&format!("queue cancel {id}"));
    assert_eq!(status(&output), 0, "{}", queue.laptop.shown("queue cancel", &output));
    assert!(queue.laptop.running().is_empty(), "{:?}", queue.laptop.running());
    assert_eq!(queue.ends_of(id), ["attempt=1 status=cancelled"]);
    assert_eq!(queue.entry(id)["reason"], "the process that watched it was killed");
}

#[test]
fn a_command_that_ends_takes_its_daemons_along() {
    let queue = TestQueue::new();
    let id = queue.add("-- sh -c 'setsid sleep 1000 & exit 0'");
    queue.run_once();
    assert_eq!(queue.state(id), "ok");
    assert!(queue.laptop.running().is_empty(), "{:?}", queue.laptop.running());
}

#[test]
fn a_runner_that_waits_for_entries_says_so_and_how_it_ends() {
    use rustix::process::{Pid, Signal, kill_process};
    let queue = TestQueue::new();
    let mut runner = queue.laptop.start("queue run");
    let pid = Pid::from_child(&runner);
    let stderr = BufReader::new(runner.stderr.take().unwrap());
    let mut said = stderr.lines().map_while(Result::ok);
    let first = said.next().unwrap();
    assert!(first.starts_with("waiting for entries; Ctrl-C ends the runner"), "{first}");
    assert!(first.contains("--once"), "{first}");
    queue.add("-- true");
    assert!(said.any(|line| line.contains("true: ok after")));
    assert!(said.next().unwrap().starts_with("waiting for entries"));
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(130));
    assert!(said.all(|line| !line.starts_with("waiting")), "said once for each wait");
}

#[test]
fn ctrl_c_waits_for_what_runs_and_a_second_one_leaves_it_to_the_next_runner() {
    use rustix::process::{Pid, Signal, kill_process};
    let queue = TestQueue::new();
    let id = queue.add("-- sh -c 'echo up; until test -e go; do sleep 0.05; done; echo end'");
    let next = queue.add("-- true");
    let mut runner = queue.laptop.start("queue run");
    let pid = Pid::from_child(&runner);
    let stderr = BufReader::new(runner.stderr.take().unwrap());
    let mut said = stderr.lines().map_while(Result::ok);
    wait_for("the command", || (queue.output(id) == b"up\n").then_some(()));
    kill_process(pid, Signal::INT).unwrap();
    assert!(said.any(|line| line.contains("stopping; 1 still running")));
    std::thread::sleep(Duration::from_millis(300));
    assert!(runner.try_wait().unwrap().is_none(), "it waits for the running entry");
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(130));
    // The watcher of the entry keeps the pipe open.
    let wanted = format!("still running: {id}; the next `rgpu queue run`");
    assert!(said.any(|line| line.contains(&wanted)), "{wanted}");
    assert_eq!(queue.state(id), "running");
    let second = queue.start_runner(None);
    queue.laptop.write("go", "");
    second.wait_with_output().unwrap();
    assert_eq!(queue.output(id), b"up\nend\n");
    assert_eq!((queue.state(id), queue.state(next)), ("ok".into(), "ok".into()));
    assert_eq!(queue.ends_of(id), ["attempt=1 status=ok"]);
}

#[test]
fn a_program_that_is_not_there_and_a_folder_that_is_gone_are_reasons() {
    let queue = TestQueue::new();
    std::fs::create_dir(queue.laptop.project("gone")).unwrap();
    let mut command = queue.laptop.rgpu(["queue", "add", "--", "true"]);
    // The project is where `rgpu.toml` is.
    queue.laptop.write("rgpu.toml", "");
    let gone = queue.added(&command.current_dir(queue.laptop.project("gone")).output().unwrap());
    std::fs::remove_dir(queue.laptop.project("gone")).unwrap();
    let none = queue.add("-- no-such-program");
    let signal = queue.add("-- sh -c 'kill -9 $$'");
    // Settings that cannot be read stop no entry.
    let fine = queue.add("-- true");
    let runner = queue.start_runner(None);
    runner.wait_with_output().unwrap();
    let reason = |id| queue.entry(id)["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason(gone).starts_with("cannot enter `"), "{}", reason(gone));
    assert!(
        reason(none).starts_with("cannot start `no-such-program`: No such file"),
        "{}",
        reason(none)
    );
    assert_eq!((reason(signal).as_str(), &queue.entry(signal)["rc"]), ("signal 9", &137.into()));
    assert_eq!(queue.state(fine), "ok");
    let log = String::from_utf8(queue.output(none)).unwrap();
    assert!(log.starts_with("rgpu queue: cannot start"), "{log}");
}

#[test]
fn a_command_without_output_is_reported() {
    let queue = TestQueue::new();
    let id = queue.add("-- sh -c 'until test -e go; do sleep 0.05; done'");
    let mut runner = queue.laptop.start("queue run --once --hang 500ms");
    let stderr = BufReader::new(runner.stderr.take().unwrap());
    let mut said = stderr.lines().map_while(Result::ok);
    let is_report = |line: &String| line.contains("has had no output for");
    assert!(said.any(|line| is_report(&line)));
    // It is told once.
    std::thread::sleep(Duration::from_millis(1500));
    queue.laptop.write("go", "");
    assert_eq!(said.filter(is_report).count(), 0);
    assert!(runner.wait().unwrap().success());
    assert_eq!(queue.state(id), "ok");
}
