//! Exit statuses of `rgpu exec` when rgpu itself fails, distinct from the program's.

use rgpu_protocol::plan::HangDetection;

use super::app::{Status, show_failure};
use crate::error::{Exit, Failure, Result};
use crate::run::ProgramExit;

/// Exit status of `rgpu exec` when rgpu fails, not the program.
const OWN_FAILURE: u8 = 125;

/// Prints a failure of rgpu and returns the status for it. Cancellation and usage errors are
/// returned.
pub(in crate::cli) fn show_own_failure(failure: Failure, json: bool) -> Result<Status> {
    match failure.exit {
        Exit::Cancelled | Exit::Usage => Err(failure),
        _ => {
            let status = status_of_failure(&failure);
            show_failure(&failure, status, json);
            Ok(status)
        }
    }
}

/// The status of a command that failed on rgpu's side, or whose program hung under a profiler.
pub(in crate::cli) fn status_of_failure(failure: &Failure) -> u8 {
    match failure.exit {
        Exit::Cancelled | Exit::Usage => failure.exit as u8,
        _ if failure.code == HangDetection::CODE => ProgramExit::Stalled.status(),
        _ => OWN_FAILURE,
    }
}
