//! Kernels that read and write their operands once: norms, activations, rotations, copies.

use super::{Context, KernelTime, KernelWork, OpKind};
use crate::Dtype;
use crate::dtype::MathKind;

/// A kernel that reads and writes its operands once (norm, activation, copy).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamingKernel {
    /// Its kind: a norm, an elementwise kernel, or those of an eager module.
    pub op: OpKind,
    /// Number of elements of the tensor.
    pub elements: f64,
    /// How often the tensor crosses HBM, reads and writes together.
    pub passes: f64,
    /// FLOPs per element.
    pub flops: f64,
    /// The format of the tensor.
    pub dtype: Dtype,
    /// Number of launches.
    pub launches: f64,
}

impl StreamingKernel {
    /// Converts it to work for the roofline.
    #[must_use]
    pub fn work(&self) -> KernelWork {
        let bytes = self.passes * self.dtype.bytes(1.0, self.elements);
        let mut work =
            KernelWork::ideal(self.op, MathKind::Fp32, self.flops * self.elements, bytes);
        work.launches = self.launches;
        work
    }

    /// Its bound and predicted time on one GPU.
    #[must_use]
    pub fn time(&self, context: &Context<'_>) -> KernelTime {
        self.work().time(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::find;

    #[test]
    fn a_copy_takes_its_bytes() {
        let gpu = find("h200").unwrap().gpu().unwrap();
        let copy = StreamingKernel {
            op: OpKind::Elementwise,
            elements: 1.2e9,
            passes: 2.0,
            flops: 0.0,
            dtype: Dtype::Bf16,
            launches: 1.0,
        };
        // 4.8 GB over 4.8 TB/s.
        assert!((copy.time(&Context::new(&gpu)).bound_ns() - 1e6).abs() < 1e-6);
    }
}
