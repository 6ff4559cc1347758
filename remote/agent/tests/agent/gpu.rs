//! The queue for GPUs, on a host with invented GPUs.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rgpu_protocol::{EventBody, Outcome, Plan, ToAgent};
use serde_json::{Value, json};

use crate::client::{Client, Host, JobOutput, living, plan, sh};

const A: &str = "GPU-aaaaaaaa-0000-0000-0000-000000000001";
const B: &str = "GPU-bbbbbbbb-0000-0000-0000-000000000002";

fn gpu_plan(job: &str, choice: Value, script: &str, more: Value) -> Plan {
    let known = json!([
        {"index": 0, "uuid": A, "name": "NVIDIA H200"},
        {"index": 1, "uuid": B, "name": "NVIDIA H200"}]);
    let mut gpu = json!({"choice": choice, "known": known});
    gpu.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut main = sh("main", script);
    main["gpu"] = json!(true);
    let steps =
        json!([sh("before", "echo build"), main, sh("after", "echo $CUDA_VISIBLE_DEVICES")]);
    plan(job, json!({"gpu": gpu, "steps": steps}))
}

fn locked(story: &JobOutput) -> Vec<String> {
    let locks = story.events.iter().filter_map(|e| match &e.body {
        EventBody::GpuLocked { uuid, .. } => Some(uuid.clone()),
        _ => None,
    });
    locks.collect()
}

/// A script that fails if another job runs on the same GPU at the same time.
fn exclusive(dir: &Path) -> String {
    format!("d={}/$CUDA_VISIBLE_DEVICES; mkdir $d || exit 5; sleep 0.05; rmdir $d", dir.display())
}

#[test]
fn two_gpus_are_held_and_shown_at_once() {
    let host = Host::new();
    let script = "echo $CUDA_VISIBLE_DEVICES";
    let both = host.connect().run(&gpu_plan("two", json!("any"), script, json!({"count": 2})));
    assert_eq!(both.stdout("main"), format!("{A},{B}\n"));
    assert_eq!(locked(&both), [A, B]);
    let three = host.connect().run(&gpu_plan("three", json!("any"), script, json!({"count": 3})));
    let last = three.events.last().map(|event| &event.body);
    assert!(
        matches!(last, Some(EventBody::Ended { outcome: Outcome::NoGpu { text } }) if text.contains("3 GPUs are requested")),
        "{last:?}"
    );
}

#[test]
fn a_gpu_is_held_from_the_first_to_the_last_step_that_needs_it() {
    let host = Host::new();
    let story = host.connect().run(&gpu_plan(
        "j",
        json!({"index": 1}),
        "echo $CUDA_VISIBLE_DEVICES",
        json!({}),
    ));
    assert_eq!(story.stdout("main"), format!("{B}\n"));
    assert_eq!(story.stdout("after"), "\n");
    let order: Vec<String> = story
        .events
        .iter()
        .filter_map(|e| match &e.body {
            EventBody::StepStarted { step, .. } => Some(step.clone()),
            EventBody::GpuLocked { index, .. } => Some(format!("lock {index}")),
            EventBody::GpuReleased {} => Some("release".into()),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["before", "lock 1", "main", "release", "after"]);
}

#[test]
fn many_jobs_at_once_never_share_a_gpu_and_all_end() {
    let host = Host::new();
    let shared = tempfile::tempdir().unwrap();
    let text = exclusive(shared.path());
    let stories: Vec<JobOutput> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..8)
            .map(|i| {
                let (host, text) = (&host, &text);
                let choice = if i % 4 == 3 { json!({"index": 0}) } else { json!("any") };
                scope.spawn(move || {
                    host.connect().run(&gpu_plan(&format!("j.{i}"), choice, text, json!({})))
                })
            })
            .collect();
        runs.into_iter().map(|r| r.join().unwrap()).collect()
    });
    for story in &stories {
        assert_eq!(*story.outcome(), Outcome::Done, "{:?}", story.rungs());
    }
    let used: BTreeSet<String> = stories.iter().flat_map(locked).collect();
    assert_eq!(used.len(), 2, "both GPUs are used");
    let queued = stories.iter().flat_map(|s| &s.events).any(|e| {
        matches!(&e.body, EventBody::Queued { position, holder } if *position > 0 && holder.contains("j."))
    });
    assert!(queued, "those who wait are told their place and for whom");
    let left: Vec<_> = std::fs::read_dir(&host.env["RGPU_LOCK_DIR"])
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.starts_with("ticket"))
        .collect();
    assert_eq!(left, [""; 0]);
}

