//! The sections of a profile's report, each written once: blocks of what a section shows. The
//! terminal and the Markdown reports are made of them.

mod account;
mod code;
pub(crate) mod findings;
mod head;
mod hotspots;
mod launches;
mod ranks;
pub(crate) mod selection;
pub(crate) mod stages;
pub(crate) mod timeline;

use super::ReportInput;
use super::blocks::Blocks;
use super::kernel_name::{KernelLabels, KernelNames};
pub(crate) use account::add_short_account;
use rgpu_model::Profile;

/// The maximum number of rows per table; the profile has all.
const MAX_ROWS: usize = 12;

/// The profile that sections show, and how.
pub(crate) struct View<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) names: KernelLabels<'a>,
    /// Whether everything is shown, as in a file, rather than what fits a terminal.
    pub(crate) is_whole: bool,
}

impl<'a> View<'a> {
    pub(crate) fn new(profile: &'a Profile, names: KernelNames, is_whole: bool) -> Self {
        Self { profile, names: names.labels(profile), is_whole }
    }

    /// The most rows of a table that has `short` on a terminal.
    fn rows(&self, short: usize) -> usize {
        if self.is_whole { usize::MAX } else { short }
    }
}

/// The whole report.
pub(crate) fn report(input: &ReportInput<'_>, view: &View<'_>) -> Blocks {
    let profile = view.profile;
    let mut out = Blocks::default();
    head::add_head(&mut out, view);
    account::add_account(&mut out, view);
    findings::add_findings(&mut out, view);
    findings::add_kernel_verdicts(&mut out, view);
    selection::add_selection(&mut out, view);
    launches::add_launches(&mut out, view);
    if let Some(spots) = input.hotspots {
        hotspots::add_hotspots(&mut out, view, spots);
    }
    timeline::add_kernels(&mut out, view);
    match &profile.ranks {
        Some(ranks) => ranks::add_ranks(&mut out, ranks),
        None => timeline::add_busy_time(&mut out, view),
    }
    // Stages show the same as regions, but shorter.
    if profile.stages.is_empty() || view.is_whole {
        timeline::add_regions(&mut out, view);
    }
    stages::add_stages(&mut out, view);
    stages::add_operators(&mut out, view);
    code::add_sanitizer(&mut out, view);
    code::add_code(&mut out, view);
    findings::add_rung_and_gaps(&mut out, view);
    out
}
