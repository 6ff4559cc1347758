//! `expectations/<gpu>.json`: the times that the cases of a project are expected to take on one
//! GPU. The file is committed, so it is sorted: diffs stay small. A baseline with a name of its own
//! is a folder with such files, `expectations/<name>/`.
//!
//! A time is judged by the same function as every comparison, with a threshold that is the least
//! effect plus the spread between sessions. A session is an earlier run of the suite with the same
//! key and code. With fewer than [`MIN_SESSIONS`] the spread is not known, and a difference below
//! [`UNKNOWN_SESSION_SPREAD`] is ambiguous. Few sessions show too small a spread: a difference that
//! the next one may well have is ambiguous, too. A GPU that the expectation was not measured on
//! adds the spread between devices, and [`UNKNOWN_SPREAD`] until that is known.

#![expect(clippy::disallowed_methods, reason = "a folder that the user named")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lone_session::{LoneSession, lone_session};
use rgpu_analysis::compare::compare_times;
use rgpu_model::comparison::{SideTime, TimeVerdict};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::profile::CheckVerdict;
use rgpu_model::suite::{MeasurementKey, SuiteTime, SuiteVerdict, TimeJudgement};
use rgpu_model::suite_history::HistoryPoint;
use rgpu_run::store::atomic;

/// The schema name of a file.
pub const SCHEMA: &str = "rgpu.expectations/1";

/// The folder in a project.
pub const FOLDER: &str = "expectations";

/// The folder of a project's expectations, or of a baseline with a name of its own.
pub fn folder(project: &Path, baseline: Option<&str>) -> PathBuf {
    baseline.iter().fold(project.join(FOLDER), |folder, name| folder.join(name))
}

/// An unknown device, driver or compiler adds this fraction to the threshold.
pub const UNKNOWN_SPREAD: f64 = 0.10;

/// How far two sessions of the same code may be apart, as a fraction, where their spread is not
/// known. Equal kernels of 5 µs were 4.7 % apart on one H200 within minutes.
pub const UNKNOWN_SESSION_SPREAD: f64 = 0.05;

/// How many times the largest distance from the median of so many sessions or more the next one
/// keeps within, in 95 % of cases, if sessions are normally distributed (200,000 simulated draws of
/// each).
const REACH: [(u64, f64); 8] =
    [(20, 1.0), (15, 1.1), (10, 1.3), (8, 1.44), (6, 1.7), (5, 1.93), (4, 2.51), (0, 3.66)];

/// The smallest number of sessions that make an expectation.
pub const MIN_SESSIONS: usize = 3;

/// A larger file is not read.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The expectations for one GPU (`rgpu.expectations/1`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expectations {
    /// Name and version of this schema: `rgpu.expectations/1`.
    pub schema: String,
    /// Name of the GPU.
    pub gpu: String,
    /// The entries, sorted by their keys.
    pub entries: Vec<Expectation>,
}

/// The expected time of one key.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// The measured case, side and sizes, and the conditions.
    #[serde(flatten)]
    pub key: MeasurementKey,
    /// Median of the sessions' medians in nanoseconds.
    pub median_ns: f64,
    /// The 95 % interval that is typical of the sessions, scaled to `median_ns`.
    pub ci95_ns: [f64; 2],
    /// Largest distance of a session's median from the median, on one device, as a fraction.
    pub session_spread: f64,
    /// Largest distance of a device's median from the median, as a fraction; absent with one
    /// device.
    pub device_spread: Option<f64>,
    /// UUIDs of the GPUs, sorted.
    pub devices: Vec<String>,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of samples of all sessions.
    pub samples: u64,
    /// The commit at which it was measured.
    pub commit: String,
    /// The least share of the speed of light that the user accepts, in percent.
    pub min_sol_percent: Option<f64>,
}

/// Why an expectation is not updated.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum UpdateRefusal {
    /// Files of the project differ from the commit.
    Dirty,
    /// The results were wrong, or not checked.
    Wrong,
    /// The GPU was throttled.
    Throttled,
    /// There are fewer than [`MIN_SESSIONS`] sessions of the same code.
    FewSessions,
    /// The relative interval is more than 1.5 times as wide as the stored one.
    Wider,
}

