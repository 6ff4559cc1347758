//! One plan on several remotes side by side: `rgpu profile --remote a,b,c`.

use std::fs;

use rgpu_model::{FanOut, Profile};
use rustix::process::{Pid, Signal, kill_process};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for};
use crate::sshd::{Sshd, free_port};

/// Three remotes: the played host on this machine, the same over ssh, and one where nobody listens.
fn three(laptop: &Laptop, sshd: &Sshd) -> FakeHost {
    let host = FakeHost::new(laptop);
    let config = laptop.path("config/config.toml");
    let tools = format!(
        "path = [{:?}]\nenv = {{ RGPU_FAKE_HOST = {:?} }}\n",
        laptop.path("h200/bin"),
        laptop.path("h200")
    );
    let ssh = |port| {
        let config = sshd.path("ssh_config");
        format!("url = \"ssh://{}@127.0.0.1:{port}\"\nssh_config = {config:?}\n", sshd.user)
    };
    let settings = format!(
        "[remote.here]\nurl = \"local\"\n{tools}[remote.box]\n{}{tools}[remote.gone]\n{}",
        ssh(sshd.port),
        ssh(free_port())
    );
    fs::write(config, settings).unwrap();
    host
}

#[test]
fn each_remote_has_a_run_of_its_own_and_one_document_holds_them_together() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    let _host = three(&laptop, &sshd);
    let line = "profile --kernel vecadd --mode ncu --remote here,box --accept-new --run-id both";
    let output = laptop.run(&format!("{line} --json"));
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let fan_out: FanOut = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(fan_out.schema, "rgpu.fan_out/1");
    assert_eq!(fan_out.base.as_deref(), Some("here"));
    let names: Vec<&str> = fan_out.remotes.iter().map(|row| row.remote.as_str()).collect();
    assert_eq!(names, ["here", "box"]);
    for row in &fan_out.remotes {
        assert_eq!((row.exit, row.state.as_str()), (0, "done"));
        assert_eq!(row.rung.as_deref(), Some("ncu.asked"));
        assert!(row.sm_percent.is_some() && row.median_ns.is_some());
        let path = laptop.project("artifacts/runs/both").join(row.profile.as_deref().unwrap());
        let profile: Profile = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(profile.run.remote, row.remote);
        assert_eq!(profile.timing.map(|t| t.median_ns), row.median_ns);
    }
    assert!(fan_out.remotes[1].against_base.is_some(), "{}", fan_out.summary);
    // What was last begun is what holds them together, and each is a run like any other.
    for what in ["latest", "both"] {
        let again = laptop.run(&format!("report {what} --json"));
        let again: FanOut = serde_json::from_slice(&again.stdout).unwrap();
        assert_eq!(again, fan_out);
    }
    assert_eq!(status(&laptop.run("report both --out x.txt")), 2, "it is only printed");
    assert_eq!(status(&laptop.run("report both-box")), 0);
    let list = String::from_utf8(laptop.run("runs list").stdout).unwrap();
    assert!(["both", "both-here", "both-box"].iter().all(|id| list.contains(id)), "{list}");
    laptop.wait_until_quiet();
}

#[test]
fn a_remote_that_fails_costs_the_others_nothing() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    let _host = three(&laptop, &sshd);
    let line = "profile --kernel vecadd --mode bench --remote gone,here --run-id some";
    let output = laptop.run(line);
    assert_eq!(status(&output), 4, "{}", laptop.shown(line, &output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("gone: "), "{text}");
    assert!(text.contains("(exit 4)"), "{text}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.lines().any(|line| line.starts_with("here  ")), "{said}");
    let fan_out: FanOut = serde_json::from_value(laptop.latest_json("fan-out.json")).unwrap();
    let [gone, here] = &fan_out.remotes[..] else { panic!("{fan_out:?}") };
    assert_eq!((gone.exit, gone.state.as_str()), (4, "failed"));
    assert!(gone.code.is_some() && gone.profile.is_none());
    assert_eq!((here.exit, here.state.as_str()), (0, "done"));
    assert_eq!(fan_out.base.as_deref(), Some("here"));
    laptop.wait_until_quiet();
}

#[test]
fn several_left_alone_are_taken_up_or_cancelled_together() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    let host = three(&laptop, &sshd);
    let line = "profile --kernel vecadd --mode ncu --remote here,box --accept-new --detach";
    assert_eq!(status(&laptop.run(&format!("{line} --run-id later"))), 0);
    let fan_out: FanOut = serde_json::from_value(laptop.latest_json("fan-out.json")).unwrap();
    assert!(fan_out.remotes.iter().all(|row| row.state == "detached"));
    let output = laptop.run("runs attach later --json");
    assert_eq!(status(&output), 0, "{}", laptop.shown("runs attach later", &output));
    let fan_out: FanOut = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = fan_out.remotes.iter().map(|row| row.remote.as_str()).collect();
    assert_eq!(names, ["here", "box"]);
    assert!(fan_out.remotes.iter().all(|row| row.state == "done" && row.sm_percent.is_some()));
    assert_eq!(laptop.latest_json("run.json")["state"], "done");

    host.mischief("ncu hang\n");
    assert_eq!(status(&laptop.run(&format!("{line} --run-id never"))), 0);
    let output = laptop.run("runs cancel never");
    assert_eq!(status(&output), 0, "{}", laptop.shown("runs cancel never", &output));
    laptop.wait_until_quiet();
    assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
}

#[test]
fn ctrl_c_stops_all_of_them() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    three(&laptop, &sshd).mischief("ncu hang\n");
    // They share one GPU: while one hangs, the other waits for it.
    let line = "profile --kernel vecadd --mode ncu --remote here,box --accept-new --run-id stop";
    let mut child = laptop.start(line);
    wait_for("a hanging tool", || {
        let hangs = |of: &str| {
            let log = laptop.project(format!("artifacts/runs/stop-{of}/log/profile.stdout"));
            fs::read_to_string(log).is_ok_and(|log| log.contains("hanging"))
        };
        (hangs("here") || hangs("box")).then_some(())
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    laptop.wait_until_quiet();
    let fan_out: FanOut = serde_json::from_value(laptop.latest_json("fan-out.json")).unwrap();
    let states: Vec<&str> = fan_out.remotes.iter().map(|row| row.state.as_str()).collect();
    assert_eq!(states, ["cancelled", "cancelled"]);
}

#[test]
fn lists_that_make_no_sense_are_refused_before_anything_is_sent() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    let _host = three(&laptop, &sshd);
    let mut story = String::new();
    for line in [
        "profile --kernel vecadd --remote here,",
        "profile --kernel vecadd --remote here,box,here",
        "profile --kernel vecadd --remote here,nowhere",
        "profile --kernel vecadd --remote here,box --events -",
        "exec --remote here,box -- true",
    ] {
        story += &laptop.show(line);
    }
    insta::assert_snapshot!(story);
    assert!(!laptop.project("artifacts").exists());
}
