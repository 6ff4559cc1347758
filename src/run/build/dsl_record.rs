//! What the script that compiles a DSL's file writes of itself (`harness/templates/build_dsl.py`).

use serde::Deserialize;

use crate::model::build::ErrorLink;
use crate::store::RunFolder;
use crate::tool::Expectations;

/// The record; empty where the script left none.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DslRecord {
    pub(super) compiler: String,
    pub(super) options: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) error: Option<Raised>,
}

/// An exception.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Raised {
    pub(super) class: String,
    pub(super) message: String,
    pub(super) chain: Vec<ErrorLink>,
    pub(super) traceback: String,
}

/// Lines of an exception that are shown; the rest is in the log.
const SHOWN: usize = 24;

impl DslRecord {
    pub(super) fn read(folder: &RunFolder) -> Self {
        let bytes = folder.read("raw/dsl.json").unwrap_or_default();
        // A script that was killed leaves none, or half of one.
        serde_json::from_slice(&bytes).unwrap_or_default()
    }
}

impl Raised {
    /// The exception as a user sees it: where in the user's files, then the first cause's words.
    pub(super) fn shown(&self, expect: &Expectations) -> String {
        let traceback = expect.localize(&self.traceback);
        let mut lines: Vec<&str> = Vec::new();
        let mut all = traceback.lines().peekable();
        while let Some(line) = all.next() {
            let is_users = expect
                .sources
                .iter()
                .any(|source| line.contains(&format!("File \"{}\"", source.here.display())));
            if is_users {
                lines.push(line.trim_end());
                // The line of code and its marks stand below.
                while let Some(below) = all.next_if(|below| below.starts_with("    ")) {
                    lines.push(below.trim_end());
                }
            }
        }
        let first = self.chain.first();
        let (class, message) =
            first.map_or((&self.class, &self.message), |link| (&link.class, &link.message));
        let message = expect.localize(message);
        let words = format!("{class}: {message}");
        lines.extend(words.lines());
        let skip = lines.len().saturating_sub(SHOWN);
        lines[skip..].join("\n")
    }
}
