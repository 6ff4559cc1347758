//! Tokens that the desktop's keychain holds: a real Secret Service (gnome-keyring), with a message
//! bus and a keyring of its own in the laptop's home.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use super::modal::fake_proxy::{FakeModalProxy, Fault, KEY, SECRET};
use super::worker::Worker;
use crate::laptop::{Laptop, status};

const NEEDED: [&str; 3] = ["dbus-run-session", "gnome-keyring-daemon", "secret-tool"];

/// What makes a keyring; `rgpu` then stands for this program.
const OPEN: &str = r#"
set -e
printf hunter2 | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1
keep() { printf %s "$1" | secret-tool store --label=rgpu service "$2" account "$3"; }
keep "$KEY" rgpu-modal modal-key
keep "$SECRET" rgpu-modal modal-secret
keep "$TOKEN" rgpu-box token
unset KEY SECRET TOKEN
rgpu() { "$RGPU" "$@"; }
"#;

/// A script of this laptop's in a session with a keyring.
fn in_session(laptop: &Laptop, script: &str, token: &str) -> Output {
    let run = laptop.path("run");
    fs::create_dir_all(&run).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
    let rgpu = laptop.rgpu([""; 0]);
    let mut command = Command::new("dbus-run-session");
    command.args(["--", "bash", "-c", &format!("{OPEN}\n{script}")]).env_clear();
    for (name, value) in rgpu.get_envs() {
        command.env(name, value.unwrap());
    }
    command
        .current_dir(laptop.path("project"))
        .env("XDG_RUNTIME_DIR", run)
        .env("RGPU", rgpu.get_program())
        .envs([("KEY", KEY), ("SECRET", SECRET), ("TOKEN", token)])
        .output()
        .unwrap()
}

/// Whether any file below holds a secret.
fn holds(folder: &Path, secret: &str) -> Vec<String> {
    let files = walkdir::WalkDir::new(folder).into_iter().flatten();
    let files = files.filter(|entry| entry.file_type().is_file());
    let holds = files.filter(|entry| {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        bytes.windows(secret.len()).any(|part| part == secret.as_bytes())
    });
    holds.map(|entry| entry.path().display().to_string()).collect()
}

#[test]
fn tokens_of_the_keychain_let_in_and_stand_nowhere_else() {
    if let Some(missing) = NEEDED.iter().find(|p| !Path::new("/usr/bin").join(p).exists()) {
        eprintln!("skipped: there is no {missing} here (gnome-keyring, libsecret-tools, dbus)");
        return;
    }
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let app = FakeModalProxy::start(Some(&worker), Duration::from_secs(20), |_| Fault::None);
    let script = format!(
        "rgpu remote add b200 modal --url http://127.0.0.1:{} --keychain rgpu-modal\n\
         rgpu remote up b200\n\
         rgpu exec --remote b200 -- echo through modal\n\
         rgpu remote add kbox http://127.0.0.1:{} --keychain rgpu-box\n\
         rgpu exec --remote kbox -- echo through the worker\n\
         rgpu remote add none modal --url http://127.0.0.1:{0} --keychain no-such-service\n\
         rgpu remote check none\n",
        app.port, worker.port
    );
    let output = in_session(&laptop, &script, &worker.token);
    let shown = laptop.shown("in a session", &output);
    assert_eq!(output.stdout, b"through modal\nthrough the worker\n", "{shown}");
    let version = env!("CARGO_PKG_VERSION");
    assert!(shown.contains(&format!("`b200` answers, with an app of rgpu {version}")), "{shown}");
    assert_eq!(status(&output), 3, "{shown}");
    assert!(shown.contains("the keychain has no `modal-key` of `no-such-service`"), "{shown}");
    assert!(shown.contains("secret-tool store"), "{shown}");
    for secret in [KEY, SECRET, &worker.token] {
        assert!(!shown.contains(secret), "{shown}");
        for folder in ["project", "config", "home", "tmp"] {
            assert_eq!(holds(&laptop.path(folder), secret), [""; 0]);
        }
    }
    // Without a session there is no keychain to ask, which is not the same.
    let shown = laptop.show("remote check b200");
    assert!(shown.contains("the keychain cannot be asked: "), "{shown}");
}
