//! Against a real cluster. These take seconds each, and need Slurm: `.ci/long` runs them.

use std::fs;
use std::process::Child;

use rgpu_model::Profile;
use rustix::process::{Pid, Signal, kill_process};

use super::cluster::Cluster;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, OF_MANY_GPUS, status, wait_for};
use crate::sshd::Cutter;

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits until the output of the newest run's program holds `text`.
pub(super) fn wait_for_output(laptop: &Laptop, text: &str) {
    let runs = laptop.project("artifacts/runs");
    wait_for(text, || {
        let id = fs::read_to_string(runs.join(".latest")).ok()?;
        let log = runs.join(id.trim()).join("log/exec.stdout");
        fs::read_to_string(log).ok()?.contains(text).then_some(())
    });
}

/// The error document of a command with `--json`.
fn error(laptop: &Laptop, line: &str) -> (i32, String, String) {
    let output = laptop.run(line);
    let text = laptop.shown(line, &output);
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {text}"));
    (status(&output), document["error"]["code"].as_str().unwrap().to_owned(), text)
}

#[test]
fn a_profile_is_as_over_ssh_and_its_node_is_given_back() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let cluster = Cluster::start(&laptop);
    let line = "profile --kernel vecadd --mode ncu --remote cluster --accept-new --json";
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "ncu.asked", "{shown}");
    assert_eq!(profile.host.unwrap().transport, "slurm");
    cluster.wait_for_jobs("");
    wait_for("the end", || (cluster.state(1) == "COMPLETED").then_some(()));
    wait_for("no folder of the job", || {
        fs::read_dir(laptop.path("shared/alloc")).unwrap().next().is_none().then_some(())
    });
    assert_eq!(cluster.state(2), "forgotten", "one job is enough");
}

#[test]
fn a_program_on_two_nodes_has_one_profile_of_all_its_ranks() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let cluster = Cluster::with_nodes(&laptop, 2);
    let program = "'echo $SLURMD_NODENAME is $PET_NODE_RANK of $PET_NNODES, first $MASTER_ADDR'";
    let line = format!(
        "profile --mode nsys --nodes 2 --remote cluster --accept-new --json -- sh -c {program}"
    );
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "nsys.full", "{shown}");
    let ranks = profile.ranks.unwrap().ranks;
    let reports: Vec<&str> = ranks.iter().map(|rank| rank.location.from.as_str()).collect();
    assert_eq!(reports, ["raw/report.node0.nsys-rep", "raw/report.node1.nsys-rep"]);
    let runs = laptop.project("artifacts/runs");
    let id = fs::read_to_string(runs.join(".latest")).unwrap();
    let printed = fs::read_to_string(runs.join(id.trim()).join("log/profile.stdout")).unwrap();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    for (node, name) in [(0, host.clone()), (1, format!("{host}-1"))] {
        let expected = format!("{name} is {node} of 2, first {host}\n");
        assert!(printed.contains(&expected), "{expected} in {printed}");
    }
    cluster.wait_for_jobs("");
    assert_eq!(cluster.state(2), "forgotten", "one job is enough");
}

#[test]
fn ctrl_c_ends_a_program_on_both_of_its_nodes() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let cluster = Cluster::with_nodes(&laptop, 2);
    let marks = laptop.path("mark");
    let program = format!("'touch {}.$SLURM_NODEID; sleep 1000'", marks.display());
    let child = laptop.start(&format!(
        "profile --mode nsys --nodes 2 --remote cluster --accept-new -- sh -c {program}"
    ));
    for node in [0, 1] {
        let mark = laptop.path(format!("mark.{node}"));
        wait_for("a node", || mark.exists().then_some(()));
    }
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", String::from_utf8_lossy(&output.stderr));
    cluster.wait_for_jobs("");
    wait_for("no `sleep`", || {
        let running = laptop.running();
        (!running.iter().any(|process| process.contains("sleep 1000"))).then_some(())
    });
}

