//! The queue: commands that wait for their turn on this machine, in the project's state database.
//!
//! ```text
//! add ──▶ waiting ──▶ running ──▶ ok, failed, timeout, cancelled, lost
//!            ▲  │                     │
//!            │  └─▶ cancelled, skipped│
//!            └──── retry, requeue ────┘
//! ```
//!
//! Each arrow is one row of the table of events, written in one transaction (`change`). There is
//! one `runner`: it decides which entry starts next (`schedule`) and starts a process per attempt.
//! That process (`attempt`) marks the entry as running, starts the command, ends its whole process
//! tree with the agent's own code, and records the end. So a killed runner loses nothing: the next
//! one finds the running attempts by process id, start time and boot id, and marks those as lost
//! whose process is gone. `queue.log` has a line for each end (`log_file`).
//!
//! The queue for the GPUs of a host, which all its users share, is another thing: the agent's GPU
//! lock (`remote/agent/src/supervisor/gpu_queue.rs`).

mod add;
mod attempt;
mod change;
mod document;
mod entry;
pub mod environment;
mod error;
mod log_file;
mod resource;
mod runner;
mod schedule;
mod script;
mod snapshot;

use std::path::{Path, PathBuf};

use rusqlite::{OptionalExtension, Row, params};

use rgpu_run::store::state::{LockHolder, StateDb, StateLock, now_ms, sql_error};

pub use attempt::{AttemptCall, own_entry, watch_attempt};
pub use change::{PruneChoice, RequeueChoice};
pub use document::{EntryRun, QueueDocument, QueueEntryDocument, QueueRunner};
pub use entry::{
    Dependency, Entry, EntryEvent, EntryState, MIN_SHOWN_SILENCE_S, NewCommand, NewEntry,
    ScriptRecord, SnapshotMode,
};
pub use error::QueueError;
pub use log_file::LOG_FILE;
pub use resource::Resource;
pub use runner::{Runner, RunnerEvent, RunnerOptions, detach};
pub use script::interpreter_of;

use entry::{EntryEventDetail, EntrySettings};

/// The lock that the runner holds for life.
const RUNNER_LOCK: &str = "runner.lock";

/// The name of the process with the lock in messages.
const ROLE: &str = "queue's runner";

/// The queue of a project.
#[derive(Debug)]
pub struct Queue {
    db: StateDb,
    project: PathBuf,
    own_ids: PathBuf,
}

impl Queue {
    /// Opens the queue of a project, and creates it if there is none. `own_ids` lists the ids of
    /// the user's own state databases.
    pub fn open(project: &Path, own_ids: &Path) -> Result<Self, QueueError> {
        let db = StateDb::open(project, own_ids)?;
        Ok(Self { db, project: project.to_owned(), own_ids: own_ids.to_owned() })
    }

    /// Opens the queue of a project.
    pub fn open_existing(project: &Path, own_ids: &Path) -> Result<Self, QueueError> {
        match StateDb::open_existing(project, own_ids)? {
            Some(db) => Ok(Self { db, project: project.to_owned(), own_ids: own_ids.to_owned() }),
            None => Err(QueueError::NoQueue(project.to_owned())),
        }
    }

    /// Whether a folder has a state database.
    pub fn exists_in(folder: &Path) -> bool {
        StateDb::exists_in(folder)
    }

    /// The process that runs the queue; `None` if there is none.
    pub fn runner(&self) -> Option<LockHolder> {
        StateLock::holder(self.db.files(), RUNNER_LOCK)
    }

    /// The folder of the state database.
    pub fn folder(&self) -> &Path {
        self.db.folder()
    }

    /// Whether no entry is started.
    pub fn is_paused(&self) -> Result<bool, QueueError> {
        let query = "SELECT to_state FROM event WHERE kind = 'pause' ORDER BY id DESC LIMIT 1";
        let state: Option<String> = self
            .db
            .connection()
            .query_row(query, [], |row| row.get(0))
            .optional()
            .map_err(sql_error("read"))?;
        Ok(state.as_deref() == Some("paused"))
    }

    /// All entries, in the order in which they were added.
    pub fn entries(&self) -> Result<Vec<Entry>, QueueError> {
        let now = now_ms();
        let mut query = self
            .db
            .connection()
            .prepare(&format!("SELECT {COLUMNS} FROM queue_now ORDER BY id"))
            .map_err(sql_error("read"))?;
        let columns = Columns::from_query(&query);
        let rows = query.query_map([], |row| self.entry_of(&columns, row, now));
        let entries = rows.and_then(Iterator::collect);
        Ok(entries.map_err(sql_error("read"))?)
    }

