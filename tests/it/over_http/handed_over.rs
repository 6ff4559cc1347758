//! A server whose jobs another agent carries out (`--hand-over`): here one behind a plain socket,
//! whose conversations are cut after some bytes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::worker::add_remote_to_config;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, built, status};

/// A server and the other agent.
struct ForwardingServer {
    server: Child,
    /// The next conversation is cut after so many bytes.
    cut: Arc<AtomicU64>,
}

impl ForwardingServer {
    fn start(laptop: &Laptop) -> Self {
        let token = laptop.path("token");
        fs::write(&token, "a-token-of-enough-letters").unwrap();
        fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let way = laptop.path("way");
        let listener = UnixListener::bind(&way).unwrap();
        let cut = Arc::new(AtomicU64::new(u64::MAX));
        let (most, home, lock) = (cut.clone(), laptop.path("other"), laptop.path("lock"));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let most = most.swap(u64::MAX, Ordering::SeqCst);
                let (home, lock) = (home.clone(), lock.clone());
                std::thread::spawn(move || converse(stream, &home, &lock, most));
            }
        });
        let mut server = Command::new(built("rgpu-agent-http"))
            .args(["serve", "--listen", "127.0.0.1:0", "--token-file"])
            .arg(&token)
            .arg("--hand-over")
            .arg(&way)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("RGPU_AGENT_HOME", laptop.path("agent"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        add_remote_to_config(laptop, line.trim().rsplit_once(':').expect(&line).1.parse().unwrap());
        Self { server, cut }
    }
}

impl Drop for ForwardingServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Carries a conversation to an agent of its own, and `most` bytes of its answers.
fn converse(stream: UnixStream, home: &PathBuf, lock: &Path, mut most: u64) {
    let mut said = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line == "facts\n" || line.starts_with("job "), "{line}");
    let mut agent = Command::new(built("rgpu-agent"))
        .arg("stdio")
        .env("RGPU_AGENT_HOME", home)
        .env("RGPU_LOCK_DIR", lock)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout) = (agent.stdin.take().unwrap(), agent.stdout.take().unwrap());
    std::thread::spawn(move || {
        // Not `io::copy`, whose splice keeps the pipe from its reader while the socket is quiet.
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = said.read(&mut piece) {
            if stdin.write_all(&piece[..n]).is_err() {
                return;
            }
        }
    });
    let (mut to, mut piece) = (&stream, [0; 4096]);
    while let Ok(n @ 1..) = stdout.read(&mut piece) {
        let passed = (n as u64).min(most);
        most -= passed;
        if to.write_all(&piece[..passed as usize]).is_err() || most == 0 {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    let _ = agent.kill();
    let _ = agent.wait();
}

#[test]
fn a_profile_that_another_agent_carries_out_is_whole() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let _over = ForwardingServer::start(&laptop);
    let line = "profile --kernel vecadd --mode ncu --remote box --json";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let profile: rgpu_model::Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "ncu.asked");
    assert!(profile.launches[0].metrics.len() > 500);
}

#[test]
fn a_conversation_that_is_cut_anywhere_is_played_again_and_nothing_is_lost_or_run_twice() {
    let laptop = Laptop::new();
    let over = ForwardingServer::start(&laptop);
    let ran = laptop.path("ran");
    let mut want = String::new();
    for (times, bytes) in [0, 10, 21, 100, 400, 700, 900, 2000, 30_000].into_iter().enumerate() {
        let _ = fs::remove_file(&ran);
        let script = format!(
            "echo once >> {}; i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; \
             exit 3",
            ran.display()
        );
        let line = format!("exec --remote box -- sh -c '{script}'");
        over.cut.store(bytes, Ordering::SeqCst);
        let output = laptop.run(&line);
        assert_eq!(status(&output), 3, "{bytes}: {}", laptop.shown(&line, &output));
        let said = String::from_utf8(output.stdout).unwrap();
        if times == 0 {
            want.clone_from(&said);
            assert!(said.ends_with("line 2999\n"));
            assert_eq!(said.lines().count(), 3000);
        }
        assert!(said == want, "{bytes}");
        assert_eq!(fs::read_to_string(&ran).unwrap(), "once\n", "{bytes}");
    }
}
