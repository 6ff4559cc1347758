//! The program `rgpu`; everything is in the library (`rgpu::cli`).

use std::process::ExitCode;

fn main() -> ExitCode {
    rgpu::cli::main(std::env::args_os())
}
