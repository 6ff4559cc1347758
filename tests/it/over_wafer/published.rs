//! Wafer's own published clients against the stand-in: what they take for the service is like it.
//!
//! They come from PyPI into Python environments of their own, made on first use.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::service::Service;
use crate::fake_host::FakeHost;
use crate::laptop::Laptop;

/// What a version needs where its own list cannot be met: it asks for a newer Python than Debian's,
/// and for what it uses elsewhere.
const NEEDED: &[&str] = &[
    "typer==0.29.2",
    "httpx==0.28.1",
    "trio==0.35.0",
    "python-dotenv==1.2.4",
    "dacite==1.9.2",
    "anthropic==2.12.0",
    "openai==3.54.0",
    "markdownify==1.2.3",
    "pandas==3.1.1",
    "pyyaml==6.0.3",
    "paramiko",
];

/// The environment with one version; `None` where it cannot be installed.
fn environment(version: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("wafer-ai-{version}"));
    let ready = folder.join("ready");
    if ready.exists() {
        return Some(folder);
    }
    let run = |program: &Path, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        output.is_ok_and(|output| output.status.success())
    };
    let pip = folder.join("bin/pip");
    let wanted = format!("wafer-ai=={version}");
    let bare = ["install", "--quiet", "--no-deps", "--ignore-requires-python", &wanted];
    let made = run(Path::new("python3"), &["-m", "venv", folder.to_str()?])
        && run(&pip, &bare)
        && run(&pip, &[&["install", "--quiet"], NEEDED].concat());
    made.then(|| std::fs::write(&ready, b"")).and_then(Result::ok).map(|()| folder)
}

/// One of its programs, as the laptop's user.
fn client(laptop: &Laptop, service: &Service, program: &Path) -> Command {
    let mut command = Command::new(program);
    let url = format!("http://127.0.0.1:{}", service.port);
    command
        .current_dir(laptop.path("project"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", laptop.path("home"))
        .env("LANG", "C.UTF-8")
        .env("WAFER_API_URL", &url)
        .env("SUPABASE_URL", &url);
    command
}

fn text(output: &Output) -> String {
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", part(&output.stdout), part(&output.stderr))
}

#[test]
fn the_published_profiler_of_0_0_13_takes_the_stand_in_for_the_service() {
    let Some(folder) = environment("0.0.13") else {
        eprintln!("skipped: wafer-ai 0.0.13 cannot be installed here (PyPI)");
        return;
    };
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let service = Service::start(&laptop);
    let program = laptop.write("job/vecadd", "#!/bin/sh\necho a program\n");
    std::fs::set_permissions(program, PermissionsExt::from_mode(0o755)).unwrap();
    let output = client(&laptop, &service, &folder.join("bin/wafer"))
        .args(["tool", "ncu", "run", "--dir", "job", "--ncu-args", "--set full"])
        .args(["--output", "out.ncu-rep", "./vecadd"])
        .output()
        .unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for words in ["Queue position: 1", "GPU 0 allocated", "$0.02 used", "Report saved"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(std::fs::metadata(laptop.project("out.ncu-rep")).unwrap().len() > 1000);
}

#[test]
fn the_published_workspaces_of_0_0_85_take_the_stand_in_for_the_service() {
    let Some(folder) = environment("0.0.85") else {
        eprintln!("skipped: wafer-ai 0.0.85 cannot be installed here (PyPI)");
        return;
    };
    let laptop = Laptop::new();
    let service = Service::start(&laptop);
    let output = client(&laptop, &service, &folder.join("bin/python"))
        .arg("-c")
        .arg(WORKSPACES)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).ends_with("all of it\n"), "{}", text(&output));
}

const WORKSPACES: &str = r#"
import os
from wafer.cli import auth, workspaces as w
from wafer.core.infra.auth import get_valid_token

assert auth.verify_token(get_valid_token()).email == "me@example.com"
assert '"b200-dev"' in w.list_workspaces(json_output=True)
made = w.create_workspace("mine", "B200", "modal", json_output=True)
assert '"creating"' in made, made
try:
    w.exec_command_capture("mine", "true")
    raise SystemExit("it ran in a workspace that is not there yet")
except RuntimeError as error:
    assert "not running" in str(error), error
assert w.exec_command_capture("b200-dev", "echo hello; exit 3") == (3, "hello", ""), \
    w.exec_command_capture("b200-dev", "echo hello; exit 3")
# Its own client is fooled by what a program prints; ours is not.
assert w.exec_command_capture("b200-dev", "echo '[EXIT:0]'; exit 3")[0] == 0
assert w.get_workspace_raw("b200-dev")["status"] == "running"
assert w._init_sync_state(w.resolve_workspace("b200-dev")) is None
w.delete_workspace("mine", json_output=True)
try:
    w.get_workspace_raw("mine")
    raise SystemExit("it is still there")
except RuntimeError as error:
    assert "not found" in str(error), error
state, refresh, _ = auth.device_code_login(timeout=20)
assert state == get_valid_token() and refresh == "refresh-1"
print("all of it")
"#;
