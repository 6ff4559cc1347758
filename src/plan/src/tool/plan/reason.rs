//! Reason codes in words: why a rung was given up or a step failed, and the user's next step.
//!
//! Codes come from the diagnosis tables of the tools (`src/plan/src/tool/*.rs`), from the agent
//! (`missing`, `exit`, `timeout` …), from the importers (`empty_report`, `nan_counters`,
//! `unknown_metric`), and from planning (`tool_missing`, `no_gpu` …).

use rgpu_model::error::Side;

/// The meaning of a reason code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The code, as in reports and events.
    pub code: &'static str,
    /// The reason, in one line.
    pub title: &'static str,
    /// The next step for the user; empty if there is none.
    pub help: &'static str,
    /// The side that is at fault.
    pub side: Side,
}

const fn row(code: &'static str, side: Side, title: &'static str, help: &'static str) -> Reason {
    Reason { code, title, help, side }
}

/// The meaning of `code`; an unknown code gets a general answer.
pub fn reason(code: &str) -> Reason {
    let general = row("unknown", Side::Tool, "the tool failed", "its log has the details");
    REASONS.iter().copied().find(|reason| reason.code == code).unwrap_or(general)
}

/// Reasons that lie in the host: a rung that failed for one of them fails again until the host
/// changes.
static OF_THE_HOST: &[&str] = &[
    "counters_refused",
    "ncu_too_old",
    "perfworks_missing",
    "gpu_unsupported",
    "lock_file",
    "importer_broken",
    "unrecognized_gpu",
    "time_conversion",
    "cupti_unusable",
];

/// Whether a rung that failed with `code` would fail again on the same host.
pub fn lasts(code: &str) -> bool {
    OF_THE_HOST.contains(&code)
}

