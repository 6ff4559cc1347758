//! `.rgpu/state.db`: the state that has no run folder, in one SQLite database of the project.
//!
//! `rgpu queue`, `rgpu loop` and the indices of runs and suites keep their state here. Each adds
//! its own tables by a migration (`schema`). The table `event` only grows: what changed, from which
//! state to which, when, and by which process (boot id, process id, start time). The current state
//! of a queue entry or loop is a view of its events. Changes happen in immediate transactions, so
//! that any number of processes may write; a process that must be the only one of its role holds a
//! [`StateLock`].
//!
//! The database can name commands to run, and a project folder can come from anybody. So each
//! database has a random id, and only a database whose id is in the user's own list is opened.

#![expect(
    clippy::disallowed_methods,
    reason = "the user's list of databases; the folder was checked for links"
)]

mod event;
mod lock;
mod process_id;
mod run_summaries;
mod schema;
mod suites;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::atomic;
use rgpu_model::beneath::{self, Folder};
use rgpu_model::error::{Exit, Failure, shell_word};

pub use event::{NewEvent, now_ms};
pub use lock::{LockHolder, StateLock};
pub use process_id::ProcessId;

/// The name of the folder in a project.
const FOLDER: &str = ".rgpu";

/// The name of the database in it.
const DATABASE: &str = "state.db";

/// How long a transaction waits for those of other processes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(20);

/// Free pages of fewer bytes in all are not given back to the disk: later rows use them.
const MIN_FREE_BYTES: i64 = 1 << 20;

/// Why the state database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// An error of the file system.
    #[error("cannot {doing} `{}`", path.display())]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// SQLite cannot open, read or change the database.
    #[error("cannot {doing} the state database, `.rgpu/state.db` of the project")]
    Sql {
        /// The operation that failed.
        doing: &'static str,
        /// SQLite's error, with its code.
        #[source]
        source: rusqlite::Error,
    },
    /// A later version of rgpu made the database.
    #[error("`{}` has version {found}, and this rgpu knows versions up to {known}", path.display())]
    Newer {
        /// The path of `state.db`.
        path: PathBuf,
        /// The version of the database.
        found: u32,
        /// The latest version that this program knows.
        known: u32,
    },
    /// The file is a database of another program.
    #[error("`{}` is not a state database of rgpu", .0.display())]
    OtherProgram(PathBuf),
    /// The database is not in the user's list: it came with the project.
    #[error("`{}` was not made by you on this machine, and it can name commands to run", path.display())]
    MadeElsewhere {
        /// The path of `state.db`.
        path: PathBuf,
        /// The random id in the database, 32 hexadecimal digits. A user adds it to `list` to accept
        /// it.
        id: String,
        /// The file with the ids of the user's own databases.
        list: PathBuf,
    },
    /// The folder, or a file of the database, is a link.
    #[error("`{}` is a link, which is not followed", .0.display())]
    Linked(PathBuf),
    /// Locks do not hold on the file system.
    #[error("`{}` is on a file system where file locks do not work ({why})", path.display())]
    NoLocks {
        /// The project's `.rgpu` folder.
        path: PathBuf,
        /// The kind of file system, or what the test of a lock showed.
        why: String,
    },
    /// The database was removed or replaced while it was in use.
    #[error("`{}` was removed or replaced while this command used it", .0.display())]
    Vanished(PathBuf),
    /// Another process has this role in the project.
    #[error("{holder} already runs as the {role} of this project")]
    Held {
        /// The role of the process: `queue's runner`.
        role: &'static str,
        /// The process as the lock's file names it; unknown if the file does not tell.
        holder: LockHolder,
    },
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        let failure = |exit, code: &str| Failure::new(exit, code, error.to_string());
        match &error {
            StateError::Io { source, .. } => failure(Exit::Disk, "disk").cause(source),
            StateError::Sql { source, .. } => {
                let failure = failure(Exit::Disk, "state_database").cause(source);
                match source.sqlite_error_code() {
                    Some(rusqlite::ErrorCode::DatabaseCorrupt) => failure
                        .hint("it is damaged: move it away, with the files `-wal` and `-shm` beside it")
                        .hint("rgpu then makes a new one; the run folders are not in it"),
                    _ => failure,
                }
            }
            StateError::Newer { .. } => failure(Exit::Config, "newer_state")
                .hint("use the newer rgpu that made it; nothing was changed"),
            StateError::OtherProgram(_) => failure(Exit::Config, "other_database")
                .hint("nothing was changed; move it away, with the file `-wal` beside it")
                .hint("rgpu then makes a new one; what the old one had is not in it"),
            StateError::MadeElsewhere { id, list, .. } => {
                let list = shell_word(list.display());
                failure(Exit::Config, "state_made_elsewhere")
                    .hint("if you do not need it, remove the folder `.rgpu`")
                    .hint(format!(
                        "if it is yours: mkdir -p \"$(dirname {list})\" && echo {id} >> {list}"
                    ))
            }
            StateError::Linked(_) => failure(Exit::Config, "linked_folder")
                .hint("rgpu makes no such link: remove it if you did not make it"),
            StateError::Vanished(_) => failure(Exit::Disk, "state_vanished")
                .hint("what was written since is lost; put the folder `.rgpu` back, or start anew"),
            StateError::NoLocks { .. } => {
                failure(Exit::Config, "no_locks").hint("put the project on a local disk")
            }
            StateError::Held { holder, .. } => match holder.pid() {
                0 => failure(Exit::Usage, "held"),
                pid => failure(Exit::Usage, "held").hint(format!("to stop it: kill {pid}")),
            },
        }
    }
}