impl UpdateRefusal {
    /// All refusals, by the names that `--accept` takes.
    pub const ALL: [(&'static str, Self); 5] = [
        ("dirty", Self::Dirty),
        ("wrong", Self::Wrong),
        ("throttled", Self::Throttled),
        ("few-sessions", Self::FewSessions),
        ("wider", Self::Wider),
    ];

    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Dirty => "files differ from the commit",
            Self::Wrong => "the results are wrong or unchecked",
            Self::Throttled => "the GPU was throttled",
            Self::FewSessions => "there are fewer than 3 sessions of this code",
            Self::Wider => "its interval is more than 1.5 times as wide as the stored one",
        }
    }

    /// The name for `--accept`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, refusal)| *refusal == self).map_or("", |(name, _)| name)
    }
}

/// The effect of an update on one key.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpdatedEntry {
    /// The measured case, side and sizes, and the conditions.
    #[serde(flatten)]
    pub key: MeasurementKey,
    /// The reason if it was not updated.
    pub refused: Option<UpdateRefusal>,
    /// The expected time before, in nanoseconds; absent if it is new.
    pub before_ns: Option<f64>,
    /// The expected time from now on.
    pub after_ns: Option<f64>,
    /// The session that alone makes the spread large; absent if there is none.
    pub lone_session: Option<LoneSession>,
}

/// Whether times that were measured under other conditions are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Validity {
    /// Only times of the same key; others are INCOMPARABLE.
    #[value(help = "Only times of the same key")]
    Strict,
    /// Times under another driver or compiler are judged too, with [`UNKNOWN_SPREAD`] added to the
    /// threshold. Another clock policy changes a time by more than that.
    #[value(help = "Times of another driver or compiler too")]
    #[default]
    Portable,
}

/// The name of a GPU's file: `nvidia-h200.json`.
pub fn file_name(gpu: &str) -> String {
    let word: String = gpu
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let words: Vec<&str> = word.split('-').filter(|word| !word.is_empty()).collect();
    format!("{}.json", words.join("-"))
}

impl Expectations {
    /// The path of a GPU's file in a [`folder`].
    pub fn path(folder: &Path, gpu: &str) -> PathBuf {
        folder.join(file_name(gpu))
    }

    /// Reads the file of a GPU in a [`folder`]. Without one there are no entries.
    pub fn load(folder: &Path, gpu: &str) -> Result<Self> {
        let path = Self::path(folder, gpu);
        match Self::read(&path)? {
            None => {
                Ok(Self { schema: SCHEMA.to_owned(), gpu: gpu.to_owned(), entries: Vec::new() })
            }
            Some(found) if found.gpu != gpu => Err(another_gpu_failure(&path, &found.gpu)),
            Some(found) => Ok(found),
        }
    }

    /// Reads the files of all GPUs in a [`folder`], sorted by their names. Without the folder there
    /// are none.
    pub fn load_all(folder: &Path) -> Result<Vec<Self>> {
        let failed = |e: std::io::Error| unusable(folder, "cannot be read").cause(e);
        let mut paths = Vec::new();
        match fs::read_dir(folder) {
            Ok(files) => {
                for file in files {
                    paths.push(file.map_err(failed)?.path());
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(e)),
        }
        let is_json = |path: &Path| path.extension().is_some_and(|extension| extension == "json");
        paths.retain(|path| is_json(path) && !path.is_dir());
        paths.sort();
        let mut all = Vec::new();
        for path in paths {
            match Self::read(&path)? {
                None => {}
                Some(found) if path != Self::path(folder, &found.gpu) => {
                    return Err(another_gpu_failure(&path, &found.gpu));
                }
                Some(found) => all.push(found),
            }
        }
        Ok(all)
    }

    /// Reads a file; `None` if there is none.
    fn read(path: &Path) -> Result<Option<Self>> {
        let bytes = match rgpu_model::agent_files::read(path, MAX_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(unusable(path, "cannot be read").cause(e)),
        };
        let value: serde_json::Value = rgpu_run::saved_json::from_slice(&bytes)
            .map_err(|e| unusable(path, "are not JSON").cause(e))?;
        match value["schema"].as_str() {
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(unusable(path, &format!("have the schema `{other}`"))
                    .cause(format!("this rgpu knows `{SCHEMA}`"))
                    .hint("use the rgpu that wrote them"));
            }
            None => return Err(unusable(path, "name no schema")),
        }
        let found: Self =
            serde_json::from_value(value).map_err(|e| unusable(path, "are damaged").cause(e))?;
        let sound = |e: &Expectation| {
            let numbers = [e.median_ns, e.ci95_ns[0], e.ci95_ns[1]];
            numbers.iter().all(|x| x.is_finite() && *x > 0.0) && e.session_spread >= 0.0
        };
        match found.entries.iter().find(|entry| !sound(entry)) {
            Some(entry) => {
                Err(unusable(path, "have an invalid time or spread").cause(&entry.key.case))
            }
            None => Ok(Some(found)),
        }
    }

