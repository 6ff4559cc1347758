//! `loop.toml`: what a loop improves, how it measures, and when it stops.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ignore::overrides::{Override, OverrideBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LoopError;
use crate::duration::parse_duration;
use crate::regular_file;

/// The largest loop.toml.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The smallest byte limit of a prompt: its fixed part must fit.
const MIN_PROMPT_BYTES: usize = 4096;

/// Who proposes changes and who reviews them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LoopMode {
    /// Others write the two JSON files; the loop waits for them.
    #[default]
    Manual,
    /// The loop starts `worker_command` and `reviewer_command`.
    Command,
    /// The loop makes up both files and measures nothing.
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
pub enum Metric {
    /// The geometric mean of the median times of all sizes, in microseconds. Lower is better.
    #[default]
    GmeanUs,
    /// The time of the start divided by the best time. Higher is better.
    Speedup,
}

impl Metric {
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

    /// As a duration.
    pub fn duration(self) -> Duration {
        Duration::from_secs_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for TimeLimit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Seconds(f64),
            Text(String),
        }
        let seconds = match Written::deserialize(deserializer)? {
            Written::Seconds(seconds) => Some(seconds),
            Written::Text(text) => parse_duration(&text).map(|time| time.as_secs_f64()),
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoopConfig {
    /// The kernel: its folder, kernel.toml or source, from the project folder.
    pub kernel_path: PathBuf,
    /// Who proposes and reviews.
    #[serde(default)]
    pub mode: LoopMode,
    /// The remote that measures. Absent: the default remote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// What `rgpu profile` runs for the start and for each best: its brief is in the prompts.
    /// `none` for no such profile.
    #[serde(default = "default_profile_mode")]
    pub profile_mode: String,
    /// The number that the target is about.
    #[serde(default)]
    pub target_metric_name: Metric,
    /// Which way it improves; only for the reader, because each metric has one way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_metric_direction: Option<Direction>,
    /// The value to reach. Absent: the loop has no target. `target` is another name of this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_metric_threshold: Option<f64>,
    /// So many comparisons in a row must reach the target.
    #[serde(default = "default_confirmations")]
    pub target_confirmations: u32,
    /// The loop stops after so many iterations.
    #[serde(default = "default_iterations")]
    pub max_iterations: u32,
    /// The loop stops after so many iterations in a row that improved nothing.
    #[serde(default = "default_no_progress")]
    pub max_no_progress: u32,
    /// The loop stops after so many failures in a row that are not the change's fault.
    #[serde(default = "default_infra_failures")]
    pub max_infra_failures: u32,
    /// How long to wait after such a failure.
    #[serde(default = "default_retry_delay")]
    pub infra_retry_delay: TimeLimit,
    /// The loop stops after it has run for so long, over all its processes.
    #[serde(default = "default_wall_time")]
    pub max_wall_time: TimeLimit,
    /// The worker's command in mode `command`: words with `{prompt}`, `{iter_dir}` and `{kernel}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_command: Option<String>,
    /// The reviewer's command. Absent: no reviewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// Reads a loop.toml with further `KEY=VALUE` of the command line.
    ///
    /// # Errors
    /// [`LoopError::Config`] for a file that cannot be read and for keys and values that mean
    /// nothing.
    pub fn read(file: &Path, overrides: &[String]) -> Result<Self, LoopError> {
        let wrong = |why: String| LoopError::Config { file: file.to_owned(), why };
        let text = regular_file::read_to_string(file, MAX_CONFIG_BYTES)
            .map_err(|e| wrong(format!("it cannot be read: {e}")))?;
        let mut table: toml::Table = text.parse().map_err(|e| wrong(format!("{e}")))?;
        put_canonical(&mut table);
        for word in overrides {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| wrong(format!("`{word}` is no KEY=VALUE of it")))?;
            let key = canonical(key.trim());
            // A bare word is text, so that quotes are not needed in a shell.
            let value = format!("x = {value}").parse::<toml::Table>().ok();
            let value = value.and_then(|mut table| table.remove("x"));
            let text = || toml::Value::String(word[word.find('=').map_or(0, |at| at + 1)..].into());
            table.insert(key.to_owned(), value.unwrap_or_else(text));
        }
        let config = Self::deserialize(toml::Value::Table(table))
            .map_err(|e| wrong(e.message().to_owned()))?;
        config.check().map_err(wrong)?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if !(self.threshold > 0.0 && self.threshold < 1.0) {
            return Err("`threshold` must lie above 0 and below 1, such as 0.01".to_owned());
        }
        if self.prompt_bytes < MIN_PROMPT_BYTES {
            return Err(format!("`prompt_bytes` must be at least {MIN_PROMPT_BYTES}"));
        }
        let counts = [
            ("max_iterations", self.max_iterations),
            ("max_no_progress", self.max_no_progress),
            ("max_infra_failures", self.max_infra_failures),
            ("target_confirmations", self.target_confirmations),
        ];
        if let Some((key, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(format!("`{key}` must be at least 1"));
        }
        if self.mode == LoopMode::Command && self.worker_command.is_none() {
            return Err("mode `command` needs `worker_command`".to_owned());
        }
        let commands = [&self.worker_command, &self.reviewer_command];
        for command in commands.into_iter().flatten() {
            if shlex::split(command).is_none_or(|words| words.is_empty()) {
                return Err(format!("`{command}` is no command: a quote is open, or it is empty"));
            }
        }
        let is_wrong_way = match (self.target_metric_name, self.target_metric_direction) {
            (Metric::GmeanUs, Some(way)) => way != Direction::Lower,
            (Metric::Speedup, Some(way)) => way != Direction::Higher,
            (_, None) => false,
        };
        if is_wrong_way {
            let metric = self.target_metric_name.as_str();
            return Err(format!(
                "`{metric}` improves the other way than `target_metric_direction`"
            ));
        }
        if self.target_metric_threshold.is_some_and(|target| !(target > 0.0 && target.is_finite()))
        {
            return Err("the target must be a number above 0".to_owned());
        }
        Ok(())
    }

    /// The files that a worker may change.
    ///
    /// # Errors
    /// [`LoopError::Config`] for a pattern that cannot be read.
    pub(super) fn allowed(&self, project: &Path) -> Result<Override, LoopError> {
        let mut builder = OverrideBuilder::new(project);
        for pattern in &self.allowed_paths {
            builder.add(pattern).map_err(|e| LoopError::Config {
                file: project.join("loop.toml"),
                why: format!("`allowed_paths`: {e}"),
            })?;
        }
        builder.build().map_err(|e| LoopError::Config {
            file: project.join("loop.toml"),
            why: format!("`allowed_paths`: {e}"),
        })
    }
}

/// Whether a pattern names a file or a folder that contains it.
pub(super) fn is_allowed(allowed: &Override, path: &Path) -> bool {
    let mut folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    allowed.matched(path, false).is_whitelist()
        || folders.any(|folder| allowed.matched(folder, true).is_whitelist())
}

/// The full name of a key.
fn canonical(key: &str) -> &str {
    match key {
        "target" => "target_metric_threshold",
        key => key,
    }
}

fn put_canonical(table: &mut toml::Table) {
    if let Some(value) = table.remove("target") {
        table.entry(canonical("target")).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, overrides: &[&str]) -> Result<LoopConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("loop.toml");
        std::fs::write(&file, text).unwrap();
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        LoopConfig::read(&file, &overrides).map_err(|error| match error {
            LoopError::Config { why, .. } => why,
            other => other.to_string(),
        })
    }

    #[test]
    fn keys_of_the_command_line_win_and_need_no_quotes() {
        let text = "kernel_path = \"kernels/k\"\ntarget = 20\nmax_wall_time = \"2h\"";
        let config = read(
            text,
            &["target=9.5", "max_iterations=600", "remote=h200", "worker_command=sh w.sh {prompt}"],
        )
        .unwrap();
        assert_eq!(config.target_metric_threshold, Some(9.5));
        assert_eq!((config.max_iterations, config.remote.as_deref()), (600, Some("h200")));
        assert_eq!(config.worker_command.as_deref(), Some("sh w.sh {prompt}"));
        assert_eq!(config.max_wall_time.duration(), Duration::from_secs(7200));
        // Its own document is read back.
        let again: LoopConfig =
            serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn patterns_name_files_and_whole_folders_and_nothing_else() {
        let text = "kernel_path = \"k\"\nallowed_paths = [\"/k/a.cu\", \"inc/\", \"gen/*.h\"]";
        let config = read(text, &[]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let allowed = config.allowed(dir.path()).unwrap();
        for path in ["k/a.cu", "inc/x.h", "inc/deep/x.h", "gen/y.h"] {
            assert!(is_allowed(&allowed, Path::new(path)), "{path}");
        }
        for path in ["k/b.cu", "other/k/a.cu", "k/a.cu.orig", "gen/y.c", "kernel.toml"] {
            assert!(!is_allowed(&allowed, Path::new(path)), "{path}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let kernel = "kernel_path = \"k\"\n";
        for (text, overrides, wanted) in [
            ("mode = \"manual\"", &[][..], "missing field `kernel_path`"),
            (kernel, &["max_iteration=3"][..], "unknown field `max_iteration`"),
            (kernel, &["max_iterations"][..], "is no KEY=VALUE"),
            (kernel, &["max_iterations=0"][..], "at least 1"),
            (kernel, &["mode=command"][..], "needs `worker_command`"),
            (kernel, &["mode=command", "worker_command=sh 'x"][..], "a quote is open"),
            (kernel, &["target=-1"][..], "above 0"),
            (kernel, &["target_metric_direction=higher"][..], "the other way"),
            (kernel, &["max_wall_time=2 months"][..], "not a time"),
            (kernel, &["prompt_bytes=10"][..], "at least 4096"),
            (kernel, &["threshold=1"][..], "below 1"),
        ] {
            let why = read(text, overrides).unwrap_err();
            assert!(why.contains(wanted), "{why}");
        }
    }
}
