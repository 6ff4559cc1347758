//! The runner input: entry, cases, reference, tolerance and timing plan.

use crate::{Case, Number};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the runner input, the report and the host-entry ABI. All three change together.
pub const CASE_ABI: u32 = 1;

/// Everything the runner needs for one kernel, written as a JSON file. All paths are relative to
/// that file's folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunnerInput {
    /// [`CASE_ABI`]; a runner refuses any other value.
    pub abi: u32,
    /// Name of the kernel spec.
    pub kernel: String,
    /// The kernel or function to launch.
    pub entry: EntryPoint,
    /// The problem sizes, in the order of the command line.
    pub cases: Vec<Case>,
    /// The reference for the outputs. When absent, nothing is compared, and the report says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    /// Default tolerance of all outputs.
    #[serde(default)]
    pub tolerance: Tolerance,
    /// Seed of every generated input.
    #[serde(default)]
    pub seed: u64,
    /// Warm-up and sampling of `time` and `once`.
    #[serde(default)]
    pub timing: TimingPlan,
    /// Conditions that the host should meet.
    #[serde(default)]
    pub policies: Policies,
    /// The rules of the leaderboard that the kernel is meant for. When absent, there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board: Option<BoardRules>,
}

/// How a leaderboard makes one number of the times, and its own program that measures them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoardRules {
    /// How the times of the cases become one.
    pub ranking_by: RankingBy,
    /// Path of the board's own program, which speaks its protocol. When absent, it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The timed cases, as lines of that program's case file.
    #[serde(default)]
    pub benchmarks: Vec<String>,
    /// Limit on that program's run in seconds.
    #[serde(default)]
    pub timeout_s: u64,
}

/// How a leaderboard makes one time of those of its benchmarks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RankingBy {
    /// The time of the last benchmark.
    #[default]
    Last,
    /// The arithmetic mean.
    Mean,
    /// The geometric mean.
    Geom,
}

impl RankingBy {
    /// Its word in a task.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Mean => "mean",
            Self::Geom => "geom",
        }
    }

    /// One time of those of the benchmarks, in the board's order. `None` without times.
    pub fn combine(self, times_ns: &[f64]) -> Option<f64> {
        let count = times_ns.len() as f64;
        let last = *times_ns.last()?;
        Some(match self {
            Self::Last => last,
            Self::Mean => times_ns.iter().sum::<f64>() / count,
            Self::Geom => (times_ns.iter().map(|time| time.ln()).sum::<f64>() / count).exp(),
        })
    }
}

/// The kernel or function to launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryPoint {
    /// A `__global__` function, which the runner launches itself.
    Device {
        /// Path of a cubin, fatbin or PTX file.
        module: String,
        /// The symbol in the module. A plain name also works for a kernel that is not `extern "C"`,
        /// if exactly one kernel of the module has it (no second template instance).
        function: String,
    },
    /// A shared library with the host-entry ABI of `rgpu.h` (`rgpu_prepare`, `rgpu_launch`,
    /// `rgpu_finish`).
    Host {
        /// Path of the `.so`.
        library: String,
    },
    /// A Python callable. The generated `harness.py` reads the same input and runs it; the runner
    /// refuses it.
    Python(PythonEntry),
}

/// A Python callable that takes torch tensors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PythonEntry {
    /// Path of the Python source.
    pub file: String,
    /// Name of the callable. Each parameter gets the argument, size variable or extra (`model`,
    /// `data`, `seed`, `device`) of the same name.
    pub function: String,
    /// A callable that runs once per case before everything else. Its result is `model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// Whether every timed call gets new contents.
    #[serde(default)]
    pub fresh: bool,
    /// Whether a size is passed as a tuple over the groups, even if there is only one group.
    #[serde(default)]
    pub grouped: bool,
    /// The keys of `[model]`, passed to parameters of the same names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub model: BTreeMap<String, Setting>,
    /// What makes the data of a case, for a kernel without declared arguments. When absent, it is
    /// `generate_input` of the reference's file, and the callable takes one parameter, `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<PythonInputs>,
    /// Compare its time with these forms of the reference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<Baseline>,
}

/// The Python functions that make the data of a case: any tree of tensors, numbers, texts, tuples,
/// lists, dicts and objects.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PythonInputs {
    /// Path of the Python source.
    pub file: String,
    /// The callable that makes the data. Its parameters get the case's values of the same names.
    pub function: String,
    /// The callable that makes the arguments for the constructor, where the entry and the
    /// reference are classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constructor: Option<String>,
    /// Whether the data is a list of arguments. Otherwise it is the only argument.
    #[serde(default)]
    pub spread: bool,
}

