//! A linear layer with 8-bit or 4-bit factors: one kernel narrows the 16-bit activations, a second
//! one multiplies.
//!
//! Inference engines measure and run such layers as a whole (vLLM `RowParallelLinear`, TensorRT-LLM
//! `Linear`, SGLang `fp8_scaled_mm` after `sgl_per_token_quant_fp8`), so their tables have the time
//! of both kernels. For many tokens and narrow layers the first one is the longer.

use super::gemm::{self, Gemm};
use super::{Context, KernelTime, KernelWork, OpKind};
use crate::Dtype;
use crate::hw::Gpu;

/// A product of activations that are quantized first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantizedGemm {
    /// The product; `a` is the format that the activations are narrowed to.
    pub gemm: Gemm,
    /// The format of the activations before.
    pub activations: Dtype,
}

/// Elements of a row that one block of the quantization takes at a time: 256 threads with 8 each
/// (vLLM, `csrc/quantization/w8a8/fp8/common.cu`). A part of a row takes as long as a whole one.
const ELEMENTS_PER_PASS: f64 = 2048.0;

/// The tile of vLLM's CUTLASS products for a number of rows and columns
/// (`scaled_mm_sm90_fp8_dispatch.cuh`). They do not split k. With few rows A and B change places.
fn tile(m: f64, n: f64) -> (f64, f64) {
    match m {
        m if m <= 16.0 => (16.0, 64.0),
        m if m <= 64.0 => (if n <= 1280.0 { 16.0 } else { 64.0 }, 64.0),
        m if m <= 128.0 => (64.0, 128.0),
        _ => (128.0, 128.0),
    }
}

impl QuantizedGemm {
    /// A product of bf16 activations with `dtype` weights.
    #[must_use]
    pub fn new(m: f64, n: f64, k: f64, dtype: Dtype) -> Self {
        let gemm = Gemm { c: Dtype::Bf16, ..Gemm::new(m, n, k, dtype) };
        Self { gemm, activations: Dtype::Bf16 }
    }

    /// The work of both kernels on a GPU. The bound is that of the product: the activations could
    /// arrive narrow.
    #[must_use]
    pub fn work(&self, gpu: &Gpu) -> KernelWork {
        let Gemm { m, n, k, a, .. } = self.gemm;
        let mut work = gemm::tiled_work(&self.gemm, tile(m, n), gpu);
        work.op = OpKind::QuantizedGemm;
        work.launches = 2.0;
        let whole = (k / ELEMENTS_PER_PASS).ceil() * ELEMENTS_PER_PASS;
        work.quantized_rows = m;
        work.quantized_bytes = self.activations.bytes(m, whole) + a.bytes(m, whole);
        work
    }

    /// The bound and the time of both kernels.
    #[must_use]
    pub fn time(&self, context: &Context<'_>) -> KernelTime {
        self.work(context.gpu).time(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::find;

    #[test]
    fn many_rows_of_a_narrow_layer_are_mostly_quantization() {
        let gpu = find("h200").unwrap().gpu().unwrap();
        let context = Context::new(&gpu);
        let narrow = QuantizedGemm::new(32768.0, 128.0, 128.0, Dtype::Fp8).time(&context);
        // 32768 rows of one pass: 2048 elements of 2 and 1 bytes over 4.8 TB/s.
        assert!((narrow.quantize_ns - 32768.0 * 2048.0 * 3.0 / 4.8e12 * 1e9).abs() < 1e-6);
        assert!(narrow.quantize_ns > narrow.memory_ns && narrow.quantize_ns > narrow.compute_ns);
        assert_eq!(narrow.limited_by(), super::super::LimitedBy::Quantize);
        // A row that is one element longer than a pass takes two.
        let of = |k| QuantizedGemm::new(64.0, 4096.0, k, Dtype::Fp8).time(&context).quantize_ns;
        assert_eq!(of(2049.0), 2.0 * of(2048.0));
    }

    #[test]
    fn the_bound_is_that_of_the_product() {
        let gpu = find("h200").unwrap().gpu().unwrap();
        let context = Context::new(&gpu);
        let both = QuantizedGemm::new(4096.0, 4096.0, 4096.0, Dtype::Fp8);
        assert_eq!(both.time(&context).bound_ns(), both.gemm.time(&context).bound_ns());
        assert!(both.time(&context).time_ns() > both.gemm.time(&context).time_ns());
    }

    #[test]
    fn the_tile_follows_the_number_of_rows() {
        let gpu = find("h200").unwrap().gpu().unwrap();
        let tile = |m, n| QuantizedGemm::new(m, n, 4096.0, Dtype::Fp8).work(&gpu).tile;
        assert_eq!(tile(16.0, 4096.0), [16.0, 64.0, 1.0]);
        assert_eq!(tile(17.0, 1280.0), [16.0, 64.0, 1.0]);
        assert_eq!(tile(17.0, 1281.0), [64.0, 64.0, 1.0]);
        assert_eq!(tile(128.0, 4096.0), [64.0, 128.0, 1.0]);
        assert_eq!(tile(129.0, 4096.0), [128.0, 128.0, 1.0]);
    }
}
