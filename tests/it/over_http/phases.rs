//! What may happen in each phase of a job: the worker killed, its token changed, another client on
//! the same GPU, a clock that is days off. Nothing is lost and nothing runs twice.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rgpu::model::Profile;
use rgpu::remote::{FirstUse, Patience, Submission, Transfer, Wanted};
use rgpu_protocol::Outcome;
use rustix::process::Signal;

use super::worker::{Worker, know};
use super::{NCU, artifact, spec};
use crate::fake_host::FakeHost;
use crate::host::{User, connect, follow, submission};
use crate::laptop::{Laptop, status, wait_for};
use crate::sshd::Cutter;

/// A worker that can be killed at any moment and comes back at the same port.
struct Mortal<'a> {
    laptop: &'a Laptop,
    worker: Mutex<Option<Worker>>,
    deaths: Mutex<Vec<&'static str>>,
}

impl<'a> Mortal<'a> {
    fn start(laptop: &'a Laptop) -> Self {
        let worker = Mutex::new(Some(Worker::start(laptop)));
        Self { laptop, worker, deaths: Mutex::default() }
    }

    fn port(&self) -> u16 {
        self.worker.lock().unwrap().as_ref().unwrap().port
    }

    /// Kills it and starts it again, once a phase.
    fn die(&self, phase: &'static str) {
        if self.deaths.lock().unwrap().contains(&phase) {
            return;
        }
        let mut worker = self.worker.lock().unwrap();
        let port = worker.take().unwrap().stop(Signal::KILL);
        *worker = Some(Worker::start_at(self.laptop, port));
        self.deaths.lock().unwrap().push(phase);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_in_each_phase_loses_nothing_and_runs_nothing_twice() {
    let laptop = Laptop::new();
    let mortal = Mortal::start(&laptop);
    let big = noise(30_000_000);
    let script = "echo once >> ../../../ran; echo out; sleep 2; cp in/big out; echo end";
    let work = submission(&["/bin/sh", "-c", script], &[("in/big", &big)], &["out"]);
    let user = Arc::new(User::default());
    let patience = Patience {
        first: Duration::from_millis(50),
        longest: Duration::from_millis(200),
        total: Duration::from_secs(60),
    };
    let spec = spec(&laptop, mortal.port());
    let mut link = connect(&spec, FirstUse::Refuse, &user).await.unwrap().patience(patience);
    mortal.die("greeted");
    link.facts(&[]).await.unwrap();
    mortal.die("asked");
    let upload = |transfer: Transfer| {
        if transfer.done > transfer.total / 3 {
            mortal.die("uploading");
        }
    };
    link.submit(&work, &upload).await.unwrap();
    mortal.die("submitted");
    let ran = laptop.path("agent/ran");
    wait_for("the program", || ran.exists().then_some(()));
    mortal.die("running");
    let story = follow(&mut link).await.unwrap();
    assert_eq!((story.outcome(), &*story.stdout), (&Outcome::Done, &b"out\nend\n"[..]));
    mortal.die("ended");
    let wanted = artifact(&story.events, &work.plan.job);
    let dest = laptop.path("fetched");
    let fetch = |transfer: Transfer| {
        if transfer.done > transfer.total / 3 {
            mortal.die("fetching");
        }
    };
    link.fetch(&wanted, &dest, &fetch).await.unwrap();
    assert!(fs::read(&dest).unwrap() == big);
    mortal.die("fetched");
    link.forget(&work.plan.job).await.unwrap();
    assert!(link.jobs().await.unwrap().jobs.is_empty());
    assert_eq!(fs::read_to_string(ran).unwrap(), "once\n");
    let phases =
        ["greeted", "asked", "uploading", "submitted", "running", "ended", "fetching", "fetched"];
    assert_eq!(*mortal.deaths.lock().unwrap(), phases);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_command_is_one_connection() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let cutter = Cutter::before(worker.port).await;
    know(&laptop, cutter.port);
    let line = "exec --remote box -q -- true";
    assert_eq!(status(&tokio::task::block_in_place(|| laptop.run(line))), 0);
    let cold = cutter.links();
    assert_eq!(status(&tokio::task::block_in_place(|| laptop.run(line))), 0);
    assert_eq!(cutter.links() - cold, 1);
}

/// A job that left noise behind, as it was told of.
async fn with_noise(laptop: &Laptop, port: u16) -> (Submission, Wanted) {
    let script = "head -c 40000000 /dev/urandom > out";
    let work = submission(&["/bin/sh", "-c", script], &[], &["out"]);
    let user = Arc::new(User::default());
    let mut link = connect(&spec(laptop, port), FirstUse::Refuse, &user).await.unwrap();
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
    let patience = Patience {
        first: Duration::from_millis(50),
        longest: Duration::from_millis(50),
        total: Duration::from_millis(300),
    };
    let spec = spec(&laptop, cutter.port);
    let mut link = connect(&spec, FirstUse::Refuse, &user).await.unwrap().patience(patience);
    // Each connection brings some of it, until the patience is over.
    cutter.cut_after(9 << 20);
    let arrived = Mutex::new(0);
    let stop = |transfer: Transfer| {
        *arrived.lock().unwrap() = transfer.done;
        if transfer.done > 8 << 20 {
            cutter.cut_after(100);
        }
    };
    link.fetch(&wanted, &dest, &stop).await.unwrap_err();
    assert!(*arrived.lock().unwrap() > 0 && !dest.exists());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "what came is kept");
    // Another file of the same length and name, in the place of the first.
    fs::remove_file(&file).unwrap();
    fs::write(&file, noise(wanted.size as usize)).unwrap();
    cutter.cut_after(u64::MAX);
    let mut link = connect(&spec, FirstUse::Refuse, &user).await.unwrap();
    let error = link.fetch(&wanted, &dest, &|_| ()).await.unwrap_err().to_string();
    assert!(error.contains("damaged") || error.contains("sha256"), "{error}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing of either is left");
}

#[test]
fn a_token_that_is_taken_back_in_the_middle_is_told_and_the_job_is_taken_up_with_the_new_one() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let (token, kept) = (laptop.path("token"), laptop.path("kept"));
    let ran = laptop.path("agent/ran");
    let line = "exec --remote box -- sh -c 'echo once >> ../../../ran; sleep 4; echo late; exit 4'";
    // The client has a file of its own.
    let own_file = || {
        let config = laptop.path("config/config.toml");
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, text.replace(token.to_str().unwrap(), kept.to_str().unwrap())).unwrap();
    };
    fs::copy(&token, &kept).unwrap();
    own_file();
    let child = laptop.start(line);
    wait_for("the program", || ran.exists().then_some(()));
    let port = worker.stop(Signal::TERM);
    fs::write(&token, "another-token-of-this-worker\n").unwrap();
    let worker = Worker::start_at(&laptop, port);
    own_file();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 125, "{}", laptop.shown(line, &output));
    assert!(said.contains("the worker does not take the token"), "{said}");
    let old = fs::read_to_string(&kept).unwrap();
    assert!(!said.contains(old.trim()) && !said.contains(&worker.token), "{said}");
    fs::copy(&token, &kept).unwrap();
    let output = laptop.run("runs attach latest");
    assert_eq!(status(&output), 4, "{}", laptop.shown("runs attach latest", &output));
    assert_eq!(output.stdout, b"late\n");
    assert_eq!(fs::read_to_string(ran).unwrap(), "once\n");
}

