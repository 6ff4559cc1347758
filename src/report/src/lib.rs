//! Renders profiles. Each report format is one file here and one line in [`REPORTS`].
//!
//! Reports are pure functions of a [`ReportInput`]: no network, no GPU, no file. So snapshot tests
//! can check their output. A report is one or several [`Document`]s; the first one is the main
//! document, which a terminal shows.

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod account;
mod blocks;
mod bound;
mod brief;
mod busy;
mod checks;
pub mod code;
pub mod comparison;
mod csv;
mod document;
mod finding;
mod headline;
mod html;
mod input;
pub mod json;
mod kernel_name;
mod kernel_sums;
mod markdown;
mod missing;
pub mod page_parts;
mod paint;
mod perfetto;
mod phrase;
pub mod prediction;
mod quantity;
mod ranks;
mod region_rows;
pub mod regions;
pub mod remotes_table;
mod sections;
pub mod suite;
mod terminal;
mod text;
mod text_table;

pub use brief::MIN_BUDGET_BYTES;
pub use csv::OneLineRows;
pub use document::{Destination, Document};
pub use finding::{code as finding_code, gain as finding_gain};
pub use input::ReportInput;
pub use kernel_name::KernelNames;
pub use paint::{BAD, DOUBTFUL, mark_own_colors, own_mark, verdict_color};
pub use quantity::{
    age, amount, bytes, cost, duration, per_second, percent, time_span, timestamp, usd,
};
pub use text::{cut_end, one_line, wrap};
pub use text_table::TextTable;

/// The output style of a report.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The terminal's width in columns.
    pub width: usize,
    /// The columns for tables of names and paths, whose rows stay one line in a pipe.
    pub table_width: usize,
    /// Whether SGR colours are enabled.
    pub color: bool,
    /// The maximum size in bytes of a report with a budget.
    pub budget: usize,
    /// How kernels are named.
    pub names: KernelNames,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            width: 80,
            table_width: usize::from(u16::MAX),
            color: false,
            budget: 4096,
            names: KernelNames::Short,
        }
    }
}

/// A report format and how it is written.
pub struct Report {
    /// The name for `--format`.
    pub id: &'static str,
    /// Where it goes without `--out`.
    pub destination: Destination,
    /// Whether it shows neither sections of ncu nor series nor single instructions' metrics.
    pub is_summary: bool,
    /// Returns why there is nothing to render; `None` if there is.
    pub lacks: fn(&ReportInput<'_>) -> Option<&'static str>,
    /// Renders at least one document, the main one first.
    pub render: for<'p> fn(&ReportInput<'p>, &Style) -> Vec<Document<'p>>,
}

/// All formats of `rgpu report --format`.
pub static REPORTS: &[Report] = &[
    Report {
        id: "table",
        is_summary: true,
        destination: Destination::Stdout,
        lacks: |_| None,
        render: terminal::render,
    },
    Report {
        id: "json",
        is_summary: false,
        destination: Destination::Stdout,
        lacks: |_| None,
        render: json::render,
    },
    Report {
        id: "markdown",
        is_summary: true,
        destination: Destination::Stdout,
        lacks: |_| None,
        render: markdown::render,
    },
    Report {
        id: "csv",
        is_summary: false,
        destination: Destination::Stdout,
        lacks: |_| None,
        render: csv::render,
    },
    Report {
        id: "brief",
        is_summary: true,
        destination: Destination::Stdout,
        lacks: |_| None,
        render: brief::render,
    },
    Report {
        id: "html",
        is_summary: false,
        destination: Destination::File,
        lacks: |_| None,
        render: html::render,
    },
    Report {
        id: "perfetto",
        is_summary: false,
        destination: Destination::File,
        lacks: perfetto::lacks,
        render: perfetto::render,
    },
];

/// The report format with this id.
pub fn report(id: &str) -> Option<&'static Report> {
    REPORTS.iter().find(|r| r.id == id)
}

impl Report {
    /// The main document as text, as a terminal shows it.
    pub fn text(&self, subject: &ReportInput<'_>, style: &Style) -> String {
        let documents = (self.render)(subject, style);
        documents.into_iter().next().map(Document::into_text).unwrap_or_default()
    }
}
