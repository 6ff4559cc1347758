//! The index of runs: a summary of every run in memory, kept in `.rgpu/state.db` between two
//! starts.
//!
//! The run folders stay the truth. A summary is read again when the folder's time of change differs
//! from the one that it was read at: rgpu writes each document under another name and renames it,
//! which changes that time. A run that may still go on is read every time.

#![expect(clippy::disallowed_methods, reason = "it only looks at the time of change of a folder")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rusqlite::params;
use schemars::JsonSchema;
use serde::Serialize;

use super::overview::problem_lines;
use super::run_summary::RunSummary;
use rgpu_model::error::Failure;
use rgpu_run::store::state::{StateDb, StateError, commit, sql_error};
use rgpu_run::store::{RunFolder, Runs, StoreError};

/// Changes when a summary gets other content.
const FORMAT: u32 = 6;

/// A project with fewer runs gets no database for their index: they are read faster than one is
/// made.
const MIN_RUNS_FOR_DATABASE: usize = 200;

/// While many runs are read, readers see those that are there already this often.
const RUNS_PER_SNAPSHOT: usize = 250;

/// The coarsest resolution of modification times that a file system is expected to have.
const MTIME_RESOLUTION: Duration = Duration::from_millis(100);

/// All runs at one moment, newest first. What requests take from all runs is found here once for
/// each change, so that an answer does not take longer where there are more runs.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) runs: Vec<Arc<IndexedRun>>,
    /// Positions in `runs` of those that run or are detached.
    pub(super) running: Vec<usize>,
    /// Positions in `runs` of suites.
    pub(super) suites: Vec<usize>,
    /// By the name of a remote: its runs, as positions in `runs`. A run may have several remotes.
    by_remote: HashMap<String, Vec<usize>>,
    /// By [`IndexedRun::series`]: the runs with a time, as positions in `runs`.
    series: HashMap<String, Vec<usize>>,
    /// Folders whose record cannot be read, the newest ids first.
    pub(super) unreadable: Vec<UnreadableRun>,
    /// Whether runs are still being read for the first time.
    pub(super) reading: bool,
    /// Grows with each change of the table.
    pub(super) revision: u64,
    pub(super) facets: Facets,
}

/// A run folder whose record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct UnreadableRun {
    /// The name of its folder.
    pub(super) id: String,
    /// Why, and what to do.
    pub(super) problem: String,
}

/// A run with the text that a search looks at.
#[derive(Debug)]
pub(super) struct IndexedRun {
    pub(super) summary: RunSummary,
    pub(super) text: String,
    /// The command, kernel, case, mode, remote and GPU: runs with the same ones have times that can
    /// be compared. `None` without a time of a GPU.
    pub(super) series: Option<String>,
}

impl Snapshot {
    /// The snapshot of these runs, in any order.
    fn from_runs(mut runs: Vec<Arc<IndexedRun>>) -> Self {
        runs.sort_unstable_by(|a, b| {
            let (a, b) = (&a.summary, &b.summary);
            b.started.cmp(&a.started).then_with(|| b.id.cmp(&a.id))
        });
        let mut snapshot = Self { facets: Facets::from_runs(&runs), ..Self::default() };
        for (at, run) in runs.iter().enumerate() {
            if run.summary.is_active() {
                snapshot.running.push(at);
            }
            if run.summary.suite.is_some() {
                snapshot.suites.push(at);
            }
            for remote in run.summary.remote.split(',') {
                add_position(&mut snapshot.by_remote, remote, at);
            }
            if let Some(series) = &run.series {
                add_position(&mut snapshot.series, series, at);
            }
        }
        snapshot.runs = runs;
        snapshot
    }

    /// The same without the runs with these ids.
    pub(super) fn without(&self, ids: &[String]) -> Self {
        let runs = self.runs.iter().filter(|run| !ids.contains(&run.summary.id)).cloned();
        let Self { reading, revision, .. } = *self;
        let unreadable = self.unreadable.clone();
        Self { unreadable, reading, revision, ..Self::from_runs(runs.collect()) }
    }

