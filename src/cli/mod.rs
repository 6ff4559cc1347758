//! The command line, on top of everything; nobody imports it.
//!
//! One file a command. A command turns its flags into what the library takes, once, calls it, and
//! prints. stdout is data, stderr is talk; every command takes `--json`, `-q` and `-v`.

mod app;
mod args;
mod attach;
mod build;
mod compare;
mod completions;
mod deferred;
mod disasm;
mod doctor;
mod exec;
mod json;
mod kernels;
mod missing;
mod open_files;
mod profile;
mod program_output;
mod progress;
mod remote;
mod report;
mod runs;
mod schema;
mod session;
mod setup;
mod signals;
mod terminal;
mod worker;

pub use app::main;
