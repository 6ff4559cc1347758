//! Runs other programs and prints the commands first.

use std::ffi::OsStr;
use std::process::Command;

/// A command that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The program could not be started.
    #[error("`{program}` cannot be started")]
    Start { program: String, source: std::io::Error },
    /// It ran and failed.
    #[error("`{line}` failed: {status}")]
    Failed { line: String, status: std::process::ExitStatus },
    /// The program's answer was not the expected one.
    #[error("`{line}` answered something unexpected: `{answer}`")]
    Answer { line: String, answer: String },
}

/// Runs `command` on our own terminal.
pub(crate) fn run(command: &mut Command) -> Result<(), CommandError> {
    let line = line(command);
    eprintln!("$ {line}");
    let status = command.status().map_err(|source| start_error(command, source))?;
    if status.success() { Ok(()) } else { Err(CommandError::Failed { line, status }) }
}

/// Runs `command` without printing it and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, CommandError> {
    let output = command.output().map_err(|source| start_error(command, source))?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(CommandError::Failed { line: line(command), status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether `program` exists and succeeds with `argument`.
pub(crate) fn answers(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument);
    command.output().is_ok_and(|output| output.status.success())
}

/// The command as a user would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

fn start_error(command: &Command, source: std::io::Error) -> CommandError {
    CommandError::Start { program: command.get_program().to_string_lossy().into_owned(), source }
}
