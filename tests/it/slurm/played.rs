//! Against a played cluster: its words, its delays, and what a real one seldom does.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{ChildStderr, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rgpu_model::Profile;
use rgpu_model::suite::SuiteRun;
use rustix::process::{Pid, Signal, kill_process};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for, words};
use crate::sshd::Sshd;

/// A cluster whose login node is a real OpenSSH server and whose Slurm is a script.
struct PlayedCluster {
    folder: PathBuf,
    sshd: Sshd,
}

impl PlayedCluster {
    /// A cluster that starts each job at once, known to the laptop as `cluster`.
    fn new(laptop: &Laptop) -> Self {
        let cluster = Self { folder: laptop.path("slurm"), sshd: Sshd::start() };
        fs::create_dir_all(cluster.path("bin")).unwrap();
        fs::create_dir(cluster.path("jobs")).unwrap();
        let script = cluster.path("played.sh");
        fs::write(&script, include_str!("played.sh")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        for program in ["sbatch", "scontrol", "squeue", "scancel", "srun"] {
            symlink(&script, cluster.path("bin").join(program)).unwrap();
        }
        cluster.write("first", "RUNNING None\n");
        cluster.write("default-time", "00:10:00\n");
        cluster.add_remote(laptop, "");
        cluster
    }

    fn add_remote(&self, laptop: &Laptop, options: &str) {
        let settings = format!(
            "[remote.cluster]\nurl = \"slurm://{}@127.0.0.1:{}\"\nssh_config = {:?}\n\
             path = [{:?}, {:?}]\nenv = {{ RGPU_FAKE_HOST = {:?}, RGPU_LOCK_DIR = {:?} }}\n\
             [remote.cluster.options]\npartition = \"gpu\"\n{options}\n",
            self.sshd.user,
            self.sshd.port,
            self.sshd.path("ssh_config"),
            self.path("bin"),
            laptop.path("h200/bin"),
            laptop.path("h200"),
            laptop.path("lock"),
        );
        fs::write(laptop.path("config/config.toml"), settings).unwrap();
    }

    fn path(&self, inner: &str) -> PathBuf {
        self.folder.join(inner)
    }

    fn write(&self, inner: &str, text: &str) {
        fs::write(self.path(inner), text).unwrap();
    }

    fn read(&self, inner: &str) -> String {
        fs::read_to_string(self.path(inner)).unwrap_or_default()
    }

    /// How often `sbatch` was called.
    fn submissions(&self) -> usize {
        self.read("submitted").lines().count()
    }
}

/// The error's code and what a user reads.
fn error(laptop: &Laptop, line: &str) -> (i32, String, String) {
    let output = laptop.run(line);
    let text = laptop.shown(line, &output);
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {text}"));
    (status(&output), document["error"]["code"].as_str().unwrap_or_default().to_owned(), text)
}

const CHECK: &str = "remote check cluster --accept-new --json";

#[test]
fn a_run_gets_a_node_and_gives_it_back() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let cluster = PlayedCluster::new(&laptop);
    let line = "profile --kernel vecadd --mode ncu --remote cluster --accept-new --json";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (profile.rung.as_str(), profile.host.unwrap().transport.as_str()),
        ("ncu.asked", "slurm")
    );
    let submitted = cluster.read("submitted");
    for word in
        ["--parsable", "--no-requeue", "--export=NONE", "--gpus-per-node=1", "--job-name=rgpu-"]
    {
        assert!(submitted.contains(word), "{word} in {submitted}");
    }
    assert_eq!(cluster.submissions(), 1, "{submitted}");
    assert_eq!(cluster.read("cancelled"), "--batch --signal=USR1 1\n");
    wait_for("the end", || cluster.read("jobs/1/state").starts_with("COMPLETED").then_some(()));
    let shared = cluster.sshd.path("home/.rgpu/slurm/alloc");
    assert_eq!(fs::read_dir(shared).unwrap().count(), 0, "nothing is left of the job");
}

