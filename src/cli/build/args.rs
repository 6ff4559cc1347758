//! The arguments of `rgpu build`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use crate::cli::support::run_args::{RemoteArgs, RunArgs};
use rgpu_model::duration::duration;
use rgpu_plan::tool::Dsl;

/// Compile a kernel without a GPU: PTX, cubin, SASS, registers and spills
///
/// CUDA kernels are compiled with nvcc or NVRTC, on this machine or a host. CuTe DSL and Triton
/// files are compiled in a pinned Python environment, which is installed on first use.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct BuildArgs {
    /// A .cu file, a .py file of a DSL, or a kernel: its name, folder or kernel.toml
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "kernel", required_unless_present = "kernel")]
    pub file: Option<String>,

    /// The kernel: a name of `rgpu kernels list`, or a folder with kernel.toml
    #[arg(long, short = 'K', value_name = "NAME|PATH")]
    pub kernel: Option<String>,

    /// The file is a kernel of this Python DSL [default: the one that it imports]
    #[arg(long, value_enum, value_name = "DSL", conflicts_with = "kernel")]
    pub dsl: Option<Dsl>,

    /// Compile for these architectures, e.g. sm_90a,sm_100a: one run for each [default: the GPU's,
    /// else kernel.toml's first]
    #[arg(long, value_name = "SM", value_delimiter = ',')]
    pub arch: Vec<String>,

    /// Sizes, as for profile; a DSL file's compile_kernel gets them as tuples
    #[arg(long, value_name = "SIZES", allow_hyphen_values = true)]
    pub problem_sizes: Vec<String>,

    /// What to write; `ptx` alone makes no cubin
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',', default_values = ["ptx", "cubin", "sass"])]
    pub emit: Vec<EmitKind>,

    /// Write the intermediate code, like `--emit …,ir`
    #[arg(long)]
    pub keep_ir: bool,

    /// Optimisation level of the code
    #[arg(long, value_name = "0-3", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub opt_level: Option<u8>,

    /// More options for nvcc, NVRTC, cute.compile or Triton's ptxas, as one string
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub compile_options: Option<String>,

    /// Level of the DSL's own log
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "DSL")]
    pub log_level: Option<LogLevel>,

    /// Have the DSL print its IR into the log
    #[arg(long, help_heading = "DSL")]
    pub print_ir: bool,

    /// Fetch missing compilers without asking
    #[arg(long, short)]
    pub yes: bool,

    /// FILE.ptx or FILE.cubin: where to write the main PTX or cubin; DIR: the run's folder, which
    /// must be new or empty
    #[arg(long, value_name = "FILE.ptx|FILE.cubin|DIR")]
    pub out: Option<PathBuf>,

    /// A remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port
    #[arg(long, short, value_name = "REMOTE", help_heading = "Where")]
    pub remote: Option<String>,

    /// Accept the key of an unknown host
    #[arg(long, help_heading = "Where")]
    pub accept_new: bool,

    /// Time limit of compiling, e.g. 90s, 10m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub timeout: Duration,

    /// The run's name, which must be new
    #[arg(long, value_name = "NAME")]
    pub run_id: Option<String>,

    /// Write the run's events as JSON lines
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub events: Option<String>,

    /// Submit the job and exit; `rgpu runs attach` fetches the results
    #[arg(long)]
    pub detach: bool,
}

const EXAMPLES: &str = "\
Examples:
  rgpu build --kernel wagmiv67 --arch sm_100a
  rgpu build --kernel vecadd --arch sm_90a --emit ptx --out vecadd.ptx
  rgpu build kernel.py --dsl cute --arch sm_100a --problem-sizes '80,4096,7168,1;40,7168,2048,1'
  rgpu build kernel.py --dsl triton --arch sm_100a --keep-ir
  rgpu build vecadd --arch sm_90a,sm_100a";

impl BuildArgs {
    /// The arguments of `rgpu build FILE`, with the remote and run flags of another command.
    pub(in crate::cli) fn for_file(file: String, place: &RemoteArgs, run: &RunArgs) -> Self {
        Self {
            file: Some(file),
            kernel: None,
            dsl: None,
            arch: Vec::new(),
            problem_sizes: Vec::new(),
            emit: vec![EmitKind::Ptx, EmitKind::Cubin, EmitKind::Sass],
            keep_ir: false,
            opt_level: None,
            compile_options: None,
            log_level: None,
            print_ir: false,
            yes: false,
            out: run.out.clone(),
            remote: place.remote.clone(),
            accept_new: place.accept_new,
            timeout: run.timeout.unwrap_or(DEFAULT_TIMEOUT),
            run_id: run.run_id.clone(),
            events: run.events.clone(),
            detach: run.detach,
        }
    }
}

/// The default time limit.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// The kinds of files that a build can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum EmitKind {
    /// PTX
    Ptx,
    /// The machine code, as an ELF file
    Cubin,
    /// The listing of the machine code
    Sass,
    /// Intermediate code: MLIR, TTIR, LLVM; for nvcc the preprocessed source
    Ir,
}

/// Levels of Python's logging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum LogLevel {
    /// Everything
    Debug,
    /// Info
    Info,
    /// Possible problems
    Warning,
    /// Errors
    Error,
}

impl LogLevel {
    /// Python's number for the level.
    pub(in crate::cli) fn number(self) -> u32 {
        match self {
            Self::Debug => 10,
            Self::Info => 20,
            Self::Warning => 30,
            Self::Error => 40,
        }
    }
}
