//! One run: settings, run folder, life on a host, disassembly.

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod store;
pub mod config;
pub mod run;
pub mod disasm;
pub mod process_tree;
pub mod child_tree;
pub mod foreign_file;
