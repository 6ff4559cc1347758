//! Who follows a run: one process at a time writes its events, logs and results.
//!
//! A file of the run folder, `.followed`, is flocked for as long as somebody follows, and names the
//! process. A flock goes with its process, so one that was killed bars nobody. Whoever lets go
//! removes the file; a lock on a file that was removed meanwhile counts for nothing.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file's name: archives pass over it, as over all that is only being written.
const LOCK_FILE: &str = ".followed";

/// How often is asked for a lock that somebody may have for the moment of a look only.
const MAX_LOCK_TRIES: u32 = 5;

/// How long such a look may take.
const LOCK_CHECK_TIME: Duration = Duration::from_millis(5);

/// A run folder is followed by this process until this is dropped.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    /// `None`: the file system knows no locks, or takes no file.
    lock: Option<File>,
}

/// Somebody else follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherFollower {
    /// The process, where it can be read.
    pub(super) pid: Option<u32>,
}

impl Follower {
    /// Follows the run in `folder`. A file system that cannot tell is no reason not to.
    pub(super) fn begin(folder: &Path) -> Result<Self, OtherFollower> {
        let path = folder.join(LOCK_FILE);
        let mut tries = 0;
        loop {
            let opened =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let Ok(mut file) = opened else { return Ok(Self { path, lock: None }) };
            match file.try_lock() {
                Ok(()) if is_removed(&file) => {}
                Ok(()) => {
                    // What it says is for people; the lock is what counts.
                    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                    return Ok(Self { path, lock: Some(file) });
                }
                Err(TryLockError::Error(_)) => return Ok(Self { path, lock: None }),
                Err(TryLockError::WouldBlock) => {
                    tries += 1;
                    if tries == MAX_LOCK_TRIES {
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
        // While it is still ours: later it may be another's.
        if self.lock.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Who follows the run in `folder`, this process too; `None`: nobody.
pub(super) fn of(folder: &Path) -> Option<OtherFollower> {
    let mut file = File::open(folder.join(LOCK_FILE)).ok()?;
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

#[cfg(unix)]
fn is_removed(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|meta| meta.nlink() == 0)
}

#[cfg(not(unix))]
fn is_removed(_: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_followed_by_one_at_a_time_and_nothing_stays_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let own = OtherFollower { pid: Some(std::process::id()) };
        assert_eq!(of(dir.path()), None);
        let first = Follower::begin(dir.path()).unwrap();
        assert_eq!(of(dir.path()), Some(own));
        assert_eq!(Follower::begin(dir.path()).unwrap_err(), own);
        drop(first);
        assert_eq!(of(dir.path()), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        Follower::begin(dir.path()).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_bars_nobody() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(LOCK_FILE), "4294967\n").unwrap();
        assert_eq!(of(dir.path()), None);
        let follower = Follower::begin(dir.path()).unwrap();
        assert_eq!(of(dir.path()).unwrap().pid, Some(std::process::id()));
        drop(follower);
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
        Follower::begin(dir.path()).unwrap();
        looker.join().unwrap();
    }
}
