//! Reads the record that the script for compiling DSL files writes
//! (`harness/templates/build_dsl.py`).

use serde::Deserialize;

use super::path_localizer::PathLocalizer;
use crate::store::RunFolder;
use rgpu_model::build::ErrorLink;

/// The script's record; empty if the script wrote none.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DslRecord {
    pub(super) compiler: String,
    pub(super) options: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) error: Option<PythonException>,
}

/// An exception that the script caught.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PythonException {
    pub(super) class: String,
    pub(super) message: String,
    pub(super) chain: Vec<ErrorLink>,
    pub(super) traceback: String,
}

/// Most lines of user frames to show; the whole traceback is in `traceback.txt`.
const MAX_SHOWN_FRAMES: usize = 12;
/// Most lines of the exception's message to show.
const MAX_MESSAGE_LINES: usize = 12;

impl DslRecord {
    pub(super) fn read(folder: &RunFolder) -> Self {
        let bytes = folder.read("raw/dsl.json").unwrap_or_default();
        // A script that was killed leaves no file or half of one.
        crate::saved_json::from_slice(&bytes).unwrap_or_default()
    }
}

impl PythonException {
    /// The exception as shown to the user: the frames in the user's files, MLIR's errors (from
    /// `log`), then the first cause's message.
    pub(super) fn shown(&self, names: &PathLocalizer<'_>, log: &str) -> String {
        let traceback = names.localize(&self.traceback);
        let is_user_frame = |line: &str| {
            names.local_paths().any(|file| line.contains(&format!("File \"{}\"", file.display())))
        };
        let mut lines: Vec<&str> = Vec::new();
        let mut traceback_lines = traceback.lines().peekable();
        while let Some(line) = traceback_lines.next() {
            if is_user_frame(line) && !lines.contains(&line) {
                lines.push(line);
                // The source line and its markers follow the frame.
                while let Some(below) = traceback_lines.next_if(|below| below.starts_with("    ")) {
                    lines.push(below);
                }
            }
        }
        let skip = lines.len().saturating_sub(MAX_SHOWN_FRAMES);
        let mut lines: Vec<String> = lines.drain(skip..).map(|l| l.trim_end().to_owned()).collect();
        // The exception may only say that an operation could not be built; MLIR's errors say why.
        let mlir_errors = log.lines().filter(|l| l.starts_with("loc(") && l.contains("error: "));
        lines.extend(mlir_errors.take(2).map(str::to_owned));
        // These only say that a process ended, not why.
        let exit_classes = ["SystemExit", "CalledProcessError"];
        let first = self.chain.iter().find(|link| !exit_classes.contains(&link.class.as_str()));
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