/// Wraps an error of SQLite.
pub fn sql_error(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> StateError {
    move |source| StateError::Sql { doing, source }
}

/// Wraps an error of the file system.
pub fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    move |source| StateError::Io { doing, path: path.to_owned(), source }
}

/// Wraps an error of a file below the state folder, which may be a link.
fn state_io_error(doing: &'static str, path: &Path, source: io::Error) -> StateError {
    match beneath::link_of(&source) {
        Some(link) => StateError::Linked(link.to_owned()),
        None => StateError::Io { doing, path: path.to_owned(), source },
    }
}

/// An open state database.
#[derive(Debug)]
pub struct StateDb {
    connection: Connection,
    files: Folder,
    id: String,
    /// Device and inode of `state.db` when it was opened.
    file: (u64, u64),
}

impl StateDb {
    /// Opens the database of a project, or creates it. `own_ids` is the file that lists the ids of
    /// the user's databases, one per line.
    pub fn open(project: &Path, own_ids: &Path) -> Result<Self, StateError> {
        let path = project.join(FOLDER);
        let failed = |source: io::Error| state_io_error("create", &path, source);
        let project = Folder::open(project).map_err(failed)?;
        let files = match project.new_private_folder(FOLDER) {
            Ok(files) => {
                files.write(".gitignore", b"*\n").map_err(failed)?;
                files
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                project.folder(FOLDER).map_err(failed)?
            }
            Err(e) => return Err(failed(e)),
        };
        Self::open_folder(files, own_ids)
    }

    /// As [`StateDb::open`]; `None` if the project has no database.
    pub fn open_existing(project: &Path, own_ids: &Path) -> Result<Option<Self>, StateError> {
        let path = project.join(FOLDER);
        let files = Folder::open(project).and_then(|project| project.folder(FOLDER));
        match files.and_then(|files| Ok((files.stat(DATABASE)?.is_some(), files))) {
            Ok((true, files)) => Self::open_folder(files, own_ids).map(Some),
            Ok((false, _)) => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(state_io_error("read", &path, source)),
        }
    }

    /// Whether a project has a database.
    pub fn exists_in(project: &Path) -> bool {
        project.join(FOLDER).join("state.db").exists()
    }

    fn open_folder(files: Folder, own_ids: &Path) -> Result<Self, StateError> {
        let path = files.path().join(DATABASE);
        lock::check_file_system(&files)?;
        // SQLite opens paths, and makes these files beside the database.
        for name in ["", "-wal", "-shm", "-journal"].map(|end| format!("{DATABASE}{end}")) {
            match files.open_file(&name) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                opened => {
                    let path = files.path().join(&name);
                    opened.map_err(|source| state_io_error("open", &path, source))?;
                }
            }
        }
        let mut connection = connect(&path)?;
        let id = schema::prepare(&mut connection, &files, |id| remember(own_ids, id))?;
        if !is_own(own_ids, &id) {
            return Err(StateError::MadeElsewhere { path, id, list: own_ids.to_owned() });
        }
        let file = file_id(&path).map_err(io_error("read", &path))?;
        Ok(Self { connection, files, id, file })
    }

    /// The folder of the database, `.rgpu`.
    pub fn folder(&self) -> &Path {
        self.files.path()
    }

    /// The folder of the database, open.
    pub fn files(&self) -> &Folder {
        &self.files
    }

    /// The random id of the database.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The connection, for reading.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Checks that the database is still the one at its path. SQLite goes on writing into a file
    /// that was removed.
    pub fn check_in_place(&self) -> Result<(), StateError> {
        let path = self.folder().join("state.db");
        match file_id(&path) {
            Ok(file) if file == self.file => Ok(()),
            _ => Err(StateError::Vanished(path)),
        }
    }

    /// Begins an immediate transaction: no other process writes until it ends.
    pub fn begin(&mut self) -> Result<Transaction<'_>, StateError> {
        self.check_in_place()?;
        self.connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(sql_error("change"))
    }

    /// Moves the write-ahead log into the database and truncates it. Does nothing while another
    /// process reads, or if the disk is full; a later call does it.
    pub fn truncate_log(&self) {
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// Gives the space of removed rows back to the disk, if it is 1 MiB or more. Does
    /// nothing if the disk is full; a later call does it.
    pub fn reclaim_space(&self) {
        let number = |name| self.connection.pragma_query_value(None, name, |row| row.get(0));
        let free = || -> rusqlite::Result<(i64, i64)> {
            Ok((number("freelist_count")?, number("page_size")?))
        };
        if free().is_ok_and(|(pages, bytes)| pages.saturating_mul(bytes) >= MIN_FREE_BYTES) {
            let _ = self.connection.execute_batch("VACUUM");
        }
        self.truncate_log();
    }
}

