//! All changes of an entry's state. Each is one immediate transaction, which first checks the state
//! that it changes: of two processes that try the same change, one succeeds.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::attempt::kill_leftovers;
use super::entry::{AttemptEnd, EntryEventDetail, EntryState};
use super::{Queue, QueueError, ROLE, RUNNER_LOCK, detail_of, state_of};
use rgpu_model::fault_point;
use rgpu_run::process_tree;
use rgpu_run::store::state::{NewEvent, ProcessId, StateError, StateLock, commit, sql_error};

/// Which entries `requeue` puts back, besides those named.
#[derive(Clone, Debug, Default)]
pub struct RequeueChoice {
    /// Those that failed or hit their time limit.
    pub failed: bool,
    /// Those that were lost.
    pub lost: bool,
    /// Those whose state or reason contains this text.
    pub reason: Option<String>,
}

/// Which entries `prune` removes.
#[derive(Clone, Copy, Debug)]
pub struct PruneChoice {
    /// How many of the newest stay.
    pub keep: usize,
    /// Whether those that did not end ok are removed too.
    pub all: bool,
    /// Whether nothing is removed, only told.
    pub dry_run: bool,
}

/// The last event of an entry.
struct LastEvent {
    state: EntryState,
    attempt: u32,
    detail: EntryEventDetail,
    at_ms: i64,
    process: ProcessId,
}

/// A running attempt, with the process that watches it.
pub(super) struct RunningAttempt {
    pub(super) entry: i64,
    pub(super) attempt: u32,
    pub(super) process: ProcessId,
}

fn last_event(connection: &Connection, entry: i64) -> Result<Option<LastEvent>, StateError> {
    let mut query = connection
        .prepare(
            "SELECT to_state, attempt, detail, at_ms, boot_id, pid, start_time FROM event \
             WHERE kind = 'entry' AND subject = ?1 ORDER BY id DESC LIMIT 1",
        )
        .map_err(sql_error("read"))?;
    let event = |row: &Row<'_>| {
        Ok(LastEvent {
            state: state_of(row.get_ref(0)?.as_str()?),
            attempt: row.get(1)?,
            detail: detail_of(row.get_ref(2)?.as_str()?),
            at_ms: row.get(3)?,
            process: ProcessId { boot_id: row.get(4)?, pid: row.get(5)?, start_time: row.get(6)? },
        })
    };
    query.query_row([entry], event).optional().map_err(sql_error("read"))
}

/// Writes that an entry goes from one state to another.
fn append(
    transaction: &Transaction<'_>,
    (entry, attempt): (i64, u32),
    from: EntryState,
    to: EntryState,
    detail: &EntryEventDetail,
) -> Result<(), StateError> {
    let (from, to) = (Some(from.as_str()), to.as_str());
    let event = NewEvent { kind: "entry", subject: entry, attempt, from, to };
    event.append(transaction, &serde_json::to_value(detail).unwrap_or_default()).map(drop)
}

/// Writes an event that is not an entry's own.
fn append_other(
    transaction: &Transaction<'_>,
    kind: &str,
    (subject, attempt): (i64, u32),
    to: &str,
) -> Result<i64, StateError> {
    let event = NewEvent { kind, subject, attempt, from: None, to };
    event.append(transaction, &serde_json::json!({}))
}

fn is_cancel_asked(connection: &Connection, entry: i64, attempt: u32) -> Result<bool, StateError> {
    let query =
        "SELECT count(*) FROM event WHERE kind = 'cancel' AND subject = ?1 AND attempt = ?2";
    let count = connection.query_row(query, params![entry, attempt], |row| row.get::<_, i64>(0));
    Ok(count.map_err(sql_error("read"))? > 0)
}

impl Queue {
    /// Becomes the runner, for as long as the lock lives. Returns the event of its start: attempts
    /// that an earlier runner asked for do not begin any more.
    pub(super) fn become_runner(&mut self) -> Result<(StateLock, i64), QueueError> {
        let lock = StateLock::take(self.db.files(), RUNNER_LOCK, ROLE)?;
        let transaction = self.db.begin()?;
        let event = append_other(&transaction, "runner", (0, 0), "started")?;
        commit(transaction)?;
        Ok((lock, event))
    }

