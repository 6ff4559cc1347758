//! Operators of a framework, such as `aten::mm`, which launch the kernels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::timeline::KernelSum;

/// All calls of one operator.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Operator {
    /// Name in the framework: `aten::mm`.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Host time in nanoseconds over all calls, inner operators included. Nested calls of the same
    /// operator are counted once.
    pub host_ns: u64,
    /// Host time in nanoseconds, inner operators excluded.
    pub host_self_ns: u64,
    /// GPU time in nanoseconds of the work launched inside, by inner operators too; absent if the
    /// trace has no GPU rows.
    pub gpu_ns: Option<u64>,
    /// GPU time in nanoseconds of the work that the operator itself launched.
    pub gpu_self_ns: Option<u64>,
    /// Kernels that the operator itself launched, longest first.
    #[serde(default)]
    pub kernels: Vec<KernelSum>,
    /// Where the operator was called, most GPU time first; empty if the trace does not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<CallSite>,
    /// Floating-point operations of the calls with work on the GPU, from their input shapes; those
    /// of all calls if the trace has no GPU rows. Absent for operators that are no matrix products,
    /// and if the trace lacks shapes.
    pub flops: Option<f64>,
    /// Input shapes of the first call, in the trace's notation; empty if not recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shapes: String,
    /// The calls with GPU work of their own by their inputs, most GPU time first; empty if the
    /// trace has no shapes. Only the first 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<OperatorInputs>,
    /// Source of the numbers: path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// The calls of an operator whose inputs have the same shapes and types.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperatorInputs {
    /// Shapes of the inputs, in the trace's notation.
    pub shapes: String,
    /// Types of the inputs, in the trace's notation; empty if not recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub types: String,
    /// Number of calls with GPU work of their own.
    pub calls: u64,
    /// GPU time in nanoseconds of the work that these calls launched themselves.
    pub gpu_self_ns: u64,
}

impl Operator {
    /// The rate in FLOP/s at which the operator's own GPU work computes.
    pub fn flops_per_s(&self) -> Option<f64> {
        let ns = self.gpu_self_ns.filter(|ns| *ns > 0)?;
        Some(self.flops? * 1e9 / ns as f64)
    }
}

/// A Python function in which an operator was called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallSite {
    /// File, line of the function's `def`, and name: `net.py(9): forward`; code outside of
    /// functions has no line: `train.py: <module>`.
    pub function: String,
    /// Number of calls from there.
    pub calls: u64,
    /// GPU time in nanoseconds of the work that the operator itself launched there; absent if the
    /// trace has no GPU rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_self_ns: Option<u64>,
}
