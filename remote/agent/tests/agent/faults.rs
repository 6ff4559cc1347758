//! Failures of hosts, and how they are reported.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rgpu_protocol::{EventBody, FromAgent, Outcome, ToAgent};
use serde_json::json;

use crate::client::{AGENT, Client, Host, JobOutput, input, living, plan, script, sh, step};

fn host_error(story: &JobOutput) -> &str {
    match story.outcome() {
        Outcome::HostError { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

fn kill(pid: i32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_killed_supervisor_is_noticed_and_its_programs_are_ended() {
    let host = Host::new();
    let mark = format!("rgpu-orphan-{}", std::process::id());
    let mut client = host.connect();
    let text = format!("setsid sh -c 'sleep 1000; : {mark}' & echo up; sleep 1000; : {mark}");
    client.submit(&script("j", &text));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "up");
    kill(host.supervisor("j"));
    client.finish(&mut story);
    assert_eq!(host_error(&story), "supervisor_died");
    assert_eq!(living(&mark), [0i32; 0]);
    // Written once, and read by every client.
    let mut other = host.connect();
    other.attach("j", 1, Vec::new());
    assert_eq!(other.follow_to_end().events, story.events);
}

#[test]
fn a_supervisor_killed_while_nobody_is_connected_leaves_nothing_running() {
    let host = Host::new();
    let mark = format!("rgpu-lonely-{}", std::process::id());
    let mut client = host.connect();
    client.submit(&script("j", &format!("echo up; sleep 1; echo guarded; sleep 1000; : {mark}")));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "guarded");
    assert!(!living(&mark).is_empty());
    let supervisor = host.supervisor("j");
    client.cut();
    kill(supervisor);
    let start = Instant::now();
    let log = host.job("j").join("events.jsonl");
    while !std::fs::read_to_string(&log).unwrap().contains("supervisor_died") {
        assert!(start.elapsed() < Duration::from_secs(15));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(living(&mark), [0i32; 0]);
}

#[test]
fn a_guarded_job_ends_like_any_other_and_takes_its_guard_along() {
    let host = Host::new();
    let mark = format!("rgpu-guarded-{}", std::process::id());
    let text = format!("sleep 1; (setsid sh -c 'sleep 1000; : {mark}' &); echo done");
    let start = Instant::now();
    let story =
        host.connect().run(&plan("j", json!({"steps": [sh("a", &text), sh("b", "echo next")]})));
    assert_eq!(*story.outcome(), Outcome::Done);
    assert!(start.elapsed() < Duration::from_secs(8));
    assert_eq!(living(&mark), [0i32; 0]);
    let folder = host.job("j").display().to_string();
    let gone = || living(&folder).is_empty();
    while !gone() {
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", living(&folder));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_host_that_went_down_in_the_middle_of_a_line_leaves_a_readable_log() {
    let host = Host::new();
    let mut client = host.connect();
    client.submit(&script("j", "echo up; sleep 1000"));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "up");
    let supervisor = host.supervisor("j");
    client.cut();
    kill(supervisor);
    let log = host.job("j").join("events.jsonl");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.extend(br#"{"seq":99,"at"#);
    std::fs::write(&log, bytes).unwrap();
    let mut clients = [host.connect(), host.connect()];
    let stories = clients.each_mut().map(|c| {
        c.attach("j", 1, Vec::new());
        c.follow_to_end()
    });
    assert_eq!(stories[0].events, stories[1].events);
    assert_eq!(host_error(&stories[0]), "supervisor_died");
}

#[test]
fn a_connection_killed_at_any_moment_leaves_no_half_job() {
    let host = Host::new();
    for delay_us in (0..12_000).step_by(600) {
        let job = format!("j.{delay_us}");
        let ran = host.dir.path().join(&job);
        let mut client = host.connect();
        client.submit(&script(&job, &format!("echo x >> {}", ran.display())));
        std::thread::sleep(Duration::from_micros(delay_us));
        client.cut();
        // Submitting again starts or follows the job; either way it runs once to its end.
        let story = host.connect().run(&script(&job, &format!("echo x >> {}", ran.display())));
        assert_eq!(*story.outcome(), Outcome::Done);
        assert_eq!(std::fs::read_to_string(&ran).unwrap(), "x\n", "it ran once");
    }
}

#[test]
fn a_plan_whose_secrets_have_no_values_is_refused() {
    let host = Host::new();
    let mut client = host.connect();
    let secret = plan("j", json!({"secrets": ["T"], "steps": [sh("main", "echo $T")]}));
    client.submit_with(&secret, json!({"U": "other"}), 0);
    assert_eq!(client.refusal(), ("submit".into(), "no_secrets".into()));
    client.submit_with(&secret, json!({"T": "the-token"}), 0);
    assert_eq!(client.follow_to_end().stdout("main"), "***\n");
}

#[test]
fn a_folder_that_others_may_write_is_refused_and_facts_still_work() {
    let host = Host::new();
    std::fs::create_dir(host.home()).unwrap();
    std::fs::set_permissions(host.home(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut client = host.connect();
    client.submit(&script("j", "true"));
    assert_eq!(client.refusal(), ("submit".into(), "folder_unsafe".into()));
    client.send(&ToAgent::Facts { probes: Vec::new() });
    assert!(matches!(client.next(), FromAgent::Facts { facts } if facts.folder.is_empty()));
}

#[test]
fn an_unusable_home_gives_way_to_the_next_folder() {
    let dir = tempfile::tempdir().unwrap();
    crate::client::write(&dir.path().join("file"), "");
    let mut command = Command::new(AGENT);
    command
        .env_remove("RGPU_AGENT_HOME")
        .env("XDG_CACHE_HOME", dir.path().join("file"))
        .env("HOME", dir.path());
    let mut client = Client::start(&mut command);
    client.send(&ToAgent::Facts { probes: Vec::new() });
    let FromAgent::Facts { facts } = client.next() else { panic!("facts") };
    assert!(facts.folder.ends_with("/.cache/rgpu"), "{}", facts.folder);
}

/// A small file system of its own; `None` if mounting is not allowed.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir.path());
        let mounted = mount.output().is_ok_and(|o| o.status.success());
        if !mounted {
            eprintln!("passed over: mounting is not allowed here");
        }
        mounted.then(|| Self(dir))
    }

    fn host(&self) -> Host {
        let mut host = Host::new();
        let home = self.0.path().join("home").display().to_string();
        host.env.insert("RGPU_AGENT_HOME".into(), home);
        host
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_disk_that_fills_up_ends_the_job_with_whole_records() {
    let Some(disk) = SmallDisk::mount("size=48m,mode=700") else { return };
    let host = disk.host();
    let mut client = host.connect();
    let story = client.run(&script("j", "while :; do head -c 1000000 /dev/zero; done"));
    assert_eq!(host_error(&story), "disk_full");
    let log = std::fs::read_to_string(host.job("j").join("events.jsonl")).unwrap();
    assert!(log.ends_with('\n'));
    assert_eq!(log.lines().count(), story.events.len());
    // Announced output is in the log.
    let kept = std::fs::metadata(host.job("j").join("log/main.stdout")).unwrap().len();
    assert_eq!(kept as usize, story.stdout("main").len());
}

#[test]
fn a_program_that_fills_the_disk_itself_is_told_from_our_own_failure() {
    let Some(disk) = SmallDisk::mount("size=48m,mode=700") else { return };
    let host = disk.host();
    let mut client = host.connect();
    let text = "head -c 100000000 /dev/zero > big 2>err; echo failed; exit 9";
    let story = client.run(&script("j", text));
    // Either the program could still report it, or its message found no space.
    match story.outcome() {
        Outcome::Failed { code, .. } => assert_eq!(code, "exit"),
        _ => assert_eq!(host_error(&story), "disk_full"),
    }
}

#[test]
fn a_home_mounted_noexec_or_full_is_refused_by_name() {
    let Some(disk) = SmallDisk::mount("size=64m,mode=700,noexec") else { return };
    let host = disk.host();
    let mut client = host.connect();
    client.submit(&script("j", "true"));
    assert_eq!(client.refusal().1, "folder_noexec");
    let Some(disk) = SmallDisk::mount("size=4m,mode=700") else { return };
    let mut client = disk.host().connect();
    client.submit(&script("j", "true"));
    assert_eq!(client.refusal().1, "disk_full");
}

#[test]
fn a_blob_that_finds_no_room_is_refused_and_the_conversation_goes_on() {
    let Some(disk) = SmallDisk::mount("size=48m,mode=700") else { return };
    let host = disk.host();
    let mut client = host.connect();
    client.send(&ToAgent::Ping {});
    client.next();
    let room = 1 << 20;
    std::fs::write(disk.0.path().join("filler"), vec![1; (48 << 20) - room]).unwrap();
    let mut blob = vec![7; 4 << 20];
    client.blob(&blob);
    assert_eq!(client.refusal(), ("blob".into(), "disk_full".into()));
    let left: Vec<_> = std::fs::read_dir(host.home().join("blobs/tmp")).unwrap().collect();
    assert!(left.is_empty(), "nothing half-written");
    blob.truncate(1000);
    client.blob(&blob);
    assert!(matches!(client.next(), FromAgent::Stored { .. }));
}

#[test]
fn a_home_that_is_read_only_or_belongs_to_somebody_else_is_refused_by_name() {
    let Some(disk) = SmallDisk::mount("size=64m,mode=700") else { return };
    let host = disk.host();
    drop(host.connect());
    let mut remount = Command::new("mount");
    remount.args(["-o", "remount,ro"]).arg(disk.0.path());
    assert!(remount.status().unwrap().success());
    let mut client = host.connect();
    client.submit(&script("j", "true"));
    assert_eq!(client.refusal(), ("submit".into(), "read_only".into()));

    let host = Host::new();
    drop(host.connect());
    std::os::unix::fs::chown(host.home(), Some(65534), None).unwrap();
    let mut client = host.connect();
    client.submit(&script("j", "true"));
    assert_eq!(client.refusal(), ("submit".into(), "folder_unsafe".into()));
}

#[test]
fn a_client_that_requires_what_the_agent_does_not_know_is_told_so() {
    let host = Host::new();
    for hello in [json!({"rgpu": 1, "required": ["telepathy"]}), json!({"rgpu": 2})] {
        let mut client = Client::silent(Command::new(AGENT).envs(&host.env));
        client.send(&hello);
        assert_eq!(client.refusal(), ("hello".into(), "unknown_feature".into()));
        assert!(client.frame().is_none(), "the conversation is over");
    }
}

#[test]
fn over_the_quota_the_oldest_ended_jobs_go_first_and_running_ones_stay() {
    let mut host = Host::new();
    let fill = |job: &str| script(job, "head -c 3000000 /dev/urandom > data");
    let mut client = host.connect();
    client.run(&fill("old"));
    client.run(&fill("new"));
    client.submit(&script("running", "head -c 3000000 /dev/urandom > data; echo up; sleep 1000"));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "up");
    host.env.insert("RGPU_AGENT_QUOTA".into(), "7500000".into());
    let _ = std::fs::remove_file(host.home().join("swept"));
    // Supervisors sweep when their job has ended.
    host.connect().run(&script("newest", "true"));
    let start = Instant::now();
    while host.job("old").exists() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!host.job("old").exists());
    assert!(host.job("new").exists() && host.job("running").exists());
    client.send(&ToAgent::Cancel { job: "running".into() });
    client.finish(&mut story);
}

#[test]
fn a_plan_for_which_the_quota_has_no_room_is_refused_until_there_is_some() {
    let mut host = Host::new();
    host.env.insert("RGPU_AGENT_QUOTA".into(), "8000000".into());
    let mut client = host.connect();
    client.submit(&script("holder", "head -c 5000000 /dev/urandom > data; echo up; sleep 1000"));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "up");
    // The usage record counts ended jobs; only a sweep's walk finds a running one.
    host.connect().run(&script("small", "head -c 1000000 /dev/urandom > data"));
    // Its supervisor adds to the record at its end, and holds the lock until it has exited.
    let lock = std::fs::File::open(host.job("small").join("plan.json")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    drop(lock);
    let big = vec![7; 2_000_000];
    let mut wants = script("wants", "wc -c < in");
    wants.files.push(input("in", &big));
    std::fs::write(host.home().join("swept"), "0 9000000\n").unwrap();
    let mut other = host.connect();
    other.submit(&wants);
    match other.next() {
        FromAgent::Refused { request, code, text } => {
            assert_eq!((&*request, &*code), ("submit", "quota"));
            assert!(text.contains("of your 8000000 bytes"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!host.job("wants").exists() && !host.job("small").exists());
    client.send(&ToAgent::Cancel { job: "holder".into() });
    client.finish(&mut story);
    other.send(&ToAgent::Forget { job: "holder".into() });
    while !matches!(other.next(), FromAgent::Done { .. }) {}
    other.submit(&wants);
    assert!(matches!(other.next(), FromAgent::Missing { .. }));
    other.blob(&big);
    assert!(matches!(other.next(), FromAgent::Stored { .. }));
    assert_eq!(other.run(&wants).stdout("main"), "2000000\n", "there is room now");
}

#[test]
fn a_supervisor_killed_on_a_full_disk_still_gets_its_last_words() {
    let Some(disk) = SmallDisk::mount("size=48m,mode=700") else { return };
    let host = disk.host();
    let mut client = host.connect();
    client.submit(&script("j", "echo up; cat /dev/zero > data 2>/dev/null; sleep 1000"));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "up");
    let free = || {
        let stat = Command::new("stat").args(["-f", "-c", "%a"]).arg(disk.0.path()).output();
        String::from_utf8(stat.unwrap().stdout).unwrap().trim().parse::<u64>().unwrap()
    };
    while free() > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    kill(host.supervisor("j"));
    client.finish(&mut story);
    assert_eq!(host_error(&story), "supervisor_died");
    // There is space again once the same connection has removed the job.
    client.send(&ToAgent::Forget { job: "j".into() });
    while !matches!(client.next(), FromAgent::Done { .. }) {}
    assert_eq!(client.run(&script("next", "echo on")).stdout("main"), "on\n");
}

#[test]
fn a_client_that_stops_reading_slows_no_job() {
    let host = Host::new();
    let mut client = host.connect();
    client.submit(&script("j", "head -c 20000000 /dev/zero; touch finished"));
    // From here on the client reads nothing.
    let start = Instant::now();
    while !host.job("j").join("work/finished").exists() {
        assert!(start.elapsed() < Duration::from_secs(30), "the job waits for its reader");
        std::thread::sleep(Duration::from_millis(20));
    }
    let story = client.follow_to_end();
    assert_eq!(story.stdout("main").len(), 20_000_000);
}

#[test]
fn garbage_on_the_stream_ends_the_conversation_and_no_job() {
    let host = Host::new();
    let mut client = host.connect();
    client.submit(&script("j", "echo up; sleep 0.5; echo survived"));
    let mut story = JobOutput::default();
    client.until_output(&mut story, "main", "up");
    std::io::Write::write_all(client.input.as_mut().unwrap(), b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(!client.process.wait().unwrap().success());
    let mut other = host.connect();
    other.attach("j", 1, Vec::new());
    assert_eq!(other.follow_to_end().stdout("main"), "up\nsurvived\n");
}

#[test]
fn a_program_that_was_just_uploaded_can_be_run_again_and_again() {
    let host = Host::new();
    let mut client = host.connect();
    let tool = b"#!/bin/sh\necho ran $1\n";
    client.blob(tool);
    client.next();
    for i in 0..10 {
        let mut file = crate::client::input("bin/tool", tool);
        file.executable = true;
        let rungs = json!([{"id": "r", "argv": [{"in_job": "bin/tool"}, i.to_string()]}]);
        let story = client.run(&plan(
            &format!("j.{i}"),
            json!({"files": [file], "steps": [step("main", rungs)]}),
        ));
        assert_eq!(story.stdout("main"), format!("ran {i}\n"));
        assert!(story.events.iter().all(|e| !matches!(e.body, EventBody::Warning { .. })));
    }
}

#[test]
fn clocks_that_are_set_back_neither_lose_jobs_nor_stop_sweeps() {
    let host = Host::new();
    let mut client = host.connect();
    client.run(&script("old", "true"));
    // As on a host whose clock was a year ahead for a while.
    let ahead = 365 * 24 * 3_600_000_u64;
    let log = host.job("old").join("events.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    let later = |line: &str| {
        let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
        event["at_ms"] = json!(event["at_ms"].as_u64().unwrap() + ahead);
        event.to_string() + "\n"
    };
    std::fs::write(&log, text.lines().map(later).collect::<String>()).unwrap();
    let swept = host.home().join("swept");
    std::fs::write(&swept, format!("{} 0\n", u64::MAX)).unwrap();
    let story = client.run(&script("new", "echo on"));
    assert_eq!(story.stdout("main"), "on\n");
    let start = Instant::now();
    while std::fs::read_to_string(&swept).unwrap().starts_with(&u64::MAX.to_string()) {
        assert!(start.elapsed() < Duration::from_secs(20), "no sweep");
        std::thread::sleep(Duration::from_millis(20));
    }
    client.send(&ToAgent::Jobs {});
    let FromAgent::Jobs { jobs, now_ms, .. } = client.next() else { panic!("jobs") };
    assert_eq!(jobs.len(), 2);
    assert!(jobs.iter().any(|job| job.started_ms > now_ms));
    client.attach("old", 1, Vec::new());
    assert_eq!(*client.follow_to_end().outcome(), Outcome::Done);
}

#[test]
fn a_job_of_a_newer_agent_is_listed_and_followed_as_far_as_it_is_understood() {
    let host = Host::new();
    let mut client = host.connect();
    client.run(&script("j", "echo hello"));
    let log = host.job("j").join("events.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    let newer = |line: &str| {
        let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
        event["mood"] = json!("good");
        if event["event"] == "step_ended" {
            event = json!({"seq": event["seq"], "at_ms": event["at_ms"], "event": "step_beamed"});
        }
        event.to_string() + "\n"
    };
    // Rename in one step: the agent that reported the end may still be reading the job's state.
    let anew = log.with_extension("new");
    std::fs::write(&anew, text.lines().map(newer).collect::<String>()).unwrap();
    std::fs::rename(&anew, &log).unwrap();
    let plan_file = host.job("j").join("plan.json");
    let mut written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&plan_file).unwrap()).unwrap();
    written["orbit"] = json!(3);
    std::fs::write(&plan_file, written.to_string()).unwrap();
    client.attach("j", 1, Vec::new());
    let story = client.follow_to_end();
    assert_eq!((story.outcome(), &*story.stdout("main")), (&Outcome::Done, "hello\n"));
    let seqs: Vec<u64> = story.events.iter().map(|e| e.seq).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "no gap");
    assert!(story.events.iter().any(|e| e.body == EventBody::Unknown));
}

#[test]
fn jobs_of_two_laptops_on_one_host_neither_mix_nor_remove_each_other() {
    let host = Host::new();
    let mut one = host.connect();
    let mut two = host.connect();
    // Both send the same inputs at the same time, and run at the same time.
    let bytes = vec![9; 3_000_000];
    let mut plans = ["one", "two"].map(|job| script(job, "cat in | wc -c; echo $0; sleep 0.3"));
    for (client, plan) in [&mut one, &mut two].into_iter().zip(&mut plans) {
        plan.files.push(input("in", &bytes));
        client.submit(plan);
    }
    // Both get the list of missing blobs before either sends one.
    for client in [&mut one, &mut two] {
        assert!(matches!(client.next(), FromAgent::Missing { .. }));
    }
    for client in [&mut one, &mut two] {
        client.blob(&bytes);
    }
    for (client, plan) in [&mut one, &mut two].into_iter().zip(&plans) {
        assert!(matches!(client.next(), FromAgent::Stored { .. }));
        client.submit(plan);
    }
    // A third follows one of them, from the start.
    let mut third = host.connect();
    let stories = [one.follow_to_end(), two.follow_to_end()];
    third.attach("one", 1, Vec::new());
    assert_eq!(third.follow_to_end().events, stories[0].events);
    for story in &stories {
        assert!(story.stdout("main").starts_with("3000000\n"), "{}", story.stdout("main"));
    }
    // One of them removes its job while the other still reads.
    two.send(&ToAgent::Forget { job: "one".into() });
    assert!(matches!(two.next(), FromAgent::Done { .. }));
    one.attach("one", 1, Vec::new());
    assert_eq!(one.refusal().1, "no_such_job");
    one.attach("two", 1, Vec::new());
    assert_eq!(one.follow_to_end().events, stories[1].events);
}

#[test]
fn an_output_storm_on_both_streams_is_kept_to_the_limit_and_ends_by_its_time() {
    let host = Host::new();
    let mut main = sh("main", "cat /dev/zero & cat /dev/zero >&2");
    main["timeout_s"] = json!(2);
    let limits = json!({"log_bytes": 8 << 20});
    let start = Instant::now();
    let story = host.connect().run(&plan("j", json!({"limits": limits, "steps": [main]})));
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!(story.rungs(), ["host:timeout"]);
    assert_eq!((story.stdout("main").len(), story.stderr("main").len()), (8 << 20, 8 << 20));
    let dropped = |e: &&rgpu_protocol::Event| matches!(e.body, EventBody::OutputDropped { .. });
    assert!(story.events.iter().filter(dropped).count() >= 2);
    // Neither events nor memory grow with dropped output.
    assert!(story.events.len() < 2000, "{}", story.events.len());
}
