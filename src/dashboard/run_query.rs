//! Filters and searches the index of runs, and returns one page of the dashboard's list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run_summary::RunSummary;
use super::run_table::{Facets, IndexedRun, Snapshot, UnreadableRun};

/// The most runs of a page.
const MAX_PAGE_RUNS: usize = 500;

/// The runs of a page, if the request has no limit.
const DEFAULT_PAGE_RUNS: usize = 50;

/// The most points of a series of times.
const MAX_SERIES_POINTS: usize = 500;

/// How many folders with a record that cannot be read are named.
const MAX_UNREADABLE_FOLDERS: usize = 5;

/// Points of a spark line.
const MAX_TREND_POINTS: usize = 20;

/// Which runs are listed. Each field that is set must fit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RunQuery {
    /// Words that the id, title, kernel, remote, note, labels, GPU, verdict or reason contain.
    pub(super) q: String,
    /// The state, as lists show it.
    pub(super) state: String,
    /// The command, such as `profile`.
    pub(super) command: String,
    /// A part of the kernel's name.
    pub(super) kernel: String,
    /// The name of the GPU.
    pub(super) gpu: String,
    /// The name of the remote.
    pub(super) remote: String,
    /// The verdict, as lists show it.
    pub(super) verdict: String,
    /// The code of the failure.
    pub(super) reason: String,
    /// A label: `NAME` or `NAME=VALUE`.
    pub(super) label: String,
    /// The suite, queue entry or loop that started the runs: `suite:ID`, `queue:N` or `loop:ID`.
    pub(super) parent: String,
    /// How many runs to skip.
    pub(super) offset: usize,
    /// At most this many runs: 50 by default, at most 500.
    pub(super) limit: Option<usize>,
}

/// A page of the list of runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RunPage {
    /// Name and version of this schema: `rgpu.dashboard-runs/1`.
    pub(super) schema: &'static str,
    /// The number of all runs.
    pub(super) total: usize,
    /// The number of runs that fit.
    pub(super) found: usize,
    /// How many of them come before this page.
    pub(super) offset: usize,
    /// The number of folders whose record cannot be read.
    pub(super) unreadable: usize,
    /// The newest of these folders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unreadable_folders: Vec<UnreadableRun>,
    /// Whether runs are still being read: the numbers grow.
    pub(super) reading: bool,
    /// The runs, newest first.
    pub(super) runs: Vec<RunLine>,
    /// The values to filter by, over all runs.
    pub(super) facets: Facets,
    /// With a kernel chosen: the times of all runs that fit, also those of other pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) times: Vec<TimeSeries>,
}

/// The times of runs that can be compared.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct TimeSeries {
    /// What they have in common, as [`RunLine::series`] names it.
    pub(super) series: String,
    /// The newest times, oldest first: at least two, at most 500.
    pub(super) points: Vec<TimePoint>,
}

/// The time of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct TimePoint {
    /// The run's id.
    pub(super) run: String,
    /// When it started (RFC 3339, UTC).
    pub(super) started: String,
    /// Median time in nanoseconds.
    pub(super) median_ns: f64,
    /// 95 % interval of the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ci95_ns: Option<[f64; 2]>,
}

/// A run with the earlier times of its kernel.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RunLine {
    /// The run.
    #[serde(flatten)]
    pub(super) run: RunSummary,
    /// Names the runs whose times can be compared with this one's: those that have the same
    /// command, kernel, case, mode, remote and GPU. Absent without a time of a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) series: Option<String>,
    /// Median times in nanoseconds of the runs of its series up to this one, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) trend: Vec<f64>,
    /// The text in which a search looks for its words, in lower case. Only an export has it: its
    /// page searches by itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) search_text: String,
}

impl RunLine {
    /// The run at this position of a snapshot.
    pub(super) fn from_snapshot(snapshot: &Snapshot, at: usize) -> Self {
        let indexed = &snapshot.runs[at];
        Self {
            run: indexed.summary.clone(),
            series: indexed.series.clone(),
            trend: snapshot.trend(at, MAX_TREND_POINTS),
            search_text: String::new(),
        }
    }
}

