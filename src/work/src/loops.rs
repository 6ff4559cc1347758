//! The loop: a worker proposes changes of a kernel, rgpu verifies and measures them, a reviewer
//! judges, and what is faster is kept.
//!
//! ```text
//! INIT ──▶ RUN_WORKER ──────────────────────────────▶ RUN_REVIEWER ──▶ APPLY_VERDICT ──▶ STOPPED
//!            worker ▶ verify ▶ compare ▶ confirm ▶ profile    ▲              │
//!            ▲                                                               │
//!            └───────────────────────── the next iteration ──────────────────┘
//! ```
//!
//! Each arrow is one row of the table of events with the whole state, written in one transaction
//! (`driver`). A killed loop continues in the phase that it was in, and does that phase again. A
//! worker's numbers are claims: a change is kept only if the reference holds at all sizes and two
//! comparisons of rgpu's own say that it is faster (`measure`). What is measured is a copy of the
//! project's files (`tree`), and the same copy is what is kept.
//!
//! One process at a time runs a project's loop, by a lock that it holds for life. Files below
//! `artifacts/loop/<id>` are for people and outside workers; the truth is in the database.

mod answers;
mod commit;
mod config;
mod copies;
mod documents;
mod driver;
mod error;
mod measure;
mod phases;
mod prompt;
mod state;
mod status;
mod tree;

use std::path::{Path, PathBuf};

use rusqlite::{OptionalExtension, Row, params};

use rgpu_model::beneath::Folder;
use rgpu_run::store::Runs;
use rgpu_run::store::state::{
    LockHolder, NewEvent, StateDb, StateLock, commit, now_ms, random_id, sql_error,
};

pub use config::{ConfigOrigin, Direction, LoopConfig, LoopMetric, LoopMode};
pub use documents::{
    DocumentKind, ProgressReport, ReviewerVerdict, Verdict, WorkerProgress, WorkerResult,
};
pub use driver::{LoopRunner, LoopSetup};
pub use error::LoopError;
pub use measure::loop_id_from_env;
pub use state::{
    IterationRecord, KeptState, LoopComparison, LoopState, MeasuredTime, Outcome, Phase, Proposal,
    Stop, StopReason,
};
pub use status::{AwaitedAnswer, Heartbeat, LoopStatus, LoopTarget};

/// The lock that the loop holds for life.
const LOOP_LOCK: &str = "loop.lock";

/// The name of the process with the lock in messages.
const ROLE: &str = "project's loop";

/// The folder of all loops, from the project.
const FOLDER: &str = "artifacts/loop";

/// The loops of a project.
#[derive(Debug)]
pub struct Loops {
    db: StateDb,
    project: PathBuf,
    /// The project's folder, open.
    files: Folder,
}

/// A loop as the database has it.
#[derive(Clone, Debug)]
pub struct LoopRow {
    /// Its number in the database.
    pub number: i64,
    /// Its id, which is also its folder's name.
    pub id: String,
    /// The settings that it started with, and keeps when it is resumed.
    pub config: LoopConfig,
    /// When it started, in milliseconds since 1970.
    pub started_ms: i64,
    /// Its phase, its best version and its counts.
    pub state: LoopState,
    /// When the state changed last, in milliseconds since 1970.
    pub at_ms: i64,
}

impl Loops {
    /// Opens the loops of a project, and creates the database if there is none. `own_ids` lists the
    /// ids of the user's own state databases.
    pub fn open(project: &Path, own_ids: &Path) -> Result<Self, LoopError> {
        Self::with_db(StateDb::open(project, own_ids)?, project)
    }

    /// Opens the loops of a project.
    ///
    /// # Errors
    /// [`LoopError::NoLoop`] if the project has no database; [`LoopError::State`].
    pub fn open_existing(project: &Path, own_ids: &Path) -> Result<Self, LoopError> {
        match StateDb::open_existing(project, own_ids)? {
            Some(db) => Self::with_db(db, project),
            None => Err(LoopError::NoLoop(None)),
        }
    }

    fn with_db(db: StateDb, project: &Path) -> Result<Self, LoopError> {
        let files = Folder::open(project).map_err(error::io_error("open", project))?;
        Ok(Self { db, project: project.to_owned(), files })
    }

    /// The project's folder, from which the files of its loops are reached.
    pub fn files(&self) -> &Folder {
        &self.files
    }

    /// The heartbeat of a loop; `None` if there is none.
    pub fn heartbeat(&self, id: &str) -> Option<Heartbeat> {
        status::read_heartbeat(&self.files, &self.folder(id))
    }

