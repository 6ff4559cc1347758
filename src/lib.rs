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
//! Each stage is a crate of its own below `src/`, and ARCHITECTURE.md says what each may use. This
//! crate is the command: `cli` parses, calls and prints, `mcp` serves agents and `dashboard` a
//! page, which both start rgpu itself for what is asked. `redact` removes names from an export.

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod loopback;
pub mod redact;

pub mod dashboard;
pub mod mcp;

pub mod cli;