impl RunQuery {
    /// The page of a snapshot.
    pub(super) fn page(&self, snapshot: &Snapshot) -> RunPage {
        self.first(snapshot, self.limit.unwrap_or(DEFAULT_PAGE_RUNS).min(MAX_PAGE_RUNS))
    }

    /// The page of a snapshot with at most `limit` runs.
    pub(super) fn first(&self, snapshot: &Snapshot, limit: usize) -> RunPage {
        let words: Vec<String> = self.q.split_whitespace().map(str::to_lowercase).collect();
        let fitting = snapshot.runs.iter().enumerate().filter(|(_, run)| self.fits(run, &words));
        let mut found = 0;
        let mut runs = Vec::new();
        let mut times = Vec::new();
        for (at, run) in fitting {
            if !self.kernel.is_empty() {
                add_time(&mut times, run);
            }
            if found >= self.offset && runs.len() < limit {
                runs.push(RunLine::from_snapshot(snapshot, at));
            }
            found += 1;
        }
        times.retain(|series: &TimeSeries| series.points.len() > 1);
        times.iter_mut().for_each(|series| series.points.reverse());
        RunPage {
            schema: "rgpu.dashboard-runs/1",
            total: snapshot.runs.len(),
            found,
            offset: self.offset,
            unreadable: snapshot.unreadable.len(),
            unreadable_folders: snapshot
                .unreadable
                .iter()
                .take(MAX_UNREADABLE_FOLDERS)
                .cloned()
                .collect(),
            reading: snapshot.reading,
            runs,
            facets: snapshot.facets.clone(),
            times,
        }
    }

    fn fits(&self, indexed: &IndexedRun, words: &[String]) -> bool {
        let run = &indexed.summary;
        let is = |wanted: &str, value: &str| wanted.is_empty() || wanted == value;
        is(&self.state, &run.state_text)
            && is(&self.command, &run.command)
            && is(&self.remote, &run.remote)
            && is(&self.gpu, run.gpu.as_deref().unwrap_or_default())
            && is(&self.verdict, run.verdict.as_deref().unwrap_or_default())
            && is(&self.reason, run.reason.as_deref().unwrap_or_default())
            && (self.kernel.is_empty() || run.kernel.contains(&self.kernel))
            && self.fits_label(run)
            && self.fits_parent(run)
            && words.iter().all(|word| indexed.text.contains(word.as_str()))
    }

    fn fits_label(&self, run: &RunSummary) -> bool {
        match self.label.split_once('=') {
            _ if self.label.is_empty() => true,
            Some((name, value)) => run.labels.get(name).is_some_and(|own| own == value),
            None => run.labels.contains_key(&self.label),
        }
    }

    fn fits_parent(&self, run: &RunSummary) -> bool {
        if self.parent.is_empty() {
            return true;
        }
        let Some(parent) = &run.parent else { return false };
        match self.parent.split_once(':') {
            Some(("suite", id)) => parent.suite.as_deref() == Some(id),
            Some(("queue", id)) => parent.queue.is_some_and(|own| own.to_string() == id),
            Some(("loop", id)) => parent.loop_id.as_deref() == Some(id),
            _ => false,
        }
    }
}

/// Adds the time of a run to its series; runs come newest first.
fn add_time(times: &mut Vec<TimeSeries>, run: &IndexedRun) {
    let summary = &run.summary;
    let (Some(name), Some(median_ns)) = (&run.series, summary.median_ns) else { return };
    let point = TimePoint {
        run: summary.id.clone(),
        started: summary.started.clone(),
        median_ns,
        ci95_ns: summary.ci95_ns,
    };
    match times.iter_mut().find(|series| series.series == *name) {
        Some(series) if series.points.len() < MAX_SERIES_POINTS => series.points.push(point),
        Some(_) => {}
        None => times.push(TimeSeries { series: name.clone(), points: vec![point] }),
    }
}