    /// Writes the file into a [`folder`], sorted.
    pub fn save(&mut self, folder: &Path) -> Result<PathBuf> {
        self.entries.sort_by(|a, b| a.key.cmp(&b.key));
        let path = Self::path(folder, &self.gpu);
        let failed = |e: std::io::Error| {
            Failure::new(Exit::Disk, "disk", "the expectations cannot be written")
                .file(path.display())
                .cause(e)
        };
        let mut text =
            serde_json::to_vec_pretty(self).map_err(std::io::Error::other).map_err(failed)?;
        text.push(b'\n');
        fs::create_dir_all(folder).map_err(failed)?;
        atomic::write(&path, &text).map_err(failed)?;
        Ok(path)
    }

    /// Judges a time. `least_effect` is a fraction.
    pub fn judge(&self, time: &SuiteTime, least_effect: f64, validity: Validity) -> TimeJudgement {
        if let Some(entry) = self.entries.iter().find(|entry| entry.key == time.key) {
            return judge(entry, time, least_effect, 0.0);
        }
        let is_portable =
            |key: &MeasurementKey| key.method == time.key.method && key.clocks == time.key.clocks;
        let same = || self.entries.iter().filter(|entry| same_work(&entry.key, &time.key));
        let near = same().find(|entry| is_portable(&entry.key)).or_else(|| same().next());
        let Some(entry) = near else {
            return verdict_without_numbers(SuiteVerdict::New, String::new());
        };
        let differing = differences(&entry.key, &time.key);
        match validity {
            Validity::Portable if is_portable(&entry.key) => {
                let judgement = judge(entry, time, least_effect, UNKNOWN_SPREAD);
                TimeJudgement { why: format!("expected under another {differing}"), ..judgement }
            }
            _ => verdict_without_numbers(
                SuiteVerdict::Incomparable,
                format!("expected under another {differing}"),
            ),
        }
    }

    /// The entries of this GPU whose case is none of `cases`.
    pub fn entries_without_case<'a>(&'a self, cases: &BTreeSet<&str>) -> Vec<&'a MeasurementKey> {
        let keys = self.entries.iter().map(|entry| &entry.key);
        keys.filter(|key| !cases.contains(key.case.as_str())).collect()
    }

    /// Updates the entry of a time from all its sessions, unless there is a reason against it that
    /// is not accepted.
    pub fn update(
        &mut self,
        time: &SuiteTime,
        sessions: &[&HistoryPoint],
        commit: Option<&str>,
        dirty: bool,
        accepted: &[UpdateRefusal],
    ) -> UpdatedEntry {
        let at = self.entries.iter().position(|entry| entry.key == time.key);
        let before = at.map(|at| self.entries[at].clone());
        let made = Expectation::from_sessions(time, sessions, commit.unwrap_or_default());
        let width = |e: &Expectation| (e.ci95_ns[1] - e.ci95_ns[0]) / e.median_ns;
        let reasons = [
            (UpdateRefusal::Dirty, dirty || commit.is_none()),
            (UpdateRefusal::Wrong, time.correctness != Some(CheckVerdict::Right)),
            (UpdateRefusal::Throttled, !time.throttle.is_empty()),
            (UpdateRefusal::FewSessions, made.sessions < MIN_SESSIONS as u64),
            (UpdateRefusal::Wider, before.as_ref().is_some_and(|b| width(&made) > 1.5 * width(b))),
        ];
        let refused =
            reasons.into_iter().find(|(reason, applies)| *applies && !accepted.contains(reason));
        let mut updated = UpdatedEntry {
            key: time.key.clone(),
            refused: refused.map(|(reason, _)| reason),
            before_ns: before.as_ref().map(|entry| entry.median_ns),
            after_ns: None,
            lone_session: lone_session(sessions),
        };
        if updated.refused.is_some() {
            return updated;
        }
        updated.after_ns = Some(made.median_ns);
        let gate = before.and_then(|entry| entry.min_sol_percent);
        let made = Expectation { min_sol_percent: gate, ..made };
        match at {
            Some(at) => self.entries[at] = made,
            None => self.entries.push(made),
        }
        updated
    }
}

