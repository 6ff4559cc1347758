//! What the runner answers.
//!
//! Times are nanoseconds as f64 (CUDA events resolve about 500 ns, and medians of an even count
//! fall between). Values that could not be read are absent and named in `gaps`; no number here is
//! NaN or infinite, so values of mismatching elements are text.

use serde::{Deserialize, Serialize};

/// The answer to one Case under one job; written even when the job fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunnerReport {
    /// [`crate::CASE_ABI`] of the runner.
    pub abi: u32,
    /// Version of the runner.
    pub runner: String,
    /// Name of the kernel spec.
    pub kernel: String,
    /// What was asked.
    pub job: Job,
    /// The model that a Python kernel prepared; absent where it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelReport>,
    /// One per data set that was begun, in the Case's order.
    #[serde(default)]
    pub data_sets: Vec<CaseReport>,
    /// The GPU; absent when none was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceFacts>,
    /// What makes this host a poor place to measure, judged before the first timed call.
    #[serde(default)]
    pub warnings: Vec<HostWarning>,
    /// What could not be read or done, one sentence each.
    #[serde(default)]
    pub gaps: Vec<String>,
    /// Why the job stopped; absent when it ended well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
}

/// What is known of a model once it is built.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReport {
    /// Parameters counted, shared ones once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// The dtype that most parameters have, in torch's words without `torch.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// The best rate of large matrix products of that dtype on the same device, in FLOP/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matmul_flops_per_s: Option<f64>,
}

/// What the runner was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Job {
    /// Compare with the reference, and compare two calls bit by bit.
    Verify,
    /// Measure.
    Time,
    /// Warm up, then launch once per data set inside the range `timed`: what tools look at.
    Once,
    /// Launch with canaries around each buffer and poisoned outputs.
    Guard,
    /// No driver: run and time the reference on the CPU.
    Cpu,
    /// Measure against another Case, timed calls interleaved.
    Pair,
    /// As `once`, under torch's own profiler; Python entries only.
    Torch,
}

impl Job {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Job::Verify => "verify",
            Job::Time => "time",
            Job::Once => "once",
            Job::Guard => "guard",
            Job::Cpu => "cpu",
            Job::Pair => "pair",
            Job::Torch => "torch",
        }
    }
}

/// Results of one data set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    /// [`crate::DataSet::name`].
    pub name: String,
    /// Time of `rgpu_prepare`, for a host entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_ns: Option<f64>,
    /// Time of the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_ns: Option<f64>,
    /// Under `verify`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correctness: Option<Correctness>,
    /// Under `time` and `cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Under `guard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardReport>,
    /// Under `pair`, in the report of the first Case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paired: Option<crate::PairedTiming>,
}

/// Comparison of one data set with the reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Correctness {
    /// Every output matches and no input changed.
    pub passed: bool,
    /// One per output and group; empty when the Case has no reference.
    pub outputs: Vec<OutputCheck>,
    /// Whether two launches on the same inputs gave the same bits.
    pub bit_equal: bool,
    /// Names of `in` arguments whose contents changed.
    #[serde(default)]
    pub changed_inputs: Vec<String>,
}

/// Comparison of one output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputCheck {
    /// Name of the argument.
    pub name: String,
    /// Group, from 0.
    pub group: usize,
    /// Elements compared.
    pub elements: u64,
    /// Elements outside the tolerance.
    pub mismatches: u64,
    /// Elements that still hold the poison: never written.
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
    /// The same as coordinates, outermost first.
    pub coordinates: Vec<u64>,
    /// What the kernel wrote, in decimal, `NaN`, `inf` or `-inf`.
    pub actual: String,
    /// What the reference wrote.
    pub expected: String,
}

/// Which clock gave the samples: the bench ladder's rungs.
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

/// Measured times of one data set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Which clock.
    pub source: TimingSource,
    /// Median of the kept samples.
    pub median_ns: f64,
    /// Order-statistic interval of the median at 95 % or more; with fewer than 6 samples the whole
    /// range, which is then less sure than that.
    pub ci95_ns: [f64; 2],
    /// Kept samples.
    pub samples: usize,
    /// Shortest kept sample.
    pub min_ns: f64,
    /// Median absolute deviation of the kept samples (not scaled).
    pub mad_ns: f64,
    /// Every sample in the order taken, discarded ones too.
    pub sample_ns: Vec<f64>,
    /// Indices into `sample_ns` that are not in the statistics: taken while the SM clock lay below
    /// 95 % of the run's median or the GPU throttled.
    #[serde(default)]
    pub discarded: Vec<usize>,
    /// Whether the interval reached the asked width before the limits.
    pub converged: bool,
    /// Median of an empty pair of events: what the method itself costs. Not subtracted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_ns: Option<f64>,
    /// Whether L2 was flushed before each sample.
    pub l2_flushed: bool,
    /// Bytes written over L2 before each sample, twice the size that the device states for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushed_bytes: Option<u64>,
    /// Median time by the host's clock of a few calls before the samples, from the launch on an idle
    /// GPU to a whole GPU idle again: latency included, work on any stream included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ns: Option<f64>,
    /// How many different contents of the inputs the timed calls had: as many as calls, where each
    /// got data of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<u64>,
    /// How many timed calls had their outputs compared with what the reference makes of the same
    /// data; absent where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<u64>,
    /// How many timed calls had their outputs compared, bit by bit, with those of the first call on
    /// the same data; absent where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<u64>,
    /// Readings while samples ran.
    #[serde(default)]
    pub clocks: Vec<ClockReading>,
}

