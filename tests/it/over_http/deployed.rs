//! `remote/modal_app.py`: loaded and checked with the real `modal` package, and its front run here,
//! with a folder for the Volume and processes for containers.

mod trouble;

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rgpu_model::Profile;
use rustix::process::{Pid, Signal, kill_process};

use super::modal::fake_proxy::{KEY, SECRET, add_remote_to_config};
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, built, status, wait_for};
use crate::sshd::free_port;

const NCU: &str = "profile --kernel vecadd --mode ncu --remote b200 --json";
const REMOTE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/remote");
const TROUBLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/over_http/deployed");

/// A Python with all that the app needs; `None` where it cannot be installed.
fn python() -> Option<PathBuf> {
    const WANTED: [&str; 3] = ["modal==1.6.4", "uvicorn==0.38.0", "mypy==1.18.2"];
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("modal");
    let (python, ready) = (folder.join("bin/python"), folder.join("ready"));
    // One test installs, the others wait for it.
    let lock = fs::File::create(folder.with_extension("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    if ready.exists() {
        return Some(python);
    }
    let run = |program: &Path, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        output.is_ok_and(|output| output.status.success())
    };
    let install = [&["-m", "pip", "install", "--quiet"][..], &WANTED].concat();
    let made = run(Path::new("python3"), &["-m", "venv", folder.to_str()?]);
    if !made || !run(&python, &install) {
        eprintln!("skipped: modal cannot be installed here (PyPI)");
        return None;
    }
    fs::write(ready, "").unwrap();
    Some(python)
}

/// The app's front, running here and known to the laptop as `b200`.
struct DeployedApp {
    child: Child,
    port: u16,
}

impl DeployedApp {
    fn start(laptop: &Laptop, python: &Path) -> Self {
        let port = free_port();
        let token = laptop.path("modal/front/token");
        fs::create_dir_all(token.parent().unwrap()).unwrap();
        fs::write(&token, format!("{KEY}.{SECRET}")).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        add_remote_to_config(laptop, port, &format!("MODAL_KEY={KEY}\nMODAL_SECRET={SECRET}\n"));
        Self::start_at(laptop, python, port)
    }

    /// On a platform in trouble, see `troubled.py`.
    fn in_trouble(laptop: &Laptop, python: &Path) -> Self {
        let calm = Self::start(laptop, python);
        let port = calm.port;
        drop(calm);
        Self::start_as("troubled", laptop, python, port)
    }

    /// Kills the front with all its processes and files; another comes up.
    fn kill_and_restart(self, laptop: &Laptop, python: &Path) -> Self {
        let port = self.port;
        drop(self);
        kill(laptop, &["rgpu-agent-http serve", "rgpu-agent relay"]);
        let _ = fs::remove_dir_all(laptop.path("modal/front/agent"));
        Self::start_at(laptop, python, port)
    }

    fn start_at(laptop: &Laptop, python: &Path, port: u16) -> Self {
        Self::start_as("modal_app", laptop, python, port)
    }

