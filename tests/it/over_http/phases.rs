//! What may happen in each phase of a job: the server killed, its token changed, another client on
//! the same GPU, a clock that is days off. Nothing is lost and nothing runs twice.

use std::fs;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rgpu_model::Profile;
use rgpu_protocol::{EventBody, Outcome};
use rgpu_remote::{
    JobMessage, ReconnectPolicy, RemoteFile, RemoteSpec, Submission, TransferProgress,
    UnknownHostPolicy,
};
use rustix::process::Signal;

use super::worker::{Worker, add_remote_to_config};
use super::{NCU, artifact, spec};
use crate::fake_host::FakeHost;
use crate::host::{User, connect, follow, submission};
use crate::laptop::{Laptop, status, wait_for};
use crate::preload::OtherClock;
use crate::sshd::Cutter;

/// A server that can be killed at any moment and comes back at the same address.
pub(super) struct RestartableServer<'a, S> {
    server: Mutex<Option<S>>,
    restart: Box<dyn Fn(S) -> S + Send + Sync + 'a>,
    restarted_phases: Mutex<Vec<&'static str>>,
}

impl<'a, S> RestartableServer<'a, S> {
    /// A server that `restart` kills and starts again.
    pub(super) fn new(server: S, restart: impl Fn(S) -> S + Send + Sync + 'a) -> Self {
        let server = Mutex::new(Some(server));
        Self { server, restart: Box::new(restart), restarted_phases: Mutex::default() }
    }

    /// Kills the server and starts it again, at most once per phase.
    pub(super) fn restart_once(&self, phase: &'static str) {
        if self.restarted_phases.lock().unwrap().contains(&phase) {
            return;
        }
        let mut server = self.server.lock().unwrap();
        let dead = server.take().unwrap();
        *server = Some((self.restart)(dead));
        self.restarted_phases.lock().unwrap().push(phase);
    }
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut x = 88_172_645_463_325_252_u64;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..bytes).map(next).collect()
}

