//! What is left when processes are killed at any point, and what the next runner makes of it.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::TestQueue;
use crate::faults::Disk;
use crate::laptop::{status, wait_for, words};
use crate::preload::{OtherClock, locks_that_do_not_hold};

/// The points at which the runner is killed.
const RUNNER_POINTS: [&str; 5] =
    ["runner started", "runner starts", "runner spawned", "runner skipped", "runner heard"];

/// The points at which the process that watches an attempt is killed, and whether the command has
/// run to its end in the end; `None` if it never started.
const ATTEMPT_POINTS: [(&str, Option<bool>); 7] = [
    ("starting", Some(true)),
    ("started", None),
    ("spawned", Some(false)),
    ("tree ended", Some(true)),
    ("ending", Some(true)),
    ("ended", Some(true)),
    ("half a line", Some(true)),
];

#[test]
fn of_two_runners_started_together_one_runs_and_the_other_says_who() {
    start_two_runners(50);
}

#[test]
fn of_two_runners_started_together_two_hundred_times_one_runs() {
    start_two_runners(200);
}

fn start_two_runners(rounds: usize) {
    let queue = TestQueue::new();
    for round in 0..rounds {
        let id = queue.add("-- sh -c 'echo x >> ran'");
        let start = || {
            let mut command = queue.laptop.rgpu(["queue", "run", "--once"]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let runners: [Child; 2] = [start(), start()];
        let outputs = runners.map(|runner| runner.wait_with_output().unwrap());
        let codes = outputs.each_ref().map(status);
        // One may have ended before the other looked.
        assert!(codes.contains(&0) && codes.iter().all(|code| [0, 2].contains(code)), "{codes:?}");
        for output in outputs.iter().filter(|output| status(output) == 2) {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("already runs as the queue's runner of this project"), "{said}");
        }
        if round % 10 == 0 {
            assert_eq!(queue.ends_of(id), ["attempt=1 status=ok"]);
        }
    }
    assert_eq!(queue.lines("ran").len(), rounds);
    assert_eq!(queue.ends().len(), rounds);
}

#[test]
fn a_runner_killed_at_any_point_loses_nothing_and_runs_nothing_twice() {
    for point in RUNNER_POINTS {
        let queue = TestQueue::new();
        let one = queue.add("-- sh -c 'echo one >> ran; sleep 0.3'");
        let bad = queue.add("-- sh -c 'echo bad >> ran; exit 1'");
        let skipped = queue.add(&format!("--after {bad} -- sh -c 'echo skipped >> ran'"));
        let two = queue.add("-- sh -c 'echo two >> ran'");
        let mut runner = queue.start_runner(Some(point));
        let ended = runner.wait().unwrap();
        assert_eq!(ended.signal(), Some(9), "{point}");
        queue.run_once();
        let mut ran = queue.lines("ran");
        ran.sort();
        assert_eq!(ran, ["bad", "one", "two"], "{point}");
        for (id, end) in [
            (one, "attempt=1 status=ok"),
            (bad, "attempt=1 status=failed"),
            (skipped, "attempt=0 status=skipped"),
            (two, "attempt=1 status=ok"),
        ] {
            assert_eq!(queue.ends_of(id), [end], "{point}");
        }
    }
}

#[test]
fn an_adder_that_is_killed_adds_nothing_and_takes_nothing_from_the_next() {
    let queue = TestQueue::new();
    queue.laptop.write("code.sh", "echo first > ran\n");
    let add = ["queue", "add", "--snapshot", "copy", "--", "sh", "code.sh"];
    let killed = queue.laptop.rgpu(add).env("RGPU_TEST_KILL_AT", "added").output().unwrap();
    assert_eq!(killed.status.signal(), Some(9));
    assert!(killed.stdout.is_empty() && queue.states().is_empty());
    queue.laptop.write("code.sh", "echo second\n");
    let id = queue.added(&queue.laptop.rgpu(add).output().unwrap());
    queue.run_once();
    assert_eq!(queue.output(id), b"second\n", "the snapshot is its own");
    assert_eq!(queue.ends_of(id), ["attempt=1 status=ok"]);
    assert_eq!(queue.ends().len(), 1);
}

#[test]
fn an_end_that_cannot_be_logged_does_not_stop_the_runner() {
    let queue = TestQueue::new();
    let ids = [queue.add("-- true"), queue.add("-- false"), queue.add("--after 2 -- true")];
    let log = queue.laptop.project(".rgpu/queue.log");
    std::fs::create_dir(&log).unwrap();
    let output = queue.laptop.run("queue run --once");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 0, "{said}");
    assert_eq!(said.matches("`queue.log` misses a line").count(), 1, "{said}");
    assert_eq!(ids.map(|id| queue.state(id)), ["ok", "failed", "skipped"]);
    std::fs::remove_dir(&log).unwrap();
    queue.run_once();
    assert_eq!(queue.ends().len(), 3);
}