#[test]
fn a_program_reads_and_prints_bytes_and_sees_no_variable_of_a_step() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    let input: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let line = "exec --remote cluster --accept-new -- cat";
    let output = laptop.run_with_input(line, &input);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    assert!(output.stdout == input, "{} bytes of {}", output.stdout.len(), input.len());
    let text = fs::read_to_string(laptop.path("config/config.toml")).unwrap();
    let variables = OF_MANY_GPUS.map(|pair| pair.replacen('=', " = \"", 1) + "\"").join(", ");
    let text = text.replace("env = { ", &format!("env = {{ {variables}, "));
    fs::write(laptop.path("config/config.toml"), text).unwrap();
    let output = laptop.run("exec --remote cluster -- sh -c 'env; srun --version; exit 7'");
    let env = String::from_utf8_lossy(&output.stdout);
    assert_eq!(status(&output), 7, "{env}");
    assert!(env.contains("\nSLURM_JOB_ID=2\n"), "{env}");
    for wrong in
        ["SLURM_STEP", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_EXPORT_ENV", "SLURM_TASK_PID"]
    {
        assert!(!env.contains(wrong), "{wrong} in {env}");
    }
    for pair in OF_MANY_GPUS {
        assert!(env.lines().any(|line| line == pair), "{pair} not in {env}");
    }
    cluster.wait_for_jobs("");
}

#[test]
fn ctrl_c_ends_the_program_and_the_job_of_slurm() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    let program = "'trap \"\" INT TERM; setsid sleep 1000 & echo started; sleep 1000'";
    let child = laptop.start(&format!("exec --remote cluster --accept-new -- sh -c {program}"));
    wait_for_output(&laptop, "started");
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", String::from_utf8_lossy(&output.stderr));
    cluster.wait_for_jobs("");
    wait_for("no `sleep`", || {
        let running = laptop.running();
        (!running.iter().any(|process| process.contains("sleep 1000"))).then_some(())
    });
}

#[test]
fn ctrl_c_while_the_job_waits_takes_it_out_of_the_queue() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    let other = cluster.fill_node();
    cluster.wait_for_jobs(&format!("{other}:RUNNING"));
    let child = laptop.start("exec --remote cluster --accept-new -- true");
    wait_for("a waiting job", || cluster.jobs().contains(":PENDING").then_some(()));
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(cluster.jobs(), format!("{other}:RUNNING"));
}

