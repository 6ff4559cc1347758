//! The runner's report.
//!
//! Times are nanoseconds as f64 (CUDA events resolve about 500 ns, and a median of an even count
//! may fall between two samples). Values that could not be read are absent and named in `gaps`. No
//! number here is NaN or infinite, so values of mismatching elements are text.

use serde::{Deserialize, Serialize};

/// The report of one job on one runner input. It is written even when the job fails.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunnerReport {
    /// [`crate::CASE_ABI`] of the runner.
    pub abi: u32,
    /// Version of the runner.
    pub runner: String,
    /// Name of the kernel spec.
    pub kernel: String,
    /// The job that was requested.
    pub job: RunnerJob,
    /// The model that a Python kernel prepared. Absent when there is none.
    pub model: Option<ModelReport>,
    /// One entry per case that was started, in the input's order.
    #[serde(default)]
    pub cases: Vec<CaseReport>,
    /// Result of `board`; `None` if that job did not run.
    pub board: Option<BoardReport>,
    /// The GPU. Absent when none was opened.
    pub device: Option<DeviceFacts>,
    /// Reasons why times measured on this host are unreliable, found before the first timed call.
    #[serde(default)]
    pub warnings: Vec<HostWarning>,
    /// Values that could not be read and checks that could not be made, one sentence each.
    #[serde(default)]
    pub gaps: Vec<String>,
    /// Why the job stopped. Absent when it succeeded.
    pub error: Option<RunnerError>,
}

/// Facts about a model after it was built.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReport {
    /// Number of parameters; shared ones count once.
    pub parameters: Option<u64>,
    /// The dtype of most parameters, by its torch name without `torch.`.
    pub dtype: Option<String>,
    /// The best measured rate of large matrix products in that dtype on the same device, in FLOP/s.
    pub matmul_flops_per_s: Option<f64>,
}

/// The job that the runner was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunnerJob {
    /// Compare with the reference, and compare two calls bit by bit.
    Verify,
    /// Measure the time of launches.
    Time,
    /// Warm up, then launch once per case inside the range `timed`. Profiling tools observe
    /// this job.
    Once,
    /// Launch with canaries around each buffer and poisoned outputs.
    Guard,
    /// Run and time the reference on the CPU; needs no driver.
    Cpu,
    /// Measure against the kernel of another input with interleaved timed calls.
    Pair,
    /// Like `once`, under torch's own profiler. Python entries only.
    Torch,
    /// The leaderboard's own program, which measures by its own rules. Python entries only.
    Board,
}

impl RunnerJob {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            RunnerJob::Verify => "verify",
            RunnerJob::Time => "time",
            RunnerJob::Once => "once",
            RunnerJob::Guard => "guard",
            RunnerJob::Cpu => "cpu",
            RunnerJob::Pair => "pair",
            RunnerJob::Torch => "torch",
            RunnerJob::Board => "board",
        }
    }
}

/// Results of one case.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    /// The name of the case, [`Case::name`](crate::Case::name).
    pub name: String,
    /// Time of `rgpu_prepare` in nanoseconds, for a host entry.
    pub prepare_ns: Option<f64>,
    /// Time of the reference in nanoseconds.
    pub reference_ns: Option<f64>,
    /// Result of `verify`; `None` if that job did not run.
    pub correctness: Option<Correctness>,
    /// Result of `time` and `cpu`.
    pub timing: Option<Timing>,
    /// Result of `guard`; `None` if that job did not run.
    pub guard: Option<GuardReport>,
    /// Result of `pair`, in the report of the first input.
    pub paired: Option<crate::PairedTiming>,
    /// Times of forms of the reference on the same data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<BaselineTime>,
}

/// The time of a form of the reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaselineTime {
    /// The form of the reference.
    pub form: crate::Baseline,
    /// Median of its samples.
    pub median_ns: f64,
    /// Number of samples.
    pub samples: usize,
}

/// Times that the leaderboard's own program told. It runs in the process of the kernel, so these
/// are claims of the kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoardReport {
    /// Whether the program found every result right.
    pub passed: bool,
    /// Mean time of each benchmark in nanoseconds, in the board's order.
    pub mean_ns: Vec<f64>,
    /// Why it gave no times. Empty if it did.
    #[serde(default)]
    pub message: String,
}

/// Comparison of one case with the reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Correctness {
    /// Whether every output matches and no input changed.
    pub passed: bool,
    /// One entry per output and group. Empty when the input has no reference.
    pub outputs: Vec<OutputCheck>,
    /// Whether two launches on the same inputs gave the same bits.
    pub bit_equal: bool,
    /// Names of `in` arguments whose contents changed.
    #[serde(default)]
    pub changed_inputs: Vec<String>,
    /// The text of a function of the task that judged the result in place of a comparison; often
    /// empty if the result is right. Absent if there is no such function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checker: Option<String>,
}

