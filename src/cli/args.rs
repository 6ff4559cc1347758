//! The command line: what may be typed. One variant a command; what a command does stands in its
//! own file.

use clap::{Args, Parser, Subcommand};

use super::{
    build, compare, disasm, doctor, exec, kernels, profile, remote, report, runs, schema, setup,
    worker,
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

    /// Say nothing but errors on stderr
    #[arg(long, short, global = true, display_order = 901)]
    pub quiet: bool,

    /// Say more; twice: everything
    #[arg(long, short, global = true, action = clap::ArgAction::Count, display_order = 902)]
    pub verbose: u8,
}

/// The commands.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum Command {
    Profile(Box<profile::ProfileArgs>),
    Exec(Box<exec::ExecArgs>),
    Build(Box<build::BuildArgs>),
    #[command(subcommand)]
    Remote(remote::RemoteCommand),
    Doctor(doctor::DoctorArgs),
    #[command(subcommand)]
    Kernels(kernels::KernelsCommand),
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    Report(report::ReportArgs),
    Disasm(Box<disasm::DisasmArgs>),
    Compare(Box<compare::CompareArgs>),
    Schema(schema::SchemaArgs),
    #[command(subcommand)]
    Setup(setup::SetupCommand),
    Worker(worker::WorkerArgs),
    /// Print the completions of a shell: rgpu completions bash > …
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages of all commands into a folder (for packages)
    #[command(hide = true)]
    Man {
        /// The folder, which must exist
        folder: std::path::PathBuf,
    },
}