#[test]
fn a_job_that_waits_says_why_and_leaves_the_queue_at_its_limit() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    let other = cluster.fill_node();
    cluster.wait_for_jobs(&format!("{other}:RUNNING"));
    let line = "exec --remote cluster --accept-new --queue-timeout 3s --json -- true";
    let (status, code, text) = error(&laptop, line);
    assert_eq!((status, code.as_str()), (125, "queue_timeout"), "{text}");
    assert!(text.contains("Resources"), "{text}");
    let line = "exec --remote cluster --queue-timeout 6s -- true";
    let text = laptop.show(line);
    assert!(text.contains("position 1 of 1 in `gpu`"), "{text}");
    assert_eq!(cluster.jobs(), format!("{other}:RUNNING"));
    // The node becomes free.
    let child = laptop.start("exec --remote cluster -- echo ran");
    wait_for("a waiting job", || cluster.jobs().contains(":PENDING").then_some(()));
    cluster.run(&format!("scancel {other}"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_link_costs_nothing() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    let cutter = Cutter::before(cluster.sshd.port).await;
    cluster.add_remote(&laptop, cutter.port, "");
    tokio::task::block_in_place(|| {
        let (printed, said) = laptop.typed_around(
            "exec --remote cluster --accept-new -- cat",
            || cutter.cut_after(0),
            || cutter.cut_after(u64::MAX),
        );
        assert_eq!(printed, "first\nsecond\nthird\nlast\n", "{said}");
        cluster.wait_for_jobs("");
        assert_eq!(cluster.state(2), "forgotten", "nothing was submitted twice");
    });
}

#[test]
fn a_killed_laptop_takes_its_run_up_while_the_job_runs_and_after_it_has_ended() {
    for ended in [false, true] {
        let laptop = Laptop::new();
        let cluster = Cluster::start(&laptop);
        cluster.add_remote(&laptop, cluster.sshd.port, "idle = \"2\"");
        let gate = laptop.path("gate");
        let program =
            format!("echo begun; until [ -e {0} ]; do sleep 0.1; done; echo over", gate.display());
        let line = format!("exec --remote cluster --accept-new -- sh -c '{program}'");
        let mut child = laptop.start(&line);
        wait_for_output(&laptop, "begun");
        child.kill().unwrap();
        child.wait().unwrap();
        if ended {
            fs::write(&gate, "").unwrap();
            // Nobody is there any more, so the node is given back by itself.
            cluster.wait_for_jobs("");
        }
        let attach = laptop.start("runs attach latest");
        if !ended {
            wait_for("the attached run", || cluster.jobs().contains("RUNNING").then_some(()));
            fs::write(&gate, "").unwrap();
        }
        let output = attach.wait_with_output().unwrap();
        let text = laptop.shown("runs attach latest", &output);
        assert_eq!(status(&output), 0, "ended: {ended}, {text}");
        // The first command has printed the rest.
        assert_eq!(String::from_utf8_lossy(&output.stdout), "over\n", "ended: {ended}");
        cluster.wait_for_jobs("");
        assert_eq!(cluster.state(2), "forgotten", "one job only");
    }
}

#[test]
fn a_laptop_killed_while_its_job_waits_leaves_nothing() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    cluster.add_remote(&laptop, cluster.sshd.port, "idle = \"2\"");
    let other = cluster.fill_node();
    cluster.wait_for_jobs(&format!("{other}:RUNNING"));
    let mark = laptop.path("mark");
    let mut child =
        laptop.start(&format!("exec --remote cluster --accept-new -- touch {}", mark.display()));
    wait_for("a waiting job", || cluster.jobs().contains(":PENDING").then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    cluster.run(&format!("scancel {other}"));
    cluster.wait_for_jobs("");
    assert!(!mark.exists(), "nobody was there to send the program");
    let end = wait_for("the end", || Some(cluster.state(2)).filter(|end| end != "COMPLETING"));
    assert_eq!(end, "COMPLETED");
}

#[test]
fn a_detached_run_goes_on_and_its_results_come_after_the_end_of_its_job() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    cluster.add_remote(&laptop, cluster.sshd.port, "idle = \"2\"");
    let line = "exec --remote cluster --accept-new --detach -- sh -c 'sleep 2; echo result'";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    assert!(cluster.jobs().ends_with("RUNNING"), "{}", cluster.jobs());
    cluster.wait_for_jobs("");
    let output = laptop.run("runs attach latest");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "result\n");
    let output = laptop.run("runs list --remote cluster");
    assert_eq!(status(&output), 0, "{}", laptop.shown("runs list --remote cluster", &output));
    assert_eq!(cluster.state(2), "forgotten", "looking needs no node");
}

#[test]
fn a_job_that_somebody_else_cancels_is_told_with_what_it_printed() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    let child =
        laptop.start("exec --remote cluster --accept-new --json -- sh -c 'echo begun; sleep 1000'");
    wait_for_output(&laptop, "begun");
    cluster.run("scancel 1");
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(status(&output), 125, "{text}");
    assert!(text.contains("it was cancelled"), "{text}");
    cluster.wait_for_jobs("");
    assert_eq!(cluster.state(2), "forgotten", "nothing runs twice");
}

#[test]
fn a_job_at_its_time_limit_is_the_users() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("ncu gate\n");
    let cluster = Cluster::start(&laptop);
    cluster.add_remote(&laptop, cluster.sshd.port, "time = \"1\"");
    let line = "profile --kernel vecadd --mode ncu --remote cluster --accept-new --json";
    let (status, code, text) = error(&laptop, line);
    assert_eq!((status, code.as_str()), (6, "slurm_time_limit"), "{text}");
    assert!(text.contains("--time"), "{text}");
    cluster.wait_for_jobs("");
}

