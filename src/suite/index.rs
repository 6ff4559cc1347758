//! The index of suites in `.rgpu/state.db`: every time of every suite, for the history. Run folders
//! stay the truth; [`RunIndex::rebuild`] makes the index again from them.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::model::profile::CheckVerdict;
use crate::model::suite::{MeasurementKey, RowState, SuiteRow, SuiteRun};
use crate::model::suite_history::HistoryPoint;
use crate::store::Runs;
use crate::store::state::{StateDb, StateError, commit, sql_error};

/// The index of one project.
#[derive(Debug)]
pub struct RunIndex {
    db: StateDb,
}

/// Selects points of the history.
#[derive(Clone, Debug, Default)]
pub struct TimeQuery {
    /// A pattern for the case, with `*` and `?`.
    pub case: String,
    /// Only points from this time on (RFC 3339).
    pub since: Option<String>,
    /// Only points of this GPU.
    pub gpu: Option<String>,
}

const COLUMNS: &str = "run, case_name, side, sizes, started, dtype, gpu, driver, toolkit, clocks, \
                       method, inputs, device, median_ns, low_ns, high_ns, samples, right_result, \
                       throttled, commit_id, dirty";

impl RunIndex {
    /// The index of a project, which is created if there is none.
    ///
    /// # Errors
    /// The state database cannot be opened.
    pub fn open(project: &Path, own_ids: &Path) -> Result<Self, StateError> {
        Ok(Self { db: StateDb::open(project, own_ids)? })
    }

    /// As [`RunIndex::open`]; `None` if the project has no state database.
    ///
    /// # Errors
    /// The state database cannot be opened.
    pub fn open_existing(project: &Path, own_ids: &Path) -> Result<Option<Self>, StateError> {
        Ok(StateDb::open_existing(project, own_ids)?.map(|db| Self { db }))
    }

    /// Records one case of a suite; earlier attempts of it are replaced.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn put_case(&mut self, run: &SuiteRun, row: &SuiteRow) -> Result<(), StateError> {
        let transaction = self.db.begin()?;
        put(&transaction, run, row)?;
        commit(transaction)
    }

    /// Makes the index again from the run folders. Returns the number of suites and of times.
    ///
    /// # Errors
    /// SQLite or the file system fails.
    pub fn rebuild(&mut self, runs: &Runs) -> crate::error::Result<(usize, usize)> {
        let mut suites = Vec::new();
        for id in runs.ids()? {
            let file = runs.root().join(id).join("suite.json");
            let Ok(bytes) = crate::regular_file::read(&file, MAX_SUITE_BYTES) else { continue };
            suites.extend(serde_json::from_slice::<SuiteRun>(&bytes));
        }
        let transaction = self.db.begin()?;
        transaction
            .execute_batch(
                "DELETE FROM suite_time; DELETE FROM suite_case; DELETE FROM run_summary;",
            )
            .map_err(sql_error("change"))?;
        for run in &suites {
            for row in &run.rows {
                put(&transaction, run, row)?;
            }
        }
        commit(transaction)?;
        let times = suites.iter().map(|run| run.times().count()).sum();
        Ok((suites.len(), times))
    }

    /// The wall-clock seconds of the last attempt of a case that ended well.
    pub fn seconds_of(&self, case: &str) -> Option<f64> {
        let query = "SELECT seconds FROM suite_case WHERE case_name = ?1 AND state = 'ok' \
                     ORDER BY started DESC LIMIT 1";
        self.db.connection().query_row(query, [case], |row| row.get(0)).ok()
    }

    /// The points of the cases that match, oldest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn history(&self, query: &TimeQuery) -> Result<Vec<HistoryPoint>, StateError> {
        let has_pattern = query.case.contains(['*', '?']);
        let compared = if has_pattern { "?1 != ''" } else { "case_name = ?1" };
        let text = format!(
            "SELECT {COLUMNS} FROM suite_time WHERE {compared} AND started >= ?2 ORDER BY started"
        );
        let since = query.since.as_deref().unwrap_or_default();
        let mut points = read(self.db.connection(), &text, params![query.case, since])?;
        points.retain(|point| {
            let is_gpu = |gpu: &String| point.key.gpu.to_lowercase().contains(&gpu.to_lowercase());
            (!has_pattern || super::matches(&query.case, &point.key.case))
                && query.gpu.as_ref().is_none_or(is_gpu)
        });
        Ok(points)
    }

    /// Right, unthrottled times of this key and these inputs, oldest first: one for each suite.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn sessions(
        &self,
        key: &MeasurementKey,
        inputs: &str,
    ) -> Result<Vec<HistoryPoint>, StateError> {
        let text = format!(
            "SELECT {COLUMNS} FROM suite_time WHERE case_name = ?1 AND inputs = ?2 \
             AND right_result = 1 AND throttled = 0 ORDER BY started"
        );
        let mut points = read(self.db.connection(), &text, params![key.case, inputs])?;
        points.retain(|point| point.key == *key);
        Ok(points)
    }
}

/// A larger suite.json is not read.
const MAX_SUITE_BYTES: u64 = 256 << 20;

