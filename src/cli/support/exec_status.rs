//! Exit statuses of `rgpu exec` when rgpu itself fails, distinct from the program's.

use super::app::{Status, show_failure};
use crate::error::{Exit, Failure, Result};

/// Exit status of `rgpu exec` when rgpu fails, not the program.
const OWN_FAILURE: u8 = 125;

/// Prints a failure of rgpu and returns the status for it. Cancellation and usage errors are
/// returned.
pub(in crate::cli) fn show_own_failure(failure: Failure, json: bool) -> Result<Status> {
    match status_of_failure(&failure) {
        OWN_FAILURE => {
            show_failure(&failure, OWN_FAILURE, json);
            Ok(OWN_FAILURE)
        }
        _ => Err(failure),
    }
}

/// The status of a command that failed on rgpu's side.
pub(in crate::cli) fn status_of_failure(failure: &Failure) -> u8 {
    match failure.exit {
        Exit::Cancelled | Exit::Usage => failure.exit as u8,
        _ => OWN_FAILURE,
    }
}
