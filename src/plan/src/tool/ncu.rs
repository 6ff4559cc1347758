//! Nsight Compute: hardware counters of single launches.
//!
//! Its exit status says little: 0 even if nothing was profiled, 1 if ncu refused its command line,
//! else the program's own. So [`MESSAGE_ROWS`] matches its messages, all of which go to standard
//! output (seen with 2025.3.1, see tests/fixtures/ncu; the others are from public logs).

use rgpu_protocol::plan::Arg;
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::draft::PlanError;
use super::plan::facts::{run, tool, version_after};
use super::plan::message_rows::{MessageRow, RowAction};
use super::plan::region::{RGPU_DOMAIN, RecordedRegion, RegionPath};
use super::plan::request::{ProfileTarget, Request};
use super::plan::sections::{check_section, set_named};

pub(super) struct Ncu;

impl Tool for Ncu {
    fn name(&self) -> &'static str {
        "ncu"
    }

    fn probes(&self) -> Vec<Probe> {
        let find = [
            // `rgpu setup ncu` was asked for, so this one comes before the host's own.
            "~/.local/share/rgpu/tools/nsight_compute-*/nsight-compute/*/ncu",
            "ncu",
            "/usr/local/cuda/bin/ncu",
            "/opt/nvidia/nsight-compute/*/ncu",
            "/usr/local/cuda-*/bin/ncu",
        ];
        vec![run("ncu", &find, &["--version"])]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        facts.tools.extend(tool(agent, "ncu", |text| version_after(text, "Version ")));
    }
}

/// Processes of ncu itself; when the program is stopped, these are left running.
pub(super) const PROCESSES: &[&str] = &["ncu", "sudo", "TreeLauncherSub"];

/// Path of the report, without the extension that ncu adds.
pub(super) fn report(request: &Request, collect: NcuCollection) -> String {
    match collect {
        NcuCollection::Times => "raw/times".to_owned(),
        _ => request.numbered("raw/report"),
    }
}

/// Meanings of ncu's messages, specific ones before general ones. Each row: pattern, reason code,
/// action ([`RowAction`]).
pub(super) static MESSAGE_ROWS: &[MessageRow] = &[
    MessageRow("ERR_NVGPUCTRPERM", "counters_refused", RowAction::ToCounterless),
    MessageRow("driver resource was unavailable", "counters_busy", RowAction::ToCounterless),
    MessageRow("Failed to prepare kernel for profiling", "ncu_too_old", RowAction::LeaveTool),
    MessageRow("LibraryNotLoaded", "perfworks_missing", RowAction::LeaveTool),
    MessageRow("Profiling is not supported on device", "gpu_unsupported", RowAction::LeaveTool),
    MessageRow(
        "Profiling is not supported on this device",
        "gpu_unsupported",
        RowAction::LeaveTool,
    ),
    MessageRow("Unsupported API during capture", "range_unsupported", RowAction::Next),
    MessageRow("RecordStatusUnsupportedApi", "range_unsupported", RowAction::Next),
    MessageRow("is not supported during range replay", "range_option", RowAction::Next),
    MessageRow("did not match any section", "unknown_section", RowAction::Stop),
    MessageRow("unrecognised option", "bad_arguments", RowAction::Stop),
    MessageRow("==ERROR*does not exist or is not an executable", "no_program", RowAction::Stop),
    MessageRow("==ERROR*Unable to write to file", "output_not_written", RowAction::Stop),
    MessageRow("==ERROR*LaunchFailed", "kernel_crashed", RowAction::Stop),
    MessageRow("nsight-compute-lock", "lock_file", RowAction::Next),
    MessageRow("Cannot lock GPU clock frequencies", "clocks_not_locked", RowAction::Note),
    MessageRow("outstanding GPU clock reset", "clock_reset_pending", RowAction::Note),
    MessageRow("Backing up device memory in system memory", "replay_spills", RowAction::Note),
    MessageRow("bad allocation", "replay_memory", RowAction::FailedNext),
    MessageRow("Failed to find metric", "metrics_unavailable", RowAction::Note),
    MessageRow("Unable to access the following", "metrics_unavailable", RowAction::Note),
    MessageRow("No metrics to collect found in sections", "no_metrics", RowAction::Next),
    MessageRow("The application returned an error code", "program_failed", RowAction::StopKernel),
    MessageRow("terminated before first instrumented API call", "no_cuda_call", RowAction::Stop),
    MessageRow("No attachable process", "no_cuda_call", RowAction::Stop),
    MessageRow("No kernels were profiled", "no_kernels", RowAction::LeaveUnfiltered),
    MessageRow("==ERROR*InternalError", "ncu_internal", RowAction::Next),
    MessageRow("==ERROR*UnknownError", "ncu_internal", RowAction::Next),
    MessageRow("An error occurred while trying to profile", "ncu_internal", RowAction::Next),
    MessageRow("==ERROR*Failed to profile", "ncu_internal", RowAction::Next),
];

