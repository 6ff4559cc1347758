//! The agent's command lines. Every program that contains the agent accepts `stdio` (one
//! connection), `mail NAME …` (one command of a connection over short commands) and `--version`.
//! The agent itself starts `job DIR` (a supervisor), `relay DIR SOCKET` (a supervisor whose job
//! another agent carries out), `watchdog DIR` (ends a job whose supervisor was killed), `keep DIR`
//! (the keeper of a connection over short commands) and `terminal PROGRAM ARGS` (a program on a
//! terminal of its own). The batch script of a job of Slurm starts `hold DIR SECONDS`
//! ([`crate::hold`]).

use std::ffi::OsString;
use std::time::Duration;

use crate::root::{self, RootCandidate};
use crate::{connection, hold, mail, own_digest, supervisor, terminal};

/// Returns the folders where this process's user may keep blobs and jobs, best first.
pub fn folders() -> Vec<RootCandidate> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(Into::into);
    let uid = rustix::process::geteuid().as_raw();
    let named = var("RGPU_AGENT_HOME").map(root::under_home);
    root::candidates(named, var("XDG_CACHE_HOME"), var("HOME"), uid)
}

/// Runs the agent command in `args`; `None` if there is none.
pub fn run(args: &[OsString]) -> Option<Result<(), String>> {
    let (verb, operands) = args.split_first()?;
    let result = match (verb.to_str()?, operands) {
        ("stdio", []) => match hold::requested() {
            Some(folder) => hold::relay_stdio(&folder).map_err(|e| e.to_string()),
            None => {
                hold::end_with_holder(Duration::ZERO);
                connection::serve(&folders()).map_err(|e| e.to_string())
            }
        },
        ("hold", [folder, idle_s]) => {
            hold::hold(folder.as_ref(), idle_s).map_err(|e| e.to_string())
        }
        ("job", [folder]) => supervisor::run(folder.as_ref()).map_err(|e| e.to_string()),
        ("mail", args) => mail::post(&folders(), args),
        ("keep", [folder]) => mail::keep(folder.into()).map_err(|e| e.to_string()),
        ("relay", [folder, socket]) => {
            supervisor::relay(folder.as_ref(), socket.as_ref()).map_err(|e| e.to_string())
        }
        ("watchdog", [folder]) => {
            supervisor::run_watchdog(folder.into()).map_err(|e| e.to_string())
        }
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
