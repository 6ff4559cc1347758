//! The work of a case, as `[work]` counts it, and the matrix products that it is made of.

use std::collections::BTreeMap;

use rgpu_predict::Dtype;
use rgpu_predict::dtype::MathKind;
use rgpu_predict::kernel::gemm::grouped;
use rgpu_predict::kernel::{Context, Gemm, KernelTime, KernelWork, OpKind};

use rgpu_model::profile::{Timing, TimingClock};

/// The counted work of one call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountedWork {
    /// Number of floating-point operations.
    pub flops: Option<f64>,
    /// Number of bytes.
    pub bytes: Option<f64>,
}

/// Formats whose sizes are compared with the counted bytes.
const FORMATS: [Dtype; 7] =
    [Dtype::Fp32, Dtype::Bf16, Dtype::Fp8, Dtype::Nvfp4, Dtype::Mxfp4, Dtype::Mxfp8, Dtype::Int4];

/// Rates are saved, not counts, so that a count is off by rounding.
const MAX_ROUNDING: f64 = 1e-6;

/// A case with more products is not listed.
const MAX_PRODUCTS: f64 = 4096.0;

impl CountedWork {
    /// The work of a case that was timed on a GPU. `None` if nothing was counted.
    pub(super) fn from_timing(timing: &Timing) -> Option<Self> {
        if timing.clock == TimingClock::CpuReference || timing.median_ns <= 0.0 {
            return None;
        }
        let count = |rate: Option<f64>| rate.map(|rate| rate * timing.median_ns / 1e9);
        let work = Self { flops: count(timing.flops_per_s), bytes: count(timing.bytes_per_s) };
        (work.flops.is_some() || work.bytes.is_some()).then_some(work)
    }

    /// The bound and the predicted time of this work: of its products if it has some, else of
    /// operations in `math` and of bytes. The fit of a kernel that moves bytes says nothing of one
    /// that computes longer.
    #[must_use]
    pub fn time(
        &self,
        sizes: &[BTreeMap<String, i64>],
        math: Option<MathKind>,
        context: &Context<'_>,
    ) -> KernelTime {
        match self.matrix_products(sizes).as_deref() {
            Some([gemm]) => gemm.time(context),
            Some(products @ [_, ..]) => grouped(products, context),
            _ => {
                let math = math.filter(|math| context.gpu.peaks[math.index()] > 0.0);
                let flops = math.and(self.flops).unwrap_or(0.0);
                let math = math.unwrap_or(MathKind::Fp32);
                let bytes = self.bytes.unwrap_or(0.0);
                let work = KernelWork::ideal(OpKind::Elementwise, math, flops, bytes);
                let bare = work.time(&Context { calibration: None, ..*context });
                let is_memory_bound = bare.bound_memory_ns >= bare.bound_compute_ns;
                if is_memory_bound { work.time(context) } else { bare }
            }
        }
    }

