//! Roofline ceilings for reports without their own, and the share of them that the run reached.
//!
//! A launch keeps the ceilings of its report (source `report`). Without those they come from the
//! device attributes in the report (`device`: clocks, units, bus width), else from the datasheet
//! (`datasheet`). Each ceiling names its source.

use super::concept::TENSOR_ACTIVE;
use super::datasheet::{self, Peaks};
use super::device;
use super::geometric_mean;
use super::known_kernel::{MatrixUnit, matrix_unit};
use super::threshold::{Limits, TENSOR_USED, Thresholds};
use rgpu_model::launch::Roof;
use rgpu_model::profile::{ModelInfo, Timing};
use rgpu_model::speed_of_light::{PeakSource, SpeedBound};
use rgpu_model::timeline::KernelSum;
use rgpu_model::{Launch, Profile, SpeedOfLight, Utilization};

const FLOPS: &str = "FLOP/s";
const BYTES: &str = "byte/s";
const DRAM: &str = "DRAM";
const CHART: &str = "device";

/// Adds ceilings to every launch with metrics, and the speed of light to every case with `[work]`.
pub(super) fn add(profile: &mut Profile) {
    let device = device::find_device(profile);
    let sheet = device.name.as_deref().and_then(datasheet::peaks);
    for launch in &mut profile.launches {
        if launch.roofline.is_empty() && !launch.metrics.is_empty() {
            launch.roofline = ceilings(launch, sheet);
        }
    }
    let mut peaks = Choice::new(&profile.launches, sheet);
    if let Some(model) = &profile.kernel.model
        && let Some(peak) = model_peak(model, &profile.kernels, sheet)
    {
        peaks.compute = Some(peak);
    }
    let default = profile.timing.as_ref().map(|timing| ("", timing));
    let cases = profile.cases.iter().filter_map(|c| Some((c.name.as_str(), c.timing.as_ref()?)));
    let timed: Vec<_> =
        if profile.cases.is_empty() { default.into_iter().collect() } else { cases.collect() };
    profile.speed_of_light =
        timed.into_iter().filter_map(|(case, timing)| peaks.speed(case, timing)).collect();
    profile.geometric_mean = geometric_mean::from_cases(&profile.cases, &profile.speed_of_light);
    for stage in &mut profile.stages {
        let share = utilization(stage.flops_per_s, &peaks.compute, FLOPS);
        // More than the peak means that the peak is of another type than the work.
        stage.utilization = share.filter(|share| share.percent <= 100.0);
    }
}

/// Ceilings of the device that a launch ran on.
fn ceilings(launch: &Launch, sheet: Option<&Peaks>) -> Vec<Roof> {
    let roof =
        |label: &str, peak: f64, unit: &str, achieved: Option<f64>, source: PeakSource| Roof {
            chart: CHART.to_owned(),
            label: label.to_owned(),
            peak,
            unit: unit.to_owned(),
            achieved,
            source,
        };
    let moved = launch.number("dram__bytes.sum.per_second");
    let mut roofs = Vec::new();
    match (memory_of_device(launch), sheet) {
        (Some(peak), _) => roofs.push(roof(DRAM, peak, BYTES, moved, PeakSource::Device)),
        (None, Some(sheet)) => {
            roofs.push(roof(DRAM, sheet.dram * 1e12, BYTES, moved, PeakSource::Datasheet))
        }
        (None, None) => {}
    }
    match (fp32_of_device(launch), sheet) {
        (Some(peak), _) => {
            roofs.push(roof("FP32", peak, FLOPS, None, PeakSource::Device));
            if let Some(ratio) = launch
                .number("device__attribute_single_to_double_precision_perf_ratio")
                .filter(|ratio| *ratio >= 1.0)
            {
                roofs.push(roof("FP64", peak / ratio, FLOPS, None, PeakSource::Device));
            }
        }
        (None, Some(sheet)) => {
            let nonzero = sheet.compute.iter().filter(|(_, rate)| *rate > 0.0);
            roofs.extend(
                nonzero.map(|(label, rate)| {
                    roof(label, rate * 1e12, FLOPS, None, PeakSource::Datasheet)
                }),
            );
        }
        (None, None) => {}
    }
    roofs
}

