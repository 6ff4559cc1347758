//! Builds with zig as C compiler and linker. It has the stubs of every glibc, so that the output
//! requires no newer glibc than requested.

use super::{DistError, Target, at};
use crate::command;
use crate::environment;
use crate::workspace::Workspace;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `files` of their packages; returns their folder.
pub(super) fn build(
    workspace: &Workspace,
    target: &Target,
    files: &[(&str, &str)],
) -> Result<PathBuf, DistError> {
    let tools = tools(workspace)?;
    standard_library(target.triple)?;
    let mut build = workspace.cargo();
    build.env("PATH", path_with(&tools.join("bin")));
    // The variable with dashes takes precedence over the one that cargo-zigbuild sets.
    let name = format!("BINDGEN_EXTRA_CLANG_ARGS_{}", target.triple);
    build.env(name, headers(&library(&tools)?, target));
    build.args(["zigbuild", "--profile", "dist", "--target", &target.with_glibc()]);
    for (package, _) in files {
        build.args(["--package", package]);
    }
    command::run(&mut build)?;
    Ok(workspace.target.join(target.triple).join("dist"))
}

/// Checks that `package` compiles for `triple`, with zig as the compiler of its parts in C.
pub(super) fn check(
    workspace: &Workspace,
    triple: &'static str,
    package: &str,
) -> Result<(), DistError> {
    let tools = tools(workspace)?;
    standard_library(triple)?;
    let bin = tools.join("bin");
    // Not a subcommand of cargo, as `cargo zigbuild` is.
    let mut check = Command::new(bin.join("cargo-zigbuild"));
    check.env("PATH", path_with(&bin)).current_dir(&workspace.root);
    command::run(check.args(["check", "--locked", "--target", triple, "--package", package]))?;
    Ok(())
}

/// The environment with zig and cargo-zigbuild.
fn tools(workspace: &Workspace) -> Result<PathBuf, DistError> {
    let tools = workspace.target.join("zig/env");
    environment::provide(&tools, &workspace.root.join("xtask/zig-wheels.txt"))?;
    Ok(tools)
}

/// The folder of zig's headers.
fn library(tools: &Path) -> Result<PathBuf, DistError> {
    let folder = tools.join("lib");
    for entry in fs::read_dir(&folder).map_err(at(&folder))? {
        let library = entry.map_err(at(&folder))?.path().join("site-packages/ziglang/lib");
        if library.is_dir() {
            return Ok(library);
        }
    }
    let missing = io::Error::new(io::ErrorKind::NotFound, "the wheels left no folder `ziglang`");
    Err(DistError::Place { path: folder, source: missing })
}

/// The arguments with which libclang finds zig's headers of the target for bindings. cargo-zigbuild
/// passes zig's own command line, in which older releases of libclang find no folder.
fn headers(library: &Path, target: &Target) -> OsString {
    let (gnu, any) = (format!("{}-linux-gnu", target.zig), format!("{}-linux-any", target.zig));
    let mut words = OsString::from("-nostdinc");
    for folder in ["include", &gnu, "generic-glibc", &any, "any-linux-any"] {
        let folder = match folder {
            "include" => library.join(folder),
            _ => library.join("libc/include").join(folder),
        };
        words.push(" -isystem '");
        words.push(folder);
        words.push("'");
    }
    words
}

/// Our tools come first: cargo finds its `zigbuild` there, which then finds zig.
fn path_with(folder: &Path) -> OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(usual) = std::env::var_os("PATH") {
        path.push(":");
        path.push(usual);
    }
    path
}

/// Installs Rust's own libraries for the target, if rustup is available.
fn standard_library(triple: &'static str) -> Result<(), DistError> {
    let is_there = || {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
        let mut ask = Command::new(rustc);
        ask.args(["--print", "target-libdir", "--target", triple]);
        command::output(&mut ask).is_ok_and(|folder| Path::new(folder.trim()).is_dir())
    };
    if !is_there() && command::answers("rustup", "--version") {
        command::run(Command::new("rustup").args(["target", "add", triple]))?;
    }
    if is_there() { Ok(()) } else { Err(DistError::NoStd { triple }) }
}
