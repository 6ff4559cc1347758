//! `rgpu setup`: fetches optional tools of NVIDIA after the user agrees. They are under NVIDIA's
//! licence, so nothing is fetched without consent and none of it is shipped.

use std::io::BufRead;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::support::app::{App, Status};
use super::support::nvdisasm;
use super::support::terminal::{escape_controls, write_stderr};
use crate::disasm::{FetchError, PipOutput, WHEEL, fetch, fetched, find, pinned};
use crate::error::{Exit, Failure, Result};

/// The licence terms of nvdisasm.
const LICENCE: &str = "https://docs.nvidia.com/cuda/eula";

/// Install optional tools
#[derive(Subcommand, Clone, Debug)]
pub(super) enum SetupCommand {
    Nvdisasm(NvdisasmArgs),
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
}

/// The document of `--json`.
#[derive(Serialize)]
struct SetupResult<'a> {
    schema: &'static str,
    tool: &'static str,
    version: &'a str,
    path: String,
    /// Whether this command fetched it; false if it was installed already.
    fetched: bool,
}

pub(super) fn run(app: &App, command: &SetupCommand) -> Result<Status> {
    match command {
        SetupCommand::Nvdisasm(args) => nvdisasm(app, args),
    }
}

fn nvdisasm(app: &App, args: &NvdisasmArgs) -> Result<Status> {
    let folder = nvdisasm::fetched_folder(app);
    let version = pinned().unwrap_or_default();
    let there = find(&fetched(&folder)).filter(|tool| tool.version() == version);
    let (tool, now) = match there {
        Some(tool) => (tool, false),
        None => {
            if let Some(other) = nvdisasm::find_here(app) {
                let path = other.path().map(|p| p.display().to_string()).unwrap_or_default();
                app.print_note(&format!("there is already nvdisasm {}: {path}", other.version()));
            }
            consent(app, args, &version)?;
            let quiet = app.global.quiet || app.global.json;
            let pip_output = if quiet { PipOutput::Quiet } else { PipOutput::Progress };
            (fetch(&folder, pip_output).map_err(failure)?, true)
        }
    };
    let path = tool.path().map(|path| path.display().to_string()).unwrap_or_default();
    if app.global.json {
        let (schema, version) = ("rgpu.setup/1", tool.version());
        app.print_json(&SetupResult { schema, tool: "nvdisasm", version, path, fetched: now })?;
    } else {
        let how = if now { "fetched" } else { "is there" };
        app.print(&escape_controls(
            format!("nvdisasm {} {how}: {path}\n", tool.version()).as_bytes(),
        ));
    }
    Ok(0)
}

/// Asks for consent; `--yes` gives it.
fn consent(app: &App, args: &NvdisasmArgs, version: &str) -> Result<()> {
    let about = format!(
        "nvdisasm {version} is NVIDIA's, under its licence: {LICENCE}\n\
         pip or uv fetches it as `{WHEEL}` (5 MB) from the index that it is set up with"
    );
    if args.yes {
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
        .hint("`rgpu setup nvdisasm --yes` gives your consent"));
    }
    let mut answer = String::new();
    write_stderr(&format!("{about}\nFetch it? [y/N] "));
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        true => Ok(()),
        false => Err(Failure::new(Exit::Cancelled, "cancelled", "nothing was fetched")),
    }
}

fn failure(error: FetchError) -> Failure {
    let message = error.to_string();
    match error {
        FetchError::NoPip => Failure::new(Exit::Config, "no_pip", message)
            .hint("install Python with pip, or uv, or put any nvdisasm on PATH"),
        FetchError::Pip { words, .. } => Failure::new(Exit::Tool, "not_fetched", message)
            .cause(words)
            .hint("there are wheels for Linux and Windows; elsewhere: `rgpu disasm --remote NAME`"),
        FetchError::Broken => Failure::new(Exit::Tool, "not_fetched", message)
            .hint("`rgpu disasm --remote NAME` has a host's nvdisasm read"),
        FetchError::Disk { source, .. } => Failure::new(Exit::Disk, "disk", message).cause(source),
        FetchError::Unlisted => Failure::new(Exit::Bug, "bug", message),
    }
}