#[test]
fn a_program_on_two_nodes_has_one_profile_of_all_its_ranks() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let cluster = PlayedCluster::new(&laptop);
    cluster.write("nodes", "node[1-2]\n");
    let program = "'echo node $PET_NODE_RANK of $PET_NNODES, first $MASTER_ADDR'";
    let line = format!(
        "profile --mode nsys --nodes 2 --regions A --remote cluster --accept-new --json -- \
         sh -c {program}"
    );
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "nsys.full", "{shown}");
    // A region is chosen among those of all nodes, and has the times of all.
    let chosen = &profile.selection.as_ref().unwrap().regions[0];
    assert_eq!((chosen.asked.as_str(), &chosen.matched[..]), ("A", &["A".to_owned()][..]));
    let region = profile.regions.iter().find(|region| region.path == ["A"]).unwrap();
    assert_eq!(region.instances, Some(2), "one of each node");
    let ranks = profile.ranks.unwrap();
    let reports: Vec<&str> = ranks.ranks.iter().map(|rank| rank.location.from.as_str()).collect();
    assert_eq!(reports, ["raw/report.node0.nsys-rep", "raw/report.node1.nsys-rep"]);
    assert!(ranks.ranks.iter().all(|rank| rank.location.host.is_some()), "{ranks:#?}");
    let submitted = cluster.read("submitted");
    for word in ["--nodes=2 --ntasks=2 ", "--ntasks-per-node=1 ", "--gpus-per-node=1"] {
        assert!(submitted.contains(word), "{word} in {submitted}");
    }
    // The batch script is on the first node.
    assert!(cluster.read("steps").contains("--relative=0"), "{}", cluster.read("steps"));
    let runs = laptop.project("artifacts/runs");
    let id = fs::read_to_string(runs.join(".latest")).unwrap();
    let printed = fs::read_to_string(runs.join(id.trim()).join("log/profile.stdout")).unwrap();
    for node in ["node 0 of 2, first node1\n", "node 1 of 2, first node1\n"] {
        assert!(printed.contains(node), "{printed}");
    }
    // What the other nodes recorded is kept if one has failed.
    cluster.write("lost-node", "1");
    let line = "profile --mode nsys --nodes 2 --remote cluster --json -- true";
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    assert!(shown.contains("node 1: nsys left no report"), "{shown}");
}

#[test]
fn a_command_asks_for_the_gpus_that_it_needs_on_each_node() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    let cluster = PlayedCluster::new(&laptop);
    cluster.write("nodes", "node[1-2]\n");
    cluster.add_remote(&laptop, "gpus = \"h100:1\"");
    let asked = |line: &str| {
        let output = laptop.run(line);
        assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
        let submitted = cluster.read("submitted");
        let last = submitted.lines().last().unwrap_or_default();
        let words = last.split(' ').filter(|word| word.starts_with("--gpus-per-node="));
        words.collect::<Vec<_>>().join(" ")
    };
    let line = "exec --gpus 1 --remote cluster --accept-new -- true";
    assert_eq!(asked(line), "--gpus-per-node=h100:1");
    // The next job sees more GPUs of the same node.
    host.gpus(4);
    let line = "profile --mode nsys --nodes 2 --gpus 4 --remote cluster --json -- true";
    assert_eq!(asked(line), "--gpus-per-node=h100:4");
    assert_eq!(asked("exec --gpus 2 --remote cluster -- true"), "--gpus-per-node=h100:2");
    assert_eq!(cluster.submissions(), 3);
    // The node that is kept has one GPU.
    assert_eq!(asked("remote up cluster --json"), "--gpus-per-node=h100:1");
    assert_eq!(asked("exec --gpus 1 --remote cluster -- true"), "--gpus-per-node=h100:1");
    assert_eq!(cluster.submissions(), 4);
    assert_eq!(asked("exec --gpus 2 --remote cluster -- true"), "--gpus-per-node=h100:2");
    assert_eq!(cluster.submissions(), 5);
    assert_eq!(status(&laptop.run("remote down cluster --yes")), 0);
}