/// A form of the reference whose time is compared with the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Baseline {
    /// As it is written.
    Eager,
    /// After `torch.compile`.
    Compile,
}

/// The value of a key of `[model]`, or of a case's parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// `true` or `false`.
    Bool(bool),
    /// A number; a whole one stays exact.
    Number(Number),
    /// A string, without the quotes of TOML.
    Text(String),
    /// Several values; a tuple in Python.
    List(Vec<Setting>),
}

impl std::fmt::Display for Setting {
    /// As Python's `str` does it, with a list in brackets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::Number(Number::Int(number)) => number.fmt(f),
            Self::Number(Number::Float(number)) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
        }
    }
}

/// The source of the expected outputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// A C function on host memory.
    HostLibrary(HostFunction),
    /// A slow, simple kernel, for sizes at which a CPU would take minutes. It takes the same
    /// arguments as the entry, and is trusted only after it agrees with `check` on every case
    /// of `small`.
    DeviceKernel {
        /// Path of a cubin, fatbin or PTX file.
        module: String,
        /// Symbol, as in [`EntryPoint::Device`].
        function: String,
        /// The host function that checks the kernel.
        check: HostFunction,
        /// Small cases for that check; each has a `reference_launch`.
        small: Vec<Case>,
    },
    /// The equivalent for a host entry: a function of a shared library that launches slow, simple
    /// kernels, `int f(const rgpu_case *, cudaStream_t)` on device pointers.
    DeviceFunction {
        /// Path of the `.so`; usually the entry's own.
        library: String,
        /// The name of the exported function.
        function: String,
        /// The host function that checks this one.
        check: HostFunction,
        /// Small cases for that check.
        small: Vec<Case>,
    },
    /// A Python callable, for an [`EntryPoint::Python`].
    Python {
        /// Path of the Python source.
        file: String,
        /// Name of the callable. Its parameters are filled as those of the entry.
        function: String,
        /// A callable of the same file that judges a result: it takes the data and the result, and
        /// returns whether it is right, with a text. The values are then not compared with those
        /// of `function`, which may be missing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checker: Option<String>,
        /// Tolerance of outputs in formats of 16 bits, where it differs from the input's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        half_tolerance: Option<Tolerance>,
    },
}

/// A C function `int f(const rgpu_case *)` in a shared library, which gets host pointers and
/// returns 0 on success; or a function of a Python file, whose parameters are filled by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFunction {
    /// Path of the `.so` or `.py`.
    pub library: String,
    /// The name; `rgpu_reference` unless the spec names another.
    #[serde(default = "reference_symbol")]
    pub function: String,
}

impl HostFunction {
    /// Whether it is a function of a Python file.
    pub fn is_python(&self) -> bool {
        self.library.ends_with(".py")
    }
}

fn reference_symbol() -> String {
    "rgpu_reference".to_owned()
}

/// An element matches when `|actual - expected| <= abs + rel * |expected|`.
///
/// NaN matches NaN, and an infinity matches only itself. Zero in both parts requires equal values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tolerance {
    /// Absolute part, in the unit of the output.
    #[serde(default)]
    pub abs: f64,
    /// Relative part, as a fraction.
    #[serde(default)]
    pub rel: f64,
    /// Fraction of elements (0 to 1) that may exceed the tolerance, for outputs whose rounding may
    /// flip.
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
    /// Exact number of samples. When absent, sampling continues until `ci_target`, within the
    /// limits below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iters: Option<u32>,
    /// Minimum number of samples.
    pub min_iters: u32,
    /// Stop when the half-width of the median's 95 % interval is at most this fraction of it.
    pub ci_target: f64,
    /// Stop after this many seconds of sampling per case.
    pub max_seconds: f64,
    /// Overwrite a buffer of at least the size of L2 before each sample.
    pub flush_l2: bool,
    /// Cases with a shorter median, in nanoseconds, are timed again inside a CUDA graph. 0: none.
    pub graph_below_ns: f64,
    /// Wait at most this many seconds before each case until a hot GPU has cooled. 0: never.
    pub cool_seconds: f64,
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
            graph_below_ns: 20_000.0,
            cool_seconds: 60.0,
        }
    }
}

/// Conditions that the host should meet before the first timed call. The runner warns about a host
/// that does not meet them, and refuses it under `--strict`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policies {
    /// The SM clock that is expected.
    pub clocks: ClockPolicy,
}

/// The expected SM clock. The runner checks it under load and never sets it: where it is to be
/// locked, the agent does that for the whole job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockPolicy {
    /// Any clock is accepted and recorded.
    #[default]
    AsFound,
    /// The clock is expected to be locked at this frequency (within 2 %).
    Locked {
        /// The clock of the SMs in MHz.
        sm_mhz: u32,
    },
}
