//! The arguments of `rgpu exec`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::cli::support::file_args::FileArgs;
use crate::cli::support::profile_args::{ProfileArgs, mode_parser, nodes};
use crate::cli::support::run_args::{RemoteArgs, RunArgs};
use crate::cli::support::unmeasured::UnmeasuredArgs;
use rgpu_plan::kernel::ProfileMode;
use rgpu_plan::tool::{GpuSelection, RankSelection, ToolOptions};

/// Run a file, a piece of code or a command on the GPU host
///
/// Give exactly one of: a file, `--code`, `-` (standard input), or a command after `--`. The exit
/// status is the program's; 124 if its time limit ran out, 125 if rgpu itself failed, 128+n if
/// signal n ended it. With `--mode` it is 5 if the program ended well and nothing was measured on a
/// GPU, as in `rgpu profile`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, mut_arg("detach", |arg| arg.help(DETACH)))]
pub(in crate::cli) struct ExecArgs {
    /// A Rust, Python, CUDA or shell file; `-`: standard input
    #[arg(value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub file: Option<String>,

    /// The code to run
    #[arg(long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    pub code: Option<String>,

    /// The language, if the file's name and content do not tell: rs, py, cu, sh
    #[arg(long, value_name = "LANG")]
    pub lang: Option<String>,

    #[command(flatten)]
    pub files: FileArgs,

    /// A file with NAME=VALUE lines; their values are kept out of every log
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,

    /// Lock this many GPUs, all, or those with these indexes, and hide all others from the program;
    /// `--gpu` says which qualify; 0 hides all. A job of Slurm asks for this many on each node
    #[arg(long, value_name = "N|all|LIST")]
    pub gpus: Option<GpuSelection>,

    /// With `--mode`: the ranks of a program that the tool looks at, as in `rgpu profile`
    #[arg(long, value_name = "N|LIST|all")]
    pub ranks: Option<RankSelection>,

    /// With `--mode nsys` on a cluster of Slurm: start it once on each of this many nodes
    #[arg(long, value_name = "N", value_parser = nodes())]
    pub nodes: Option<u32>,

    /// Allocate a pseudo-terminal (TTY) on the host: stdout and stderr become one stream, and keys
    /// are sent as they are typed
    #[arg(long, short)]
    pub tty: bool,

    /// Profile it; accepts the flags of `rgpu profile`
    #[arg(long, short, value_parser = mode_parser())]
    pub mode: Option<ProfileMode>,

    #[command(flatten)]
    pub place: RemoteArgs,

    #[command(flatten)]
    pub tools: ToolOptions,

    #[command(flatten)]
    pub run: RunArgs,

    #[command(flatten)]
    pub unmeasured: UnmeasuredArgs,

    /// Arguments of the file or code, or a command with its arguments
    #[arg(last = true, value_name = "ARGS|COMMAND", num_args = 1..)]
    pub command: Vec<String>,
}

const DETACH: &str =
    "Submit the job and exit, without standard input; `rgpu runs attach` fetches output and status";

const EXAMPLES: &str = "\
Examples:
  rgpu exec snippet.rs -- its args
  rgpu exec probe.py --remote h200
  rgpu exec --lang py --code 'import torch; print(torch.cuda.get_device_name())'
  cat x.py | rgpu exec -
  rgpu exec train.py --mount . --env-file .env.gpu --gpus 1 --pull 'out/**'
  rgpu exec snippet.rs --mode nsys
  rgpu exec --remote h200 -- nvidia-smi -L";

impl ExecArgs {
    /// The same flags as arguments of `rgpu profile`.
    pub(in crate::cli) fn profile(&self) -> ProfileArgs {
        ProfileArgs {
            program: self.command.clone(),
            mode: self.mode,
            place: self.place.clone(),
            gpus: self.gpus.clone(),
            ranks: self.ranks.clone(),
            nodes: self.nodes,
            files: self.files.clone(),
            tools: self.tools.clone(),
            run: self.run.clone(),
            unmeasured: self.unmeasured,
            ..ProfileArgs::default()
        }
    }
}