#[test]
fn an_attempt_whose_watcher_is_killed_at_any_point_has_its_true_end() {
    for (point, ran) in ATTEMPT_POINTS {
        let queue = TestQueue::new();
        let id = queue.add("-- sh -c 'echo x >> ran; setsid sleep 0.2 & wait'");
        let mut runner = queue.start_runner(Some(point));
        // Of a process killed before the entry is running nothing has happened, and the runner
        // tries again and again. At some points the runner itself is killed too.
        match point {
            "starting" => std::thread::sleep(Duration::from_secs(1)),
            _ => drop(wait_for("the runner's end", || runner.try_wait().unwrap())),
        }
        let _ = kill_process(Pid::from_child(&runner), Signal::KILL);
        runner.wait().unwrap();
        queue.run_once();
        let lines = queue.lines("ran").len();
        let end = match point {
            "starting" | "ended" | "half a line" => "ok",
            _ => "lost",
        };
        assert_eq!(queue.ends_of(id), [format!("attempt=1 status={end}")], "{point}");
        match ran {
            // It may be killed before its first line.
            Some(false) => assert!(lines <= 1, "{point}"),
            Some(true) => assert_eq!(lines, 1, "{point}"),
            None => assert_eq!(lines, 0, "{point}"),
        }
        wait_for("no process is left", || queue.laptop.running().is_empty().then_some(()));
        if end == "lost" {
            assert_eq!(queue.entry(id)["reason"], "the process that watched it was killed");
            queue.json("requeue --lost");
            queue.run_once();
            assert_eq!(queue.state(id), "ok", "{point}");
        }
    }
}

#[test]
fn what_is_left_of_an_attempt_whose_watcher_was_killed_is_ended() {
    let queue = TestQueue::new();
    let id = queue.add(
        "--retries 1 -- sh -c 'setsid sleep 1000 & echo up; test -e second && exit 0; sleep 1000'",
    );
    let runner = queue.start_runner(None);
    wait_for("the command", || (queue.output(id) == b"up\n").then_some(()));
    queue.laptop.write("second", "");
    let pid = queue.entry(id)["pid"].as_i64().unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    runner.wait_with_output().unwrap();
    assert_eq!(queue.ends_of(id), ["attempt=1 status=lost", "attempt=2 status=ok"]);
    assert!(queue.laptop.running().is_empty(), "{:?}", queue.laptop.running());
}

#[test]
fn a_running_entry_of_an_earlier_boot_or_a_reused_process_number_is_lost() {
    for forged in ["boot_id = 'earlier'", "start_time = start_time - 1"] {
        let queue = TestQueue::new();
        let id = queue.add("-- touch ran");
        let connection =
            rusqlite::Connection::open(queue.laptop.project(".rgpu/state.db")).unwrap();
        // As if the process of this test watched an attempt.
        let own = std::process::id();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let start: i64 =
            stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let (column, value) = forged.split_once(" = ").unwrap();
        let (boot, start) = match column {
            "boot_id" => (value.trim_matches('\'').to_owned(), start),
            _ => (boot.trim().to_owned(), start - 1),
        };
        let insert = "INSERT INTO event (kind, subject, attempt, from_state, to_state, at_ms, boot_id, pid, start_time, detail) \
                      VALUES ('entry', ?1, 1, 'waiting', 'running', 0, ?2, ?3, ?4, '{}')";
        connection.execute(insert, rusqlite::params![id, boot, own, start]).unwrap();
        drop(connection);
        queue.run_once();
        assert_eq!(queue.ends_of(id), ["attempt=1 status=lost"], "{forged}");
        assert!(!queue.laptop.project("ran").exists());
    }
}

