//! The short report for a terminal, made for 80 columns: how fast, what to try, and the numbers
//! behind it.

use super::blocks::to_text;
use super::sections::{View, report};
use super::{Document, ReportInput, Style};

/// The profile as a short text.
pub(super) fn render(subject: &ReportInput<'_>, style: &Style) -> Vec<Document<'static>> {
    let blocks = report(subject, &View::new(subject.profile, style.names, false));
    vec![Document::new("report.txt", to_text(&blocks.0, style))]
}
