//! rgpu: profile, check and run GPU kernels on a remote NVIDIA GPU.
//!
//! Data flows one way, and every value between two stages is written to the run folder, so that
//! any later stage can be run again offline:
//!
//! ```text
//! kernel.toml + flags → KernelSpec →    Draft    → Bundle → job on a remote → events + artifacts
//!     (kernel)            (tool)       (bundle)     (remote, run)                (store)
//!                                                                                   │
//! terminal, JSON ← Findings ← Profile ← exact mirror of each foreign file  ←────────┘
//!    (report)     (analysis)  (import)            (rgpu-format)
//! ```
//!
//! Beside them, `config` reads settings, `exec` makes snippets into programs, `disasm` reads compiled
//! code, and `redact` removes names from an export. All of them use `model` and `error`; only `run`
//! joins tools, remotes, store and importers. `suite` and `queue` stand above a run. `mcp` serves
//! agents and `dashboard` a page; both start rgpu itself for what is asked. `cli` is on top and no module imports it.

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod error;
pub mod model;

mod beneath;
mod child_tree;
mod duration;
mod fault_point;
mod foreign_file;
mod loopback;
mod number_form;
mod own_command;
mod process_tree;
mod program_answer;
mod regular_file;
mod saved_json;

pub mod config;
pub mod kernel;

pub mod tool;

pub mod exec;

pub mod bundle;
pub mod remote;
pub mod store;

pub mod run;

pub mod loops;
pub mod queue;

pub mod suite;

pub mod import;

pub mod analysis;

pub mod disasm;

pub mod report;

pub mod redact;

pub mod dashboard;
pub mod mcp;

pub mod cli;