/// Whether a replay mode measures ranges as a whole.
pub(super) fn is_range(replay: Option<&str>) -> bool {
    matches!(replay, Some("range" | "app-range"))
}

/// Excludes the kernels that wait for other ranks, by the names that NCCL, NVSHMEM, PyTorch's
/// symmetric memory, vLLM and TensorRT-LLM give them. On one rank, the replay of such a kernel
/// would wait for ever.
pub const WAITING_KERNELS: &str = "regex:nccl|nvshmem|multimem|cross_device_reduce|_shot_|\
    [Aa]ll_?[Rr]educe|[Aa]ll_?[Gg]ather|[Rr]educe_?[Ss]catter|[Aa]ll_?[Tt]o_?[Aa]ll";

/// Whether `No kernels were profiled` may be the fault of the user's options: filters, or
/// `--ncu-args`, which may contain some.
pub(super) fn filtered(request: &Request) -> bool {
    let options = &request.ncu;
    !options.kernel_name.is_empty()
        || options.kernel_exclude.iter().any(|name| name != WAITING_KERNELS)
        || options.launch_skip.is_some()
        || options.ncu_args.is_some()
        || !request.ncu.nvtx_include.is_empty()
        || !request.regions.is_empty()
}

/// Environment variables of a program under ncu, unless the user sets them.
///
/// Before each replay pass, ncu restores the memory that a kernel may write. It copies whole
/// allocations to the host, and JAX reserves three quarters of the GPU's memory in one allocation:
/// on an H200, three launches took longer than two minutes.
pub(super) const PROGRAM_ENV: [(&str, &str); 1] = [("XLA_PYTHON_CLIENT_PREALLOCATE", "false")];

/// The data that a rung collects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NcuCollection {
    /// The sections and metrics that the user requested.
    Requested,
    /// The section set `basic`.
    Basic,
    /// Only launch data, without counters.
    Launch,
    /// Only the time of each launch.
    Times,
}

/// Checks the options, as far as the laptop can.
///
/// # Errors
/// [`PlanError::Option`] for unknown sets, sections and modes, and for options that do not go
/// together.
pub(super) fn check(request: &Request) -> Result<(), PlanError> {
    let options = &request.ncu;
    if let Some(set) = &options.set {
        set_named(set)?;
    }
    options.sections.iter().try_for_each(|section| check_section(section))?;
    regions(request)?;
    check_ranks(request)?;
    if is_range(options.replay_mode.as_deref()) {
        let filters = [
            ("--kernel-name", &options.kernel_name),
            ("--kernel-exclude", &options.kernel_exclude),
        ];
        for (flag, values) in filters {
            if let Some(value) = values.first() {
                return Err(PlanError::Option {
                    flag,
                    value: value.clone(),
                    problem: "range replay measures all kernels of a range together; `--replay-mode kernel` measures each of them".to_owned(),
                    near: Vec::new(),
                });
            }
        }
    }
    refuse(
        options.ncu_args.as_deref(),
        "--ncu-args",
        &["-o", "--export", "--log-file", "-i", "--import"],
    )
}

/// Refuses what ncu cannot do on one rank alone.
fn check_ranks(request: &Request) -> Result<(), PlanError> {
    if request.ranks.is_none() || !request.mode.collects_counters() {
        return Ok(());
    }
    let refused = |flag, value: &str, problem: &str| {
        let (value, problem) = (value.to_owned(), problem.to_owned());
        Err(PlanError::Option { flag, value, problem, near: Vec::new() })
    };
    let replay = "with `--ranks` there is only kernel replay: the other ranks do not repeat a range \
                  or a run";
    match request.ncu.replay_mode.as_deref() {
        None | Some("kernel") => {}
        Some(mode) => return refused("--replay-mode", mode, replay),
    }
    if let Some(word) =
        request.ncu.ncu_args.iter().flatten().find(|word| is_flag(word, "--replay-mode"))
    {
        return refused("--ncu-args", word, replay);
    }
    if request.ncu.sudo {
        let problem = "with `--ranks`, sudo would take away the variables by which ranks find each \
                       other";
        return refused("--sudo", "", problem);
    }
    Ok(())
}

