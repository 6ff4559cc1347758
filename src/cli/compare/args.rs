//! The arguments of `rgpu compare`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;

use crate::cli::support::number_args::{factor, fraction};
use crate::cli::support::profile_args::ProfileArgs;
use crate::cli::support::run_args::{RemoteArgs, RunArgs};
use crate::cli::support::unmeasured::UnmeasuredArgs;
use rgpu_model::duration::duration;
use rgpu_plan::kernel;
use rgpu_plan::tool::{NcuOptions, ToolOptions, given_flags};

/// Compare two runs or reports, or two kernels side by side on one GPU
///
/// The verdict is FASTER, SLOWER, SAME or AMBIGUOUS, from the 95 % interval of the ratio of the
/// median times. Runs with different GPUs, drivers, sizes or clock policies are refused.
///
/// A comparison of two kernels cannot be detached. To detach, profile each kernel (`rgpu profile
/// --detach`, `rgpu runs attach`) and compare the two runs. The run folder of a comparison of
/// kernels has compare.json, compare.md, and a folder for each side, `a` and `b`, with
/// profile.json, hotspots.json and trace.json where there are any, and the tools' files.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(in crate::cli) struct CompareArgs {
    /// Two runs (id, prefix, latest, folder) or two report files: the base, then the new one
    #[arg(value_name = "RUN|FILE", num_args = 0..=2, conflicts_with = "kernel")]
    pub what: Vec<String>,

    /// A kernel, twice: the base, then the new one; both are built, checked, timed with their calls
    /// interleaved, and profiled, in one job on one GPU
    #[arg(long, short = 'K', value_name = "NAME|PATH")]
    pub kernel: Vec<String>,

    /// The tool to use in addition to timing [default: ncu]
    #[arg(long, short, value_enum)]
    pub mode: Option<CompareMode>,

    /// The smallest effect that counts
    #[arg(long, value_name = "N%", default_value = "1%", value_parser = fraction)]
    pub threshold: f64,

    /// Exit with 1 on this verdict; with fewer than 5 launches of a kernel on either side the
    /// verdict is AMBIGUOUS, which `slower` accepts
    #[arg(long, value_enum, value_name = "VERDICT", value_delimiter = ',')]
    pub fail_on: Vec<FailOn>,

    /// Exit with 1 if the speedup is below this or unknown; the speedup is the ratio of the
    /// medians, even if the verdict is AMBIGUOUS
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub fail_under: Option<f64>,

    #[command(flatten)]
    pub unmeasured: UnmeasuredArgs,

    /// Compare even if GPU, driver, sizes or clock policy differ
    #[arg(long)]
    pub force: bool,

    /// Show kernels by their full names
    #[arg(long)]
    pub full_names: bool,

    #[command(flatten)]
    pub place: RemoteArgs,

    /// Sizes, as for `rgpu profile`: the name of a case that both kernels have, `all`, or values in
    /// the kernels' order or `n=…`; `;` between cases (or groups), `|` between cases
    #[arg(
        long,
        visible_alias = "size",
        value_name = "SIZES",
        help_heading = "Kernels",
        allow_hyphen_values = true
    )]
    pub problem_sizes: Vec<String>,

    /// Compile for this architecture, e.g. sm_90a or sm_100a [default: the GPU's]
    #[arg(long, value_name = "SM", help_heading = "Kernels")]
    pub arch: Option<String>,

    /// Seed of the inputs [default: 1]
    #[arg(long, value_name = "N", help_heading = "Kernels")]
    pub seed: Option<u64>,

    /// Launches before the first timed one
    #[arg(long, value_name = "N", help_heading = "Kernels")]
    pub warmup: Option<u32>,

    /// Timed launches of each side [default: until half the width of the speedup's 95 % interval
    /// is at most a quarter of the threshold]
    #[arg(long, value_name = "N", help_heading = "Kernels", value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: Option<u32>,

    /// ncu's section set [default: full]
    #[arg(long, value_name = "SET", help_heading = "Kernels")]
    pub set: Option<String>,

    /// Use `sudo -n` if reading counters needs it
    #[arg(long, help_heading = "Kernels")]
    pub sudo: bool,

    #[command(flatten)]
    pub run: LiveArgs,
}