impl Expectation {
    /// The expectation of a time from its sessions, and from itself if there are none.
    pub fn from_sessions(time: &SuiteTime, sessions: &[&HistoryPoint], commit: &str) -> Self {
        let own = HistoryPoint {
            device: time.device.clone(),
            median_ns: time.median_ns,
            ci95_ns: time.ci95_ns,
            samples: time.samples,
            ..HistoryPoint::default()
        };
        let sessions = if sessions.is_empty() { &[&own] } else { sessions };
        let median = |values: &[f64]| rgpu_case::stats::median(values).unwrap_or(time.median_ns);
        let mut by_device: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for session in sessions {
            by_device.entry(&session.device).or_default().push(session.median_ns);
        }
        let of_devices: Vec<f64> = by_device.values().map(|medians| median(medians)).collect();
        let center = median(&of_devices);
        let distance = |x: f64, from: f64| (x / from).max(from / x) - 1.0;
        let session_spread = by_device
            .values()
            .flat_map(|medians| {
                let own = median(medians);
                medians.iter().map(move |x| distance(*x, own))
            })
            .fold(0.0, f64::max);
        let device_spread = of_devices.iter().map(|x| distance(*x, center)).fold(0.0, f64::max);
        let relative_bound = |at: usize| {
            let relative: Vec<f64> =
                sessions.iter().map(|session| session.ci95_ns[at] / session.median_ns).collect();
            median(&relative)
        };
        Self {
            key: time.key.clone(),
            median_ns: rounded(center),
            ci95_ns: [
                rounded(center * relative_bound(0).min(1.0)),
                rounded(center * relative_bound(1).max(1.0)),
            ],
            session_spread: (session_spread * 1e5).round() / 1e5,
            device_spread: (of_devices.len() > 1).then_some((device_spread * 1e5).round() / 1e5),
            devices: by_device.keys().map(ToString::to_string).collect(),
            sessions: sessions.len() as u64,
            samples: sessions.iter().map(|session| session.samples).sum(),
            commit: commit.to_owned(),
            min_sol_percent: None,
        }
    }

    /// How far a session on this device may be from the expected time, as a fraction; `None` if
    /// that is not known.
    pub fn spread(&self, device: &str) -> Option<f64> {
        if !self.devices.iter().any(|known| known == device) {
            return Some(self.session_spread + self.device_spread.unwrap_or(UNKNOWN_SPREAD));
        }
        if self.sessions < MIN_SESSIONS as u64 {
            return None;
        }
        if self.sessions > self.devices.len() as u64 {
            Some(self.session_spread)
        } else {
            // One session on each device: the distance between devices contains that of sessions.
            self.device_spread
        }
    }

    /// By how much the next session may be further from the median than any so far, as a fraction.
    fn unseen_spread(&self) -> f64 {
        let reach = REACH.iter().find(|(sessions, _)| self.sessions >= *sessions);
        let reach = reach.map_or(1.0, |(_, reach)| *reach);
        (self.session_spread * (reach - 1.0)).min(UNKNOWN_SESSION_SPREAD)
    }
}

/// Judges two times of different sessions. `threshold` is the least effect, and `spread` how far
/// sessions are apart, if known: both are fractions. `None` if a median is not positive.
pub(super) fn judge_sessions(
    a: SideTime,
    b: SideTime,
    threshold: f64,
    spread: Option<f64>,
) -> Option<TimeJudgement> {
    let threshold = threshold + spread.unwrap_or_default();
    let change = compare_times(a.clone(), b.clone(), threshold)?;
    let mut judgement = TimeJudgement {
        verdict: change.verdict.into(),
        speedup: Some(change.speedup),
        ci95: change.ci95,
        threshold: Some(threshold),
        why: String::new(),
    };
    let differs = matches!(change.verdict, TimeVerdict::Faster | TimeVerdict::Slower);
    let still = compare_times(a, b, threshold + UNKNOWN_SESSION_SPREAD)?;
    if spread.is_none() && differs && still.verdict != change.verdict {
        judgement.verdict = SuiteVerdict::Ambiguous;
        judgement.why = format!(
            "below {:.0} %, and fewer than {MIN_SESSIONS} sessions show how far they are apart",
            100.0 * (threshold + UNKNOWN_SESSION_SPREAD)
        );
    }
    Some(judgement)
}

