//! `exec`: runs code or a command on a GPU host.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolInfo;
use super::inputs::{InputFiles, flags, remote};
use super::profile::modes;
use crate::mcp::answer::{self, Answer};
use crate::mcp::arguments::argument_error;
use crate::mcp::call::Call;
use crate::mcp::files::InlineFile;
use crate::mcp::run_result::RunResult;
use rgpu_model::error::Result;
use rgpu_run::store::Runs;
use rgpu_work::own_command::CommandLine;

pub(super) const TOOL: ToolInfo = ToolInfo {
    name: "exec",
    title: "Run code on the GPU host",
    does: "Runs (executes) a file, a piece of code (Rust, Python, CUDA, shell) or a command on a \
           GPU host and returns its output and exit status.",
    use_when: "you need what a program prints: nvidia-smi, a script, tests, a small experiment on \
               the GPU",
    not_for: &[("measuring how fast a kernel is or why", "profile")],
    read_only: false,
    destructive: true,
    starts_runs: true,
    input: answer::input::<Arguments>,
    output: || answer::output(&[answer::schema::<RunResult>]),
    call: |call| Box::pin(run(call)),
};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A file of the project or of `files`: .rs, .py, .cu or .sh. Give one of file, code, argv.
    file: Option<String>,
    /// The code to run, with `lang`.
    code: Option<String>,
    /// The language of `code`, or of a file whose name does not tell: rs, py, cu, sh.
    lang: Option<String>,
    /// A command of the host with its arguments, e.g. ["nvidia-smi", "-L"].
    #[serde(alias = "command", alias = "program")]
    argv: Option<Vec<String>>,
    /// Arguments for the file or code.
    args: Option<Vec<String>>,
    /// Files that are not in the project, 256 kB in all. They lie in the program's working folder.
    files: Option<Vec<InlineFile>>,
    /// The program's standard input.
    stdin: Option<String>,
    /// Environment variables of the program.
    env: Option<BTreeMap<String, String>>,
    /// Profile the program in this mode too.
    #[schemars(schema_with = "modes")]
    #[serde(default)]
    mode: Option<String>,
    /// With `mode`: as for profile.
    allow_unmeasured: Option<bool>,
    /// The GPU host, a name of `hosts`. Without it: the default remote.
    remote: Option<String>,
    /// Which GPU, as for profile.
    gpu: Option<String>,
    /// The program's GPUs, as for profile; 0 hides all.
    gpus: Option<String>,
    /// Time limit, e.g. 90s, 10m.
    timeout: Option<String>,
    /// Seconds to wait for the end before the call returns with state `running`: 4, at most 45.
    wait_s: Option<u64>,
}

async fn run(call: Call) -> Result<Answer> {
    let arguments: Arguments = call.arguments()?;
    let id = Runs::fresh_id("mcp-exec", jiff::Timestamp::now());
    let context = call.context();
    let inputs = InputFiles::new(context, arguments.files.as_deref().unwrap_or_default())?;
    let mut line = CommandLine::new(["exec"]);
    remote(&mut line, arguments.remote.as_deref())?;
    let others = ["file", "argv", "args", "files", "stdin", "env", "remote", "wait_s"];
    flags(&mut line, &arguments, &others);
    let variables = arguments.env.iter().flatten().map(|(name, value)| format!("{name}={value}"));
    line.flags("env", Some(variables));
    line.flag("run-id", Some(&id));
    line.flag("mount", inputs.files.as_ref().map(|files| files.folder()));
    let program = [arguments.file.is_some(), arguments.code.is_some(), arguments.argv.is_some()];
    if program.iter().filter(|given| **given).count() != 1 {
        return Err(argument_error("give one of `file`, `code` and `argv`"));
    }
    if let Some(file) = &arguments.file {
        line.arg(inputs.word(context, "file", file)?);
    }
    match (&arguments.argv, &arguments.args) {
        (Some(_), Some(_)) => return Err(argument_error("`args`: write them into `argv`")),
        (Some(argv), None) if argv.is_empty() => return Err(argument_error("`argv` is empty")),
        (Some(words), None) | (None, Some(words)) => line.trailing_args(words),
        (None, None) => {}
    }
    line.stdin = arguments.stdin.map(String::into_bytes);
    line.files = inputs.files.map(crate::mcp::files::SentFiles::into_folder);
    call.run(id, line, arguments.wait_s).await
}