/// DRAM bandwidth from device attributes: two transfers per clock over the whole bus.
fn memory_of_device(launch: &Launch) -> Option<f64> {
    let khz = launch.number("device__attribute_memory_clock_rate")?;
    let bits = launch.number("device__attribute_global_memory_bus_width")?;
    Some(khz * 1e3 * 2.0 * bits / 8.0).filter(|peak| *peak > 0.0)
}

/// FP32 peak from device attributes: one fused multiply-add per clock and lane. Volta, Turing and
/// GA100 have 64 lanes per SM, the others 128.
fn fp32_of_device(launch: &Launch) -> Option<f64> {
    let khz = launch.number("device__attribute_clock_rate")?;
    let sms = launch.number("device__attribute_multiprocessor_count")?;
    let lanes = match device::compute(launch)? {
        (7, _) | (8, 0) => 64.0,
        (8.., _) => 128.0,
        _ => return None,
    };
    Some(khz * 1e3 * sms * lanes * 2.0).filter(|peak| *peak > 0.0)
}

/// The peaks that the run's rates are compared with.
struct Choice {
    compute: Option<Peak>,
    memory: Option<Peak>,
    /// Tensor peaks of the datasheet, lowest first, for rates above a guessed peak.
    sheet: Vec<Peak>,
}

#[derive(Clone)]
struct Peak {
    label: String,
    value: f64,
    source: PeakSource,
    note: String,
}

impl Choice {
    /// Picks the peak of the unit that the launches' own charts show in use, else the device's
    /// FP32.
    fn new(launches: &[Launch], sheet: Option<&Peaks>) -> Choice {
        let roofs = || launches.iter().flat_map(|launch| &launch.roofline);
        let reached =
            launches.iter().filter_map(Launch::compute_roof).max_by(|a, b| a.1.total_cmp(&b.1));
        let unmeasured = sheet.is_some_and(|sheet| !sheet.measured);
        let mut compute = reached.map(|(roof, _)| Peak::from_roof(roof, ""));
        if compute.is_none() {
            compute = from_table(launches, sheet);
        }
        let memory = roofs().find(|roof| roof.label == DRAM).map(|roof| Peak::from_roof(roof, ""));
        let memory = memory.or_else(|| sheet.map(|s| Peak::from_sheet(DRAM, s.dram, "")));
        let outrun =
            "faster than the FP32 units can be: the tensor cores computed it, with an unknown type";
        // Half precision is the most likely type, as above; the lower TF32 peak would overstate the
        // share.
        let likely = |label: &str| matches!(label, "tensor bf16" | "tensor fp8" | "tensor fp4");
        let peaks = sheet.iter().flat_map(|sheet| sheet.compute);
        let peaks = peaks.filter(|(label, _)| likely(label));
        let mut peaks: Vec<_> =
            peaks.map(|(label, rate)| Peak::from_sheet(label, rate, outrun)).collect();
        peaks.sort_by(|a, b| a.value.total_cmp(&b.value));
        let mut choice = Choice { compute, memory, sheet: peaks };
        if unmeasured {
            let sides = [&mut choice.compute, &mut choice.memory].into_iter().flatten();
            let sides = sides.chain(&mut choice.sheet);
            sides.filter(|peak| peak.source == PeakSource::Datasheet).for_each(Peak::doubt);
        }
        choice
    }

