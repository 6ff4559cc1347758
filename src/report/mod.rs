//! A profile made readable. A report is one file here and one line in [`REPORTS`].
//!
//! Reports take a [`Subject`] alone: no network, no GPU, no file. They are pure functions, so that
//! snapshots hold what users read. A report is one or several [`Document`]s; the first is the one
//! that stands for it on a terminal.

mod brief;
mod busy;
pub mod code;
pub mod comparison;
mod csv;
mod document;
mod grid;
mod headline;
mod html;
mod json;
mod markdown;
mod perfetto;
mod quantity;
pub mod regions;
pub mod remotes_table;
mod subject;
mod terminal;
mod text;

pub use brief::LEAST_BUDGET;
pub use document::{Destination, Document};
pub use grid::{Align, Grid};
pub use quantity::{bytes, cost, duration, moment, per_second, percent, usd};
pub use subject::Subject;
pub use text::wrap;

/// How a report may look.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Columns to fit in.
    pub width: usize,
    /// Whether SGR colours may be used.
    pub color: bool,
    /// Bytes that a report with a budget may take.
    pub budget: usize,
}

impl Default for Style {
    fn default() -> Self {
        Self { width: 80, color: false, budget: 4096 }
    }
}

/// A report.
pub struct Report {
    /// What `--format` calls it.
    pub id: &'static str,
    /// Where it goes unless the user says otherwise.
    pub shown: Destination,
    /// Why there is nothing to render, where that is so.
    pub lacks: fn(&Subject<'_>) -> Option<&'static str>,
    /// Renders it: at least one document, the main one first.
    pub render: fn(&Subject<'_>, &Style) -> Vec<Document>,
}

/// Every report.
pub static REPORTS: &[Report] = &[
    Report { id: "table", shown: Destination::Printed, lacks: |_| None, render: terminal::render },
    Report { id: "json", shown: Destination::Printed, lacks: |_| None, render: json::render },
    Report {
        id: "markdown",
        shown: Destination::Printed,
        lacks: |_| None,
        render: markdown::render,
    },
    Report { id: "csv", shown: Destination::Printed, lacks: |_| None, render: csv::render },
    Report { id: "brief", shown: Destination::Printed, lacks: |_| None, render: brief::render },
    Report { id: "html", shown: Destination::Filed, lacks: |_| None, render: html::render },
    Report {
        id: "perfetto",
        shown: Destination::Filed,
        lacks: perfetto::lacks,
        render: perfetto::render,
    },
];

/// The report of this name.
pub fn report(id: &str) -> Option<&'static Report> {
    REPORTS.iter().find(|r| r.id == id)
}

impl Report {
    /// The main document as text, as a terminal shows it.
    pub fn text(&self, subject: &Subject<'_>, style: &Style) -> String {
        let documents = (self.render)(subject, style);
        documents.into_iter().next().map(Document::into_text).unwrap_or_default()
    }
}
