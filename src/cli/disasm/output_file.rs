//! Writes a view to stdout or a file. Refuses to overwrite an input, and without `--force` any file
//! that is not an earlier view of the same kind.

#![expect(clippy::disallowed_methods, reason = "the file that the user named with `--out`")]

use std::path::{Path, PathBuf};

use super::DisasmArgs;
use crate::cli::support::app::App;
use crate::cli::support::overwrite;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::store::atomic;

/// Where to write, and which files must not be overwritten.
#[derive(Clone, Copy)]
pub(super) struct OutputFile<'a> {
    pub(super) path: &'a Path,
    pub(super) args: &'a DisasmArgs,
    pub(super) inputs: &'a [PathBuf],
}

/// Prints `text`, or writes it into a file and prints the path.
pub(super) fn write_text(app: &App, into: Option<OutputFile<'_>>, text: &str) -> Result<()> {
    let Some(OutputFile { path: out, args, inputs }) = into else {
        app.print(text);
        return Ok(());
    };
    if inputs.iter().any(|input| is_same_file(input, out)) {
        return Err(Failure::new(
            Exit::Usage,
            "input_file",
            "the output would overwrite its input",
        )
        .file(out.display())
        .hint("write to another path with `--out PATH`"));
    }
    if !args.force {
        refuse_other_kind(out, text)?;
    }
    if let Some(folder) = out.parent().filter(|f| !f.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| unwritten(folder, &e))?;
    }
    atomic::write(out, text.as_bytes()).map_err(|e| unwritten(out, &e))?;
    app.print(&format!("{}\n", out.display()));
    Ok(())
}

/// Whether two paths lead to the same existing file.
pub(super) fn is_same_file(a: &Path, b: &Path) -> bool {
    a.canonicalize().ok().is_some_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

/// Refuses to overwrite a file that is not of the same kind as the new text.
fn refuse_other_kind(path: &Path, new: &str) -> Result<()> {
    if new.starts_with("<!doctype") {
        return overwrite::check(path, new.as_bytes());
    }
    let Some(old) = overwrite::head(path).filter(|old| !old.is_empty()) else { return Ok(()) };
    let old = String::from_utf8_lossy(&old);
    if signature(&old) == signature(new) {
        Ok(())
    } else {
        Err(overwrite::refused(path, "the existing file is not a view of this kind"))
    }
}

/// The text that identifies a view: a known beginning, else the first line.
fn signature(text: &str) -> &str {
    /// Known beginnings: control flow as SVG and as Graphviz, listings of rgpu and of nvdisasm.
    const BEGINNINGS: [&str; 5] = ["<svg ", "digraph cfg", "// sm_", ".headerflags", ".target"];
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    if let Some(begins) = BEGINNINGS.iter().find(|b| line.starts_with(**b)) {
        return begins;
    }
    // Views that go kernel by kernel begin with the kernel and its architecture.
    if line.contains(" (sm_") { " (sm_" } else { line }
}

fn unwritten(path: &Path, cause: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Disk, "unwritten", "the file cannot be written")
        .file(path.display())
        .cause(cause)
}