/// One look at the GPU under load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockReading {
    /// First sample (index into `sample_ns`) of the batch that ran meanwhile.
    pub first_sample: usize,
    /// SM clock in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<u32>,
    /// Memory clock in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_mhz: Option<u32>,
    /// GPU temperature in °C.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Power draw in mW.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u32>,
    /// NVML's clock event reasons that slow the GPU, by our names: `sw_power_cap`,
    /// `hw_slowdown`, `sync_boost`, `sw_thermal`, `hw_thermal`, `hw_power_brake`,
    /// `display_clock`.
    #[serde(default)]
    pub throttle: Vec<String>,
}

/// What the guarded run found. It can say "found", never "clean": it sees only stray writes next
/// to our buffers and elements left unwritten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardReport {
    /// Launches made.
    pub launches: u32,
    /// What was found; empty means only that nothing was seen.
    pub findings: Vec<GuardFinding>,
}

/// One finding of the guarded run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardFinding {
    /// What happened.
    pub kind: GuardKind,
    /// Name of the argument.
    pub arg: String,
    /// Group, from 0.
    pub group: usize,
    /// Byte offset from the start of the argument; negative before it, at or beyond its size
    /// after it.
    pub offset: i64,
    /// Bytes that were overwritten, or elements concerned where `kind` speaks of results.
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
    /// Two launches on the same memory contents gave different bits: a race, most often.
    NotRepeatable,
    /// The result changes with what lay in the outputs or beside the buffers before the launch:
    /// the kernel reads memory that nobody initialised, or beyond an argument.
    ReadsStray,
}

/// The GPU that ran the Case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// As the driver names it.
    pub name: String,
    /// `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// Major and minor.
    pub compute_capability: [u32; 2],
    /// The CUDA version that the driver supports, such as 12040 for 12.4.
    pub cuda_version: u32,
    /// Version of the kernel driver, from NVML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Size of L2 in bytes.
    pub l2_bytes: u64,
    /// Number of SMs.
    pub sms: u32,
}

/// Something that makes times from this host doubtful.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostWarning {
    /// Which kind.
    pub kind: WarningKind,
    /// One sentence with the values.
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
    /// The power limit is below the default, or power holds the clock down.
    PowerLimit,
    /// Temperature holds the clock down.
    ThermalLimit,
    /// The clock is not what the policy asks.
    Clocks,
}

/// Why a job stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// What kind of failure, hence which side is at fault.
    pub class: ErrorClass,
    /// What happened, with the call and its error name where a call failed.
    pub text: String,
    /// In which phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// On which data set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_set: Option<String>,
    /// The failed call, such as `cuLaunchKernel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The numeric error of that call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
}

/// Failure classes; [`ErrorClass::exit_code`] is the runner's exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The command line is wrong.
    Usage,
    /// The Case cannot be read, contradicts itself, or asks what this runner does not know.
    BadCase,
    /// A file that the Case names is missing or unreadable.
    MissingFile,
    /// libcuda is missing or does not start, or it sees no device.
    NoDriver,
    /// The module or library does not load: wrong architecture, damaged PTX, missing symbol.
    Load,
    /// Allocation failed.
    OutOfMemory,
    /// The launch was refused: shape, shared memory, cluster.
    Launch,
    /// The kernel touched memory that is not its own, or hit a similar fault; the context is gone.
    IllegalAccess,
    /// The kernel crashed otherwise: assert, trap, time-out; or a signal ended the process.
    Crash,
    /// `rgpu_prepare` or `rgpu_launch` returned non-zero.
    HostEntry,
    /// The reference failed, or a device reference disagrees with its own check.
    Reference,
    /// Outputs do not match, or an input changed.
    WrongResult,
    /// The guarded run found something.
    GuardFound,
    /// `--strict` and the host is not fit to measure on.
    HostUnfit,
    /// Any other CUDA error.
    Cuda,
    /// The report, range log or compiled file cannot be written.
    Output,
    /// The compiler refused the code or a flag.
    Compile,
    /// NVRTC is missing, incomplete or broken.
    NoCompiler,
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
    /// Launches that nobody measures.
    Warmup,
    /// Comparison with the reference.
    Verify,
    /// What is measured, or shown to a tool.
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
