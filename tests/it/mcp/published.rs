//! Published clients, the official Python and TypeScript SDKs, call every tool. They check results
//! against the schemas.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fake_host::FakeHost;
use crate::laptop::Laptop;

fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A Python with the SDK; `None` where it cannot be installed.
fn python() -> Option<PathBuf> {
    const WANTED: &str = "mcp==1.30.0";
    let folder = folder("mcp-sdk");
    let python = folder.join("bin/python");
    let is_there = runs(Command::new(&python).args(["-c", "import mcp"]));
    let is_there = is_there
        || runs(Command::new("python3").args(["-m", "venv"]).arg(&folder))
            && runs(Command::new(folder.join("bin/pip")).args(["install", "--quiet", WANTED]));
    is_there.then_some(python)
}

/// The folder of a Node project with the SDK; `None` where it cannot be installed.
fn node_project() -> Option<PathBuf> {
    const WANTED: &str = "@modelcontextprotocol/sdk@1.32.2";
    let folder = folder("mcp-sdk-ts");
    fs::create_dir_all(&folder).ok()?;
    let is_there = folder.join("node_modules/@modelcontextprotocol/sdk/package.json").is_file();
    let install = ["install", "--silent", "--no-fund", "--no-audit", WANTED];
    let is_there = is_there || runs(Command::new("npm").args(install).current_dir(&folder));
    (is_there && runs(Command::new("node").arg("--version"))).then_some(folder)
}

/// Runs a client of tests/it/mcp in a project with a report and a host.
fn every_tool_is_called(mut client: Command, script: &str, last: Option<&Path>) {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let report = root.join("tests/fixtures/ncu/2025.3.1/full-vecadd/report.ncu-repz");
    fs::copy(report, laptop.project("mine.ncu-repz")).unwrap();
    let rgpu = laptop.rgpu(["mcp"]);
    let scripts = root.join("tests/it/mcp");
    client.arg(scripts.join(script)).arg(rgpu.get_program()).arg(scripts.join("calls.json"));
    client.args(last).current_dir(laptop.path("project")).env_clear();
    for (name, value) in rgpu.get_envs() {
        client.env(name, value.unwrap_or_default());
    }
    let output = client.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with("11 tools called\n"), "{said}");
}

#[test]
fn the_python_sdk_calls_every_tool() {
    match python() {
        Some(python) => every_tool_is_called(Command::new(python), "sdk_client.py", None),
        None => eprintln!("skipped: the SDK cannot be installed here (PyPI)"),
    }
}

#[test]
fn the_typescript_sdk_calls_every_tool() {
    match node_project() {
        Some(project) => {
            every_tool_is_called(Command::new("node"), "sdk_client.mjs", Some(&project));
        }
        None => eprintln!("skipped: the SDK cannot be installed here (Node, npm)"),
    }
}
