//! `compare`: which of two is faster, and why.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolInfo;
use super::inputs::{InputFiles, flags, remote};
use crate::mcp::answer::{self, Answer};
use crate::mcp::arguments::{argument_error, check_inside_project};
use crate::mcp::call::Call;
use crate::mcp::compare_result::{self, CompareResult};
use crate::mcp::files::InlineFile;
use rgpu_model::error::Result;
use rgpu_run::store::Runs;
use rgpu_work::own_command::CommandLine;

pub(super) const TOOL: ToolInfo = ToolInfo {
    name: "compare",
    title: "Compare two kernels or results",
    does: "Says which of two is faster, by how many percent, how sure that is, and which counters \
           explain it: two kernels, measured in turns on one GPU, or two existing runs or \
           report files.",
    use_when: "a kernel was changed and you want to know whether the edit made it faster or \
               slower: before and after",
    not_for: &[
        ("measuring one kernel", "profile"),
        ("the numbers of one result", "report"),
        ("two runs of a suite of many cases", "campaign"),
    ],
    read_only: false,
    destructive: false,
    starts_runs: true,
    input: answer::input::<Arguments>,
    output: || answer::output(&[answer::schema::<CompareResult>]),
    call: |call| Box::pin(run(call)),
};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Two runs (ids, `latest`, `latest~1`) or report files: the base, then the new one. Nothing is
    /// measured.
    runs: Option<[String; 2]>,
    /// Instead of `runs`: two kernels, the base, then the new one. Both are measured now.
    kernels: Option<[String; 2]>,
    /// Files of the kernels that are not in the project, 256 kB in all.
    files: Option<Vec<InlineFile>>,
    /// For kernels: what to use besides timing: ncu, nsys, deep, or bench for times alone.
    mode: Option<String>,
    /// For kernels: the GPU host, a name of `hosts`. Without it: the default remote.
    remote: Option<String>,
    /// For kernels: which GPU, as for profile.
    gpu: Option<String>,
    /// For kernels: time limit of each step, e.g. 90s, 10m.
    timeout: Option<String>,
    /// For kernels: sizes, as for profile.
    #[serde(alias = "problem_sizes", rename(serialize = "problem_sizes"))]
    sizes: Option<String>,
    /// The smallest effect that counts, e.g. `1%`.
    threshold: Option<String>,
    /// For kernels: seconds to wait for the end before the call returns with state `running`: 4,
    /// at most 45.
    wait_s: Option<u64>,
}

async fn run(call: Call) -> Result<Answer> {
    let arguments: Arguments = call.arguments()?;
    let mut line = CommandLine::new(["compare"]);
    match (&arguments.runs, &arguments.kernels) {
        (Some(runs), None) => {
            for run in runs {
                check_inside_project(call.context(), "runs", run)?;
                line.arg(run);
            }
            line.flag("threshold", arguments.threshold);
            compare_result::document_answer(call.document(line).await?)
        }
        (None, Some(kernels)) => {
            let id = Runs::fresh_id("mcp-compare", jiff::Timestamp::now());
            let context = call.context();
            let files = arguments.files.as_deref().unwrap_or_default();
            let inputs = InputFiles::new(context, files)?;
            for kernel in kernels {
                line.flag("kernel", Some(inputs.word(context, "kernels", kernel)?));
            }
            remote(&mut line, arguments.remote.as_deref())?;
            flags(&mut line, &arguments, &["runs", "kernels", "files", "remote", "wait_s"]);
            line.flag("run-id", Some(&id));
            line.files = inputs.files.map(crate::mcp::files::SentFiles::into_folder);
            call.run(id, line, arguments.wait_s).await
        }
        _ => Err(argument_error("give `runs` or `kernels`, one of the two")),
    }
}