/// Fifty jobs of two laptops on four GPUs. Some need a particular GPU; some are killed while they
/// hold one or wait.
#[test]
fn fifty_jobs_on_four_gpus_neither_overlap_nor_wait_for_ever() {
    let host = Host::new();
    let shared = tempfile::tempdir().unwrap();
    let known: Vec<Value> = (0..4)
        .map(|i| json!({"index": i, "uuid": format!("GPU-{i}{i}{i}{i}"), "name": "NVIDIA B200"}))
        .collect();
    let text = exclusive(shared.path());
    let job = |i: usize| {
        let choice = if i.is_multiple_of(3) { json!({"index": i % 4}) } else { json!("any") };
        // Jobs that will be killed keep their GPU until then.
        let text = if i % 10 == 9 { "sleep 1000".to_owned() } else { text.clone() };
        let mut main = sh("main", &text);
        main["gpu"] = json!(true);
        plan(&format!("j.{i}"), json!({"gpu": {"choice": choice, "known": known}, "steps": [main]}))
    };
    let mut laptops = [host.connect(), host.connect()];
    for i in 0..50 {
        laptops[i % 2].submit(&job(i));
    }
    let killer = std::thread::spawn({
        let host_home = host.home();
        move || {
            // The order does not matter: supervisors start in parallel, and the fifth job gets no
            // GPU before one of the other four has ended.
            let mut alive: Vec<usize> = (9..50).step_by(10).collect();
            while !alive.is_empty() {
                alive.retain(|i| {
                    let job = host_home.join(format!("jobs/j.{i}"));
                    let events = std::fs::read_to_string(job.join("events.jsonl"));
                    let holds = events.is_ok_and(|text| text.contains("gpu_locked"));
                    if holds {
                        let pid = crate::client::supervisor(&job).to_string();
                        Command::new("kill").args(["-9", &pid]).status().unwrap();
                    }
                    !holds
                });
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    });
    let mut ended = std::collections::BTreeMap::new();
    for laptop in &mut laptops {
        for _ in 0..25 {
            let (job, outcome) = laptop.next_end();
            ended.insert(job, outcome);
        }
    }
    killer.join().unwrap();
    for i in 0..50 {
        match &ended[&format!("j.{i}")] {
            Outcome::Done => assert!(i % 10 != 9),
            Outcome::HostError { code, .. } => {
                assert_eq!((code.as_str(), i % 10), ("supervisor_died", 9));
            }
            other => panic!("job {i}: {other:?}"),
        }
    }
}

/// Unprivileged users for these tests, which run as root.
const NOBODY: u32 = 65534;
const HOSTILE: u32 = 65533;

/// Returns a command of another user.
fn command_as(user: u32, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()]);
    command.arg(program);
    command
}

/// Another user's agent, with its own home and the lock folder of `host`.
fn connect_as(host: &Host, user: u32) -> (tempfile::TempDir, Client) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(host.dir.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(user), Some(user)).unwrap();
    let agent = home.path().join("rgpu-agent");
    std::fs::copy(crate::client::AGENT, &agent).unwrap();
    let mut command = command_as(user, agent);
    command.env("RGPU_AGENT_HOME", home.path().join("home"));
    command.env("RGPU_LOCK_DIR", &host.env["RGPU_LOCK_DIR"]);
    let client = Client::start(&mut command);
    (home, client)
}