    /// The runs on a remote, newest first.
    pub(super) fn on_remote(&self, remote: &str) -> impl Iterator<Item = &RunSummary> {
        let positions = self.by_remote.get(remote).map(Vec::as_slice).unwrap_or_default();
        positions.iter().map(|at| &self.runs[*at].summary)
    }

    /// The median times of at most `limit` runs that are like the run at this position in `runs`,
    /// up to its own, oldest first.
    pub(super) fn trend(&self, at: usize, limit: usize) -> Vec<f64> {
        let series = self.runs[at].series.as_ref().and_then(|series| self.series.get(series));
        let positions = series.map(Vec::as_slice).unwrap_or_default();
        let first = positions.partition_point(|position| *position < at);
        let runs = positions[first..].iter().take(limit).rev();
        runs.filter_map(|at| self.runs[*at].summary.median_ns).collect()
    }
}

fn add_position(positions: &mut HashMap<String, Vec<usize>>, name: &str, at: usize) {
    match positions.get_mut(name) {
        Some(positions) => positions.push(at),
        None => drop(positions.insert(name.to_owned(), vec![at])),
    }
}

/// The values that the runs of a project have, with the number of runs of each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Facets {
    /// Number of runs by state.
    pub(super) state: BTreeMap<String, usize>,
    /// Number of runs by command.
    pub(super) command: BTreeMap<String, usize>,
    /// Number of runs by remote.
    pub(super) remote: BTreeMap<String, usize>,
    /// Number of runs by GPU.
    pub(super) gpu: BTreeMap<String, usize>,
    /// Number of runs by verdict.
    pub(super) verdict: BTreeMap<String, usize>,
    /// Number of failed runs by the code of the failure.
    pub(super) reason: BTreeMap<String, usize>,
}

/// A run folder as it was last read.
struct KnownFolder {
    stamp: String,
    /// The run, or why its record cannot be read.
    run: Result<Arc<IndexedRun>, String>,
}

/// What was read of all run folders.
#[derive(Default)]
struct KnownFolders {
    folders: HashMap<String, KnownFolder>,
    /// The runs whose rows in the database are not up to date, also after it could not be written.
    unsaved: HashSet<String>,
}

/// The summaries of all runs of the project, kept up to date while the server runs.
pub(super) struct RunTable {
    runs: Runs,
    project: PathBuf,
    own_ids: PathBuf,
    snapshot: RwLock<Arc<Snapshot>>,
    known: Mutex<Option<KnownFolders>>,
    problem: Mutex<Option<String>>,
}

impl RunTable {
    pub(super) fn new(runs: &Path, project: &Path, own_ids: &Path) -> Self {
        let first = Snapshot { reading: true, ..Snapshot::default() };
        Self {
            runs: Runs::new(runs),
            project: project.to_owned(),
            own_ids: own_ids.to_owned(),
            snapshot: RwLock::new(Arc::new(first)),
            known: Mutex::new(None),
            problem: Mutex::new(None),
        }
    }

