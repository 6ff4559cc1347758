//! The same commands over HTTP: a real `rgpu worker` on loopback, with played tools behind it.

mod compiled_here;
mod deployed;
mod face;
mod faults;
mod handed_over;
mod keychain;
mod modal;
mod phases;
mod worker;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use rgpu_model::Profile;
use rgpu_protocol::{EventBody, Outcome};
use rgpu_remote::{RemoteError, RemoteFile, RemoteSpec, UnknownHostPolicy};
use rustix::process::{Pid, Signal, kill_process};

use crate::fake_host::FakeHost;
use crate::host::{User, connect, follow, submission};
use crate::laptop::{Laptop, OF_MANY_GPUS, status, wait_for, words};
use crate::sshd::Cutter;
use worker::Worker;

const NCU: &str = "profile --kernel vecadd --mode ncu --remote box --json";

#[test]
fn commands_run_behind_http_with_their_output_and_status() {
    let laptop = Laptop::new();
    let _worker = Worker::start(&laptop);
    let output = laptop.run("exec --remote box -- sh -c 'echo out; echo err >&2; exit 3'");
    assert_eq!(status(&output), 3);
    assert_eq!(output.stdout, b"out\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("err\n"));
    let output = laptop.run_with_input("exec --remote box -q -- cat", b"some input");
    assert_eq!((status(&output), &*output.stdout), (0, &b"some input"[..]));
    let output = laptop.run("remote check box");
    assert_eq!(status(&output), 0, "{}", laptop.shown("remote check box", &output));
    let output = laptop.run("exec --remote box -q -- true");
    assert_eq!((status(&output), output.stdout.len(), output.stderr.len()), (0, 0, 0));
}

#[test]
fn the_log_tells_what_a_connection_does_and_no_secret() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    fs::write(laptop.path("project/secrets"), "PASSWORD=hunter-2\n").unwrap();
    let mut command = laptop.rgpu(words("exec --remote box --env-file secrets -- true"));
    command.env("RGPU_LOG", "trace");
    let log = String::from_utf8(command.output().unwrap().stderr).unwrap();
    for told in ["rgpu_remote::", "rgpu_run::", "agent: hello", "run: the job ended"] {
        assert!(log.contains(told), "{told}: {log}");
    }
    for secret in [worker.token.as_str(), "hunter-2", "\u{1b}"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
    let quiet = laptop.run("exec --remote box -- true");
    assert!(!String::from_utf8_lossy(&quiet.stderr).contains("rgpu_remote::"));
    let output = laptop.rgpu(words("runs list")).env("RGPU_LOG", "rgpu=loud").output().unwrap();
    assert_eq!(status(&output), 2, "{}", laptop.shown("runs list", &output));
}

#[test]
fn the_workers_settings_for_communication_between_gpus_reach_a_program() {
    let laptop = Laptop::new();
    let settings = OF_MANY_GPUS.map(|setting| setting.split_once('=').unwrap());
    let settings = settings.map(|(name, value)| (name, OsStr::new(value)));
    let _worker = Worker::start_with(&laptop, &settings);
    let output = laptop.run("exec --remote box -- env");
    let env = String::from_utf8_lossy(&output.stdout);
    for setting in OF_MANY_GPUS {
        assert!(env.lines().any(|line| line == setting), "{setting}: {env}");
    }
}

#[test]
fn a_profile_over_http_is_whole() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let _worker = Worker::start(&laptop);
    for _ in 0..2 {
        let output = laptop.run(NCU);
        assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
        let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(profile.rung, "ncu.asked");
        assert_eq!(profile.host.unwrap().transport, "worker");
        assert!(profile.launches[0].metrics.len() > 500);
    }
}

