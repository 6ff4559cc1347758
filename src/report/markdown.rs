//! Markdown, for run folders, pull requests and people who do not read profiles: one file each for
//! the run, its kernels, its operators, and those who hold a stake in it.
//!
//! Every file has all of its headings always; a section without data says why there is none.

mod kernels;
mod operators;
mod run;
mod stakeholder;

use super::{Align, Document, Grid, Style, Subject};

/// `report.md`, `kernels.md`, `operators.md`, `stakeholder_summary.md`.
pub(super) fn render(subject: &Subject<'_>, _: &Style) -> Vec<Document> {
    vec![
        Document::new("report.md", run::report(subject.profile)),
        Document::new("kernels.md", kernels::report(subject.profile)),
        Document::new("operators.md", operators::report(subject.profile)),
        Document::new("stakeholder_summary.md", stakeholder::report(subject)),
    ]
}

/// A table, or why there is none.
fn section(out: &mut String, grid: Grid, empty: &str) {
    if grid.is_empty() {
        out.push_str(empty);
        out.push_str("\n\n");
    } else {
        out.push_str(&grid.without_empty_columns().markdown());
        out.push('\n');
    }
}

/// Foreign text in Markdown: what would be markup is escaped, control characters are shown.
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