#[test]
fn several_nodes_are_refused_where_they_mean_nothing() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let cluster = PlayedCluster::new(&laptop);
    for (flags, words) in [
        ("--mode nsys --remote local", "`--nodes` needs a cluster of Slurm"),
        ("--mode ncu --remote cluster", "it belongs to mode `nsys`"),
        ("--mode nsys --remote cluster --ranks 0", "records all ranks"),
        ("--mode nsys --remote cluster --hang 1m", "the processes of one node"),
        ("--mode nsys --remote cluster --gpus 0,1", "the number of GPUs of each node"),
        ("--mode ncu --regions A --remote cluster", "it belongs to mode `nsys`"),
    ] {
        let line = format!("profile --nodes 2 {flags} -- torchrun --nproc-per-node 2 /x.py");
        let output = laptop.run(&line);
        let text = laptop.shown(&line, &output);
        assert_eq!(status(&output), 2, "{text}");
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(cluster.submissions(), 0);
}

#[test]
fn cases_of_a_suite_are_spread_over_jobs_that_end_with_it() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let cluster = PlayedCluster::new(&laptop);
    laptop.write(
        "bench.toml",
        "[[target]]\nname = \"memory:vecadd\"\nkernel = \"vecadd\"\nmode = \"bench\"\n\
         [target.matrix]\nsizes.n = [1000, 2000, 3000, 4000]\n",
    );
    let line = "bench run --remote cluster --accept-new --parallel 2 --run-id night --json";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let run: SuiteRun = serde_json::from_slice(&output.stdout).unwrap();
    assert!(run.clean, "{run:#?}");
    let hosts: BTreeSet<u32> = run.rows.iter().map(|row| row.host_number.unwrap_or(0)).collect();
    assert_eq!(hosts, BTreeSet::from([0, 1]));
    let submitted = cluster.read("submitted");
    assert_eq!(cluster.submissions(), 2, "{submitted}");
    for name in ["--job-name=rgpu-night ", "--job-name=rgpu-night+1 "] {
        assert!(submitted.contains(name), "{name} in {submitted}");
    }
    let ended = |n| cluster.read(&format!("jobs/{n}/state")).starts_with("COMPLETED");
    wait_for("the end of both jobs", || (ended(1) && ended(2)).then_some(()));
}

#[test]
fn secrets_and_the_variables_of_a_step_stay_out() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    laptop.write("secrets", "TOKEN=hunter2-hunter2\n");
    let line =
        "exec --remote cluster --accept-new --env-file secrets -- sh -c 'echo ${#TOKEN}; env'";
    let output = laptop.run(line);
    let env = String::from_utf8_lossy(&output.stdout);
    assert!(env.starts_with("15\n"), "{}", laptop.shown(line, &output));
    assert!(env.contains("SLURM_JOB_ID=1\n"), "{env}");
    assert!(!env.contains("SLURM_STEP_ID") && !env.contains("SLURM_EXPORT_ENV"), "{env}");
    for file in crate::host::files_in(&cluster.folder) {
        let bytes = fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("hunter2"), "{}", file.display());
    }
}

#[test]
fn words_of_refusal_are_told_with_what_to_do_and_unknown_ones_pass_on() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    for (words, code, hint) in [
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition \
             combination specified\n",
            "slurm_account",
            "--account",
        ),
        ("sbatch: error: invalid partition specified: gpu\n", "slurm_partition", "--partition"),
        ("Batch job submission failed: Invalid qos specification\n", "slurm_qos", "--qos"),
        (
            "Batch job submission failed: Job violates accounting/QOS policy (job submit limit)\n",
            "slurm_policy",
            "ask for less",
        ),
        (
            "sbatch: error: the moon\u{1b}]0;x\u{7} is full\n",
            "slurm_refused",
            "the moon]0;x is full",
        ),
    ] {
        cluster.write("refusal", words);
        let told = error(&laptop, CHECK);
        assert_eq!((told.0, told.1.as_str()), (4, code), "{}", told.2);
        assert!(told.2.contains(hint), "{hint} in {}", told.2);
        assert!(!told.2.contains('\u{1b}'), "{}", told.2);
    }
    let alloc = cluster.sshd.path("home/.rgpu/slurm/alloc");
    assert_eq!(fs::read_dir(alloc).unwrap().count(), 0, "no folder of a refused job stays");
}