#[test]
fn a_removed_or_cut_log_is_made_again_from_the_events() {
    let queue = TestQueue::new();
    for _ in 0..3 {
        queue.add("-- true");
    }
    queue.run_once();
    let path = queue.laptop.project(".rgpu/queue.log");
    let whole = std::fs::read(&path).unwrap();
    for cut in [0, 1, whole.len() / 2, whole.len() - 1, whole.len()] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        queue.run_once();
        assert!(std::fs::read(&path).unwrap() == whole, "cut at {cut}");
    }
    std::fs::remove_file(&path).unwrap();
    queue.run_once();
    assert!(std::fs::read(&path).unwrap() == whole);
}

#[test]
fn on_a_full_disk_nothing_is_added_by_half_and_an_end_is_recorded_once_there_is_room() {
    let queue = TestQueue::new();
    let Some(disk) = Disk::mount(&queue.laptop.project(""), "size=4m") else {
        // Only root may mount, and then it must work.
        assert!(!rustix::process::geteuid().is_root(), "root cannot mount a small disk");
        eprintln!("skipped: mounting needs root");
        return;
    };
    let go = queue.laptop.path("tmp/go");
    let wait = format!("until test -e {}; do sleep 0.05; done", go.display());
    let id = queue.add_script("--lang sh", wait.as_bytes());
    let mut runner = queue.start_runner(None);
    queue.wait_for_state(id, "running");
    let mut filler = std::fs::File::create(queue.laptop.project("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[0; 4096]).is_ok() {}
    std::fs::write(go, "").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(queue.state(id), "running");
    disk.grow("20m");
    queue.wait_for_state(id, "ok");
    wait_for("the runner", || runner.try_wait().unwrap());
    queue.run_once();
    assert_eq!(queue.ends_of(id), ["attempt=1 status=ok"]);
    let large = vec![b'#'; 30 << 20];
    let refused = queue.laptop.run_with_input("queue add --stdin --lang sh", &large);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(status(&refused), 8, "{said}");
    assert!(said.contains("full"), "{said}");
    assert_eq!(queue.states().len(), 1, "nothing of it is there");
    // It left no room taken, and the queue goes on.
    let log = std::fs::metadata(queue.laptop.project(".rgpu/state.db-wal")).unwrap();
    assert!(log.len() < 1 << 20, "{}", log.len());
    let next = queue.add("-- true");
    queue.run_once();
    assert_eq!(queue.ends_of(next), ["attempt=1 status=ok"]);
}

#[test]
fn on_a_full_disk_a_lost_or_skipped_entry_is_recorded_once_there_is_room() {
    let queue = TestQueue::new();
    let Some(disk) = Disk::mount(&queue.laptop.project(""), "size=4m") else {
        assert!(!rustix::process::geteuid().is_root(), "root cannot mount a small disk");
        eprintln!("skipped: mounting needs root");
        return;
    };
    let lost = queue.add("-- sleep 1000");
    let skipped = queue.add(&format!("--after {lost} -- true"));
    let mut runner = queue.start_runner(None);
    queue.wait_for_state(lost, "running");
    let mut filler = std::fs::File::create(queue.laptop.project("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[0; 4096]).is_ok() {}
    let watcher = queue.entry(lost)["pid"].as_i64().unwrap();
    let watcher = Pid::from_raw(i32::try_from(watcher).unwrap()).unwrap();
    kill_process(watcher, Signal::KILL).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(queue.state(lost), "running");
    disk.grow("20m");
    wait_for("the runner", || runner.try_wait().unwrap());
    assert_eq!(queue.ends_of(lost), ["attempt=1 status=lost"]);
    assert_eq!(queue.ends_of(skipped), ["attempt=0 status=skipped"]);
}

#[test]
fn a_clock_that_steps_changes_no_time_limit_no_order_and_no_duration() {
    let queue = TestQueue::new();
    let clock = OtherClock::new(&queue.laptop.path("tmp"), 0);
    let set = |seconds: &str| format!("echo {seconds} > {}; sleep 0.4", clock.file.display());
    let steps = [set("-7200"), set("9000"), set("-86400")].join("; ");
    let first = queue.add(&format!("--timeout 60 -- sh -c '{steps}; echo first >> order'"));
    let limited = queue.add("--timeout 1.5 -- sleep 1000");
    let last = queue.add(&format!("--after {first} -- sh -c '{}; echo last >> order'", set("50")));
    let mut runner = queue.laptop.rgpu(["queue", "run", "--once"]);
    runner.env("LD_PRELOAD", &clock.library).stderr(Stdio::null());
    assert!(runner.status().unwrap().success());
    assert_eq!(queue.lines("order"), ["first", "last"]);
    for (id, state, least, most) in
        [(first, "ok", 1.2, 30.0), (limited, "timeout", 1.5, 30.0), (last, "ok", 0.4, 30.0)]
    {
        let entry = queue.entry(id);
        assert_eq!(entry["state"], state, "{entry:#}");
        let seconds = entry["seconds"].as_f64().unwrap();
        assert!(seconds >= least && seconds < most, "{entry:#}");
        assert_eq!(queue.ends_of(id), [format!("attempt=1 status={state}")]);
    }
    // The runner had another clock, so the library was loaded.
    let ended = queue.entry(last)["ended"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let added = queue.entry(last)["added"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(ended.duration_since(added).as_secs() >= 50, "{ended} {added}");
}

#[test]
fn where_locks_do_not_hold_there_is_no_queue() {
    let queue = TestQueue::new();
    let library = locks_that_do_not_hold(&queue.laptop.path("tmp"));
    let mut add = queue.laptop.rgpu(["queue", "add", "--", "true"]);
    let output = add.env("LD_PRELOAD", library).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 3, "{said}");
    assert!(
        said.contains(
            "on a file system where file locks do not work (two processes hold the same lock)"
        ),
        "{said}"
    );
    assert!(said.contains("put the project on a local disk"), "{said}");
    // On a file system where they hold there is one.
    queue.add("-- true");
}

#[test]
fn a_detached_runner_works_on_after_its_command_and_is_the_only_one() {
    let queue = TestQueue::new();
    let id = queue.add("-- true");
    assert_eq!(status(&queue.laptop.run("queue run --detach")), 0);
    assert_eq!(status(&queue.laptop.run(&format!("queue wait {id}"))), 0);
    let pid = queue.json("ls")["runner"]["pid"].as_i64().unwrap();
    for line in ["queue run --detach", "queue run --once"] {
        let second = queue.laptop.run(line);
        let said = String::from_utf8_lossy(&second.stderr);
        assert_eq!(status(&second), 2, "{said}");
        assert!(said.contains(&format!("process {pid} (since ")), "{said}");
    }
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::TERM).unwrap();
    queue.laptop.wait_until_quiet();
    assert!(queue.json("ls")["runner"].is_null());
    let log = std::fs::read_to_string(queue.laptop.project(".rgpu/runner.log")).unwrap();
    assert!(log.contains("1 true: ok after"), "{log}");
}

#[test]
fn sixty_mixed_entries_with_kills_in_between_end_once_each_with_their_true_reason() {
    let queue = TestQueue::new();
    queue.laptop.write("code.sh", "echo x >> $1\n");
    let ran = |n: usize| queue.laptop.project(format!("ran-{n}")).display().to_string();
    let mut wanted: BTreeMap<i64, &str> = BTreeMap::new();
    let mut retried: Vec<i64> = Vec::new();
    let (mut last_bad, mut cancelled) = (0, 0);
    for n in 0..60 {
        let resource = ["", "--gpu 0 ", "--gpu 1 ", "--remote h200 "][n % 4];
        let shell = |rest: &str| format!("{resource}-- sh -c 'echo x >> ran-{n}{rest}'");
        let (id, end) = match n % 9 {
            0 => (queue.add(&shell("; sleep 0.1")), "ok"),
            1 => (queue.add(&shell("; exit 3")), "failed"),
            2 => {
                let script = format!("cat <<E\n$0\nE\necho x >> ran-{n}\n");
                let line = format!("{resource}--lang sh");
                (queue.add_script(&line, script.as_bytes()), "ok")
            }
            3 => (queue.add(&format!("--after {last_bad} {}", shell(""))), "skipped"),
            4 => (queue.add(&format!("--timeout 300ms {}", shell("; sleep 1000"))), "timeout"),
            5 => (queue.add(&format!("--after {last_bad}:any --priority 1 {}", shell(""))), "ok"),
            6 => {
                let id = queue.add(&format!("--retries 1 {}", shell("; sleep 0.4")));
                retried.push(id);
                (id, "ok")
            }
            7 => {
                let line = format!("{resource}--snapshot copy -- sh code.sh {}", ran(n));
                let mut add = queue.laptop.rgpu(words(&format!("queue add {line}")));
                let killed = add.env("RGPU_TEST_KILL_AT", "added").output().unwrap();
                assert_eq!(killed.status.signal(), Some(9));
                (queue.add(&line), "ok")
            }
            _ if cancelled == 0 => {
                cancelled = queue.add(&format!("--priority 2 {}", shell("; sleep 1000")));
                (cancelled, "cancelled")
            }
            _ => (queue.add(&shell("")), "ok"),
        };
        if n % 9 == 1 {
            last_bad = id;
        }
        wanted.insert(id, end);
    }
    queue.laptop.write("code.sh", "exit 9\n");
    // The runner is killed again and again, each time a little later, and with it or beside it the
    // process that watches an entry with a retry left.
    let mut watchers_killed = 0;
    for round in 0.. {
        let mut runner = queue.start_runner(None);
        let limit = Duration::from_millis(100 + 37 * (round % 13));
        let start = std::time::Instant::now();
        let ended = loop {
            if let Some(ended) = runner.try_wait().unwrap() {
                break Some(ended);
            }
            let running = queue.json("ls --all --state running")["entries"].clone();
            for entry in running.as_array().unwrap() {
                let id = entry["id"].as_i64().unwrap();
                if id == cancelled && round > 2 {
                    assert_eq!(status(&queue.laptop.run(&format!("queue cancel {id}"))), 0);
                } else if entry["attempt"] == 1 && retried.contains(&id) {
                    let pid = i32::try_from(entry["pid"].as_i64().unwrap()).unwrap();
                    let killed = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
                    watchers_killed += usize::from(killed.is_ok());
                    retried.retain(|other| *other != id);
                }
            }
            if start.elapsed() > limit && round < 40 {
                kill_process(Pid::from_child(&runner), Signal::KILL).unwrap();
                runner.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if let Some(ended) = ended {
            assert!(ended.success());
            break;
        }
    }
    assert!(watchers_killed > 0, "no watcher was killed");
    let states = queue.states();
    let mut lines = 0;
    for (n, (id, end)) in wanted.iter().enumerate() {
        assert_eq!(states[id], *end, "{:?}", queue.entry(*id));
        let ends = queue.ends_of(*id);
        lines += ends.len();
        let ran = queue.lines(&format!("ran-{n}")).len();
        if ends.len() == 2 {
            assert_eq!(ends, ["attempt=1 status=lost", "attempt=2 status=ok"]);
            // The first may have been killed before its line.
            assert!(n % 9 == 6 && (1..=2).contains(&ran), "{id}: {ran}");
            continue;
        }
        let attempt = if *end == "skipped" { 0 } else { 1 };
        assert_eq!(ends, [format!("attempt={attempt} status={end}")]);
        assert_eq!(ran, attempt, "{id}");
    }
    assert_eq!((states.len(), queue.ends().len()), (60, lines));
    queue.laptop.wait_until_quiet();
}
