//! The arguments of `rgpu bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::support::number_args::{factor, fraction};
use crate::cli::support::profile_args::mode_parser;
use crate::cli::support::run_args::RemoteArgs;
use crate::cli::support::unmeasured::UnmeasuredArgs;
use rgpu_model::duration::duration;
use rgpu_model::suite::Level;
use rgpu_plan::kernel::{ProfileMode, valid_name};
use rgpu_report::suite::FORMATS;
use rgpu_work::suite::expectations::{UpdateRefusal, Validity};

#[derive(Subcommand, Clone, Debug)]
pub(super) enum BenchCommand {
    /// List the targets and their cases
    #[command(after_long_help = examples!("rgpu bench list", "rgpu bench list -t 'softmax:*'"))]
    List(ListArgs),
    /// Run a suite
    Run(Box<RunArgs>),
    /// Continue a suite that was interrupted, or whose budget was used up
    #[command(after_long_help = examples!("rgpu bench resume nightly_0122"))]
    Resume(ResumeArgs),
    /// Show a suite again, in any format
    #[command(after_long_help = examples!("rgpu bench show latest --format html"))]
    Show(ShowArgs),
    /// Compare two runs of a suite, time by time
    #[command(after_long_help = examples!("rgpu bench compare night two --fail-on slower"))]
    Compare(CompareArgs),
    /// Show how the times of cases changed over the suites of this project
    #[command(after_long_help = examples!("rgpu bench history memory:vecadd --since 30d --format html"))]
    History(HistoryArgs),
    /// Look for targets, expectations and sources that can make results misleading; exit 1 on
    /// findings
    #[command(after_long_help = examples!("rgpu bench audit"))]
    Audit(AuditArgs),
}

#[derive(Args, Clone, Debug, Default)]
pub(super) struct TargetArgs {
    /// A suite, a target `suite:case`, or a case with its axes; `*` and `?` match any characters;
    /// may be repeated [default: all]
    #[arg(long, short, value_name = "TARGET")]
    pub target: Vec<String>,

    /// The file with the targets, or a set of GPU MODE problems (.yaml) [default: bench.toml of the
    /// project, else kernels/bench.toml]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Include targets that are `generated`
    #[arg(long)]
    pub include_generated: bool,
}

#[derive(Args, Clone, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
}

#[derive(Args, Clone, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub targets: TargetArgs,

    /// How much is measured besides times: minimal, sol (with the roofline) or deep (nsys, and all
    /// sections of ncu) [default: the target's own, else minimal]
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    pub level: Option<Level>,

    /// The mode of every case, e.g. bench for times alone or verify for the check alone
    #[arg(long, short, value_parser = mode_parser())]
    pub mode: Option<ProfileMode>,

    #[command(flatten)]
    pub place: RemoteArgs,

    /// The name of the suite's run, which must be new
    #[arg(long, value_name = "NAME", conflicts_with = "failed")]
    pub run_id: Option<String>,

    /// Timed launches [default: until the time is known well enough]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: Option<u32>,

    /// Time limit of each step, e.g. 90s, 10m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,

    /// Time limit of the check of results, which comes before all times [default: as of each step]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub verify_timeout: Option<Duration>,

    /// The speedup below which a pair is too close to call [default: 1.05]
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub min_speedup: Option<f64>,

    /// The smallest effect that counts [default: 1%]
    #[arg(long, value_name = "N%", value_parser = fraction)]
    pub threshold: Option<f64>,

    /// Fail a case if the host is not fit to measure on (other processes, throttling, …); it is
    /// checked before anything is timed, and a hot GPU again before each later size
    #[arg(long)]
    pub strict: bool,

    /// Lock the SM clock of each GPU while its cases run, and release it afterwards. This needs
    /// root on the host; do not use it on a machine that others share [default: clocks stay as they
    /// are]
    #[arg(long, value_name = "MHZ", conflicts_with = "share_gpu", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub lock_clocks: Option<u32>,

    /// Spread the cases over this many containers of a Modal remote, jobs of a Slurm cluster, or
    /// GPUs of one host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub parallel: Option<u32>,

    /// Run again what failed in this suite, as new attempts of it [default: the latest]
    #[arg(long, value_name = "SUITE", conflicts_with_all = ["target", "level", "mode", "iters", "strict", "lock_clocks", "parallel"])]
    pub failed: Option<Option<String>>,

    /// Only what failed for this reason: a code of the table, or a word of it
    #[arg(long, value_name = "REASON", requires = "failed")]
    pub reason: Option<String>,

    /// Repeat what failed until nothing does, at most N times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub until_clean: Option<u32>,

    /// Print the cases that would run, each with its remote, and run nothing
    #[arg(long, conflicts_with = "failed")]
    pub dry_run: bool,

    /// The time for all cases: those that fit run, shortest first; `bench resume` runs the rest
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,

    #[command(flatten)]
    pub expect: ExpectArgs,
}