#[test]
fn a_job_without_an_end_is_refused_before_it_is_submitted() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    cluster.write("default-time", "NONE\n");
    let told = error(&laptop, CHECK);
    assert_eq!((told.0, told.1.as_str()), (3, "slurm_time"), "{}", told.2);
    assert_eq!(cluster.submissions(), 0);
    cluster.add_remote(&laptop, "time = \"30\"");
    assert_eq!(status(&laptop.run(CHECK)), 0);
    assert!(cluster.read("submitted").contains("--time=30"), "{}", cluster.read("submitted"));
}

#[test]
fn a_job_pending_for_ever_tells_its_reason_and_leaves_the_queue() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    for (reason, told) in [
        ("QOSMaxGRESPerUser", "held back by a limit: QOSMaxGRESPerUser"),
        ("MoonIsFull", "waits: MoonIsFull"),
    ] {
        cluster.write("first", &format!("PENDING {reason}\n"));
        let line = "exec --remote cluster --accept-new --queue-timeout 6s -- true";
        let output = laptop.run(line);
        let text = laptop.shown(line, &output);
        assert_eq!(status(&output), 125, "{text}");
        assert!(text.contains(told), "{text}");
        assert!(text.contains("expected to start at 2030-01-02T03:04:05"), "{text}");
        assert!(text.contains("did not start within"), "{text}");
    }
    assert_eq!(cluster.read("cancelled"), "1\n2\n");
    cluster.write("first", "PENDING JobHeldAdmin\n");
    let told = error(&laptop, CHECK);
    assert_eq!((told.0, told.1.as_str()), (4, "slurm_never_runs"), "{}", told.2);
    assert_eq!(cluster.read("cancelled"), "1\n2\n3\n");
}

#[test]
fn a_submission_without_an_end_takes_no_longer_than_the_user_waits() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    cluster.write("flood", "");
    let started = Instant::now();
    let line = "exec --remote cluster --accept-new --queue-timeout 4s --json -- true";
    let told = error(&laptop, line);
    assert_eq!((told.0, told.1.as_str()), (125, "queue_timeout"), "{}", told.2);
    assert!(started.elapsed() < Duration::from_secs(30), "{}", told.2);
    assert!(told.2.contains("did not take the job within"), "{}", told.2);
    assert_eq!(cluster.submissions(), 1);
}

#[test]
fn a_cancel_while_a_job_is_submitted_is_told_at_once() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    cluster.write("flood", "");
    let mut command = laptop.rgpu(words("exec --remote cluster --accept-new -- true"));
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let told = lines_of(child.stderr.take().unwrap());
    wait_for("the submission", || (cluster.submissions() == 1).then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let since = Instant::now();
    let all = || told.lock().unwrap().join("\n");
    wait_for("a line", || all().contains("cancelled: gives back").then_some(()));
    assert!(since.elapsed() < Duration::from_secs(10), "{}", all());
    assert!(all().contains("Ctrl-C ends the wait"), "{}", all());
    assert_eq!(child.wait().unwrap().code(), Some(130), "{}", all());
}

/// The lines of a program's output so far.
fn lines_of(output: ChildStderr) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            kept.lock().unwrap().push(line);
        }
    });
    lines
}

#[test]
fn a_node_that_is_ready_late_is_waited_for() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    cluster.write("delay", "3");
    cluster
        .write("step-refusal", "srun: error: Unable to create step: Job/step already completing\n");
    let child = laptop.start("exec --remote cluster --accept-new -- echo ran");
    wait_for("a job", || (cluster.submissions() == 1).then_some(()));
    std::thread::sleep(Duration::from_secs(1));
    fs::remove_file(cluster.path("step-refusal")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n", "{output:?}");
}

#[test]
fn a_submission_that_was_cut_is_found_and_not_repeated() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    cluster.write("first", "PENDING Priority\n");
    cluster.write("cut", "");
    let child = laptop.start("exec --remote cluster --accept-new -- echo ran");
    wait_for("the cut", || {
        (cluster.submissions() == 1 && !cluster.path("cut").exists()).then_some(())
    });
    cluster.write("jobs/1/start", "");
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n", "{output:?}");
    assert_eq!(cluster.submissions(), 1);
}