#[test]
fn a_job_that_uses_too_much_memory_is_the_users() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    cluster.add_remote(&laptop, cluster.sshd.port, "memory = \"100\"");
    let program = "b = bytearray(400 << 20); import time; time.sleep(100)";
    let line = format!("exec --remote cluster --accept-new --json -- python3 -c '{program}'");
    let output = laptop.run(&line);
    let text = laptop.shown(&line, &output);
    assert_eq!(status(&output), 125, "{text}");
    assert!(text.contains("used more memory than it was granted"), "{text}");
    cluster.wait_for_jobs("");
}

#[test]
fn a_failed_node_is_told() {
    let laptop = Laptop::new();
    let mut cluster = Cluster::start(&laptop);
    let child =
        laptop.start("exec --remote cluster --accept-new -- sh -c 'echo begun; sleep 1000'");
    wait_for_output(&laptop, "begun");
    cluster.kill_daemon("slurmd");
    // The node's processes die with it. Slurm's own go first, or they tell the controller an end.
    for name in ["slurmstepd", "agent", "sleep 1000"] {
        for process in laptop.running().iter().filter(|process| process.contains(name)) {
            let pid = process.split(' ').next().and_then(|pid| pid.parse().ok()).unwrap();
            if !process.contains("rgpu exec") {
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            }
        }
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(status(&output), 125, "{text}");
    assert!(text.contains("its node failed"), "{text}");
}

#[test]
fn a_job_that_is_queued_again_runs_nothing_twice() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    let mark = laptop.path("mark");
    let program = format!("echo begun; echo x >>{}; sleep 1000", mark.display());
    let child = laptop.start(&format!("exec --remote cluster --accept-new -- sh -c '{program}'"));
    wait_for_output(&laptop, "begun");
    cluster.run("scontrol update jobid=1 requeue=1");
    cluster.run("scontrol requeue 1");
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(status(&output), 125, "{text}");
    assert_eq!(fs::read_to_string(&mark).unwrap(), "x\n");
    cluster.wait_for_jobs("");
}

#[test]
fn a_node_that_is_kept_serves_several_commands() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    assert_eq!(status(&laptop.run("exec --remote cluster --accept-new -- true")), 0);
    let output = laptop.run("remote up cluster --json");
    let text = laptop.shown("remote up cluster --json", &output);
    assert_eq!(status(&output), 0, "{text}");
    for _ in 0..2 {
        let output = laptop.run("exec --remote cluster -- sh -c 'echo $SLURM_JOB_ID'");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n", "{text}");
    }
    let output = laptop.run("remote list");
    assert!(String::from_utf8_lossy(&output.stdout).contains("running"), "{output:?}");
    assert_eq!(cluster.jobs(), "2:RUNNING");
    assert_eq!(status(&laptop.run("remote down cluster --yes")), 0);
    cluster.wait_for_jobs("");
}

#[test]
fn settings_that_the_cluster_refuses_are_told_with_what_to_do() {
    let laptop = Laptop::new();
    let cluster = Cluster::start(&laptop);
    let line = "exec --remote cluster --accept-new --json -- true";
    for (from, to, code, status) in [
        ("\"gpu\"", "\"nope\"", "slurm_partition", 125),
        ("\"gpu\"", "\"endless\"", "slurm_time", 125),
        ("gpus = \"1\"", "gpus = \"9\"", "slurm_nodes", 125),
        ("gpus = \"1\"", "constraint = \"none\"", "slurm_constraint", 125),
    ] {
        cluster.add_remote(&laptop, cluster.sshd.port, "");
        let settings = fs::read_to_string(laptop.path("config/config.toml")).unwrap();
        fs::write(laptop.path("config/config.toml"), settings.replace(from, to)).unwrap();
        let told = error(&laptop, line);
        assert_eq!((told.0, told.1.as_str()), (status, code), "{}", told.2);
        assert_eq!(cluster.jobs(), "");
    }
}