/// Every known reason why a rung fails.
pub static REASONS: &[Reason] = &[
    // Codes of the agent.
    row(
        "missing",
        Side::Host,
        "a file that it needs is missing",
        "`rgpu doctor` shows what the host has",
    ),
    row("exit", Side::Tool, "it ended with an error", "its log has the details"),
    row("signal", Side::Tool, "it was killed by a signal", "its log has the details"),
    row(
        "timeout",
        Side::Kernel,
        "it did not end in time",
        "raise the limit with `--timeout`, or choose smaller sizes with `--problem-sizes`",
    ),
    row(
        "outside_arrays",
        Side::Kernel,
        "the assumed launch reads or writes outside of an array",
        "its log names the line; `--launch` gives the launch and the elements of each array, as does \
         the kernel.toml that `rgpu kernels new` writes",
    ),
    row(
        "hung",
        Side::Kernel,
        "the program hung: it printed nothing for the time of `--hang`",
        "`raw/hang.txt` in the run folder has the stacks",
    ),
    row(
        "too_much_output",
        Side::Tool,
        "it printed more than a compiler or installer may, and was stopped",
        "its log has the beginning; look at what stands on the host under the tool's name",
    ),
    row("no_file", Side::Tool, "it left no result", "its log has the details"),
    row(
        "unfinished",
        Side::Kernel,
        "it ended before its job was done, whatever its status",
        "look for a call of `exit` in the kernel; its log has the details",
    ),
    row(
        "no_nvtx",
        Side::Kernel,
        "the program never called NVTX",
        "open ranges: `nvtx.annotate` in Python, `nvtxRangePush` of `nvtx3/nvToolsExt.h` in C",
    ),
    row(
        "no_ranges",
        Side::Kernel,
        "the program calls NVTX, but opened no range",
        "open one: `nvtx.annotate`, `nvtxRangePush`",
    ),
    row("no_words", Side::Tool, "it did not print its summary", "its log has the details"),
    row(
        "start_failed",
        Side::Host,
        "it could not be started",
        "`rgpu doctor` shows what the host has",
    ),
    // Codes of the laptop's check of the results.
    row(
        "empty_report",
        Side::Tool,
        "the report has no result",
        "`rgpu doctor` tries each tool on a small kernel",
    ),
    row(
        "nan_counters",
        Side::Tool,
        "the counters have no values",
        "another tool may be using them (DCGM, another profiler); or use `--mode nsys`, which \
         needs no counters",
    ),
    row(
        "unknown_metric",
        Side::Tool,
        "this GPU or this ncu lacks some of the metrics",
        "`ncu --query-metrics` on the host lists those there are",
    ),
    row(
        "no_gpu_rows",
        Side::Tool,
        "the trace has no GPU work",
        "a newer Nsight Systems may know this GPU and driver",
    ),
    row(
        "unreadable_artifact",
        Side::Tool,
        "the result cannot be read",
        "the file is kept under `raw/`",
    ),
    // Codes of planning.
    row(
        "damaged_report",
        Side::Tool,
        "the report is cut or damaged",
        "its intact part is kept; the file is under `raw/`",
    ),
    row(
        "no_gpu",
        Side::Host,
        "the host has no working GPU",
        "`nvidia-smi` on the host should list one",
    ),
    row(
        "tool_missing",
        Side::Host,
        "the tool is not on the host",
        "`rgpu setup` installs ncu, nsys and compute-sanitizer on the host; or name a tool's folder \
         under the remote's `path`",
    ),
    row(
        "all_ranks",
        Side::Tool,
        "it records all ranks, and `--ranks` asks for some",
        "leave `--ranks` out",
    ),
    row("one_node", Side::Tool, "it records the program on one node only", "leave `--nodes` out"),
    row(
        "node_unknown",
        Side::Host,
        "`srun` does not tell a node its number",
        "`srun` on the cluster should be that of Slurm",
    ),
    row(
        "rank_unknown",
        Side::Kernel,
        "the launcher does not tell a process the number of its rank",
        "start the ranks with torchrun, accelerate, mpirun or srun",
    ),
    row(
        "no_such_rank",
        Side::Kernel,
        "the program does not have that rank",
        "`--ranks` counts from 0",
    ),
    row(
        "collector_missing",
        Side::Local,
        "there is no NVTX collector for this host on this machine",
        "`cargo xtask dist` builds it",
    ),
    row(
        "cupti_missing",
        Side::Host,
        "no libcupti is known on the host",
        "it comes with the CUDA toolkit (`extras/CUPTI`), and as the wheel nvidia-cuda-cupti",
    ),
    row(
        "cupti_unusable",
        Side::Host,
        "no libcupti of the host works in the program",
        "the log has the message of each; it must not be newer than the driver",
    ),
    row(
        "no_reference",
        Side::Kernel,
        "the kernel has no reference that could run on the CPU",
        "a kernel.toml names one under `[reference]`; `rgpu kernels new FILE.cu` begins one",
    ),
    row(
        "no_sudo",
        Side::Host,
        "`sudo -n` does not work on the host",
        "run as root, or let the user use sudo without a password",
    ),
    // torch's profiler in a program.
    row(
        "torch_not_imported",
        Side::Kernel,
        "the program did not import torch",
        "`--mode nsys` traces any program",
    ),
    row(
        "torch_without_gpu",
        Side::Kernel,
        "the program did not use the GPU by torch",
        "`--mode nsys` traces any program",
    ),
    row(
        "torch_no_step",
        Side::Kernel,
        "the program made an optimizer, but no second step with it",
        "let it make at least two steps; the first one is not recorded",
    ),
    row(
        "torch_no_range",
        Side::Kernel,
        "the program did not open the range of `--capture-range` by torch.cuda.nvtx",
        "`--mode nvtx` lists the ranges that it opens",
    ),
    row(
        "torch_no_window",
        Side::Kernel,
        "the program ended before the time of `--after`, or its main thread only waited from then on",
        "a smaller `--after`; `--mode nsys` needs no thread of the program",
    ),
    row(
        "torch_hook_failed",
        Side::Tool,
        "torch's profiler failed in the program",
        "its log has the details",
    ),
    row(
        "torch_hook_hindered",
        Side::Kernel,
        "Python imports no `sitecustomize` with `-S`, `-I` or `-E`",
        "start the program without the switch",
    ),
    // Messages of ncu.
    row(
        "counters_refused",
        Side::Host,
        "only administrators may read the GPU performance counters of the host",
        "`--sudo` where that works; the host's administrator can set NVreg_RestrictProfilingToAdminUsers=0; `--mode nsys` needs no counters",
    ),
    row(
        "counters_busy",
        Side::Host,
        "another tool holds the GPU performance counters",
        "stop it for a while (`dcgmi profile --pause` for DCGM), then try again",
    ),
    row(
        "ncu_too_old",
        Side::Tool,
        "ncu could not prepare the kernel: it is too old for this driver or GPU, or the host is virtualised",
        "install a newer Nsight Compute on the host; `--mode nsys` may work meanwhile",
    ),
    row(
        "perfworks_missing",
        Side::Host,
        "ncu could not load a library of the driver, as happens on virtualised GPUs",
        "`--mode nsys` needs no counters",
    ),
    row(
        "gpu_unsupported",
        Side::Tool,
        "the tool does not support this GPU",
        "install a newer version on the host",
    ),
    row(
        "no_kernels",
        Side::Tool,
        "no kernel was profiled",
        "look at the filters: `-k regex:NAME`, `--nvtx-include`; kernels of child processes need `--target-processes all`",
    ),
    row(
        "ncu_internal",
        Side::Tool,
        "ncu had an internal error",
        "fewer sections (`--set basic`) or `--replay-mode application` often work",
    ),
    row(
        "lock_file",
        Side::Host,
        "ncu's lock file belongs to another user",
        "remove `nsight-compute-lock` from the host's temporary folder",
    ),
    row(
        "clocks_not_locked",
        Side::Host,
        "clocks cannot be locked on this GPU",
        "use `--clock-control none`",
    ),
    row(
        "clock_reset_pending",
        Side::Host,
        "an earlier ncu left the clocks locked",
        "`ncu --clock-control reset` on the host undoes it",
    ),
    row(
        "replay_spills",
        Side::Tool,
        "ncu keeps the kernel's memory on the host between passes",
        "`--replay-mode application` needs no such copy",
    ),
    row(
        "replay_memory",
        Side::Tool,
        "ncu ran out of memory while saving the kernel's data",
        "use `--replay-mode application` or a smaller size",
    ),
    row(
        "range_unsupported",
        Side::Tool,
        "the range contains a call that range replay cannot repeat",
        "`--replay-mode app-range` runs the program again instead",
    ),
    row(
        "range_option",
        Side::Tool,
        "range replay does not know an option",
        "leave the option out, or use `--replay-mode kernel`",
    ),
    row(
        "unknown_section",
        Side::Tool,
        "the host's ncu does not know the section",
        "`ncu --list-sections` on the host lists those there are",
    ),
    row(
        "metrics_unavailable",
        Side::Tool,
        "some metrics are not available on this GPU",
        "they are left out and listed",
    ),
    row(
        "no_metrics",
        Side::Tool,
        "the sections name no metric that this ncu can collect",
        "use one of its own sets: `--set basic`",
    ),
    row(
        "program_failed",
        Side::Kernel,
        "the program ended with an error",
        "run it without a tool: `rgpu exec -- PROGRAM`",
    ),
    row(
        "kernel_crashed",
        Side::Kernel,
        "a kernel crashed",
        "`--mode sanitizer` finds the access that is wrong",
    ),
    row(
        "no_cuda_call",
        Side::Kernel,
        "the program ended before its first CUDA call",
        "run it without a tool: `rgpu exec -- PROGRAM`",
    ),
    row(
        "no_program",
        Side::Kernel,
        "the program does not exist or cannot be executed",
        "give its path on the host",
    ),
    row(
        "output_not_written",
        Side::Host,
        "the tool could not write its report",
        "is the host's disk full?",
    ),
    row(
        "bad_arguments",
        Side::Tool,
        "the tool does not know an argument",
        "its version may be older; look at the arguments passed on",
    ),
    // Messages of nsys.
    row(
        "importer_broken",
        Side::Host,
        "nsys's importer cannot start: a library is missing",
        "install it on the host (Debian and Ubuntu: `apt install libdw1 libelf1`)",
    ),
    row(
        "import_incomplete",
        Side::Tool,
        "nsys could not process all events of its trace; the report holds the others",
        "a newer Nsight Systems may process them",
    ),
    row(
        "unrecognized_gpu",
        Side::Tool,
        "nsys does not recognise the GPU, so its times are lost",
        "a newer Nsight Systems may know it",
    ),
    row(
        "time_conversion",
        Side::Tool,
        "nsys could not convert the GPU's time stamps",
        "the trace is repeated with CuptiUseRawGpuTimestamps=false",
    ),
    row(
        "event_order",
        Side::Tool,
        "nsys could not import the trace: its events are out of order",
        "a libcupti of another version may be loaded by the program; look at LD_LIBRARY_PATH",
    ),
    row(
        "no_cuda_events",
        Side::Tool,
        "nsys saw no CUDA call",
        "the program may do its work in a process that nsys does not follow",
    ),
    row(
        "nothing_captured",
        Side::Tool,
        "the capture range never began",
        "look at its name; nested ranges are captured by their own name",
    ),
    row(
        "gpu_metrics_refused",
        Side::Host,
        "nsys may not sample GPU metrics",
        "leave out `--gpu-metrics-device`, or run as root",
    ),
    row(
        "perf_paranoid",
        Side::Host,
        "the host's kernel forbids sampling the CPU",
        "harmless with `--sample none`",
    ),
    // Messages of compute-sanitizer.
    row(
        "sanitizer_internal",
        Side::Tool,
        "compute-sanitizer had an internal error",
        "a newer one may work",
    ),
    row(
        "not_attached",
        Side::Tool,
        "compute-sanitizer could not attach to the program",
        "statically linked launchers and shells hide it; name the program itself",
    ),
    // Messages of compilers.
    row(
        "does_not_compile",
        Side::Kernel,
        "the source does not compile",
        "the compiler's messages are above",
    ),
    row(
        "missing_header",
        Side::Kernel,
        "a header is missing",
        "put it into the folder of the source, or into `include` or `common` there or above it in the same project",
    ),
    row(
        "missing_cuda_samples",
        Side::Kernel,
        "a header of NVIDIA's CUDA samples is missing",
        "it is in `Common` of github.com/NVIDIA/cuda-samples: copy that folder beside the source",
    ),
    row(
        "missing_cutlass",
        Side::Kernel,
        "CUTLASS is missing",
        "it is github.com/NVIDIA/cutlass: copy its `include` beside the source, or set CPLUS_INCLUDE_PATH on the host",
    ),
    row(
        "missing_toolkit",
        Side::Host,
        "a library of the CUDA toolkit is missing",
        "install the CUDA toolkit on the host; NVIDIA's wheels with nvcc have no libraries",
    ),
    row(
        "missing_library",
        Side::Host,
        "a library is missing",
        "install it on the host; the linker's message names it",
    ),
    row("build_failed", Side::Kernel, "the build failed", "its messages are above"),
    row(
        "no_build_tool",
        Side::Host,
        "the host lacks what builds the program",
        "install it there: `apt-get install cmake make` (Debian, Ubuntu), or `pip install cmake`",
    ),
    row(
        "several_programs",
        Side::Kernel,
        "the build makes several programs",
        "choose one: `--target NAME`",
    ),
    row(
        "nothing_built",
        Side::Kernel,
        "the build makes no such program",
        "look at the default target of its build file; `--target NAME` chooses another",
    ),
    row(
        "nothing_compiled",
        Side::Kernel,
        "the file compiles no kernel",
        "define `compile_kernel(problem_sizes)`: `rgpu help build` shows one for each DSL",
    ),
    row(
        "arch_unsupported",
        Side::Tool,
        "the compiler does not know the architecture",
        "a newer CUDA toolkit does, or another `--arch`",
    ),
    row(
        "no_host_compiler",
        Side::Host,
        "nvcc finds no supported host compiler",
        "install gcc on the host, in a version that this nvcc supports",
    ),
    row("compiler_broken", Side::Host, "the compiler could not be run", "its log has the details"),
    row(
        "reference_does_not_compile",
        Side::Kernel,
        "the reference does not compile",
        "the compiler's messages are above; results are not checked",
    ),
    // Python environments (`python_env`).
    row(
        "python_missing",
        Side::Host,
        "the host has no Python",
        "install python3 on the host, or name its folder in the remote's `path`",
    ),
    row(
        "python_version",
        Side::Host,
        "the host's Python does not satisfy the file's `requires-python`",
        "install uv on the host, which can install any version, or change `requires-python`",
    ),
    row(
        "python_no_venv",
        Side::Host,
        "the host's Python cannot make environments",
        "install python3-venv on the host (`apt-get install python3-venv`), or uv",
    ),
    row(
        "python_offline",
        Side::Host,
        "the host cannot reach the package index",
        "give it access (`PIP_INDEX_URL`, `HTTPS_PROXY`, `PIP_CERT` in the remote's `env`), or \
         install the packages on the host",
    ),
    row(
        "python_unresolved",
        Side::Kernel,
        "a dependency of the file cannot be resolved",
        "look at its dependencies, such as `dependencies` in its `# /// script` block; if no version \
         is found of any package (`from versions: none`), the host may not reach the package index",
    ),
    // NVIDIA's archives for a host (`host_tool`).
    row(
        "archive_programs",
        Side::Host,
        "the host lacks a program that fetches or unpacks the archive",
        "install curl and xz on the host (`apt-get install curl xz-utils`), or python3",
    ),
    row(
        "archive_offline",
        Side::Host,
        "the host cannot fetch the archive from NVIDIA's server",
        "give it access (`HTTPS_PROXY` in the remote's `env`), or install the tool on the host and \
         name its folder in the remote's `path`",
    ),
    row(
        "archive_damaged",
        Side::Host,
        "what the host fetched is not NVIDIA's archive",
        "a proxy may have answered in its place; run the command again",
    ),
    row(
        "archive_unfit",
        Side::Host,
        "the tool of the archive does not start on the host",
        "its log has the details",
    ),
    row(
        "disk_full",
        Side::Host,
        "the host's disk is full",
        "free some space on the host; `rgpu runs clean` removes files of old runs",
    ),
    // The runner: the error classes of its report (`rgpu_case::ErrorClass`).
    row(
        "wrong_result",
        Side::Kernel,
        "the kernel computes wrong results",
        "the report names the first element that differs",
    ),
    row(
        "clocks_disagree",
        Side::Kernel,
        "the kernel's own times cannot be true",
        "the judge's clock refutes them; look for code that changes a clock",
    ),
    row(
        "usage",
        Side::Tool,
        "the runner does not know an argument",
        "the runner and rgpu may be of different versions",
    ),
    row(
        "bad_case",
        Side::Tool,
        "the runner cannot read its case",
        "the runner and rgpu may be of different versions",
    ),
    row(
        "missing_file",
        Side::Tool,
        "a file that the case names is missing",
        "was everything built?",
    ),
    row(
        "no_driver",
        Side::Host,
        "the driver does not start",
        "`nvidia-smi` on the host should list a GPU",
    ),
    row(
        "load",
        Side::Kernel,
        "the compiled kernel does not load on this GPU",
        "look at `arch` and `entry` of kernel.toml",
    ),
    row(
        "out_of_memory",
        Side::Kernel,
        "the data do not fit in memory",
        "choose a smaller size with `--problem-sizes`",
    ),
    row(
        "launch",
        Side::Kernel,
        "the launch was refused",
        "look at `[launch]` of kernel.toml: its shape and its shared memory",
    ),
    row(
        "illegal_access",
        Side::Kernel,
        "the kernel accessed memory outside its allocations",
        "`--mode sanitizer` finds the access",
    ),
    row("crash", Side::Kernel, "the kernel crashed", "`--mode sanitizer` may find the reason"),
    row(
        "host_entry",
        Side::Kernel,
        "the host entry returned an error",
        "rgpu_prepare or rgpu_launch returned an error",
    ),
    row(
        "reference",
        Side::Kernel,
        "the reference failed",
        "it runs on the host's CPU; its log has more",
    ),
    row(
        "guard_found",
        Side::Kernel,
        "the guarded run has findings",
        "the report says which argument and where",
    ),
    row(
        "host_unfit",
        Side::Host,
        "the host is not suitable for measurements",
        "the warnings say why; without `--strict` it is measured anyway",
    ),
    row("cuda", Side::Host, "a CUDA call failed", "its log has the details"),
    row("output", Side::Host, "the runner could not write its report", "is the host's disk full?"),
    row("internal", Side::Tool, "the runner has a bug", "please report it, with the run folder"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_there_once_and_has_words() {
        for (i, reason) in REASONS.iter().enumerate() {
            assert!(!reason.title.is_empty() && !reason.help.is_empty(), "{}", reason.code);
            assert!(REASONS[..i].iter().all(|other| other.code != reason.code), "{}", reason.code);
        }
    }

    #[test]
    fn what_lasts_is_a_reason_that_is_known() {
        assert!(OF_THE_HOST.iter().all(|code| REASONS.iter().any(|reason| reason.code == *code)));
        assert!(lasts("counters_refused") && !lasts("counters_busy"));
    }

    #[test]
    fn an_unknown_code_has_a_general_answer() {
        assert_eq!(reason("of a newer agent").title, "the tool failed");
    }
}
