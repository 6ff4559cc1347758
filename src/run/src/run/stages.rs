//! The model of a kernel as it was built, and the stages that it marks with NVTX regions.

use rgpu_case::{Case, ModelReport, Setting};

use rgpu_model::profile::ModelInfo;
use rgpu_model::stage::StageClock;
use rgpu_model::{Region, Stage};
use rgpu_plan::kernel::{KernelSpec, ModelSpec};

/// The runner's range around the timed phase; inside it is a range per case.
const TIMED: &str = "rgpu@timed";

/// The model's entry in the profile, from kernel.toml and the harness's report.
pub(super) fn model(spec: &ModelSpec, built: &ModelReport) -> ModelInfo {
    let text = |setting: &Setting| match setting {
        // As in kernel.toml, not as in Python.
        Setting::Bool(flag) => flag.to_string(),
        other => other.to_string(),
    };
    ModelInfo {
        name: spec.name.clone(),
        variant: spec.variant.clone(),
        dtype: built.dtype.clone().unwrap_or_else(|| spec.dtype.clone()),
        parameters: built.parameters,
        settings: spec.settings.iter().map(|(name, s)| (name.clone(), text(s))).collect(),
        matmul_flops_per_s: built.matmul_flops_per_s,
    }
}

/// The stages of a kernel that has a model or declares the work of regions; else empty.
pub(super) fn stages(regions: &[Region], cases: &[Case], spec: &KernelSpec) -> Vec<Stage> {
    if spec.model.is_none() && spec.work.regions.is_empty() {
        return Vec::new();
    }
    regions.iter().filter_map(|region| stage(region, cases)).collect()
}

fn stage(region: &Region, cases: &[Case]) -> Option<Stage> {
    let [phase, range, .., own] = region.path.as_slice() else { return None };
    let range = range.strip_prefix("rgpu@").unwrap_or(range);
    let case = cases.iter().find(|case| case.range_name() == range && phase == TIMED)?;
    if region.path.len() < 3 {
        return None;
    }
    let instances = region.instances.filter(|n| *n > 0)?;
    let (total, clock) = match (region.gpu_ns.filter(|ns| *ns > 0), region.host_ns) {
        (Some(gpu), _) => (gpu, StageClock::Gpu),
        (None, Some(host)) => (host, StageClock::Host),
        (None, None) => return None,
    };
    let mean_ns = total as f64 / instances as f64;
    let flops = case.region_flops.get(own).copied();
    let span = region.gpu_span_ns.filter(|_| clock == StageClock::Gpu);
    Some(Stage {
        case: case.name.clone(),
        region: own.clone(),
        instances,
        mean_ns,
        clock,
        gpu_span_ns: span.map(|span| span as f64 / instances as f64),
        plain_ns: None,
        flops,
        flops_per_s: flops.filter(|_| mean_ns > 0.0).map(|flops| flops * 1e9 / mean_ns),
        utilization: None,
        from: region.from.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_of_the_models_own_inside_the_timed_phase_is_a_stage() {
        let case: Case = serde_json::from_value(serde_json::json!({
            "name": "n=1,m=2", "groups": [], "region_flops": { "LLM@prefill": 6e9 },
        }))
        .unwrap();
        let region = |path: &[&str], gpu_ns| Region {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            instances: Some(3),
            host_ns: Some(9_000),
            gpu_ns,
            ..Region::default()
        };
        let cases = [case];
        let range = "rgpu@n=1 m=2";
        for path in [&[TIMED][..], &[TIMED, range], &["rgpu@warmup", range, "LLM@prefill"]] {
            assert_eq!(stage(&region(path, None), &cases), None, "{path:?}");
        }
        let host = stage(&region(&[TIMED, range, "LLM@prefill"], None), &cases).unwrap();
        assert_eq!((host.mean_ns, host.clock.as_str()), (3_000.0, "host"));
        assert_eq!((host.case.as_str(), host.flops_per_s), ("n=1,m=2", Some(2e15)));
        let inner = region(&[TIMED, range, "LLM@decode_all", "LLM@decode_step"], Some(600));
        let gpu = stage(&inner, &cases).unwrap();
        assert_eq!((gpu.region.as_str(), gpu.mean_ns), ("LLM@decode_step", 200.0));
        assert_eq!((gpu.clock.as_str(), gpu.flops), ("gpu", None));
    }
}