/// Refuses arguments that would move the results which rgpu reads afterwards.
pub(super) fn refuse(
    words: Option<&[String]>,
    flag: &'static str,
    forbidden: &[&str],
) -> Result<(), PlanError> {
    let is_forbidden = |word: &&String| forbidden.iter().any(|name| is_flag(word, name));
    match words.unwrap_or_default().iter().find(is_forbidden) {
        None => Ok(()),
        Some(word) => Err(PlanError::Option {
            flag,
            value: word.clone(),
            problem: "rgpu itself sets where results and messages go".to_owned(),
            near: Vec::new(),
        }),
    }
}

/// Whether `word` is the flag `name`, possibly with a value after `=`.
pub(super) fn is_flag(word: &str, name: &str) -> bool {
    word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

fn regions(request: &Request) -> Result<Vec<RegionPath>, PlanError> {
    request.ncu.nvtx_include.iter().map(|text| RegionPath::parse(text)).collect()
}

/// ncu's command line, without the program.
pub(super) fn command_line(
    request: &Request,
    ncu: &str,
    collect: NcuCollection,
    replay: Option<&str>,
) -> Result<Vec<Arg>, PlanError> {
    let options = &request.ncu;
    let kernel = matches!(request.target, ProfileTarget::Kernel { .. });
    let passed_on = options.ncu_args.as_deref().unwrap_or_default();
    let mut command: Vec<Arg> = vec![ncu.into()];
    // `--ncu-args` comes last. An option of these that it contains replaces ours.
    let single_options =
        ["--target-processes", "--clock-control", "--import-source", "--replay-mode"];
    let mut flag = |name: &str, value: &str| {
        if single_options.contains(&name) && passed_on.iter().any(|word| is_flag(word, name)) {
            return;
        }
        command.push(name.into());
        command.push(value.into());
    };
    flag("--target-processes", options.target_processes.as_deref().unwrap_or("all"));
    flag("--clock-control", options.clock_control.as_deref().unwrap_or("none"));
    // Range replay measures ranges, and ncu then refuses options for single kernels.
    let ranges = is_range(replay);
    if !ranges {
        flag("--import-source", "yes");
    }
    if let Some(mode) = replay {
        flag("--replay-mode", mode);
    }
    match collect {
        NcuCollection::Basic => flag("--set", "basic"),
        NcuCollection::Launch => flag("--section", "LaunchStats"),
        NcuCollection::Times => flag("--metrics", "gpu__time_duration.sum"),
        NcuCollection::Requested => {
            for (name, value) in data_flags(request, kernel)? {
                flag(name, &value);
            }
        }
    }
    let times_only = collect == NcuCollection::Times;
    let filter = if times_only {
        // The times are collected to choose kernels from, so the user's filters for kernels and
        // launches come later; those for regions apply here too.

        let waiting = options.kernel_exclude.iter().filter(|name| *name == WAITING_KERNELS);
        kernel_filter(&[], &waiting.cloned().collect::<Vec<_>>())
    } else {
        kernel_filter(&options.kernel_name, &options.kernel_exclude)
    };
    if let Some(filter) = filter.filter(|_| !ranges) {
        match options.launch_numbers.as_slice() {
            [] => flag("--kernel-name", &filter),
            numbers => flag("--kernel-id", &kernel_id(&filter, numbers)),
        }
        if let Some(base) = &options.kernel_name_base {
            flag("--kernel-name-base", base);
        }
    }
    if let Some(count) = options.launch_skip.filter(|_| !times_only) {
        flag("--launch-skip", &count.to_string());
    }
    if let Some(count) = options.launch_count.filter(|_| !times_only) {
        flag("--launch-count", &count.to_string());
    }
    let mut include: Vec<String> = regions(request)?.iter().flat_map(RegionPath::for_ncu).collect();
    include.extend(request.regions.iter().flat_map(RecordedRegion::for_ncu));
    for expression in &include {
        flag("--nvtx-include", expression);
    }
    // Our own launches count only inside `timed`. With the user's regions, which the warm-up enters
    // too, our other phases are excluded instead.
    match (kernel, include.is_empty()) {
        (true, true) => flag("--nvtx-include", &format!("{RGPU_DOMAIN}@timed/")),
        // For ranges, the laptop drops results from outside the timed phase.
        (true, false) if ranges => {}
        (true, false) => {
            for phase in ["setup", "warmup", "verify"] {
                flag("--nvtx-exclude", &format!("{RGPU_DOMAIN}@{phase}/"));
            }
        }
        (false, _) => {}
    }
    if !passed_on.iter().any(|word| word == "--nvtx") {
        command.push("--nvtx".into());
    }
    command.extend(passed_on.iter().cloned().map(Arg::from));
    command.push("--force-overwrite".into());
    command.push("--export".into());
    command.push(Arg::in_job(report(request, collect)));
    Ok(command)
}

/// Sets, sections and metrics of a request, as flags with values.
fn data_flags(request: &Request, kernel: bool) -> Result<Vec<(&'static str, String)>, PlanError> {
    let options = &request.ncu;
    let mut flags = Vec::new();
    let named = !options.sections.is_empty() || !options.metrics.is_empty();
    let set = match &options.set {
        Some(set) => Some(set.as_str()),
        None if named => None,
        None => Some(if kernel { "full" } else { "basic" }),
    };
    if let Some(name) = set {
        match set_named(name)?.sections {
            None => flags.push(("--set", name.to_owned())),
            Some(sections) => {
                flags.extend(sections.iter().map(|section| ("--section", (*section).to_owned())));
            }
        }
    }
    flags.extend(options.sections.iter().map(|section| ("--section", section.clone())));
    let metrics: Vec<&str> = options
        .metrics
        .iter()
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .filter(|metric| !metric.is_empty() && !request.drop_metrics.contains(*metric))
        .collect();
    if !metrics.is_empty() {
        flags.push(("--metrics", metrics.join(",")));
    }
    // If this GPU has none of the requested metrics, the basic set is collected.
    if flags.is_empty() {
        flags.push(("--set", "basic".to_owned()));
    }
    Ok(flags)
}

/// Joins the kernel filters into one: ncu takes a single `--kernel-name` and has no exclusion, but
/// its regular expressions have look-ahead.
fn kernel_filter(names: &[String], excluded: &[String]) -> Option<String> {
    if let ([only], []) = (names, excluded) {
        return Some(only.clone());
    }
    let pattern = |name: &String| match name.strip_prefix("regex:") {
        Some(regex) => format!(".*(?:{regex})"),
        None => format!("{}$", escaped(name)),
    };
    let mut filter: String = excluded.iter().map(|name| format!("(?!{})", pattern(name))).collect();
    if !names.is_empty() {
        let any: Vec<String> = names.iter().map(pattern).collect();
        filter.push_str(&format!("(?={})", any.join("|")));
    }
    (!filter.is_empty()).then(|| format!("regex:^{filter}"))
}

/// A `--kernel-id`: any context and stream, kernels that pass the filter, launches with these
/// numbers.
fn kernel_id(filter: &str, numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("::{filter}:^({})$", numbers.join("|"))
}

/// `name` with a backslash before each special character of ncu's regular expressions.
pub fn escaped(name: &str) -> String {
    let mut escaped_name = String::with_capacity(name.len());
    for c in name.chars() {
        if r"\^$.|?*+()[]{}".contains(c) {
            escaped_name.push('\\');
        }
        escaped_name.push(c);
    }
    escaped_name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_wait_for_other_ranks_are_known_by_name() {
        let waits = regex::Regex::new(&WAITING_KERNELS["regex:".len()..]).unwrap();
        for name in [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            "ncclSymkDevKernel_AllGather_LL",
            "nvshmemi_proxy_barrier",
            "cross_device_reduce_1stage",
            "multimem_all_reduce_kernel",
            "two_shot_all_reduce_kernel",
            "allReduceFusionKernel",
        ] {
            assert!(waits.is_match(name), "{name}");
        }
        for name in ["vecadd", "sm90_xmma_gemm_f16", "reduce_kernel", "index_elementwise_kernel"] {
            assert!(!waits.is_match(name), "{name}");
        }
    }

    #[test]
    fn several_kernel_names_and_exclusions_become_one_expression() {
        let filter = |names: &[&str], excluded: &[&str]| {
            let own = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
            kernel_filter(&own(names), &own(excluded))
        };
        assert_eq!(filter(&[], &[]), None);
        assert_eq!(filter(&["regex:foo"], &[]).as_deref(), Some("regex:foo"));
        assert_eq!(filter(&["a", "regex:b"], &[]).as_deref(), Some("regex:^(?=a$|.*(?:b))"));
        assert_eq!(filter(&[], &["f(x)"]).as_deref(), Some(r"regex:^(?!f\(x\)$)"));
        assert_eq!(
            filter(&[], &[WAITING_KERNELS]).as_deref().map(|f| &f[..18]),
            Some("regex:^(?!.*(?:ncc")
        );
        assert_eq!(
            filter(&["a"], &["regex:memset"]).as_deref(),
            Some("regex:^(?!.*(?:memset))(?=a$)")
        );
    }
}
