//! What the script that compiles a DSL's file writes of itself (`harness/templates/build_dsl.py`).

use serde::Deserialize;

use super::names::HostPathNames;
use crate::model::build::ErrorLink;
use crate::store::RunFolder;

/// The record; empty where the script left none.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DslRecord {
    pub(super) compiler: String,
    pub(super) options: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) error: Option<PythonException>,
}

/// An exception.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PythonException {
    pub(super) class: String,
    pub(super) message: String,
    pub(super) chain: Vec<ErrorLink>,
    pub(super) traceback: String,
}

/// Lines of the user's frames that are shown; the rest is in `traceback.txt`.
const MAX_SHOWN_FRAMES: usize = 12;
/// Lines of the exception's own words.
const MAX_MESSAGE_LINES: usize = 12;

impl DslRecord {
    pub(super) fn read(folder: &RunFolder) -> Self {
        let bytes = folder.read("raw/dsl.json").unwrap_or_default();
        // A script that was killed leaves none, or half of one.
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

impl PythonException {
    /// The exception as a user sees it: where in the user's files, what MLIR said (`log`), then
    /// the first cause's words.
    pub(super) fn shown(&self, names: &HostPathNames<'_>, log: &str) -> String {
        let traceback = names.localize(&self.traceback);
        let users = |line: &str| {
            names.here().any(|file| line.contains(&format!("File \"{}\"", file.display())))
        };
        let mut lines: Vec<&str> = Vec::new();
        let mut all = traceback.lines().peekable();
        while let Some(line) = all.next() {
            if users(line) && !lines.contains(&line) {
                lines.push(line);
                // The line of code and its marks stand below.
                while let Some(below) = all.next_if(|below| below.starts_with("    ")) {
                    lines.push(below);
                }
            }
        }
        let skip = lines.len().saturating_sub(MAX_SHOWN_FRAMES);
        let mut lines: Vec<String> = lines.drain(skip..).map(|l| l.trim_end().to_owned()).collect();
        // The exception may only say that an operation could not be made.
        let of_mlir = log.lines().filter(|l| l.starts_with("loc(") && l.contains("error: "));
        lines.extend(of_mlir.take(2).map(str::to_owned));
        // That a process ended is no cause.
        let ends = ["SystemExit", "CalledProcessError"];
        let first = self.chain.iter().find(|link| !ends.contains(&link.class.as_str()));
        let (class, message) =
            first.map_or((&self.class, &self.message), |link| (&link.class, &link.message));
        let message = names.localize(message);
        let words = message.lines().take_while(|line| !line.contains("see current operation"));
        let words: Vec<&str> =
            words.filter(|line| !line.trim().is_empty()).take(MAX_MESSAGE_LINES).collect();
        lines.push(format!("{class}: {}", words.join("\n")));
        lines.join("\n")
    }
}