    /// The process that runs the project's loop; `None` if there is none.
    pub fn holder(&self) -> Option<LockHolder> {
        StateLock::holder(self.db.files(), LOOP_LOCK)
    }

    /// The folder of the project that the loops belong to.
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// The folder of a loop.
    pub fn folder(&self, id: &str) -> PathBuf {
        self.project.join(FOLDER).join(id)
    }

    /// The folder of an iteration of a loop.
    pub fn iteration_folder(&self, id: &str, iteration: u32) -> PathBuf {
        iteration_folder(&self.folder(id), iteration)
    }

    /// A loop by its id or the beginning of it; without one, the newest.
    pub fn find(&self, id: Option<&str>) -> Result<LoopRow, LoopError> {
        if let Some(beginning) = id {
            let ids = self.ids_with(beginning)?;
            if ids.len() > 1 && !ids.iter().any(|id| id == beginning) {
                return Err(LoopError::Ambiguous { beginning: beginning.to_owned(), ids });
            }
        }
        let beginning = id.unwrap_or_default();
        let mut query = self
            .db
            .connection()
            .prepare(
                "SELECT id, name, config, started_ms, detail, at_ms FROM loop_now \
                 WHERE substr(name, 1, length(?1)) = ?1 ORDER BY name = ?1 DESC, id DESC LIMIT 1",
            )
            .map_err(sql_error("read"))?;
        let row = query.query_row([beginning], loop_row).optional().map_err(sql_error("read"))?;
        row.ok_or_else(|| LoopError::NoLoop(id.map(str::to_owned)))
    }

    /// The ids with this beginning, newest first.
    pub fn ids_with(&self, beginning: &str) -> Result<Vec<String>, LoopError> {
        let query = "SELECT name FROM loop WHERE substr(name, 1, length(?1)) = ?1 ORDER BY id DESC";
        let mut query = self.db.connection().prepare(query).map_err(sql_error("read"))?;
        let names = query.query_map([beginning], |row| row.get(0));
        Ok(names.and_then(Iterator::collect).map_err(sql_error("read"))?)
    }

    /// The iterations of a loop that have ended, oldest first.
    pub fn iterations(&self, number: i64) -> Result<Vec<IterationRecord>, LoopError> {
        let mut query = self
            .db
            .connection()
            .prepare("SELECT record FROM loop_iteration WHERE loop = ?1 ORDER BY iteration")
            .map_err(sql_error("read"))?;
        let rows = query.query_map([number], |row| row.get::<_, String>(0));
        let texts: Vec<String> = rows.and_then(Iterator::collect).map_err(sql_error("read"))?;
        // A record of a later version is left out, as its events are.
        Ok(texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect())
    }

    /// Asks a loop to stop. The first request ends what runs and measures the best against the
    /// start; the second leaves that out.
    pub fn ask_to_stop(&mut self, number: i64) -> Result<(), LoopError> {
        let transaction = self.db.begin()?;
        let event =
            NewEvent { kind: "loop-stop", subject: number, attempt: 0, from: None, to: "asked" };
        event.append(&transaction, &serde_json::json!({}))?;
        Ok(commit(transaction)?)
    }

    /// How often somebody asked the loop to stop.
    fn stop_requests(&self, number: i64) -> Result<u32, LoopError> {
        let query = "SELECT count(*) FROM event WHERE kind = 'loop-stop' AND subject = ?1";
        let count = self.db.connection().query_row(query, [number], |row| row.get(0));
        Ok(count.map_err(sql_error("read"))?)
    }

    /// Adds a worker's report to the progress of an iteration.
    ///
    /// # Errors
    /// [`LoopError::WrongState`] for another iteration than the current one; [`LoopError::Io`].
    pub fn report_progress(
        &self,
        row: &LoopRow,
        iteration: u32,
        report: &ProgressReport,
    ) -> Result<WorkerProgress, LoopError> {
        let is_over = row.state.phase == Phase::Stopped;
        if is_over || iteration == 0 || iteration != row.state.iteration {
            return Err(LoopError::WrongState {
                id: row.id.clone(),
                state: if is_over {
                    "has stopped".to_owned()
                } else {
                    format!("is in iteration {}", row.state.iteration)
                },
                hint: "`--iter` is the iteration of the prompt".to_owned(),
            });
        }
        let path = iteration_folder(&self.folder(&row.id), iteration).join("worker_progress.json");
        documents::add_progress(&self.files, &path, iteration, report)
    }

    /// The ids of the loops that [`Loops::prune`] would remove, oldest first.
    pub fn ids_to_prune(&self, keep: usize) -> Result<Vec<String>, LoopError> {
        Ok(self.stopped_beyond(keep)?.into_iter().rev().map(|row| row.id).collect())
    }

