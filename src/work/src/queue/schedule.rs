//! Decides which entry starts next.
//!
//! The schedule is read from the database once, and from then on follows the table of events: each
//! poll reads only the new ones, so that ten thousand waiting entries cost nothing per start.
//! Entries run by priority, then by number. One waits for those that it comes after, and for a
//! running one that needs the same resource.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use rusqlite::{OptionalExtension, Row};

use super::entry::{Dependency, EntrySettings, EntryState};
use super::{Queue, QueueError, Resource, state_of};
use crate::own_command::is_started_by_agent;
use rgpu_run::store::state::sql_error;

/// What the runner has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScheduleAction {
    /// Start this attempt of the entry.
    Start { entry: i64, attempt: u32 },
    /// Skip the entry: the other one did not end ok.
    Skip { entry: i64, dependency: i64 },
}

/// An entry that waits or runs.
#[derive(Debug)]
struct ActiveEntry {
    state: EntryState,
    attempt: u32,
    priority: i64,
    after: Vec<Dependency>,
    resource: Resource,
    /// It is not started before; `None`: at once.
    not_before: Option<Instant>,
}

/// The entries that wait or run.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    entries: BTreeMap<i64, ActiveEntry>,
    /// The waiting entries in the order of their turns.
    waiting: BTreeSet<(Reverse<i64>, i64)>,
    /// The entries that run, or are being started.
    running: BTreeSet<i64>,
    /// The last event that was read.
    last_event: i64,
    is_paused: bool,
    /// Whether an agent started this runner: it starts rgpu's own commands only.
    is_of_agent: bool,
    /// The waiting entries that this runner leaves to one of the user.
    left: BTreeSet<i64>,
}

impl Schedule {
    /// Reads the entries that wait or run.
    pub(super) fn read(queue: &Queue) -> Result<Self, QueueError> {
        let is_of_agent = is_started_by_agent();
        let mut schedule = Self { is_paused: queue.is_paused()?, is_of_agent, ..Self::default() };
        // Events that are added after this look are read by the next refresh.
        let last = "SELECT coalesce(max(id), 0) FROM event";
        let connection = queue.db.connection();
        schedule.last_event =
            connection.query_row(last, [], |row| row.get(0)).map_err(sql_error("read"))?;
        let query = "SELECT id, state, attempt, priority, remote, gpu, settings FROM queue_now \
                     WHERE state IN ('waiting', 'running')";
        let mut query = connection.prepare(query).map_err(sql_error("read"))?;
        let rows = query.query_map([], |row| {
            let entry = active_entry(row, 3, state_of(row.get_ref(1)?.as_str()?), row.get(2)?)?;
            Ok((row.get::<_, i64>(0)?, entry))
        });
        let rows = rows.and_then(Iterator::collect::<Result<Vec<_>, _>>);
        for (id, entry) in rows.map_err(sql_error("read"))? {
            schedule.put_unless_left(queue, id, entry)?;
        }
        Ok(schedule)
    }

    /// Reads what has changed since.
    pub(super) fn refresh(&mut self, queue: &Queue) -> Result<(), QueueError> {
        let connection = queue.db.connection();
        let mut query = connection
            .prepare(
                "SELECT id, kind, subject, attempt, to_state FROM event WHERE id > ?1 ORDER BY id",
            )
            .map_err(sql_error("read"))?;
        let rows = query.query_map([self.last_event], |row| {
            Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        });
        let rows = rows.and_then(Iterator::collect::<Result<Vec<_>, _>>);
        for (event, kind, subject, attempt, to) in rows.map_err(sql_error("read"))? {
            let (event, subject, attempt, to): (i64, i64, u32, String) =
                (event, subject, attempt, to);
            match kind.as_str() {
                "entry" => self.apply(queue, subject, attempt, state_of(&to))?,
                "pause" => self.is_paused = to == "paused",
                _ => {}
            }
            self.last_event = event;
        }
        Ok(())
    }

    fn apply(
        &mut self,
        queue: &Queue,
        id: i64,
        attempt: u32,
        state: EntryState,
    ) -> Result<(), QueueError> {
        let known = self.remove(id);
        if !state.is_active() {
            return Ok(());
        }
        let entry = match known {
            Some(entry) => ActiveEntry { state, attempt, not_before: None, ..entry },
            None => {
                let query = "SELECT priority, remote, gpu, settings FROM queue_entry WHERE id = ?1";
                let row = queue
                    .db
                    .connection()
                    .query_row(query, [id], |row| active_entry(row, 0, state, attempt));
                // It may have been removed since.
                match row.optional().map_err(sql_error("read"))? {
                    Some(entry) => entry,
                    None => return Ok(()),
                }
            }
        };
        self.put_unless_left(queue, id, entry)
    }

