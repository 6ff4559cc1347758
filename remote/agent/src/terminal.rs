//! A terminal for a program: what `exec -t` asks for.
//!
//! Only a process itself can take a terminal as its own, before it becomes the program: so the
//! agent starts itself for that moment (`rgpu-agent terminal PROGRAM ARGS`).

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The verb that [`become_program`] is behind.
pub const VERB: &str = "terminal";

/// What a terminal takes for the end of input: Ctrl-D.
pub(crate) const END: u8 = 4;

/// A command that runs `program` in a new terminal of this size, and our side of that terminal.
pub(crate) fn command(program: &Path, rows: u16, cols: u16) -> io::Result<(Command, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    tcsetwinsize(&theirs, Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 })?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(VERB).arg(program);
    command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
    Ok((command, ours))
}

/// Takes standard input as this process's terminal and becomes the program. Returns only when it
/// cannot.
pub fn become_program(program: OsString, args: impl Iterator<Item = OsString>) -> String {
    let shown = program.to_string_lossy().into_owned();
    let taken = rustix::process::setsid()
        .and_then(|_| rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()));
    if let Err(error) = taken {
        return format!("no terminal for `{shown}`: {error}");
    }
    let error = Command::new(&program).args(args).exec();
    format!("`{shown}` does not start: {error}")
}
