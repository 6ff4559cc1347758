//! `rgpu-agent-http`: the agent over HTTP.
//!
//! `rgpu-agent-http serve --listen ADDR --token-file FILE [--allow-host NAME]… [--hand-over
//! SOCKET]` (then another agent behind that socket carries out the jobs). The program also accepts
//! all commands of `rgpu-agent`, because it starts itself as the supervisor of each job. The server
//! keeps no state but open connections: jobs have processes and files of their own, so they survive
//! its restart.
//!
//! | module | purpose |
//! |---|---|
//! | `settings` | the command line and the token's file |
//! | `server`, `request_guard` | the event loop; access checks |
//! | `routes` | the handler of each path |
//! | `mail` | the connections to the agent |
//! | `body`, `answer` | request bodies; refusals |

mod answer;
mod body;
mod mail;
mod request_guard;
mod routes;
mod server;
mod settings;
mod state;

use std::ffi::OsString;
use std::process::ExitCode;

const USAGE: &str = "usage: rgpu-agent-http serve --listen ADDR --token-file FILE [--allow-host NAME]… \
     [--hand-over SOCKET]";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let result = match args.split_first() {
        Some((verb, rest)) if verb == "serve" => settings::Settings::parse(rest)
            .map_err(|e| e.to_string())
            .and_then(|settings| server::run(settings).map_err(|e| e.to_string())),
        _ => rgpu_agent::verbs::run(&args).unwrap_or_else(|| Err(USAGE.into())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("rgpu-agent-http: {text}");
            ExitCode::FAILURE
        }
    }
}
