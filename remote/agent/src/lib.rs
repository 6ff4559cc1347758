//! `rgpu-agent`: the small program on a GPU host that carries out plans.
//!
//! Four parts. [`service`] is what a client may ask. [`front`] is one conversation with a laptop
//! over standard input and output: it takes blobs, plans and requests, and reads a job's event log
//! aloud; the crate `rgpu-agent-http` does so over HTTP. [`supervisor`] is one
//! process per job, which outlives the conversation: it runs the steps' ladders, owns whatever
//! they start, and writes the event log. Between them lie files ([`job`], [`journal`], [`blob`]),
//! which are the truth, and a socket, which only wakes. No tool is known here: rungs, success
//! rules, diagnosis tables and probes are data of [`rgpu_protocol`].

pub mod blob;
mod command;
pub mod connection;
mod control;
pub mod host;
pub mod host_fault;
mod inside;
pub mod job;
mod job_state;
pub mod journal;
pub mod mail;
pub mod plan_check;
mod probe;
mod process;
mod quota;
pub mod root;
pub mod service;
pub mod setup;
pub mod supervisor;
pub mod terminal;
pub mod verbs;
pub mod wire;

/// The sha256 of the running program's own file.
///
/// # Errors
/// When the file is gone.
pub fn own_digest() -> Result<rgpu_protocol::Digest, host_fault::HostFault> {
    use host_fault::DoingContext;
    let path = std::path::Path::new("/proc/self/exe");
    Ok(blob::hash(&std::fs::read(path).doing("read", path)?))
}