/// Comparison of one output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputCheck {
    /// Name of the argument.
    pub name: String,
    /// The group of a grouped kernel, from 0; 0 for any other kernel.
    pub group: usize,
    /// Number of elements that were compared.
    pub elements: u64,
    /// Elements outside the tolerance.
    pub mismatches: u64,
    /// Elements that the kernel never wrote: they still hold the poison.
    #[serde(default)]
    pub unwritten: u64,
    /// Largest `|actual - expected|` among pairs of finite values.
    pub max_abs_error: f64,
    /// Largest `|actual - expected| / |expected|` among pairs of finite values with expected ≠ 0.
    pub max_rel_error: f64,
    /// The first element outside the tolerance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_mismatch: Option<Mismatch>,
}

/// One element outside the tolerance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Index in row-major order.
    pub index: u64,
    /// The same position as coordinates, outermost first.
    pub coordinates: Vec<u64>,
    /// The kernel's value in decimal, `NaN`, `inf` or `-inf`.
    pub actual: String,
    /// The value of the reference, as text.
    pub expected: String,
}

/// The clock that measured the samples, which is the rung of the bench ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimingSource {
    /// CUDA events around the launch.
    Events,
    /// The host's monotonic clock around launch and synchronisation.
    Host,
    /// The host's monotonic clock around the reference on the CPU.
    Cpu,
}

/// Measured times of one case.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The clock that measured the samples.
    pub source: TimingSource,
    /// Median of the kept samples.
    pub median_ns: f64,
    /// Interval of the median from order statistics, at 95 % or more. With fewer than 6 samples it
    /// is the full range, whose confidence is lower.
    pub ci95_ns: [f64; 2],
    /// Number of kept samples.
    pub samples: usize,
    /// The shortest sample that was not discarded, in nanoseconds.
    pub min_ns: f64,
    /// Median absolute deviation of the kept samples (not scaled).
    pub mad_ns: f64,
    /// Every sample in the order taken, including discarded ones.
    pub sample_ns: Vec<f64>,
    /// Indices into `sample_ns` of samples left out of the statistics, because the SM clock was
    /// below 95 % of the run's median or the GPU throttled.
    #[serde(default)]
    pub discarded: Vec<usize>,
    /// Whether the interval became narrow enough before a limit ended sampling.
    pub converged: bool,
    /// Median time between two events with nothing between them: the overhead of the method. Not
    /// subtracted.
    pub overhead_ns: Option<f64>,
    /// Whether L2 was flushed before each sample.
    pub l2_flushed: bool,
    /// Bytes written over L2 before each sample: twice the L2 size that the device reports.
    pub flushed_bytes: Option<u64>,
    /// Median host-clock time of a few calls before the samples, from the launch on an idle GPU
    /// until the whole GPU is idle again. Includes latency and work on any stream.
    pub wall_ns: Option<f64>,
    /// Number of different input contents among the timed calls; equal to the number of calls when
    /// each call got its own data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_inputs: Option<u64>,
    /// Number of timed calls whose outputs were compared with the reference's on the same data.
    /// Absent when there were none.
    pub verified: Option<u64>,
    /// Number of timed calls whose outputs were compared bit by bit with those of the first call on
    /// the same data. Absent when there were none.
    pub repeated: Option<u64>,
    /// NVML readings taken while samples ran.
    #[serde(default)]
    pub clocks: Vec<ClockReading>,
    /// The same calls inside a CUDA graph. Absent for kernels that are not short.
    pub graph: Option<GraphTiming>,
    /// The wait for a hot GPU before this case. Absent when it was not hot.
    pub cooling: Option<Cooling>,
    /// How far the kernel could have influenced the times. Absent in reports of older runners.
    pub trust: Option<Trust>,
    /// Why the times are [`Trust::Unprotected`].
    pub trust_reason: Option<String>,
    /// The judge's own wall time of rounds whose outputs were all right, in nanoseconds a call: the
    /// kernel's work took no longer than that.
    pub bound_ns: Option<f64>,
    /// The least and the largest of the rounds of `bound_ns`.
    pub bound_range_ns: Option<[f64; 2]>,
    /// Median of the times that the kernel's process claimed, in nanoseconds.
    pub claimed_ns: Option<f64>,
    /// Bytes that any right kernel moves: those of the outputs, and of the inputs as far as changes
    /// of them were seen to change the outputs. Absent when that is unknown.
    pub needed_bytes: Option<u64>,
}

