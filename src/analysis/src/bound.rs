//! The speed-of-light bound of each timed case, from the catalogue of `rgpu model`.

use std::collections::BTreeMap;

use rgpu_predict::calibration::shipped;
use rgpu_predict::dtype::MathKind;
use rgpu_predict::hw::{self, Gpu};
use rgpu_predict::kernel::{Context, KernelWork, OpKind};
use rgpu_predict::{Calibration, Dtype, measurement};

use super::counted_work::CountedWork;
use super::device;
use rgpu_model::bound::{BoundShare, PredictedTime, ShareAtClock};
use rgpu_model::profile::Timing;
use rgpu_model::speed_of_light::SpeedBound;
use rgpu_model::{Profile, SpeedOfLight};

/// The shares of the bound of all cases whose kernel states its work. Empty if the GPU is not in
/// the catalogue. Reads `speed_of_light`, which must be there already.
pub(super) fn shares(profile: &Profile) -> Vec<BoundShare> {
    let device = device::find_device(profile);
    let Some(hardware) = device.name.as_deref().and_then(hw::for_device) else { return Vec::new() };
    let Ok(gpu) = hardware.gpu() else { return Vec::new() };
    let calibration = shipped(&hardware.id);
    let share = |case: &str, sizes: &[BTreeMap<String, i64>], timing: &Timing| {
        let work = CountedWork::from_timing(timing)?;
        let products = work.matrix_products(sizes);
        let math = match products.as_deref() {
            Some([first, ..]) => Some(gpu.math(first.a)),
            _ => {
                let light = profile.speed_of_light.iter().find(|light| light.case == case);
                let model = profile.kernel.model.as_ref().and_then(|m| m.dtype.parse().ok());
                model.map(|dtype: Dtype| gpu.math(dtype)).or_else(|| units_of(light?))
            }
        };
        let mut share = share_of(case, &work, math, timing, &hardware.id, &gpu)?;
        let calibration = calibration.as_ref();
        share.predicted = calibration.and_then(|c| predicted(&work, sizes, math, &gpu, c));
        Some(share)
    };
    match (&profile.cases[..], &profile.timing) {
        ([], Some(timing)) => share("", &[], timing).into_iter().collect(),
        (cases, _) => {
            cases.iter().filter_map(|c| share(&c.name, &c.sizes, c.timing.as_ref()?)).collect()
        }
    }
}

/// What this work is predicted to take. `None` if no kernels like it were measured.
fn predicted(
    work: &CountedWork,
    sizes: &[BTreeMap<String, i64>],
    math: Option<MathKind>,
    gpu: &Gpu,
    calibration: &Calibration,
) -> Option<PredictedTime> {
    let time = |calibration: &Calibration| {
        work.time(sizes, math, &measurement::context(gpu, Some(calibration)))
    };
    let here = time(calibration);
    let source = calibration.source.as_ref();
    here.is_calibrated.then(|| PredictedTime {
        ns: here.time_ns(),
        likely_ns: calibration.ends().map(|end| time(&end).time_ns()),
        borrowed_from: source.and_then(|source| source.borrowed_from.clone()),
    })
}

/// The arithmetic of the peak that a rate was compared with. `None` if predictions know no such
/// peak.
fn units_of(light: &SpeedOfLight) -> Option<MathKind> {
    let label = light.flops.as_ref()?.label.to_lowercase();
    let kinds = [
        ("tf32", MathKind::Tf32),
        ("bf16", MathKind::Half),
        ("fp16", MathKind::Half),
        ("fp8", MathKind::Fp8),
        ("int8", MathKind::Int8),
        ("fp4", MathKind::Fp4),
        ("fp32", MathKind::Fp32),
    ];
    // `tensor bf16 to fp32` has two formats; the first one is that of the factors.
    let found = kinds.iter().filter_map(|(name, kind)| Some((label.find(name)?, *kind)));
    found.min_by_key(|(at, _)| *at).map(|(_, kind)| kind)
}

