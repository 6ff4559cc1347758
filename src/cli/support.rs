//! What commands share. A command imports this and the library, and no other command.

pub(super) mod app;
pub(super) mod deferred;
pub(super) mod json;
pub(super) mod missing;
pub(super) mod open_files;
pub(super) mod program_output;
pub(super) mod progress;
pub(super) mod session;
pub(super) mod signals;
pub(super) mod terminal;
