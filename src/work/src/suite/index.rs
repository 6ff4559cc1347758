//! The index of suites in `.rgpu/state.db`: every time of every suite, for the history. Run folders
//! stay the truth; [`RunIndex::rebuild`] makes the index again from them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, Row, params};

use rgpu_model::beneath::Folder;
use rgpu_model::profile::CheckVerdict;
use rgpu_model::suite::{MeasurementKey, RowState, SuiteRow, SuiteRun, SuiteTime};
use rgpu_model::suite_history::HistoryPoint;
use rgpu_run::store::Runs;
use rgpu_run::store::state::{StateDb, StateError, commit, sql_error};

/// The index of one project.
#[derive(Debug)]
pub struct RunIndex {
    db: StateDb,
}

/// Points by what they belong to, oldest first.
pub type PointsByKey = BTreeMap<MeasurementKey, Vec<HistoryPoint>>;

/// Selects points of the history.
#[derive(Clone, Debug, Default)]
pub struct TimeQuery {
    /// A pattern for the case, with `*` and `?`.
    pub case: String,
    /// Only points of this GPU.
    pub gpu: Option<String>,
}

const COLUMNS: &str = "run, case_name, side, sizes, started, dtype, gpu, driver, toolkit, clocks, \
                       method, inputs, device, median_ns, low_ns, high_ns, samples, right_result, \
                       throttled, commit_id, dirty, graph_ns";

/// Where the columns of a key are among [`COLUMNS`], in the order of [`key_words`].
const KEY_COLUMNS: [usize; 9] = [1, 2, 3, 5, 6, 7, 8, 9, 10];

/// Rows of one key mostly follow each other in this order, the oldest first. The table lies in it.
const ORDER: &str = "ORDER BY case_name, side, sizes, started, run";

impl RunIndex {
    /// The index of a project, which is created if there is none.
    pub fn open(project: &Path, own_ids: &Path) -> Result<Self, StateError> {
        Ok(Self { db: StateDb::open(project, own_ids)? })
    }

    /// As [`RunIndex::open`]; `None` if the project has no state database.
    pub fn open_existing(project: &Path, own_ids: &Path) -> Result<Option<Self>, StateError> {
        Ok(StateDb::open_existing(project, own_ids)?.map(|db| Self { db }))
    }

    /// Records one case of a suite; earlier attempts of it are replaced.
    pub fn put_case(&mut self, run: &SuiteRun, row: &SuiteRow) -> Result<(), StateError> {
        let transaction = self.db.begin()?;
        put(&transaction, run, row)?;
        commit(transaction)
    }

    /// Makes the index again from the run folders. Returns the number of suites and of times.
    pub fn rebuild(&mut self, runs: &Runs) -> rgpu_model::error::Result<(usize, usize)> {
        let mut suites = Vec::new();
        for id in runs.suite_ids()? {
            let suite = Folder::open(runs.root()).and_then(|root| root.folder(id));
            let suite = suite.and_then(|folder| folder.read("suite.json", MAX_SUITE_BYTES));
            let Ok(bytes) = suite else { continue };
            suites.extend(rgpu_run::saved_json::from_slice::<SuiteRun>(&bytes));
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

    /// The points of the cases that match: of a case, of all cases of a target, or of a pattern.
    pub fn history(&self, query: &TimeQuery) -> Result<PointsByKey, StateError> {
        let is_named = names_of(&query.case);
        let text = format!("SELECT {COLUMNS} FROM suite_time WHERE {is_named} {ORDER}");
        let gpu = query.gpu.as_ref().map(|gpu| gpu.to_lowercase());
        let is_wanted = |key: &MeasurementKey| {
            (!has_pattern(&query.case) || super::matches(&query.case, &key.case))
                && gpu.as_ref().is_none_or(|gpu| key.gpu.to_lowercase().contains(gpu))
        };
        read(self.db.connection(), &text, [&query.case], is_wanted).map_err(sql_error("read"))
    }

    /// The states that the cases of this name, target or pattern have in all suites.
    pub fn states_of(&self, case: &str) -> Result<BTreeSet<String>, StateError> {
        let text =
            format!("SELECT DISTINCT case_name, state FROM suite_case WHERE {}", names_of(case));
        let query = self.db.connection().prepare(&text);
        let rows: Vec<(String, String)> = query
            .and_then(|mut query| {
                query.query_map([case], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
            })
            .map_err(sql_error("read"))?;
        let is_wanted = |name: &str| !has_pattern(case) || super::matches(case, name);
        let wanted = rows.into_iter().filter(|(name, _)| is_wanted(name));
        Ok(wanted.map(|(_, state)| state).collect())
    }

    /// The cases that have a time.
    pub fn timed_cases(&self) -> Result<BTreeSet<String>, StateError> {
        let query = self.db.connection().prepare("SELECT DISTINCT case_name FROM suite_time");
        query
            .and_then(|mut query| query.query_map([], |row| row.get(0))?.collect())
            .map_err(sql_error("read"))
    }

    /// The points of these cases.
    pub fn points_of(&self, cases: &BTreeSet<&str>) -> Result<PointsByKey, StateError> {
        let text = format!(
            "SELECT {COLUMNS} FROM suite_time \
             WHERE case_name IN (SELECT value FROM json_each(?1)) {ORDER}"
        );
        let cases = serde_json::json!(cases).to_string();
        read(self.db.connection(), &text, [cases], |_| true).map_err(sql_error("read"))
    }
}

fn has_pattern(case: &str) -> bool {
    case.contains(['*', '?'])
}

/// The condition that a row is of the case or target `?1`. A pattern is compared with each row
/// instead.
fn names_of(case: &str) -> &'static str {
    if has_pattern(case) {
        "?1 != ''"
    } else {
        // A case with axes is `target[axes]`, and one of several remotes `case@remote`; `\` is the
        // character after `[`, and `A` that after `@`.

        r"(case_name = ?1 OR case_name > ?1 || '[' AND case_name < ?1 || '\'
               OR case_name > ?1 || '@' AND case_name < ?1 || 'A')"
    }
}

/// The sessions of a time: right, unthrottled times of the same key and inputs, one for each suite,
/// the oldest first.
pub fn sessions<'a>(points: &'a PointsByKey, time: &SuiteTime) -> Vec<&'a HistoryPoint> {
    let all = points.get(&time.key).into_iter().flatten();
    all.filter(|point| point.right && !point.throttled && point.inputs == time.inputs).collect()
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
             ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)"
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
                time.graph.as_ref().map(|graph| graph.median_ns),
            ])
            .map_err(fail())?;
    }
    Ok(())
}

