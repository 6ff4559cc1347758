//! The arguments of the command line. Each command is one variant and is implemented in its own
//! file.

use clap::{Args, Parser, Subcommand};

use super::deferred::Deferred;
use super::{
    build, compare, completions, disasm, doctor, exec, kernels, profile, remote, report, runs,
    schema, setup, worker,
};

/// Profile, check and run GPU kernels on a remote NVIDIA GPU
#[derive(Parser, Clone, Debug)]
#[command(name = "rgpu", version, propagate_version = true, args_override_self = true)]
#[command(subcommand_required = true, arg_required_else_help = true, infer_subcommands = false)]
pub(super) struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,

    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct GlobalArgs {
    /// Print the result as JSON on stdout, and nothing else there
    #[arg(long, global = true, display_order = 900)]
    pub json: bool,

    /// Print only errors on stderr
    #[arg(long, short, global = true, display_order = 901)]
    pub quiet: bool,

    /// Print more; -vv prints everything
    #[arg(long, short, global = true, action = clap::ArgAction::Count, display_order = 902)]
    pub verbose: u8,
}

/// The commands.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum Command {
    /// Profile a kernel or a program: how fast, why not faster, what to try
    Profile(Deferred<Box<profile::ProfileArgs>>),
    /// Run a file, a piece of code or a command on the GPU host
    Exec(Deferred<Box<exec::ExecArgs>>),
    /// Compile a kernel without a GPU: PTX, cubin, SASS, registers and spills
    Build(Deferred<Box<build::BuildArgs>>),
    /// Name, list and check the GPU hosts you have
    #[command(subcommand)]
    Remote(Deferred<remote::RemoteCommand>),
    /// Run every tool on a host with a tiny kernel, and show what works and why the rest does not
    Doctor(Deferred<doctor::DoctorArgs>),
    /// List kernels, show one, or start a kernel.toml
    #[command(subcommand)]
    Kernels(Deferred<kernels::KernelsCommand>),
    /// List, show, attach to, cancel and clean up runs
    #[command(subcommand)]
    Runs(Deferred<runs::RunsCommand>),
    /// Explain a run or a report file
    Report(Deferred<report::ReportArgs>),
    /// Read cubins, fatbins, objects, libraries, archives, wheels and PTX: registers, spills, SASS
    Disasm(Deferred<Box<disasm::DisasmArgs>>),
    /// Compare two runs or reports, or two kernels side by side on one GPU
    Compare(Deferred<Box<compare::CompareArgs>>),
    /// Print the JSON Schema of a document that rgpu writes, or check a file against it
    Schema(Deferred<schema::SchemaArgs>),
    /// Install optional tools
    #[command(subcommand)]
    Setup(Deferred<setup::SetupCommand>),
    /// Let others run jobs on this host over HTTP, with a token
    Worker(Deferred<worker::WorkerArgs>),
    /// Print a shell's completion script: rgpu completions bash > …
    Completions {
        /// The shell to print completions for
        shell: clap_complete::Shell,
    },
    /// Print names for the completions of shells, one a line
    #[command(name = "__names", hide = true)]
    Names {
        /// Of what
        what: completions::NameKind,
    },
    /// Write the man pages of all commands into a folder (for packages)
    #[command(hide = true)]
    Man {
        /// The folder, which must exist
        folder: std::path::PathBuf,
    },
}

impl Command {
    /// The value of this command's `--events`.
    pub(super) fn events(&self) -> Option<&str> {
        let events = match self {
            Self::Profile(args) => &args.run.events,
            Self::Exec(args) => &args.run.events,
            Self::Build(args) => &args.events,
            Self::Compare(args) => &args.run.events,
            Self::Runs(command) => match &**command {
                runs::RunsCommand::Attach(args) => &args.events,
                _ => &None,
            },
            _ => &None,
        };
        events.as_deref()
    }
}
