//! Answers that are none of the agent's: of a platform, a proxy, a provider's service.
//!
//! Each has a table of what it is known to say, the most telling rows first; the first row that
//! fits names what happened, and what to do about it.

/// How an answer is known, and what it means.
pub(super) struct RefusalRow {
    /// Its status; 0: any.
    status: u16,
    /// What its body holds; empty: anything.
    holds: &'static str,
    /// The code under which `--json` names it.
    pub(super) code: &'static str,
    /// What happened.
    pub(super) what: &'static str,
    /// What to do next; `REMOTE` stands for the remote's name.
    pub(super) hint: &'static str,
    /// Whether it may pass by itself.
    pub(super) passes: bool,
}

/// What stays until somebody does something about it.
pub(super) const fn row(
    status: u16,
    holds: &'static str,
    code: &'static str,
    what: &'static str,
    hint: &'static str,
) -> RefusalRow {
    RefusalRow { status, holds, code, what, hint, passes: false }
}

/// What may pass by itself.
pub(super) const fn passing(
    status: u16,
    holds: &'static str,
    code: &'static str,
    what: &'static str,
    hint: &'static str,
) -> RefusalRow {
    RefusalRow { passes: true, ..row(status, holds, code, what, hint) }
}

/// The first row that fits an answer of this status (0: words that came without one) and text.
pub(super) fn find<'a>(
    tables: &[&'a [RefusalRow]],
    status: u16,
    text: &str,
) -> Option<&'a RefusalRow> {
    let fits =
        |row: &&RefusalRow| (row.status == 0 || row.status == status) && text.contains(row.holds);
    tables.iter().copied().flatten().find(fits)
}
