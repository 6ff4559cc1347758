//! One change of state, as a row of the table `event`.

use rusqlite::{Connection, params};
use serde_json::Value;

use super::{ProcessId, StateError, sql_error};

/// A change of state that this process makes.
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    /// The kind of thing that changes, such as `entry`.
    pub kind: &'a str,
    /// Its number among those of its kind.
    pub subject: i64,
    /// The attempt, from 1; 0 if there was none yet.
    pub attempt: u32,
    /// The state before; `None` for a new thing.
    pub from: Option<&'a str>,
    /// The state from now on.
    pub to: &'a str,
}

impl NewEvent<'_> {
    /// Appends the row and returns its number. `detail` is a JSON object.
    pub fn append(&self, connection: &Connection, detail: &Value) -> Result<i64, StateError> {
        let own = ProcessId::own();
        let mut insert = connection
            .prepare(
                "INSERT INTO event (kind, subject, attempt, from_state, to_state, at_ms, boot_id, \
                 pid, start_time, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )
            .map_err(sql_error("change"))?;
        insert
            .insert(params![
                self.kind,
                self.subject,
                self.attempt,
                self.from,
                self.to,
                now_ms(),
                own.boot_id,
                own.pid,
                own.start_time,
                detail.to_string(),
            ])
            .map_err(sql_error("change"))
    }
}

/// Milliseconds since 1970, by the wall clock. For people only: it can step.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
