//! Published clients, the official Python and TypeScript SDKs and the inspector, call every tool.
//! The SDKs check results against the schemas.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

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

/// The folder of a Node project with a package of the protocol; `None` where it cannot be
/// installed.
fn node_project(name: &str, package: &str, version: &str) -> Option<PathBuf> {
    let folder = folder(name);
    fs::create_dir_all(&folder).ok()?;
    let package = format!("@modelcontextprotocol/{package}");
    let is_there = folder.join("node_modules").join(&package).join("package.json").is_file();
    let wanted = format!("{package}@{version}");
    let install = ["install", "--silent", "--no-fund", "--no-audit", &wanted];
    let is_there = is_there || runs(Command::new("npm").args(install).current_dir(&folder));
    (is_there && runs(Command::new("node").arg("--version"))).then_some(folder)
}

/// A laptop with a host, and with a report in its project.
fn laptop_with_report() -> Laptop {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let report = root.join("tests/fixtures/ncu/2025.3.1/full-vecadd/report.ncu-repz");
    fs::copy(report, laptop.project("mine.ncu-repz")).unwrap();
    laptop
}

/// Lets a client run in the laptop's project, as its user.
fn as_user(client: &mut Command, rgpu: &Command, laptop: &Laptop) {
    client.current_dir(laptop.path("project")).env_clear();
    for (name, value) in rgpu.get_envs() {
        client.env(name, value.unwrap_or_default());
    }
}

/// Runs a client of tests/it/mcp in a project with a report and a host.
fn every_tool_is_called(mut client: Command, script: &str, last: Option<&Path>) {
    let laptop = laptop_with_report();
    let rgpu = laptop.rgpu(["mcp"]);
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mcp");
    client.arg(scripts.join(script)).arg(rgpu.get_program()).arg(scripts.join("calls.json"));
    client.args(last);
    as_user(&mut client, &rgpu, &laptop);
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
    match node_project("mcp-sdk-ts", "sdk", "1.32.2") {
        Some(project) => {
            every_tool_is_called(Command::new("node"), "sdk_client.mjs", Some(&project));
        }
        None => eprintln!("skipped: the SDK cannot be installed here (Node, npm)"),
    }
}

#[test]
fn the_inspector_lists_and_calls_every_tool() {
    let Some(project) = node_project("mcp-inspector", "inspector", "0.15.0") else {
        return eprintln!("skipped: the inspector cannot be installed here (Node, npm)");
    };
    let laptop = laptop_with_report();
    // A server of its own for each request.
    let inspect = |words: &[String]| -> Value {
        let rgpu = laptop.rgpu(["mcp"]);
        let mut inspector = Command::new("node");
        inspector.arg(project.join("node_modules/.bin/mcp-inspector")).arg("--cli");
        inspector.arg(rgpu.get_program()).arg("mcp").args(words);
        as_user(&mut inspector, &rgpu, &laptop);
        let output = inspector.output().unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {messages}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let list = |what: &str| inspect(&["--method".to_owned(), format!("{what}/list")]);
    // Values as a person types them: the inspector reads them by the types of the listed schema.
    let call = |tool: &str, arguments: &Value| -> Value {
        let mut words = ["--method", "tools/call", "--tool-name", tool].map(str::to_owned).to_vec();
        for (name, value) in arguments.as_object().unwrap() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            words.extend(["--tool-arg".to_owned(), format!("{name}={text}")]);
        }
        inspect(&words)
    };
    let tools = list("tools");
    let mut missing: Vec<&str> =
        tools["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    let calls: Value = serde_json::from_str(include_str!("calls.json")).unwrap();
    for pair in calls["right"].as_array().unwrap() {
        let (tool, arguments) = (pair[0].as_str().unwrap(), &pair[1]);
        let mut result = call(tool, arguments);
        while result["structuredContent"]["state"] == "running" {
            let run = &result["structuredContent"]["run"];
            result = call("runs", &serde_json::json!({"action": "wait", "run": run}));
        }
        assert!(result["isError"] != true, "{tool} {arguments}: {result}");
        missing.retain(|name| *name != tool);
    }
    assert_eq!(missing, [] as [&str; 0]);
    for pair in calls["wrong"].as_array().unwrap() {
        let result = call(pair[0].as_str().unwrap(), &pair[1]);
        assert!(result["isError"] == true, "{pair}: {result}");
    }
    assert!(list("resources")["resources"].as_array().is_some_and(|all| all.len() > 1));
    assert!(list("prompts")["prompts"].as_array().is_some_and(|all| all.len() == 3));
    laptop.wait_until_quiet();
}
