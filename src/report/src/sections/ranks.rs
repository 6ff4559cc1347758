//! The ranks of a program: how each spent its time, and for which rank the others wait.

use crate::blocks::{Block, Blocks};
use crate::ranks;
use rgpu_model::ranks::Ranks;

/// Adds the tables of the ranks.
pub(super) fn add_ranks(out: &mut Blocks, of_program: &Ranks) {
    out.add(Block::Group("clocks of the ranks"));
    out.field("clock", ranks::clock(&of_program.clock));
    if let Some(step) = ranks::slowest_step(of_program) {
        out.field("steps", step);
    }
    out.table("ranks", ranks::times(of_program));
    out.table("idle time of ranks", ranks::idle(of_program));
    out.table("collectives", ranks::collectives(of_program));
    out.table("collectives that waited longest", ranks::waits(of_program));
    if let Some(rest) = ranks::left_out(of_program) {
        out.add(Block::Group(""));
        out.note(format!("… and {rest}"));
    }
}
