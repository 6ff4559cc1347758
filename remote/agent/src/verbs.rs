//! The command lines that every program with the agent in it understands: `stdio` (a
//! conversation), `mail NAME …` (one command of a conversation held by commands), `--version`; and
//! what it starts itself: `job DIR` (a supervisor), `relay DIR SOCKET` (one whose job another agent
//! carries out), `guard DIR` (its guard), `keep DIR` (what keeps a conversation held by commands),
//! `terminal PROGRAM ARGS` (a program that gets a terminal of its own).

use std::ffi::OsString;

use crate::root::{self, RootCandidate};
use crate::{connection, mail, own_digest, supervisor, terminal};

/// Where this process's user may keep blobs and jobs, best first.
pub fn folders() -> Vec<RootCandidate> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(Into::into);
    let uid = rustix::process::geteuid().as_raw();
    root::candidates(var("RGPU_AGENT_HOME"), var("XDG_CACHE_HOME"), var("HOME"), uid)
}

/// Does what the arguments say; `None`: they say nothing that the agent knows.
pub fn run(args: &[OsString]) -> Option<Result<(), String>> {
    let (verb, operands) = args.split_first()?;
    let result = match (verb.to_str()?, operands) {
        ("stdio", []) => connection::serve(&folders()).map_err(|e| e.to_string()),
        ("job", [folder]) => supervisor::run(folder.as_ref()).map_err(|e| e.to_string()),
        ("mail", args) => mail::post(&folders(), args),
        ("keep", [folder]) => mail::keep(folder.into()).map_err(|e| e.to_string()),
        ("relay", [folder, way]) => {
            supervisor::relay(folder.as_ref(), way.as_ref()).map_err(|e| e.to_string())
        }
        ("guard", [folder]) => supervisor::guard(folder.into()).map_err(|e| e.to_string()),
        (terminal::VERB, [program, args @ ..]) => {
            Err(terminal::become_program(program.clone(), args.iter().cloned()))
        }
        ("--version", []) => own_digest()
            .map(|sha| println!("rgpu-agent {} sha256:{sha}", env!("CARGO_PKG_VERSION")))
            .map_err(|e| e.to_string()),
        _ => return None,
    };
    Some(result)
}