    /// The matrix products of a case with sizes `m`, `n`, `k` (and `l` or `batch` of them). `None`
    /// if the counts are not those of such products in any known format.
    #[must_use]
    pub fn matrix_products(&self, sizes: &[BTreeMap<String, i64>]) -> Option<Vec<Gemm>> {
        let mut shapes = Vec::new();
        for group in sizes {
            let mut times = 1.0;
            let [mut m, mut n, mut k] = [None; 3];
            for (name, value) in group {
                let value = Some(*value as f64).filter(|value| *value >= 0.0)?;
                match name.to_lowercase().as_str() {
                    "m" => m = Some(value),
                    "n" => n = Some(value),
                    "k" => k = Some(value),
                    "l" | "b" | "batch" => times *= value,
                    _ => return None,
                }
            }
            shapes.push((times, m?, n?, k?));
        }
        let is = |counted: f64, computed: f64| {
            computed > 0.0 && (counted - computed).abs() <= MAX_ROUNDING * computed
        };
        let flops = shapes.iter().map(|(times, m, n, k)| times * 2.0 * m * n * k).sum();
        if !is(self.flops?, flops) {
            return None;
        }
        let counted = self.bytes?;
        let gemm = |(_, m, n, k): &(f64, f64, f64, f64),
                    (dtype, result): (Dtype, Option<Dtype>)| {
            let gemm = Gemm::new(*m, *n, *k, dtype);
            Gemm { c: result.unwrap_or(gemm.c), ..gemm }
        };
        let usual = FORMATS.into_iter().map(|dtype| (dtype, None));
        let wide = FORMATS.into_iter().map(|dtype| (dtype, Some(Dtype::Fp32)));
        let dtype = usual.chain(wide).find(|formats| {
            let bytes = shapes.iter().map(|shape| shape.0 * gemm(shape, *formats).bytes()).sum();
            is(counted, bytes)
        })?;
        if shapes.iter().map(|shape| shape.0).sum::<f64>() > MAX_PRODUCTS {
            return None;
        }
        let repeated = shapes
            .iter()
            .flat_map(|shape| std::iter::repeat_n(gemm(shape, dtype), shape.0 as usize));
        Some(repeated.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(groups: &[[i64; 4]]) -> Vec<BTreeMap<String, i64>> {
        let group = |values: &[i64; 4]| {
            ["m", "n", "k", "l"].iter().zip(values).map(|(n, v)| ((*n).to_owned(), *v)).collect()
        };
        groups.iter().map(group).collect()
    }

    #[test]
    fn the_format_of_a_product_is_told_by_its_bytes() {
        let groups = [[128, 256, 512, 1]];
        let flops = Some(2.0 * 128.0 * 256.0 * 512.0);
        for (dtype, element, output) in [
            (Dtype::Fp32, 4.0, 4.0),
            (Dtype::Bf16, 2.0, 4.0),
            (Dtype::Fp8, 1.0, 4.0),
            (Dtype::Bf16, 2.0, 2.0),
            (Dtype::Fp8, 1.0, 2.0),
            (Dtype::Nvfp4, 0.5 + 1.0 / 16.0, 2.0),
        ] {
            let bytes = (128.0 + 256.0) * 512.0 * element + 128.0 * 256.0 * output;
            let work = CountedWork { flops, bytes: Some(bytes * (1.0 + 1e-12)) };
            let products = work.matrix_products(&sizes(&groups)).unwrap();
            assert_eq!((products.len(), products[0].a), (1, dtype));
        }
    }

    #[test]
    fn groups_and_batches_are_single_products() {
        let groups = [[72, 128, 512, 2], [40, 256, 256, 3]];
        let count = |f: fn(f64, f64, f64) -> f64| {
            Some(
                groups
                    .iter()
                    .map(|[m, n, k, l]| *l as f64 * f(*m as f64, *n as f64, *k as f64))
                    .sum(),
            )
        };
        let work = CountedWork {
            flops: count(|m, n, k| 2.0 * m * n * k),
            bytes: count(|m, n, k| 2.0 * ((m + n) * k + m * n)),
        };
        let products = work.matrix_products(&sizes(&groups)).unwrap();
        assert_eq!(
            products.iter().map(|gemm| gemm.m).collect::<Vec<_>>(),
            [72., 72., 40., 40., 40.]
        );
    }

    #[test]
    fn other_work_is_no_product() {
        let work = CountedWork { flops: Some(1000.0), bytes: Some(96.0) };
        assert_eq!(work.matrix_products(&sizes(&[[4, 4, 4, 1]])), None);
        let rows: BTreeMap<String, i64> = [("rows".to_owned(), 4)].into();
        assert_eq!(work.matrix_products(&[rows]), None);
        // The same FLOPs with bytes of no known format.
        let work = CountedWork { flops: Some(128.0), bytes: Some(97.0) };
        assert_eq!(work.matrix_products(&sizes(&[[4, 4, 4, 1]])), None);
    }
}