fn share_of(
    case: &str,
    work: &CountedWork,
    math: Option<MathKind>,
    timing: &Timing,
    id: &str,
    gpu: &Gpu,
) -> Option<BoundShare> {
    let math = math.filter(|math| gpu.peaks[math.index()] > 0.0);
    let flops = math.and(work.flops).unwrap_or(0.0);
    let work = KernelWork::ideal(
        OpKind::Elementwise,
        math.unwrap_or(MathKind::Fp32),
        flops,
        work.bytes.unwrap_or(0.0),
    );
    let time = work.time(&Context::new(gpu));
    let bound_ns = time.bound_ns();
    if bound_ns <= 0.0 {
        return None;
    }
    let percent = |bound_ns: f64| 100.0 * bound_ns / timing.median_ns;
    let is_compute = time.bound_compute_ns >= time.bound_memory_ns;
    let unit = match (is_compute, work.math) {
        (false, _) => "HBM".to_owned(),
        (true, MathKind::Fp32) => "the FP32 units".to_owned(),
        (true, math) => format!("the tensor cores ({})", math.name()),
    };
    let at_measured_clock = timing.sm_mhz.filter(|mhz| *mhz > 0.0 && gpu.clock_hz.is_some());
    let at_measured_clock = at_measured_clock.map(|mhz| {
        let slower = gpu.at_clock(mhz * 1e6);
        let bound_ns = work.time(&Context::new(&slower)).bound_ns();
        ShareAtClock { mhz, bound_ns, percent: percent(bound_ns) }
    });
    Some(BoundShare {
        case: case.to_owned(),
        gpu: id.to_owned(),
        limit: if is_compute { SpeedBound::Compute } else { SpeedBound::Memory },
        unit,
        bound_ns,
        percent: percent(bound_ns),
        specified_mhz: gpu.clock_hz.map(|hz| hz / 1e6),
        at_measured_clock,
        predicted: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::profile::CaseResult;

    fn product(median_ns: f64, sm_mhz: Option<f64>) -> Profile {
        let sizes: BTreeMap<String, i64> =
            ["m", "n", "k"].iter().map(|name| ((*name).to_owned(), 8192)).collect();
        let n = 8192.0_f64;
        let rate = |count: f64| Some(count / median_ns * 1e9);
        let timing = Timing {
            median_ns,
            sm_mhz,
            flops_per_s: rate(2.0 * n * n * n),
            bytes_per_s: rate(3.0 * 2.0 * n * n),
            ..Timing::default()
        };
        let case = CaseResult {
            name: "square".to_owned(),
            sizes: vec![sizes],
            timing: Some(timing),
            ..CaseResult::default()
        };
        Profile { device: Some("NVIDIA H200".to_owned()), cases: vec![case], ..Profile::default() }
    }

    #[test]
    fn a_product_has_its_share_of_the_tensor_cores_at_both_clocks() {
        let [share] = &shares(&product(1_600_000.0, Some(1500.0)))[..] else { panic!() };
        // 1111.3 us at 1830 MHz, 1355.8 us at 1500 MHz, of 1600 us.
        assert_eq!(
            (share.unit.as_str(), share.limit.as_str()),
            ("the tensor cores (bf16)", "compute")
        );
        assert!((share.percent - 69.46).abs() < 0.01, "{share:?}");
        let slower = share.at_measured_clock.as_ref().unwrap();
        assert!((slower.percent - 84.74).abs() < 0.01 && slower.mhz == 1500.0, "{slower:?}");
        assert_eq!(share.specified_mhz, Some(1830.0));
        assert!((share.measured_ns() - 1_600_000.0).abs() < 1.0);
        // On an H200 such a product takes 1.4 to 1.7 ms.
        let predicted = share.predicted.as_ref().unwrap();
        let [fast, slow] = predicted.likely_ns;
        assert!(share.bound_ns <= fast && fast < predicted.ns && predicted.ns < slow);
        assert!((1.3e6..1.7e6).contains(&predicted.ns), "{predicted:?}");
        assert_eq!(shares(&product(1_600_000.0, None))[0].at_measured_clock, None);
    }

    #[test]
    fn a_copy_has_its_share_of_the_memory() {
        let timing = Timing { median_ns: 1000.0, bytes_per_s: Some(2.4e12), ..Timing::default() };
        let profile = Profile {
            device: Some("NVIDIA H200".to_owned()),
            timing: Some(timing),
            ..Profile::default()
        };
        let [share] = &shares(&profile)[..] else { panic!() };
        assert_eq!((share.unit.as_str(), share.limit.as_str()), ("HBM", "memory"));
        assert!((share.percent - 50.0).abs() < 1e-9);
    }

    #[test]
    fn another_gpu_or_no_counted_work_has_none() {
        let mut other = product(1_600_000.0, None);
        other.device = Some("NVIDIA H100 PCIe".to_owned());
        assert!(shares(&other).is_empty());
        let mut uncounted = product(1_600_000.0, None);
        for timing in uncounted.cases.iter_mut().filter_map(|case| case.timing.as_mut()) {
            (timing.flops_per_s, timing.bytes_per_s) = (None, None);
        }
        assert!(shares(&uncounted).is_empty());
    }
}