/// A job whose server dies in each of its phases, and one that is cancelled: `forgotten` waits
/// until the server has nothing of an ended job any more. `ran` is where the host's programs write.
pub(super) async fn nothing_is_lost_or_run_twice<S: Send>(
    spec: &RemoteSpec,
    server: &RestartableServer<'_, S>,
    laptop: &Laptop,
    forgotten: impl Fn(),
) {
    let ran = laptop.path("ran");
    let big = noise(30_000_000);
    // The program waits until the server has died in the phase before.
    let gate =
        |name: &str| format!("until [ -e {} ]; do sleep 0.05; done", laptop.path(name).display());
    let open_gate = |name: &str| fs::write(laptop.path(name), "").unwrap();
    let script = format!(
        "echo once >> {}; {}; echo out; {}; cp in/big out; echo end; {}",
        ran.display(),
        gate("ran-on"),
        gate("heard"),
        gate("told-end")
    );
    let mut work = submission(&["/bin/sh", "-c", &script], &[("in/big", &big)], &["out"]);
    work.plan.steps[0].timeout_s = 600;
    let user = Arc::new(User::default());
    let patience = ReconnectPolicy {
        first: Duration::from_millis(50),
        longest: Duration::from_millis(200),
        total: Duration::from_secs(60),
    };
    let mut link = connect(spec, UnknownHostPolicy::Refuse, &user)
        .await
        .unwrap()
        .with_reconnect_policy(patience);
    server.restart_once("greeted");
    link.facts(&[]).await.unwrap();
    server.restart_once("asked");
    let upload = |transfer: TransferProgress| {
        if transfer.done > transfer.total / 3 {
            server.restart_once("uploading");
        }
        if transfer.done == transfer.total {
            server.restart_once("uploaded");
        }
    };
    link.submit(&work, &upload).await.unwrap();
    server.restart_once("submitted");
    let (mut stdout, mut events, mut ended) = (Vec::new(), Vec::new(), None);
    loop {
        let message = tokio::select! {
            message = link.next() => message.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(100)) => {
                if ran.exists() {
                    server.restart_once("running");
                    open_gate("ran-on");
                }
                continue;
            }
        };
        let Some(message) = message else { break };
        match message {
            JobMessage::Event(event) => {
                assert_eq!(event.seq, events.len() as u64 + 1, "each event once, in its order");
                events.push(event.body.clone());
                if let EventBody::Ended { outcome } = event.body {
                    ended = Some(outcome);
                }
            }
            JobMessage::Output { offset, bytes, .. } => {
                assert_eq!(offset, stdout.len() as u64);
                stdout.extend(bytes);
                if stdout.ends_with(b"end\n") {
                    server.restart_once("at the end");
                    open_gate("told-end");
                } else {
                    server.restart_once("heard");
                    open_gate("heard");
                }
            }
        }
    }
    assert_eq!((ended, &*stdout), (Some(Outcome::Done), &b"out\nend\n"[..]));
    server.restart_once("ended");
    let wanted = artifact(&events, &work.plan.job);
    let dest = laptop.path("fetched");
    let fetch = |transfer: TransferProgress| {
        if transfer.done > transfer.total / 3 {
            server.restart_once("fetching");
        }
    };
    link.fetch(&wanted, &dest, None, &fetch).await.unwrap();
    assert!(fs::read(&dest).unwrap() == big);
    server.restart_once("fetched");
    link.remove_job(&work.plan.job).await.unwrap();
    forgotten();
    server.restart_once("cleaned up");
    assert!(link.jobs().await.unwrap().jobs.is_empty());
    assert_eq!(fs::read_to_string(&ran).unwrap(), "once\n");

    fs::remove_file(&ran).unwrap();
    let script = format!("echo once >> {}; sleep 7013", ran.display());
    let mut work = submission(&["/bin/sh", "-c", &script], &[], &[]);
    work.plan.job = "cancelled.1".to_owned();
    link.submit(&work, &|_| ()).await.unwrap();
    while !ran.exists() {
        // Nothing is awaited of a link that nobody listens to.
        let message = tokio::time::timeout(Duration::from_millis(100), link.next()).await;
        assert!(message.is_err() || message.is_ok_and(|message| message.unwrap().is_some()));
    }
    link.cancel();
    server.restart_once("cancelled");
    assert_eq!(*follow(&mut link).await.unwrap().outcome(), Outcome::Cancelled);
    wait_for("the program's end", || {
        laptop.running().iter().all(|line| !line.contains("sleep 7013")).then_some(())
    });
    assert_eq!(fs::read_to_string(&ran).unwrap(), "once\n");
    assert_eq!(*server.restarted_phases.lock().unwrap(), PHASES);
}

const PHASES: [&str; 13] = [
    "greeted",
    "asked",
    "uploading",
    "uploaded",
    "submitted",
    "running",
    "heard",
    "at the end",
    "ended",
    "fetching",
    "fetched",
    "cleaned up",
    "cancelled",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_in_each_phase_loses_nothing_and_runs_nothing_twice() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let spec = spec(&laptop, worker.port);
    let server = RestartableServer::new(worker, |worker: Worker| {
        Worker::start_at(&laptop, worker.stop(Signal::KILL))
    });
    nothing_is_lost_or_run_twice(&spec, &server, &laptop, || ()).await;
}

/// A worker with one GPU and two profiles for it: the first holds it until the gate opens.
fn two_for_one_gpu(laptop: &Laptop) -> (FakeHost, Worker, [Child; 2]) {
    let host = FakeHost::new(laptop);
    host.gpus(1);
    host.mischief("ncu gate\n");
    let worker = Worker::start(laptop);
    let first = laptop.start(NCU);
    host.wait_for_gate("ncu");
    let second = laptop.start(NCU);
    (host, worker, [first, second])
}