    fn speed(&self, case: &str, timing: &Timing) -> Option<SpeedOfLight> {
        // A rate above the peak means that the peak was guessed wrong.
        let rate = timing.flops_per_s.unwrap_or(0.0);
        let outrun =
            self.compute.as_ref().is_some_and(|peak| !peak.note.is_empty() && rate > peak.value);
        let compute = if outrun {
            self.sheet.iter().find(|peak| peak.value >= rate).cloned()
        } else {
            self.compute.clone()
        };
        let flops = utilization(timing.flops_per_s, &compute, FLOPS);
        let bytes = utilization(timing.bytes_per_s, &self.memory, BYTES);
        let percent = |side: &Option<Utilization>| side.as_ref().map_or(0.0, |u| u.percent);
        let (compute, memory) = (percent(&flops), percent(&bytes));
        let best_percent = compute.max(memory);
        (best_percent > 0.0).then(|| SpeedOfLight {
            case: case.to_owned(),
            bound: if compute >= memory { SpeedBound::Compute } else { SpeedBound::Memory },
            least_ns: timing.median_ns * best_percent / 100.0,
            percent: best_percent,
            flops,
            bytes,
        })
    }
}

/// The share of a peak that a rate reaches.
fn utilization(rate: Option<f64>, peak: &Option<Peak>, unit: &str) -> Option<Utilization> {
    let (achieved, peak) = (rate?, peak.as_ref()?);
    (achieved > 0.0 && peak.value > 0.0).then(|| Utilization {
        achieved,
        peak: peak.value,
        unit: unit.to_owned(),
        percent: achieved / peak.value * 100.0,
        label: peak.label.clone(),
        source: peak.source.clone(),
        note: peak.note.clone(),
    })
}

/// The peak for a model's dtype: from the datasheet, else from the matrix products measured in the
/// same run. A model in FP32 can compute in another type, such as under autocast: the kernels tell.
fn model_peak(model: &ModelInfo, kernels: &[KernelSum], sheet: Option<&Peaks>) -> Option<Peak> {
    let label = match model.dtype.as_str() {
        "float64" => "FP64",
        "float32" => match most_products(kernels) {
            Some(MatrixUnit::Tensor16) => "tensor bf16",
            Some(MatrixUnit::Tensor) => "tensor tf32",
            Some(MatrixUnit::Fp32) | None => "FP32",
        },
        "float16" | "bfloat16" => "tensor bf16",
        dtype if dtype.starts_with("float8") => "tensor fp8",
        dtype if dtype.starts_with("float4") => "tensor fp4",
        _ => return None,
    };
    let of_sheet =
        sheet.and_then(|s| s.compute.iter().find(|(l, rate)| *l == label && *rate > 0.0));
    if let Some((label, rate)) = of_sheet {
        return Some(Peak::from_sheet(label, *rate, ""));
    }
    model.matmul_flops_per_s.map(|value| Peak {
        label: format!("{} matrix products", model.dtype),
        value,
        source: PeakSource::Measured,
        note: "no datasheet of this device is known; the value is the best of large matrix \
               products on it"
            .to_owned(),
    })
}

/// The unit with the most time of matrix products.
pub(super) fn most_products(kernels: &[KernelSum]) -> Option<MatrixUnit> {
    let ns = |unit: MatrixUnit| {
        let of_unit = kernels.iter().filter(|sum| matrix_unit(&sum.kernel) == Some(unit));
        (of_unit.map(|sum| sum.total_ns).sum::<u64>(), unit)
    };
    let units = [MatrixUnit::Fp32, MatrixUnit::Tensor, MatrixUnit::Tensor16].map(ns);
    units.into_iter().filter(|(ns, _)| *ns > 0).max_by_key(|(ns, _)| *ns).map(|(_, unit)| unit)
}