    /// Takes an entry. A waiting one that an agent's runner may not start is left, as are those
    /// that come after it.
    fn put_unless_left(
        &mut self,
        queue: &Queue,
        id: i64,
        entry: ActiveEntry,
    ) -> Result<(), QueueError> {
        let is_left = self.is_of_agent
            && entry.state == EntryState::Waiting
            && (entry.after.iter().any(|after| self.left.contains(&after.entry))
                || !queue.is_for_agents(id)?);
        if is_left {
            self.left.insert(id);
        } else {
            self.left.remove(&id);
            self.put(id, entry);
        }
        Ok(())
    }

    /// The waiting entries that this runner leaves to one of the user.
    pub(super) fn left(&self) -> impl Iterator<Item = i64> {
        self.left.iter().copied()
    }

    fn put(&mut self, id: i64, entry: ActiveEntry) {
        match entry.state {
            EntryState::Running => drop(self.running.insert(id)),
            _ => drop(self.waiting.insert((Reverse(entry.priority), id))),
        }
        self.entries.insert(id, entry);
    }

    fn remove(&mut self, id: i64) -> Option<ActiveEntry> {
        let entry = self.entries.remove(&id)?;
        self.waiting.remove(&(Reverse(entry.priority), id));
        self.running.remove(&id);
        Some(entry)
    }

    /// Counts an entry as running, because the process that watches its attempt is being started.
    pub(super) fn is_starting(&mut self, id: i64, attempt: u32) {
        if let Some(entry) = self.remove(id) {
            self.put(id, ActiveEntry { state: EntryState::Running, attempt, ..entry });
        }
    }

    /// Counts an entry as waiting again, but not before a time: its attempt could not begin.
    pub(super) fn is_postponed(&mut self, id: i64, attempt: u32, until: Instant) {
        if let Some(entry) = self.remove(id) {
            let not_before = Some(until);
            self.put(id, ActiveEntry { state: EntryState::Waiting, attempt, not_before, ..entry });
        }
    }

    /// Whether no entry is started until the user resumes.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether an entry runs, or is being started.
    pub(super) fn is_running(&self, id: i64) -> bool {
        self.running.contains(&id)
    }

    /// Whether no entry waits.
    pub(super) fn has_none_waiting(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next thing to do; `None` if every waiting entry has to wait on.
    pub(super) fn next(&self, queue: &Queue) -> Result<Option<ScheduleAction>, QueueError> {
        if self.is_paused {
            return Ok(None);
        }
        let busy: Vec<&Resource> =
            self.running.iter().filter_map(|id| Some(&self.entries.get(id)?.resource)).collect();
        for (_, id) in &self.waiting {
            let Some(entry) = self.entries.get(id) else { continue };
            if entry.not_before.is_some_and(|time| time > Instant::now())
                || busy.iter().any(|resource| resource.conflicts_with(&entry.resource))
                || entry.after.iter().any(|after| self.entries.contains_key(&after.entry))
            {
                continue;
            }
            for after in &entry.after {
                let state = queue.state_of_entry(after.entry)?;
                if state != Some(EntryState::Ok) && !after.any {
                    return Ok(Some(ScheduleAction::Skip { entry: *id, dependency: after.entry }));
                }
            }
            return Ok(Some(ScheduleAction::Start { entry: *id, attempt: entry.attempt + 1 }));
        }
        Ok(None)
    }
}

/// An entry from a row that has priority, remote, GPU and settings from the column `at` on.
fn active_entry(
    row: &Row<'_>,
    at: usize,
    state: EntryState,
    attempt: u32,
) -> rusqlite::Result<ActiveEntry> {
    let settings: EntrySettings =
        serde_json::from_str(row.get_ref(at + 3)?.as_str()?).unwrap_or_default();
    let needs = |at| Ok::<_, rusqlite::Error>(row.get_ref(at)?.as_str_or_null()?);
    Ok(ActiveEntry {
        state,
        attempt,
        priority: row.get(at)?,
        after: settings.after,
        resource: Resource::recorded(needs(at + 1)?, needs(at + 2)?),
        not_before: None,
    })
}
