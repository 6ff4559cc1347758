//! The program that a tool profiles.

use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rgpu_case::RunnerInput;

use crate::ImitationError;

/// Runs the program with this process's streams. Returns the status that a tool would see (128 + n
/// for a signal); `None` if it cannot be started.
pub(crate) fn run(words: &[String], env: &[(&str, &str)]) -> Option<u8> {
    let (program, args) = words.split_first()?;
    let status = Command::new(program).args(args).envs(env.iter().copied()).status().ok()?;
    let signal = status.signal().map(|signal| 128 + signal);
    u8::try_from(status.code().or(signal)?).ok()
}

/// Runs the program as [`run`] does, and sends a signal to its process group after this time.
pub(crate) fn run_until(words: &[String], after: Duration, signal: &str) -> Option<u8> {
    let (program, args) = words.split_first()?;
    let mut child = Command::new(program).args(args).process_group(0).spawn().ok()?;
    std::thread::sleep(after);
    let group = format!("-{}", child.id());
    Command::new("kill").args(["-s", signal, "--", &group]).status().ok()?;
    let status = child.wait().ok()?;
    let signal = status.signal().map(|signal| 128 + signal);
    u8::try_from(status.code().or(signal)?).ok()
}

/// Name of the kernel that the program launches: from the Case, else the last word that is a bare
/// name (`showcase vecadd`), else the program's own name.
pub(crate) fn kernel(words: &[String]) -> Result<String, ImitationError> {
    if let Some(case) =
        words.iter().find(|word| word.ends_with(".json") && Path::new(word).exists())
    {
        let case: RunnerInput = serde_json::from_slice(&std::fs::read(case)?)?;
        return Ok(case.kernel);
    }
    let bare = |word: &&String| !word.is_empty() && !word.contains(['/', '-', '.']);
    let word = words.iter().skip(1).rfind(bare).or(words.first()).ok_or("no program")?;
    Ok(Path::new(word).file_name().unwrap_or_default().to_string_lossy().into_owned())
}

/// Prints a tool's recorded output and runs the program at the position of its output: at the first
/// line that is not the tool's own, else before the tool's last line. Returns the program's status.
pub(crate) fn replay(
    recorded: &str,
    own: impl Fn(&str) -> bool,
    mut program: impl FnMut() -> Option<u8>,
) -> Result<Option<u8>, ImitationError> {
    let lines: Vec<&str> = recorded.lines().collect();
    let theirs = lines.iter().position(|line| !own(line));
    let at = theirs.unwrap_or(lines.len().saturating_sub(1));
    let print = |lines: &[&str]| -> Result<(), ImitationError> {
        let mut out = std::io::stdout().lock();
        for line in lines.iter().filter(|line| own(line)) {
            writeln!(out, "{line}")?;
        }
        Ok(out.flush()?)
    };
    print(&lines[..at])?;
    let status = program();
    print(&lines[at..])?;
    Ok(status)
}
