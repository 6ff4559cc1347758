//! Answers that do not come from the agent but from a platform, a proxy or a provider's service.
//!
//! Each source has a table of its known answers, the most specific first. The first matching row
//! names what happened and what to do about it.

use rgpu_model::error::Failure;

/// An answer that does not come from the agent, with its meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformError {
    /// The HTTP status; 0: text within a stream.
    pub status: u16,
    /// The error's code in `--json`.
    pub code: &'static str,
    /// The error, in one line.
    pub what: String,
    /// The start of the server's own text.
    pub body: String,
    /// What to do next; `REMOTE` is replaced by the remote's name.
    pub hint: &'static str,
    /// Whether it may go away by itself, so that a retry may help.
    pub is_transient: bool,
    /// Whether it ends the session with the host.
    pub loses_host: bool,
}

impl PlatformError {
    /// The refusal on one line.
    pub(super) fn line(&self) -> String {
        format!("{} ({})", self.what, self.body)
    }

    /// Adds the cause and the next step.
    pub(super) fn explain(&self, failure: Failure, remote: &str) -> Failure {
        let failure = match self.body.as_str() {
            "" => failure,
            body => failure.cause(body),
        };
        // A remote given by its address has no name yet.
        let hint = if remote.contains("://") {
            self.hint.replace("REMOTE URL", &format!("NAME {remote}"))
        } else {
            self.hint.to_owned()
        };
        let hint = hint.replace("REMOTE", remote);
        if hint.is_empty() { failure } else { failure.hint(hint) }
    }
}

/// A pattern for an answer, and its meaning.
pub(super) struct PlatformErrorPattern {
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
    /// Whether it may go away by itself, so that a retry may help.
    pub(super) is_transient: bool,
    /// Whether it ends the session with the host.
    loses_host: bool,
}

impl PlatformErrorPattern {
    /// The refusal that matched this row.
    pub(super) fn refusal(&self, status: u16, what: String, body: String) -> PlatformError {
        let Self { code, hint, is_transient, loses_host, .. } = *self;
        PlatformError { status, code, what, body, hint, is_transient, loses_host }
    }
}

/// A row for an answer that stays until somebody acts.
pub(super) const fn row(
    status: u16,
    holds: &'static str,
    code: &'static str,
    what: &'static str,
    hint: &'static str,
) -> PlatformErrorPattern {
    PlatformErrorPattern { status, holds, code, what, hint, is_transient: false, loses_host: false }
}

/// The same row, for an answer that ends the session with the host.
pub(super) const fn losing_host(row: PlatformErrorPattern) -> PlatformErrorPattern {
    PlatformErrorPattern { loses_host: true, ..row }
}

/// A row for an answer that may go away by itself.
pub(super) const fn transient(
    status: u16,
    holds: &'static str,
    code: &'static str,
    what: &'static str,
    hint: &'static str,
) -> PlatformErrorPattern {
    PlatformErrorPattern { is_transient: true, ..row(status, holds, code, what, hint) }
}

/// The first row that matches this status (0: a message without one) and text.
pub(super) fn find<'a>(
    tables: &[&'a [PlatformErrorPattern]],
    status: u16,
    text: &str,
) -> Option<&'a PlatformErrorPattern> {
    let fits = |row: &&PlatformErrorPattern| {
        (row.status == 0 || row.status == status) && text.contains(row.holds)
    };
    tables.iter().copied().flatten().find(fits)
}
