//! The facts that our hook records about a program: its model, the FLOPs of its stages, gaps.

use rgpu_format::torch_trace::Recording;

use rgpu_model::profile::{Gap, ModelInfo};
use rgpu_model::stage::StageClock;
use rgpu_model::{Region, Stage};

/// The range of one step of an optimizer.
const STEP: &str = "torch@step";
/// The domain of the stages of a language model.
const MODEL_DOMAIN: &str = "LLM@";

/// The Hugging Face model of the program.
pub(super) fn model(recording: &Recording) -> Option<ModelInfo> {
    let model = recording.model.as_ref()?;
    let variant = if model.architecture == model.name { "" } else { &model.architecture };
    let layers = model.layers.map(|layers| ("layers".to_owned(), layers.to_string()));
    Some(ModelInfo {
        name: model.name.clone(),
        variant: variant.to_owned(),
        dtype: model.dtype.clone(),
        parameters: model.parameters,
        settings: layers.into_iter().collect(),
        matmul_flops_per_s: None,
    })
}

/// The stages among the regions: steps of an optimizer and calls of a model, by name. Steps follow
/// each other, so that the host's time is theirs. A call of a model returns before the GPU has done
/// its work, so that its time is the GPU's. `plain_step_ns` is the time of a step without the
/// profiler.
pub(super) fn stages(
    recording: &Recording,
    plain_step_ns: Option<u64>,
    regions: &[Region],
) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    let is_stage = |name: &str| name == STEP || name.starts_with(MODEL_DOMAIN);
    let names = regions.iter().filter_map(|region| region.path.last());
    for name in names.filter(|name| is_stage(name)) {
        if stages.iter().any(|stage| stage.region == *name) {
            continue;
        }
        let all = || regions.iter().filter(|region| region.path.last() == Some(name));
        let instances: u64 = all().filter_map(|region| region.instances).sum();
        let gpu: u64 = all().filter_map(|region| region.gpu_ns).sum();
        let host: u64 = all().filter_map(|region| region.host_ns).sum();
        let (total, clock) = match gpu {
            0 => (host, StageClock::Host),
            _ if name == STEP => (host, StageClock::Host),
            gpu => (gpu, StageClock::Gpu),
        };
        if instances == 0 || total == 0 {
            continue;
        }
        let mean_ns = total as f64 / instances as f64;
        let plain_ns = plain_step_ns.filter(|ns| name == STEP && *ns > 0);
        let is_on_gpu = clock == StageClock::Gpu;
        let span: Option<u64> = all().map(|region| region.gpu_span_ns).sum();
        let span = span.filter(|span| is_on_gpu && *span > 0);
        let work = recording.work.get(name).filter(|work| work.calls > 0 && work.flops > 0.0);
        let flops = work.map(|work| work.flops / work.calls as f64);
        stages.push(Stage {
            case: String::new(),
            region: name.clone(),
            instances,
            mean_ns,
            clock,
            gpu_span_ns: span.map(|span| span as f64 / instances as f64),
            plain_ns,
            flops,
            flops_per_s: flops.map(|flops| flops * 1e9 / plain_ns.map_or(mean_ns, |ns| ns as f64)),
            utilization: None,
            from: all().next().map(|region| region.from.clone()).unwrap_or_default(),
        });
    }
    stages
}

/// The gaps of the trace.
pub(super) fn gaps(recording: &Recording, from: &str) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut gap = |code: &str, text: String| {
        gaps.push(Gap { code: code.to_owned(), text: format!("{from}: {text}") });
    };
    if recording.recorded == "steps" && recording.steps > 0 {
        gap("recorded_steps", recorded_steps(recording));
    }
    if recording.cut {
        let text = "the recording was ended before the program was: \
                    `--capture-range RANGE` records inside a range instead";
        gap("recording_cut", text.to_owned());
    }
    if let Some(why) = &recording.no_places {
        gap("no_places", format!("operators have no place in the source: {why}"));
    }
    if recording.ranks > 1 {
        gap("one_rank", format!("it is of rank 0; the program has {} ranks", recording.ranks));
    }
    gaps
}

