//! Opens files and links with the desktop's default program.

use rgpu_model::error::{Exit, Failure, Result};

/// Opens a file or a link with the desktop's default program. `what` names it in the failure: "the
/// report".
pub(in crate::cli) fn open_on_desktop(what: &str, target: &str) -> Result<()> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let ended = std::process::Command::new(program).arg(target).status();
    let failure = || {
        Failure::new(Exit::Disk, "open", format!("{what} cannot be opened"))
            .hint("open it yourself")
    };
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failure().cause(format!("`{program}` ended with {status}"))),
        Err(e) => Err(failure().cause(format!("`{program}`: {e}"))),
    }
}