/// Waits until a run was told its place in the queue.
fn wait_for_queued_run(laptop: &Laptop) {
    let runs = laptop.project("artifacts/runs");
    wait_for("the second in the queue", || {
        let told = |run: std::io::Result<fs::DirEntry>| {
            fs::read_to_string(run.ok()?.path().join("events.jsonl")).ok()
        };
        let queued = fs::read_dir(&runs).ok()?.filter_map(told).any(|e| e.contains("\"queued\""));
        queued.then_some(())
    });
}

#[test]
fn a_worker_killed_while_a_job_waits_for_its_gpu_keeps_its_place() {
    let laptop = Laptop::new();
    let (host, worker, [first, second]) = two_for_one_gpu(&laptop);
    wait_for_queued_run(&laptop);
    let runs = laptop.project("artifacts/runs");
    let _worker = Worker::start_at(&laptop, worker.stop(Signal::KILL));
    host.open_gate("ncu");
    for child in [first, second] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
    }
    // The place is taken once: each tool ran for one.
    for run in fs::read_dir(&runs).unwrap().flatten().filter(|run| run.path().is_dir()) {
        let log = fs::read_to_string(run.path().join("log/profile.stdout")).unwrap();
        assert_eq!(log.matches("==PROF== Profiling").count(), 1, "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_command_is_few_connections() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let cutter = Cutter::before(worker.port).await;
    add_remote_to_config(&laptop, cutter.port);
    let line = "exec --remote box -q -- true";
    assert_eq!(status(&tokio::task::block_in_place(|| laptop.run(line))), 0);
    // On a busy machine one may not be free again when the next request goes out.
    let least = (0..5).map(|_| {
        let before = cutter.links();
        assert_eq!(status(&tokio::task::block_in_place(|| laptop.run(line))), 0);
        cutter.links() - before
    });
    // One request waits for the agent's bytes, while one or two others bring ours.
    assert!(least.min().unwrap() <= 3);
}

/// A job that left noise behind, as it was told of.
async fn with_noise(laptop: &Laptop, port: u16) -> (Submission, RemoteFile) {
    let script = "head -c 40000000 /dev/urandom > out";
    let work = submission(&["/bin/sh", "-c", script], &[], &["out"]);
    let user = Arc::new(User::default());
    let mut link = connect(&spec(laptop, port), UnknownHostPolicy::Refuse, &user).await.unwrap();
    link.submit(&work, &|_| ()).await.unwrap();
    let story = follow(&mut link).await.unwrap();
    link.close().await;
    let wanted = artifact(&story.events, &work.plan.job);
    (work, wanted)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_that_changes_under_a_resume_is_never_put_together_of_two() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let (work, wanted) = with_noise(&laptop, worker.port).await;
    let file = laptop.path("agent/jobs").join(&work.plan.job).join("work/out");
    let folder = laptop.path("brought");
    fs::create_dir(&folder).unwrap();
    let dest = folder.join("out");
    let cutter = Cutter::before(worker.port).await;
    let user = Arc::new(User::default());
    let patience = ReconnectPolicy {
        first: Duration::from_millis(50),
        longest: Duration::from_millis(50),
        total: Duration::from_millis(300),
    };
    let spec = spec(&laptop, cutter.port);
    let mut link = connect(&spec, UnknownHostPolicy::Refuse, &user)
        .await
        .unwrap()
        .with_reconnect_policy(patience);
    // Each connection brings some of it, until the patience is over.
    cutter.cut_after(9 << 20);
    let arrived = Mutex::new(0);
    let stop = |transfer: TransferProgress| {
        *arrived.lock().unwrap() = transfer.done;
        if transfer.done > 8 << 20 {
            cutter.cut_after(100);
        }
    };
    link.fetch(&wanted, &dest, None, &stop).await.unwrap_err();
    assert!(*arrived.lock().unwrap() > 0 && !dest.exists());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "what came is kept");
    // Another file of the same length and name, in the place of the first.
    fs::remove_file(&file).unwrap();
    fs::write(&file, noise(wanted.size as usize)).unwrap();
    cutter.cut_after(u64::MAX);
    let mut link = connect(&spec, UnknownHostPolicy::Refuse, &user).await.unwrap();
    let error = link.fetch(&wanted, &dest, None, &|_| ()).await.unwrap_err().to_string();
    assert!(error.contains("damaged") || error.contains("sha256"), "{error}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing of either is left");
}

