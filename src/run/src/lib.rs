//! One run: settings, run folder, life on a host, disassembly.

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod child_tree;
pub mod config;
pub mod disasm;
pub mod foreign_file;
pub mod process_tree;
pub mod run;
pub mod saved_json;
pub mod store;
