//! `build`: compiles a kernel without a GPU.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolInfo;
use super::inputs::{InputFiles, flags, remote};
use crate::mcp::answer::{self, Answer};
use crate::mcp::arguments::argument_error;
use crate::mcp::call::Call;
use crate::mcp::files::InlineFile;
use crate::mcp::run_result::RunResult;
use rgpu_model::error::Result;
use rgpu_run::store::Runs;
use rgpu_work::own_command::CommandLine;

pub(super) const TOOL: ToolInfo = ToolInfo {
    name: "build",
    title: "Compile a kernel",
    does: "Compiles a CUDA, CuTe DSL or Triton kernel to PTX, cubin and SASS without running it: \
           registers, spills, shared memory, or the compiler's errors.",
    use_when: "you want to know whether code compiles, for any architecture (also one you have no \
               GPU of), and what resources its kernels take",
    not_for: &[
        ("running or timing it", "profile"),
        ("reading code that is compiled already", "disasm"),
    ],
    read_only: false,
    destructive: false,
    starts_runs: true,
    input: answer::input::<Arguments>,
    output: || answer::output(&[answer::schema::<RunResult>]),
    call: |call| Box::pin(run(call)),
};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The kernel: a name of the project or of rgpu, or a folder with kernel.toml (also of
    /// `files`).
    kernel: Option<String>,
    /// Instead of `kernel`: a .cu file, or with `dsl` a .py file (also of `files`).
    file: Option<String>,
    /// Files that are not in the project, 256 kB in all.
    files: Option<Vec<InlineFile>>,
    /// The Python DSL of `file`: cute or triton.
    dsl: Option<String>,
    /// The architecture, e.g. sm_90a or sm_100a. Without it: the GPU's, else the kernel's first.
    arch: Option<String>,
    /// Sizes, as for profile.
    #[serde(alias = "problem_sizes", rename(serialize = "problem_sizes"))]
    sizes: Option<String>,
    /// Optimisation level, 0 to 3.
    opt_level: Option<u8>,
    /// More options for the compiler, as one string.
    compile_options: Option<String>,
    /// Compile on this host. Without it: the default remote.
    remote: Option<String>,
    /// Seconds to wait for the end before the call returns with state `running`: 4, at most 45.
    wait_s: Option<u64>,
}

async fn run(call: Call) -> Result<Answer> {
    let arguments: Arguments = call.arguments()?;
    let id = Runs::fresh_id("mcp-build", jiff::Timestamp::now());
    let context = call.context();
    let inputs = InputFiles::new(context, arguments.files.as_deref().unwrap_or_default())?;
    let mut line = CommandLine::new(["build"]);
    match (&arguments.kernel, &arguments.file) {
        (Some(kernel), None) => line.flag("kernel", Some(inputs.word(context, "kernel", kernel)?)),
        (None, Some(file)) => line.arg(inputs.word(context, "file", file)?),
        _ => return Err(argument_error("give `kernel` or `file`, one of the two")),
    }
    flags(&mut line, &arguments, &["kernel", "file", "files", "remote", "wait_s"]);
    remote(&mut line, arguments.remote.as_deref())?;
    line.flag("run-id", Some(&id));
    line.files = inputs.files.map(crate::mcp::files::SentFiles::into_folder);
    call.run(id, line, arguments.wait_s).await
}