/// The flags of every run that a comparison of kernels accepts.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Run")]
pub(in crate::cli) struct LiveArgs {
    /// Time limit of each step, e.g. 90s, 10m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,

    /// How long to wait for the GPU
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub queue_timeout: Option<Duration>,

    /// The run's name, which must be new
    #[arg(long, value_name = "NAME")]
    pub run_id: Option<String>,

    /// The run's folder, which must be new or empty
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,

    /// Fail if the host is not fit to measure on (other processes, throttling, …); it is checked
    /// before anything is timed, and a hot GPU again before each later case
    #[arg(long)]
    pub strict: bool,

    /// Print the plan and the exact tool commands; touch nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Write the run's events as JSON lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub events: Option<String>,
}

/// The tool that compares the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum CompareMode {
    /// Nsight Systems, then Nsight Compute
    Deep,
    /// Nsight Compute: counters of each launch
    Ncu,
    /// Nsight Systems: the timeline
    Nsys,
    /// The times only
    Bench,
}

impl CompareMode {
    /// The modes, in order.
    pub(in crate::cli) fn modes(self) -> Vec<kernel::ProfileMode> {
        match self {
            Self::Deep => vec![kernel::ProfileMode::Nsys, kernel::ProfileMode::Ncu],
            Self::Ncu => vec![kernel::ProfileMode::Ncu],
            Self::Nsys => vec![kernel::ProfileMode::Nsys],
            Self::Bench => Vec::new(),
        }
    }

    /// The name as shown.
    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            Self::Deep => "deep",
            Self::Ncu => "ncu",
            Self::Nsys => "nsys",
            Self::Bench => "bench",
        }
    }
}

impl CompareArgs {
    /// The first given flag that only a comparison of kernels uses.
    pub(in crate::cli) fn kernel_only_flag(&self) -> Option<String> {
        let own = [
            ("--mode", self.mode.is_some()),
            ("--problem-sizes", !self.problem_sizes.is_empty()),
            ("--arch", self.arch.is_some()),
            ("--seed", self.seed.is_some()),
            ("--warmup", self.warmup.is_some()),
            ("--iters", self.iters.is_some()),
            ("--set", self.set.is_some()),
            ("--sudo", self.sudo),
            ("--require-gpu", self.unmeasured.require_gpu),
        ];
        let own = own.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag.to_owned());
        own.chain(given_flags(&self.place)).chain(given_flags(&self.run)).next()
    }

    /// One side as arguments of `rgpu profile`.
    pub(in crate::cli) fn side(&self, kernel: &str) -> ProfileArgs {
        let ncu = NcuOptions { set: self.set.clone(), sudo: self.sudo, ..NcuOptions::default() };
        ProfileArgs {
            kernel: Some(kernel.to_owned()),
            mode: Some(kernel::ProfileMode::Bench),
            place: self.place.clone(),
            problem_sizes: self.problem_sizes.clone(),
            arch: self.arch.clone(),
            seed: self.seed.unwrap_or(1),
            warmup: self.warmup,
            iters: self.iters,
            tools: ToolOptions { ncu, ..ToolOptions::default() },
            unmeasured: self.unmeasured,
            run: RunArgs {
                timeout: self.run.timeout,
                queue_timeout: self.run.queue_timeout,
                strict: self.run.strict,
                ..RunArgs::default()
            },
            ..ProfileArgs::default()
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  rgpu compare latest~1 latest
  rgpu compare before.ncu-rep after.ncu-rep --fail-on slower
  rgpu compare --kernel transpose-conflicts --kernel transpose-padded --remote h200
  rgpu compare --kernel transpose-conflicts --kernel transpose-padded --problem-sizes odd";

/// A verdict that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum FailOn {
    /// Slower beyond the threshold
    Slower,
    /// Neither faster, slower nor the same for certain
    Ambiguous,
}
