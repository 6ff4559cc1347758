//! A published client, the official Python SDK, calls every tool. It checks results against schemas.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fake_host::FakeHost;
use crate::laptop::Laptop;

/// A Python with the SDK; `None` where it cannot be installed.
fn python() -> Option<PathBuf> {
    const WANTED: &str = "mcp==1.30.0";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-sdk");
    let python = folder.join("bin/python");
    let run = |program: &Path, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        output.is_ok_and(|output| output.status.success())
    };
    if run(&python, &["-c", "import mcp"]) {
        return Some(python);
    }
    let made = run(Path::new("python3"), &["-m", "venv", folder.to_str()?])
        && run(&folder.join("bin/pip"), &["install", "--quiet", WANTED]);
    made.then_some(python)
}

#[test]
fn the_python_sdk_calls_every_tool() {
    let Some(python) = python() else {
        eprintln!("skipped: the SDK cannot be installed here (PyPI)");
        return;
    };
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let report = "tests/fixtures/ncu/2025.3.1/full-vecadd/report.ncu-repz";
    let report = Path::new(env!("CARGO_MANIFEST_DIR")).join(report);
    fs::copy(report, laptop.project("mine.ncu-repz")).unwrap();
    let rgpu = laptop.rgpu(["mcp"]);
    let mut command = Command::new(python);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mcp/sdk_client.py"));
    command.arg(rgpu.get_program()).current_dir(laptop.path("project")).env_clear();
    for (name, value) in rgpu.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with("11 tools called\n"), "{said}");
}
