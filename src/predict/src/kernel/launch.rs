//! The cost of a launch, and the number of launches of a layer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How kernels are launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LaunchMode {
    /// As nodes of one CUDA graph.
    #[default]
    Graph,
    /// One after the other in a stream, each before the last has ended.
    Stream,
    /// One after the other, each after a synchronisation.
    Synchronous,
}

/// Where the times of [`LaunchMode::ns`] come from.
pub const SOURCE: &str = "NVIDIA, Getting Started with CUDA Graphs \
    (https://developer.nvidia.com/blog/cuda-graphs/), Tesla V100, CUDA 10.1: kernels of 2.9 us \
    take 3.4 us each in a graph, 3.8 us in a stream, 9.6 us with a synchronisation after each";

impl LaunchMode {
    /// The time that one launch adds, in ns: the differences in [`SOURCE`].
    #[must_use]
    pub fn ns(self) -> f64 {
        match self {
            Self::Graph => 500.0,
            Self::Stream => 900.0,
            Self::Synchronous => 6700.0,
        }
    }
}

/// Which operations of a layer share a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fusion {
    /// Every operation of the Python source is a kernel.
    Eager,
    /// Neighbouring operations without a product are one kernel, and Q, K and V are one product.
    #[default]
    Fused,
    /// The whole step is one kernel.
    Megakernel,
}

/// An operation of a layer that is neither a product nor attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallOp {
    /// A norm with the residual that is added before it.
    Norm,
    /// The rotation of queries and keys, and the write into the KV cache.
    Rope,
    /// The activation of a gated MLP.
    Activation,
    /// The choice of experts.
    Route,
}

impl Fusion {
    /// Kernels for one operation. Eager counts the tensor operations in Hugging Face's
    /// `modeling_llama.py` and `modeling_mixtral.py`.
    #[must_use]
    pub fn launches(self, op: SmallOp) -> f64 {
        match (self, op) {
            (Self::Megakernel, _) => 0.0,
            (Self::Fused, SmallOp::Route) => 2.0,
            (Self::Fused, _) => 1.0,
            // Add; to fp32, square, mean, add epsilon, rsqrt, multiply, to bf16, multiply.
            (Self::Eager, SmallOp::Norm) => 9.0,
            // For Q and K: two products, negate, concatenate, add; then the cache's two writes.
            (Self::Eager, SmallOp::Rope) => 12.0,
            (Self::Eager, SmallOp::Activation) => 2.0,
            // Softmax, top-k, sum, divide, to bf16, one-hot, permute.
            (Self::Eager, SmallOp::Route) => 7.0,
        }
    }

    /// How often one operation's tensor crosses HBM, reads and writes together.
    #[must_use]
    pub fn passes(self, op: SmallOp) -> f64 {
        match (self, op) {
            // Read and write of what stays on the chip in one kernel.
            (Self::Megakernel, _) => 0.0,
            // The input and the residual are read, both results are written.
            (Self::Fused, SmallOp::Norm) => 4.0,
            (Self::Fused, _) => 2.0,
            // Three for the addition; casts of 2 and 4 bytes, and passes over 4-byte values.
            (Self::Eager, SmallOp::Norm) => 3.0 + 3.0 + 4.0 + 2.0 + 4.0 + 3.0 + 2.0,
            // Each of the five operations on Q and K reads and writes; the cache copies once.
            (Self::Eager, SmallOp::Rope) => 12.0,
            (Self::Eager, SmallOp::Activation) => 5.0,
            (Self::Eager, SmallOp::Route) => 14.0,
        }
    }

    /// Products for what one fused product could do.
    #[must_use]
    pub fn products(self, separate: f64) -> f64 {
        match self {
            Self::Eager => separate,
            Self::Fused => 1.0,
            Self::Megakernel => 0.0,
        }
    }
}
