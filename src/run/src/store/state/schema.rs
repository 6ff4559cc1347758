//! The tables of the state database, and how an older database gets the later ones.
//!
//! `user_version` counts the applied [`MIGRATIONS`]. A migration that is released never changes; a
//! new one is added at the end. A database of a later version is refused, because this program
//! cannot know what its tables mean.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::run_summaries::RUN_SUMMARIES;
use super::suites::{GRAPH_TIMES, SUITES};
use super::{StateError, lock, random_id, sql_error};
use rgpu_model::beneath::Folder;

/// Identifies the file as rgpu's: "rgpu" in ASCII.
const APPLICATION_ID: i32 = 0x7267_7075;

/// Each text makes the tables of one version from those of the version before.
const MIGRATIONS: &[&str] = &[QUEUE, LOOP, SUITES, RUN_SUMMARIES, GRAPH_TIMES];

/// Version 1: events, and the entries of the queue.
const QUEUE: &str = "
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- kind and subject: `entry` with its id, `cancel` with an entry's id, `runner` and `pause` with 0.
CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    subject INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    from_state TEXT,
    to_state TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_time INTEGER NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE INDEX event_of_subject ON event (kind, subject, id);
CREATE TRIGGER event_is_not_changed BEFORE UPDATE ON event
    BEGIN SELECT RAISE(ABORT, 'the table of events only grows'); END;
CREATE TRIGGER event_is_not_removed BEFORE DELETE ON event
    BEGIN SELECT RAISE(ABORT, 'the table of events only grows'); END;

