//! The command line. It uses every other module, and no module imports it.
//!
//! Each command has one file. A command turns its flags into the library's arguments once, calls
//! the library, and prints. stdout carries data, stderr messages; every command takes `--json`,
//! `-q` and `-v`.

mod args;
mod attach;
mod build;
mod compare;
mod completions;
mod disasm;
mod dispatch;
mod doctor;
mod exec;
mod kernels;
mod profile;
mod remote;
mod report;
mod runs;
mod schema;
mod setup;
mod support;
mod worker;

pub use dispatch::main;
