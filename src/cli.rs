//! The command line. It uses every other module, and no module imports it.
//!
//! Each command has one file. A command turns its flags into the library's arguments once, calls
//! the library, and prints. stdout carries data, stderr messages; every command takes `--json`,
//! `-q` and `-v`.

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
mod started_here;
mod terminal;
mod worker;

pub use app::main;
