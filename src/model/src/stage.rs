//! Stages: the parts of a call or of a training that NVTX ranges mark, such as the prefill of a
//! language model or a training step. They come from the regions of a trace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Utilization;
use super::open_enum::open_enum;

/// One stage: an NVTX region over all its instances. A kernel's stages are in the timed phase of a
/// case; a program's, in mode `torch`, are its training steps and the calls of a model.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Name of the case; empty for a program.
    pub case: String,
    /// Name of the region, such as `LLM@prefill`.
    pub region: String,
    /// Number of times it was entered.
    pub instances: u64,
    /// Mean time of an instance in nanoseconds, by `clock`.
    pub mean_ns: f64,
    /// Clock of `mean_ns`: `gpu` (time in which the GPU did work launched inside) or `host` (time
    /// from entry to exit).
    pub clock: StageClock,
    /// Mean time in nanoseconds from the start of the first work launched inside to the end of the
    /// last, including the time in which the GPU waits. Absent unless `clock` is `gpu` and a trace
    /// has these times.
    pub gpu_span_ns: Option<f64>,
    /// Time in nanoseconds of an instance without torch's profiler, which lengthens the host's
    /// time: the median of steps of the optimizer that followed the recorded ones. Absent if these
    /// were fewer than four or uneven, and for other stages.
    pub plain_ns: Option<u64>,
    /// Floating-point operations of one instance: of a kernel, from `[work.regions]`; of a program,
    /// as counted while it ran.
    pub flops: Option<f64>,
    /// Achieved rate in FLOP/s: by `plain_ns` if that is known, else by `mean_ns`.
    pub flops_per_s: Option<f64>,
    /// The rate compared with the peak: `percent` is the model FLOP utilisation (MFU). Absent if no
    /// peak is known.
    pub utilization: Option<Utilization>,
    /// Source of the times: path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

open_enum! {
    /// Clock of a stage's time.
    pub enum StageClock {
        /// Time in which the GPU did work launched inside.
        Gpu = "gpu",
        /// Time from entry to exit.
        Host = "host",
    }
}
