//! The `rgpu` command: parse, run, say how it went.

use std::process::ExitCode;

fn main() -> ExitCode {
    rgpu::cli::main(std::env::args_os())
}
