//! Sizes of a framework's matrix products that do not fit the tensor cores, from the shapes of the
//! operators' inputs that a trace of torch's profiler has.

use serde_json::Value;

use crate::model::Operator;

/// The tiles of matrix products are multiples of this in both directions.
const TILE: u64 = 64;

/// An operator whose products a kernel computes, with a size of its first call that is larger than a
/// tile and no multiple of it. `None` if no size is known, or all fit.
pub(super) fn unfitting_size<'a>(
    operators: &'a [Operator],
    kernel: &str,
) -> Option<(&'a str, u64)> {
    let computed = |o: &&Operator| o.kernels.iter().any(|sum| sum.kernel == kernel);
    operators.iter().filter(computed).find_map(|operator| {
        operator.flops?;
        let shapes: Vec<Value> = serde_json::from_str(&operator.shapes).ok()?;
        let matrices = shapes.iter().filter_map(Value::as_array).filter(|shape| shape.len() > 1);
        // The first of three sizes is that of a batch.
        let mut sizes = matrices.flat_map(|shape| shape.iter().rev().take(2));
        let size = sizes.find_map(|size| size.as_u64().filter(|n| *n > TILE && n % TILE != 0))?;
        Some((operator.name.as_str(), size))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyze;
    use crate::model::timeline::KernelSum;
    use crate::model::{Launch, Metric, Profile, Value};

    const GEMM: &str = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT";

    fn kernel(name: &str, launches: u64, total_ns: u64) -> KernelSum {
        KernelSum { kernel: name.to_owned(), launches, total_ns, ..KernelSum::default() }
    }

    fn operator(name: &str, shapes: &str, flops: f64, kernels: Vec<KernelSum>) -> Operator {
        Operator {
            name: name.to_owned(),
            shapes: shapes.to_owned(),
            flops: Some(flops),
            gpu_self_ns: Some(kernels.iter().map(|kernel| kernel.total_ns).sum()),
            kernels,
            ..Operator::default()
        }
    }

    #[test]
    fn sizes_are_blamed_only_where_one_is_known_that_does_not_fit() {
        let hint = |operators: Vec<Operator>| {
            let value =
                Metric { value: Value::Float(20.0), unit: String::new(), from: String::new() };
            let launch = Launch {
                kernel: GEMM.to_owned(),
                duration_ns: Some(50_000.0),
                metrics: [
                    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", value.clone()),
                    ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", value),
                ]
                .map(|(name, metric)| (name.to_owned(), metric))
                .into(),
                ..Launch::default()
            };
            let mut profile = Profile { operators, launches: vec![launch], ..Profile::default() };
            analyze(&mut profile);
            profile.findings[0].hint.clone()
        };
        let of = |shapes: &str| {
            let kernels = vec![kernel(GEMM, 1, 50_000)];
            hint(vec![operator("aten::addmm", shapes, 1e9, kernels)])
        };
        assert!(hint(Vec::new()).contains("give it larger work (a larger batch), a narrower type"));
        assert!(!of("[[4096],[512,4096],[4096,4096],[],[]]").contains("multiples"));
        // The first size is that of the batch; one row is no matter of tiles.
        assert!(!of("[[100,64,1],[100,1,64]]").contains("multiples"));
        let odd = of("[[50257],[512,768],[768,50257],[],[]]");
        assert!(odd.contains("multiples of 64: `aten::addmm` has 50257"), "{odd}");
    }
}
