//! Compiled code: the facts that a cubin gives for each kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Facts of one kernel in a cubin.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelCode {
    /// Mangled symbol.
    pub symbol: String,
    /// Demangled name; absent if it equals the symbol.
    pub name: Option<String>,
    /// Architecture, e.g. `sm_90a`.
    pub arch: String,
    /// Registers per thread.
    pub registers: u32,
    /// Stack per thread in bytes; absent if it cannot be determined (recursion).
    pub stack_bytes: Option<u32>,
    /// Bytes of spill stores per thread; absent if the compiler did not record them.
    pub spill_store_bytes: Option<u32>,
    /// Bytes of spill loads per thread; absent if the compiler did not record them.
    pub spill_load_bytes: Option<u32>,
    /// Static shared memory per block in bytes, without the part that the system reserves.
    pub shared_bytes: u32,
    /// Shared memory per block that the system reserves in the same section, in bytes; absent for a
    /// kernel without static shared memory and before sm_90.
    pub shared_reserved_bytes: Option<u32>,
    /// Size of parameters and constant banks in bytes.
    pub constant_bytes: u32,
    /// Number of named barriers.
    pub barriers: u32,
    /// Largest number of threads in a block; absent if not bounded.
    pub max_threads: Option<u32>,
    /// Size of the code in bytes.
    pub code_bytes: u64,
    /// Compiler that produced it, e.g. `ptxas 13.0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compiler: String,
    /// The cubin, as its path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}
