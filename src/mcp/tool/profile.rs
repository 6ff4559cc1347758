//! `profile`: measures a kernel or a program.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::ToolInfo;
use super::inputs::{InputFiles, flags, remote};
use crate::mcp::answer::{self, Answer};
use crate::mcp::arguments::argument_error;
use crate::mcp::call::Call;
use crate::mcp::files::InlineFile;
use crate::mcp::run_result::RunResult;
use rgpu_model::error::Result;
use rgpu_plan::kernel::MODES;
use rgpu_run::store::Runs;
use rgpu_work::own_command::CommandLine;

pub(super) const TOOL: ToolInfo = ToolInfo {
    name: "profile",
    title: "Profile a kernel",
    does: "Measures a GPU kernel or a program on a GPU host: builds it, checks its results, times \
           it, and says what limits it and what to try, from Nsight Compute (mode ncu), Nsight \
           Systems (nsys: a timeline), compute-sanitizer, plain timing (bench) or the reference \
           (verify).",
    use_when: "you want to know how fast a kernel is or how long it takes, why it is slow, \
               whether its results are right, or whether it has races",
    not_for: &[
        ("running code for its output", "exec"),
        ("looking again at a run that is done", "report"),
        ("telling which of two kernels is faster", "compare"),
        ("compiling without a GPU", "build"),
        ("many kernels or sizes as a suite of bench.toml", "campaign"),
        ("a prediction without measuring", "model"),
    ],
    read_only: false,
    // Its programs are any.
    destructive: true,
    starts_runs: true,
    input: answer::input::<Arguments>,
    output: || answer::output(&[answer::schema::<RunResult>]),
    call: |call| Box::pin(run(call)),
};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The kernel: a name of the project or of rgpu (`vecadd`), a folder with kernel.toml, a .cu or
    /// .py file, or the path of one of `files`.
    kernel: Option<String>,
    /// Instead of `kernel`: a program of the host with its arguments, e.g. ["python3", "train.py"].
    #[serde(alias = "argv", alias = "command")]
    program: Option<Vec<String>>,
    /// Files that are not in the project, 256 kB in all.
    files: Option<Vec<InlineFile>>,
    /// What to measure with. Without it: the kernel's own mode, else ncu.
    #[schemars(schema_with = "modes")]
    #[serde(default)]
    mode: Option<String>,
    /// The GPU host, a name of `hosts`. Without it: the default remote.
    remote: Option<String>,
    /// Which GPU: any, an index, a UUID, or part of a name.
    gpu: Option<String>,
    /// A program's GPUs: 2, all, or indexes: 0,1.
    gpus: Option<String>,
    /// A program's ranks to profile: 0, 0,3 or all.
    ranks: Option<String>,
    /// Sizes: `n=16777216`, or values in the kernel's order; `;` between cases.
    #[serde(alias = "problem_sizes", rename(serialize = "problem_sizes"))]
    sizes: Option<String>,
    /// A run at each value of a size or macro: ["n=256..8192:x2"].
    sweep: Option<Vec<String>>,
    /// ncu: the section set: basic, detailed, full, roofline, minimal …
    set: Option<String>,
    /// ncu: identifiers of sections.
    section: Option<Vec<String>>,
    /// ncu: names of metrics.
    metrics: Option<Vec<String>>,
    /// ncu and nsys: only these NVTX regions: A, A::A1, decode*.
    regions: Option<String>,
    /// Only kernels with this name, or `regex:RE`.
    kernel_name: Option<String>,
    /// ncu: launches to skip first.
    launch_skip: Option<u32>,
    /// ncu: launches to profile.
    launch_count: Option<u32>,
    /// Measure from this time after the program's start, e.g. 30s.
    after: Option<String>,
    /// Measure for this time, then stop the program: for one that never ends.
    #[serde(rename = "for")]
    duration: Option<String>,
    /// deep: how many kernels to profile with ncu, by GPU time.
    top: Option<u32>,
    /// sanitizer: memcheck, racecheck, initcheck, synccheck or all.
    tool: Option<String>,
    /// Compile for this architecture, e.g. sm_90a.
    arch: Option<String>,
    /// Timed launches. Without it: until the median is known to 0.5 %.
    iters: Option<u32>,
    /// Time limit of each step, e.g. 90s, 10m.
    timeout: Option<String>,
    /// The lowest rung that counts as success, e.g. ncu.basic: without counters it is an error
    /// then.
    at_least: Option<String>,
    /// No error (`not_measured`, exit 5) if nothing was measured on a GPU.
    allow_unmeasured: Option<bool>,
    /// Seconds to wait for the end before the call returns with state `running`: 4, at most 45.
    wait_s: Option<u64>,
}

/// The modes, as the command line has them.
pub(super) fn modes(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<&str> = MODES.iter().map(|mode| mode.name).collect();
    let gives = MODES.iter().map(|mode| format!("{}: {}", mode.name, mode.gives));
    let gives: Vec<String> = gives.collect();
    json_schema!({"type": "string", "enum": names, "description": gives.join("; ")})
}

async fn run(call: Call) -> Result<Answer> {
    let arguments: Arguments = call.arguments()?;
    let id = Runs::fresh_id("mcp-profile", jiff::Timestamp::now());
    let context = call.context();
    let inputs = InputFiles::new(context, arguments.files.as_deref().unwrap_or_default())?;
    let mut line = CommandLine::new(["profile"]);
    match (&arguments.kernel, &arguments.program) {
        (Some(kernel), None) => line.flag("kernel", Some(inputs.word(context, "kernel", kernel)?)),
        (None, Some(program)) if !program.is_empty() => {}
        _ => return Err(argument_error("give `kernel` or `program`, one of the two")),
    }
    remote(&mut line, arguments.remote.as_deref())?;
    flags(&mut line, &arguments, &["kernel", "program", "files", "remote", "wait_s"]);
    line.flag("run-id", Some(&id));
    line.trailing_args(arguments.program.as_deref().unwrap_or_default());
    line.files = inputs.files.map(crate::mcp::files::SentFiles::into_folder);
    call.run(id, line, arguments.wait_s).await
}
