//! Every JSON document that a test leaves in a run folder keeps to its schema: when a test ends
//! well, its laptop looks at them all.

use std::path::Path;
use std::process::Command;

/// The schema of a file in a run folder; none for files that tools wrote.
fn schema(name: &str) -> Option<&'static str> {
    let stem = name.strip_suffix(".json")?;
    let known = [
        "profile", "run", "error", "env", "inputs", "hotspots", "trace", "compare", "fan-out",
        "suite",
    ];
    match stem {
        "summary" => return Some("build"),
        "layouts" => return Some("layout-dump"),
        _ => {}
    }
    match stem.strip_prefix("plan-") {
        Some(_) => Some("plan"),
        None => known.into_iter().find(|known| *known == stem),
    }
}

/// Checks the documents of every run folder under `project`, and those of `rgpu disasm`.
pub(crate) fn keep_to_their_schemas(project: &Path) {
    let summaries = walkdir::WalkDir::new(project).into_iter().flatten();
    for summary in summaries.filter(|e| e.path().ends_with("sass/summary.json")) {
        keeps("disasm", summary.path());
    }
    let runs = walkdir::WalkDir::new(project).into_iter().flatten();
    for run in runs.filter(|entry| entry.file_name() == "run.json") {
        let folder = run.path().parent().unwrap();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(schema) = schema(&name) else { continue };
            // Some tests leave a document cut off on purpose.
            let text = std::fs::read(entry.path()).unwrap_or_default();
            if serde_json::from_slice::<serde_json::Value>(&text).is_err() {
                continue;
            }
            keeps(schema, &entry.path());
        }
    }
}

/// Checks a document that a command printed.
pub(crate) fn printed_keeps(schema: &str, document: &serde_json::Value) {
    assert_eq!(document["schema"], format!("rgpu.{schema}/1"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), document.to_string()).unwrap();
    keeps(schema, file.path());
}

fn keeps(schema: &str, document: &Path) {
    let checked = Command::new(env!("CARGO_BIN_EXE_rgpu"))
        .args(["schema", schema, "--check"])
        .arg(document)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&checked.stdout);
    let name = document.file_name().unwrap_or_default().to_string_lossy();
    assert!(checked.status.success(), "`{name}` breaks its schema:\n{words}");
}
