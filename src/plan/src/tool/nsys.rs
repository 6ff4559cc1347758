//! Nsight Systems: a timeline of CUDA calls, kernels, copies and NVTX ranges.
//!
//! A separate importer program makes the report. If a library is missing, the importer fails, and
//! nsys leaves the raw capture with exit status 0 (tests/fixtures/nsys/2025.3.1/importer-missing).

use rgpu_protocol::plan::Arg;
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::ncu::{is_flag, refuse};
use super::plan::draft::PlanError;
use super::plan::facts::{answer, run, tool, version_after};
use super::plan::ladder::runs_python;
use super::plan::message_rows::{MessageRow, RowAction};
use super::plan::nodes::NODE;
use super::plan::options::{CaptureRange, WindowEnd};
use super::plan::region::RegionPath;
use super::plan::request::{FirstPass, PlanPart, Request, SecondPass};
use crate::kernel::ProfileMode;

/// How often a program that may hang saves what was traced, in milliseconds.
const FLUSH_INTERVAL_MS: u32 = 1000;

pub(super) struct Nsys;

/// The prefix of the problem that [`Nsys::read`] adds if nsys works but cannot make a report.
pub(super) const IMPORTER: &str = "its importer does not start";

impl Tool for Nsys {
    fn name(&self) -> &'static str {
        "nsys"
    }

    fn probes(&self) -> Vec<Probe> {
        let find = [
            // `rgpu setup nsys` was asked for, so this one comes before the host's own.
            "~/.local/share/rgpu/tools/nsight_compute-*/nsight-compute/*/host/target-linux-*/nsys",
            "nsys",
            "/usr/local/cuda/bin/nsys",
            "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
            "/opt/nvidia/nsight-systems-cli/*/target-linux-*/nsys",
            // Nsight Compute includes an nsys.
            "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
        ];
        // The loader reports a missing library before the importer reads its arguments.
        let importer = |name, folders: &[&str]| run(name, folders, &["--help"]);
        vec![
            run("nsys", &find, &["--version"]),
            importer(
                "nsys.importer.systems",
                &["/opt/nvidia/nsight-systems*/*/host-linux-*/QdstrmImporter"],
            ),
            importer(
                "nsys.importer.compute",
                &[
                    "~/.local/share/rgpu/tools/nsight_compute-*/nsight-compute/*/host/linux-*/QdstrmImporter",
                    "/opt/nvidia/nsight-compute/*/host/linux-*/QdstrmImporter",
                ],
            ),
        ]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        let Some(mut found) = tool(agent, "nsys", |text| version_after(text, "version ")) else {
            return;
        };
        let systems = answer(agent, "nsys.importer.systems").filter(|a| a.path.is_some());
        let compute = answer(agent, "nsys.importer.compute").filter(|a| a.path.is_some());
        // Only the path of nsys tells for certain which importer it starts; a single importer is
        // likely it.
        let importer = if found.path.contains("/nsight-compute/") {
            compute
        } else if found.path.contains("/nsight-systems") {
            systems
        } else {
            systems.or(compute)
        };
        let missing = importer.and_then(|answer| missing_library(&answer.text));
        found.problems.extend(missing.map(|library| format!("{IMPORTER}: `{library}` is missing")));
        facts.tools.push(found);
    }
}

/// The library that the dynamic loader reports as missing.
fn missing_library(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let rest = line.split_once("error while loading shared libraries:")?.1;
        rest.split(':').next().map(str::trim).filter(|name| !name.is_empty())
    })
}

/// Path of the report, without the extension that nsys adds.
pub(super) const REPORT: &str = "raw/report";

/// The path of the report of a second pass, in the same way.
const SECOND_REPORT: &str = "raw/second";

/// The path of a request's report, without the extension.
pub(super) fn report(request: &Request) -> &'static str {
    match request.part {
        PlanPart::SecondPass(_) => SECOND_REPORT,
        _ => REPORT,
    }
}

/// The same of one node of several.
pub fn report_of_node(node: impl std::fmt::Display) -> String {
    format!("{REPORT}.node{node}")
}

