//! Exit statuses of `rgpu exec` when rgpu itself fails, distinct from the program's.

use rgpu_protocol::event::StartError;
use rgpu_protocol::plan::HangDetection;

use super::app::{Status, show_failure};
use super::unmeasured::NOT_MEASURED;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::run::ProgramExit;

/// Exit status of `rgpu exec` when rgpu fails, not the program.
const OWN_FAILURE: u8 = 125;

/// Exit statuses of a program that cannot be executed, and of one not found, as of shells, env
/// and docker.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Prints a failure of rgpu and returns the status for it. Cancellation and usage errors are
/// returned.
pub(in crate::cli) fn show_own_failure(failure: Failure, json: bool) -> Result<Status> {
    match failure.exit {
        Exit::Cancelled | Exit::Usage if status_of_start(&failure).is_none() => Err(failure),
        _ => {
            let status = status_of_failure(&failure);
            show_failure(&failure, status, json);
            Ok(status)
        }
    }
}

/// The status of a command that failed on rgpu's side, or whose program hung under a profiler.
pub(in crate::cli) fn status_of_failure(failure: &Failure) -> u8 {
    if let Some(status) = status_of_start(failure) {
        return status;
    }
    match failure.exit {
        Exit::Cancelled | Exit::Usage => failure.exit as u8,
        // As of `rgpu profile`: the program ended well.
        _ if failure.code == NOT_MEASURED => failure.exit as u8,
        _ if failure.code == HangDetection::CODE => ProgramExit::Hung.status(),
        _ => OWN_FAILURE,
    }
}

/// The status of a program that did not start. `None` if something else failed.
fn status_of_start(failure: &Failure) -> Option<u8> {
    Some(match failure.start_error? {
        StartError::NotFound => NOT_FOUND,
        StartError::NotExecutable => NOT_EXECUTABLE,
    })
}
