//! `rgpu-fake`: imitates NVIDIA's tools with recordings of the real ones.
//!
//! A *fake host* is a folder with `bin/`, whose entries are links to this program, named like the
//! tools it imitates. An optional file `mischief` ([`misbehaviour`]) states which of them
//! misbehave, and how. To rgpu, a remote whose `path` names that `bin/` looks like the H200 on
//! which `tests/fixtures` was recorded. Where a link is not possible (the runner, which rgpu
//! uploads), the tool's name is the first argument instead.
//!
//! The tools really start the program that they are told to profile and pass on its output and
//! status. Their own output and reports are recordings of the same kernel. Only [`runner`] invents
//! results, and marks them as synthetic.

mod agent;
mod host;
mod misbehaviour;
mod ncu;
mod nsys;
mod nvcc;
mod nvidia_smi;
mod options;
mod program;
mod recording;
mod runner;
mod sanitizer;

use std::path::Path;
use std::process::ExitCode;

use host::Host;

/// The reason why a tool cannot be imitated; usually a mistake in a test.
type ImitationError = Box<dyn std::error::Error>;

/// A tool: takes its arguments and returns its exit status.
type FakeTool = fn(&Host, &[String]) -> Result<u8, ImitationError>;

const TOOLS: &[(&str, FakeTool)] = &[
    ("ncu", ncu::play),
    ("nsys", nsys::play),
    ("compute-sanitizer", sanitizer::play),
    ("nvcc", nvcc::play),
    ("nvidia-smi", nvidia_smi::play),
    ("rgpu-runner", runner::play),
    ("rgpu-agent", agent::play),
];

/// Exit status for this program's own failures; no imitated tool uses it.
const NOT_PLAYED: u8 = 99;

fn main() -> ExitCode {
    let mut words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let named = |word: &String| {
        let name = Path::new(word).file_name()?.to_str()?;
        TOOLS.iter().find(|(tool, _)| *tool == name)
    };
    let host = Host::from_program(words.first().map_or("", String::as_str));
    let found = words.first().and_then(named).or_else(|| {
        words.remove(0);
        words.first().and_then(named)
    });
    let Some((tool, play)) = found else {
        eprintln!("rgpu-fake: call it by the name of a tool, or name one first");
        return ExitCode::from(NOT_PLAYED);
    };
    match misbehaviour::apply(&host, tool, &words[1..]).and_then(|ended| match ended {
        Some(status) => Ok(status),
        None => play(&host, &words[1..]),
    }) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("rgpu-fake: {tool}: {error}");
            ExitCode::from(NOT_PLAYED)
        }
    }
}