#[test]
fn a_controller_that_is_away_is_waited_for_while_a_job_is_queued() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    cluster.write("first", "PENDING Priority\n");
    let child = laptop.start("exec --remote cluster --accept-new -- echo ran");
    wait_for("a job", || (cluster.submissions() == 1).then_some(()));
    cluster.write("away", "");
    std::thread::sleep(Duration::from_secs(2));
    cluster.write("jobs/1/start", "");
    fs::remove_file(cluster.path("away")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n", "{output:?}");
    assert_eq!(cluster.submissions(), 1);
}

#[test]
fn a_job_that_slurm_has_forgotten_is_asked_of_the_accounts_if_there_are_any() {
    for (accounts, told) in
        [(None, "Slurm no longer knows it"), (Some("PREEMPTED\n"), "another job took its place")]
    {
        let laptop = Laptop::new();
        let cluster = PlayedCluster::new(&laptop);
        if let Some(accounts) = accounts {
            symlink(cluster.path("played.sh"), cluster.path("bin/sacct")).unwrap();
            cluster.write("accounts", accounts);
        }
        let line = "exec --remote cluster --accept-new -- sh -c 'echo begun; sleep 1000'";
        let child = laptop.start(line);
        let runs = laptop.project("artifacts/runs");
        wait_for("the program", || {
            let id = fs::read_to_string(runs.join(".latest")).ok()?;
            let log = runs.join(id.trim()).join("log/exec.stdout");
            fs::read_to_string(log).ok()?.contains("begun").then_some(())
        });
        cluster.write("jobs/1/state", "");
        // As Slurm ends them: all at once, so that none tells of another's end. The batch script
        // comes first, so that it removes nothing.
        let kill = |signal: &str, process: &str| {
            std::process::Command::new("kill").args([signal, "--", process]).status().unwrap()
        };
        assert!(kill("-9", &format!("-{}", cluster.read("jobs/1/pid").trim())).success());
        let processes = processes_of(&cluster);
        for signal in ["-STOP", "-9"] {
            for process in &processes {
                kill(signal, process.split(' ').next().unwrap_or_default());
            }
        }
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(status(&output), 125, "{text}");
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn a_program_that_slurm_ends_has_not_ended_by_itself() {
    for (state, expected) in [("RUNNING None\n", 143), ("CANCELLED None\n", 125)] {
        let laptop = Laptop::new();
        let cluster = PlayedCluster::new(&laptop);
        let gate = laptop.path("gate");
        let program = format!(
            "echo begun; until [ -e {} ]; do sleep 0.1; done; kill -TERM $$",
            gate.display()
        );
        let line = format!("exec --remote cluster --accept-new -- sh -c '{program}'");
        let child = laptop.start(&line);
        super::real::wait_for_output(&laptop, "begun");
        cluster.write("jobs/1/state", state);
        fs::write(&gate, "").unwrap();
        let output = child.wait_with_output().unwrap();
        let text = laptop.shown(&line, &output);
        // Its supervisor told the signal, and lives.
        assert_eq!(status(&output), expected, "{text}");
        assert_eq!(text.contains("it was cancelled"), expected == 125, "{text}");
    }
}

/// Agents of the cluster, supervisors first.
fn processes_of(cluster: &PlayedCluster) -> Vec<String> {
    let listed = std::process::Command::new("ps").args(["-eo", "pid=,args="]).output().unwrap();
    let home = cluster.sshd.path("home").display().to_string();
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut found: Vec<String> = text
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| line.contains(&home))
        .collect();
    found.sort_by_key(|line| !line.contains(" job "));
    found
}

#[test]
fn a_login_node_that_ends_what_runs_there_costs_nothing() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    let gate = laptop.path("gate");
    let program =
        format!("echo begun; until [ -e {0} ]; do sleep 0.1; done; echo over", gate.display());
    let line = format!("exec --remote cluster --accept-new -- sh -c '{program}'");
    let child = laptop.start(&line);
    super::real::wait_for_output(&laptop, "begun");
    // The agent that asks Slurm, and the one that passes on the bytes of the node's.
    let at_login = |process: &&String| !process.contains(" hold ") && !process.contains(" job ");
    let processes = processes_of(&cluster);
    let ended: Vec<&String> = processes.iter().filter(at_login).collect();
    assert!(!ended.is_empty(), "{processes:?}");
    for process in ended {
        let id = process.split(' ').next().unwrap();
        std::process::Command::new("kill").args(["-9", id]).status().unwrap();
    }
    fs::write(&gate, "").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = laptop.shown(&line, &output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "begun\nover\n", "{text}");
    assert!(text.contains("connection lost"), "{text}");
    assert_eq!(cluster.submissions(), 1, "{text}");
}