/// Reads the points of the keys that are wanted.
fn read(
    connection: &Connection,
    text: &str,
    params: impl rusqlite::Params,
    is_wanted: impl Fn(&MeasurementKey) -> bool,
) -> rusqlite::Result<PointsByKey> {
    let mut query = connection.prepare(text)?;
    let mut rows = query.query(params)?;
    let mut found = PointsByKey::new();
    // The key that the last rows had, and their points; `None` before the first row.
    let mut last: Option<(MeasurementKey, Vec<HistoryPoint>)> = None;
    let mut add = |of_key: Option<(MeasurementKey, Vec<HistoryPoint>)>| {
        if let Some((key, points)) = of_key.filter(|(_, points)| !points.is_empty()) {
            found.entry(key).or_default().extend(points);
        }
    };
    let mut wanted = false;
    while let Some(row) = rows.next()? {
        let is_same = match &last {
            Some((key, _)) => has_key(row, key)?,
            None => false,
        };
        if !is_same {
            let key = read_key(row)?;
            wanted = is_wanted(&key);
            add(last.replace((key, Vec::new())));
        }
        if let Some((_, points)) = last.as_mut().filter(|_| wanted) {
            points.push(read_point(row)?);
        }
    }
    add(last);
    Ok(found)
}

/// The words of a key.
fn key_words(key: &MeasurementKey) -> [&str; 9] {
    let MeasurementKey { case, side, sizes, dtype, gpu, driver, toolkit, clocks, method } = key;
    [case, side, sizes, dtype, gpu, driver, toolkit, clocks, method]
}

/// Whether a row has this key.
fn has_key(row: &Row<'_>, key: &MeasurementKey) -> rusqlite::Result<bool> {
    for (column, word) in KEY_COLUMNS.into_iter().zip(key_words(key)) {
        if row.get_ref(column)?.as_str()? != word {
            return Ok(false);
        }
    }
    Ok(true)
}

fn read_key(row: &Row<'_>) -> rusqlite::Result<MeasurementKey> {
    let [case, side, sizes, dtype, gpu, driver, toolkit, clocks, method] = KEY_COLUMNS;
    Ok(MeasurementKey {
        case: row.get(case)?,
        side: row.get(side)?,
        sizes: row.get(sizes)?,
        dtype: row.get(dtype)?,
        gpu: row.get(gpu)?,
        driver: row.get(driver)?,
        toolkit: row.get(toolkit)?,
        clocks: row.get(clocks)?,
        method: row.get(method)?,
    })
}

