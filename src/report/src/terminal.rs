//! The short terminal report, made for 80 columns: how fast, what to try, and the numbers behind it.

mod code;
mod findings;
pub(crate) mod head;
mod hotspots;
pub(crate) mod launches;
mod page;
mod ranks;
pub(crate) mod selection;
pub(crate) mod stages;
mod timeline;

use page::Page;

use super::{Document, ReportInput, Style};

/// The maximum number of rows per table; the profile has all.
const MAX_ROWS: usize = 12;

/// The profile as a short text.
pub(super) fn render(subject: &ReportInput<'_>, style: &Style) -> Vec<Document> {
    let profile = subject.profile;
    let mut page = Page { out: String::new(), style, names: style.names.labels(profile) };
    head::add_head(&mut page, profile);
    findings::add_findings(&mut page, profile);
    findings::add_kernel_verdicts(&mut page, profile);
    selection::add_selection(&mut page, profile);
    launches::add_launches(&mut page, profile);
    if let Some(spots) = subject.hotspots {
        hotspots::add_hotspots(&mut page, spots);
    }
    timeline::add_kernels(&mut page, profile);
    match profile.ranks {
        Some(_) => ranks::add_ranks(&mut page, profile),
        None => timeline::add_busy_time(&mut page, profile),
    }
    if profile.stages.is_empty() {
        timeline::add_regions(&mut page, profile);
    } else {
        // Stages show the same as regions, but shorter.
        stages::add_stages(&mut page, profile);
    }
    stages::add_operators(&mut page, profile);
    code::add_sanitizer(&mut page, profile);
    code::add_code(&mut page, profile);
    findings::add_rung_and_gaps(&mut page, profile);
    vec![Document::new("report.txt", page.out)]
}
