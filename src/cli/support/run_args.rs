//! Flags of commands that run something on a host.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use serde::Serialize;

use rgpu_model::RungId;
use rgpu_model::byte_size::bytes;
use rgpu_model::duration::duration;

#[derive(Args, Clone, Debug, Default, Serialize)]
pub(in crate::cli) struct RemoteArgs {
    /// A remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port;
    /// `profile` accepts a comma-separated list and runs on all of them at once [default: that of
    /// RGPU_REMOTE, or of your settings]
    #[arg(long, short, value_name = "REMOTE", help_heading = "Where")]
    pub remote: Option<String>,

    /// Which GPU: any, an index, a UUID, or part of a name
    #[arg(long, value_name = "any|N|UUID|NAME", help_heading = "Where")]
    pub gpu: Option<String>,

    /// Run even if other processes use the GPU
    #[arg(long, help_heading = "Where")]
    pub share_gpu: bool,

    /// Accept the key of an unknown host
    #[arg(long, help_heading = "Where")]
    pub accept_new: bool,
}

/// Arguments of every run.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Run")]
pub(in crate::cli) struct RunArgs {
    /// Time limit of each step, e.g. 90s, 10m, 1h30m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,

    /// How long to wait for the GPU
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub queue_timeout: Option<Duration>,

    /// The run's name, which must be new
    #[arg(long, value_name = "NAME", help_heading = "Record of the run")]
    pub run_id: Option<String>,

    /// The run's folder, which must be new or empty [default: a new one in RGPU_RUNS_DIR, or where
    /// your settings say]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,

    /// A label to store with the run
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, help_heading = "Record of the run")]
    pub label: Vec<(String, String)>,

    /// A note to store with the run; runs with a note are never pruned
    #[arg(long, value_name = "TEXT", help_heading = "Record of the run")]
    pub note: Option<String>,

    /// The lowest rung that counts as success, e.g. ncu.basic
    #[arg(long, value_name = "RUNG", value_parser = rung_parser(), help_heading = "Record of the run")]
    pub at_least: Option<RungId>,

    /// Fail if the host is not fit to measure on (other processes, throttling, …); it is checked
    /// before anything is timed, and a hot GPU again before each later case
    #[arg(long)]
    pub strict: bool,

    /// Flags from `[preset.NAME]` of rgpu.toml
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,

    /// Print the plan, the harness and the exact tool commands; touch nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Write the run's events as JSON lines
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath, help_heading = "Record of the run")]
    pub events: Option<String>,

    /// Show kernels by their full names
    #[arg(long, help_heading = "Record of the run")]
    pub full_names: bool,

    /// Submit the job and exit; `rgpu runs attach` fetches the results
    #[arg(long)]
    pub detach: bool,

    /// Most output to keep of each stream, e.g. 100MB
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Record of the run")]
    pub log_limit: Option<u64>,
}

/// Reads the id of a rung.
fn rung_parser() -> impl TypedValueParser<Value = RungId> {
    PossibleValuesParser::new(rgpu_run::run::rung_names()).map(RungId::from)
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}
