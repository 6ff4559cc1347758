//! The arguments of `rgpu exec`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::profile::{
    DeepArgs, NcuArgs, NsysArgs, PlaceArgs, ProfileArgs, RunArgs, SanitizerArgs, bytes, mode_parser,
};
use crate::kernel::Mode;

/// Run a file, a piece of code or a command on the GPU host
///
/// Of a file, `--code`, `-` (standard input) and a command after `--`, exactly one. Ends with the
/// program's own status; 124 when its time limit ran out, 125 when rgpu itself failed, 128+n when
/// signal n ended it.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES, mut_arg("detach", |arg| arg.help(DETACH)))]
pub(in crate::cli) struct ExecArgs {
    /// A Rust, Python, CUDA or shell file; `-`: standard input
    #[arg(value_name = "FILE|-")]
    pub file: Option<String>,

    /// The code itself
    #[arg(long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    pub code: Option<String>,

    /// Its language, where name and text do not tell: rs, py, cu, sh
    #[arg(long, value_name = "LANG")]
    pub lang: Option<String>,

    /// Bring a folder or file along; the first folder becomes the working folder, others lie in it
    #[arg(long, value_name = "SRC[:DEST]")]
    pub mount: Vec<String>,

    /// What all mounts may hold, e.g. 2GB [default: 256MiB]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub mount_limit: Option<u64>,

    /// Bring files back that are new or changed, e.g. 'out/**'; relative to the working folder
    #[arg(long, value_name = "PATTERN")]
    pub pull: Vec<String>,

    /// Set a variable for it
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,

    /// Variables whose values stay out of every log, as NAME=VALUE lines
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,

    /// Hold this many GPUs while it runs, and show it no others; 0: none at all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub gpus: Option<u32>,

    /// Give it a terminal; what it prints is then one stream, and keys reach it as they are typed
    #[arg(long, short)]
    pub tty: bool,

    /// Profile it, with the flags of `rgpu profile`
    #[arg(long, short, value_parser = mode_parser())]
    pub mode: Option<Mode>,

    #[command(flatten)]
    pub place: PlaceArgs,

    #[command(flatten)]
    pub ncu: NcuArgs,

    #[command(flatten)]
    pub deep: DeepArgs,

    #[command(flatten)]
    pub nsys: NsysArgs,

    #[command(flatten)]
    pub sanitizer: SanitizerArgs,

    #[command(flatten)]
    pub run: RunArgs,

    /// Arguments of the file or code; without one: a command and its arguments
    #[arg(last = true, value_name = "ARGS|COMMAND", num_args = 1..)]
    pub command: Vec<String>,
}

const DETACH: &str =
    "Submit and go away, without standard input; `rgpu runs attach` brings output and status";

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
            kernel: None,
            program: self.command.clone(),
            mode: self.mode,
            place: self.place.clone(),
            problem_sizes: Vec::new(),
            arch: None,
            seed: 1,
            warmup: None,
            iters: None,
            ncu: self.ncu.clone(),
            deep: self.deep.clone(),
            nsys: self.nsys.clone(),
            sanitizer: self.sanitizer.clone(),
            run: self.run.clone(),
        }
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !name.contains('\0') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("write NAME=VALUE".to_owned()),
    }
}
