//! The runner's jobs: `cpu`, `guard`, `once`, `pair`, `time` and `verify`. Each runs in its own
//! process, so that a crash in one does not lose the others' reports. `session` and `cooling`
//! are shared; the other modules are parts of `time`.

mod check;
mod cooling;
pub(crate) mod cpu;
pub(crate) mod guard;
mod new_inputs;
pub(crate) mod once;
mod output_watch;
pub(crate) mod pair;
mod session;
pub(crate) mod time;
mod time_in_graph;
mod time_new_inputs;
pub(crate) mod verify;

pub(crate) use session::Session;