/// Another user's forged files neither stop a job nor prevent its cancellation. Needs root.
#[test]
fn forged_files_of_another_user_stop_nobody() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can act as two other users");
        return;
    }
    let host = Host::new();
    // This creates the lock folder.
    let first = host.connect().run(&gpu_plan("first", json!({"index": 0}), "true", json!({})));
    assert_eq!(*first.outcome(), Outcome::Done);
    let (_home, mut victim) = connect_as(&host, NOBODY);
    // Each ticket stays locked until the script's standard input ends.
    let script = format!(
        r#"set -e
        ticket() {{ printf '%b' "$2" > ticket-$1; exec {{fd}}< ticket-$1; flock -n $fd; }}
        ticket 000000000001 'who evil\ncount 18446744073709551615\n{A}\n{B}'
        ticket 18446744073709551615 'who evil\ncount 1\n{A}'
        ticket 999999999999 'who evil\ncount 1\n{A}'
        truncate -s 10G ticket-000000000002; exec {{fd}}< ticket-000000000002; flock -n $fd
        mkfifo ticket-000000000003
        ln -s /dev/zero ticket-000000000004
        mkdir ticket-000000000005
        for n in $(seq 10 3000); do printf 'count 9\n{A}' > ticket-$(printf %012d $n); done
        chmod 600 ticket-00000000001*
        echo ready; read end"#
    );
    let mut hostile = command_as(HOSTILE, "bash");
    hostile.args(["-c", &script]).current_dir(&host.env["RGPU_LOCK_DIR"]);
    hostile.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hostile = hostile.spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(hostile.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");

    let mut both = gpu_plan("both", json!("any"), "echo up; sleep 1000", json!({"count": 2}));
    both.limits.queue_s = 20;
    victim.submit(&both);
    let mut story = JobOutput::default();
    while story.stdout("main") != "up\n" {
        victim.read_into(&mut story);
        let last = story.events.last().map(|event| &event.body);
        assert!(!matches!(last, Some(EventBody::Ended { .. })), "{last:?}");
    }
    // A waiting job can be cancelled, and then only the holder is before the next one.
    let mut waiting = host.connect();
    waiting.submit(&gpu_plan("waiting", json!({"index": 0}), "true", json!({})));
    let mut wait_story = JobOutput::default();
    while !wait_story.events.iter().any(
        |e| matches!(&e.body, EventBody::Queued { holder, .. } if holder.contains("both (both)")),
    ) {
        waiting.read_into(&mut wait_story);
    }
    waiting.send(&ToAgent::Cancel { job: "waiting".into() });
    waiting.finish(&mut wait_story);
    assert_eq!(*wait_story.outcome(), Outcome::Cancelled);
    victim.send(&ToAgent::Cancel { job: "both".into() });
    victim.finish(&mut story);
    assert_eq!(*story.outcome(), Outcome::Cancelled);
    drop(hostile.stdin.take());
    hostile.wait().unwrap();
}

#[test]
fn users_of_a_host_share_one_queue() {
    let host = Host::new();
    let mut holder = host.connect();
    holder.submit(&gpu_plan("holder", json!({"index": 0}), "echo up; sleep 1000", json!({})));
    let mut story = JobOutput::default();
    holder.until_output(&mut story, "main", "up");
    // Another user can neither write the first one's files nor signal its processes.
    let (_home, mut other) = connect_as(&host, NOBODY);
    let mut impatient = gpu_plan("impatient", json!({"index": 0}), "true", json!({}));
    impatient.limits.queue_s = 1;
    let waited = other.run(&impatient);
    assert_eq!(*waited.outcome(), Outcome::QueueTimeout);
    assert!(waited.events.iter().any(
        |e| matches!(&e.body, EventBody::Queued { holder, .. } if holder == "root: holder (holder)")
    ));
    let free = other.run(&gpu_plan("free", json!({"index": 1}), "true", json!({})));
    assert_eq!(*free.outcome(), Outcome::Done);
    holder.send(&ToAgent::Cancel { job: "holder".into() });
    holder.finish(&mut story);
    // The first user can also use the lock file that the other created.
    let mut again = host.connect();
    let story = again.run(&gpu_plan("again", json!({"index": 1}), "true", json!({})));
    assert_eq!(*story.outcome(), Outcome::Done);
    let story = other.run(&gpu_plan("last", json!({"index": 0}), "true", json!({})));
    assert_eq!(*story.outcome(), Outcome::Done);
}