/// What to do with the expected times.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Expectations")]
pub(super) struct ExpectArgs {
    /// Write the times to expectations/<gpu>.json, from at least 3 sessions of the same code
    #[arg(long)]
    pub update_expectations: bool,

    /// Judge against the expected times in expectations/NAME/, and write them there, instead of
    /// those in expectations/
    #[arg(long, value_name = "NAME", value_parser = baseline)]
    pub baseline: Option<String>,

    /// Update in spite of this
    #[arg(long, value_name = "REASON", value_delimiter = ',', requires = "update_expectations", value_parser = refusal)]
    pub accept: Vec<UpdateRefusal>,

    /// Exit with 1 on this verdict
    #[arg(long, value_enum, value_name = "VERDICT", value_delimiter = ',')]
    pub fail_on: Vec<FailOn>,

    /// strict: an expectation made under another driver or compiler is not compared, and a time
    /// without an expectation fails
    #[arg(long, value_enum, default_value = "portable")]
    pub validity: Validity,

    #[command(flatten)]
    pub unmeasured: UnmeasuredArgs,
}

#[derive(Args, Clone, Debug)]
pub(super) struct ResumeArgs {
    /// The suite: an id, a unique prefix, latest, latest~1 or a folder [default: the latest]
    pub run: Option<String>,

    /// The time for all cases
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,

    /// Accept the key of an unknown host
    #[arg(long)]
    pub accept_new: bool,

    /// Continue a suite that was not started on this machine
    #[arg(long)]
    pub yes: bool,

    #[command(flatten)]
    pub expect: ExpectArgs,
}

#[derive(Args, Clone, Debug)]
pub(super) struct ShowArgs {
    /// The suite: an id, a unique prefix, latest, latest~1 or a folder [default: the latest]
    pub run: Option<String>,

    /// The format [default: table, or json with --json]
    #[arg(long, value_name = "FORMAT", value_parser = clap::builder::PossibleValuesParser::new(FORMATS))]
    pub format: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(super) struct CompareArgs {
    /// The run of the base suite: an id, a unique prefix, latest, latest~1 or a folder
    #[arg(value_name = "RUN")]
    pub a: String,

    /// The run to compare with it
    #[arg(value_name = "RUN")]
    pub b: String,

    /// The smallest effect that counts
    #[arg(long, value_name = "N%", default_value = "1%", value_parser = fraction)]
    pub threshold: f64,

    /// Exit with 1 on this verdict; `slower` also on cases that fail only now
    #[arg(long, value_enum, value_name = "VERDICT", value_delimiter = ',')]
    pub fail_on: Vec<FailOn>,

    /// Compare even if GPU, driver or clock policy differ
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Clone, Debug)]
pub(super) struct HistoryArgs {
    /// A case, a target or a pattern
    #[arg(value_name = "CASE")]
    pub case: String,

    /// Show only suites from the last days or hours, or from a date on: 30d, 12h, 2026-11-01
    #[arg(long, value_name = "TIME|DATE")]
    pub since: Option<String>,

    /// Only this GPU, or part of its name
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,

    /// The smallest change that counts
    #[arg(long, value_name = "N%", default_value = "1%", value_parser = fraction)]
    pub threshold: f64,

    /// The format [default: table, or json with --json]
    #[arg(long, value_name = "FORMAT", value_parser = ["table", "json", "html"])]
    pub format: Option<String>,

    /// Write `html` to this file [default: history.html beside the runs]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Overwrite a file that is no report
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Clone, Debug)]
pub(super) struct AuditArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// A verdict that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FailOn {
    /// Slower beyond the threshold
    Slower,
    /// Neither faster, slower nor the same for certain
    Ambiguous,
    /// Nothing to compare with
    New,
    /// Measured under other conditions
    Incomparable,
}

const EXAMPLES: &str = "\
Examples:
  rgpu bench run
  rgpu bench run -t gemm:wagmiv67 -t 'softmax:*' --level minimal --remote h200 --run-id nightly_0122
  rgpu bench run --level deep --update-expectations
  rgpu bench run --failed --reason nvtx";

fn level(text: &str) -> Result<Level, String> {
    Level::parse(text).ok_or_else(|| "the levels are minimal, sol and deep".to_owned())
}

fn baseline(text: &str) -> Result<String, String> {
    if valid_name(text) {
        Ok(text.to_owned())
    } else {
        Err("write letters, digits, `.`, `_` and `-`".to_owned())
    }
}

fn refusal(text: &str) -> Result<UpdateRefusal, String> {
    let found = UpdateRefusal::ALL.iter().find(|(name, _)| *name == text);
    found.map(|(_, refusal)| *refusal).ok_or_else(|| {
        let names: Vec<&str> = UpdateRefusal::ALL.iter().map(|(name, _)| *name).collect();
        format!("one of {}", names.join(", "))
    })
}
