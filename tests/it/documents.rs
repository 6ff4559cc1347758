//! Every JSON document that a test leaves in a run folder keeps to its schema: when a test ends
//! well, its laptop looks at them all.

use std::path::Path;
use std::process::Command;

/// The schema of a file in a run folder; none for files that tools wrote.
fn schema(name: &str) -> Option<&'static str> {
    let stem = name.strip_suffix(".json")?;
    let known = ["profile", "run", "env", "inputs", "hotspots", "trace", "compare"];
    match stem.strip_prefix("plan-") {
        Some(_) => Some("plan"),
        None => known.into_iter().find(|known| *known == stem),
    }
}

/// Checks the documents of every run folder under `project`.
pub(crate) fn keep_to_their_schemas(project: &Path) {
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
            let checked = Command::new(env!("CARGO_BIN_EXE_rgpu"))
                .args(["schema", schema, "--check"])
                .arg(entry.path())
                .output()
                .unwrap();
            let words = String::from_utf8_lossy(&checked.stdout);
            assert!(checked.status.success(), "`{name}` breaks its schema:\n{words}");
        }
    }
}
