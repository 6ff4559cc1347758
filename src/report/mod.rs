//! A profile made readable. A report is one file here and one line in [`REPORTS`].
//!
//! Reports take the [`Profile`] alone: no network, no GPU, no other file. They are pure functions,
//! so that snapshots hold what users read.

mod grid;
mod json;
mod markdown;
mod quantity;
mod terminal;

pub use grid::{Align, Grid};
pub use quantity::{bytes, duration, per_second, percent};

use crate::model::Profile;

/// How a report may look.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Columns to fit in.
    pub width: usize,
    /// Whether SGR colours may be used.
    pub color: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { width: 80, color: false }
    }
}

/// A report.
pub struct Report {
    /// What `--format` calls it.
    pub id: &'static str,
    /// Renders a profile; the text ends with a newline.
    pub render: fn(&Profile, &Style) -> String,
}

/// Every report.
pub static REPORTS: &[Report] = &[
    Report { id: "table", render: terminal::render },
    Report { id: "json", render: json::render },
    Report { id: "markdown", render: markdown::render },
];

/// The report of this name.
pub fn report(id: &str) -> Option<&'static Report> {
    REPORTS.iter().find(|r| r.id == id)
}
