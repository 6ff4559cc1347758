//! `disasm`: the code of kernels that are compiled.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ToolInfo;
use crate::mcp::answer::{self, Answer};
use crate::mcp::arguments::{argument_error, check_inside_project};
use crate::mcp::call::Call;
use crate::mcp::limit::page;
use rgpu_model::code::{CodeDocument, CodeImage, CodeKernel};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_work::own_command::CommandLine;

pub(super) const TOOL: ToolInfo = ToolInfo {
    name: "disasm",
    title: "Read compiled GPU code",
    does: "Shows the machine code in a cubin, library, wheel or run: SASS or PTX of a range of \
           lines, its source, the mix of instructions, registers and spills; or what differs \
           between two.",
    use_when: "you want to see the instructions that a compiler made, or how they changed",
    not_for: &[("measured counters and hot lines of a run", "report"), ("compiling", "build")],
    read_only: true,
    destructive: false,
    starts_runs: false,
    input: answer::input::<Arguments>,
    output: || answer::output(&[answer::schema::<CodeResult>]),
    call: |call| Box::pin(run(call)),
};

/// The lines of a listing in a result, in bytes.
const LINES_BYTES: usize = 5500;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A run (id, unique beginning, `latest`), or a file of the project: .cubin, .so, .ncu-rep …
    of: String,
    /// Only kernels with this name, or `regex:RE`. Without it the first one is listed.
    kernel: Option<String>,
    /// What to show. Without it: sass.
    view: Option<View>,
    /// The first line of the listing, from 1. A result says where the next one begins.
    first_line: Option<usize>,
    /// The last line. Without it: as many as fit.
    last_line: Option<usize>,
    /// Another run or file: show what changed from `of` to it instead.
    diff_with: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum View {
    /// Machine instructions with their control codes.
    #[default]
    Sass,
    /// The PTX text.
    Ptx,
    /// Source lines that instructions come from.
    Source,
    /// How many instructions of each kind.
    Mix,
}

impl View {
    fn word(self) -> &'static str {
        match self {
            Self::Sass => "sass",
            Self::Ptx => "ptx",
            Self::Source => "source",
            Self::Mix => "mix",
        }
    }
}

/// A part of the code.
#[serde_with::skip_serializing_none]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct CodeResult {
    /// Name and version of this schema: `rgpu.mcp-code/1`.
    schema: String,
    /// The kernels that were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kernels: Vec<KernelLine>,
    /// The kernel whose code is listed.
    kernel: Option<String>,
    /// The lines of the listing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lines: Vec<String>,
    /// The number of the first line.
    first_line: Option<usize>,
    /// How many lines there are in all.
    all_lines: Option<usize>,
    /// Where to go on, as `first_line`; absent at the end.
    next_line: Option<usize>,
    /// Instructions by class, for the view mix.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    classes: BTreeMap<String, u64>,
    /// What changed, for `diff_with`.
    diff: Option<Value>,
    /// What the listing lacks, and how to get it.
    note: Option<String>,
    /// Parts that could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
    /// What was left out to stay short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cut: Vec<String>,
}

/// A kernel's resources.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct KernelLine {
    /// Its name.
    kernel: String,
    /// The architecture of its code.
    arch: String,
    /// Registers of a thread.
    registers: Option<u32>,
    /// Bytes of spill stores, then of spill loads.
    spill_bytes: Option<[u64; 2]>,
    /// Bytes of static shared memory of a block.
    shared_bytes: Option<u64>,
}

impl KernelLine {
    fn from_kernel(image: &CodeImage, kernel: &CodeKernel) -> Self {
        Self {
            kernel: kernel.name.clone().unwrap_or_else(|| kernel.symbol.clone()),
            arch: image.arch.clone(),
            registers: kernel.registers,
            spill_bytes: kernel.spill_bytes,
            shared_bytes: kernel.shared_bytes,
        }
    }
}

