//! A platform that takes containers away, answers nothing for a while, or never starts any: what
//! its user sees, that nothing is lost, and that nothing runs twice.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use rgpu_remote::RemoteSpec;
use rustix::process::{Pid, Signal, kill_process};

use super::{DeployedApp, NCU, kill, python, whole};
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for};
use crate::over_http::phases::{RestartableServer, nothing_is_lost_or_run_twice};

fn spec(laptop: &Laptop, port: u16) -> RemoteSpec {
    let mut spec = RemoteSpec::new("b200", format!("modal+http://127.0.0.1:{port}"));
    spec.options.insert("env_file".into(), laptop.path("modal.env").display().to_string());
    spec
}

/// All files below a folder of the Volume, by their paths.
fn kept(laptop: &Laptop, folder: &str) -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                walk(&entry.path(), found)
            } else {
                found.push(entry.path().display().to_string())
            }
        }
    }
    let mut found = Vec::new();
    walk(&laptop.path("modal/volume").join(folder), &mut found);
    found
}

/// Kills what stands for containers: those that carry a job, their agents, the jobs themselves, and
/// what runs in their folders.
fn kill_containers(laptop: &Laptop) {
    let home = laptop.path("modal/gpu");
    let words = [" carry ", home.to_str().unwrap(), "rgpu-agent-http stdio"];
    // Twice, for what they had just started.
    for _ in 0..2 {
        for line in laptop.running() {
            let pid: i32 = line.split(' ').next().unwrap().parse().unwrap();
            let inside =
                fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|d| d.starts_with(&home));
            if inside || words.iter().any(|word| line.contains(word)) {
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_front_that_dies_in_each_phase_with_all_its_files_loses_nothing_and_runs_nothing_twice() {
    let Some(python) = python() else { return };
    let laptop = Laptop::new();
    let app = DeployedApp::start(&laptop, &python);
    let spec = spec(&laptop, app.port);
    let server =
        RestartableServer::new(app, |app: DeployedApp| app.kill_and_restart(&laptop, &python));
    let forgotten = || {
        wait_for("a Volume without jobs", || {
            let jobs = [kept(&laptop, "calls"), kept(&laptop, "front/jobs")].concat();
            jobs.is_empty().then_some(())
        });
    };
    nothing_is_lost_or_run_twice(&spec, &server, &laptop, forgotten).await;
}

/// The words of a run that failed for its host's sake, with nothing half-written.
fn failed(laptop: &Laptop, line: &str, output: &Output) -> String {
    assert_eq!(status(output), 125, "{}", laptop.shown(line, output));
    assert_eq!(laptop.latest_json("run.json")["state"], "failed");
    let left = laptop.running();
    assert!(left.iter().all(|line| !line.contains("sleep 70")), "{left:?}");
    assert!(!laptop.project("made").exists());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_container_that_dies_in_each_phase_is_told_and_its_job_is_not_begun_again() {
    let Some(python) = python() else { return };
    // Before it has the job, before its first word, before anything of the program, before the end
    // is kept: what it stands still at, and whether the program had begun then.
    for (at, begun) in [("begun/*", false), ("out/000001", true), ("out/000002", true)] {
        let laptop = Laptop::new();
        let app = DeployedApp::in_trouble(&laptop, &python);
        fs::write(laptop.path("modal/hold"), at).unwrap();
        let ran = laptop.path("ran");
        let script = format!(
            "echo once >> {}; sleep 3; echo said; echo made > made; sleep 7011",
            ran.display()
        );
        let line = format!("exec --remote b200 --pull made -- sh -c '{script}'");
        let child = laptop.start(&line);
        wait_for("the container to stand still", || {
            laptop.path("modal/held").exists().then_some(())
        });
        if begun {
            wait_for("the program", || ran.exists().then_some(()));
        }
        kill_containers(&laptop);
        let said = failed(&laptop, &line, &child.wait_with_output().unwrap());
        assert!(said.contains("the container ended"), "{at}: {said}");
        let ran = fs::read_to_string(ran).unwrap_or_default();
        assert_eq!(ran, if begun { "once\n" } else { "" }, "{at}");
        // Whoever looks again is told the same, and nothing is begun.
        let output = laptop.run("runs attach latest");
        assert_eq!(status(&output), 125, "{}", laptop.shown("runs attach latest", &output));
        drop(app);
    }
}

#[test]
fn a_container_that_dies_when_all_was_said_costs_nothing() {
    let Some(python) = python() else { return };
    let laptop = Laptop::new();
    let _app = DeployedApp::in_trouble(&laptop, &python);
    fs::write(laptop.path("modal/hold"), "done").unwrap();
    let line = "exec --remote b200 --pull made -- sh -c 'echo made > made; echo out; exit 3'";
    let child = laptop.start(line);
    wait_for("the container to stand still", || laptop.path("modal/held").exists().then_some(()));
    kill_containers(&laptop);
    let output = child.wait_with_output().unwrap();
    assert_eq!((status(&output), &*output.stdout), (3, &b"out\n"[..]));
    assert_eq!(fs::read(laptop.project("made")).unwrap(), b"made\n");
}

#[test]
fn a_container_that_dies_while_its_job_is_cancelled_is_no_other_end_than_that() {
    let Some(python) = python() else { return };
    let laptop = Laptop::new();
    let _app = DeployedApp::start(&laptop, &python);
    let ran = laptop.path("ran");
    let line = format!("exec --remote b200 -- sh -c 'echo once >> {}; sleep 7014'", ran.display());
    let child = laptop.start(&line);
    wait_for("the program", || ran.exists().then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    kill_containers(&laptop);
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", laptop.shown(&line, &output));
    assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
    assert_eq!(fs::read_to_string(ran).unwrap(), "once\n");
    wait_for("the program's end", || {
        laptop.running().iter().all(|line| !line.contains("sleep 7014")).then_some(())
    });
}

#[test]
fn a_call_of_which_no_container_comes_is_told_and_leaves_nothing() {
    let Some(python) = python() else { return };
    let laptop = Laptop::new();
    let _app = DeployedApp::in_trouble(&laptop, &python);
    fs::write(laptop.path("modal/unborn"), "yes").unwrap();
    let line = "exec --remote b200 --pull made -- sh -c 'echo made > made'";
    let child = laptop.start(line);
    // The front removes the call's folder some time after its end.
    let call =
        wait_for("the call", || fs::read_dir(laptop.path("modal/volume/calls")).ok()?.next()?.ok());
    let said = failed(&laptop, line, &child.wait_with_output().unwrap());
    assert!(said.contains("the container ended"), "{said}");
    // A container that comes late after all finds that nobody wants it.
    let job = call.file_name().into_string().unwrap();
    let path = call.path();
    wait_for("the front to let go", || {
        (path.join("over").exists() || !path.exists()).then_some(())
    });
    let late = std::process::Command::new(&python)
        .args([&format!("{}/modal_app.py", super::REMOTE), "carry", &job, "late"])
        .env("RGPU_LOCAL", laptop.path("modal"))
        .env("RGPU_AGENT", "/nowhere")
        .output()
        .unwrap();
    assert!(late.status.success(), "{}", String::from_utf8_lossy(&late.stderr));
    assert!(!path.join("out").exists());
}

#[test]
fn a_volume_that_fails_now_and_then_or_is_away_for_a_while_costs_a_profile_nothing() {
    let Some(python) = python() else { return };
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let _app = DeployedApp::in_trouble(&laptop, &python);
    fs::write(laptop.path("modal/every"), "7").unwrap();
    let child = laptop.start(NCU);
    host.wait_for_gate("ncu");
    // For longer than the front has patience: its conversations are cut, and played again.
    fs::write(laptop.path("modal/away"), "").unwrap();
    std::thread::sleep(Duration::from_secs(6));
    host.open_gate("ncu");
    std::thread::sleep(Duration::from_secs(2));
    fs::remove_file(laptop.path("modal/away")).unwrap();
    whole(&laptop, &child.wait_with_output().unwrap());
}

#[test]
fn a_front_whose_server_alone_dies_starts_another() {
    let Some(python) = python() else { return };
    let laptop = Laptop::new();
    let _app = DeployedApp::start(&laptop, &python);
    let ran = laptop.path("ran");
    let script = format!("echo once >> {}; sleep 3; echo late; exit 4", ran.display());
    let line = format!("exec --remote b200 -- sh -c '{script}'");
    let child = laptop.start(&line);
    wait_for("the program", || ran.exists().then_some(()));
    kill(&laptop, &["rgpu-agent-http serve"]);
    let output = child.wait_with_output().unwrap();
    assert_eq!((status(&output), &*output.stdout), (4, &b"late\n"[..]));
    assert_eq!(fs::read_to_string(ran).unwrap(), "once\n");
}
