//! The times of a case, taken from its profile, with the keys by which they are compared.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::target::CaseSettings;
use rgpu_analysis::compare::device;
use rgpu_model::Profile;
use rgpu_model::metric::MAIN_METRICS;
use rgpu_model::profile::TimingClock;
use rgpu_model::suite::{MeasurementKey, RooflinePoint, SuiteTime};
use rgpu_plan::kernel::KernelSpec;
use rgpu_run::store::InputsRecord;

/// Version of the way in which times are made comparable. Times of another version are not.
const METHOD: u32 = 1;

/// The metrics that a suite keeps beside [`MAIN_METRICS`], by NVIDIA's names. The profile has all.
const METRICS: &[&str] = &[
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "launch__registers_per_thread",
    "launch__waves_per_multiprocessor",
    "gpu__time_duration.sum",
];

/// The conditions of a time that its profile does not have.
#[derive(Clone, Debug, Default)]
pub struct SideSource {
    /// The case: the target, with the values of its axes in brackets.
    pub case: String,
    /// The side: `kernel`, `baseline` or `optimised`.
    pub side: &'static str,
    /// The dtypes of the kernel's outputs.
    pub dtype: String,
    /// How the SM clock was set: `as_found` or `locked N MHz`.
    pub clocks: String,
    /// Digest of what the kernel was made of, from [`inputs_digest`].
    pub inputs: String,
}

impl SideSource {
    /// The dtypes of the outputs, each once; for a Python kernel, that of its model.
    pub fn dtype_of(spec: &KernelSpec) -> String {
        let mut names: Vec<String> = Vec::new();
        for arg in spec.args.iter().filter(|arg| arg.role.is_output()) {
            let name = arg.dtype.to_string();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        match (names.is_empty(), &spec.model) {
            (true, Some(model)) => model.dtype.clone(),
            _ => names.join("+"),
        }
    }
}

/// A digest of everything that a kernel is made of: its files and the options of its build.
pub fn inputs_digest(inputs: &InputsRecord, settings: &CaseSettings) -> String {
    let mut files: Vec<&str> = inputs.files.iter().map(|file| file.sha256.as_str()).collect();
    files.sort_unstable();
    let parts = (files, &settings.define, &settings.env, &settings.arch);
    let digest = Sha256::digest(serde_json::to_vec(&parts).unwrap_or_default());
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The times of one side, a row for each size that was timed on a GPU.
pub fn side_times(profile: &Profile, source: &SideSource) -> Vec<SuiteTime> {
    let host = profile.host.as_ref();
    let driver = host.and_then(|host| host.driver.as_deref()).unwrap_or_default();
    let compiler = profile.kernel.compiler.split(" on ").next().unwrap_or_default();
    let toolkit = match compiler {
        "" => profile.kernel.language.to_string(),
        compiler => compiler.to_owned(),
    };
    let time = |case: &rgpu_model::profile::CaseResult| {
        let timing = case.timing.as_ref()?;
        if timing.clock == TimingClock::CpuReference || timing.median_ns <= 0.0 {
            return None;
        }
        let flushed = if timing.l2_flushed { " l2_flush" } else { "" };
        Some(SuiteTime {
            key: MeasurementKey {
                case: source.case.clone(),
                side: source.side.to_owned(),
                sizes: sizes_text(&case.sizes),
                dtype: source.dtype.clone(),
                gpu: device(profile).unwrap_or_default(),
                driver: driver.split('.').next().unwrap_or_default().to_owned(),
                toolkit: toolkit.clone(),
                clocks: source.clocks.clone(),
                method: format!("{METHOD} {}{flushed}", timing.clock),
            },
            size: case.name.clone(),
            inputs: source.inputs.clone(),
            device: profile.gpu.clone().unwrap_or_default(),
            median_ns: timing.median_ns,
            ci95_ns: timing.ci95_ns,
            samples: timing.samples,
            histogram: timing.histogram.clone(),
            graph: timing.graph.clone(),
            cooled_s: timing.cooling.map(|cooling| cooling.seconds),
            roofline: roofline_point(profile, &case.name),
            sol_percent: sol_percent(profile, &case.name),
            correctness: case.correctness.as_ref().map(|check| check.verdict.clone()),
            bit_equal: case.correctness.as_ref().and_then(|check| check.bit_equal),
            throttle: timing.throttle.clone(),
            against: None,
        })
    };
    profile.cases.iter().filter_map(time).collect()
}

/// The share of the speed-of-light bound of a case, in percent. On a GPU that is not in the
/// catalogue the bound is the roofline's.
fn sol_percent(profile: &Profile, case: &str) -> Option<f64> {
    if let Some(share) = profile.bound.iter().find(|share| share.case == case) {
        return Some(share.percent);
    }
    let light = profile.speed_of_light.iter().find(|light| light.case == case)?;
    Some(light.percent)
}

/// The position of a case under the roofline, if both its operations and its bytes are counted.
fn roofline_point(profile: &Profile, case: &str) -> Option<RooflinePoint> {
    let light = profile.speed_of_light.iter().find(|light| light.case == case)?;
    let (flops, bytes) = (light.flops.as_ref()?, light.bytes.as_ref()?);
    Some(RooflinePoint {
        flops_per_s: flops.achieved,
        bytes_per_s: bytes.achieved,
        flops_peak: flops.peak,
        bytes_peak: bytes.peak,
        label: flops.label.clone(),
    })
}

/// Sizes as text: `n=1024`, with `;` between groups.
fn sizes_text(groups: &[BTreeMap<String, i64>]) -> String {
    let group = |sizes: &BTreeMap<String, i64>| {
        sizes.iter().map(|(name, n)| format!("{name}={n}")).collect::<Vec<_>>().join(",")
    };
    groups.iter().map(group).collect::<Vec<_>>().join(";")
}

/// The metrics that a suite keeps, of the launch that took the longest.
pub fn metrics(profile: &Profile) -> BTreeMap<String, f64> {
    let longest = profile.launches.iter().max_by(|a, b| {
        let ns = |launch: &rgpu_model::Launch| launch.duration_ns.unwrap_or_default();
        ns(a).total_cmp(&ns(b))
    });
    let Some(launch) = longest else { return BTreeMap::new() };
    let main = MAIN_METRICS.iter().flat_map(|main| main.ids);
    main.chain(METRICS).filter_map(|id| Some(((*id).to_owned(), launch.number(id)?))).collect()
}
