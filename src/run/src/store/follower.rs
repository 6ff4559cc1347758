//! The lock of a run's follower: one process at a time writes its events, logs and results.
//!
//! The follower holds an flock on `.followed` in the run folder, which contains its process id. The
//! kernel releases the flock of a killed process. The follower removes the file at its end; a lock
//! on a removed file does not count.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rgpu_model::beneath::Folder;

/// Name of the lock file; archives skip it as an unfinished file.
const LOCK_FILE: &str = ".followed";

/// How often to try the lock, since a check for followers holds it for a moment.
const MAX_LOCK_TRIES: u32 = 5;

/// How long to wait between tries: longer than such a check takes.
const LOCK_CHECK_TIME: Duration = Duration::from_millis(5);

/// Marks a run folder as followed by this process until it is dropped.
#[derive(Debug)]
pub(super) struct Follower {
    folder: Folder,
    /// `None` if the file system has no locks or the file cannot be created or trusted.
    lock: Option<File>,
}

/// Another process follows the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherFollower {
    /// The process id, if it can be read.
    pub(super) pid: Option<u32>,
}

impl Follower {
    /// Starts following the run in `folder`; also if the file system does not support locks.
    pub(super) fn begin(folder: &Folder) -> Result<Self, OtherFollower> {
        let folder = folder.clone();
        let mut attempts = 0;
        loop {
            let Ok(mut file) = folder.update(LOCK_FILE, 0o600) else {
                return Ok(Self { folder, lock: None });
            };
            match file.try_lock() {
                Ok(()) if is_removed(&file) => {}
                Ok(()) => {
                    // The process id is informational; only the lock counts.
                    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                    return Ok(Self { folder, lock: Some(file) });
                }
                Err(TryLockError::Error(_)) => return Ok(Self { folder, lock: None }),
                Err(TryLockError::WouldBlock) => {
                    attempts += 1;
                    if attempts == MAX_LOCK_TRIES {
                        return Err(OtherFollower { pid: pid(&mut file) });
                    }
                    std::thread::sleep(LOCK_CHECK_TIME);
                }
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // Removed while the lock is held: later the file may be another process's.
        if self.lock.is_some() {
            let _ = self.folder.remove_file(LOCK_FILE);
        }
    }
}

/// The follower of the run in `folder`, which may be this process; `None` if there is none.
pub(super) fn current(folder: &Folder) -> Option<OtherFollower> {
    let mut file = folder.open_file(LOCK_FILE).ok()?;
    // A second name of another file is no lock of ours.
    if link_count(&file).ok()? > 1 {
        return None;
    }
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(OtherFollower { pid: pid(&mut file) }),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

fn pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn is_removed(file: &File) -> bool {
    link_count(file).is_ok_and(|count| count == 0)
}

fn link_count(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.nlink())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn current_in(folder: &Path) -> Option<OtherFollower> {
        current(&Folder::open(folder).unwrap())
    }

    fn begin(folder: &Path) -> Result<Follower, OtherFollower> {
        Follower::begin(&Folder::open(folder).unwrap())
    }

    #[test]
    fn a_run_is_followed_by_one_at_a_time_and_nothing_stays_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let own = OtherFollower { pid: Some(std::process::id()) };
        assert_eq!(current_in(dir.path()), None);
        let first = begin(dir.path()).unwrap();
        assert_eq!(current_in(dir.path()), Some(own));
        assert_eq!(begin(dir.path()).unwrap_err(), own);
        drop(first);
        assert_eq!(current_in(dir.path()), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        begin(dir.path()).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_bars_nobody() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(LOCK_FILE), "4294967\n").unwrap();
        assert_eq!(current_in(dir.path()), None);
        let follower = begin(dir.path()).unwrap();
        assert_eq!(current_in(dir.path()).unwrap().pid, Some(std::process::id()));
        drop(follower);
    }

    #[test]
    fn a_lock_file_that_leads_elsewhere_is_neither_written_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (run, mine) = (dir.path().join("run"), dir.path().join("mine"));
        let lock = run.join(LOCK_FILE);
        fs::create_dir(&run).unwrap();
        let plants: [fn(&Path, &Path) -> io::Result<()>; 3] = [
            |mine, lock| std::os::unix::fs::symlink(mine, lock),
            |mine, lock| fs::hard_link(mine, lock),
            |_, lock| {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                Ok(rustix::fs::mkfifoat(rustix::fs::CWD, lock, mode)?)
            },
        ];
        for plant in plants {
            fs::write(&mine, "settings").unwrap();
            plant(&mine, &lock).unwrap();
            let follower = begin(&run).unwrap();
            assert_eq!(current_in(&run), None);
            drop(follower);
            assert_eq!(fs::read(&mine).unwrap(), b"settings");
            fs::remove_file(&lock).unwrap();
        }
        // A dangling link creates nothing.
        std::os::unix::fs::symlink(dir.path().join("new"), &lock).unwrap();
        drop(begin(&run).unwrap());
        assert!(!dir.path().join("new").exists());
    }

    #[test]
    fn a_moments_look_does_not_keep_anybody_from_following() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(LOCK_FILE), "").unwrap();
        let looking = File::open(dir.path().join(LOCK_FILE)).unwrap();
        looking.try_lock_shared().unwrap();
        let looker = std::thread::spawn(move || {
            std::thread::sleep(LOCK_CHECK_TIME);
            drop(looking);
        });
        begin(dir.path()).unwrap();
        looker.join().unwrap();
    }
}
