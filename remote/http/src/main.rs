//! `rgpu-agent-http`: the agent, spoken to over HTTP.
//!
//! `rgpu-agent-http serve --listen ADDR --token-file FILE [--allow-host NAME]…
//! [--hand-over SOCKET]` (jobs are carried out by another agent, behind that socket); besides, all that
//! `rgpu-agent` does, since a job's supervisor is this same program started anew. It holds no
//! state: jobs live in processes and files of their own, so that they survive a restart of it.
//!
//! | module | what for |
//! |---|---|
//! | `settings` | the command line and the token's file |
//! | `server`, `connections`, `guard` | the event loop; how many connections; who may ask at all |
//! | `routes` | which path means what |
//! | `host`, `blobs`, `jobs`, `events`, `artifacts` | one folder of resources each |
//! | `stream`, `body`, `answer` | bodies in and out |

mod answer;
mod artifacts;
mod blobs;
mod body;
mod connections;
mod events;
mod host;
mod jobs;
mod openapi;
mod range;
mod request_guard;
mod routes;
mod server;
mod settings;
mod state;
mod stream;

use std::ffi::OsString;
use std::process::ExitCode;

const USAGE: &str = "usage: rgpu-agent-http serve --listen ADDR --token-file FILE [--allow-host NAME]… \
     [--hand-over SOCKET] | openapi";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let result = match args.split_first() {
        Some((verb, rest)) if verb == "serve" => settings::Settings::parse(rest)
            .map_err(|e| e.to_string())
            .and_then(|settings| server::run(settings).map_err(|e| e.to_string())),
        Some((verb, [])) if verb == "openapi" => {
            println!("{}", openapi::text());
            Ok(())
        }
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