    /// Makes an attempt running, with this process as the one that watches it. Returns false if it
    /// is not the entry's turn any more.
    pub(super) fn start_attempt(
        &mut self,
        entry: i64,
        attempt: u32,
        runner: i64,
    ) -> Result<bool, QueueError> {
        let transaction = self.db.begin()?;
        let query = "SELECT max(id) FROM event WHERE kind = 'runner'";
        let current: Option<i64> =
            transaction.query_row(query, [], |row| row.get(0)).map_err(sql_error("read"))?;
        let last = last_event(&transaction, entry)?;
        let Some(last) = last.filter(|last| {
            current == Some(runner)
                && last.state == EntryState::Waiting
                && last.attempt + 1 == attempt
        }) else {
            return Ok(false);
        };
        let detail = EntryEventDetail {
            retries_left: last.detail.retries_left,
            ..EntryEventDetail::default()
        };
        append(&transaction, (entry, attempt), last.state, EntryState::Running, &detail)?;
        fault_point::kill_if_named("starting");
        commit(transaction)?;
        fault_point::kill_if_named("started");
        Ok(true)
    }

    /// Records how a running attempt ended, and lets the entry wait again if it has retries left.
    /// Returns false if the end is recorded already.
    pub(super) fn end_attempt(
        &mut self,
        entry: i64,
        attempt: u32,
        end: &AttemptEnd,
    ) -> Result<bool, QueueError> {
        let transaction = self.db.begin()?;
        let Some(last) = last_event(&transaction, entry)?
            .filter(|last| last.state == EntryState::Running && last.attempt == attempt)
        else {
            return Ok(false);
        };
        let detail = EntryEventDetail {
            retries_left: last.detail.retries_left,
            rc: end.rc,
            signal: end.signal,
            seconds: end.seconds,
            started_ms: Some(last.at_ms),
            reason: end.reason.clone(),
            because_of: None,
        };
        append(&transaction, (entry, attempt), last.state, end.state, &detail)?;
        let is_retried =
            matches!(end.state, EntryState::Failed | EntryState::Timeout | EntryState::Lost)
                && !is_cancel_asked(&transaction, entry, attempt)?;
        if is_retried && last.detail.retries_left > 0 {
            let again = EntryEventDetail {
                retries_left: last.detail.retries_left - 1,
                reason: Some(format!("retry after attempt {attempt}: {}", end.state.as_str())),
                ..EntryEventDetail::default()
            };
            append(&transaction, (entry, attempt), end.state, EntryState::Waiting, &again)?;
        }
        fault_point::kill_if_named("ending");
        commit(transaction)?;
        fault_point::kill_if_named("ended");
        Ok(true)
    }

    /// Ends a waiting entry, because `dependency` did not end ok.
    pub(super) fn skip(&mut self, entry: i64, dependency: i64) -> Result<(), QueueError> {
        let transaction = self.db.begin()?;
        let before = last_event(&transaction, dependency)?;
        let Some(last) =
            last_event(&transaction, entry)?.filter(|last| last.state == EntryState::Waiting)
        else {
            return Ok(());
        };
        let state = before.map_or(EntryState::Pruned, |event| event.state);
        let detail = EntryEventDetail {
            retries_left: last.detail.retries_left,
            reason: Some(format!("entry {dependency} {}", state.phrase())),
            because_of: Some(dependency),
            ..EntryEventDetail::default()
        };
        append(&transaction, (entry, last.attempt), last.state, EntryState::Skipped, &detail)?;
        Ok(commit(transaction)?)
    }

    /// The state of an entry; `None` if there is no such entry.
    pub(super) fn state_of_entry(&self, entry: i64) -> Result<Option<EntryState>, QueueError> {
        Ok(last_event(self.db.connection(), entry)?.map(|event| event.state))
    }

    /// Asks for the end of an entry. A waiting one is cancelled at once; the process that watches a
    /// running one gets SIGTERM, and then ends the command's whole process tree. Where that process
    /// is gone, [`Queue::end_orphaned_attempt`] does it.
    ///
    /// # Errors
    /// [`QueueError::NoEntry`]; [`QueueError::WrongState`] if it has ended.
    pub fn cancel(&mut self, entry: i64) -> Result<(), QueueError> {
        let transaction = self.db.begin()?;
        let last = last_event(&transaction, entry)?.ok_or(QueueError::NoEntry(entry))?;
        match last.state {
            EntryState::Waiting => {
                let reason = Some("before it started".to_owned());
                let retries_left = last.detail.retries_left;
                let detail =
                    EntryEventDetail { retries_left, reason, ..EntryEventDetail::default() };
                let to = EntryState::Cancelled;
                append(&transaction, (entry, last.attempt), last.state, to, &detail)?;
                Ok(commit(transaction)?)
            }
            EntryState::Running => {
                append_other(&transaction, "cancel", (entry, last.attempt), "asked")?;
                commit(transaction)?;
                terminate(&last.process);
                Ok(())
            }
            state => Err(QueueError::WrongState {
                entry,
                state: state.phrase(),
                hint: "only an entry that waits or runs can be cancelled",
            }),
        }
    }

