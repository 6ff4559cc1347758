//! What is known of the GPU that the trace comes from.

/// Peaks of a GPU. A number that is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuFacts {
    /// Number of SMs.
    pub sms: Option<u32>,
    /// Bytes per second of the GPU's memory that kernels reach, not the datasheet's peak.
    pub memory_bytes_per_s: Option<f64>,
    /// Bytes per second that a copy from pinned memory reaches, one direction.
    pub pinned_bytes_per_s: Option<f64>,
    /// FP32 products without tensor cores: FLOP per second.
    pub fp32_flops: Option<f64>,
    /// TF32 products on tensor cores, dense.
    pub tf32_flops: Option<f64>,
    /// BF16 and FP16 products on tensor cores, dense.
    pub bf16_flops: Option<f64>,
    /// Nanoseconds that the profiler adds to each call of the host: least and most. `None` if
    /// it adds none that is known.
    pub tool_ns: Option<(u64, u64)>,
    /// Nanoseconds of a step without the profiler, if that was measured.
    pub plain_step_ns: Option<u64>,
}
