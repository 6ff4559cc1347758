//! Libraries that programs load first (`LD_PRELOAD`), to give them another clock or other locks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A clock that is off by as many seconds as its file says, and can be set while programs run.
pub(crate) struct OtherClock {
    /// The library to load.
    pub(crate) library: PathBuf,
    /// The file with the seconds.
    pub(crate) file: PathBuf,
}

impl OtherClock {
    pub(crate) fn new(folder: &Path, seconds: i64) -> Self {
        let file = folder.join("clock");
        fs::write(&file, seconds.to_string()).unwrap();
        let source = format!(
            r#"
int clock_gettime(clockid_t id, struct timespec *t) {{
    int r = syscall(SYS_clock_gettime, id, t);
    char text[32] = {{0}};
    int fd = id == CLOCK_REALTIME ? syscall(SYS_open, "{}", O_RDONLY) : -1;
    if (fd >= 0) {{
        syscall(SYS_read, fd, text, 31);
        syscall(SYS_close, fd);
        t->tv_sec += atol(text);
    }}
    return r;
}}"#,
            file.display()
        );
        Self { library: library(folder, "clock", &source), file }
    }
}

/// Locks that everybody gets, as on a file system where they do not hold.
pub(crate) fn locks_that_do_not_hold(folder: &Path) -> PathBuf {
    library(folder, "locks", "int flock(int fd, int operation) { return 0; }")
}

fn library(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (file, library) =
        (folder.join(name).with_extension("c"), folder.join(name).with_extension("so"));
    let headers = "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <stdlib.h>\n\
                   #include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n";
    fs::write(&file, format!("{headers}{source}\n")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file);
    assert!(cc.status().unwrap().success());
    library
}
