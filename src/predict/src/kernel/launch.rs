//! The cost of a launch, and the number of launches of a layer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OpKind;

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
    /// The rotation of queries and keys; where it is one kernel, also the write into the KV cache.
    Rope,
    /// The write into the KV cache, where that is a kernel of its own.
    CacheWrite,
    /// The activation of a gated MLP.
    Activation,
    /// The choice of experts.
    Route,
}

/// A tensor operation of a module that runs without fusion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EagerOperation {
    /// A short name, e.g. `add the residual`.
    pub name: &'static str,
    /// Number of kernels.
    pub launches: f64,
    /// 16-bit elements that it reads and writes for each element of the module's tensor. One of 4
    /// bytes counts twice, one of half the tensor's elements half.
    pub passes: f64,
}

const fn operation(name: &'static str, launches: f64, passes: f64) -> EagerOperation {
    EagerOperation { name, launches, passes }
}

impl SmallOp {
    /// The tensor operations in Hugging Face's `modeling_llama.py` and `modeling_mixtral.py`.
    #[must_use]
    pub fn eager_operations(self) -> &'static [EagerOperation] {
        const NORM: &[EagerOperation] = &[
            operation("add the residual", 1.0, 3.0),
            operation("to fp32", 1.0, 3.0),
            operation("square", 1.0, 4.0),
            operation("mean", 1.0, 2.0),
            operation("add epsilon", 1.0, 0.0),
            operation("reciprocal root", 1.0, 0.0),
            operation("scale", 1.0, 4.0),
            operation("to bf16", 1.0, 3.0),
            operation("multiply by the weight", 1.0, 2.0),
        ];
        // Each on Q and on K.
        const ROPE: &[EagerOperation] = &[
            operation("multiply by the cosine", 2.0, 2.0),
            operation("negate a half", 2.0, 1.0),
            operation("concatenate the halves", 2.0, 2.0),
            operation("multiply by the sine", 2.0, 2.0),
            operation("add", 2.0, 3.0),
        ];
        const CACHE_WRITE: &[EagerOperation] = &[operation("copy keys and values", 2.0, 2.0)];
        const ACTIVATION: &[EagerOperation] =
            &[operation("silu", 1.0, 2.0), operation("multiply", 1.0, 3.0)];
        const ROUTE: &[EagerOperation] = &[
            operation("softmax", 1.0, 2.0),
            operation("top-k", 1.0, 2.0),
            operation("sum", 1.0, 2.0),
            operation("divide", 1.0, 2.0),
            operation("to bf16", 1.0, 2.0),
            operation("one-hot", 1.0, 2.0),
            operation("permute", 1.0, 2.0),
        ];
        match self {
            Self::Norm => NORM,
            Self::Rope => ROPE,
            Self::CacheWrite => CACHE_WRITE,
            Self::Activation => ACTIVATION,
            Self::Route => ROUTE,
        }
    }
}

impl Fusion {
    /// Kernels for one operation.
    #[must_use]
    pub fn launches(self, op: SmallOp) -> f64 {
        match (self, op) {
            (Self::Megakernel, _) => 0.0,
            (Self::Fused, SmallOp::Route) => 2.0,
            (Self::Fused, _) => 1.0,
            (Self::Eager, op) => op.eager_operations().iter().map(|one| one.launches).sum(),
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
            (Self::Eager, op) => op.eager_operations().iter().map(|one| one.passes).sum(),
        }
    }

    /// The kind of the kernels of one operation, by which efficiencies are kept.
    #[must_use]
    pub fn kind(self, op: SmallOp) -> OpKind {
        match (self, op) {
            (Self::Eager, _) => OpKind::EagerModule,
            (_, SmallOp::Norm) => OpKind::Norm,
            _ => OpKind::Elementwise,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted by hand in transformers 5.17: LlamaRMSNorm has 8 kernels.
    #[test]
    fn an_eager_layer_has_32_small_kernels() {
        let ops = [
            (SmallOp::Norm, 9.0, 21.0),
            (SmallOp::Rope, 10.0, 10.0),
            (SmallOp::CacheWrite, 2.0, 2.0),
            (SmallOp::Activation, 2.0, 5.0),
        ];
        for (op, launches, passes) in ops {
            assert_eq!(Fusion::Eager.launches(op), launches, "{op:?}");
            assert_eq!(Fusion::Eager.passes(op), passes, "{op:?}");
        }
        let layer = ops.iter().map(|(_, launches, _)| launches).sum::<f64>() + 9.0;
        assert_eq!(layer, 32.0);
    }
}
