//! Where the wall time of a step, and of the whole program, goes: an account that adds up.
//!
//! The time is followed along the critical path: at each moment one cause held up the end. The
//! causes of a step therefore add up to its time. Work beside the path is named as hidden.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;

/// The account of one process of a trace.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// The unit that the program repeats; absent if none was found.
    pub step: Option<StepTime>,
    /// The time of a step by cause, most time first; empty without a step.
    #[serde(default)]
    pub parts: Vec<AccountPart>,
    /// From the first event of the program to its last, in nanoseconds.
    pub program_ns: u64,
    /// The time of the whole program by cause, start-up included, most time first.
    #[serde(default)]
    pub program_parts: Vec<AccountPart>,
    /// The time of a step in nanoseconds by the replay of the unchanged graph; absent without one.
    pub replayed_ns: Option<u64>,
    /// Why no gains are given; absent if they are.
    pub no_gains: Option<String>,
    /// What a step would take with the first changes together; absent if none is known.
    pub together: Option<TogetherGain>,
    /// Number of the rank that it is about; absent for one process.
    pub rank: Option<u32>,
    /// The artifact that it was made from, as its path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// The repeating unit of a program, and its time.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepTime {
    /// How it was found.
    pub found_by: StepSource,
    /// The range that marks it, if a range does.
    pub name: Option<String>,
    /// Number of steps in the trace.
    pub count: u64,
    /// Median time in nanoseconds.
    pub median_ns: u64,
    /// The 10th percentile in nanoseconds.
    pub low_ns: u64,
    /// The 90th percentile in nanoseconds.
    pub high_ns: u64,
    /// Pieces of GPU work in a step.
    pub work: u64,
    /// The part of the GPU work that is equal from step to step, 0 to 1.
    pub match_share: f64,
    /// Start of the first step, in nanoseconds since the first event: what is before is start-up.
    pub first_start_ns: u64,
    /// Start of the step that is shown, in nanoseconds since the first event.
    pub shown_start_ns: u64,
    /// Time of the step that is shown, in nanoseconds.
    pub shown_ns: u64,
    /// Steps that took much longer than the median, longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outliers: Vec<StepOutlier>,
}

/// A step that took much longer than the median.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepOutlier {
    /// Number of the step, from 0.
    pub step: u64,
    /// Start, in nanoseconds since the first event.
    pub start_ns: u64,
    /// Its time in nanoseconds.
    pub duration_ns: u64,
    /// What took most of the time above the median.
    pub cause: AccountCause,
    /// The call or kernel that took it.
    pub name: String,
}

/// The time that has one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountPart {
    /// The cause.
    pub cause: AccountCause,
    /// Time on the critical path in nanoseconds; of a step, or of the program.
    pub ns: u64,
    /// The part of the step's or program's time, 0 to 1.
    pub share: f64,
    /// Time in nanoseconds in which other work hides it.
    #[serde(default)]
    pub hidden_ns: u64,
    /// Number of kernels, copies or calls; of a step, or of the program.
    pub count: f64,
    /// The kernels, calls or operators with most of that time, most time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<AccountRow>,
}

/// A kernel, call or operator within a part of an account.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountRow {
    /// Demangled name of a kernel, name of a call, or what the host did.
    pub name: String,
    /// Time on the critical path in nanoseconds.
    pub ns: u64,
    /// Number of kernels or calls.
    pub count: f64,
    /// The region or operator in which most of it is, if one is known.
    pub place: Option<String>,
}

/// What a step would take with several changes made together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TogetherGain {
    /// Ids of the findings.
    pub findings: Vec<String>,
    /// Time of a step in nanoseconds, lower and upper end.
    pub low_ns: u64,
    /// The upper end.
    pub high_ns: u64,
}

open_enum! {
    /// How steps were found.
    pub enum StepSource {
        /// By NVTX ranges, or torch's marks of steps.
        Range = "range",
        /// By the sequence of kernels and calls, which repeats.
        Period = "period",
        /// By waits of the host for the GPU.
        Waits = "waits",
    }
}