/// Which steps the trace has. The hook begins after the first step of the optimizer.
fn recorded_steps(recording: &Recording) -> String {
    let steps = match recording.steps {
        1 => "1 step of the optimizer, the second".to_owned(),
        steps => format!("{steps} steps of the optimizer, 2 to {}", steps.saturating_add(1)),
    };
    let stacks = if recording.no_places.is_none() { "stacks, " } else { "" };
    format!(
        "torch's profiler recorded {steps}; it also records {stacks}shapes and memory, which \
         lengthens the time of the host"
    )
}

#[cfg(test)]
mod tests {
    use rgpu_format::torch_trace::RangeWork;

    use super::*;

    #[test]
    fn a_trace_of_steps_says_which_it_has() {
        let of = |recorded: &str, steps, no_places: Option<&str>| {
            let recording = Recording {
                recorded: recorded.to_owned(),
                steps,
                no_places: no_places.map(str::to_owned),
                ..Recording::default()
            };
            let gaps = gaps(&recording, "t");
            gaps.into_iter().find(|gap| gap.code == "recorded_steps").map(|gap| gap.text)
        };
        let three = "t: torch's profiler recorded 3 steps of the optimizer, 2 to 4; it also records \
                     stacks, shapes and memory, which lengthens the time of the host";
        assert_eq!(of("steps", 3, None).as_deref(), Some(three));
        let one = "t: torch's profiler recorded 1 step of the optimizer, the second; it also records \
                   shapes and memory, which lengthens the time of the host";
        assert_eq!(of("steps", 1, Some("compiled")).as_deref(), Some(one));
        assert_eq!(of("range", 3, None), None);
        assert_eq!(of("steps", 0, None), None);
    }

    #[test]
    fn stages_of_one_name_are_one_and_have_the_rate_of_their_clock() {
        let region = |path: &[&str], instances, host_ns, gpu_ns| Region {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            instances: Some(instances),
            host_ns: Some(host_ns),
            gpu_ns: Some(gpu_ns),
            gpu_span_ns: Some(10 * gpu_ns),
            ..Region::default()
        };
        let regions = [
            region(&["prefill"], 1, 100, 900),
            region(&["prefill", "LLM@prefill"], 1, 100, 800),
            region(&["warm", "LLM@prefill"], 1, 100, 200),
            region(&["torch@step"], 2, 4_000, 1_000),
            region(&["torch@step", "LLM@forward"], 2, 10, 0),
        ];
        let work = |calls, flops| RangeWork { calls, flops };
        let recording = Recording {
            work: [
                ("LLM@prefill".to_owned(), work(2, 2e6)),
                ("torch@step".to_owned(), work(2, 8e6)),
            ]
            .into(),
            ..Recording::default()
        };
        let stages = stages(&recording, Some(1_000), &regions);
        let plain: Vec<_> = stages.iter().map(|stage| stage.plain_ns).collect();
        assert_eq!(plain, [None, Some(1_000), None]);
        let spans: Vec<_> = stages.iter().map(|stage| stage.gpu_span_ns).collect();
        assert_eq!(spans, [Some(5_000.0), None, None]);
        let shown: Vec<_> = stages
            .into_iter()
            .map(|s| (s.region, s.instances, s.mean_ns, s.clock.to_string(), s.flops_per_s))
            .collect();
        let expected = [
            ("LLM@prefill".to_owned(), 2, 500.0, "gpu".to_owned(), Some(2e12)),
            ("torch@step".to_owned(), 2, 2_000.0, "host".to_owned(), Some(4e12)),
            ("LLM@forward".to_owned(), 2, 5.0, "host".to_owned(), None),
        ];
        assert_eq!(shown, expected);
    }
}