async fn run(call: Call) -> Result<Answer> {
    let arguments: Arguments = call.arguments()?;
    check_inside_project(call.context(), "of", &arguments.of)?;
    let mut line = CommandLine::new(["disasm", &arguments.of]);
    line.flag("kernel-name", arguments.kernel.as_deref());
    let mut result = CodeResult { schema: "rgpu.mcp-code/1".to_owned(), ..CodeResult::default() };
    if let Some(other) = &arguments.diff_with {
        check_inside_project(call.context(), "diff_with", other)?;
        line.arg(other);
        line.arg("--diff");
        result.diff = Some(call.document(line).await?);
        return Answer::from_result(&result);
    }
    let view = arguments.view.unwrap_or_default();
    line.flag("view", Some(view.word()));
    let code: CodeDocument = serde_json::from_value(call.document(line).await?)
        .map_err(|e| Failure::new(Exit::Bug, "bug", "the code cannot be read").cause(e))?;
    let kernels = || code.images.iter().flat_map(|i| i.kernels.iter().map(move |k| (i, k)));
    result.kernels =
        kernels().map(|(image, kernel)| KernelLine::from_kernel(image, kernel)).collect();
    result.errors.clone_from(&code.errors);
    if matches!(view, View::Sass) {
        result.note = code.images.first().and_then(no_operands);
    }
    let first = kernels().next().map(|(_, kernel)| kernel);
    let lines: Vec<String> = match view {
        View::Sass => first.map(sass).unwrap_or_default(),
        View::Ptx => {
            let ptx = code.images.iter().find_map(|image| image.ptx.as_deref());
            ptx.unwrap_or_default().lines().map(ToOwned::to_owned).collect()
        }
        View::Source => {
            let sources = code.images.iter().flat_map(|image| &image.sources);
            let lines = sources.flat_map(|source| {
                source
                    .lines
                    .iter()
                    .map(|(number, text)| format!("{}:{number}  {text}", source.file))
            });
            lines.collect()
        }
        View::Mix => Vec::new(),
    };
    if matches!(view, View::Sass | View::Mix) {
        result.kernel = result.kernels.first().map(|kernel| kernel.kernel.clone());
    }
    if let (View::Mix, Some(kernel)) = (view, first) {
        result.classes.clone_from(&kernel.classes);
        return Answer::from_result(&result);
    }
    let start = arguments.first_line.unwrap_or(1);
    if start == 0 || start > lines.len().max(1) {
        return Err(argument_error(format!("`first_line`: the listing has {} lines", lines.len())));
    }
    let end = arguments.last_line.unwrap_or(usize::MAX);
    let count = end.saturating_add(1).saturating_sub(start);
    let listed = page(&lines, start - 1, count, LINES_BYTES);
    result.first_line = (!lines.is_empty()).then_some(start);
    result.next_line = (listed.end < lines.len()).then_some(listed.end + 1);
    result.all_lines = Some(lines.len());
    result.lines = lines[listed].to_vec();
    // The kernels may be many; the lines are what was asked for.
    if result.kernels.len() > 12 {
        result.cut.push(format!("kernels: 12 of {}; `kernel` chooses", result.kernels.len()));
        result.kernels.truncate(12);
    }
    Answer::from_result(&result)
}

/// Why the instructions of an image have no operands, if they have none.
fn no_operands(image: &CodeImage) -> Option<String> {
    let own = image.tool.as_deref().is_some_and(|tool| tool.starts_with("rgpu "));
    own.then(|| match &image.tool_problem {
        Some(problem) => format!("instructions have no operands: {problem}"),
        None => "instructions have no operands, since there is no nvdisasm here: \
                 `rgpu setup nvdisasm` fetches it"
            .to_owned(),
    })
}

/// The instructions of a kernel, one a line.
fn sass(kernel: &CodeKernel) -> Vec<String> {
    let line = |line: &rgpu_model::code::CodeLine| {
        let at = line.at.last().map(|at| format!("  // line {}", at.line)).unwrap_or_default();
        format!("{:04x} {} {}{at}", line.offset, line.control, line.text)
    };
    kernel.instructions.iter().map(line).collect()
}
