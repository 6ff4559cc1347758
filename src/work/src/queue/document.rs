//! The documents of `rgpu queue … --json`.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Entry, EntryEvent, Queue, QueueError};
use rgpu_run::store::RunState;

/// The process that runs the queue.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QueueRunner {
    /// The process id.
    pid: i32,
    /// Since when (RFC 3339).
    since: String,
}

/// The output of `queue add`, `run`, `ls`, `wait`, `cancel`, `requeue`, `pause`, `resume` and
/// `prune` with `--json` (`rgpu.queue/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct QueueDocument {
    /// Name and version of this schema: `rgpu.queue/1`.
    schema: &'static str,
    /// The process that runs the queue. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    runner: Option<QueueRunner>,
    /// Whether no entry is started.
    paused: bool,
    /// The entries that the command is about, by number.
    entries: Vec<Entry>,
    /// The numbers of the entries that `prune` removed, or would remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<i64>,
}

impl QueueDocument {
    /// The document about these entries.
    pub fn for_entries(queue: &Queue, entries: Vec<Entry>) -> Result<Self, QueueError> {
        let runner = queue
            .runner()
            .map(|holder| QueueRunner { pid: holder.pid(), since: holder.since().to_owned() });
        let paused = queue.is_paused()?;
        Ok(Self { schema: "rgpu.queue/1", runner, paused, entries, removed: Vec::new() })
    }

    /// The document about removed entries.
    pub fn for_removed(queue: &Queue, removed: Vec<i64>) -> Result<Self, QueueError> {
        Ok(Self { removed, ..Self::for_entries(queue, Vec::new())? })
    }

    /// Whether runner, pause, and the entries' states and attempts are equal; times are ignored.
    pub fn has_same_state(&self, other: &Self) -> bool {
        let state = |document: &Self| -> Vec<_> {
            let entries = document.entries.iter();
            entries.map(|entry| (entry.id, entry.state, entry.attempt)).collect()
        };
        let pid = |document: &Self| document.runner.as_ref().map(|runner| runner.pid);
        (pid(self), self.paused, state(self)) == (pid(other), other.paused, state(other))
    }

    /// The entries that the command is about, by number.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// One line: whether the queue is paused, and which process runs it.
    pub fn runner_text(&self) -> String {
        let paused = if self.paused { "paused (`rgpu queue resume` continues); " } else { "" };
        match &self.runner {
            Some(runner) => format!("{paused}process {} runs the queue", runner.pid),
            None => format!("{paused}not running; start it with `rgpu queue run`"),
        }
    }
}

/// A run that an entry's command started.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EntryRun {
    /// The run's id.
    pub id: String,
    /// Its state.
    pub state: RunState,
}

/// The output of `queue show` and `queue log` with `--json` (`rgpu.queue-entry/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub struct QueueEntryDocument {
    /// Name and version of this schema: `rgpu.queue-entry/1`.
    schema: &'static str,
    /// The entry.
    entry: Entry,
    /// The changes of its state, oldest first.
    events: Vec<EntryEvent>,
    /// The runs that the entry's commands started, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    runs: Vec<EntryRun>,
    /// For `queue log`: the output of the last attempt, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
}

impl QueueEntryDocument {
    /// The document about an entry.
    pub fn for_entry(
        queue: &Queue,
        entry: Entry,
        runs: Vec<EntryRun>,
        output: Option<String>,
    ) -> Result<Self, QueueError> {
        let events = queue.events(entry.id)?;
        Ok(Self { schema: "rgpu.queue-entry/1", entry, events, runs, output })
    }
}