#[test]
fn a_killed_holder_frees_the_gpu_and_a_wait_has_an_end() {
    let host = Host::new();
    let mut holder = host.connect();
    let one = json!({"index": 0});
    holder.submit(&gpu_plan("holder", one.clone(), "echo up; sleep 1000", json!({})));
    let mut story = JobOutput::default();
    holder.until_output(&mut story, "main", "up");

    let mut impatient = gpu_plan("impatient", one.clone(), "true", json!({}));
    impatient.limits.queue_s = 1;
    assert_eq!(*host.connect().run(&impatient).outcome(), Outcome::QueueTimeout);

    let mut waiting = host.connect();
    waiting.submit(&gpu_plan("waiting", one, "echo mine", json!({})));
    let mut wait_story = JobOutput::default();
    while !wait_story.events.iter().any(|e| matches!(e.body, EventBody::Queued { position: 1, .. }))
    {
        waiting.read_into(&mut wait_story);
    }
    let pid = host.supervisor("holder").to_string();
    Command::new("kill").args(["-9", &pid]).status().unwrap();
    waiting.finish(&mut wait_story);
    assert_eq!(wait_story.stdout("main"), "mine\n");
    holder.finish(&mut story);
}

#[test]
fn a_job_can_be_cancelled_while_it_waits() {
    let host = Host::new();
    let mut holder = host.connect();
    holder.submit(&gpu_plan("holder", json!({"index": 0}), "echo up; sleep 1000", json!({})));
    let mut story = JobOutput::default();
    holder.until_output(&mut story, "main", "up");
    let mut waiting = host.connect();
    waiting.submit(&gpu_plan("waiting", json!({"uuid": "GPU-aa"}), "true", json!({})));
    let mut wait_story = JobOutput::default();
    while !wait_story.events.iter().any(|e| matches!(e.body, EventBody::Queued { .. })) {
        waiting.read_into(&mut wait_story);
    }
    waiting.send(&ToAgent::Cancel { job: "waiting".into() });
    waiting.finish(&mut wait_story);
    assert_eq!(*wait_story.outcome(), Outcome::Cancelled);
    holder.send(&ToAgent::Cancel { job: "holder".into() });
    holder.finish(&mut story);
}

#[test]
fn a_job_can_be_cancelled_while_the_list_of_processes_hangs() {
    let host = Host::new();
    let mut client = host.connect();
    let hangs = json!({"processes": ["sleep", "1000"]});
    client.submit(&gpu_plan("j", json!({"index": 0}), "true", hangs));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "before", "build");
    let start = std::time::Instant::now();
    client.send(&ToAgent::Cancel { job: "j".into() });
    client.finish(&mut story);
    assert_eq!(*story.outcome(), Outcome::Cancelled);
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