fn put(connection: &Connection, run: &SuiteRun, row: &SuiteRow) -> Result<(), StateError> {
    let fail = || sql_error("change");
    connection
        .execute(
            "DELETE FROM suite_time WHERE run = ?1 AND case_name = ?2",
            params![run.id, row.case],
        )
        .map_err(fail())?;
    connection
        .execute(
            "INSERT OR REPLACE INTO suite_case (run, case_name, started, state, seconds) \
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![run.id, row.case, run.started, row.state.as_str(), row.seconds],
        )
        .map_err(fail())?;
    if row.state != RowState::Ok {
        return Ok(());
    }
    let mut insert = connection
        .prepare(&format!(
            "INSERT OR REPLACE INTO suite_time ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, \
             ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)"
        ))
        .map_err(fail())?;
    for time in &row.times {
        let key = &time.key;
        insert
            .execute(params![
                run.id,
                row.case,
                key.side,
                key.sizes,
                run.started,
                key.dtype,
                key.gpu,
                key.driver,
                key.toolkit,
                key.clocks,
                key.method,
                time.inputs,
                time.device,
                time.median_ns,
                time.ci95_ns[0],
                time.ci95_ns[1],
                time.samples as i64,
                time.correctness == Some(CheckVerdict::Right),
                !time.throttle.is_empty(),
                run.commit.as_deref().unwrap_or_default(),
                run.dirty,
            ])
            .map_err(fail())?;
    }
    Ok(())
}

fn read(
    connection: &Connection,
    text: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<HistoryPoint>, StateError> {
    let mut query = connection.prepare(text).map_err(sql_error("read"))?;
    let point = |row: &rusqlite::Row<'_>| {
        Ok(HistoryPoint {
            run: row.get(0)?,
            key: MeasurementKey {
                case: row.get(1)?,
                side: row.get(2)?,
                sizes: row.get(3)?,
                dtype: row.get(5)?,
                gpu: row.get(6)?,
                driver: row.get(7)?,
                toolkit: row.get(8)?,
                clocks: row.get(9)?,
                method: row.get(10)?,
            },
            started: row.get(4)?,
            inputs: row.get(11)?,
            device: row.get(12)?,
            median_ns: row.get(13)?,
            ci95_ns: [row.get(14)?, row.get(15)?],
            samples: row.get::<_, i64>(16)?.unsigned_abs(),
            right: row.get(17)?,
            throttled: row.get(18)?,
            commit: row.get(19)?,
            dirty: row.get(20)?,
        })
    };
    let points = query.query_map(params, point).map_err(sql_error("read"))?;
    points.collect::<Result<_, _>>().map_err(sql_error("read"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::suite::SuiteTime;
    use crate::store::{RunFolder, RunRecord};

    fn suite(id: &str, day: usize, median_ns: f64) -> SuiteRun {
        let time = SuiteTime {
            key: MeasurementKey {
                case: "s:a".into(),
                side: "kernel".into(),
                gpu: "NVIDIA H200".into(),
                ..MeasurementKey::default()
            },
            median_ns,
            ci95_ns: [median_ns - 1.0, median_ns + 1.0],
            samples: 30,
            correctness: Some(CheckVerdict::Right),
            ..SuiteTime::default()
        };
        let row = SuiteRow {
            case: "s:a".into(),
            state: RowState::Ok,
            seconds: 3.0,
            times: vec![time],
            ..SuiteRow::default()
        };
        SuiteRun {
            id: id.into(),
            started: format!("2026-01-{day:02}T00:00:00Z"),
            rows: vec![row],
            ..SuiteRun::default()
        }
    }

    #[test]
    fn the_index_is_made_again_from_the_folders() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::new(dir.path().join("runs"));
        for (day, id) in [(2, "two"), (1, "one")] {
            let folder = RunFolder::create(runs.root(), id, None).unwrap();
            folder.save(&RunRecord::new(id.into(), "bench", jiff::Timestamp::UNIX_EPOCH)).unwrap();
            folder.write_json("suite.json", &suite(id, day, 100.0)).unwrap();
        }
        let mut index = RunIndex::open(dir.path(), &dir.path().join("ids")).unwrap();
        index.put_case(&suite("gone", 3, 1.0), &suite("gone", 3, 1.0).rows[0]).unwrap();
        assert_eq!(index.rebuild(&runs).unwrap(), (2, 2));
        let query = TimeQuery { case: "s:a".into(), ..TimeQuery::default() };
        let points = index.history(&query).unwrap();
        let ids: Vec<&str> = points.iter().map(|point| point.run.as_str()).collect();
        assert_eq!(ids, ["one", "two"]);
        assert_eq!(index.seconds_of("s:a"), Some(3.0));
        let since = TimeQuery { since: Some("2026-01-02".into()), ..query.clone() };
        assert_eq!(index.history(&since).unwrap().len(), 1);
        for (gpu, count) in [("h200", 2), ("b200", 0)] {
            let query = TimeQuery { case: "s:*".into(), gpu: Some(gpu.into()), ..query.clone() };
            assert_eq!(index.history(&query).unwrap().len(), count);
        }
    }

    #[test]
    fn a_failed_attempt_takes_the_times_of_an_earlier_one_away() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = RunIndex::open(dir.path(), &dir.path().join("ids")).unwrap();
        let mut run = suite("one", 1, 100.0);
        index.put_case(&run, &run.rows[0]).unwrap();
        let time = run.rows[0].times[0].clone();
        assert_eq!(index.sessions(&time.key, "").unwrap().len(), 1);
        run.rows[0].state = RowState::Failed;
        index.put_case(&run, &run.rows[0]).unwrap();
        assert!(index.sessions(&time.key, "").unwrap().is_empty());
    }
}