-- argv and env are bytes: words, each ended by a NUL.
CREATE TABLE queue_entry (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    argv BLOB NOT NULL,
    script_sha256 TEXT,
    script_bytes INTEGER,
    cwd BLOB NOT NULL,
    env BLOB NOT NULL,
    priority INTEGER NOT NULL,
    remote TEXT,
    gpu TEXT,
    timeout_ms INTEGER,
    retries INTEGER NOT NULL,
    settings TEXT NOT NULL,
    added_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE queue_script (
    entry INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;
CREATE VIEW queue_now AS
    SELECT e.*, v.id AS event, v.attempt, v.to_state AS state, v.at_ms, v.boot_id, v.pid,
           v.start_time, v.detail
    FROM queue_entry e JOIN event v
    ON v.id = (SELECT max(id) FROM event WHERE kind = 'entry' AND subject = e.id);
";

/// Version 2: loops. Their events are `loop` with the loop's number, whose `attempt` is the
/// iteration and whose `detail` is the whole state, and `loop-stop`, which asks a loop to stop.
const LOOP: &str = "
CREATE TABLE loop (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    config TEXT NOT NULL,
    started_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE loop_iteration (
    loop INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (loop, iteration)
) STRICT;
CREATE VIEW loop_now AS
    SELECT l.*, v.id AS event, v.attempt AS iteration, v.to_state AS state, v.at_ms, v.detail
    FROM loop l JOIN event v
    ON v.id = (SELECT max(id) FROM event WHERE kind = 'loop' AND subject = l.id);
";

/// Brings the database to the current version and returns its id. A new one gets an id, which
/// `remember` keeps before the database has it.
pub(super) fn prepare(
    connection: &mut Connection,
    files: &Folder,
    remember: impl Fn(&str) -> Result<(), StateError>,
) -> Result<String, StateError> {
    let folder = files.path();
    if version(connection, folder)? != MIGRATIONS.len() {
        // One process at a time, because changing the journal's mode does not wait for others.
        let _lock = lock::wait(files, "state.lock")?;
        migrate(connection, folder, MIGRATIONS, remember)?;
    }
    connection
        .query_row("SELECT value FROM meta WHERE key = 'id'", [], |row| row.get(0))
        .map_err(sql_error("read"))
}

/// The number of applied migrations; 0 for a new file.
fn version(connection: &Connection, folder: &Path) -> Result<usize, StateError> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let read = || Ok((number("application_id")?, number("user_version")?));
    let (application, version) = read().map_err(|source| match source {
        rusqlite::Error::SqliteFailure(e, _) if e.code == rusqlite::ErrorCode::NotADatabase => {
            StateError::OtherProgram(folder.join("state.db"))
        }
        source => StateError::Sql { doing: "read", source },
    })?;
    match (application, u32::try_from(version)) {
        (APPLICATION_ID, Ok(found)) => {
            let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
            if found > known {
                return Err(StateError::Newer { path: folder.join("state.db"), found, known });
            }
            Ok(found as usize)
        }
        (0, Ok(0)) if is_empty(connection)? => Ok(0),
        _ => Err(StateError::OtherProgram(folder.join("state.db"))),
    }
}

fn is_empty(connection: &Connection) -> Result<bool, StateError> {
    let query = "SELECT count(*) FROM sqlite_schema";
    let count = connection.query_row(query, [], |row| row.get::<_, i64>(0));
    Ok(count.map_err(sql_error("read"))? == 0)
}

fn migrate(
    connection: &mut Connection,
    folder: &Path,
    migrations: &[&str],
    remember: impl Fn(&str) -> Result<(), StateError>,
) -> Result<(), StateError> {
    let done = version(connection, folder)?;
    let fail = || sql_error("update");
    if done == 0 {
        connection.pragma_update(None, "journal_mode", "WAL").map_err(fail())?;
    }
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail())?;
    for migration in &migrations[done.min(migrations.len())..] {
        transaction.execute_batch(migration).map_err(fail())?;
    }
    if done == 0 {
        let id = random_id()?;
        remember(&id)?;
        transaction
            .execute("INSERT INTO meta (key, value) VALUES ('id', ?1)", [&id])
            .map_err(fail())?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail())?;
    }
    transaction.pragma_update(None, "user_version", migrations.len() as i64).map_err(fail())?;
    transaction.commit().map_err(fail())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_database_gets_the_later_tables_and_keeps_its_rows() {
        let dir = tempfile::tempdir().unwrap();
        let mut connection = Connection::open(dir.path().join("state.db")).unwrap();
        migrate(&mut connection, dir.path(), MIGRATIONS, |_| Ok(())).unwrap();
        let id = |connection: &Connection| -> String {
            let query = "SELECT value FROM meta WHERE key = 'id'";
            connection.query_row(query, [], |row| row.get(0)).unwrap()
        };
        let before = id(&connection);
        let later = [MIGRATIONS, &["CREATE TABLE later (x INTEGER) STRICT;"]].concat();
        migrate(&mut connection, dir.path(), &later, |_| panic!("it has an id")).unwrap();
        assert_eq!(id(&connection), before);
        connection.execute("INSERT INTO later VALUES (1)", []).unwrap();
        // This program does not know the later version.
        let error = version(&connection, dir.path()).unwrap_err();
        assert!(matches!(error, StateError::Newer { .. }), "{error}");
    }

    #[test]
    fn the_times_of_an_older_index_are_kept_and_have_none_in_a_graph() {
        let dir = tempfile::tempdir().unwrap();
        let mut connection = Connection::open(dir.path().join("state.db")).unwrap();
        let older = [QUEUE, LOOP, SUITES, RUN_SUMMARIES];
        migrate(&mut connection, dir.path(), &older, |_| Ok(())).unwrap();
        let row = "INSERT INTO suite_time VALUES ('night', 's:a', 'kernel', 'n=1', '2026-01-01', \
                   'f32', 'H200', '580', 'nvcc', 'as_found', '1', 'abc', 'GPU-1', 5.0, 4.0, 6.0, \
                   30, 1, 0, 'c0', 0)";
        connection.execute(row, []).unwrap();
        prepare(&mut connection, &Folder::open(dir.path()).unwrap(), |_| panic!("it has an id"))
            .unwrap();
        let query = "SELECT run, case_name, device, low_ns, median_ns, high_ns, samples, \
                     right_result, commit_id, graph_ns IS NULL FROM suite_time";
        let found: (String, String, String, [f64; 3], i64, bool, String, bool) = connection
            .query_row(query, [], |row| {
                let times = [row.get(3)?, row.get(4)?, row.get(5)?];
                let text = |at| row.get::<_, String>(at);
                Ok((
                    text(0)?,
                    text(1)?,
                    text(2)?,
                    times,
                    row.get(6)?,
                    row.get(7)?,
                    text(8)?,
                    row.get(9)?,
                ))
            })
            .unwrap();
        let [run, case, device, commit] = ["night", "s:a", "GPU-1", "c0"].map(str::to_owned);
        assert_eq!(found, (run, case, device, [4.0, 5.0, 6.0], 30, true, commit, true));
    }

    #[test]
    fn a_database_that_was_not_finished_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let mut connection = Connection::open(dir.path().join("state.db")).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        assert_eq!(prepare(&mut connection, &folder, |_| Ok(())).unwrap().len(), 32);
    }
}
