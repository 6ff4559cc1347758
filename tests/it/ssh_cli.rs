//! `rgpu` itself over a real OpenSSH server: links that are cut, commands that are killed, Ctrl-C.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::laptop::{running_in, wait_for};
use crate::sshd::{Cutter, Sshd};

/// A user whose only remote is a server on loopback.
struct SshUser {
    sshd: Sshd,
}

impl SshUser {
    /// Reached at `port`, which may be a proxy's.
    fn new(sshd: Sshd, port: u16) -> Self {
        fs::create_dir(sshd.path("project")).unwrap();
        let config = format!(
            "default_remote = \"box\"\n[remote.box]\nurl = \"ssh://{}@127.0.0.1:{port}\"\n\
             ssh_config = \"{}\"\n",
            sshd.user,
            sshd.path("ssh_config").display()
        );
        let file = sshd.path("config.toml");
        fs::write(&file, config).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        Self { sshd }
    }

    fn direct() -> Self {
        let sshd = Sshd::start();
        let port = sshd.port;
        Self::new(sshd, port)
    }

    fn rgpu(&self, args: &[&str]) -> Command {
        // The agent lies beside the program; the test that needs it first has it built.
        crate::host::agent();
        let mut command = Command::new(env!("CARGO_BIN_EXE_rgpu"));
        command
            .args(args)
            .current_dir(self.sshd.path("project"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.sshd.path("laptop"))
            .env("RGPU_CONFIG", self.sshd.path("config.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.rgpu(args).output().unwrap()
    }

    /// Starts a script on the host, and waits until it has made the file `mark` there.
    fn start(&self, script: &str, mark: &str) -> Child {
        let child = self.rgpu(&["exec", "--accept-new", "--", "sh", "-c", script]).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while !self.sshd.path(mark).exists() {
            assert!(Instant::now() < end, "the script did not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    fn path(&self, name: &str) -> String {
        self.sshd.path(name).display().to_string()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_command_over_ssh_keeps_its_output_and_its_status() {
    let host = SshUser::direct();
    let refused = host.run(&["exec", "--", "true"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("is not known yet"), "{}", text(&refused.stderr));
    let output =
        host.run(&["exec", "--accept-new", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!(output.stdout, b"out\n");
    assert!(text(&output.stderr).contains("err\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_link_is_cut_again_and_again_ends_as_if_it_had_not_been() {
    let sshd = Sshd::start();
    let cutter = Cutter::before(sshd.port).await;
    let host = SshUser::new(sshd, cutter.port);
    assert_eq!(host.run(&["exec", "--accept-new", "--", "true"]).status.code(), Some(0));
    let before = cutter.links();
    cutter.cut_after(500_000);
    let run = tokio::task::spawn_blocking(move || {
        (host.run(&["exec", "--", "sh", "-c", "seq 1 150000; exit 3"]), host)
    });
    let (output, _host) = run.await.unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let want: String = (1..=150_000).map(|i| format!("{i}\n")).collect();
    assert!(output.stdout == want.as_bytes(), "{} bytes", output.stdout.len());
    assert!(cutter.links() - before > 1);
    assert!(text(&output.stderr).contains("reconnected"), "{}", text(&output.stderr));
}

#[test]
fn a_command_that_was_killed_is_taken_up_where_it_left_off() {
    let host = SshUser::direct();
    let script = format!(
        "echo first; touch {}; while [ ! -e {} ]; do sleep 0.1; done; echo last; exit 5",
        host.path("started"),
        host.path("go")
    );
    let mut child = host.start(&script, "started");
    child.kill().unwrap();
    child.wait().unwrap();
    fs::write(host.path("go"), "").unwrap();
    let output = host.run(&["runs", "attach", "latest"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    // What the killed command had taken is printed no second time, and the record has it all.
    assert!(output.stdout.ends_with(b"last\n"), "{}", text(&output.stdout));
    let runs = host.sshd.path("project/artifacts/runs");
    let latest = fs::read_to_string(runs.join(".latest")).unwrap();
    let log = runs.join(latest.trim()).join("log/exec.stdout");
    assert_eq!(fs::read_to_string(log).unwrap(), "first\nlast\n");
}

#[test]
fn ctrl_c_stops_what_runs_on_the_host() {
    let host = SshUser::direct();
    let script = format!("touch {}; sleep 40; touch {}", host.path("started"), host.path("late"));
    let child = host.start(&script, "started");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    wait_for("the end of the script", || {
        let running = running_in(&host.sshd.path(""));
        (!running.iter().any(|(_, line)| line.contains("sleep 40; touch"))).then_some(())
    });
    assert!(!host.sshd.path("late").exists());
}

#[test]
fn a_changed_host_key_is_a_failure_with_both_keys_in_json_too() {
    let host = SshUser::direct();
    crate::sshd::keygen(&host.sshd.path("other"));
    let other = fs::read_to_string(host.sshd.path("other.pub")).unwrap();
    let line = format!("[127.0.0.1]:{} {other}", host.sshd.port);
    fs::write(host.sshd.path("known_hosts"), line).unwrap();
    let output = host.run(&["remote", "check", "--json"]);
    assert_eq!(output.status.code(), Some(4));
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["schema"], "rgpu.error/1");
    assert_eq!(error["error"]["code"], "host_key_changed");
    assert_eq!(text(&output.stderr).matches("SHA256:").count(), 2, "{}", text(&output.stderr));
}