    /// An entry.
    pub fn entry(&self, id: i64) -> Result<Entry, QueueError> {
        let mut query = self
            .db
            .connection()
            .prepare(&format!("SELECT {COLUMNS} FROM queue_now WHERE id = ?1"))
            .map_err(sql_error("read"))?;
        let columns = Columns::from_query(&query);
        let row = query.query_row([id], |row| self.entry_of(&columns, row, now_ms()));
        row.optional().map_err(sql_error("read"))?.ok_or(QueueError::NoEntry(id))
    }

    /// The events of an entry, oldest first.
    pub fn events(&self, id: i64) -> Result<Vec<EntryEvent>, QueueError> {
        let mut query = self
            .db
            .connection()
            .prepare(
                "SELECT id, attempt, from_state, to_state, at_ms, pid, detail FROM event \
                 WHERE kind = 'entry' AND subject = ?1 ORDER BY id",
            )
            .map_err(sql_error("read"))?;
        let event = |row: &Row<'_>| {
            Ok(EntryEvent {
                event: row.get(0)?,
                attempt: row.get(1)?,
                from: row.get(2)?,
                to: row.get(3)?,
                at: time_text(row.get(4)?),
                pid: row.get(5)?,
                reason: detail_of(&row.get::<_, String>(6)?).reason,
            })
        };
        let events = query.query_map([id], event).and_then(Iterator::collect);
        Ok(events.map_err(sql_error("read"))?)
    }

    /// The script of an entry, byte for byte; `None` if it has none.
    pub fn script(&self, id: i64) -> Result<Option<Vec<u8>>, QueueError> {
        let query = "SELECT bytes FROM queue_script WHERE entry = ?1";
        let bytes = self.db.connection().query_row(query, params![id], |row| row.get(0));
        Ok(bytes.optional().map_err(sql_error("read"))?)
    }

    /// The names of the variables that an entry's command gets: those that are recorded, and those
    /// that come from the runner.
    pub fn variables(&self, id: i64) -> Result<(Vec<String>, Vec<String>), QueueError> {
        let query = "SELECT env, settings FROM queue_entry WHERE id = ?1";
        let row = self.db.connection().query_row(query, params![id], |row| {
            let env = environment::from_bytes(row.get_ref(0)?.as_blob()?);
            let names = env.iter().filter_map(|word| environment::split_assignment(word));
            let names = names.map(|(name, _)| name.to_string_lossy().into_owned()).collect();
            let settings: EntrySettings =
                serde_json::from_str(row.get_ref(1)?.as_str()?).unwrap_or_default();
            Ok((names, settings.env_from_runner))
        });
        row.optional().map_err(sql_error("read"))?.ok_or(QueueError::NoEntry(id))
    }

    /// The entry that started this process, if it is one of this queue.
    pub fn own_entry(&self) -> Option<i64> {
        attempt::own_entry_of(self.db.id())
    }

    /// The entries that cannot start before entry `own` ends: they need what it has, or wait for
    /// it.
    pub fn entries_blocked_by(&self, own: i64) -> Result<Vec<i64>, QueueError> {
        let entries = self.entries()?;
        let needs =
            |entry: &Entry| Resource::recorded(entry.remote.as_deref(), entry.gpu.as_deref());
        let Some(holder) = entries.iter().find(|entry| entry.id == own).map(needs) else {
            return Ok(Vec::new());
        };
        let mut held_up = Vec::new();
        // An entry waits only for older ones.
        for entry in entries.iter().filter(|entry| entry.state == EntryState::Waiting) {
            let waits = |after: &Dependency| after.entry == own || held_up.contains(&after.entry);
            if needs(entry).conflicts_with(&holder) || entry.after.iter().any(waits) {
                held_up.push(entry.id);
            }
        }
        Ok(held_up)
    }

    /// Where the output of an attempt of entry `id` is logged. Attempts count from 1.
    pub fn log_path(&self, id: i64, attempt: u32) -> PathBuf {
        self.entry_folder(id).join(format!("{attempt}.log"))
    }

    /// Opens the log of an attempt for reading.
    ///
    /// # Errors
    /// There is none yet; it is a link or no regular file.
    pub fn open_log(&self, id: i64, attempt: u32) -> std::io::Result<std::fs::File> {
        self.db.files().open_file(self.log_path(id, attempt))
    }

    /// The folder with an entry's logs, script and snapshot.
    fn entry_folder(&self, id: i64) -> PathBuf {
        self.db.folder().join("queue").join(id.to_string())
    }

    fn entry_of(&self, columns: &Columns, row: &Row<'_>, now: i64) -> rusqlite::Result<Entry> {
        let id: i64 = row.get(columns.id)?;
        let detail = detail_of(row.get_ref(columns.detail)?.as_str()?);
        let settings: EntrySettings =
            serde_json::from_str(row.get_ref(columns.settings)?.as_str()?).unwrap_or_default();
        let state = state_of(row.get_ref(columns.state)?.as_str()?);
        let attempt: u32 = row.get(columns.attempt)?;
        let at_ms: i64 = row.get(columns.at_ms)?;
        let is_running = state == EntryState::Running;
        let started_ms = if is_running { Some(at_ms) } else { detail.started_ms };
        let since = |ms: i64| ((now - ms).max(0) as f64) / 1000.0;
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let argv = environment::from_bytes(row.get_ref(columns.argv)?.as_blob()?);
        let script = match row.get::<_, Option<String>>(columns.script_sha256)? {
            Some(sha256) => {
                let bytes: i64 = row.get(columns.script_bytes)?;
                Some(ScriptRecord { sha256, bytes: bytes.unsigned_abs() })
            }
            None => None,
        };
        Ok(Entry {
            id,
            name: row.get(columns.name)?,
            state,
            reason: detail.reason,
            attempt,
            retries_left: detail.retries_left,
            rc: detail.rc,
            signal: detail.signal,
            seconds: if is_running { Some(since(at_ms)) } else { detail.seconds },
            silent_s: if is_running { self.silence(id, attempt) } else { None },
            added: time_text(row.get(columns.added_ms)?),
            started: started_ms.map(time_text),
            ended: (!state.is_active()).then(|| time_text(at_ms)),
            command: argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            script,
            cwd: lossy(row.get_ref(columns.cwd)?.as_blob()?),
            priority: row.get(columns.priority)?,
            after: settings.after,
            remote: row.get(columns.remote)?,
            gpu: row.get(columns.gpu)?,
            timeout_s: row.get::<_, Option<i64>>(columns.timeout_ms)?.map(|ms| ms as f64 / 1000.0),
            tags: settings.tags,
            snapshot: settings.snapshot,
            log: (attempt > 0).then(|| log_file::log_name(id, attempt)),
            pid: if is_running { Some(row.get(columns.pid)?) } else { None },
        })
    }

    /// Seconds since the last output of a running attempt.
    fn silence(&self, id: i64, attempt: u32) -> Option<f64> {
        let written = self.db.files().modified(self.log_path(id, attempt))?;
        Some(written.elapsed().unwrap_or_default().as_secs_f64())
    }
}

