//! Opens files and links with the desktop's default program.

use rgpu_model::error::{Exit, Failure, Result};

/// The exit status of `xdg-open` where it finds no program that opens the file.
const NO_PROGRAM: i32 = 3;

/// Opens a file or a link with the desktop's default program. `what` names it in the failure: "the
/// report".
pub(in crate::cli) fn open_on_desktop(what: &str, target: &str) -> Result<()> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let ended = std::process::Command::new(program).arg(target).status();
    let no_browser = || {
        let what = format!("{what} cannot be opened: this machine has no browser or desktop");
        Failure::new(Exit::Config, "no_browser", what).hint("open it yourself")
    };
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if status.code() == Some(NO_PROGRAM) => Err(no_browser()),
        Ok(status) => {
            let what = format!("{what} cannot be opened");
            let failure = Failure::new(Exit::Config, "open", what).hint("open it yourself");
            Err(failure.cause(format!("`{program}` ended with {status}")))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(no_browser().cause(format!("there is no `{program}`")))
        }
        Err(e) => Err(no_browser().cause(format!("`{program}`: {e}"))),
    }
}
