//! The ranks of a program: how each spent its time, and for which rank the others wait.

use super::Page;
use crate::ranks;
use rgpu_model::Profile;

/// Writes the tables of the ranks.
pub(super) fn add_ranks(page: &mut Page<'_>, profile: &Profile) {
    let Some(of_program) = &profile.ranks else { return };
    page.line("");
    page.field("clock", &ranks::clock(&of_program.clock));
    if let Some(step) = ranks::slowest_step(of_program) {
        page.field("steps", &step);
    }
    page.table("ranks", ranks::times(of_program));
    page.table("idle time of ranks", ranks::idle(of_program));
    page.table("collectives", ranks::collectives(of_program));
    page.table("collectives that waited longest", ranks::waits(of_program));
    if let Some(rest) = ranks::left_out(of_program) {
        page.line("");
        page.line(&format!("    … and {rest}"));
    }
}
