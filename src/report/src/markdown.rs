//! Markdown reports for run folders, pull requests and readers who do not read profiles: one file
//! each for the run, its kernels, its operators, and a summary for stakeholders.
//!
//! Every file always has all its headings; a section without data says why.

mod kernels;
mod operators;
mod run;
mod stakeholder;

use super::kernel_name::KernelLabels;
use super::text::one_line;
use super::{Document, ReportInput, Style, TextTable};

/// `report.md`, `kernels.md`, `operators.md`, `stakeholder_summary.md`.
pub(super) fn render(subject: &ReportInput<'_>, style: &Style) -> Vec<Document> {
    let names = style.names.labels(subject.profile);
    vec![
        Document::new("report.md", run::report(subject.profile, &names)),
        Document::new("kernels.md", kernels::report(subject.profile, &names)),
        Document::new("operators.md", operators::report(subject.profile, &names)),
        Document::new("stakeholder_summary.md", stakeholder::report(subject, &names)),
    ]
}

/// Writes a table, or `empty` if it has no rows.
fn section(out: &mut String, table: TextTable, empty: &str) {
    if table.is_empty() {
        out.push_str(empty);
        out.push_str("\n\n");
    } else {
        out.push_str(&table.without_empty_columns().markdown());
        out.push('\n');
    }
}

/// Escapes foreign text for Markdown; control characters become visible escapes.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '*' | '_' | '`' | '[' | ']' | '\\' | '#' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// A text of ours: what it has in backticks stays code, and the rest is escaped.
pub(super) fn sentence(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return plain(text);
    }
    let part = |(at, part): (usize, &&str)| match at % 2 {
        0 => plain(part),
        _ => format!("`{}`", one_line(part)),
    };
    parts.iter().enumerate().map(part).collect()
}