#[test]
fn two_clients_on_one_gpu_take_turns() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.gpus(1);
    host.mischief("ncu gate\n");
    let worker = Worker::start(&laptop);
    let first = laptop.start(NCU);
    host.wait_for_gate("ncu");
    let second = laptop.start(NCU);
    // The second waits for the GPU, and is told so.
    let waiting = || {
        let jobs = worker.ask("GET /v1/jobs", &[], b"").json();
        let jobs = jobs["jobs"].as_array().unwrap().clone();
        (jobs.len() == 2).then_some(jobs)
    };
    let jobs = wait_for("the second job", waiting);
    let newest = jobs[0]["job"].as_str().unwrap().to_owned();
    wait_for("its place in the queue", || {
        let told = worker.ask(&format!("GET /v1/jobs/{newest}/events?wait=1"), &[], b"").json();
        let events = told["events"].as_array().unwrap().clone();
        events.iter().any(|event| event["event"] == "queued").then_some(())
    });
    host.open_gate("ncu");
    for child in [first, second] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
        let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(profile.rung, "ncu.asked");
        assert!(profile.launches[0].metrics.len() > 500);
    }
}

/// A library that sets the clock of whatever loads it `seconds` off.
fn other_clock(laptop: &Laptop, seconds: i64) -> PathBuf {
    let (source, library) = (laptop.path("clock.c"), laptop.path("clock.so"));
    let text = format!(
        "#define _GNU_SOURCE\n#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n\
         int clock_gettime(clockid_t id, struct timespec *t) {{\n\
         int r = syscall(SYS_clock_gettime, id, t);\n\
         if (id == CLOCK_REALTIME) t->tv_sec += {seconds};\nreturn r; }}\n"
    );
    fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(cc.status().unwrap().success());
    library
}

#[test]
fn a_worker_whose_clock_is_days_off_serves_as_any_other() {
    for seconds in [-3 * 86_400, 3 * 86_400] {
        let laptop = Laptop::new();
        FakeHost::new(&laptop);
        let clock = other_clock(&laptop, seconds);
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