#[test]
fn processes_of_others_stop_the_job_unless_the_gpu_is_shared() {
    let host = Host::new();
    let mut client = host.connect();
    let on_a = json!({"processes": ["echo", format!("{A}, 1, python3, 100 MiB")]});
    // The other GPU is free.
    let story = client.run(&gpu_plan("j.1", json!("any"), "true", on_a.clone()));
    assert_eq!(locked(&story), [B]);
    let story = client.run(&gpu_plan("j.2", json!({"index": 0}), "true", on_a.clone()));
    match story.outcome() {
        Outcome::NoGpu { text } => assert!(text.contains("`python3` (process 1"), "{text}"),
        other => panic!("{other:?}"),
    }
    let mut share = on_a;
    share["share"] = json!(true);
    let story = client.run(&gpu_plan("j.3", json!({"index": 0}), "true", share));
    assert_eq!(*story.outcome(), Outcome::Done);
    let unknown = json!({"processes": ["false"]});
    let story = client.run(&gpu_plan("j.4", json!("any"), "true", unknown));
    assert!(matches!(story.outcome(), Outcome::NoGpu { .. }), "it fails closed");
    let story = client.run(&gpu_plan("j.5", json!({"name": "b200"}), "true", json!({})));
    match story.outcome() {
        Outcome::NoGpu { text } => assert!(text.contains("NVIDIA H200"), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// Fifty jobs of several laptops on a host of four GPUs with a simulated nvidia-smi. They get GPUs
/// in the order of their arrival, and no job gets a GPU on which another process computes.
#[test]
fn fifty_jobs_get_gpus_in_the_order_in_which_they_came() {
    let host = Host::new();
    let uuid = |i: usize| format!("GPU-{i}{i}{i}{i}");
    let smi = host.dir.path().join("nvidia-smi");
    let list = format!("#!/bin/sh\necho '{}, 1, python3, 100 MiB'\n", uuid(3));
    std::fs::write(&smi, list).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&smi, std::fs::Permissions::from_mode(0o755)).unwrap();
    let known: Vec<Value> =
        (0..4).map(|i| json!({"index": i, "uuid": uuid(i), "name": "NVIDIA B200"})).collect();
    let gate = host.dir.path().join("gate");
    let order = host.dir.path().join("order");
    let job = |i: usize| {
        let text = match i {
            // All GPUs are held until every job is in the queue.
            0..3 => format!("until [ -e {} ]; do sleep 0.05; done", gate.display()),
            _ => format!("echo {i} >> {}", order.display()),
        };
        let mut main = sh("main", &text);
        main["gpu"] = json!(true);
        let count = if i == 20 { 3 } else { 1 };
        let gpu = json!({"choice": "any", "count": count, "known": known, "processes": [&smi]});
        plan(&format!("j.{i}"), json!({"gpu": gpu, "steps": [main]}))
    };
    let mut laptops = [host.connect(), host.connect(), host.connect()];
    for i in 0..50 {
        laptops[i % 3].submit(&job(i));
        let log = host.job(&format!("j.{i}")).join("events.jsonl");
        let word = if i < 3 { "rung_started" } else { "queued" };
        let start = std::time::Instant::now();
        while !std::fs::read_to_string(&log).is_ok_and(|text| text.contains(word)) {
            assert!(start.elapsed().as_secs() < 60, "job {i} is not {word}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    std::fs::write(&gate, "").unwrap();
    let mut ended = 0;
    for (at, laptop) in laptops.iter_mut().enumerate() {
        for _ in 0..(50 - at).div_ceil(3) {
            let (job, outcome) = laptop.next_end();
            assert_eq!(outcome, Outcome::Done, "{job}");
            ended += 1;
        }
    }
    assert_eq!(ended, 50);
    let order = std::fs::read_to_string(order).unwrap();
    let order: Vec<i64> = order.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(order.len(), 47);
    for (place, job) in order.iter().enumerate() {
        // Three jobs run in parallel and start their programs in any order. While one finds out
        // that its GPU is not free, the next may get a free one.
        let overtaken = order[..place].iter().filter(|other| *other > job).count();
        assert!(overtaken <= 6, "job {job} was overtaken by {overtaken}: {order:?}");
    }
}

#[test]
fn a_gpu_of_a_killed_supervisor_is_free_once_its_programs_are_gone() {
    let host = Host::new();
    let shared = tempfile::tempdir().unwrap();
    let alive = shared.path().join("alive");
    let one = json!({"index": 0});
    let mut holder = host.connect();
    // A program that leaves a trace while it computes.
    let text = format!("echo up; while :; do date +%s%N > {}; done", alive.display());
    holder.submit(&gpu_plan("holder", one.clone(), &text, json!({})));
    let mut story = JobOutput::default();
    holder.until_output(&mut story, "main", "up");
    let mut waiting = host.connect();
    let text =
        format!("a=$(cat {0}); sleep 0.2; b=$(cat {0}); [ \"$a\" = \"$b\" ]", alive.display());
    waiting.submit(&gpu_plan("waiting", one, &text, json!({})));
    let mut wait_story = JobOutput::default();
    while !wait_story.events.iter().any(|e| matches!(e.body, EventBody::Queued { .. })) {
        waiting.read_into(&mut wait_story);
    }
    // No client follows the job, so only the watchdog notices.
    holder.cut();
    let pid = host.supervisor("holder").to_string();
    Command::new("kill").args(["-9", &pid]).status().unwrap();
    waiting.finish(&mut wait_story);
    assert_eq!(*wait_story.outcome(), Outcome::Done, "{:?}", wait_story.rungs());
}

/// A plan whose GPU is changed while it is held. The changes are lines of `log`.
fn setting_plan(job: &str, script: &str, log: &Path) -> Plan {
    let write =
        |word: &str| json!(["sh", "-c", format!("echo {word} {{uuid}} >> {}", log.display())]);
    let setting = json!({"apply": write("lock"), "undo": write("release")});
    gpu_plan(job, json!({"index": 0}), script, json!({ "setting": setting }))
}

#[test]
fn a_change_of_a_gpu_is_undone_however_the_job_ends() {
    let host = Host::new();
    let shared = tempfile::tempdir().unwrap();
    let both = format!("lock {A}\nrelease {A}\n");
    let log = |name: &str| shared.path().join(name);
    let read = |name: &str| std::fs::read_to_string(log(name)).unwrap();
    // The step sees the change, and the next step does not.
    let mut done = setting_plan("done", &format!("cat {}", log("done").display()), &log("done"));
    done.steps[2] =
        serde_json::from_value(sh("after", &format!("cat {}", log("done").display()))).unwrap();
    let story = host.connect().run(&done);
    assert_eq!(*story.outcome(), Outcome::Done);
    assert_eq!(story.stdout("main"), format!("lock {A}\n"));
    assert_eq!(story.stdout("after"), both);
    let story = host.connect().run(&setting_plan("fails", "exit 3", &log("fails")));
    assert!(matches!(story.outcome(), Outcome::Failed { .. }), "{:?}", story.outcome());
    assert_eq!(read("fails"), both);
    let mut client = host.connect();
    client.submit(&setting_plan("cancelled", "echo up; sleep 1000", &log("cancelled")));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "up");
    client.send(&ToAgent::Cancel { job: "cancelled".into() });
    client.finish(&mut story);
    assert_eq!(*story.outcome(), Outcome::Cancelled);
    assert_eq!(read("cancelled"), both);
}

#[test]
fn a_change_of_a_gpu_is_undone_after_its_supervisor_and_even_its_guard_were_killed() {
    let kill = |pids: &[i32]| {
        let pids = pids.iter().map(ToString::to_string);
        assert!(Command::new("kill").arg("-9").args(pids).status().unwrap().success());
    };
    for (job, with_watchdog) in [("alone", false), ("both", true)] {
        let host = Host::new();
        let shared = tempfile::tempdir().unwrap();
        let log = shared.path().join("log");
        let mut client = host.connect();
        client.submit(&setting_plan(job, "echo up; sleep 1000", &log));
        client.until_output(&mut JobOutput::default(), "main", "up");
        let supervisor = host.supervisor(job);
        client.cut();
        let watchdogs = living(&format!("watchdog\0{}", host.job(job).display()));
        assert_eq!(watchdogs.len(), 1, "{watchdogs:?}");
        let read = || std::fs::read_to_string(&log).unwrap();
        assert_eq!(read(), format!("lock {A}\n"));
        if with_watchdog {
            kill(&[watchdogs[0], supervisor]);
            // The next agent that sees the job undoes it.
            let mut other = host.connect();
            other.attach(job, 1, Vec::new());
            other.follow_to_end();
        } else {
            kill(&[supervisor]);
        }
        let start = Instant::now();
        while read() != format!("lock {A}\nrelease {A}\n") {
            assert!(start.elapsed() < Duration::from_secs(15), "{}", read());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn where_a_change_of_a_gpu_is_refused_nothing_runs_on_it() {
    let host = Host::new();
    let setting =
        json!({"apply": ["sh", "-c", "echo no permission >&2; exit 4"], "undo": ["false"]});
    let plan = gpu_plan("j", json!({"index": 0}), "echo ran", json!({ "setting": setting }));
    let story = host.connect().run(&plan);
    assert_eq!(story.stdout("main"), "");
    let Outcome::HostError { code, text } = story.outcome() else {
        panic!("{:?}", story.outcome());
    };
    assert_eq!(code, "gpu_setting_refused");
    assert_eq!(text, "`sh` ended with status 4: no permission");
    let warned = story.events.iter().any(|e| matches!(e.body, EventBody::Warning { .. }));
    assert!(!warned, "{:?}", story.events);
}

#[test]
fn a_gpu_that_stays_changed_after_another_was_refused_is_reported() {
    let host = Host::new();
    let shared = tempfile::tempdir().unwrap();
    // Only the first GPU can be changed.
    let apply = format!("mkdir {}", shared.path().join("changed").display());
    let setting =
        json!({"apply": ["sh", "-c", apply], "undo": ["sh", "-c", "echo no {uuid}; exit 5"]});
    let more = json!({"setting": setting, "count": 2});
    let story = host.connect().run(&gpu_plan("j", json!("any"), "echo ran", more));
    assert_eq!(story.stdout("main"), "");
    let Outcome::HostError { code, .. } = story.outcome() else {
        panic!("{:?}", story.outcome());
    };
    assert_eq!(code, "gpu_setting_refused");
    let changed = &locked(&story)[0];
    let text = "the GPU keeps what this job changed on it: `sh` ended with status 5: no";
    assert_eq!(not_restored(&story), [format!("{text} {changed}")]);
}

/// A plan whose GPU is changed while it is held, and can be restored only while `allowed` exists.
/// The changes are lines of `log`.
fn stuck_plan(job: &str, allowed: &Path, log: &Path) -> Plan {
    let mut plan = setting_plan(job, "echo ran", log);
    let (allowed, log) = (allowed.display(), log.display());
    let undo = format!("[ -e {allowed} ] || exit 5; echo release {{uuid}} >> {log}");
    let setting = plan.gpu.as_mut().and_then(|gpu| gpu.setting.as_mut()).unwrap();
    setting.undo = ["sh", "-c", &undo].map(String::from).to_vec();
    plan
}

/// The texts of the warnings about GPUs that stay changed.
fn not_restored(story: &JobOutput) -> Vec<&str> {
    let warnings = story.events.iter().filter_map(|e| match &e.body {
        EventBody::Warning { code, text } if code == "gpu_not_restored" => Some(text.as_str()),
        _ => None,
    });
    warnings.collect()
}

#[test]
fn a_gpu_that_cannot_be_restored_after_its_last_step_stays_locked_until_the_job_ends() {
    let host = Host::new();
    let shared = tempfile::tempdir().unwrap();
    let (allowed, log) = (shared.path().join("allowed"), shared.path().join("log"));
    let mut plan = stuck_plan("j", &allowed, &log);
    // Only if the GPU is locked, the end of the job may restore it.
    let lock = Path::new(&host.env["RGPU_LOCK_DIR"]).join(format!("{A}.lock"));
    let text = format!(
        "[ -e {0} ] || exit 3; flock -n {0} true || touch {1}",
        lock.display(),
        allowed.display()
    );
    plan.steps[2] = serde_json::from_value(sh("after", &text)).unwrap();
    let story = host.connect().run(&plan);
    assert_eq!(*story.outcome(), Outcome::Done, "{:?}", story.rungs());
    assert_eq!(not_restored(&story).len(), 1, "{:?}", story.events);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("lock {A}\nrelease {A}\n"));
}

#[test]
fn a_gpu_that_an_ended_job_left_changed_is_restored_by_the_next_one_that_holds_it() {
    let host = Host::new();
    let shared = tempfile::tempdir().unwrap();
    let (allowed, log) = (shared.path().join("allowed"), shared.path().join("log"));
    let story = host.connect().run(&stuck_plan("first", &allowed, &log));
    assert_eq!(*story.outcome(), Outcome::Done);
    let mut client = host.connect();
    client.send(&ToAgent::Forget { job: "first".into() });
    let start = Instant::now();
    while host.job("first").exists() {
        assert!(start.elapsed() < Duration::from_secs(15), "the job is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    let read = format!("cat {}", log.display());
    let next = |job: &str, index: u32| {
        host.connect().run(&gpu_plan(job, json!({"index": index}), &read, json!({})))
    };
    let still_changed = next("second", 0);
    let text = "the GPU keeps what an earlier job changed on it: `sh` ended with status 5";
    let warnings = not_restored(&still_changed);
    assert!(warnings.len() == 1 && warnings[0].starts_with(text), "{warnings:?}");
    std::fs::write(&allowed, "").unwrap();
    assert_eq!(next("other-gpu", 1).stdout("main"), format!("lock {A}\n"));
    let restored = next("third", 0);
    assert_eq!(restored.stdout("main"), format!("lock {A}\nrelease {A}\n"));
    assert!(not_restored(&restored).is_empty(), "{:?}", restored.events);
    // Once is enough.
    assert_eq!(next("fourth", 0).stdout("main"), format!("lock {A}\nrelease {A}\n"));
}
