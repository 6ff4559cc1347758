//! `loop.toml`: what a loop improves, how it measures, and when it stops.

mod read;

pub use read::ConfigOrigin;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use ignore::overrides::{Override, OverrideBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LoopError;
use crate::own_command::is_started_by_agent;
use rgpu_model::duration::parse_duration;

/// Who proposes changes and who reviews them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum LoopMode {
    /// Others write the two JSON files; the loop waits for them.
    #[value(
        help = "Others write worker_result.json and reviewer_verdict.json; the loop waits for them"
    )]
    #[default]
    Manual,
    /// The loop starts `worker_command` and `reviewer_command`.
    #[value(help = "The loop starts worker_command and reviewer_command")]
    Command,
    /// The loop makes up both files and measures nothing.
    #[value(help = "Both are made up, and nothing is measured")]
    DryRun,
}

impl LoopMode {
    /// The word in settings and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Command => "command",
            Self::DryRun => "dry-run",
        }
    }
}

/// The number that a loop improves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoopMetric {
    /// The geometric mean of the median times of all sizes, in microseconds. Lower is better.
    #[default]
    GmeanUs,
    /// The time of the start divided by the best time. Higher is better.
    Speedup,
}

impl LoopMetric {
    /// The word in settings and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GmeanUs => "gmean_us",
            Self::Speedup => "speedup",
        }
    }

    /// Whether `value` is at least as good as `threshold`.
    pub fn is_reached(self, value: f64, threshold: f64) -> bool {
        match self {
            Self::GmeanUs => value <= threshold,
            Self::Speedup => value >= threshold,
        }
    }
}

/// Which way a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Lower is better.
    Lower,
    /// Higher is better.
    Higher,
}

/// A time limit: `90s`, `10m` or `1h30m`; in documents, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct TimeLimit(#[schemars(with = "f64")] f64);

impl TimeLimit {
    const fn seconds(seconds: u32) -> Self {
        Self(seconds as f64)
    }

    /// The limit as the type that waiting takes.
    pub fn duration(self) -> Duration {
        Duration::from_secs_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for TimeLimit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum SecondsOrText {
            Seconds(f64),
            Text(String),
        }
        let seconds = match SecondsOrText::deserialize(deserializer)? {
            SecondsOrText::Seconds(seconds) => Some(seconds),
            SecondsOrText::Text(text) => parse_duration(&text).map(|time| time.as_secs_f64()),
        };
        match seconds {
            Some(seconds) if (0.0..=30.0 * 86400.0).contains(&seconds) => Ok(Self(seconds)),
            _ => Err(serde::de::Error::custom(
                "not a time of at most 30 days: write \"90s\", \"10m\" or \"1h30m\"",
            )),
        }
    }
}

/// The settings of a loop: loop.toml with the keys of the command line.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoopConfig {
    /// The kernel: its folder, kernel.toml or source, from the project folder.
    pub kernel_path: PathBuf,
    /// Who proposes and reviews.
    #[serde(default)]
    pub mode: LoopMode,
    /// The remote that measures. Absent: the default remote.
    pub remote: Option<String>,
    /// Files that a worker may change, as patterns of gitignore from the project folder. Empty: the
    /// kernel's source file.
    #[serde(default)]
    pub allowed_paths: Vec<String>,
    /// The sizes that are compared, as of `--problem-sizes`. Empty: the kernel's default size. All
    /// named sizes are verified in any case.
    #[serde(default)]
    pub problem_sizes: Vec<String>,
    /// The smallest effect that counts, as a fraction.
    #[serde(default = "default_threshold")]
    pub threshold: f64,
    /// Whether a change is kept whose time the kernel itself could have changed (`unprotected`).
    #[serde(default)]
    pub allow_unprotected: bool,
    /// The mode of `rgpu profile` for the start and for each best. Its brief is in the prompts.
    /// `none` for no such profile.
    #[serde(default = "default_profile_mode")]
    pub profile_mode: String,
    /// The number that the target is about.
    #[serde(default)]
    pub target_metric_name: LoopMetric,
    /// Which way it improves; only for the reader, because each metric has one way.
    pub target_metric_direction: Option<Direction>,
    /// The value to reach. Absent: the loop has no target. `target` is another name of this key.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "target")]
    pub target_metric_threshold: Option<f64>,
    /// This many comparisons in a row must reach the target.
    #[serde(default = "default_confirmations")]
    pub target_confirmations: u32,
    /// The loop stops after this many iterations.
    #[serde(default = "default_iterations")]
    pub max_iterations: u32,
    /// The loop stops after this many iterations in a row that improved nothing.
    #[serde(default = "default_no_progress")]
    pub max_no_progress: u32,
    /// The loop stops after this many failures in a row that are not the change's fault.
    #[serde(default = "default_infra_failures")]
    pub max_infra_failures: u32,
    /// How long to wait after such a failure.
    #[serde(default = "default_retry_delay")]
    pub infra_retry_delay: TimeLimit,
    /// The loop stops after it has run for so long, over all its processes.
    #[serde(default = "default_wall_time")]
    pub max_wall_time: TimeLimit,
    /// The worker's command in mode `command`: words with `{prompt}`, `{iter_dir}` and `{kernel}`.
    pub worker_command: Option<String>,
    /// The reviewer's command. Absent: no reviewer.
    pub reviewer_command: Option<String>,
    /// Time limit of the worker's command.
    #[serde(default = "default_worker_timeout")]
    pub worker_timeout: TimeLimit,
    /// Time limit of the reviewer's command.
    #[serde(default = "default_worker_timeout")]
    pub reviewer_timeout: TimeLimit,
    /// Time limit of each verification, comparison and profile.
    #[serde(default = "default_measure_timeout")]
    pub measure_timeout: TimeLimit,
    /// A file with words for the worker, which its prompt begins with.
    pub instructions: Option<PathBuf>,
    /// The size limit of each prompt in bytes.
    #[serde(default = "default_prompt_bytes")]
    pub prompt_bytes: usize,
}