/// The device and inode of a file.
fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Commits a transaction. Its changes then survive a power cut.
pub fn commit(transaction: Transaction<'_>) -> Result<(), StateError> {
    transaction.commit().map_err(sql_error("write"))
}

fn connect(path: &Path) -> Result<Connection, StateError> {
    // Not through a link: the folder may come with a clone.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    // SQLite refuses links in the folders above the file too, and those may be the user's.
    let real = path.parent().and_then(|folder| folder.canonicalize().ok());
    let path =
        real.zip(path.file_name()).map_or(path.to_owned(), |(folder, name)| folder.join(name));
    let failed = |source| match source {
        rusqlite::Error::SqliteFailure(e, _) if e.code == rusqlite::ErrorCode::NotADatabase => {
            StateError::OtherProgram(path.clone())
        }
        source => StateError::Sql { doing: "open", source },
    };
    let connection = Connection::open_with_flags(&path, flags).map_err(failed)?;
    let set_up = || {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // The log stays for the next command: emptying it at each end takes longer than the work.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // A schema that came with the project runs no functions with side effects.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.pragma_update(None, "synchronous", "FULL")
    };
    set_up().map_err(failed)?;
    Ok(connection)
}

fn is_own(own_ids: &Path, id: &str) -> bool {
    fs::read_to_string(own_ids).unwrap_or_default().lines().any(|known| known == id)
}

/// Adds an id to the user's list.
fn remember(own_ids: &Path, id: &str) -> Result<(), StateError> {
    let folder = own_ids.parent().unwrap_or(Path::new("."));
    atomic::make_private_folder(folder).map_err(io_error("create", folder))?;
    let mut options = OpenOptions::new();
    let mut file = options
        .append(true)
        .create(true)
        .mode(0o600)
        .open(own_ids)
        .map_err(io_error("open", own_ids))?;
    file.write_all(format!("{id}\n").as_bytes()).map_err(io_error("write", own_ids))
}

/// A random id: 32 hexadecimal digits.
pub fn random_id() -> Result<String, StateError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(io_error("read", path))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_made_once_and_only_its_owner_opens_it() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("data/ids");
        assert!(StateDb::open_existing(dir.path(), &own).unwrap().is_none());
        let id = StateDb::open(dir.path(), &own).unwrap().id().to_owned();
        assert_eq!(StateDb::open(dir.path(), &own).unwrap().id(), id);
        let other = dir.path().join("others");
        let error = StateDb::open(dir.path(), &other).unwrap_err();
        assert!(matches!(error, StateError::MadeElsewhere { .. }), "{error}");
        remember(&other, &id).unwrap();
        assert_eq!(StateDb::open(dir.path(), &other).unwrap().id(), id);
    }

    #[test]
    fn many_processes_may_make_it_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let open = || StateDb::open(dir.path(), &dir.path().join("ids")).unwrap().id().to_owned();
        let ids: Vec<String> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }

    #[test]
    fn a_link_another_programs_file_and_a_later_version_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("ids");
        let project = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        std::os::unix::fs::symlink(dir.path(), project("linked").join(".rgpu")).unwrap();
        let error = StateDb::open(&project("linked"), &own).unwrap_err();
        assert!(matches!(error, StateError::Linked(_)), "{error}");

        let others = project("others");
        fs::create_dir(others.join(".rgpu")).unwrap();
        let theirs = Connection::open(others.join(".rgpu/state.db")).unwrap();
        theirs.execute_batch("CREATE TABLE t(x); PRAGMA user_version = 1").unwrap();
        let before = fs::read(others.join(".rgpu/state.db")).unwrap();
        let error = StateDb::open(&others, &own).unwrap_err();
        assert!(matches!(error, StateError::OtherProgram(_)), "{error}");
        assert_eq!(fs::read(others.join(".rgpu/state.db")).unwrap(), before);

        let later = project("later");
        let db = StateDb::open(&later, &own).unwrap();
        db.connection().pragma_update(None, "user_version", 999).unwrap();
        drop(db);
        let error = StateDb::open(&later, &own).unwrap_err();
        assert!(matches!(error, StateError::Newer { found: 999, .. }), "{error}");
    }

    #[test]
    fn events_are_never_changed_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut db = StateDb::open(dir.path(), &dir.path().join("ids")).unwrap();
        let transaction = db.begin().unwrap();
        let event = NewEvent { kind: "entry", subject: 1, attempt: 0, from: None, to: "waiting" };
        event.append(&transaction, &serde_json::json!({})).unwrap();
        commit(transaction).unwrap();
        for change in ["UPDATE event SET to_state = 'ok'", "DELETE FROM event"] {
            let refused = db.connection().execute_batch(change).unwrap_err().to_string();
            assert!(refused.contains("only grows"), "{refused}");
        }
    }
}