open_enum! {
    /// A cause of time on the critical path.
    pub enum AccountCause {
        /// Kernels of matrix products.
        MatrixProduct = "matrix_product",
        /// Kernels of attention.
        Attention = "attention",
        /// Kernels of convolutions.
        Convolution = "convolution",
        /// Kernels of layer, batch and other norms.
        Normalisation = "normalisation",
        /// Kernels of softmax and of losses.
        Softmax = "softmax",
        /// Other reductions and scans.
        Reduction = "reduction",
        /// Element-wise kernels.
        ElementWise = "element_wise",
        /// Kernels that a compiler fused of several operators.
        Fused = "fused",
        /// Kernels that change the type of numbers.
        Cast = "cast",
        /// Kernels that change the layout, transpose, concatenate or copy.
        Layout = "layout",
        /// Gather, scatter, indexing and embeddings.
        GatherScatter = "gather_scatter",
        /// Sorting, selection, compaction.
        Sort = "sort",
        /// Kernels of an optimizer.
        Optimizer = "optimizer",
        /// Random numbers and dropout.
        Random = "random",
        /// Fast Fourier transforms.
        Fft = "fft",
        /// Communication between GPUs.
        Communication = "communication",
        /// All other kernels.
        OtherKernel = "other_kernel",
        /// CUDA graphs that were traced as a whole.
        Graph = "graph",
        /// Copies from or to pinned memory.
        CopyPinned = "copy_pinned",
        /// Copies from or to pageable memory.
        CopyPageable = "copy_pageable",
        /// Copies within a GPU, or between GPUs.
        CopyDevice = "copy_device",
        /// Copies from or to the host whose memory is unknown.
        CopyHost = "copy_host",
        /// Migrations of unified memory.
        CopyUnified = "copy_unified",
        /// Fills of memory.
        Fill = "fill",
        /// From a launch call to the start of the work, and the GPU's turnaround.
        LaunchLatency = "launch_latency",
        /// Time in calls that launch work.
        LaunchCall = "launch_call",
        /// The host's own work between calls.
        Host = "host",
        /// From the end of the work to the return of a wait, and other time in waits.
        Synchronisation = "synchronisation",
        /// Calls that allocate, free or register memory.
        Allocation = "allocation",
        /// Calls that load or compile code, and those that make CUDA graphs.
        Compilation = "compilation",
        /// Other calls into CUDA.
        OtherCall = "other_call",
        /// Waits for another rank.
        OtherRank = "other_rank",
        /// What the trace does not tell.
        Unknown = "unknown",
    }
}

impl AccountCause {
    /// Whether the GPU does this.
    pub fn is_gpu(&self) -> bool {
        !matches!(
            self,
            Self::LaunchLatency
                | Self::LaunchCall
                | Self::Host
                | Self::Synchronisation
                | Self::Allocation
                | Self::Compilation
                | Self::OtherCall
                | Self::OtherRank
                | Self::Unknown
                | Self::Other(_)
        )
    }

    /// The cause in words, for people.
    pub fn words(&self) -> &str {
        match self {
            Self::MatrixProduct => "matrix products",
            Self::Attention => "attention",
            Self::Convolution => "convolutions",
            Self::Normalisation => "norms",
            Self::Softmax => "softmax and losses",
            Self::Reduction => "reductions",
            Self::ElementWise => "element-wise",
            Self::Fused => "fused kernels",
            Self::Cast => "casts",
            Self::Layout => "layout and device copies",
            Self::GatherScatter => "gather and scatter",
            Self::Sort => "sort and select",
            Self::Optimizer => "optimizer",
            Self::Random => "random numbers",
            Self::Fft => "Fourier transforms",
            Self::Communication => "communication",
            Self::OtherKernel => "other kernels",
            Self::Graph => "CUDA graphs",
            Self::CopyPinned => "copies, pinned memory",
            Self::CopyPageable => "copies, pageable memory",
            Self::CopyDevice => "copies on the GPU",
            Self::CopyHost => "copies from and to the host",
            Self::CopyUnified => "unified memory moves",
            Self::Fill => "fills",
            Self::LaunchLatency => "launch latency",
            Self::LaunchCall => "launch calls",
            Self::Host => "host work",
            Self::Synchronisation => "return from waits",
            Self::Allocation => "memory allocation",
            Self::Compilation => "loading and compiling",
            Self::OtherCall => "other CUDA calls",
            Self::OtherRank => "waiting for other ranks",
            Self::Unknown => "unknown",
            Self::Other(other) => other,
        }
    }
}