/// How far the kernel could have influenced its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// The kernel's code cannot reach the clock: it has no code on the host, or its process' claims
    /// agree with the judge's clock.
    Proven,
    /// The time is the judge's bound: the claims lie below it.
    Bounded,
    /// The kernel shares a process with its clock.
    Unprotected,
}

/// A wait until a hot GPU had cooled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cooling {
    /// Seconds that were waited.
    pub seconds: f64,
    /// Headroom before the wait: °C below the temperature at which the driver slows the GPU down.
    pub from_c: i32,
    /// Headroom after the wait.
    pub to_c: i32,
}

/// Times of calls inside a CUDA graph, with L2 flushed between them.
///
/// A sample is the time of a replay of the graph, less that of a graph with the same flushes and
/// without the calls, divided by the number of calls. So it has the step from one node of the graph
/// to the next, but no gap between events and launch.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GraphTiming {
    /// Median of the kept samples.
    pub median_ns: f64,
    /// Interval of the median. If the samples have a step, it covers the levels on both sides
    /// ([`crate::stats::Summary::from_series`]).
    pub ci95_ns: [f64; 2],
    /// Number of kept samples.
    pub samples: usize,
    /// Every sample in the order taken, including discarded ones.
    pub sample_ns: Vec<f64>,
    /// Indices into `sample_ns` of samples left out, as [`Timing::discarded`].
    #[serde(default)]
    pub discarded: Vec<usize>,
    /// Whether the interval became narrow enough before a limit ended sampling.
    pub converged: bool,
    /// Calls in the graph.
    pub launches: u32,
    /// Median time between two calls that was subtracted: flushing L2, restoring `inout` tensors
    /// and poisoning outputs.
    pub prepare_ns: f64,
    /// Nodes of the graph that each call added. Absent in reports of older runners.
    pub call_nodes: Option<u32>,
    /// Nodes of the graph between two calls. Absent in reports of older runners.
    pub prepare_nodes: Option<u32>,
}

/// One NVML reading of the GPU under load.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockReading {
    /// Index into `sample_ns` of the first sample of the batch that ran during the reading.
    pub first_sample: usize,
    /// SM clock in MHz.
    pub sm_mhz: Option<u32>,
    /// Memory clock in MHz.
    pub mem_mhz: Option<u32>,
    /// GPU temperature in °C.
    pub temperature_c: Option<u32>,
    /// Power draw in mW.
    pub power_mw: Option<u32>,
    /// The NVML clock event reasons that slow the GPU, by rgpu's names: `sw_power_cap`,
    /// `hw_slowdown`, `sync_boost`, `sw_thermal`, `hw_thermal`, `hw_power_brake`, `display_clock`.
    #[serde(default)]
    pub throttle: Vec<String>,
}

/// Findings of the guarded run. The absence of findings is no proof of correctness: the run sees
/// only stray writes next to our buffers and elements left unwritten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardReport {
    /// Number of guarded launches.
    pub launches: u32,
    /// The findings. An empty list means only that nothing was observed.
    pub findings: Vec<GuardFinding>,
}

/// One finding of the guarded run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardFinding {
    /// The guard's findings.
    pub kind: GuardKind,
    /// Name of the argument.
    pub arg: String,
    /// The group of a grouped kernel, from 0; 0 for any other kernel.
    pub group: usize,
    /// Byte offset from the start of the argument. Negative before it; at least its size after it.
    pub offset: i64,
    /// Number of overwritten bytes, or of affected elements where `kind` is about results.
    pub count: u64,
}

/// Kinds of guard findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardKind {
    /// A canary before the buffer was overwritten.
    WriteBefore,
    /// A canary after the buffer was overwritten.
    WriteAfter,
    /// Elements of an output were never written.
    Unwritten,
    /// An input was written.
    InputWritten,
    /// Two launches on the same memory contents gave different bits, usually because of a race.
    NotRepeatable,
    /// The result depends on the contents of the outputs or of memory beside the buffers before the
    /// launch: the kernel reads uninitialised memory or beyond an argument.
    ReadsStray,
}

/// The GPU that ran the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Name reported by the driver.
    pub name: String,
    /// The GPU's UUID from the driver, `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// Major and minor version.
    pub compute_capability: [u32; 2],
    /// The CUDA version that the driver supports, such as 12040 for 12.4.
    pub cuda_version: u32,
    /// Version of the kernel driver, from NVML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// Size of L2 in bytes.
    pub l2_bytes: u64,
    /// Number of streaming multiprocessors.
    pub sms: u32,
}

/// A reason to doubt times measured on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostWarning {
    /// The kind of the warning.
    pub kind: WarningKind,
    /// One sentence with the measured values.
    pub text: String,
}

