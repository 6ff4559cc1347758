//! Adds an entry to the queue: its command or script, requirements, and a snapshot of the files it
//! needs. The entry goes into the state database, the snapshot into a folder named by the entry's
//! number.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rgpu_protocol::Digest;
use rusqlite::{Transaction, params};

use super::entry::{EntryEventDetail, EntrySettings, EntryState, NewCommand, NewEntry};
use super::error::io_error;
use super::{Queue, QueueError, environment, snapshot};
use rgpu_model::beneath::Folder;
use rgpu_model::fault_point;
use rgpu_run::store::state::{NewEvent, StateError, commit, now_ms, sql_error};

/// From this size on, the write-ahead log is emptied before a script is added. If the disk is then
/// too full for the script, the log holds nothing else and can be truncated.
const LARGE_SCRIPT_BYTES: usize = 1 << 20;

impl Queue {
    /// Adds an entry and returns its number. Once it returns, the entry survives a power cut.
    ///
    /// # Errors
    /// [`QueueError::NoEntry`] if it comes after an unknown one; a snapshot that cannot be made; an
    /// error of the database or the disk. Nothing is added then.
    pub fn add(&mut self, new: &NewEntry) -> Result<i64, QueueError> {
        let added = self.try_to_add(new);
        if matches!(added, Err(QueueError::State(StateError::Sql { .. }))) {
            // On a full disk, uncommitted pages in the write-ahead log take room that other
            // programs need.
            self.db.truncate_log();
        }
        added
    }

    fn try_to_add(&mut self, new: &NewEntry) -> Result<i64, QueueError> {
        for dependency in &new.after {
            self.entry(dependency.entry)?;
        }
        // Made before the transaction, because it may take long.
        let taken = snapshot::take(new, self.db.files())?;
        let (argv, script) = match &new.command {
            NewCommand::Argv(argv) => (argv, None),
            NewCommand::Script { bytes, interpreter } => (interpreter, Some(bytes)),
        };
        let settings = EntrySettings {
            after: new.after.clone(),
            tags: new.tags.clone(),
            env_from_runner: new.env_from_runner.clone(),
            snapshot: new.snapshot,
            base: taken.as_ref().and_then(|taken| taken.base.clone()),
            inner: taken.as_ref().map(|taken| taken.inner.clone()).unwrap_or_default(),
        };
        let assignments: Vec<_> =
            new.env.iter().map(|(name, value)| environment::assignment(name, value)).collect();
        let timeout_ms =
            new.timeout.map(|limit| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
        let files = self.db.files().clone();
        let queue_folder = files.path().join("queue");
        if script.is_some_and(|bytes| bytes.len() >= LARGE_SCRIPT_BYTES) {
            self.db.truncate_log();
        }
        let transaction = self.db.begin()?;
        let id = free_number(&transaction, &files, &queue_folder)?;
        transaction
            .execute(
                "INSERT INTO queue_entry (id, name, argv, script_sha256, script_bytes, cwd, env, \
                 priority, remote, gpu, timeout_ms, retries, settings, added_ms) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
                params![
                    id,
                    new.name,
                    environment::to_bytes(argv.iter().map(|word| word.as_os_str())),
                    script.map(|bytes| Digest::sha256(bytes).as_str().to_owned()),
                    script.map(|bytes| bytes.len() as i64),
                    new.cwd.as_os_str().as_bytes(),
                    environment::to_bytes(assignments.iter().map(|word| word.as_os_str())),
                    new.priority,
                    new.resource.remote(),
                    new.resource.gpu(),
                    timeout_ms,
                    new.retries,
                    serde_json::to_string(&settings).unwrap_or_default(),
                    now_ms(),
                ],
            )
            .map_err(sql_error("change"))?;
        if let Some(bytes) = script {
            transaction
                .execute(
                    "INSERT INTO queue_script (entry, bytes) VALUES (?1, ?2)",
                    params![id, bytes],
                )
                .map_err(sql_error("change"))?;
        }
        let to = EntryState::Waiting.as_str();
        let event = NewEvent { kind: "entry", subject: id, attempt: 0, from: None, to };
        let detail = EntryEventDetail { retries_left: new.retries, ..EntryEventDetail::default() };
        event.append(&transaction, &serde_json::to_value(&detail).unwrap_or_default())?;
        if let Some(taken) = taken {
            let folder = queue_folder.join(id.to_string());
            taken.move_to_entry(&files, &folder).map_err(io_error("name", &folder))?;
        }
        fault_point::kill_if_named("added");
        commit(transaction)?;
        Ok(id)
    }
}

/// The next number of an entry. A number is passed over if something has its folder's name: it came
/// with the project, or a command that was killed before its commit left it. What stands there is
/// not ours to replace, and an entry's folder is removed with the entry.
///
/// # Errors
/// Errors of the database; I/O errors, such as a link in place of the queue's folder.
fn free_number(
    transaction: &Transaction<'_>,
    files: &Folder,
    queue_folder: &Path,
) -> Result<i64, QueueError> {
    let query = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'queue_entry'";
    let last: i64 =
        transaction.query_row(query, [], |row| row.get(0)).map_err(sql_error("read"))?;
    let mut number = last + 1;
    loop {
        let folder = queue_folder.join(number.to_string());
        match files.stat(&folder).map_err(io_error("look at", &folder))? {
            Some(_) => number += 1,
            None => return Ok(number),
        }
    }
}
