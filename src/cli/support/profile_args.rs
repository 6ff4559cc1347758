//! The arguments of `rgpu profile`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};

use super::run_args::{RemoteArgs, RunArgs, bytes, duration};
use super::unmeasured::UnmeasuredArgs;
use rgpu_plan::kernel::{MODES, ProfileMode, is_identifier};
use rgpu_plan::tool::{GpuSelection, RankSelection, WindowEnd};
use rgpu_work::suite::sweep_values;

/// Profile a kernel or a program: how fast, why not faster, what to try
///
/// On a host without a GPU the kernel is still compiled, and its reference runs on the CPU under
/// the same NVTX ranges. The first line of the output says so.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct ProfileArgs {
    /// The kernel, as for --kernel
    #[arg(value_name = "KERNEL", value_hint = ValueHint::AnyPath, group = "the_kernel", conflicts_with = "program")]
    pub target: Option<String>,

    /// The kernel: a name of `rgpu kernels list`, a folder with kernel.toml, a .cu or .py file
    #[arg(
        long,
        short = 'K',
        value_name = "NAME|PATH",
        group = "the_kernel",
        conflicts_with = "program"
    )]
    pub kernel: Option<String>,

    /// A program and its arguments, after `--`
    #[arg(last = true, value_name = "PROGRAM ARGS", num_args = 1..)]
    pub program: Vec<String>,

    /// What to measure with [default: the kernel's own mode, else ncu]
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

    /// On a cluster of Slurm, start a program once on each of this many nodes: one profile of all its
    /// ranks, with nsys [default: 1]
    #[arg(long, value_name = "N", help_heading = "Slurm", value_parser = nodes())]
    pub nodes: Option<u32>,

    /// Sizes: the name of a case of kernel.toml, `all` of these, or values in the kernel's order or
    /// as `n=…`, with `;` between groups (or between cases, if the kernel has no groups) and `|`
    /// between cases
    #[arg(long, value_name = "SIZES", help_heading = "Kernel", allow_hyphen_values = true)]
    pub problem_sizes: Vec<String>,

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
    pub ncu: NcuArgs,

    #[command(flatten)]
    pub deep: DeepArgs,

    #[command(flatten)]
    pub nsys: NsysArgs,

    #[command(flatten)]
    pub sanitizer: SanitizerArgs,

    #[command(flatten)]
    pub window: WindowArgs,

    #[command(flatten)]
    pub run: RunArgs,

    #[command(flatten)]
    pub unmeasured: UnmeasuredArgs,
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

/// Flags of Nsight Compute, under ncu's own names.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Nsight Compute")]
pub(in crate::cli) struct NcuArgs {
    /// Section set: one of ncu's (basic, detailed, full, roofline …), or launchstats, minimal, sol,
    /// extended
    #[arg(long, value_name = "SET")]
    pub set: Option<String>,

    /// A section by its identifier
    #[arg(long, value_name = "ID")]
    pub section: Vec<String>,

    /// Metrics, separated by commas
    #[arg(long, value_name = "METRICS", value_delimiter = ',')]
    pub metrics: Vec<String>,

    /// Only kernels with this name
    #[arg(long, short = 'k', value_name = "NAME|regex:RE")]
    pub kernel_name: Vec<String>,

    /// The form of the name to match
    #[arg(long, value_name = "function|demangled|mangled", value_parser = ["function", "demangled", "mangled"])]
    pub kernel_name_base: Option<String>,

    /// Leave out kernels with this name
    #[arg(long, value_name = "NAME|regex:RE")]
    pub kernel_exclude: Vec<String>,

    /// Launches to skip first
    #[arg(long, value_name = "N")]
    pub launch_skip: Option<u64>,

    /// Number of launches to profile
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub launch_count: Option<u64>,

    /// How passes are repeated
    #[arg(long, value_name = "MODE", value_parser = ["kernel", "application", "range", "app-range"])]
    pub replay_mode: Option<String>,

    /// Only these NVTX regions; it is an error if the program has none of them: A, A::A1, domain@A,
    /// decode*, regex:RE
    #[arg(long, value_name = "REGION,…")]
    pub regions: Vec<String>,

    /// Only launches inside this NVTX range; the name is passed to ncu unchecked: A, A::A1,
    /// domain@A
    #[arg(long, value_name = "RANGE")]
    pub nvtx_include: Vec<String>,

