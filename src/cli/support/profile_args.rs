//! The arguments of `rgpu profile`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};

use super::file_args::FileArgs;
use super::run_args::{RemoteArgs, RunArgs};
use super::unmeasured::UnmeasuredArgs;
use rgpu_plan::kernel::{MODES, ProfileMode, is_identifier};
use rgpu_plan::tool::{GpuSelection, RankSelection, ToolOptions};
use rgpu_work::suite::sweep_values;

/// Profile a kernel or a program: how fast, why not faster, what to try
///
/// On a host without a GPU the kernel is still compiled, and its reference runs on the CPU under
/// the same NVTX ranges. The first line of the output says so.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct ProfileArgs {
    /// The kernel, as for --kernel, or the source of a program
    #[arg(value_name = "KERNEL", value_hint = ValueHint::AnyPath, group = "the_kernel")]
    pub target: Option<String>,

    /// The kernel: a name of `rgpu kernels list`, a folder with kernel.toml, a .cu or .py file
    #[arg(long, short = 'K', value_name = "NAME|PATH", group = "the_kernel")]
    pub kernel: Option<String>,

    /// A program and its arguments, after `--`; with KERNEL, the arguments of that program
    #[arg(last = true, value_name = "PROGRAM ARGS", num_args = 1..)]
    pub program: Vec<String>,

    /// What to measure with [default: the kernel's own mode, else ncu; nsys for a program that is
    /// built from its source, unless flags of ncu are given]
    #[arg(long, short, value_parser = mode_parser())]
    pub mode: Option<ProfileMode>,

    #[command(flatten)]
    pub place: RemoteArgs,

    /// Give a program this many GPUs, all, or those with these indexes; `--gpu` says which qualify.
    /// A job of Slurm asks for this many on each node. The modes ncu and deep then need `--ranks`
    /// [default: 1]
    #[arg(long, value_name = "N|all|LIST", help_heading = "Ranks and several GPUs")]
    pub gpus: Option<GpuSelection>,

    /// The ranks to profile: ncu and deep one of them, sanitizer all by
    /// default; nsys records all in one report, or one alone. The program is started by torchrun,
    /// accelerate, mpirun or srun
    #[arg(long, value_name = "N|LIST|all", help_heading = "Ranks and several GPUs")]
    pub ranks: Option<RankSelection>,

    /// On a cluster of Slurm, start a program once on each of this many nodes: one profile of all
    /// its ranks, with nsys [default: 1]
    #[arg(long, value_name = "N", help_heading = "Slurm", value_parser = nodes())]
    pub nodes: Option<u32>,

    /// Sizes: the name of a case of kernel.toml, `all` of these, or values in the kernel's order or
    /// as `n=…`, with `;` between groups (or between cases, if the kernel has no groups) and `|`
    /// between cases
    #[arg(long, value_name = "SIZES", help_heading = "Kernel", allow_hyphen_values = true)]
    pub problem_sizes: Vec<String>,

    /// The kernel of a bare .cu, .cuh, .cubin, .fatbin or .ptx, as in CUDA: its name,
    /// `matmul<float, 16>`, or all of `matmul<float, 16><<<(n / 16, m / 16), (16, 16)>>>(m * n, n)`
    /// with the elements of each array and the value of each integer (`_` leaves one to rgpu)
    #[arg(
        long,
        value_name = "NAME[<<<GRID, BLOCK, BYTES>>>(ARGS)]",
        help_heading = "Kernel",
        requires = "the_kernel"
    )]
    pub launch: Option<String>,

    /// Write what was assumed of a bare kernel to the kernel.toml beside it
    #[arg(long, help_heading = "Kernel", requires = "the_kernel")]
    pub save_kernel: bool,

    /// Compile for this architecture, e.g. sm_90a or sm_100a [default: the GPU's]
    #[arg(long, value_name = "SM", help_heading = "Kernel")]
    pub arch: Option<String>,

    /// Seed of the inputs
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Kernel")]
    pub seed: u64,

    /// Launches before the first timed one
    #[arg(long, value_name = "N", help_heading = "Kernel")]
    pub warmup: Option<u32>,

    /// Timed launches [default: until the median is known to 0.5 %]
    #[arg(long, value_name = "N", help_heading = "Kernel", value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: Option<u32>,

    /// Time calls inside a CUDA graph too [default: auto]
    #[arg(long, value_enum, value_name = "WHEN", help_heading = "Kernel")]
    pub cuda_graph: Option<CudaGraph>,

    /// Profile at each of these values, as a suite: a size of the kernel, else a macro of its
    /// compiler. Several sweeps make all combinations, at most 200
    #[arg(long, value_name = "NAME=256..8192:x2|A,B", help_heading = "Sweeps", requires = "the_kernel", value_parser = sweep)]
    pub sweep: Vec<(String, Vec<String>)>,

    /// Draw this against the first axis of `--sweep`: `time`, or the beginning of a metric's name;
    /// exit with 2 if no case has a number for it, or 5 if the cases have no metrics
    #[arg(long, value_name = "METRIC", help_heading = "Sweeps", requires = "sweep")]
    pub plot: Vec<String>,

    #[command(flatten)]
    pub files: FileArgs,

    #[command(flatten)]
    pub tools: ToolOptions,

    #[command(flatten)]
    pub run: RunArgs,

    #[command(flatten)]
    pub unmeasured: UnmeasuredArgs,
}

