//! Building with zig as C compiler and linker: it brings the stubs of every glibc, so that what is
//! built here asks for no newer one than it is told.

use super::{DistError, Target};
use crate::command;
use crate::environment;
use crate::workspace::Workspace;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `files` of their packages; the folder they lie in.
pub(super) fn build(
    workspace: &Workspace,
    target: &Target,
    files: &[(&str, &str)],
) -> Result<PathBuf, DistError> {
    let tools = workspace.target.join("zig/env");
    environment::provide(&tools, &workspace.root.join("xtask/zig-wheels.txt"))?;
    standard_library(target)?;
    let mut build = workspace.cargo();
    build.env("PATH", path_with(&tools.join("bin")));
    build.args(["zigbuild", "--profile", "dist", "--target", &target.with_glibc()]);
    for (package, _) in files {
        build.args(["--package", package]);
    }
    command::run(&mut build)?;
    Ok(workspace.target.join(target.triple).join("dist"))
}

/// Our tools come first: cargo finds its `zigbuild` there, and that finds zig.
fn path_with(folder: &Path) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(usual) = std::env::var_os("PATH") {
        path.push(":");
        path.push(usual);
    }
    path
}

/// Brings Rust's own libraries for the target, where rustup is there to do so.
fn standard_library(target: &Target) -> Result<(), DistError> {
    let is_there = || {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
        let mut ask = Command::new(rustc);
        ask.args(["--print", "target-libdir", "--target", target.triple]);
        command::output(&mut ask).is_ok_and(|folder| Path::new(folder.trim()).is_dir())
    };
    if !is_there() && command::answers("rustup", "--version") {
        command::run(Command::new("rustup").args(["target", "add", target.triple]))?;
    }
    if is_there() { Ok(()) } else { Err(DistError::NoStd { triple: target.triple }) }
}
