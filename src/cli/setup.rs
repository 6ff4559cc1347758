//! `rgpu setup`: fetches optional tools of NVIDIA after the user agrees: nvdisasm and nvcc to this
//! machine, profilers to a host (`host_tool`). They are under NVIDIA's licence, so nothing is fetched
//! without consent and none of it is shipped.

mod host_tool;
mod nvcc;

use std::io::BufRead;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::support::app::{App, Status};
use super::support::nvdisasm;
use super::support::terminal::{escape_controls, write_stderr};
use host_tool::HostToolArgs;
use nvcc::NvccArgs;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::disasm::{FetchError, Installer, PipOutput, WHEEL, fetch, fetched, find, pinned};

/// The licence terms of nvdisasm.
const LICENCE: &str = "https://docs.nvidia.com/cuda/eula";

/// Install NVIDIA's optional tools
#[derive(Subcommand, Clone, Debug)]
pub(super) enum SetupCommand {
    Nvdisasm(NvdisasmArgs),
    Nvcc(NvccArgs),
    /// Install Nsight Compute on a host, which profiles single launches: 323 MB
    #[command(after_long_help = examples!(
        "rgpu setup ncu --remote h200",
        "rgpu setup ncu --remote h200 --yes",
    ))]
    Ncu(HostToolArgs),
    /// Install Nsight Systems on a host, which records timelines: 323 MB, those of ncu
    #[command(after_long_help = examples!("rgpu setup nsys --remote h200"))]
    Nsys(HostToolArgs),
    /// Install Compute Sanitizer on a host, which finds faults: 12 MB
    #[command(after_long_help = examples!("rgpu setup sanitizer --remote h200"))]
    Sanitizer(HostToolArgs),
}

/// Install NVIDIA's disassembler, which prints operands of instructions: 5 MB, no GPU needed
///
/// Your pip, or uv where pip is missing, installs the wheel nvidia-cuda-nvdisasm, pinned by its
/// hash, into a folder of rgpu.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = examples!("rgpu setup nvdisasm", "rgpu setup nvdisasm --yes"))]
pub(super) struct NvdisasmArgs {
    /// Fetch without asking
    #[arg(long, short)]
    pub yes: bool,

    /// Fetch it even if this machine has another nvdisasm
    #[arg(long)]
    pub force: bool,
}

/// The document of `--json`.
#[derive(Serialize)]
struct SetupDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    result: SetupResult<'a>,
}

/// A tool that is installed.
#[derive(Serialize)]
struct SetupResult<'a> {
    tool: &'static str,
    version: &'a str,
    path: String,
    /// Whether this command fetched it; false if it was installed already.
    fetched: bool,
}

pub(super) fn run(app: &App, command: &SetupCommand) -> Result<Status> {
    match command {
        SetupCommand::Nvdisasm(args) => nvdisasm(app, args),
        SetupCommand::Nvcc(args) => nvcc::run(app, args),
        SetupCommand::Ncu(args) => host_tool::run(app, args, "ncu"),
        SetupCommand::Nsys(args) => host_tool::run(app, args, "nsys"),
        SetupCommand::Sanitizer(args) => host_tool::run(app, args, "compute-sanitizer"),
    }
}

fn nvdisasm(app: &App, args: &NvdisasmArgs) -> Result<Status> {
    let folder = nvdisasm::fetched_folder(app);
    let version = pinned().unwrap_or_default();
    let own = find(&fetched(&folder)).filter(|tool| tool.version() == version);
    let other = || nvdisasm::find_here(app).filter(|_| !args.force);
    let there = own.or_else(other);
    let (tool, now) = match there {
        Some(tool) => (tool, false),
        None => {
            // Nobody is asked about what cannot be done.
            let installer = Installer::find().map_err(failure)?;
            let about = format!(
                "nvdisasm {version} is NVIDIA's, under its licence: {LICENCE}\n\
                 {} fetches it as `{WHEEL}` (5 MB) from the index that it is set up with",
                installer.name()
            );
            consent(app, args.yes, about, "rgpu setup nvdisasm --yes")?;
            let quiet = app.global.quiet || app.global.json;
            let pip_output = if quiet { PipOutput::Quiet } else { PipOutput::Progress };
            (fetch(&folder, &installer, pip_output).map_err(failure)?, true)
        }
    };
    let path = tool.path().map(|path| path.display().to_string()).unwrap_or_default();
    if tool.version() != version && !now {
        let other = tool.version();
        app.print_note(&format!("nvdisasm {other} is used; `--force` fetches {version}"));
    }
    show(app, SetupResult { tool: "nvdisasm", version: tool.version(), path, fetched: now })
}

