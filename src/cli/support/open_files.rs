//! Failures of this machine's limits on a process: open files and threads.

use std::fmt::Display;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use rgpu_model::error::{Exit, Failure, Result};

/// Open files of a command that reaches a host: two event loops, signals, the streams to an agent,
/// the files of its run.
const MIN_OPEN_FILES: u64 = 32;

const HINT: &str =
    "`ulimit -n` shows how many files a process may open here; `ulimit -n 1024` raises that";

/// Checks that enough files may be open.
pub(in crate::cli) fn check_open_file_limit() -> Result<()> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < MIN_OPEN_FILES => Err(too_few(limit)),
        _ => Ok(()),
    }
}

fn too_few(limit: u64) -> Failure {
    let what = format!("only {limit} files may be open, and rgpu needs {MIN_OPEN_FILES}");
    Failure::new(Exit::Disk, "open_files", what).hint(HINT)
}

/// The failure for something that could not be started.
pub(in crate::cli) fn cannot_start(code: &'static str, what: &str, error: &io::Error) -> Failure {
    let full = |whose: &str| {
        let what = format!("{what}: {whose} too many open files");
        Failure::new(Exit::Disk, "open_files", what).cause(error)
    };
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => full("this process has").hint(HINT),
        Some(Errno::NFILE) => full("this machine has")
            .hint("`cat /proc/sys/fs/file-nr` shows how many are open, and how many may be"),
        Some(Errno::AGAIN) => no_thread(error),
        _ => Failure::new(Exit::Bug, code, what).cause(error),
    }
}

/// The failure for a thread that this machine does not grant.
fn no_thread(error: impl Display) -> Failure {
    let what = "this machine does not let rgpu start another thread";
    Failure::new(Exit::Disk, "threads", what).cause(error).hint(
        "`ulimit -u`, and in a container its `pids.max`, say how many processes and threads \
         there may be",
    )
}

/// The failure for the words of a panic, if it was for want of a thread: the standard library and
/// the event loop have no other way to tell.
pub(in crate::cli) fn thread_failure(words: &str) -> Option<Failure> {
    let is_known = ["failed to spawn thread", "can't spawn worker thread"]
        .iter()
        .any(|known| words.contains(known));
    is_known.then(|| no_thread(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_open_files_are_no_defect_of_ours() {
        for errno in [Errno::MFILE, Errno::NFILE] {
            let failure = cannot_start("runtime", "the event loop cannot start", &errno.into());
            assert_eq!((failure.exit, &*failure.code), (Exit::Disk, "open_files"));
            assert!(!failure.hints.is_empty());
        }
        for words in ["failed to spawn thread: Os { code: 11 }", "OS can't spawn worker thread: x"]
        {
            let failure = thread_failure(words).unwrap();
            assert_eq!((failure.exit, &*failure.code), (Exit::Disk, "threads"));
        }
        assert!(thread_failure("index out of bounds").is_none());
        let other = Errno::NOMEM.into();
        assert_eq!(cannot_start("runtime", "it cannot start", &other).exit, Exit::Bug);
        assert_eq!(too_few(8).exit, Exit::Disk);
    }
}