/// Rounds to 0.1 ns, which is below what any clock resolves.
fn rounded(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}

fn judge(
    entry: &Expectation,
    time: &SuiteTime,
    least_effect: f64,
    extra_spread: f64,
) -> TimeJudgement {
    if time.correctness == Some(CheckVerdict::Wrong) {
        return verdict_without_numbers(
            SuiteVerdict::Incomparable,
            "the results are wrong".to_owned(),
        );
    }
    let side =
        |median_ns, ci95_ns, samples| SideTime { median_ns, ci95_ns: Some(ci95_ns), samples };
    let judged = |unseen_spread| {
        judge_sessions(
            side(entry.median_ns, entry.ci95_ns, entry.samples),
            side(time.median_ns, time.ci95_ns, time.samples),
            least_effect + extra_spread + unseen_spread,
            entry.spread(&time.device),
        )
    };
    let Some((mut judgement, surest)) = judged(0.0).zip(judged(entry.unseen_spread())) else {
        return verdict_without_numbers(
            SuiteVerdict::Incomparable,
            "a median is not positive".to_owned(),
        );
    };
    let differs = matches!(judgement.verdict, SuiteVerdict::Faster | SuiteVerdict::Slower);
    if differs && surest.verdict != judgement.verdict {
        judgement.verdict = SuiteVerdict::Ambiguous;
        judgement.why = format!(
            "{} sessions are {:.1} % apart, and the next one may be further away",
            entry.sessions,
            100.0 * entry.session_spread
        );
    }
    if let (Some(least), Some(percent)) = (entry.min_sol_percent, time.sol_percent)
        && percent < least
    {
        judgement.verdict = TimeVerdict::Slower.into();
        judgement.why =
            format!("{percent:.0} % of the speed of light, below the least share of {least:.0} %");
    }
    judgement
}

fn verdict_without_numbers(verdict: SuiteVerdict, why: String) -> TimeJudgement {
    TimeJudgement { verdict, speedup: None, ci95: None, threshold: None, why }
}

/// Whether two keys are of the same work under other conditions.
fn same_work(a: &MeasurementKey, b: &MeasurementKey) -> bool {
    a.case == b.case && a.side == b.side && a.sizes == b.sizes && a.dtype == b.dtype
}

/// The conditions in which two keys differ, as words.
pub fn differences(a: &MeasurementKey, b: &MeasurementKey) -> String {
    let conditions = [
        ("gpu", &a.gpu, &b.gpu),
        ("driver", &a.driver, &b.driver),
        ("compiler", &a.toolkit, &b.toolkit),
        ("clock policy", &a.clocks, &b.clocks),
        ("method", &a.method, &b.method),
    ];
    let differing = conditions.iter().filter(|(_, a, b)| a != b);
    let words = differing.map(|(what, a, b)| format!("{what} (`{a}`, now `{b}`)"));
    words.collect::<Vec<_>>().join(", ")
}

fn unusable(path: &Path, what: &str) -> Failure {
    Failure::new(Exit::Config, "bad_expectations", format!("the expectations {what}"))
        .file(path.display())
        .hint("restore it with git, or remove it: without it every time is NEW")
}