#[test]
fn input_and_output_of_many_megabytes_flow_at_once() {
    let laptop = Laptop::new();
    let _worker = Worker::start(&laptop);
    let input: Vec<u8> = (0..30_000_000_u32).map(|i| (i * 7 / 3 % 256) as u8).collect();
    let output = laptop.run_with_input("exec --remote box --timeout 60s -- cat", &input);
    assert_eq!(status(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == input, "{} of {}", output.stdout.len(), input.len());
}

#[test]
fn ctrl_c_stops_what_runs_there() {
    let laptop = Laptop::new();
    let _worker = Worker::start(&laptop);
    let child = laptop.start(
        r#"exec --remote box -- sh -c 'trap "" INT TERM; echo started; sleep 7007; sleep 7008'"#,
    );
    let runs = laptop.project("artifacts/runs");
    wait_for("the program's first word", || {
        let id = fs::read_to_string(runs.join(".latest")).ok()?;
        let log = fs::read_to_string(runs.join(id.trim()).join("log/exec.stdout")).ok()?;
        log.contains("started").then_some(())
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", String::from_utf8_lossy(&output.stderr));
    wait_for("the program's end", || {
        laptop.running().iter().all(|line| !line.contains("sleep 700")).then_some(())
    });
    assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
}

#[test]
fn a_command_that_is_being_flooded_with_input_and_floods_back_hears_a_signal() {
    let laptop = Laptop::new();
    let _worker = Worker::start(&laptop);
    let output = laptop.run_flooded_until_stopped("exec --remote box -- cat");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cancelling"), "{said}");
    assert!(status(&output) >= 128, "{said}");
}

#[test]
fn a_worker_that_is_killed_or_restarted_in_the_middle_costs_the_profile_nothing() {
    for signal in [Signal::KILL, Signal::TERM] {
        let laptop = Laptop::new();
        let host = FakeHost::new(&laptop);
        host.mischief("ncu gate\n");
        let worker = Worker::start(&laptop);
        let child = laptop.start(NCU);
        host.wait_for_gate("ncu");
        let port = worker.stop(signal);
        host.open_gate("ncu");
        std::thread::sleep(Duration::from_millis(500));
        let _worker = Worker::start_at(&laptop, port);
        let output = child.wait_with_output().unwrap();
        assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
        let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(profile.rung, "ncu.asked");
        assert!(profile.launches[0].metrics.len() > 500);
        let log = fs::read_to_string(laptop.latest().join("log/profile.stdout")).unwrap();
        assert_eq!(log.matches("==PROF== Profiling").count(), 1, "{log}");
    }
}

#[test]
fn a_detached_run_is_taken_up_again() {
    let laptop = Laptop::new();
    let _worker = Worker::start(&laptop);
    let line = "exec --remote box --detach -- sh -c 'sleep 1; echo late; exit 4'";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let output = laptop.run("runs attach latest");
    assert_eq!(status(&output), 4, "{}", laptop.shown("runs attach latest", &output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("late"));
}

/// As after files that came faster than the disk takes them.
fn unsynced(laptop: &Laptop, files: &[&str]) {
    let mut record = laptop.latest_json("run.json");
    let files = files.iter().map(|path| serde_json::json!({"path": path, "size": 5}));
    record["jobs"][0]["unsynced"] = files.collect();
    fs::write(laptop.latest().join("run.json"), record.to_string()).unwrap();
}

#[test]
fn a_file_that_a_power_cut_has_taken_is_brought_again_from_the_host_that_kept_it() {
    let laptop = Laptop::new();
    let _worker = Worker::start(&laptop);
    let attach = || {
        let output = laptop.run("runs attach latest");
        assert_eq!(status(&output), 0, "{}", laptop.shown("runs attach latest", &output));
    };
    let jobs = || {
        let output = laptop.run("runs list --remote box --json");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["total"].clone()
    };
    let line = "exec --remote box --detach --pull out -- sh -c 'echo made > out'";
    assert_eq!(status(&laptop.run(line)), 0);
    unsynced(&laptop, &["pulled/another"]);
    attach();
    let file = laptop.latest().join("pulled/out");
    assert_eq!(fs::read_to_string(&file).unwrap(), "made\n");
    assert_eq!(jobs(), 1, "for the sake of the other the host keeps it");
    fs::write(&file, "").unwrap();
    attach();
    assert_eq!(fs::read_to_string(&file).unwrap(), "made\n");
    unsynced(&laptop, &["pulled/out"]);
    attach();
    assert_eq!(jobs(), 1, "all of it is here, and nobody is asked");
    fs::remove_file(&file).unwrap();
    attach();
    assert_eq!(fs::read_to_string(&file).unwrap(), "made\n");
    assert_eq!(jobs(), 0, "now the disk was waited for");
}

fn spec(laptop: &Laptop, port: u16) -> RemoteSpec {
    let mut spec = RemoteSpec::new("box", format!("http://127.0.0.1:{port}"));
    let token = laptop.path("token").display().to_string();
    spec.options.insert("token_file".into(), token);
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_cut_after_any_number_of_bytes_loses_nothing() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let big: Vec<u8> = (0..9_000_000_u32).map(|i| (i.wrapping_mul(7919) % 251) as u8).collect();
    let script =
        "cat in/big; i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done; cp in/big out";
    let mut work = submission(&["/bin/sh", "-c", script], &[("in/big", &big)], &["out"]);
    let cutter = Cutter::before(worker.port).await;
    for bytes in [700, 5_000, 100_000, 3_000_000] {
        let user = Arc::new(User::default());
        work.plan.job = format!("cut-{bytes}.1");
        let mut link =
            connect(&spec(&laptop, cutter.port), UnknownHostPolicy::Refuse, &user).await.unwrap();
        cutter.cut_after(bytes);
        let healer = tokio::spawn({
            let links = cutter.links();
            let cutter = cutter.clone();
            async move {
                while cutter.links() < links + 2 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                cutter.cut_after(u64::MAX);
            }
        });
        link.submit(&work, &|_| ()).await.unwrap();
        let story = follow(&mut link).await.unwrap();
        assert_eq!(story.outcome(), &Outcome::Done, "{bytes}");
        assert!(story.stdout.starts_with(&big), "{bytes}");
        assert!(story.stdout.ends_with(b"line 199\n"), "{bytes}");
        assert_eq!(story.stdout.len(), big.len() + 10 * 7 + 90 * 8 + 100 * 9, "{bytes}");
        let wanted = artifact(&story.events, &work.plan.job);
        let dest = laptop.path("fetched");
        link.fetch(&wanted, &dest, None, &|_| ()).await.unwrap();
        assert!(fs::read(&dest).unwrap() == big);
        link.close().await;
        healer.abort();
        cutter.cut_after(u64::MAX);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_a_cut_meets_in_the_middle_arrives_whole_and_once() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let cutter = Cutter::before(worker.port).await;
    worker::add_remote_to_config(&laptop, cutter.port);
    tokio::task::block_in_place(|| {
        let links = std::cell::Cell::new(0);
        let (printed, told) = laptop.typed_around(
            "exec --remote box --timeout 60s -- cat",
            || {
                links.set(cutter.links());
                cutter.cut_after(0);
            },
            || {
                // Each of two requests is tried four times before the link counts as cut.
                wait_for("other links", || (cutter.links() > links.get() + 12).then_some(()));
                cutter.cut_after(u64::MAX);
            },
        );
        assert_eq!(printed, "first\nsecond\nthird\nlast\n");
        assert!(told.contains("reconnected"), "{told}");
    });
}

/// The one file that a job told of.
fn artifact(events: &[EventBody], job: &str) -> RemoteFile {
    events.iter().find_map(|event| RemoteFile::from_event(job, event)).expect("a file")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_while_it_is_fetched_is_noticed() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let cutter = Cutter::before(worker.port).await;
    let script = "head -c 60000000 /dev/urandom > out";
    let work = submission(&["/bin/sh", "-c", script], &[], &["out"]);
    let user = Arc::new(User::default());
    let mut link =
        connect(&spec(&laptop, cutter.port), UnknownHostPolicy::Refuse, &user).await.unwrap();
    // A link brings the first piece, but all links together not the whole file before it changes.
    cutter.hold_after(5 << 20);
    link.submit(&work, &|_| ()).await.unwrap();
    let story = follow(&mut link).await.unwrap();
    let wanted = artifact(&story.events, &work.plan.job);
    let file = laptop.path("agent/jobs").join(&work.plan.job).join("work/out");
    let written = std::sync::Once::new();
    let rewrite = |transfer: rgpu_remote::TransferProgress| {
        if transfer.done > 0 {
            // In place: one that is cut short meanwhile is another error.
            written.call_once(|| {
                let file = fs::File::options().write(true).open(&file).unwrap();
                file.write_all_at(&vec![7; 60_000_000], 0).unwrap();
                cutter.hold_after(u64::MAX);
            });
        }
    };
    let dest = laptop.path("fetched");
    let error = link.fetch(&wanted, &dest, None, &rewrite).await.unwrap_err();
    assert!(matches!(error, RemoteError::Damaged { .. }), "{error:?}");
    assert!(!dest.exists());
}
