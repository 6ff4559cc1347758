//! One writer at a time, by an flock that its process holds for life. The kernel releases the flock
//! of a killed process, so there is no stale lock.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use super::{StateError, io_error, state_io_error};
use rgpu_model::beneath::Folder;

/// How often to try a lock, because a look at its holder takes it for a moment.
const MAX_TRIES: u32 = 20;

/// The file with which locks are tried.
const PROBE: &str = "probe.lock";

/// The time between two tries.
const RETRY_DELAY: Duration = Duration::from_millis(2);

/// Network file systems, by the numbers that the kernel gives them (`statfs`). SQLite's log needs
/// memory shared by all its processes, which other hosts do not have.
#[cfg(target_os = "linux")]
const NETWORK_FILE_SYSTEMS: &[(i64, &str)] = &[
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
];

/// A lock that this process holds until the value is dropped.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

/// The process that holds a lock, as the lock's file names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockHolder {
    pid: Option<i32>,
    since: String,
}

impl LockHolder {
    /// The process id; 0 if the file does not tell.
    pub fn pid(&self) -> i32 {
        self.pid.unwrap_or_default()
    }

    /// Since when it holds the lock (RFC 3339).
    pub fn since(&self) -> &str {
        &self.since
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid} (since {})", self.since),
            None => f.write_str("another process"),
        }
    }
}

impl StateLock {
    /// Takes the lock `name` in `folder`, or tells who has it.
    ///
    /// # Errors
    /// [`StateError::Held`] with `role`; or an I/O error.
    pub fn take(folder: &Folder, name: &str, role: &'static str) -> Result<Self, StateError> {
        let path = folder.path().join(name);
        let mut file = open(folder, name)?;
        for attempt in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if attempt < MAX_TRIES => {
                    std::thread::sleep(RETRY_DELAY);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(StateError::Held { role, holder: read_holder(&mut file) });
                }
                Err(TryLockError::Error(e)) => return Err(io_error("lock", &path)(e)),
            }
        }
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let text = format!("{} {now}\n", std::process::id());
        // The text is for people; only the lock counts.
        let _ = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        Ok(Self { _file: file })
    }

    /// The process that holds the lock `name` in `folder`; `None` if there is none.
    pub fn holder(folder: &Folder, name: &str) -> Option<LockHolder> {
        let mut file = folder.open_file(name).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(read_holder(&mut file)),
            Ok(()) | Err(TryLockError::Error(_)) => None,
        }
    }
}

/// Takes the lock `name` in `folder`, and waits as long as others have it.
pub(super) fn wait(folder: &Folder, name: &str) -> Result<File, StateError> {
    let file = open(folder, name)?;
    file.lock().map_err(io_error("lock", &folder.path().join(name)))?;
    Ok(file)
}

fn open(folder: &Folder, name: &str) -> Result<File, StateError> {
    let failed = |source| state_io_error("open", &folder.path().join(name), source);
    folder.update(name, 0o600).map_err(failed)
}

fn read_holder(file: &mut File) -> LockHolder {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(64).read_to_string(&mut text));
    let mut words = text.split_whitespace();
    match read {
        Ok(_) => LockHolder {
            pid: words.next().and_then(|word| word.parse().ok()),
            since: words.next().unwrap_or_default().to_owned(),
        },
        Err(_) => LockHolder::default(),
    }
}

/// Refuses folders where locks are known not to hold: network file systems, and those where this
/// process gets the same lock twice.
pub(super) fn check_file_system(folder: &Folder) -> Result<(), StateError> {
    let refuse =
        |why: &str| StateError::NoLocks { path: folder.path().to_owned(), why: why.to_owned() };
    if let Some(name) = network_file_system(folder.path())? {
        return Err(refuse(name));
    }
    if folder.stat(PROBE).is_ok_and(|found| found.is_some()) {
        return Ok(());
    }
    let (first, second) = (open(folder, PROBE)?, open(folder, PROBE)?);
    // If another process tries at the same time, its result counts.
    let held_twice = match first.try_lock() {
        Ok(()) => second.try_lock().is_ok(),
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(e)) => return Err(refuse(&e.to_string())),
    };
    if held_twice {
        let _ = folder.remove_file(PROBE);
        Err(refuse("two processes hold the same lock"))
    } else {
        Ok(())
    }
}

/// The name of the folder's file system, if it is a network file system.
#[cfg(target_os = "linux")]
fn network_file_system(folder: &Path) -> Result<Option<&'static str>, StateError> {
    let kind = rustix::fs::statfs(folder).map_err(|e| io_error("read", folder)(e.into()))?;
    Ok(network_file_system_of(kind.f_type))
}

/// Other kernels have other numbers. There only the second check is made.
#[cfg(not(target_os = "linux"))]
fn network_file_system(_folder: &Path) -> Result<Option<&'static str>, StateError> {
    Ok(None)
}

/// The name of a network file system; `None` for any other.
#[cfg(target_os = "linux")]
fn network_file_system_of(kind: i64) -> Option<&'static str> {
    // Some numbers have the highest of 32 bits, which is a sign on some machines.
    let kind = kind & 0xffff_ffff;
    NETWORK_FILE_SYSTEMS.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_once_and_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = &Folder::open(dir.path()).unwrap();
        assert_eq!(StateLock::holder(folder, "x.lock"), None);
        let first = StateLock::take(folder, "x.lock", "tester").unwrap();
        let own = std::process::id().cast_signed();
        assert_eq!(StateLock::holder(folder, "x.lock").unwrap().pid(), own);
        let error = StateLock::take(folder, "x.lock", "tester").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("process {own} (since 2")), "{text}");
        assert!(text.ends_with("already runs as the tester of this project"), "{text}");
        drop(first);
        assert_eq!(StateLock::holder(folder, "x.lock"), None);
        StateLock::take(folder, "x.lock", "tester").unwrap();
    }

    #[test]
    fn network_file_systems_are_refused_and_local_ones_are_not() {
        assert_eq!(network_file_system_of(0x6969), Some("NFS"));
        assert_eq!(network_file_system_of(i64::from(0xff53_4d42_u32.cast_signed())), Some("CIFS"));
        assert_eq!(network_file_system_of(0xef53), None);
        let dir = tempfile::tempdir().unwrap();
        check_file_system(&Folder::open(dir.path()).unwrap()).unwrap();
        check_file_system(&Folder::open(dir.path()).unwrap()).unwrap();
    }
}
