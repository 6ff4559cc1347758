//! Compute Sanitizer: finds faults in kernels.
//!
//! It exits with 0 despite findings, and may exit with the program's status if it finds none. Only
//! its summary line shows that it checked anything (tests/fixtures/sanitizer).

use rgpu_protocol::plan::Arg;
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Pattern, Probe};

use super::Tool;
use super::ncu::refuse;
use super::plan::draft::PlanError;
use super::plan::facts::{run, tool, version_after};
use super::plan::message_rows::{MessageRow, RowAction};
use super::plan::options::SanitizerTool;
use super::plan::rank_shim;
use super::plan::request::Request;

pub(super) struct Sanitizer;

impl Tool for Sanitizer {
    fn name(&self) -> &'static str {
        "compute-sanitizer"
    }

    fn probes(&self) -> Vec<Probe> {
        let find = [
            // `rgpu setup sanitizer` was asked for, so this one comes before the host's own.
            "~/.local/share/rgpu/tools/cuda_sanitizer_api-*/compute-sanitizer/compute-sanitizer",
            "compute-sanitizer",
            "/usr/local/cuda/bin/compute-sanitizer",
            "/usr/local/cuda-*/bin/compute-sanitizer",
            "/usr/local/cuda/compute-sanitizer/compute-sanitizer",
        ];
        vec![run("compute-sanitizer", &find, &["--version"])]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        let version = |text: &str| version_after(text, "Version ");
        facts.tools.extend(tool(agent, "compute-sanitizer", version));
    }
}

/// Meanings of its messages.
pub(super) static MESSAGE_ROWS: &[MessageRow] = &[
    MessageRow("Device not supported", "gpu_unsupported", RowAction::Next),
    MessageRow("Internal Sanitizer Error", "sanitizer_internal", RowAction::Next),
    MessageRow("terminated before first instrumented API call", "no_cuda_call", RowAction::Next),
    MessageRow("No attachable process found", "not_attached", RowAction::Next),
    MessageRow("doesn't exist or is not a valid executable", "no_program", RowAction::Stop),
    MessageRow("the argument for option*is invalid", "bad_arguments", RowAction::Stop),
    MessageRow("detected on the input command line", "bad_arguments", RowAction::Stop),
    MessageRow("unrecognised option", "bad_arguments", RowAction::Stop),
    MessageRow("Target application returned an error", "program_failed", RowAction::Note),
];

/// Path of a tool's records. `of_rank` is `.rank` and the number of a rank, or what stands for it;
/// empty if the tool runs around the whole program.
pub(super) fn findings(tool: SanitizerTool, of_rank: &str) -> String {
    format!("raw/{}{of_rank}.xml", tool.name())
}

/// Path of a tool's text, if it is not on standard output.
pub(super) fn log(tool: SanitizerTool, of_rank: &str) -> String {
    format!("raw/{}{of_rank}.log", tool.name())
}

/// The summary line, without which a run has no result.
pub(super) fn summary(tool: SanitizerTool) -> Pattern {
    Pattern::new(match tool {
        SanitizerTool::Racecheck => "RACECHECK SUMMARY:",
        _ => "ERROR SUMMARY:",
    })
}

/// Checks the options, as far as the laptop can.
pub(super) fn check(request: &Request) -> Result<(), PlanError> {
    let ours = ["--tool", "-t", "--save", "--xml", "--log-file", "--read", "--prefix", "--quiet"];
    refuse(request.sanitizer.sanitizer_args.as_deref(), "--sanitizer-args", &ours)
}

/// Its command line without the program. The text stays on standard output, between the program's
/// own lines, because the summary is searched for there; the records also go to a file. Of ranks,
/// each has its own files, and the text goes to one of them: launchers mix the output of all ranks.
pub(super) fn command_line(
    request: &Request,
    sanitizer: &str,
    tool: SanitizerTool,
) -> Result<Vec<Arg>, PlanError> {
    let mut command: Vec<Arg> =
        [sanitizer, "--tool", tool.name(), "--target-processes", "all"].map(Arg::from).to_vec();
    for name in &request.ncu.kernel_name {
        command.push("--kernel-name".into());
        command.push(name_filter(name).into());
    }
    for name in &request.ncu.kernel_exclude {
        command.push("--kernel-name-exclude".into());
        command.push(name_filter(name).into());
    }
    for (flag, value) in
        [("--launch-skip", request.ncu.launch_skip), ("--launch-count", request.ncu.launch_count)]
    {
        if let Some(count) = value {
            command.push(flag.into());
            command.push(count.to_string().into());
        }
    }
    command.extend(request.sanitizer.sanitizer_args.iter().flatten().cloned().map(Arg::from));
    let of_rank = match request.tool_per_rank() {
        None => String::new(),
        Some(_) => {
            let of_rank = format!(".rank{}", rank_shim::RANK);
            command.push("--log-file".into());
            command.push(Arg::in_job(log(tool, &of_rank)));
            of_rank
        }
    };
    // 2025.3 rejects `--xml yes`; every version accepts the bare flag.
    command.extend(["--xml", "--save"].map(Arg::from));
    command.push(Arg::in_job(findings(tool, &of_rank)));
    Ok(command)
}

/// Translates ncu's notation of a kernel filter to this tool's.
fn name_filter(name: &str) -> String {
    match name.strip_prefix("regex:") {
        Some(regex) => format!("regex={regex}"),
        None => format!("kne={name}"),
    }
}
