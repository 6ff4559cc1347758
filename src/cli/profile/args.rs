//! The arguments of `rgpu profile`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::kernel::{MODES, Mode};
use crate::model::RungId;

/// Profile a kernel or a program: how fast, why not faster, what to try
///
/// Without a GPU at hand the kernel is still compiled and its reference runs on the CPU under the
/// same ranges; the first line says so.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct ProfileArgs {
    /// The kernel: a name of `rgpu kernels list`, a folder with kernel.toml, a .cu or .py file
    #[arg(long, short = 'K', value_name = "NAME|PATH", conflicts_with = "program")]
    pub kernel: Option<String>,

    /// A program and its arguments, after `--`
    #[arg(last = true, value_name = "PROGRAM ARGS", num_args = 1..)]
    pub program: Vec<String>,

    /// What to measure with [default: the kernel's own mode, else ncu]
    #[arg(long, short, value_parser = mode_parser())]
    pub mode: Option<Mode>,

    #[command(flatten)]
    pub place: PlaceArgs,

    /// Sizes: values in the kernel's order or `n=…`; `;` between cases (or groups), `|` between cases
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
}

const EXAMPLES: &str = "\
Examples:
  rgpu profile --kernel vecadd
  rgpu profile --kernel tiled-matmul --mode ncu --set full --remote h200 --json
  rgpu profile --kernel nested-regions --mode ncu --regions 'A*' --remote h200
  rgpu profile --mode deep --top 3 --budget 5m --remote h200 -- ./app
  rgpu profile --kernel race --mode sanitizer --tool racecheck --remote h200
  rgpu profile --remote h200 -- ./app --its args";

/// Reads the name of a mode; help and completions have what each gives.
pub(in crate::cli) fn mode_parser() -> impl TypedValueParser<Value = Mode> {
    let names = MODES.iter().map(|info| PossibleValue::new(info.name).help(info.gives));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Mode>())
}

/// Reads the id of a rung.
fn rung_parser() -> impl TypedValueParser<Value = RungId> {
    PossibleValuesParser::new(crate::run::rungs()).map(RungId::from)
}

/// Where it runs.
#[derive(Args, Clone, Debug, Default)]
pub(in crate::cli) struct PlaceArgs {
    /// A remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port; for
    /// `profile`, several with commas between them run side by side
    #[arg(long, short, value_name = "REMOTE", help_heading = "Where")]
    pub remote: Option<String>,

    /// Which GPU: any, an index, a UUID, or part of a name
    #[arg(long, value_name = "any|N|UUID|NAME", help_heading = "Where")]
    pub gpu: Option<String>,

    /// Run although other processes are on the GPU
    #[arg(long, help_heading = "Where")]
    pub share_gpu: bool,

    /// Accept the key of a host never seen before
    #[arg(long, help_heading = "Where")]
    pub accept_new: bool,
}

/// ncu's own spellings.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Nsight Compute")]
pub(in crate::cli) struct NcuArgs {
    /// Section set: ncu's (basic, detailed, full, roofline …) or launchstats, minimal, sol, extended
    #[arg(long, value_name = "SET")]
    pub set: Option<String>,

    /// A section by its identifier
    #[arg(long, value_name = "ID")]
    pub section: Vec<String>,

    /// Metrics, separated by commas
    #[arg(long, value_name = "METRICS", value_delimiter = ',')]
    pub metrics: Vec<String>,

    /// Only kernels of this name
    #[arg(long, short = 'k', value_name = "NAME|regex:RE")]
    pub kernel_name: Vec<String>,

    /// Which form of the name that is matched with
    #[arg(long, value_name = "function|demangled|mangled", value_parser = ["function", "demangled", "mangled"])]
    pub kernel_name_base: Option<String>,

    /// No kernels of this name
    #[arg(long, value_name = "NAME|regex:RE")]
    pub kernel_exclude: Vec<String>,

    /// Launches to pass over first
    #[arg(long, value_name = "N")]
    pub launch_skip: Option<u64>,

    /// Launches to profile
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub launch_count: Option<u64>,

    /// How passes are repeated
    #[arg(long, value_name = "MODE", value_parser = ["kernel", "application", "range", "app-range"])]
    pub replay_mode: Option<String>,

    /// Only these NVTX regions, checked against those the program has: A, A::A1, domain@A, decode*,
    /// regex:RE
    #[arg(long, value_name = "REGION,…")]
    pub regions: Vec<String>,