fn read_point(row: &Row<'_>) -> rusqlite::Result<HistoryPoint> {
    Ok(HistoryPoint {
        run: row.get(0)?,
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
        graph_ns: row.get(21)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::suite::SuiteTime;
    use rgpu_run::store::{RunFolder, RunRecord};

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
    fn a_target_has_the_history_of_all_its_cases() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = RunIndex::open(dir.path(), &dir.path().join("ids")).unwrap();
        let mut run = suite("one", 1, 100.0);
        let time = run.rows[0].times[0].clone();
        run.rows = ["s:a", "s:a@x", "s:a[n=1]", "s:a[n=2]", "s:a[n=2]@x", "s:ab", "s:ab[n=1]", "s"]
            .map(|case| {
                let key = MeasurementKey { case: case.into(), ..time.key.clone() };
                let times = vec![SuiteTime { key, ..time.clone() }];
                SuiteRow { case: case.into(), times, ..run.rows[0].clone() }
            })
            .into();
        for row in &run.rows {
            index.put_case(&run, row).unwrap();
        }
        let cases = |case: &str| -> Vec<String> {
            let query = TimeQuery { case: case.into(), ..TimeQuery::default() };
            index.history(&query).unwrap().into_keys().map(|key| key.case).collect()
        };
        assert_eq!(cases("s:a"), ["s:a", "s:a@x", "s:a[n=1]", "s:a[n=2]", "s:a[n=2]@x"]);
        assert_eq!(cases("s:a[n=2]"), ["s:a[n=2]", "s:a[n=2]@x"]);
        assert!(cases("s:a[").is_empty());
        assert_eq!(index.timed_cases().unwrap().len(), 8);
        run.rows[0].state = RowState::NoGpu;
        index.put_case(&run, &run.rows[0]).unwrap();
        let states = |case: &str| Vec::from_iter(index.states_of(case).unwrap());
        assert_eq!(states("s:a"), ["no GPU", "ok"]);
        assert_eq!(states("s:a[n=?]"), ["ok"]);
        assert!(states("s:b").is_empty() && states("t:*").is_empty());
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
        let runs = |query: &TimeQuery| -> Vec<String> {
            let points = index.history(query).unwrap().into_values().flatten();
            points.map(|point| point.run).collect()
        };
        assert_eq!(runs(&query), ["one", "two"]);
        assert_eq!(index.seconds_of("s:a"), Some(3.0));
        for (gpu, count) in [("h200", 2), ("b200", 0)] {
            let query = TimeQuery { case: "s:*".into(), gpu: Some(gpu.into()) };
            assert_eq!(runs(&query).len(), count);
        }
    }

    #[test]
    fn a_failed_attempt_takes_the_times_of_an_earlier_one_away() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = RunIndex::open(dir.path(), &dir.path().join("ids")).unwrap();
        let mut run = suite("one", 1, 100.0);
        index.put_case(&run, &run.rows[0]).unwrap();
        let time = run.rows[0].times[0].clone();
        let cases = BTreeSet::from(["s:a"]);
        assert_eq!(sessions(&index.points_of(&cases).unwrap(), &time).len(), 1);
        run.rows[0].state = RowState::Failed;
        index.put_case(&run, &run.rows[0]).unwrap();
        assert!(index.points_of(&cases).unwrap().is_empty());
    }

    #[test]
    fn one_query_gives_the_points_of_every_key_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut index = RunIndex::open(dir.path(), &dir.path().join("ids")).unwrap();
        // Two sides and two cases in each suite, and a driver that changes back and forth.
        for day in (1..=9).rev() {
            let mut run = suite(&format!("night-{day}"), day, 100.0 + day as f64);
            let time = run.rows[0].times[0].clone();
            let of = |case: &str, side: &str| {
                let mut time = time.clone();
                time.key.case = case.into();
                time.key.side = side.into();
                time.key.driver = if day % 2 == 0 { "580" } else { "590" }.into();
                time.inputs = if day == 3 { "other" } else { "abc" }.into();
                if day == 5 {
                    time.throttle.push("hw_slowdown".into());
                }
                time
            };
            run.rows[0].times = vec![of("s:a", "optimised"), of("s:a", "baseline")];
            let other = SuiteRow {
                case: "s:b".into(),
                times: vec![of("s:b", "kernel")],
                ..run.rows[0].clone()
            };
            run.rows.push(other);
            for row in &run.rows {
                index.put_case(&run, row).unwrap();
            }
        }
        let days = |points: &[&HistoryPoint]| -> String {
            points.iter().map(|point| point.run.trim_start_matches("night-")).collect()
        };
        let all = index.points_of(&BTreeSet::from(["s:a", "s:b", "s:none"])).unwrap();
        let found: Vec<(&str, &str, &str, String)> = all
            .iter()
            .map(|(key, points)| {
                let points: Vec<&HistoryPoint> = points.iter().collect();
                (key.case.as_str(), key.side.as_str(), key.driver.as_str(), days(&points))
            })
            .collect();
        let expected = [
            ("s:a", "baseline", "580", "2468"),
            ("s:a", "baseline", "590", "13579"),
            ("s:a", "optimised", "580", "2468"),
            ("s:a", "optimised", "590", "13579"),
            ("s:b", "kernel", "580", "2468"),
            ("s:b", "kernel", "590", "13579"),
        ];
        assert_eq!(found, expected.map(|(case, side, driver, d)| (case, side, driver, d.into())));
        let query = |case: &str| TimeQuery { case: case.into(), ..TimeQuery::default() };
        assert_eq!(index.history(&query("s:*")).unwrap(), all);
        let a = index.history(&query("s:a")).unwrap();
        assert_eq!(index.points_of(&BTreeSet::from(["s:a"])).unwrap(), a);
        assert_eq!(a.len(), 4);
        // Neither the throttled time nor that of other code is a session.
        let (key, _) = all.last_key_value().unwrap();
        let time = SuiteTime { key: key.clone(), inputs: "abc".into(), ..SuiteTime::default() };
        assert_eq!(days(&sessions(&all, &time)), "179");
    }
}