fn another_gpu_failure(path: &Path, gpu: &str) -> Failure {
    let own = file_name(gpu);
    unusable(path, &format!("are those of `{gpu}`")).cause(format!("their file is `{own}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(median_ns: f64, device: &str) -> SuiteTime {
        SuiteTime {
            key: MeasurementKey {
                case: "s:a".into(),
                gpu: "NVIDIA H200".into(),
                driver: "580".into(),
                method: "1 cuda_events".into(),
                ..MeasurementKey::default()
            },
            device: device.into(),
            median_ns,
            ci95_ns: [median_ns * 0.998, median_ns * 1.002],
            samples: 100,
            correctness: Some(CheckVerdict::Right),
            ..SuiteTime::default()
        }
    }

    fn session(median_ns: f64, device: &str) -> HistoryPoint {
        let time = time(median_ns, device);
        HistoryPoint {
            device: device.into(),
            median_ns,
            ci95_ns: time.ci95_ns,
            samples: 100,
            ..HistoryPoint::default()
        }
    }

    fn expected(devices: &[&str]) -> Expectations {
        let mut all =
            Expectations { schema: SCHEMA.into(), gpu: "NVIDIA H200".into(), entries: Vec::new() };
        let sessions: Vec<HistoryPoint> = devices
            .iter()
            .flat_map(|device| [999.0, 1000.0, 1002.0].map(|ns| session(ns, device)))
            .collect();
        let sessions: Vec<&HistoryPoint> = sessions.iter().collect();
        let updated = all.update(&time(1000.0, devices[0]), &sessions, Some("abc"), false, &[]);
        assert_eq!((updated.refused, updated.after_ns), (None, Some(1000.0)));
        all
    }

    fn verdict(all: &Expectations, time: &SuiteTime) -> SuiteVerdict {
        all.judge(time, 0.01, Validity::Portable).verdict
    }

    #[test]
    fn a_time_is_slower_only_if_its_whole_interval_is() {
        let all = expected(&["GPU-1"]);
        for (ns, wanted) in [
            (1000.0, SuiteVerdict::Same),
            (1008.0, SuiteVerdict::Same),
            (1013.0, SuiteVerdict::Ambiguous),
            (1030.0, SuiteVerdict::Slower),
            (970.0, SuiteVerdict::Faster),
        ] {
            assert_eq!(verdict(&all, &time(ns, "GPU-1")), wanted, "{ns}");
        }
    }

    /// `vecadd` of 65,536 numbers on one H200: three sessions, and a fourth that was 4 % slower.
    #[test]
    fn few_sessions_show_too_small_a_spread() {
        let sessions = [4800.0, 4736.0, 4736.0].map(|ns| session(ns, "GPU-1"));
        let sessions: Vec<&HistoryPoint> = sessions.iter().collect();
        let mut all =
            Expectations { schema: SCHEMA.into(), gpu: "NVIDIA H200".into(), entries: Vec::new() };
        all.update(&time(4736.0, "GPU-1"), &sessions, Some("abc"), false, &[]);
        let fourth = all.judge(&time(4928.0, "GPU-1"), 0.01, Validity::Portable);
        assert_eq!(fourth.verdict, SuiteVerdict::Ambiguous);
        assert!(fourth.why.starts_with("3 sessions are 1.4 % apart"), "{}", fourth.why);
        assert_eq!(verdict(&all, &time(5200.0, "GPU-1")), SuiteVerdict::Slower);
        all.entries[0].sessions = 20;
        assert_eq!(verdict(&all, &time(4928.0, "GPU-1")), SuiteVerdict::Slower);
    }

    #[test]
    fn another_device_adds_ten_percent_until_two_are_known() {
        assert_eq!(verdict(&expected(&["GPU-1"]), &time(1080.0, "GPU-2")), SuiteVerdict::Same);
        assert_eq!(verdict(&expected(&["GPU-1"]), &time(1150.0, "GPU-2")), SuiteVerdict::Slower);
        let two = expected(&["GPU-1", "GPU-2"]);
        assert_eq!(two.entries[0].device_spread, Some(0.0));
        assert_eq!(verdict(&two, &time(1030.0, "GPU-3")), SuiteVerdict::Slower);
    }

    #[test]
    fn other_conditions_are_new_or_incomparable_and_gates_are_absolute() {
        let mut all = expected(&["GPU-1"]);
        let mut other = time(1000.0, "GPU-1");
        other.key.sizes = "n=2".into();
        assert_eq!(verdict(&all, &other), SuiteVerdict::New);
        let mut newer = time(1000.0, "GPU-1");
        newer.key.driver = "590".into();
        assert_eq!(verdict(&all, &newer), SuiteVerdict::Same);
        let strict = all.judge(&newer, 0.01, Validity::Strict);
        assert_eq!(strict.verdict, SuiteVerdict::Incomparable);
        assert!(strict.why.contains("driver (`580`, now `590`)"), "{}", strict.why);
        // Another clock policy is never compared, and hides no entry that can be.
        let mut locked = time(1000.0, "GPU-1");
        locked.key.clocks = "locked 1500 MHz".into();
        for validity in [Validity::Portable, Validity::Strict] {
            let judged = all.judge(&locked, 0.01, validity);
            assert_eq!(judged.verdict, SuiteVerdict::Incomparable);
            assert!(judged.why.contains("clock policy"), "{}", judged.why);
        }
        let mut both = all.clone();
        both.entries.insert(0, Expectation { key: locked.key, ..all.entries[0].clone() });
        assert_eq!(verdict(&both, &newer), SuiteVerdict::Same);
        all.entries[0].min_sol_percent = Some(60.0);
        let dim = SuiteTime { sol_percent: Some(55.0), ..time(1000.0, "GPU-1") };
        let judged = all.judge(&dim, 0.01, Validity::Strict);
        assert_eq!(judged.verdict, SuiteVerdict::Slower);
        assert!(judged.why.contains("below the least share"), "{}", judged.why);
    }

    #[test]
    fn an_update_is_refused_unless_it_is_sound_or_told_to() {
        let sessions = [999.0, 1000.0, 1002.0].map(|ns| session(ns, "GPU-1"));
        let wide: Vec<HistoryPoint> = sessions
            .iter()
            .map(|s| HistoryPoint { ci95_ns: [900.0, 1100.0], ..s.clone() })
            .collect();
        let [sessions, wide]: [Vec<&HistoryPoint>; 2] =
            [sessions.iter().collect(), wide.iter().collect()];
        let right = time(1000.0, "GPU-1");
        let unchecked = SuiteTime { correctness: None, ..right.clone() };
        let hot = SuiteTime { throttle: vec!["sw_thermal_slowdown".into()], ..right.clone() };
        let cases: [(&SuiteTime, &[&HistoryPoint], bool, UpdateRefusal); 5] = [
            (&right, &sessions, true, UpdateRefusal::Dirty),
            (&unchecked, &sessions, false, UpdateRefusal::Wrong),
            (&hot, &sessions, false, UpdateRefusal::Throttled),
            (&right, &sessions[..2], false, UpdateRefusal::FewSessions),
            (&right, &wide, false, UpdateRefusal::Wider),
        ];
        for (time, sessions, dirty, refusal) in cases {
            let mut all = expected(&["GPU-1"]);
            let before = all.clone();
            let updated = all.update(time, sessions, Some("def"), dirty, &[]);
            assert_eq!((updated.refused, &all), (Some(refusal), &before));
            let told = all.update(time, sessions, Some("def"), dirty, &[refusal]);
            assert_eq!(told.refused, None, "{refusal:?}");
            assert_eq!(all.entries[0].commit, "def");
        }
    }

    #[test]
    fn a_file_is_read_back_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = expected(&["GPU-1"]);
        let path = all.save(dir.path()).unwrap();
        assert!(path.ends_with("nvidia-h200.json"), "{path:?}");
        assert_eq!(folder(Path::new("p"), None), Path::new("p/expectations"));
        assert_eq!(folder(Path::new("p"), Some("v1")), Path::new("p/expectations/v1"));
        assert_eq!(Expectations::load(dir.path(), "NVIDIA H200").unwrap(), all);
        let text = fs::read_to_string(&path).unwrap();
        for (from, to, words) in [
            ("rgpu.expectations/1", "rgpu.expectations/9", "this rgpu knows"),
            (
                "\"gpu\": \"NVIDIA H200\",\n  \"entries\"",
                "\"gpu\": \"B200\",\n  \"entries\"",
                "`B200`",
            ),
            ("\"median_ns\": 1000.0", "\"median_ns\": 0.0", "invalid time"),
            ("}", "", "not JSON"),
        ] {
            assert!(text.contains(from), "{text}");
            fs::write(&path, text.replace(from, to)).unwrap();
            let failure = Expectations::load(dir.path(), "NVIDIA H200").unwrap_err();
            assert_eq!(failure.code, "bad_expectations");
            assert!(failure.to_string().contains(words), "{failure}");
            let of_all = Expectations::load_all(dir.path()).unwrap_err();
            assert_eq!(of_all, failure);
        }
        assert!(Expectations::load(dir.path(), "B300").unwrap().entries.is_empty());
        fs::write(&path, &text).unwrap();
        fs::write(dir.path().join("notes.txt"), "{").unwrap();
        fs::create_dir(dir.path().join("v1")).unwrap();
        assert_eq!(Expectations::load_all(dir.path()).unwrap(), [all]);
        assert!(Expectations::load_all(&dir.path().join("gone")).unwrap().is_empty());
    }
}
