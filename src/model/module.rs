//! Compiled code: what a cubin says of each kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kernel in a cubin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelCode {
    /// Symbol, mangled.
    pub symbol: String,
    /// Demangled name where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// e.g. `sm_90a`.
    pub arch: String,
    /// Registers per thread.
    pub registers: u32,
    /// Stack per thread in bytes; absent where it cannot be determined (recursion).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_bytes: Option<u32>,
    /// Spilled bytes stored and loaded, per thread; absent where the compiler did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_store_bytes: Option<u32>,
    /// See `spill_store_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_load_bytes: Option<u32>,
    /// Static shared memory per block in bytes.
    pub shared_bytes: u32,
    /// Parameter and constant bank bytes.
    pub constant_bytes: u32,
    /// Named barriers.
    pub barriers: u32,
    /// Most threads a block may have, where bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_threads: Option<u32>,
    /// Code size in bytes.
    pub code_bytes: u64,
    /// Compiler that made it, e.g. `ptxas 13.0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compiler: String,
    /// The cubin's path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}