    /// Ends what is left of a running attempt whose watching process is gone, and records it.
    pub fn end_orphaned_attempt(&mut self, entry: i64) -> Result<(), QueueError> {
        let Some(last) = last_event(self.db.connection(), entry)? else { return Ok(()) };
        if last.state != EntryState::Running || last.process.is_alive() {
            return Ok(());
        }
        let reason = if last.process.is_of_earlier_boot() {
            "the machine was restarted"
        } else {
            "the process that watched it was killed"
        };
        self.end_lost(entry, last.attempt, reason)
    }

    /// As [`Queue::end_orphaned_attempt`], for an attempt that is known to be unwatched.
    pub(super) fn end_lost(
        &mut self,
        entry: i64,
        attempt: u32,
        reason: &str,
    ) -> Result<(), QueueError> {
        let left = kill_leftovers(self, entry, attempt);
        let state = if self.is_cancel_asked(entry, attempt)? {
            EntryState::Cancelled
        } else {
            EntryState::Lost
        };
        let mut reason = reason.to_owned();
        if !left.is_empty() {
            let pids: Vec<String> = left.iter().map(i32::to_string).collect();
            reason += &format!("; processes {} could not be killed", pids.join(", "));
        }
        self.end_attempt(entry, attempt, &AttemptEnd::without_status(state, reason)).map(drop)
    }

    /// Whether the user asked for the end of an attempt.
    pub(super) fn is_cancel_asked(&self, entry: i64, attempt: u32) -> Result<bool, QueueError> {
        Ok(is_cancel_asked(self.db.connection(), entry, attempt)?)
    }

