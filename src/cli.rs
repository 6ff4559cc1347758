//! The command line. It uses every other module, and no module imports it.
//!
//! Each command has one file, and large ones a folder. A command turns its flags into the library's
//! arguments once, calls the library, and prints. stdout carries data, stderr messages; every
//! command takes `--json`, `-q` and `-v`.
//!
//! Commands share `support`. Few are built on others: `exec` on `build` and `profile`, `remote` on
//! `doctor`, `doctor` on `model`, `queue` and `loops` on `top`. Above them are `args`, `arguments`,
//! `dispatch`, `attach`, `completions`, `help` and `documents`, which name every command.

/// The text below the flags of a command's `--help`. A test runs every line through the parser.
macro_rules! examples {
    ($($line:literal),+ $(,)?) => { concat!("Examples:", $("\n  ", $line),+) };
}

mod args;
mod arguments;
mod attach;
mod bench;
mod build;
mod cache;
mod compare;
mod completions;
mod dashboard;
mod disasm;
mod dispatch;
mod doctor;
#[cfg(test)]
mod documents;
mod exec;
mod help;
mod kernels;
mod layout;
mod loops;
mod mcp;
mod model;
mod profile;
mod queue;
mod remote;
mod report;
mod runs;
mod schema;
mod setup;
mod skill;
mod support;
mod top;
mod worker;

pub use dispatch::main;