    /// Which processes to profile
    #[arg(long, value_name = "WHICH", value_parser = ["all", "application-only"])]
    pub target_processes: Option<String>,

    /// How ncu controls the GPU clocks
    #[arg(long, value_name = "POLICY", value_parser = ["base", "boost", "force-boost", "none", "reset"])]
    pub clock_control: Option<String>,

    /// Use `sudo -n` if reading counters needs it
    #[arg(long)]
    pub sudo: bool,

    /// More arguments for ncu, as one string
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub ncu_args: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Mode deep")]
pub(in crate::cli) struct DeepArgs {
    /// Number of kernels to profile with ncu, by GPU time [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub top: Option<u32>,

    /// Budget for profiling them with ncu: 10m, 500MB, or both [default: 1.5 times the
    /// program's time under ncu, at least 20s; 500MB]
    #[arg(long, value_name = "TIME|SIZE", value_delimiter = ',', value_parser = limit)]
    pub budget: Vec<Limit>,

    /// Start with the small section set `minimal`
    #[arg(long)]
    pub light: bool,
}

/// One part of `--budget`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::cli) enum Limit {
    /// Time on the host, in seconds.
    Seconds(u64),
    /// Size of the reports.
    Bytes(u64),
}

fn limit(text: &str) -> Result<Limit, String> {
    duration(text)
        .map(|time| Limit::Seconds(time.as_secs().max(1)))
        .or_else(|_| bytes(text).map(Limit::Bytes))
        .map_err(|_| "neither a time nor a size: write 10m or 500MB".to_owned())
}

/// Flags of Nsight Systems, under nsys's own names.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Nsight Systems")]
pub(in crate::cli) struct NsysArgs {
    /// What to trace [default: cuda,nvtx]
    #[arg(long, value_name = "LIST")]
    pub trace: Option<String>,

    /// Where nsys samples the CPU [default: none]
    #[arg(long, value_name = "HOW", value_parser = ["none", "process-tree", "system-wide", "cpu"])]
    pub sample: Option<String>,

    /// Record only inside this NVTX range
    #[arg(long, value_name = "RANGE")]
    pub capture_range: Option<String>,

    /// More arguments for nsys profile, as one string
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub nsys_args: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "compute-sanitizer")]
pub(in crate::cli) struct SanitizerArgs {
    /// Which tools [default: all for a kernel, memcheck for a program]
    #[arg(long, value_name = "TOOL", value_delimiter = ',', value_parser = ["memcheck", "racecheck", "initcheck", "synccheck", "all"])]
    pub tool: Vec<String>,

    /// More arguments for compute-sanitizer, as one string
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub sanitizer_args: Option<String>,
}

/// The part of a program's run to measure.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Part of the run")]
pub(in crate::cli) struct WindowArgs {
    /// Measure from this time after the program's start, e.g. 30s
    #[arg(long, value_name = "TIME", value_parser = whole_seconds)]
    pub after: Option<u64>,

    /// Measure for this time, then stop the program and its children as Ctrl-C does; `range`: to the
    /// end of the range of --capture-range
    #[arg(long = "for", value_name = "TIME|range", value_parser = window_end)]
    pub end: Option<WindowEnd>,

    /// Stop the program as Ctrl-C does once it has printed nothing for this time, and name its ranks,
    /// their last collective and their stacks; what was measured is kept
    #[arg(long, alias = "stall", value_name = "TIME", value_parser = hang_seconds)]
    pub hang: Option<u64>,
}

fn hang_seconds(text: &str) -> Result<u64, String> {
    match whole_seconds(text)? {
        0 => Err("write at least 1s".to_owned()),
        seconds => Ok(seconds),
    }
}

fn window_end(text: &str) -> Result<WindowEnd, String> {
    match text {
        "range" => Ok(WindowEnd::Range),
        text => whole_seconds(text).map(WindowEnd::Seconds),
    }
}

/// Parses a time. The tools take whole seconds.
fn whole_seconds(text: &str) -> Result<u64, String> {
    let time = duration(text)?;
    match time.subsec_nanos() {
        0 => Ok(time.as_secs()),
        _ => Err("write whole seconds, e.g. 10s or 2m".to_owned()),
    }
}
