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

pub use rgpu_model as model;
pub use rgpu_model::error;

use rgpu_model::beneath;
use rgpu_model::duration;
use rgpu_run::foreign_file;
mod loopback;
use rgpu_model::number_form;
use rgpu_model::regular_file;
use rgpu_run::process_tree;
use rgpu_run::saved_json;
use rgpu_work::own_command;

pub use rgpu_plan::kernel;
pub use rgpu_run::config;

pub use rgpu_plan::tool;

pub use rgpu_plan::exec;

pub use rgpu_plan::bundle;
pub use rgpu_remote as remote;
pub use rgpu_run::store;

pub use rgpu_run::run;

pub use rgpu_work::loops;
pub use rgpu_work::queue;

pub use rgpu_work::suite;

pub use rgpu_import as import;

pub use rgpu_analysis as analysis;

pub use rgpu_run::disasm;

pub use rgpu_report as report;

pub mod redact;

pub mod dashboard;
pub mod mcp;

pub mod cli;
