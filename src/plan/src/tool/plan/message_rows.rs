//! Short forms of diagnosis tables: each tool has a constant list of rows.

use rgpu_protocol::pattern::{Condition, LadderAction, Source};
use rgpu_protocol::{DiagnosisRule, Pattern};

/// The effect of a row on a ladder. Ids of rungs are filled in when the ladder is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowAction {
    /// Goes to the next rung.
    Next,
    /// Skips the other rungs of this tool.
    LeaveTool,
    /// Skips the other rungs of this tool; stops if the user set filters, which may be the reason.
    LeaveUnfiltered,
    /// Goes to the tool's rung without counters or, if there is none, skips the tool's other rungs.
    ToCounterless,
    /// Stops: no rung could do better.
    Stop,
    /// As [`RowAction::Next`], but only after a failure that is known otherwise: a working tool may
    /// print the message too.
    FailedNext,
    /// As [`RowAction::LeaveTool`], but only after a failure that is known otherwise.
    FailedLeave,
    /// As [`RowAction::Stop`], but only after a failure that is known otherwise.
    FailedStop,
    /// Only adds a note.
    Note,
    /// Stops for a kernel: no rung could do better. For a program as [`RowAction::FailedStop`]:
    /// what was measured before its error counts.
    StopKernel,
}

/// A row of a table: the pattern to look for, the reason code, and the action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageRow(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) RowAction,
);

/// The rungs that the rows of a table may go to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NextRungs<'a> {
    /// The first rung below that belongs to another tool; `None` if there is none.
    pub(crate) leave: Option<&'a str>,
    /// The rung that needs no counters; `None`: go to `leave`.
    pub(crate) counterless: Option<&'a str>,
    /// Whether the target is a kernel, not a program.
    pub(crate) kernel: bool,
    /// Whether the user set filters, or passed arguments that may contain some.
    pub(crate) filtered: bool,
}

/// The diagnosis table for one rung of a ladder.
pub(crate) fn table(rows: &[MessageRow], next_rungs: NextRungs<'_>) -> Vec<DiagnosisRule> {
    let rung_or_stop = |rung: Option<&str>| match rung {
        Some(rung) => LadderAction::Rung(rung.to_owned()),
        None => LadderAction::Stop,
    };
    rows.iter()
        .map(|MessageRow(pattern, code, action)| DiagnosisRule {
            source: Source::Output,
            pattern: Pattern::new(*pattern),
            code: (*code).to_owned(),
            when: match action {
                RowAction::FailedNext | RowAction::FailedLeave | RowAction::FailedStop => {
                    Condition::Failed
                }
                RowAction::StopKernel if !next_rungs.kernel => Condition::Failed,
                _ => Condition::Always,
            },
            then: match action {
                RowAction::Next | RowAction::FailedNext => LadderAction::Next,
                RowAction::LeaveUnfiltered if next_rungs.filtered => LadderAction::Stop,
                RowAction::LeaveTool | RowAction::FailedLeave | RowAction::LeaveUnfiltered => {
                    rung_or_stop(next_rungs.leave)
                }
                RowAction::ToCounterless => {
                    rung_or_stop(next_rungs.counterless.or(next_rungs.leave))
                }
                RowAction::Stop | RowAction::FailedStop | RowAction::StopKernel => {
                    LadderAction::Stop
                }
                RowAction::Note => LadderAction::Note,
            },
        })
        .collect()
}