    /// Only launches inside this NVTX range, taken at its word: A, A::A1, domain@A
    #[arg(long, value_name = "RANGE")]
    pub nvtx_include: Vec<String>,

    /// Which processes to look into
    #[arg(long, value_name = "WHICH", value_parser = ["all", "application-only"])]
    pub target_processes: Option<String>,

    /// What ncu does with the clocks
    #[arg(long, value_name = "POLICY", value_parser = ["base", "boost", "force-boost", "none", "reset"])]
    pub clock_control: Option<String>,

    /// Use `sudo -n` where the counters need it
    #[arg(long)]
    pub sudo: bool,

    /// Anything else for ncu, as one string
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub ncu_args: Option<String>,
}

/// Mode `deep`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Mode deep")]
pub(in crate::cli) struct DeepArgs {
    /// Kernels to look at closely, by their GPU time [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub top: Option<u32>,

    /// What the close look may cost: 10m, 500MB, or both [default: 10m,500MB]
    #[arg(long, value_name = "TIME|SIZE", value_delimiter = ',', value_parser = limit)]
    pub budget: Vec<Limit>,

    /// Begin with the few sections of the set `minimal`
    #[arg(long)]
    pub light: bool,
}

/// One part of `--budget`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::cli) enum Limit {
    /// Time.
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

/// nsys's own spellings.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Nsight Systems")]
pub(in crate::cli) struct NsysArgs {
    /// What to trace [default: cuda,nvtx]
    #[arg(long, value_name = "LIST")]
    pub trace: Option<String>,

    /// CPU sampling
    #[arg(long, value_name = "HOW", value_parser = ["none", "process-tree", "system-wide", "cpu"])]
    pub sample: Option<String>,

    /// Record only inside this NVTX range
    #[arg(long, value_name = "RANGE")]
    pub capture_range: Option<String>,

    /// Anything else for nsys profile, as one string
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub nsys_args: Option<String>,
}

/// compute-sanitizer.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "compute-sanitizer")]
pub(in crate::cli) struct SanitizerArgs {
    /// Which tools [default: all for a kernel, memcheck for a program]
    #[arg(long, value_name = "TOOL", value_delimiter = ',', value_parser = ["memcheck", "racecheck", "initcheck", "synccheck", "all"])]
    pub tool: Vec<String>,

    /// Anything else for compute-sanitizer, as one string
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub sanitizer_args: Option<String>,
}

/// What every run takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Run")]
pub(in crate::cli) struct RunArgs {
    /// Time each step may take, e.g. 90s, 10m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,

    /// Time to wait for the GPU
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub queue_timeout: Option<Duration>,

    /// The run's name; refused when taken
    #[arg(long, value_name = "NAME")]
    pub run_id: Option<String>,

    /// This run's own folder, absent or empty
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// A label to keep with the run
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,

    /// A note to keep with the run; a run with one is never pruned
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,

    /// The lowest rung that counts as success, e.g. ncu.basic
    #[arg(long, value_name = "RUNG", value_parser = rung_parser())]
    pub at_least: Option<RungId>,

    /// Make doubts about the host an error before anything is timed
    #[arg(long)]
    pub strict: bool,

    /// Flags from `[preset.NAME]` of rgpu.toml
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,

    /// Print the plan, the harness and the exact tool commands; touch nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Write everything the run says as JSON lines
    #[arg(long, value_name = "FILE|-")]
    pub events: Option<String>,

    /// Submit and go away; `rgpu runs attach` brings the results
    #[arg(long)]
    pub detach: bool,

    /// Output kept of each stream, e.g. 100MB
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub log_limit: Option<u64>,
}

/// Parses a time: `90`, `90s`, `10m`, `2h`.
pub(in crate::cli) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let seconds = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("unknown unit `{other}`: use s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| "not a time: write 90s, 10m or 2h".to_owned())?;
    let total = number * seconds;
    if total > 0.0 && total <= 7.0 * 24.0 * 3600.0 {
        Ok(Duration::from_secs_f64(total))
    } else {
        Err("a time must be above 0 and at most 7 days".to_owned())
    }
}

/// Parses a size: `100MB`, `1GiB`, `4096`.
pub(in crate::cli) fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" | "k" => 1000,
        "mb" | "m" => 1_000_000,
        "gb" | "g" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        other => return Err(format!("unknown unit `{other}`: use MB, MiB, GB or GiB")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(|| "not a size: write 100MB or 1GiB".to_owned())
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}
