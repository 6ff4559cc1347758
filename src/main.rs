//! The `rgpu` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    rgpu::cli::main(std::env::args_os())
}