#[test]
fn a_job_that_fails_at_once_shows_its_log() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    cluster.write("first", "FAILED NonZeroExitCode\n");
    let told = error(&laptop, CHECK);
    assert_eq!((told.0, told.1.as_str()), (4, "slurm_failed"), "{}", told.2);
    assert!(told.2.contains("this node does not see the program"), "{}", told.2);
    assert_eq!(cluster.submissions(), 1);
}

#[test]
fn a_cluster_that_cannot_count_gpus_by_node_is_asked_for_them_otherwise() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    cluster.write("old", "");
    assert_eq!(status(&laptop.run(CHECK)), 0);
    let submitted = cluster.read("submitted");
    assert!(submitted.lines().nth(1).unwrap().contains("--gres=gpu:1"), "{submitted}");
}

#[test]
fn a_host_without_slurm_is_none_of_its_login_nodes() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    fs::remove_file(cluster.path("bin/srun")).unwrap();
    fs::remove_file(cluster.path("bin/sbatch")).unwrap();
    // Where Slurm is installed for the other tests, there is one after all.
    if !std::path::Path::new("/usr/bin/srun").exists() {
        let told = error(&laptop, CHECK);
        assert_eq!((told.0, told.1.as_str()), (4, "no_slurm"), "{}", told.2);
    }
}

#[test]
fn looking_at_a_cluster_submits_nothing() {
    let laptop = Laptop::new();
    let cluster = PlayedCluster::new(&laptop);
    for line in ["runs list --remote cluster --json", "remote list --json"] {
        // The first one learns the host's key.
        let accept = fs::read_to_string(cluster.sshd.path("ssh_config")).unwrap();
        if !accept.contains("accept-new") {
            cluster.sshd.client_config("Host 127.0.0.1\n  StrictHostKeyChecking accept-new");
        }
        let output = laptop.run(line);
        assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    }
    assert_eq!(cluster.submissions(), 0);
}

#[test]
fn a_cluster_is_added_by_its_login_node() {
    let laptop = Laptop::new();
    let line = "remote add cluster slurm --login ssh://me@login:2222 --partition gpu --gpus h100:2 \
                --account lab --qos high --constraint perf,nvperf --reservation r --time 2:00:00 \
                --cpus 8 --memory 32G --folder /work/me --idle 5m";
    assert_eq!(status(&laptop.run(line)), 0, "{}", laptop.show(line));
    let settings = fs::read_to_string(laptop.path("config/config.toml")).unwrap();
    for part in [
        "url = \"slurm://me@login:2222\"",
        "partition = \"gpu\"",
        "gpus = \"h100:2\"",
        "time = \"2:00:00\"",
        "idle = \"300\"",
        "memory = \"32G\"",
    ] {
        assert!(settings.contains(part), "{part} in {settings}");
    }
    for (line, word) in [
        ("remote add c slurm", "needs `--login`"),
        ("remote add c slurm --login https://x", "not an address of ssh"),
        ("remote add c ssh://h --partition gpu", "`--partition` belongs to a cluster"),
        ("remote add c slurm --login h --time UNLIMITED", "not a time of Slurm"),
        ("remote add c slurm --login h --gpus many", "is not like"),
        ("remote add c slurm --login ssh://u:pw@h", "a password"),
    ] {
        let text = laptop.show(line);
        assert!(text.contains(word), "{word} in {text}");
    }
}
