//! Operators of a framework: what a program asked for, above the kernels that did it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::timeline::KernelSum;

/// All calls of one operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Operator {
    /// The framework's name: `aten::mm`.
    pub name: String,
    /// How often it was called.
    pub calls: u64,
    /// Host time in nanoseconds over all calls, inner operators included. Calls of the operator
    /// within itself are counted once.
    pub host_ns: u64,
    /// Host time in nanoseconds without that of inner operators.
    pub host_self_ns: u64,
    /// GPU time in nanoseconds of what was launched inside, by inner operators too; absent where
    /// the trace has no GPU rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ns: Option<u64>,
    /// GPU time in nanoseconds of what the operator itself launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_self_ns: Option<u64>,
    /// Kernels that the operator itself launched, longest first.
    #[serde(default)]
    pub kernels: Vec<KernelSum>,
    /// Shapes of the inputs of the first call, as the trace spells them; empty where not recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub shapes: String,
    /// Where the numbers come from: path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}
