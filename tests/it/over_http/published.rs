//! The published description, tried against a running worker by a tool that knows neither.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::worker::Worker;
use crate::laptop::Laptop;

/// The tool, in a Python environment of its own; `None` where it cannot be installed.
fn schemathesis() -> Option<PathBuf> {
    const WANTED: &str = "schemathesis==4.32.5";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemathesis");
    let tool = folder.join("bin/st");
    if tool.exists() {
        return Some(tool);
    }
    let run = |program: &Path, args: &[&str]| {
        let output = Command::new(program).args(args).output();
        output.is_ok_and(|output| output.status.success())
    };
    let made = run(Path::new("python3"), &["-m", "venv", folder.to_str()?])
        && run(&folder.join("bin/pip"), &["install", "--quiet", WANTED]);
    made.then_some(tool)
}

#[test]
fn the_worker_keeps_to_its_published_description() {
    let Some(tool) = schemathesis() else {
        eprintln!("skipped: schemathesis cannot be installed here (PyPI)");
        return;
    };
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    // Something for it to find, and something to remove.
    for job in ["kept.1", "gone.1"] {
        let body = super::face::plan(job, "echo one; echo file > out");
        worker.ask("POST /v1/jobs", &["Content-Type: application/json"], &body);
        super::face::wait_until_ended(&worker, job);
    }
    let config = laptop.path("schemathesis.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let output = Command::new(tool)
        .arg("--config-file")
        .arg(&config)
        .arg("run")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/openapi.json"))
        .args(["--url", &format!("http://127.0.0.1:{}", worker.port)])
        .args(["--header", &format!("Authorization: Bearer {}", worker.token)])
        .args(["--no-color", "--seed", "7", "--max-examples", "25"])
        .args(["--phases", "examples,coverage,fuzzing", "--request-timeout", "20"])
        // How long generating a request takes says nothing about the worker.
        .args(["--suppress-health-check", "too_slow"])
        .args(["--checks", CHECKS])
        .current_dir(laptop.path("project"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// All that fit a server whose clients choose the names of jobs, and which answers a guesser of
/// tokens with 429 soon.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method";

const CONFIG: &str = r#"
[parameters]
"path.job" = "kept.1"
"path.path" = "out"

[[operations]]
include-operation-id = "forget"
parameters = { "path.job" = "gone.1" }
"#;