/// The columns of an entry. The environment is left out: reading ten thousand of them takes long.
const COLUMNS: &str = "id, name, argv, script_sha256, script_bytes, cwd, priority, remote, gpu, \
                       timeout_ms, settings, added_ms, attempt, state, at_ms, pid, detail";

/// Where the [`COLUMNS`] are: looking each up by name for each row takes longer than
/// reading it.
struct Columns {
    id: usize,
    name: usize,
    argv: usize,
    script_sha256: usize,
    script_bytes: usize,
    cwd: usize,
    priority: usize,
    remote: usize,
    gpu: usize,
    timeout_ms: usize,
    settings: usize,
    added_ms: usize,
    attempt: usize,
    state: usize,
    at_ms: usize,
    pid: usize,
    detail: usize,
}

impl Columns {
    fn from_query(query: &rusqlite::Statement<'_>) -> Self {
        // A missing column is an error when a row is read.
        let at = |name| query.column_index(name).unwrap_or(usize::MAX);
        Self {
            id: at("id"),
            name: at("name"),
            argv: at("argv"),
            script_sha256: at("script_sha256"),
            script_bytes: at("script_bytes"),
            cwd: at("cwd"),
            priority: at("priority"),
            remote: at("remote"),
            gpu: at("gpu"),
            timeout_ms: at("timeout_ms"),
            settings: at("settings"),
            added_ms: at("added_ms"),
            attempt: at("attempt"),
            state: at("state"),
            at_ms: at("at_ms"),
            pid: at("pid"),
            detail: at("detail"),
        }
    }
}

fn detail_of(text: &str) -> EntryEventDetail {
    serde_json::from_str(text).unwrap_or_default()
}

/// The state of a word. A word of a later version counts as an end that nobody knows.
fn state_of(word: &str) -> EntryState {
    EntryState::from_word(word).unwrap_or(EntryState::Lost)
}

/// A time of the database as RFC 3339, in whole milliseconds.
fn time_text(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_string()
}
