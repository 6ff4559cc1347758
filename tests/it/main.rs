//! Integration tests in one binary: they run the built programs as a user would, against real
//! servers and a played GPU host.

#![allow(clippy::unwrap_used, reason = "an unwrap tells a test failure well enough")]

// Fuzz targets name their macro's crate.
extern crate self as libfuzzer_sys;

mod adversary;
mod architecture;
mod bench;
mod browser;
mod build;
mod code_page;
mod collectives;
mod compare;
mod completions;
mod cuts;
mod dashboard;
mod deep;
mod disasm;
mod disasm_remote;
mod documents;
mod editors;
mod example;
mod exec;
mod failing_tools;
mod fake_host;
mod faults;
mod floods;
mod followers;
mod fuzz_corpus;
mod host;
mod hosts;
mod interrupts;
mod kernels;
mod laptop;
mod layout;
mod local;
mod loops;
mod mcp;
mod model;
mod model_page;
mod no_gpu;
mod over_http;
mod over_ssh;
mod over_wafer;
mod page;
mod preload;
mod profile;
mod program_errors;
mod project_trust;
mod pulled;
mod python;
mod python_kernels;
mod queue;
mod rank_tools;
mod ranks;
mod regions;
mod remotes;
mod reports;
mod round_trips;
mod runs;
mod setup;
mod several_remotes;
mod slurm;
mod snippet_faults;
mod snippets;
mod ssh;
mod ssh_carrier;
mod ssh_certificates;
mod ssh_cli;
mod sshd;
mod stall;
mod tables;
mod top;
mod torch_programs;
mod wagmiv67;
mod window;