    /// All runs as they were last read.
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why the index cannot be kept, or the folder of runs cannot be read.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads what has changed since the last time.
    pub(super) fn refresh(&self) {
        let mut guard = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut problem = None;
        let is_first = guard.is_none();
        let known = guard.get_or_insert_default();
        if is_first {
            match self.load() {
                Ok(folders) => known.folders = folders,
                Err(error) => problem = Some(problem_lines(&Failure::from(error))),
            }
            if !known.folders.is_empty() {
                self.publish(known, true);
            }
        }
        let mut ids = match self.runs.ids() {
            Ok(ids) => ids,
            Err(error) => {
                self.set_problem(Some(error.to_string()));
                return;
            }
        };
        let wanted: HashSet<&String> = ids.iter().collect();
        let removed: Vec<String> =
            known.folders.keys().filter(|id| !wanted.contains(id)).cloned().collect();
        known.folders.retain(|id, _| wanted.contains(id));
        let mut has_changed = !removed.is_empty();
        known.unsaved.extend(removed);
        // The newest first, since lists begin with them.
        ids.sort_unstable_by(|a, b| b.cmp(a));
        let mut read = 0;
        for id in ids {
            let path = self.runs.root().join(&id);
            let Some(stamp) = stamp(&path) else { continue };
            let is_active =
                |known: &KnownFolder| known.run.as_ref().is_ok_and(|run| run.summary.is_active());
            if known.folders.get(&id).is_some_and(|known| known.stamp == stamp && !is_active(known))
            {
                continue;
            }
            let summary =
                RunFolder::open(&path).and_then(|folder| RunSummary::from_folder(&folder));
            let run = summary
                .map(|summary| Arc::new(IndexedRun::from_summary(summary)))
                .map_err(|error| problem_text(&error));
            let before = known.folders.insert(id.clone(), KnownFolder { stamp, run: run.clone() });
            let is_same = |before: &KnownFolder| match (&before.run, &run) {
                (Ok(before), Ok(run)) => before.summary == run.summary,
                (Err(before), Err(why)) => before == why,
                _ => false,
            };
            if before.as_ref().is_some_and(is_same) {
                continue;
            }
            known.unsaved.insert(id);
            has_changed = true;
            read += 1;
            if is_first && read % RUNS_PER_SNAPSHOT == 0 {
                self.publish(known, true);
                // Kept at once: a dashboard that ends early begins here the next time.
                problem = problem.or_else(|| self.save(known));
            }
        }
        // Until the first whole reading, which may have failed before, more is to come.
        if has_changed || self.snapshot().reading {
            self.publish(known, false);
        }
        self.set_problem(problem.or_else(|| self.save(known)));
    }

    fn set_problem(&self, problem: Option<String>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    fn publish(&self, known: &KnownFolders, reading: bool) {
        let known = &known.folders;
        let runs: Vec<_> = known.values().filter_map(|known| known.run.clone().ok()).collect();
        let unreadable = |(id, known): (&String, &KnownFolder)| {
            let problem = known.run.as_ref().err()?.clone();
            Some(UnreadableRun { id: id.clone(), problem })
        };
        let mut unreadable: Vec<_> = known.iter().filter_map(unreadable).collect();
        unreadable.sort_unstable_by(|a, b| b.id.cmp(&a.id));
        let revision = self.snapshot().revision + 1;
        let snapshot = Snapshot { unreadable, reading, revision, ..Snapshot::from_runs(runs) };
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }

    /// The summaries that the database has.
    fn load(&self) -> Result<HashMap<String, KnownFolder>, StateError> {
        let Some(db) = StateDb::open_existing(&self.project, &self.own_ids)? else {
            return Ok(HashMap::new());
        };
        let mut query = db
            .connection()
            .prepare("SELECT run, stamp, summary FROM run_summary")
            .map_err(sql_error("read"))?;
        let rows =
            query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?)));
        let rows: Vec<(String, String, String)> =
            rows.and_then(Iterator::collect).map_err(sql_error("read"))?;
        let known = rows.into_iter().filter_map(|(id, stamp, summary)| {
            let summary: RunSummary = serde_json::from_str(&summary).ok()?;
            Some((id, KnownFolder { stamp, run: Ok(Arc::new(IndexedRun::from_summary(summary))) }))
        });
        Ok(known.collect())
    }

    /// Brings the rows of the database up to date. Returns why that failed; the next call tries
    /// again.
    fn save(&self, known: &mut KnownFolders) -> Option<String> {
        let failure =
            self.write_rows(known).err().map(|error| problem_lines(&Failure::from(error)));
        if failure.is_none() {
            known.unsaved.clear();
        }
        failure
    }

    fn write_rows(&self, known: &KnownFolders) -> Result<(), StateError> {
        if known.unsaved.is_empty() {
            return Ok(());
        }
        let db = match StateDb::open_existing(&self.project, &self.own_ids)? {
            None if known.folders.len() >= MIN_RUNS_FOR_DATABASE => {
                Some(StateDb::open(&self.project, &self.own_ids)?)
            }
            db => db,
        };
        let Some(mut db) = db else { return Ok(()) };
        let fail = || sql_error("change");
        let transaction = db.begin()?;
        for id in &known.unsaved {
            let summary = known.folders.get(id).and_then(|folder| {
                let run = folder.run.as_ref().ok().filter(|run| !run.summary.is_active())?;
                Some((&folder.stamp, serde_json::to_string(&run.summary).ok()?))
            });
            match summary {
                Some((stamp, text)) => transaction.execute(
                    "INSERT OR REPLACE INTO run_summary (run, stamp, summary) VALUES (?1, ?2, ?3)",
                    params![id, stamp, text],
                ),
                None => transaction.execute("DELETE FROM run_summary WHERE run = ?1", [id]),
            }
            .map_err(fail())?;
        }
        commit(transaction)
    }
}