/// Prints the tool that is installed now.
fn show(app: &App, result: SetupResult<'_>) -> Result<Status> {
    if app.global.json {
        app.print_json(&SetupDocument { schema: "rgpu.setup/1", result })?;
    } else {
        let SetupResult { tool, version, path, fetched } = result;
        let how = if fetched { "fetched" } else { "is installed" };
        app.print(&escape_controls(format!("{tool} {version} {how}: {path}\n").as_bytes()));
    }
    Ok(0)
}

/// Asks for consent after saying what it is about; `--yes` gives it. `command` is the one to type
/// where nobody can be asked.
fn consent(app: &App, yes: bool, about: String, command: &str) -> Result<()> {
    if yes {
        app.print_note(&about);
        return Ok(());
    }
    if !app.is_attended() {
        return Err(Failure::new(
            Exit::Usage,
            "no_consent",
            "nothing is fetched without your consent",
        )
        .cause(about)
        .hint(format!("`{command}` gives your consent")));
    }
    let mut answer = String::new();
    write_stderr(&format!("{about}\nFetch it? [y/N] "));
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::new(Exit::Cancelled, "cancelled", "nothing was fetched"))
    }
}

fn failure(error: FetchError) -> Failure {
    let message = error.to_string();
    match error {
        FetchError::NoPip => Failure::new(Exit::Config, "no_pip", message)
            .hint("install Python with pip, or uv, or put any nvdisasm on PATH"),
        FetchError::Pip { words, .. } => {
            let hint = pip_hint(&words, cfg!(target_os = "linux"));
            Failure::new(Exit::Tool, "not_fetched", message).cause(words).hint(hint)
        }
        FetchError::Broken => Failure::new(Exit::Tool, "not_fetched", message)
            .hint("`rgpu disasm --remote NAME` has a host's nvdisasm read"),
        FetchError::Disk { source, .. } => Failure::new(Exit::Disk, "disk", message).cause(source),
        FetchError::Unlisted => Failure::new(Exit::Bug, "bug", message),
    }
}

/// Words of pip and uv, in lower case, for an index that they cannot reach.
const CONNECTION_TROUBLE: &[&str] = &[
    "newconnectionerror",
    "name or service not known",
    "temporary failure in name resolution",
    "timed out",
    "timeout",
    "proxyerror",
    "connection refused",
    "error sending request",
    "dns error",
];

/// The hint for these messages of pip or uv. With `--quiet` pip says of an index that it cannot
/// reach only that it found no version; on Linux there always is one.
fn pip_hint(words: &str, linux: bool) -> &'static str {
    let words = words.to_lowercase();
    let is_cut_off = CONNECTION_TROUBLE.iter().any(|trouble| words.contains(trouble));
    if is_cut_off || (linux && words.contains("from versions: none")) {
        "the package index cannot be reached, or lacks the wheel: look at the network, at \
             `PIP_INDEX_URL` (uv: `UV_INDEX_URL`), and at the proxy in `https_proxy`"
    } else {
        "there are wheels for Linux and Windows; elsewhere: `rgpu disasm --remote NAME`"
    }
}

#[cfg(test)]
mod tests {
    use super::pip_hint;

    #[test]
    fn an_index_that_cannot_be_reached_is_not_taken_for_a_system_without_wheels() {
        let none = "ERROR: Could not find a version that satisfies the requirement \
                    nvidia-cuda-nvdisasm==13.5.37 (from versions: none)";
        let unreached = "WARNING: Retrying after connection broken by \
                         'NewConnectionError(... [Errno -2] Name or service not known)'";
        for (words, linux, reachable) in [
            (none, true, false),
            (none, false, true),
            (unreached, false, false),
            ("ProxyError('Cannot connect to proxy.')", true, false),
            ("error: Failed to fetch\n  Caused by: operation timed out", true, false),
            ("ERROR: No matching distribution found", true, true),
        ] {
            let hint = pip_hint(words, linux);
            assert_eq!(!hint.contains("PIP_INDEX_URL"), reachable, "{words}");
            assert_eq!(hint.contains("there are wheels"), reachable, "{words}");
        }
    }
}
