//! Answers that do not come from the agent but from a platform, a proxy or a provider's service.
//!
//! Each source has a table of its known answers, the most specific first. The first matching row
//! names what happened and what to do about it.

/// A pattern for an answer, and its meaning.
pub(super) struct RefusalRow {
    /// The HTTP status; 0: any.
    status: u16,
    /// A substring of the body; empty: any body.
    holds: &'static str,
    /// The error's code in `--json`.
    pub(super) code: &'static str,
    /// The failure in words, for users.
    pub(super) what: &'static str,
    /// What to do next; `REMOTE` is replaced by the remote's name.
    pub(super) hint: &'static str,
    /// Whether a retry may help.
    pub(super) passes: bool,
}

/// A row for an answer that stays until somebody acts.
pub(super) const fn row(
    status: u16,
    holds: &'static str,
    code: &'static str,
    what: &'static str,
    hint: &'static str,
) -> RefusalRow {
    RefusalRow { status, holds, code, what, hint, passes: false }
}

/// A row for an answer that may go away by itself.
pub(super) const fn passing(
    status: u16,
    holds: &'static str,
    code: &'static str,
    what: &'static str,
    hint: &'static str,
) -> RefusalRow {
    RefusalRow { passes: true, ..row(status, holds, code, what, hint) }
}

/// The first row that matches this status (0: a message without one) and text.
pub(super) fn find<'a>(
    tables: &[&'a [RefusalRow]],
    status: u16,
    text: &str,
) -> Option<&'a RefusalRow> {
    let fits =
        |row: &&RefusalRow| (row.status == 0 || row.status == status) && text.contains(row.holds);
    tables.iter().copied().flatten().find(fits)
}
