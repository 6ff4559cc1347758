//! The data of one problem size: arguments, their contents and the launch shape.

use crate::{Dtype, RunnerJob, Setting, Tolerance};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One problem size ("case" in `--problem-sizes`): all data of one launch.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Name, unique in the file, such as `n=1024`. Only letters, digits and `_ - . = + ,`.
    pub name: String,
    /// Names of the size variables, in the order of [`Group::sizes`].
    #[serde(default)]
    pub vars: Vec<String>,
    /// Parameters of the functions that make the data, beside the size variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Setting>,
    /// The jobs that take this case; empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<RunnerJob>,
    /// The groups of a grouped problem; exactly one for a kernel without `groups = true`.
    pub groups: Vec<Group>,
    /// Launch shape of a device entry; absent for a host entry.
    pub launch: Option<LaunchShape>,
    /// Launch shape of [`crate::Reference::DeviceKernel`] for this case.
    pub reference_launch: Option<LaunchShape>,
    /// Floating-point operations of one launch, summed over the groups. Absent when the spec does
    /// not state it.
    pub flops: Option<f64>,
    /// Bytes that one launch must move at least, summed over the groups. Absent when the spec does
    /// not state it.
    pub bytes: Option<f64>,
    /// Floating-point operations of each NVTX region that states its own count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub region_flops: BTreeMap<String, f64>,
}

impl Case {
    /// Whether a job takes this case.
    pub fn is_for(&self, job: RunnerJob) -> bool {
        self.jobs.is_empty() || self.jobs.contains(&job)
    }

    /// The name of the NVTX range around this case: `name` without `,` and `+`, which are
    /// operators in ncu's range filters.
    pub fn range_name(&self) -> String {
        self.name.replace(',', " ").replace('+', "&")
    }
}

/// One group: its sizes and its own arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// One value for each of [`Case::vars`].
    #[serde(default)]
    pub sizes: Vec<i64>,
    /// Arguments in the order of the kernel's parameters. All groups have the same names, roles and
    /// dtypes.
    pub args: Vec<Arg>,
}

/// One kernel argument.
///
/// A device entry gets a pointer for a tensor and the value itself (in the width of its dtype) for
/// a scalar, in the order of [`Group::args`]. A host entry gets an `rgpu_tensor` for each.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arg {
    /// An identifier, as in `kernel.toml`.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// Row-major extents, outermost first; empty for a scalar.
    #[serde(default)]
    pub dims: Vec<u64>,
    /// How the kernel uses it.
    pub role: Role,
    /// How it is filled. Absent for `out` (poisoned) and `scalar` (see `value`). An `in` or `inout`
    /// without it gets [`Init::Zeros`].
    pub init: Option<Init>,
    /// Seed of this argument. When absent, it is derived from the input's seed and the position.
    pub seed: Option<u64>,
    /// The value of a scalar.
    pub value: Option<Number>,
    /// Tolerance of this output. When absent, the input's default applies.
    pub tolerance: Option<Tolerance>,
}

impl Arg {
    /// Number of elements; 1 for a scalar. `None` when it does not fit in 64 bits.
    pub fn count(&self) -> Option<u64> {
        self.dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim))
    }

    /// Size of the packed data in bytes. `None` when it does not fit in 64 bits.
    pub fn bytes(&self) -> Option<u64> {
        self.dtype.bytes_for(self.count()?)
    }
}

/// How a kernel uses an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read only. Changed contents after a launch are an error.
    In,
    /// Written only. Poisoned before the launch and compared after it.
    Out,
    /// Read and written. Filled again before each launch and compared after it.
    InOut,
    /// A single value, passed by value.
    Scalar,
}

impl Role {
    /// Whether the result is compared with the reference.
    pub fn is_output(self) -> bool {
        matches!(self, Role::Out | Role::InOut)
    }
}

/// How a tensor is filled. The contents are generated on the CPU from the seed and then copied, so
/// the kernel and every reference see the same bytes. Floats are rounded to nearest even into the
/// dtype and saturate at its largest finite value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// Uniform in `[lo, hi)`; integers are truncated towards zero.
    Uniform {
        /// Lower bound, included.
        lo: f64,
        /// Upper bound, excluded (rounding into a narrow dtype may reach it).
        hi: f64,
    },
    /// Random values with a normal distribution.
    Normal {
        /// Mean of the values before they are rounded into the dtype.
        mean: f64,
        /// Standard deviation before they are rounded into the dtype.
        sd: f64,
    },
    /// Whole numbers with equal probability, both bounds included.
    Ints {
        /// Smallest value, included.
        lo: i64,
        /// Largest value, included.
        hi: i64,
    },
    /// Random bits under a mask, each code under it with equal probability. Codes of NaN or an
    /// infinity become zero. `0xb` gives e2m1 the values ±0, ±0.5, ±1, ±1.5.
    Bits {
        /// Bits that may be set.
        mask: u64,
    },
    /// The raw little-endian bytes of a file beside the runner input; its size must equal the
    /// tensor's.
    File {
        /// Path relative to the runner input.
        path: String,
    },
    /// All bits zero, which is 0 in every dtype.
    Zeros,
    /// The same value in every element.
    Const {
        /// The value, rounded into the dtype.
        value: Number,
    },
}

/// A JSON number; whole numbers stay exact.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// A JSON number without a fraction or exponent that fits in 64 bits.
    Int(i64),
    /// Any other JSON number; JSON has no NaN or infinity.
    Float(f64),
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Number::Int(value)
    }
}

impl Number {
    /// The nearest `f64`; whole numbers beyond 2^53 are rounded.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
        }
    }
}

/// The shape of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchShape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads in x, y, z.
    pub block: [u32; 3],
    /// Blocks per cluster in x, y, z; absent: a launch without clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u32; 3]>,
    /// Dynamic shared memory of a block, in bytes.
    #[serde(default)]
    pub dynamic_shared: u32,
}
