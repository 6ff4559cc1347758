//! The program `rgpu-agent`: runs the verb on its command line (`rgpu_agent::verbs`).

use std::ffi::OsString;
use std::process::ExitCode;

use rgpu_agent::verbs;

const USAGE: &str = "usage: rgpu-agent stdio | --version";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match verbs::run(&args).unwrap_or_else(|| Err(USAGE.into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("rgpu-agent: {text}");
            ExitCode::FAILURE
        }
    }
}
