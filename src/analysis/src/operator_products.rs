//! Matrix products of a framework's operators: sizes that do not fit the tensor cores, and rates
//! near their peak. A trace of torch's profiler has no counters, but it has the shapes of the
//! inputs.

use serde_json::Value;

use super::known_kernel::MatrixUnit;
use super::rule::AT_PEAK_HINT;
use super::threshold::{KERNEL_SHARE, Limits, TENSOR_RATE};
use super::{datasheet, device, roofline};
use rgpu_model::finding::CoveredKernel;
use rgpu_model::{Finding, Operator, Profile};

/// The tiles of matrix products are multiples of this in both directions.
const TILE: u64 = 64;

/// An operator whose products a kernel computes, with a size of its first call that is larger than
/// a tile and no multiple of it. `None` if no size is known, or all fit.
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

/// The finding about operators with much of the GPU time whose 16-bit products are near the tensor
/// peak of the datasheet; `None` if counters tell how busy the tensor cores are.
pub(super) fn near_peak(profile: &Profile, limits: &Limits<'_>) -> Option<Finding> {
    if profile.launches.iter().any(|launch| !launch.metrics.is_empty()) {
        return None;
    }
    let device = device::find_device(profile).name?;
    let mut peaks = datasheet::peaks(&device)?.compute.into_iter();
    let peak = peaks.find(|(label, _)| *label == "tensor bf16").map(|(_, tera)| tera * 1e12)?;
    let limit = limits.threshold(&TENSOR_RATE);
    let all_ns: u64 = profile.kernels.iter().map(|kernel| kernel.total_ns).sum();
    let least_ns = all_ns as f64 * limits.threshold(&KERNEL_SHARE).value;
    let near: Vec<(&Operator, f64)> = profile
        .operators
        .iter()
        .filter(|operator| operator.gpu_self_ns.is_some_and(|ns| ns as f64 >= least_ns))
        .filter(|o| roofline::most_products(&o.kernels) == Some(MatrixUnit::Tensor16))
        .filter_map(|operator| Some((operator, 100.0 * operator.flops_per_s()? / peak)))
        // More than the peak means that the operations or the unit are others.
        .filter(|(_, percent)| (limit.value..=100.0).contains(percent))
        .collect();
    let (_, percent) = *near.first()?;
    let rates = near.iter().enumerate().map(|(at, (operator, percent))| {
        let runs = if at == 0 { "runs " } else { "" };
        format!("`{}` {runs}at {percent:.0} %", operator.name)
    });
    let rates = rates.collect::<Vec<_>>().join(", ");
    let mut covers: Vec<CoveredKernel> = Vec::new();
    // The rate is that of all calls; the kernel that takes the longest makes most of it.
    let longest = |(operator, _): &(&'_ Operator, f64)| {
        operator.kernels.iter().max_by_key(|kernel| kernel.total_ns).cloned()
    };
    for sum in near.iter().filter_map(longest) {
        let at = covers.iter().position(|covered| covered.kernel == sum.kernel);
        let at = at.unwrap_or_else(|| {
            covers.push(CoveredKernel { kernel: sum.kernel.clone(), ..CoveredKernel::default() });
            covers.len() - 1
        });
        covers[at].launches += sum.launches;
        covers[at].total_ns += sum.total_ns;
    }
    Some(Finding {
        id: "tensor_bound".to_owned(),
        category: "compute".to_owned(),
        text: format!(
            "{rates} of the tensor peak of {:.0} TFLOP/s (datasheet); little is left",
            peak / 1e12
        ),
        hint: AT_PEAK_HINT.to_owned(),
        evidence: vec![limit.evidence("operator.share_of_tensor_peak", percent, "%")],
        covers,
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use rgpu_model::timeline::KernelSum;
    use rgpu_model::{Launch, Metric, Value};

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

    fn told(operators: Vec<Operator>) -> Vec<Finding> {
        let mut profile = Profile {
            device: Some("NVIDIA H200".to_owned()),
            kernels: operators.iter().flat_map(|operator| operator.kernels.clone()).collect(),
            operators,
            ..Profile::default()
        };
        analyze(&mut profile);
        profile.findings
    }

    /// Ten products of 8192³ and ten thin ones in BF16, which take 14.2 and 0.4 ms.
    #[test]
    fn products_near_the_tensor_peak_are_said_to_have_little_left() {
        let flops = 20.0 * (8192.0 * 8192.0) * (8192.0 + 64.0);
        let thin = kernel("nvjet_sm90_tst_64x80_64x11_1x4_h_bz_NNT", 10, 375_000);
        let mm = |flops| {
            let kernels = vec![kernel(GEMM, 10, 14_247_000), thin.clone()];
            operator("aten::mm", "[[8192,8192],[8192,8192]]", flops, kernels)
        };
        let [only] = &told(vec![mm(flops)])[..] else { panic!() };
        assert_eq!(
            only.text,
            "`aten::mm` runs at 77 % of the tensor peak of 989 TFLOP/s (datasheet); little is left"
        );
        assert!(only.hint.starts_with("leave the kernel as it is"), "{}", only.hint);
        let covers: Vec<_> = only.covers.iter().map(|c| (c.launches, c.total_ns)).collect();
        assert_eq!(covers, [(10, 14_247_000)]);
        let linear = operator("aten::addmm", "", 7.1e11, vec![kernel(GEMM, 1, 1_000_000)]);
        let [both] = &told(vec![mm(flops), linear])[..] else { panic!() };
        assert!(both.text.contains("at 77 %, `aten::addmm` at 72 % of the"), "{}", both.text);
        assert_eq!(both.covers[0].launches, 11);
        assert_eq!(told(vec![mm(flops / 2.0)]), [], "far from the peak");
        assert_eq!(told(vec![mm(flops * 2.0)]), [], "no unit is so fast");
        let fp32 =
            operator("aten::mm", "", 7.5e11, vec![kernel("ampere_sgemm_128x64", 1, 1_000_000)]);
        assert!(told(vec![fp32]).iter().all(|finding| finding.id != "tensor_bound"));
    }

    #[test]
    fn sizes_are_blamed_only_where_one_is_known_that_does_not_fit() {
        let hint = |operators: Vec<Operator>| {
            let value = Metric::from(Value::Float(20.0));
            let launch = Launch {
                kernel: GEMM.to_owned(),
                duration_ns: Some(50_000.0),
                metrics: [
                    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", value.clone()),
                    ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", value),
                ]
                .map(|(name, metric)| (name.into(), metric))
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