/// Why a record cannot be read, and what to do.
fn problem_text(error: &StoreError) -> String {
    match error {
        StoreError::OtherSchema { schema, .. } => {
            format!("its run.json is of `{schema}`: a later rgpu made the run, so update this one")
        }
        StoreError::BadRecord { source, .. } => format!(
            "its run.json is not a valid record of a run ({source}): remove the folder if you do not need it"
        ),
        other => other.to_string(),
    }
}

/// The state of a folder: a summary of another state is read again. A change of this moment may be
/// followed by one with the same time, so it counts as a state of its own.
fn stamp(folder: &Path) -> Option<String> {
    let changed = std::fs::metadata(folder).ok()?.modified().ok()?;
    let since = changed.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let is_new = changed.elapsed().is_ok_and(|age| age < MTIME_RESOLUTION);
    Some(format!("{FORMAT}-{}{}", since.as_nanos(), if is_new { "-new" } else { "" }))
}

impl IndexedRun {
    fn from_summary(summary: RunSummary) -> Self {
        let labels = summary.labels.iter().map(|(name, value)| format!("{name}={value}"));
        let mut parts: Vec<String> = labels.collect();
        let own = [
            &summary.id,
            &summary.title,
            &summary.kernel,
            &summary.remote,
            &summary.note,
            &summary.state_text,
        ];
        parts.extend(own.map(ToOwned::to_owned));
        parts.extend(
            [&summary.gpu, &summary.verdict, &summary.reason].into_iter().flatten().cloned(),
        );
        let gpu = summary.gpu.as_deref().unwrap_or_default();
        // Only times of the same work on the same machine are one line; those of a CPU are none.
        let what = format!("{} {}", summary.command, summary.kernel);
        let case = summary.timed_case.as_deref().unwrap_or_default();
        let mut same = vec![what.trim(), case, &summary.mode, &summary.remote, gpu];
        same.retain(|part| !part.is_empty());
        let is_timed = summary.median_ns.is_some() && !summary.is_cpu_reference;
        let series = is_timed.then(|| same.join(" · "));
        Self { text: parts.join("\n").to_lowercase(), series, summary }
    }
}

