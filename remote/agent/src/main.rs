//! The agent's command line: `stdio` (a conversation), `--version`; and what it starts itself:
//! `job DIR` (a supervisor), `guard DIR` (its guard), `terminal PROGRAM ARGS` (a program that gets
//! a terminal of its own).

use std::process::ExitCode;

use rgpu_agent::{front, own_digest, root, supervisor, terminal};

const USAGE: &str = "usage: rgpu-agent stdio | --version";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let verb = args.next();
    let operand = args.next();
    let result = match (verb.as_deref().and_then(|v| v.to_str()), operand) {
        (Some("stdio"), None) => {
            let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(Into::into);
            let uid = rustix::process::geteuid().as_raw();
            let folders =
                root::candidates(var("RGPU_AGENT_HOME"), var("XDG_CACHE_HOME"), var("HOME"), uid);
            front::serve(&folders).map_err(|e| e.to_string())
        }
        (Some("job"), Some(folder)) => supervisor::run(folder.into()).map_err(|e| e.to_string()),
        (Some("guard"), Some(folder)) => {
            supervisor::guard(folder.into()).map_err(|e| e.to_string())
        }
        (Some(terminal::VERB), Some(program)) => Err(terminal::become_program(program, args)),
        (Some("--version"), None) => own_digest()
            .map(|sha| println!("rgpu-agent {} sha256:{sha}", env!("CARGO_PKG_VERSION")))
            .map_err(|e| e.to_string()),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("rgpu-agent: {text}");
            ExitCode::FAILURE
        }
    }
}
