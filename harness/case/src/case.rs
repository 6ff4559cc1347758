//! The Case itself: entry, reference, tolerance, timing plan.

use crate::{Case, Number};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the Case, the report and the host-entry ABI; they change together.
pub const CASE_ABI: u32 = 1;

/// Everything the runner needs for one kernel. All paths are relative to the Case file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunnerInput {
    /// [`CASE_ABI`]; a runner refuses any other value.
    pub abi: u32,
    /// Name of the kernel spec.
    pub kernel: String,
    /// What is launched.
    pub entry: Entry,
    /// The problem sizes, in the order asked.
    pub data_sets: Vec<Case>,
    /// What the outputs are compared with; absent: nothing is compared, and the report says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// Default tolerance of all outputs.
    #[serde(default)]
    pub tolerance: Tolerance,
    /// Seed of every generated input.
    #[serde(default)]
    pub seed: u64,
    /// How `time` and `once` run.
    #[serde(default)]
    pub timing: TimingPlan,
    /// What the host should be like.
    #[serde(default)]
    pub policies: Policies,
}

/// What is launched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A `__global__` function.
    Device {
        /// Cubin, fatbin or PTX.
        module: String,
        /// The symbol as in the module, or the plain name of a kernel that is not `extern "C"`, as
        /// long as just one kernel of the module has it (no second template instance).
        function: String,
    },
    /// A shared library with the host-entry ABI of `rgpu.h` (`rgpu_prepare`, `rgpu_launch`,
    /// `rgpu_finish`).
    Host {
        /// The `.so`.
        library: String,
    },
    /// A Python callable: for the generated `harness.py`, which reads the same Case; the runner
    /// refuses it.
    Python(PythonEntry),
}

/// A Python callable that works on tensors of torch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PythonEntry {
    /// The source.
    pub file: String,
    /// The callable. Each of its parameters gets the argument, size variable or extra (`model`,
    /// `data`, `seed`, `device`) of its name.
    pub function: String,
    /// Called once for each data set before anything else; what it returns is `model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// New contents for every timed call.
    #[serde(default)]
    pub fresh: bool,
    /// Whether a size is a tuple over the groups, even of one group.
    #[serde(default)]
    pub grouped: bool,
    /// The keys of `[model]`, for parameters of these names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub model: BTreeMap<String, Setting>,
}

/// The value of a key of `[model]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
}

/// What the outputs are compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// A C function on host memory.
    HostLibrary(HostFunction),
    /// A slow, plain kernel for sizes at which a CPU would take minutes. It takes the same
    /// arguments as the entry, and is trusted only after it agrees with `check` on every data set
    /// of `small`.
    DeviceKernel {
        /// Cubin, fatbin or PTX.
        module: String,
        /// Symbol, as in [`Entry::Device`].
        function: String,
        /// The host function that checks the kernel.
        check: HostFunction,
        /// Small data sets for that check; each has a `reference_launch`.
        small: Vec<Case>,
    },
    /// The same for a host entry: a function of a shared library that launches slow, plain kernels,
    /// `int f(const rgpu_case *, cudaStream_t)` on device pointers.
    DeviceFunction {
        /// The `.so`; the entry's own, most often.
        library: String,
        /// The symbol.
        function: String,
        /// The host function that checks it.
        check: HostFunction,
        /// Small data sets for that check.
        small: Vec<Case>,
    },
    /// A Python callable, for an [`Entry::Python`].
    Python {
        /// Its source.
        file: String,
        /// The callable; parameters as the entry's.
        function: String,
    },
}

/// A C function `int f(const rgpu_case *)` in a shared library, given host pointers; 0 is success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFunction {
    /// The `.so`.
    pub library: String,
    /// The symbol; `rgpu_reference` unless the spec names another.
    #[serde(default = "reference_symbol")]
    pub function: String,
}

fn reference_symbol() -> String {
    "rgpu_reference".to_owned()
}

/// An element matches when `|actual - expected| <= abs + rel * |expected|`.
///
/// NaN matches NaN and an infinity only itself. Zero on both sides asks for equal values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tolerance {
    /// Absolute part, in the unit of the output.
    #[serde(default)]
    pub abs: f64,
    /// Relative part, as a fraction.
    #[serde(default)]
    pub rel: f64,
    /// Fraction of elements that may lie outside, for outputs whose rounding may flip (0 to 1).
    #[serde(default)]
    pub mismatch_fraction: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Tolerance { abs: 0.0, rel: 0.0, mismatch_fraction: 0.0 }
    }
}

/// How `time` samples, and how many launches warm up before `time` and `once`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimingPlan {
    /// Launches before the first sample.
    pub warmup: u32,
    /// Exactly this many samples; absent: as many as `ci_target` asks, within the limits below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iters: Option<u32>,
    /// At least this many samples.
    pub min_iters: u32,
    /// Stop when the half-width of the median's 95 % interval is at most this fraction of it.
    pub ci_target: f64,
    /// Stop after this many seconds of sampling per data set.
    pub max_seconds: f64,
    /// Overwrite a buffer of at least the size of L2 before each sample.
    pub flush_l2: bool,
}

impl Default for TimingPlan {
    fn default() -> Self {
        TimingPlan {
            warmup: 5,
            iters: None,
            min_iters: 30,
            ci_target: 0.005,
            max_seconds: 10.0,
            flush_l2: true,
        }
    }
}

/// What the host should be like before the first timed call. A host that is not so is warned of,
/// and refused under `--strict`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policies {
    /// SM clock.
    pub clocks: ClockPolicy,
}

/// The SM clock asked for. The runner checks it under load and never sets it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockPolicy {
    /// Whatever the GPU does; recorded.
    #[default]
    AsFound,
    /// The clock is expected to be locked at this frequency (within 2 %).
    Locked {
        /// In MHz.
        sm_mhz: u32,
    },
}