    /// As this module has it.
    fn start_as(module: &str, laptop: &Laptop, python: &Path, port: u16) -> Self {
        let child = Command::new(python)
            .args(["-m", "uvicorn", "--factory", &format!("{module}:local")])
            .args(["--log-level", "warning", "--port", &port.to_string()])
            .current_dir(REMOTE)
            .env_clear()
            .env("PYTHONPATH", format!("{REMOTE}:{TROUBLED}"))
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", laptop.path("home"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("RGPU_LOCAL", laptop.path("modal"))
            .env("RGPU_AGENT", built("rgpu-agent-http"))
            .env("RGPU_LOCK_DIR", laptop.path("lock"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let this = Self { child, port };
        wait_for("the front", || TcpStream::connect(("127.0.0.1", port)).ok());
        this
    }
}

impl Drop for DeployedApp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills what runs in the laptop's folder and has one of these words in its command line.
fn kill(laptop: &Laptop, words: &[&str]) {
    for line in laptop.running() {
        if words.iter().any(|word| line.contains(word)) {
            let pid = line.split(' ').next().unwrap().parse().unwrap();
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

fn whole(laptop: &Laptop, output: &std::process::Output) -> Profile {
    assert_eq!(status(output), 0, "{}", laptop.shown(NCU, output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "ncu.asked");
    assert!(profile.launches[0].metrics.len() > 500);
    let log = fs::read_to_string(laptop.latest().join("log/profile.stdout")).unwrap();
    assert_eq!(log.matches("==PROF== Profiling").count(), 1, "{log}");
    profile
}

#[test]
fn the_app_loads_with_the_real_package_and_its_types_are_right() {
    let Some(python) = python() else { return };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mypy");
    let run = |args: &[&str]| {
        let mut command = Command::new(&python);
        command.args(args).current_dir(REMOTE).env("PYTHONDONTWRITEBYTECODE", "1");
        let output =
            command.env("RGPU_GPU", "H100!").env("RGPU_REGION", "us-east").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    };
    run(&["-m", "mypy", "--strict", "--cache-dir", cache.to_str().unwrap(), "modal_app.py"]);
    let script = "import modal, modal_app as m; \
        assert isinstance(m.front, modal.Function) and isinstance(m.on_gpu, modal.Function); \
        print(m.app.name, m.setting('RGPU_GPU'), m.region)";
    assert_eq!(run(&["-c", script]).trim(), "rgpu H100! us-east");
}

#[test]
fn calls_are_asked_about_and_ended_in_the_real_packages_words() {
    let Some(python) = python() else { return };
    let output = Command::new(&python)
        .arg(format!("{TROUBLED}/calls.py"))
        .env("PYTHONPATH", REMOTE)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all of them\n", "{said}");
}

#[test]
fn a_profile_through_the_apps_own_front_is_whole() {
    let Some(python) = python() else { return };
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let _app = DeployedApp::start(&laptop, &python);
    let profile = whole(&laptop, &laptop.run(NCU));
    assert_eq!(profile.host.unwrap().transport, "modal");
    let line = "exec --remote b200 -- sh -c 'cat; echo err >&2; exit 3'";
    let output = laptop.run_with_input(line, b"some input");
    assert_eq!(status(&output), 3, "{}", laptop.shown(line, &output));
    assert_eq!(output.stdout, b"some input");
    assert!(String::from_utf8_lossy(&output.stderr).contains("err\n"));
    // Somebody else's token is not taken by the server behind it.
    add_remote_to_config(&laptop, _app.port, "MODAL_KEY=wk-other\nMODAL_SECRET=ws-other\n");
    let shown = laptop.show("remote check b200");
    assert!(shown.contains("the token is rejected"), "{shown}");
}

#[test]
fn a_container_without_a_gpu_runs_the_reference() {
    let Some(python) = python() else { return };
    if Path::new("/dev/nvidia0").exists() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let laptop = Laptop::new();
    symlink(built("rgpu-runner"), laptop.path("libexec/rgpu-runner")).unwrap();
    let _app = DeployedApp::start(&laptop, &python);
    let line = "profile --kernel vecadd --problem-sizes n=100000 --mode bench --remote b200";
    let output = laptop.run(line);
    assert_eq!(status(&output), 5, "{}", laptop.shown(line, &output));
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    assert!(matches!(profile.rung.as_str(), "nvtx" | "cpu"), "{}", profile.rung);
    assert_eq!(profile.cases[0].timing.as_ref().unwrap().clock, "cpu_reference");
}

#[test]
fn ctrl_c_ends_what_runs_in_a_container() {
    let Some(python) = python() else { return };
    let laptop = Laptop::new();
    let _app = DeployedApp::start(&laptop, &python);
    let started = laptop.path("started");
    let script = format!("touch {}; sleep 7012", started.display());
    let child = laptop.start(&format!("exec --remote b200 -- sh -c '{script}'"));
    wait_for("the program", || started.exists().then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", String::from_utf8_lossy(&output.stderr));
    wait_for("the program's end", || {
        laptop.running().iter().all(|line| !line.contains("sleep 7012")).then_some(())
    });
}