#[test]
fn a_token_that_is_taken_back_in_the_middle_is_told_and_the_job_is_taken_up_with_the_new_one() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let (token, kept) = (laptop.path("token"), laptop.path("kept"));
    let ran = laptop.path("agent/ran");
    let gate = laptop.path("gate");
    let line = format!(
        "exec --remote box -- sh -c 'echo once >> ../../../ran; until [ -e {} ]; do sleep 0.1; done; echo late; exit 4'",
        gate.display()
    );
    // The client has a file of its own.
    let own_file = || {
        let config = laptop.path("config/config.toml");
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, text.replace(token.to_str().unwrap(), kept.to_str().unwrap())).unwrap();
    };
    fs::copy(&token, &kept).unwrap();
    own_file();
    let child = laptop.start(&line);
    wait_for("the program", || ran.exists().then_some(()));
    let port = worker.stop(Signal::TERM);
    fs::write(&token, "another-token-of-this-worker\n").unwrap();
    let worker = Worker::start_at(&laptop, port);
    own_file();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 125, "{}", laptop.shown(&line, &output));
    assert!(said.contains("the worker rejects the token"), "{said}");
    let old = fs::read_to_string(&kept).unwrap();
    assert!(!said.contains(old.trim()) && !said.contains(&worker.token), "{said}");
    fs::copy(&token, &kept).unwrap();
    fs::write(&gate, "").unwrap();
    let output = laptop.run("runs attach latest");
    assert_eq!(status(&output), 4, "{}", laptop.shown("runs attach latest", &output));
    assert_eq!(output.stdout, b"late\n");
    assert_eq!(fs::read_to_string(ran).unwrap(), "once\n");
}

#[test]
fn two_clients_on_one_gpu_take_turns() {
    let laptop = Laptop::new();
    let (host, _worker, [first, second]) = two_for_one_gpu(&laptop);
    wait_for_queued_run(&laptop);
    host.open_gate("ncu");
    for child in [first, second] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
        let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(profile.rung, "ncu.asked");
        assert!(profile.launches[0].metrics.len() > 500);
    }
}

#[test]
fn a_worker_whose_clock_is_days_off_serves_as_any_other() {
    for seconds in [-3 * 86_400, 3 * 86_400] {
        let laptop = Laptop::new();
        FakeHost::new(&laptop);
        let clock = OtherClock::new(&laptop.path(""), seconds).library;
        let _worker = Worker::start_with(&laptop, &[("LD_PRELOAD", clock.as_os_str())]);
        // Files are kept from one run to the next, and jobs live as long as with a right clock.
        for _ in 0..2 {
            let output = laptop.run(NCU);
            assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
            let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(profile.rung, "ncu.asked");
        }
        let line = "exec --remote box --detach -- sh -c 'sleep 1; echo late; exit 4'";
        assert_eq!(status(&laptop.run(line)), 0);
        let output = laptop.run("runs list --remote box");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains("3 d"), "{said}");
        let output = laptop.run("runs attach latest");
        assert_eq!((status(&output), &*output.stdout), (4, &b"late\n"[..]));
    }
}

#[test]
fn a_run_whose_worker_is_gone_is_not_shown_as_if_it_were_seen_running() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let line = "exec --remote box --run-id away --detach -- sleep 600";
    assert_eq!(status(&laptop.run(line)), 0);
    assert!(laptop.show("runs list").contains("detached"));
    worker.stop(Signal::KILL);
    assert_eq!(status(&laptop.run("runs attach away")), 125);
    let shown = laptop.show("runs show away");
    assert!(shown.contains("state       unknown: last seen [TIME]"), "{shown}");
    assert!(shown.contains("`box` did not answer at ") && shown.contains("cannot be reached"));
    let listed = laptop.show("runs list");
    assert!(listed.contains("no answer") && !listed.contains("running"), "{listed}");
}
