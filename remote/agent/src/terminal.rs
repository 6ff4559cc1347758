//! Runs a program on a terminal, for `exec -t`.
//!
//! Only the process itself can acquire a controlling terminal, before it executes the program. So
//! the agent starts itself as an intermediate step (`rgpu-agent terminal PROGRAM ARGS`).

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The verb that runs [`become_program`].
pub const VERB: &str = "terminal";

/// Ends the input on a terminal: Ctrl-D.
pub(crate) const END: u8 = 4;

/// Returns a command that runs `program` on a new terminal of this size, and our side of that
/// terminal.
pub(crate) fn command(program: &Path, rows: u16, cols: u16) -> io::Result<(Command, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = openpt(flags)?;
    grantpt(&controller)?;
    unlockpt(&controller)?;
    let terminal = ioctl_tiocgptpeer(&controller, flags)?;
    tcsetwinsize(&terminal, Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 })?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(VERB).arg(program);
    command.stdin(terminal.try_clone()?).stdout(terminal.try_clone()?).stderr(terminal);
    Ok((command, controller))
}

/// Makes standard input this process's terminal and executes the program. Returns only on failure,
/// with the message.
pub fn become_program(program: OsString, args: impl Iterator<Item = OsString>) -> String {
    let name = program.to_string_lossy().into_owned();
    let acquired = rustix::process::setsid()
        .and_then(|_| rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()));
    if let Err(error) = acquired {
        return format!("no terminal for `{name}`: {error}");
    }
    let error = Command::new(&program).args(args).exec();
    format!("`{name}` does not start: {error}")
}
