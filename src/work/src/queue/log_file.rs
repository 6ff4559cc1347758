//! `queue.log`: one line for each end, for people and scripts that follow a file.
//!
//! ```text
//! END id=17 attempt=1 rc=0 status=ok dur=81.3s log=.rgpu/queue/17/1.log event=57
//! ```
//!
//! The file is made of the table of events: the last line names the last event that is in it. So
//! after a crash the lines that are missing are added, and none is there twice. A removed file is
//! written anew.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use rusqlite::Row;

use super::entry::EntryState;
use super::{Queue, QueueError, detail_of, error};
use rgpu_model::fault_point;
use rgpu_run::store::state::sql_error;

/// The name of the file in `.rgpu`.
pub const LOG_FILE: &str = "queue.log";

/// More than the longest line.
const TAIL_BYTES: u64 = 4096;

/// The name of an attempt's log, from the project folder.
pub(super) fn log_name(id: i64, attempt: u32) -> String {
    format!(".rgpu/queue/{id}/{attempt}.log")
}

impl Queue {
    /// Adds the lines that `queue.log` does not have yet.
    ///
    /// # Errors
    /// The file cannot be read or written; the database cannot be read.
    pub fn update_log_file(&self) -> Result<(), QueueError> {
        let path = self.db.folder().join(LOG_FILE);
        let fail = |doing| error::io_error(doing, &path);
        let mut file = self.db.files().update(LOG_FILE, 0o666).map_err(fail("open"))?;
        // One process at a time; the kernel releases the lock of a killed one.
        file.lock().map_err(fail("lock"))?;
        let last = last_event(&mut file).map_err(fail("read"))?;
        let lines = self.ends_after(last)?;
        if lines.is_empty() {
            return Ok(());
        }
        let half = lines.len() / 2;
        file.write_all(&lines.as_bytes()[..half]).map_err(fail("write"))?;
        fault_point::kill_if_named("half a line");
        file.write_all(&lines.as_bytes()[half..]).map_err(fail("write"))
    }

    /// The lines of all ends after an event.
    fn ends_after(&self, event: i64) -> Result<String, QueueError> {
        let ends = EntryState::ALL.into_iter().filter(|state| state.is_end());
        let ends: Vec<String> = ends.map(|state| format!("'{}'", state.as_str())).collect();
        let text = format!(
            "SELECT id, subject, attempt, to_state, detail FROM event \
             WHERE id > ?1 AND kind = 'entry' AND to_state IN ({}) ORDER BY id",
            ends.join(", ")
        );
        let mut query = self.db.connection().prepare(&text).map_err(sql_error("read"))?;
        let lines = query.query_map([event], line).and_then(Iterator::collect::<Result<String, _>>);
        Ok(lines.map_err(sql_error("read"))?)
    }
}

fn line(row: &Row<'_>) -> rusqlite::Result<String> {
    let (event, id, attempt): (i64, i64, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let status: String = row.get(3)?;
    let detail = detail_of(&row.get::<_, String>(4)?);
    // An entry that ends while it waits ends no attempt.
    let attempt = if detail.started_ms.is_some() { attempt } else { 0 };
    let rc = detail.rc.map_or_else(|| "-".to_owned(), |rc| rc.to_string());
    let dur = detail.seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}s"));
    let log = if attempt > 0 { log_name(id, attempt) } else { "-".to_owned() };
    Ok(format!(
        "END id={id} attempt={attempt} rc={rc} status={status} dur={dur} log={log} event={event}\n"
    ))
}

/// The event of the last whole line; 0 if there is none. Cuts off half a line, and leaves the file
/// at its end.
fn last_event(file: &mut File) -> std::io::Result<i64> {
    let size = file.metadata()?.len();
    let from = size.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < tail.len() {
        file.set_len(from + whole as u64)?;
    }
    file.seek(SeekFrom::End(0))?;
    let text = String::from_utf8_lossy(&tail[..whole]);
    let word = text.lines().last().and_then(|line| line.rsplit_once(" event="));
    Ok(word.and_then(|(_, number)| number.parse().ok()).unwrap_or(0))
}