/// The compute peak from device attributes or the datasheet, for reports without a roofline chart.
fn from_table(launches: &[Launch], sheet: Option<&Peaks>) -> Option<Peak> {
    let thresholds = Thresholds::default();
    let tensor = launches.iter().any(|launch| {
        let used = Limits::new(&thresholds, device::major(launch)).threshold(&TENSOR_USED).value;
        launch.first_number(TENSOR_ACTIVE).is_some_and(|(_, active)| active >= used)
    });
    let of_sheet = |label: &str, note: &str| {
        let sheet = sheet?;
        let (label, rate) = sheet.compute.iter().find(|(l, rate)| *l == label && *rate > 0.0)?;
        Some(Peak::from_sheet(label, *rate, note))
    };
    if tensor {
        let note = "the tensor cores are used; the profile does not say with which type";
        return of_sheet("tensor bf16", note);
    }
    let note = "the profile does not say which type and unit the kernel computes with";
    let roofs = launches.iter().flat_map(|launch| &launch.roofline);
    let device =
        roofs.into_iter().find(|roof| roof.label == "FP32" && roof.source == PeakSource::Device);
    device.map(|roof| Peak::from_roof(roof, note)).or_else(|| of_sheet("FP32", note))
}

impl Peak {
    fn from_roof(roof: &Roof, note: &str) -> Peak {
        Peak {
            label: roof.label.clone(),
            value: roof.peak,
            source: roof.source.clone(),
            note: note.to_owned(),
        }
    }

    fn from_sheet(label: &str, tera: f64, note: &str) -> Peak {
        Peak {
            label: label.to_owned(),
            value: tera * 1e12,
            source: PeakSource::Datasheet,
            note: note.to_owned(),
        }
    }

