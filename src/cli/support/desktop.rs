//! Opens files and links with the desktop's default program.

use std::io::Write;

use tempfile::NamedTempFile;

use super::terminal::write_stderr;
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

/// Opens a link with a secret in it. The browser reads it from a file of the user, which lasts as
/// long as the returned value: others can see command lines.
pub(in crate::cli) fn open_secret_link(title: &str, link: &str) -> Result<NamedTempFile> {
    let failed = |e: std::io::Error| {
        Failure::new(Exit::Disk, "disk", "a file for the browser cannot be written").cause(e)
    };
    let file = tempfile::Builder::new().prefix("rgpu-link-").suffix(".html").tempfile();
    let mut file = file.map_err(failed)?;
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{title}</title>\
         <meta http-equiv=\"refresh\" content=\"0;url={link}\">\n"
    );
    file.write_all(page.as_bytes()).map_err(failed)?;
    let path = file.path().display().to_string();
    // A browser that was not running yet may end only when its user closes it.
    std::thread::spawn(move || {
        if let Err(failure) = open_on_desktop("the link", &path) {
            write_stderr(&format!("{}: open it yourself\n", failure.what));
        }
    });
    Ok(file)
}
