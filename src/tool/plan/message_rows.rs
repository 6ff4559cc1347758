//! Short forms for diagnosis tables: a tool's table is a list of rows as constants.

use rgpu_protocol::pattern::{Condition, LadderAction, Source};
use rgpu_protocol::{Diagnosis, Pattern};

/// What a row does to a ladder; a rung's id is known only when the ladder is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowAction {
    /// The next rung.
    Next,
    /// Past every rung of this tool.
    Leave,
    /// Past every rung of this tool, unless the user's own filters are the reason.
    LeaveUnfiltered,
    /// To the tool's rung that needs no counters, or past it.
    Counterless,
    /// No rung could do better.
    Stop,
    /// As [`RowAction::Next`], but only to explain a failure that shows otherwise: a working tool may
    /// print these words too.
    FailedNext,
    /// As [`RowAction::Stop`], likewise.
    FailedStop,
    /// Only a remark.
    Note,
    /// No rung of a kernel could do better; a program's own matter is only a remark.
    StopKernel,
}

/// A row: what to look for, its code, what follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageRow(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) RowAction,
);

/// The rungs that a table's rows may go to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NextRungs<'a> {
    /// The first rung of another tool below; `None`: none.
    pub(crate) leave: Option<&'a str>,
    /// The rung that needs no counters; `None`: as `leave`.
    pub(crate) counterless: Option<&'a str>,
    /// Whether the program is ours to judge.
    pub(crate) kernel: bool,
    /// Whether the user chose kernels, launches or regions.
    pub(crate) filtered: bool,
}

/// A table for one rung of a ladder.
pub(crate) fn table(rows: &[MessageRow], ways: NextRungs<'_>) -> Vec<Diagnosis> {
    let to = |rung: Option<&str>| match rung {
        Some(rung) => LadderAction::Rung(rung.to_owned()),
        None => LadderAction::Stop,
    };
    rows.iter()
        .map(|MessageRow(pattern, code, go)| Diagnosis {
            source: Source::Output,
            pattern: Pattern::new(*pattern),
            code: (*code).to_owned(),
            when: match go {
                RowAction::FailedNext | RowAction::FailedStop => Condition::Failed,
                _ => Condition::Always,
            },
            then: match go {
                RowAction::Next | RowAction::FailedNext => LadderAction::Next,
                RowAction::LeaveUnfiltered if ways.filtered => LadderAction::Stop,
                RowAction::Leave | RowAction::LeaveUnfiltered => to(ways.leave),
                RowAction::Counterless => to(ways.counterless.or(ways.leave)),
                RowAction::Stop | RowAction::FailedStop => LadderAction::Stop,
                RowAction::Note => LadderAction::Note,
                RowAction::StopKernel if ways.kernel => LadderAction::Stop,
                RowAction::StopKernel => LadderAction::Note,
            },
        })
        .collect()
}
