//! Makes tools misbehave.
//!
//! The file `mischief` in the fake host's folder holds lines `TOOL WORD [ARG]`: the tool does WORD
//! whenever it works (probes such as `--version` are always answered), or only when ARG is among
//! its arguments. The first line that matches applies.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::ImitationError;
use crate::host::Host;

/// Exit status of a tool that fails without starting or printing anything.
const FAILURE_STATUS: u8 = 3;
/// Number of lines of an output storm, 8 MiB in all.
const STORM_LINES: u32 = 1 << 17;

/// Performs the misbehaviour that any tool supports: hang, crash, print garbage. Returns `Some` if
/// the tool ends with it.
pub(crate) fn apply(
    host: &Host,
    tool: &str,
    args: &[String],
) -> Result<Option<u8>, ImitationError> {
    if is_probe(args) {
        return Ok(None);
    }
    let Some(word) = configured_word(host, tool, args)? else { return Ok(None) };
    let mut out = std::io::stdout().lock();
    match word.as_str() {
        "fail" => return Ok(Some(FAILURE_STATUS)),
        // Output like that of a wrapper that echoes the exit status; it must not count as a status.
        "exit-line" => {
            writeln!(out, "[EXIT:0]")?;
            return Ok(Some(FAILURE_STATUS));
        }
        "crash" => {
            out.flush()?;
            std::process::abort();
        }
        "hang" => {
            writeln!(out, "hanging")?;
            out.flush()?;
            // Starts a child process, which must not be left behind either.
            std::process::Command::new("sleep").arg("1000").spawn()?.wait()?;
            return Ok(Some(FAILURE_STATUS));
        }
        "storm" => {
            for line in 0..STORM_LINES {
                writeln!(out, "{line:>10} {:-<52}", "")?;
            }
        }
        "control" => {
            out.write_all(b"\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m\x08\x1b[1A\n")?;
        }
        "invalid-utf8" => out.write_all(b"caf\xe9 \xff\xfe\n")?,
        "gate" => wait_for(host, tool, &mut out)?,
        _ => {}
    }
    out.flush()?;
    Ok(None)
}

/// Whether this tool is configured to do `word`.
pub(crate) fn is(host: &Host, tool: &str, args: &[String], word: &str) -> bool {
    matches!(configured_word(host, tool, args), Ok(Some(configured_word)) if configured_word == word)
}

fn configured_word(
    host: &Host,
    tool: &str,
    args: &[String],
) -> Result<Option<String>, ImitationError> {
    let Ok(text) = fs::read_to_string(host.folder.join("mischief")) else { return Ok(None) };
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, word, condition) = match words.as_slice() {
            [name, word] => (*name, *word, None),
            [name, word, arg] => (*name, *word, Some(*arg)),
            _ => return Err(format!("cannot read the line `{line}` of mischief").into()),
        };
        if name == tool && condition.is_none_or(|arg| args.iter().any(|a| a == arg)) {
            return Ok(Some(word.to_owned()));
        }
    }
    Ok(None)
}

fn is_probe(args: &[String]) -> bool {
    args.iter().any(|arg| {
        ["--version", "-V", "--help", "-L"].contains(&arg.as_str()) || arg.starts_with("--query")
    })
}

/// Creates `TOOL.waiting` and continues when `TOOL.go` exists.
fn wait_for(host: &Host, tool: &str, out: &mut impl Write) -> Result<(), ImitationError> {
    writeln!(out, "waiting")?;
    out.flush()?;
    let file = |what: &str| host.folder.join(Path::new(&format!("{tool}.{what}")));
    fs::write(file("waiting"), b"")?;
    while !file("go").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