    /// The loops that have stopped, newest first, without the `keep` newest.
    fn stopped_beyond(&self, keep: usize) -> Result<Vec<LoopRow>, LoopError> {
        let mut stopped = Vec::new();
        for id in self.ids_with("")? {
            let row = self.find(Some(&id))?;
            if row.state.phase == Phase::Stopped {
                stopped.push(row);
            }
        }
        Ok(stopped.split_off(keep.min(stopped.len())))
    }

    /// Removes the loops that have stopped, but not the `keep` newest of them: their folders, their
    /// commits' refs and their rows. Returns their ids, oldest first. Their events stay.
    pub fn prune(&mut self, keep: usize) -> Result<Vec<String>, LoopError> {
        let old = self.stopped_beyond(keep)?;
        // Nothing is removed where one folder cannot be.
        for row in &old {
            let folder = self.folder(&row.id);
            match self.files.folder(&folder) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error::io_error("remove", &folder)(e));
                }
                _ => {}
            }
        }
        let mut removed = Vec::new();
        for row in old.iter().rev() {
            // The rows go last, so that a killed removal can be repeated.
            let folder = self.folder(&row.id);
            match self.files.remove_folder(&folder) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error::io_error("remove", &folder)(e));
                }
                _ => commit::remove_ref(&self.project, &row.id),
            }
            let transaction = self.db.begin()?;
            for query in
                ["DELETE FROM loop_iteration WHERE loop = ?1", "DELETE FROM loop WHERE id = ?1"]
            {
                transaction.execute(query, [row.number]).map_err(sql_error("change"))?;
            }
            commit(transaction)?;
            removed.push(row.id.clone());
        }
        Ok(removed)
    }

    /// Adds a loop, and returns its number and id.
    fn add(&mut self, config: &LoopConfig) -> Result<(i64, String), LoopError> {
        let kernel = config.kernel_path.file_stem().unwrap_or_default().to_string_lossy();
        let id = Runs::fresh_id(&kernel, jiff::Timestamp::now());
        let state = LoopState::new();
        let transaction = self.db.begin()?;
        transaction
            .execute(
                "INSERT INTO loop (name, config, started_ms) VALUES (?1, ?2, ?3)",
                params![id, serde_json::to_string(config).unwrap_or_default(), now_ms()],
            )
            .map_err(sql_error("change"))?;
        let number = transaction.last_insert_rowid();
        let to = state.phase.state();
        let event = NewEvent { kind: "loop", subject: number, attempt: 0, from: None, to };
        event.append(&transaction, &serde_json::to_value(&state).unwrap_or_default())?;
        commit(transaction)?;
        Ok((number, id))
    }

    /// Changes a loop's state, in one transaction with the record of the iteration that ends with
    /// it.
    fn change(
        &mut self,
        number: i64,
        from: Phase,
        state: &LoopState,
        ended: Option<&IterationRecord>,
    ) -> Result<(), LoopError> {
        let transaction = self.db.begin()?;
        if let Some(record) = ended {
            transaction
                .execute(
                    "INSERT INTO loop_iteration (loop, iteration, record) VALUES (?1, ?2, ?3)",
                    params![
                        number,
                        record.iteration,
                        serde_json::to_string(record).unwrap_or_default()
                    ],
                )
                .map_err(sql_error("change"))?;
        }
        let event = NewEvent {
            kind: "loop",
            subject: number,
            attempt: state.iteration,
            from: Some(from.state()),
            to: state.phase.state(),
        };
        event.append(&transaction, &serde_json::to_value(state).unwrap_or_default())?;
        Ok(commit(transaction)?)
    }
}

fn loop_row(row: &Row<'_>) -> rusqlite::Result<LoopRow> {
    let from_json = |at: usize, e: serde_json::Error| {
        rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, Box::new(e))
    };
    Ok(LoopRow {
        number: row.get(0)?,
        id: row.get(1)?,
        config: serde_json::from_str(row.get_ref(2)?.as_str()?).map_err(|e| from_json(2, e))?,
        started_ms: row.get(3)?,
        state: serde_json::from_str(row.get_ref(4)?.as_str()?).map_err(|e| from_json(4, e))?,
        at_ms: row.get(5)?,
    })
}

/// The folder of an iteration.
fn iteration_folder(folder: &Path, iteration: u32) -> PathBuf {
    folder.join(format!("iter_{iteration:04}"))
}

/// A random word that a result must carry.
fn fresh_nonce() -> Result<String, LoopError> {
    Ok(random_id()?)
}