/// Meanings of nsys's messages.
pub(super) static MESSAGE_ROWS: &[MessageRow] = &[
    MessageRow("Importation succeeded with non-fatal", "import_incomplete", RowAction::Note),
    // After non-fatal errors the report is there.
    MessageRow("Importer error status", "importer_broken", RowAction::FailedLeave),
    MessageRow("skipping importation of the QDSTRM", "importer_broken", RowAction::LeaveTool),
    MessageRow("Unrecognized GPU UUID", "unrecognized_gpu", RowAction::Next),
    MessageRow("Can't find UUID for CUDA device", "unrecognized_gpu", RowAction::Next),
    MessageRow("Time conversion", "time_conversion", RowAction::Next),
    MessageRow("time conversion", "time_conversion", RowAction::Next),
    MessageRow("Wrong event order has been detected", "event_order", RowAction::Next),
    MessageRow("Importation failed", "event_order", RowAction::Next),
    MessageRow("No reports were generated", "nothing_captured", RowAction::Stop),
    MessageRow("NVPA_STATUS_ERROR", "gpu_metrics_refused", RowAction::Next),
    MessageRow("ERR_NVGPUCTRPERM", "gpu_metrics_refused", RowAction::Next),
    MessageRow(
        "not found in current directory or standard search paths",
        "no_program",
        RowAction::Stop,
    ),
    MessageRow("Illegal --*argument", "bad_arguments", RowAction::Stop),
    MessageRow("unrecognised option", "bad_arguments", RowAction::Stop),
    MessageRow("Failed to create '*report", "output_not_written", RowAction::Stop),
    MessageRow("No CUDA events collected", "no_cuda_events", RowAction::Note),
    MessageRow("does not contain CUDA trace data", "no_cuda_events", RowAction::Note),
    MessageRow("does not contain CUDA kernel data", "no_cuda_events", RowAction::Note),
    MessageRow("perf_event_paranoid", "perf_paranoid", RowAction::Note),
    MessageRow("CPU IP/backtrace sampling not supported", "perf_paranoid", RowAction::Note),
];

/// Names of the processes of nsys, which are not stopped with the program.
pub(super) const PROCESSES: &[&str] = &["nsys", "nsys-launcher"];

/// The signal of Ctrl-C, which nsys sends to the program's process group.
const SIGINT: u8 = 2;

/// Versions before this year may not know `--cuda-graph-trace`.
const GRAPH_TRACE_YEAR: u32 = 2023;

/// Arguments of a second pass with stacks: all calls, however short. nsys takes stacks only while it
/// samples the CPU; of the samples themselves we want as little as it allows.
const STACKS: &[(&str, &str)] = &[
    ("--sample", "process-tree"),
    ("--cpuctxsw", "none"),
    ("--samples-per-backtrace", "32"),
    ("--cudabacktrace", "all:0"),
];

/// Further arguments if the program is one of Python: its native frames are not used.
const PYTHON_STACKS: &[(&str, &str)] =
    &[("--python-backtrace", "cuda"), ("--resolve-symbols", "false")];

/// The default of `--trace`.
const DEFAULT_TRACE: &str = "cuda,nvtx";

/// The data that a rung records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NsysTraces {
    /// The traces that the user requested.
    Full,
    /// CUDA and NVTX, with NSYS CuptiUseRawGpuTimestamps=false.
    Cuda,
    /// NVTX ranges, without CUDA.
    Nvtx,
}

/// Checks the options, as far as the laptop can.
pub(super) fn check(request: &Request) -> Result<(), PlanError> {
    if let Some(CaptureRange::Nvtx(path)) = &request.nsys.capture_range {
        RegionPath::parse(path)?;
    }
    check_window(request)?;
    refuse(request.nsys.nsys_args.as_deref(), "--nsys-args", &["-o", "--output", "-q", "--quiet"])
}

/// Checks that the window and `--capture-range` go together.
fn check_window(request: &Request) -> Result<(), PlanError> {
    let ranged = request.nsys.capture_range.is_some();
    let problem = |flag, value: String, problem: &str| {
        let problem = problem.to_owned();
        Err(PlanError::Option { flag, value, problem, near: Vec::new() })
    };
    match (request.window.after_s, request.window.end) {
        (_, Some(WindowEnd::Range))
            if !matches!(request.mode, ProfileMode::Nsys | ProfileMode::Torch) =>
        {
            let text = "only the modes `nsys` and `torch` end with a range; give a time";
            problem("--for", "range".to_owned(), text)
        }
        (_, Some(WindowEnd::Range)) if !ranged => {
            problem("--for", "range".to_owned(), "it needs a range: add `--capture-range`")
        }
        (Some(seconds), _) if ranged => {
            let text =
                "`--capture-range` decides when the measurement begins; leave one of them out";
            problem("--after", format!("{seconds}s"), text)
        }
        (_, Some(WindowEnd::Seconds(seconds))) if ranged => {
            let text = "with `--capture-range`, `--for range` ends the measurement";
            problem("--for", format!("{seconds}s"), text)
        }
        _ => Ok(()),
    }
}

/// Whether the kernels inside CUDA graphs are traced one by one, which slows graphs down: only
/// where kernels are chosen, since nsys has no names of those in a graph that is traced as a whole.
fn traces_graph_nodes(request: &Request, version: &str) -> bool {
    let year = version.split('.').next().and_then(|year| year.parse::<u32>().ok());
    request.part == PlanPart::FirstPass(FirstPass::Kernels)
        && year.is_none_or(|year| year >= GRAPH_TRACE_YEAR)
}