impl Default for ProfileArgs {
    /// As on a command line without flags.
    fn default() -> Self {
        Self {
            target: None,
            kernel: None,
            program: Vec::new(),
            mode: None,
            place: RemoteArgs::default(),
            gpus: None,
            ranks: None,
            nodes: None,
            problem_sizes: Vec::new(),
            launch: None,
            save_kernel: false,
            arch: None,
            seed: 1,
            warmup: None,
            iters: None,
            cuda_graph: None,
            sweep: Vec::new(),
            plot: Vec::new(),
            files: FileArgs::default(),
            tools: ToolOptions::default(),
            run: RunArgs::default(),
            unmeasured: UnmeasuredArgs::default(),
        }
    }
}

impl ProfileArgs {
    /// Takes a kernel that was given without `--kernel` for one that was given with it.
    pub(in crate::cli) fn adopt_positional_kernel(&mut self) {
        self.kernel = self.target.take().or(self.kernel.take());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum CudaGraph {
    /// Calls that take less than 20 µs
    Auto,
    /// All calls
    Always,
    /// No calls
    Never,
}

const EXAMPLES: &str = "\
Examples:
  rgpu profile vecadd
  rgpu profile --kernel tiled-matmul --mode ncu --set full --remote h200 --json
  rgpu profile --kernel nested-regions --mode ncu --regions 'A*' --remote h200
  rgpu profile --kernel tiled-matmul --sweep n=256..2048:x2 --mode ncu --plot sm__throughput
  rgpu profile --mode deep --top 3 --budget 5m --remote h200 -- ./app
  rgpu profile --kernel race --mode sanitizer --tool racecheck --remote h200
  rgpu profile --mode nsys --after 30s --for 10s --remote h200 -- ./server
  rgpu profile --mode ncu --gpus 2 --ranks 0 --remote h200 -- torchrun --nproc-per-node 2 train.py
  rgpu profile --mode torch --mount . --env SIZE=2 --remote h200 -- python3 train.py
  rgpu profile --remote h200 -- ./app --its args";

/// Reads the name of a mode; help and completions have what each gives.
pub(in crate::cli) fn mode_parser() -> impl TypedValueParser<Value = ProfileMode> {
    let names = MODES.iter().map(|info| PossibleValue::new(info.name).help(info.gives));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<ProfileMode>())
}

/// A number of nodes.
pub(in crate::cli) fn nodes() -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=256)
}

/// Parses `n=256..8192:x2` or `dtype=f16,bf16`.
fn sweep(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, values) = text.split_once('=').ok_or("write NAME=VALUES, e.g. n=256..8192:x2")?;
    if is_identifier(name) {
        Ok((name.to_owned(), sweep_values(values)?))
    } else {
        Err(format!("`{name}` is not a variable name"))
    }
}
