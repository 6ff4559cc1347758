//! `rgpu-agent`: the small program on a GPU host that carries out plans.
//!
//! It has four parts. [`service`] serves the requests of clients. [`connection`] is one connection
//! with a laptop over standard input and output: it receives blobs, plans and requests, and sends a
//! job's event log. The crate `rgpu-agent-http` brings connections over HTTP. [`supervisor`] is one
//! process per job, which outlives the connection: it runs the steps' ladders, owns the processes
//! they start, and writes the event log. These parts share files ([`job`], [`journal`], [`blob`]),
//! which hold all state, and a socket that only wakes. The agent knows no tool: rungs, success
//! rules, diagnosis tables and probes are data of [`rgpu_protocol`].

pub mod blob;
mod command;
pub mod connection;
mod control;
mod gpu_setting;
pub mod hold;
pub mod host;
pub mod host_fault;
mod inside;
pub mod job;
mod job_state;
pub mod journal;
pub mod mail;
pub mod plan_check;
mod probe;
pub mod process;
mod quota;
pub mod root;
pub mod service;
pub mod setup;
pub mod supervisor;
pub mod terminal;
pub mod verbs;
pub mod wire;

/// Returns the sha256 of the running program's own file.
pub fn own_digest() -> Result<rgpu_protocol::Digest, host_fault::HostFault> {
    use host_fault::IoContext;
    let path = std::path::Path::new("/proc/self/exe");
    Ok(rgpu_protocol::Digest::sha256(&std::fs::read(path).context("read", path)?))
}