    fn doubt(&mut self) {
        let separator = if self.note.is_empty() { "" } else { "; " };
        self.note.push_str(separator);
        self.note.push_str("unmeasured: rgpu has no recording of this GPU");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::Stage;

    fn timing(flops: Option<f64>, bytes: Option<f64>) -> Timing {
        Timing { median_ns: 1000.0, flops_per_s: flops, bytes_per_s: bytes, ..Timing::default() }
    }

    fn profile(device: &str, timing: Timing) -> Profile {
        Profile { device: Some(device.to_owned()), timing: Some(timing), ..Profile::default() }
    }

    #[test]
    fn without_a_report_the_datasheet_is_the_peak_and_says_so() {
        let mut profile = profile("NVIDIA H200", timing(Some(6.7e12), Some(2.4e12)));
        add(&mut profile);
        let speed = &profile.speed_of_light[0];
        assert_eq!((speed.bound.as_str(), speed.percent, speed.least_ns), ("memory", 50.0, 500.0));
        let flops = speed.flops.as_ref().unwrap();
        assert_eq!((flops.label.as_str(), flops.source.as_str()), ("FP32", "datasheet"));
        assert!((flops.percent - 10.0).abs() < 1e-9);
        assert!(flops.note.contains("does not say which type"));
    }

    #[test]
    fn work_that_outruns_a_guessed_peak_is_held_against_one_that_it_can_reach() {
        let mut profile = profile("NVIDIA H200", timing(Some(457e12), None));
        add(&mut profile);
        let flops = profile.speed_of_light[0].flops.as_ref().unwrap();
        assert!(flops.label.starts_with("tensor") && flops.percent <= 100.0, "{flops:?}");
        assert!(flops.note.contains("the tensor cores computed it"), "{}", flops.note);
        let mut profile = self::profile("NVIDIA H200", timing(Some(1e18), None));
        add(&mut profile);
        assert!(profile.speed_of_light.is_empty(), "no unit of this GPU is so fast");
    }

    #[test]
    fn a_model_in_fp32_is_held_against_the_type_that_its_products_have() {
        let kernel = |kernel: &str, total_ns| KernelSum {
            kernel: kernel.to_owned(),
            total_ns,
            ..KernelSum::default()
        };
        let shares = |kernels: Vec<KernelSum>| {
            let stage = |rate| Stage { flops_per_s: Some(rate), ..Stage::default() };
            let mut profile = Profile {
                device: Some("NVIDIA H200".to_owned()),
                stages: vec![stage(126e12), stage(6.7e12)],
                kernels,
                ..Profile::default()
            };
            let dtype = "float32".to_owned();
            profile.kernel.model = Some(ModelInfo { dtype, ..ModelInfo::default() });
            add(&mut profile);
            let share = |stage: Stage| stage.utilization.map(|u| (u.label, u.percent.round()));
            profile.stages.into_iter().map(share).collect::<Vec<_>>()
        };
        let share = |label: &str, percent| Some((label.to_owned(), percent));
        let gemm = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT";
        let autocast = vec![kernel(gemm, 9), kernel("ampere_sgemm_128x64_tn", 1)];
        assert_eq!(shares(autocast), [share("tensor bf16", 13.0), share("tensor bf16", 1.0)]);
        // No share is above the peak.
        assert_eq!(shares(Vec::new()), [None, share("FP32", 10.0)]);
    }

    #[test]
    fn a_gpu_that_we_never_measured_is_labelled() {
        let mut profile = profile("NVIDIA B200", timing(None, Some(1e12)));
        add(&mut profile);
        let bytes = profile.speed_of_light[0].bytes.as_ref().unwrap();
        assert!(bytes.note.starts_with("unmeasured"), "{}", bytes.note);
    }

    #[test]
    fn what_a_chart_says_was_computed_with_is_the_peak() {
        let roof = |label: &str, peak, achieved| Roof {
            chart: "c".to_owned(),
            label: label.to_owned(),
            peak,
            unit: FLOPS.to_owned(),
            achieved,
            source: PeakSource::Report,
        };
        let roofline = vec![
            roof("FP32", 65e12, Some(1e9)),
            roof("tensor bf16 to fp32", 1045e12, Some(500e12)),
            roof("FP64", 32e12, None),
        ];
        let mut profile = profile("NVIDIA H200", timing(Some(522.5e12), None));
        profile.launches.push(Launch { roofline, ..Launch::default() });
        add(&mut profile);
        let flops = profile.speed_of_light[0].flops.as_ref().unwrap();
        assert_eq!(
            (flops.label.as_str(), flops.source.as_str()),
            ("tensor bf16 to fp32", "report")
        );
        assert!((flops.percent - 50.0).abs() < 1e-9);
    }

    #[test]
    fn attributes_of_the_device_give_ceilings() {
        let launch = Launch::from_numbers(&[
            ("device__attribute_memory_clock_rate", 3_201_000.0),
            ("device__attribute_global_memory_bus_width", 6016.0),
            ("device__attribute_clock_rate", 1_980_000.0),
            ("device__attribute_multiprocessor_count", 132.0),
            ("device__attribute_compute_capability_major", 9.0),
            ("device__attribute_compute_capability_minor", 0.0),
            ("device__attribute_single_to_double_precision_perf_ratio", 2.0),
        ]);
        let roofs = ceilings(&launch, None);
        let peak = |label| roofs.iter().find(|roof| roof.label == label).map(|roof| roof.peak);
        // Values of ncu's own charts for this device, within half a percent: 4.808, 65.3, 32.7.
        for (label, own) in [(DRAM, 4.808e12), ("FP32", 65.3e12), ("FP64", 32.7e12)] {
            let peak = peak(label).unwrap();
            assert!((peak / own - 1.0).abs() < 0.03, "{label}: {peak}");
        }
        assert!(roofs.iter().all(|roof| roof.source == PeakSource::Device));
    }

    #[test]
    fn nothing_is_claimed_without_work_or_without_a_known_device() {
        let mut unknown = profile("some GPU", timing(Some(1e12), None));
        add(&mut unknown);
        assert!(unknown.speed_of_light.is_empty());
        let mut no_work = profile("NVIDIA H200", timing(None, None));
        add(&mut no_work);
        assert!(no_work.speed_of_light.is_empty());
    }
}