impl Facets {
    fn from_runs(runs: &[Arc<IndexedRun>]) -> Self {
        let mut facets = Self::default();
        let add = |counts: &mut BTreeMap<String, usize>, value: &str| {
            if !value.is_empty() {
                match counts.get_mut(value) {
                    Some(count) => *count += 1,
                    None => drop(counts.insert(value.to_owned(), 1)),
                }
            }
        };
        for run in runs {
            let run = &run.summary;
            add(&mut facets.state, &run.state_text);
            add(&mut facets.command, &run.command);
            add(&mut facets.remote, &run.remote);
            add(&mut facets.gpu, run.gpu.as_deref().unwrap_or_default());
            add(&mut facets.verdict, run.verdict.as_deref().unwrap_or_default());
            add(&mut facets.reason, run.reason.as_deref().unwrap_or_default());
        }
        facets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_run::store::{RunRecord, RunState};

    fn run(runs: &Runs, id: &str, state: RunState) -> RunFolder {
        let folder = RunFolder::create(runs.root(), id, None).unwrap();
        let mut record = RunRecord::new(id.into(), "profile", jiff::Timestamp::UNIX_EPOCH);
        record.state = state;
        folder.save(&record).unwrap();
        folder
    }

    fn ids(table: &RunTable) -> Vec<String> {
        table.snapshot().runs.iter().map(|run| run.summary.id.clone()).collect()
    }

    #[test]
    fn new_changed_removed_and_unreadable_runs_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("runs");
        let table = RunTable::new(&runs, dir.path(), &dir.path().join("ids"));
        table.refresh();
        assert_eq!(ids(&table), [""; 0]);
        run(&table.runs, "a", RunState::Done);
        let b = run(&table.runs, "b", RunState::Done);
        table.refresh();
        assert_eq!(ids(&table), ["b", "a"]);
        let before = table.snapshot().revision;
        table.refresh();
        assert_eq!(table.snapshot().revision, before, "nothing has changed");
        let mut record = b.record().unwrap();
        record.note = "kept".into();
        b.save(&record).unwrap();
        std::fs::remove_dir_all(runs.join("a")).unwrap();
        std::fs::create_dir(runs.join("c")).unwrap();
        std::fs::write(runs.join("c/run.json"), "{").unwrap();
        table.refresh();
        assert_eq!(ids(&table), ["b"]);
        assert_eq!(table.snapshot().runs[0].summary.note, "kept");
        let unreadable = table.snapshot().unreadable.clone();
        assert_eq!(unreadable.len(), 1);
        assert_eq!(unreadable[0].id, "c");
        assert!(unreadable[0].problem.contains("not a valid record"), "{unreadable:?}");
    }

    #[test]
    fn a_problem_is_told_until_it_is_mended_and_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let (runs, own) = (dir.path().join("runs"), dir.path().join("ids"));
        let table = RunTable::new(&runs, dir.path(), &own);
        std::fs::write(&runs, "no folder").unwrap();
        table.refresh();
        assert!(table.problem().unwrap().contains("cannot read"), "{:?}", table.problem());
        std::fs::remove_file(&runs).unwrap();
        table.refresh();
        assert_eq!((table.problem(), table.snapshot().reading), (None, false));
        // A database that is not the user's is not written.
        drop(StateDb::open(dir.path(), &own).unwrap());
        let ids = std::fs::read(&own).unwrap();
        std::fs::write(&own, "").unwrap();
        run(&table.runs, "a", RunState::Done);
        for _ in 0..2 {
            table.refresh();
            assert!(table.problem().unwrap().contains("not made by you"), "{:?}", table.problem());
        }
        std::fs::write(&own, ids).unwrap();
        table.refresh();
        assert_eq!(table.problem(), None);
        assert_eq!(RunTable::new(&runs, dir.path(), &own).load().unwrap().len(), 1);
    }

    #[test]
    fn the_database_saves_reading_and_can_be_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let (runs, own) = (dir.path().join("runs"), dir.path().join("ids"));
        drop(StateDb::open(dir.path(), &own).unwrap());
        let table = || RunTable::new(&runs, dir.path(), &own);
        run(&table().runs, "a", RunState::Done);
        run(&table().runs, "active", RunState::Detached);
        table().refresh();
        let db = StateDb::open(dir.path(), &own).unwrap();
        let count = || -> i64 {
            let query = "SELECT count(*) FROM run_summary";
            db.connection().query_row(query, [], |row| row.get(0)).unwrap()
        };
        assert_eq!(count(), 1, "a run that may go on is not kept");
        // What the database has of an unchanged folder counts.
        let text = "UPDATE run_summary SET summary = replace(summary, '\"note\"', '\"note\"')";
        db.connection().execute_batch(text).unwrap();
        let again = table();
        assert_eq!(again.load().unwrap().len(), 1);
        db.connection().execute_batch("DELETE FROM run_summary").unwrap();
        let again = table();
        again.refresh();
        assert_eq!((ids(&again).len(), count()), (2, 1));
        assert_eq!(again.problem(), None);
    }
}