/// Kinds of host warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// The GPU is a vGPU.
    VirtualGpu,
    /// The device is a MIG slice.
    MigSlice,
    /// Other processes use the GPU.
    OtherProcesses,
    /// The power limit is below the default, or power limits the clock.
    PowerLimit,
    /// Temperature limits the clock.
    ThermalLimit,
    /// The clock differs from the policy.
    Clocks,
}

/// Why a job stopped.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerError {
    /// Kind of failure, which also says which side is at fault.
    pub class: ErrorClass,
    /// Description of the failure, with the call and its error name where a call failed.
    pub text: String,
    /// The phase in which the job stopped.
    pub phase: Option<Phase>,
    /// The case on which the job stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// The failed call, such as `cuLaunchKernel`.
    pub call: Option<String>,
    /// The numeric error of that call.
    pub code: Option<i64>,
}

/// Failure classes; [`ErrorClass::exit_code`] is the runner's exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The command line is wrong.
    Usage,
    /// The runner input cannot be read, contradicts itself, or asks for a feature that this runner
    /// lacks.
    BadCase,
    /// A file that the runner input names is missing or unreadable.
    MissingFile,
    /// libcuda is missing or does not initialise, or it sees no device.
    NoDriver,
    /// The module or library does not load: wrong architecture, damaged PTX, missing symbol.
    Load,
    /// Memory cannot be allocated.
    OutOfMemory,
    /// The launch was refused: shape, shared memory, cluster.
    Launch,
    /// The kernel accessed memory it does not own, or had a similar fault. The context is lost.
    IllegalAccess,
    /// The kernel ended in another way (assert, trap, time-out), or a signal ended the process.
    Crash,
    /// `rgpu_prepare` or `rgpu_launch` returned non-zero.
    HostEntry,
    /// The reference failed, or a device reference disagrees with its own check.
    Reference,
    /// Outputs do not match, or an input changed.
    WrongResult,
    /// The guarded run found something.
    GuardFound,
    /// `--strict` was given and the host is not fit for measuring.
    HostUnfit,
    /// Any other CUDA error.
    Cuda,
    /// The report, range log or compiled file cannot be written.
    Output,
    /// The compiler rejected the code or a flag.
    Compile,
    /// NVRTC is missing, incomplete or broken.
    NoCompiler,
    /// The kernel's process claims times that the judge's clock refutes.
    ClocksDisagree,
    /// No right kernel can have such results or times.
    NotCredible,
    /// A defect of the runner.
    Internal,
}

impl ErrorClass {
    /// Exit status of the runner. 0 is success; statuses from 128 mean a signal.
    ///
    /// | status | class |
    /// |---|---|
    /// | 1 | `wrong_result` |
    /// | 2 | `usage` |
    /// | 3 | `bad_case`, `missing_file` |
    /// | 4 | `no_driver` |
    /// | 5 | `load` |
    /// | 6 | `launch`, `out_of_memory` |
    /// | 7 | `illegal_access`, `crash` |
    /// | 8 | `host_entry` |
    /// | 9 | `reference` |
    /// | 10 | `guard_found` |
    /// | 11 | `host_unfit` |
    /// | 12 | `cuda` |
    /// | 13 | `output` |
    /// | 14 | `compile` |
    /// | 15 | `no_compiler` |
    /// | 16 | `clocks_disagree` |
    /// | 17 | `not_credible` |
    /// | 70 | `internal` |
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorClass::WrongResult => 1,
            ErrorClass::Usage => 2,
            ErrorClass::BadCase | ErrorClass::MissingFile => 3,
            ErrorClass::NoDriver => 4,
            ErrorClass::Load => 5,
            ErrorClass::Launch | ErrorClass::OutOfMemory => 6,
            ErrorClass::IllegalAccess | ErrorClass::Crash => 7,
            ErrorClass::HostEntry => 8,
            ErrorClass::Reference => 9,
            ErrorClass::GuardFound => 10,
            ErrorClass::HostUnfit => 11,
            ErrorClass::Cuda => 12,
            ErrorClass::Output => 13,
            ErrorClass::Compile => 14,
            ErrorClass::NoCompiler => 15,
            ErrorClass::ClocksDisagree => 16,
            ErrorClass::NotCredible => 17,
            ErrorClass::Internal => 70,
        }
    }
}

/// Phases of a job; their names are the outer NVTX ranges of the domain `rgpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Load, allocate, fill, prepare.
    Setup,
    /// Launches that are not measured.
    Warmup,
    /// Comparison with the reference.
    Verify,
    /// Launches that are measured, or observed by a tool.
    Timed,
}

impl Phase {
    /// The name of the range.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Setup => "setup",
            Phase::Warmup => "warmup",
            Phase::Verify => "verify",
            Phase::Timed => "timed",
        }
    }
}
