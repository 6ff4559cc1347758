//! Where a text goes: to stdout, or into the file that the user named.

use std::path::Path;

use crate::cli::app::App;
use crate::cli::terminal::safe;
use crate::error::{Exit, Failure, Result};
use crate::store::atomic;

/// Prints `text`, or writes it to `out` and prints that path.
pub(super) fn text(app: &App, out: Option<&Path>, text: &str) -> Result<()> {
    let Some(out) = out else {
        // Names come from files; files and pipes take them as they are.
        let tty = app.terminal.stdout_tty;
        app.print(&if tty { safe(text.as_bytes()) } else { text.to_owned() });
        return Ok(());
    };
    if let Some(folder) = out.parent().filter(|f| !f.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| unwritten(folder, &e))?;
    }
    atomic::write(out, text.as_bytes()).map_err(|e| unwritten(out, &e))?;
    app.print(&format!("{}\n", out.display()));
    Ok(())
}

fn unwritten(path: &Path, cause: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Disk, "unwritten", "the file cannot be written")
        .file(path.display())
        .cause(cause)
}