fn default_threshold() -> f64 {
    0.01
}
fn default_profile_mode() -> String {
    "ncu".to_owned()
}
fn default_confirmations() -> u32 {
    2
}
fn default_iterations() -> u32 {
    40
}
fn default_no_progress() -> u32 {
    6
}
fn default_infra_failures() -> u32 {
    3
}
fn default_retry_delay() -> TimeLimit {
    TimeLimit::seconds(30)
}
fn default_wall_time() -> TimeLimit {
    TimeLimit::seconds(6 * 3600)
}
fn default_worker_timeout() -> TimeLimit {
    TimeLimit::seconds(3600)
}
fn default_measure_timeout() -> TimeLimit {
    TimeLimit::seconds(1800)
}
fn default_prompt_bytes() -> usize {
    24_000
}

impl LoopConfig {
    /// The schema of loop.toml, for editors. There, times may be text, and a key has another name.
    pub fn file_schema() -> schemars::Schema {
        let mut schema = schemars::schema_for!(Self);
        schema.insert("title".to_owned(), "loop.toml".into());
        if let Some(time) = schema.pointer_mut("/$defs/TimeLimit/type") {
            *time = serde_json::json!(["number", "string"]);
        }
        let target = schema.pointer("/properties/target_metric_threshold").cloned();
        let properties = schema.pointer_mut("/properties").and_then(|p| p.as_object_mut());
        if let (Some(target), Some(properties)) = (target, properties) {
            properties.insert("target".to_owned(), target);
        }
        schema
    }

    /// Refuses settings that start a program on this machine, if an agent started this process. The
    /// settings may be the agent's own: it can write files of the project. `typed` is what the user
    /// can type instead, after `rgpu loop`.
    pub fn refuse_commands_of_agent(&self, typed: &str) -> Result<(), LoopError> {
        if self.mode != LoopMode::Command || !is_started_by_agent() {
            return Ok(());
        }
        let command = self.worker_command.clone().unwrap_or_default();
        Err(LoopError::NeedsUser { command, typed: typed.to_owned() })
    }

    /// The files that a worker may change.
    pub(super) fn allowed(&self, project: &Path) -> Result<Override, LoopError> {
        matcher(project, &self.allowed_paths).map_err(|e| LoopError::Config {
            file: project.join("loop.toml"),
            line: None,
            why: format!("`allowed_paths`: {e}"),
        })
    }
}

/// The files that patterns name.
fn matcher(project: &Path, patterns: &[String]) -> Result<Override, ignore::Error> {
    let mut builder = OverrideBuilder::new(project);
    for pattern in patterns {
        builder.add(pattern)?;
    }
    builder.build()
}

/// Whether a pattern names a file or a folder that contains it.
pub(super) fn is_allowed(allowed: &Override, path: &Path) -> bool {
    let mut folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    allowed.matched(path, false).is_whitelist()
        || folders.any(|folder| allowed.matched(folder, true).is_whitelist())
}
