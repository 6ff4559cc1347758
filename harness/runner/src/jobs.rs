//! The jobs. Each runs in its own process, so that a crash in one does not affect the others'
//! reports.

mod check;
pub(crate) mod cpu;
mod draw;
mod fresh;
pub(crate) mod guard;
pub(crate) mod once;
pub(crate) mod pair;
mod session;
pub(crate) mod time;
pub(crate) mod verify;
mod watch;

pub(crate) use session::Session;