/// nsys's command line without the program, and its additional environment variables. `nsys` is its
/// path and version.
pub(super) fn command_line(
    request: &Request,
    (nsys, version): (&str, &str),
    trace: NsysTraces,
) -> Result<(Vec<Arg>, Vec<(&'static str, &'static str)>), PlanError> {
    let options = &request.nsys;
    let mut env = Vec::new();
    let (traced, sample) = match trace {
        NsysTraces::Full => {
            (options.trace.as_deref().unwrap_or(DEFAULT_TRACE), options.sample.as_deref())
        }
        NsysTraces::Cuda => {
            // Replaces an edit of the user's own nsys configuration.
            env.push(("NSYS_CONFIG_DIRECTIVES", "CuptiUseRawGpuTimestamps=false"));
            (DEFAULT_TRACE, None)
        }
        NsysTraces::Nvtx => ("nvtx", None),
    };
    let passed_on: &[String] = match trace {
        NsysTraces::Full => options.nsys_args.as_deref().unwrap_or_default(),
        _ => &[],
    };
    // Options from `--nsys-args` replace ours.
    let passes = |names: &[&str]| passed_on.iter().any(|w| names.iter().any(|n| is_flag(w, n)));
    let mut command: Vec<Arg> = vec![nsys.into(), "profile".into()];
    if !passes(&["--trace", "-t"]) {
        command.push(format!("--trace={traced}").into());
    }
    let second = match request.part {
        PlanPart::SecondPass(pass) => pass,
        _ => SecondPass::default(),
    };
    if second.stacks {
        let python: &[_] = if runs_python(&request.target) { PYTHON_STACKS } else { &[] };
        for (name, value) in STACKS.iter().chain(python).filter(|(name, _)| !passes(&[name])) {
            command.push(format!("{name}={value}").into());
        }
    } else if !passes(&["--sample", "-s"]) {
        command.push(format!("--sample={}", sample.unwrap_or("none")).into());
        if sample.is_none_or(|sample| sample == "none") && !passes(&["--cpuctxsw"]) {
            command.push("--cpuctxsw=none".into());
        }
    }
    if trace != NsysTraces::Nvtx
        && (second.graph_nodes || traces_graph_nodes(request, version))
        && !passes(&["--cuda-graph-trace"])
    {
        command.push("--cuda-graph-trace=node".into());
    }
    let window = request.window;
    if let Some(seconds) = window.after_s {
        command.push(format!("--delay={seconds}").into());
    }
    if let Some(WindowEnd::Seconds(seconds)) = window.end {
        command.push(format!("--duration={seconds}").into());
    }
    if window.end.is_some() {
        command.push(format!("--kill={SIGINT}").into());
    }
    let range_end = match window.end {
        Some(WindowEnd::Range) => "--capture-range-end=stop-shutdown",
        _ => "--capture-range-end=stop",
    };
    if window.hang_s.is_some() && trace != NsysTraces::Nvtx && !passes(&["--cuda-flush-interval"]) {
        // A rank that waits on the GPU has to be killed, and takes with it what it has not saved.
        command.push(format!("--cuda-flush-interval={FLUSH_INTERVAL_MS}").into());
    }
    match &options.capture_range {
        Some(CaptureRange::CudaProfilerApi) if trace != NsysTraces::Nvtx => {
            command.push("--capture-range=cudaProfilerApi".into());
            command.push(range_end.into());
        }
        Some(CaptureRange::Nvtx(path)) => {
            command.push("--capture-range=nvtx".into());
            command.push(format!("--nvtx-capture={}", RegionPath::parse(path)?.for_nsys()).into());
            command.push(range_end.into());
            env.push(("NSYS_NVTX_PROFILER_REGISTER_ONLY", "0"));
        }
        _ => {}
    }
    command.extend(passed_on.iter().cloned().map(Arg::from));
    command.push("--force-overwrite=true".into());
    command.push("--output".into());
    command.push(Arg::in_job(match request.nodes {
        0 | 1 => report(request).to_owned(),
        _ => report_of_node(NODE),
    }));
    Ok((command, env))
}

/// The command that exports a report to SQLite. `report` is its path without the extension.
pub(super) fn export_command_line(nsys: &str, report: &str) -> Vec<Arg> {
    let mut command: Vec<Arg> =
        ["export", "--type", "sqlite", "--force-overwrite=true", "--output"]
            .map(Arg::from)
            .to_vec();
    command.insert(0, nsys.into());
    command.push(Arg::in_job(format!("{report}.sqlite")));
    command.push(Arg::in_job(format!("{report}.nsys-rep")));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_complaint_names_the_library() {
        let text = "/opt/x/QdstrmImporter: error while loading shared libraries: libdw.so.1: cannot open shared object file: No such file or directory";
        assert_eq!(missing_library(text), Some("libdw.so.1"));
        assert_eq!(missing_library("QdstrmImporter 2025.3\nusage"), None);
    }
}