    /// The running attempts, with the processes that watch them.
    pub(super) fn running_attempts(&self) -> Result<Vec<RunningAttempt>, QueueError> {
        let mut query = self
            .db
            .connection()
            .prepare(
                "SELECT id, attempt, boot_id, pid, start_time FROM queue_now \
                 WHERE state = 'running' ORDER BY id",
            )
            .map_err(sql_error("read"))?;
        let attempt = |row: &Row<'_>| {
            let (boot_id, pid, start_time) = (row.get(2)?, row.get(3)?, row.get(4)?);
            let process = ProcessId { boot_id, pid, start_time };
            Ok(RunningAttempt { entry: row.get(0)?, attempt: row.get(1)?, process })
        };
        let attempts = query.query_map([], attempt).and_then(Iterator::collect);
        Ok(attempts.map_err(sql_error("read"))?)
    }

    /// Stops or continues starting entries. Running ones continue.
    pub fn set_paused(&mut self, is_paused: bool) -> Result<(), QueueError> {
        let transaction = self.db.begin()?;
        let to = if is_paused { "paused" } else { "resumed" };
        append_other(&transaction, "pause", (0, 0), to)?;
        Ok(commit(transaction)?)
    }

    /// Puts ended entries back: those named, and those of the choice. With each go the entries that
    /// were skipped because of it. Returns the numbers of all.
    ///
    /// # Errors
    /// [`QueueError::NoEntry`]; [`QueueError::WrongState`] if a named one waits or runs.
    pub fn requeue(
        &mut self,
        named: &[i64],
        choice: &RequeueChoice,
    ) -> Result<Vec<i64>, QueueError> {
        let ended: Vec<_> =
            self.entries()?.into_iter().filter(|entry| !entry.state.is_active()).collect();
        let chosen = ended.iter().filter(|entry| {
            let contains = |text: &String| {
                entry.state.as_str().contains(text.as_str())
                    || entry.reason.as_ref().is_some_and(|reason| reason.contains(text.as_str()))
            };
            let failed = matches!(entry.state, EntryState::Failed | EntryState::Timeout);
            (choice.failed && failed)
                || (choice.lost && entry.state == EntryState::Lost)
                || choice.reason.as_ref().is_some_and(contains)
        });
        let mut wanted: Vec<i64> = named.to_vec();
        wanted.extend(chosen.map(|entry| entry.id));
        let transaction = self.db.begin()?;
        let mut requeued = Vec::new();
        while let Some(entry) = wanted.pop() {
            if requeued.contains(&entry) {
                continue;
            }
            let last = last_event(&transaction, entry)?
                .filter(|last| last.state != EntryState::Pruned)
                .ok_or(QueueError::NoEntry(entry))?;
            if last.state.is_active() {
                return Err(QueueError::WrongState {
                    entry,
                    state: last.state.phrase(),
                    hint: "only an ended entry can be put back",
                });
            }
            let retries = "SELECT retries FROM queue_entry WHERE id = ?1";
            let retries_left = transaction
                .query_row(retries, [entry], |row| row.get(0))
                .map_err(sql_error("read"))?;
            let reason = Some(format!("requeued, was {}", last.state.as_str()));
            let detail = EntryEventDetail { retries_left, reason, ..EntryEventDetail::default() };
            append(&transaction, (entry, last.attempt), last.state, EntryState::Waiting, &detail)?;
            requeued.push(entry);
            for skipped in ended.iter().filter(|other| other.state == EntryState::Skipped) {
                let because_of =
                    last_event(&transaction, skipped.id)?.and_then(|event| event.detail.because_of);
                if because_of == Some(entry) {
                    wanted.push(skipped.id);
                }
            }
        }
        commit(transaction)?;
        requeued.sort_unstable();
        Ok(requeued)
    }

    /// Removes ended entries with their logs, scripts and snapshots; their events stay. Entries
    /// that an active one comes after stay too. Returns the numbers of the removed ones.
    ///
    /// # Errors
    /// [`QueueError::State`]; a folder that cannot be removed.
    pub fn prune(&mut self, choice: PruneChoice) -> Result<Vec<i64>, QueueError> {
        let entries = self.entries()?;
        let active = entries.iter().filter(|entry| entry.state.is_active());
        let needed: Vec<i64> =
            active.flat_map(|entry| entry.after.iter().map(|after| after.entry)).collect();
        let ended = entries.iter().rev().filter(|entry| !entry.state.is_active());
        let old: Vec<i64> = ended
            .skip(choice.keep)
            .filter(|entry| choice.all || entry.state == EntryState::Ok)
            .map(|entry| entry.id)
            .filter(|id| !needed.contains(id))
            .collect();
        if choice.dry_run {
            return Ok(old.into_iter().rev().collect());
        }
        // Nothing is removed where one folder cannot be: rows do not come back.
        for id in &old {
            let folder = self.entry_folder(*id);
            match self.db.files().folder(&folder) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(super::error::io_error("remove", &folder)(e));
                }
                _ => {}
            }
        }
        // The log must not miss an end whose entry is gone.
        self.update_log_file()?;
        let transaction = self.db.begin()?;
        let mut removed = Vec::new();
        for id in old.into_iter().rev() {
            let Some(last) = last_event(&transaction, id)?.filter(|last| !last.state.is_active())
            else {
                continue;
            };
            let to = EntryState::Pruned;
            append(&transaction, (id, last.attempt), last.state, to, &EntryEventDetail::default())?;
            for table in ["queue_script WHERE entry", "queue_entry WHERE id"] {
                transaction
                    .execute(&format!("DELETE FROM {table} = ?1"), [id])
                    .map_err(sql_error("change"))?;
            }
            removed.push(id);
        }
        commit(transaction)?;
        for id in &removed {
            let folder = self.entry_folder(*id);
            match self.db.files().remove_folder(&folder) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(super::error::io_error("remove", &folder)(e));
                }
                _ => {}
            }
        }
        self.db.reclaim_space();
        Ok(removed)
    }
}

/// Sends SIGTERM to a process, if it is still that one.
fn terminate(process: &ProcessId) {
    use rustix::process::{Pid, Signal, kill_process};
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    // A pidfd keeps meaning this process, so that a look at it after opening is enough.
    match process_tree::open_pidfd(pid) {
        Some(pidfd) if process.is_alive() => process_tree::terminate(&pidfd),
        None if process.is_alive() => drop(kill_process(pid, Signal::TERM)),
        _ => {}
    }
}
