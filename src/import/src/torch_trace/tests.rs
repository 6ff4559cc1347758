use std::path::Path;

use rgpu_format::torch_trace::TorchTrace;

use super::*;

fn imported(case: &str) -> ImportedArtifact {
    imported_from("public", case)
}

fn imported_from(folder: &str, case: &str) -> ImportedArtifact {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/torch")
        .join(folder);
    let file = std::fs::read(root.join(case).join("trace.json")).unwrap();
    import(&TorchTrace::read(&file).unwrap(), "trace.json")
}

#[test]
fn gpu_time_of_operators_is_the_gpus() {
    for case in ["simple-add", "alexnet", "triton"] {
        let imported = imported(case);
        let kernels: u64 = imported.kernels.iter().map(|kernel| kernel.total_ns).sum();
        let copies: u64 = imported.copies.iter().map(|copy| copy.total_ns).sum();
        let own: u64 = imported.operators.iter().filter_map(|operator| operator.gpu_self_ns).sum();
        assert!(own > 0 && own <= kernels + copies, "{case}: {own} of {kernels} + {copies}");
        for operator in &imported.operators {
            assert!(operator.gpu_ns >= operator.gpu_self_ns, "{case}: {}", operator.name);
            assert!(operator.host_ns >= operator.host_self_ns || operator.calls > 1);
        }
        assert_eq!(imported.device.as_deref(), Some("NVIDIA A100-PG509-200"));
        assert!(imported.sidecars.trace.is_some_and(|trace| !trace.work.is_empty()));
    }
}

#[test]
fn operators_of_a_recording_are_these() {
    let imported = imported("simple-add");
    let line = |o: &rgpu_model::Operator| {
        let kernels: Vec<_> = o.kernels.iter().map(|k| k.launches.to_string()).collect();
        format!(
            "{} calls {} host {} self {} gpu {:?} self {:?} kernels {}",
            o.name,
            o.calls,
            o.host_ns,
            o.host_self_ns,
            o.gpu_ns,
            o.gpu_self_ns,
            kernels.join("+")
        )
    };
    let lines: Vec<_> = imported.operators.iter().map(line).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn annotations_are_regions_and_launches_know_theirs() {
    let added = imported("simple-add");
    assert!(added.regions.iter().any(|region| region.gpu_ns.is_some_and(|ns| ns > 0)));
    assert!(added.launches.iter().all(|launch| launch.grid[0] > 0));
    assert!(added.launches.iter().any(|launch| !launch.region.is_empty()));
    let imported = imported("alexnet");
    assert!(imported.copies.iter().any(|copy| copy.kind == "HtoD" && copy.bytes > 0));
}

#[test]
fn a_trace_of_the_host_alone_is_read_and_says_so() {
    let imported = imported("cpu-only");
    assert!(imported.refusals.is_empty());
    assert!(imported.gaps.iter().any(|gap| gap.code == "no_gpu_rows"));
    let names: Vec<_> = imported.operators.iter().map(|o| o.name.as_str()).collect();
    assert!(names.contains(&"aten::empty"), "{names:?}");
    assert!(imported.operators.iter().all(|operator| operator.gpu_ns.is_none()));
}

#[test]
fn steps_of_a_training_are_stages_and_its_operators_know_their_functions() {
    let imported = imported_from("hook", "sgd");
    let [step] = &imported.stages[..] else { panic!("{:#?}", imported.stages) };
    assert_eq!(
        (step.region.as_str(), step.instances, step.clock.as_str()),
        ("torch@step", 3, "host")
    );
    let places = |operator: &str| {
        let operator = imported.operators.iter().find(|o| o.name == operator).unwrap();
        let places = operator.places.iter();
        places.map(|place| (place.function.as_str(), place.calls)).collect::<Vec<_>>()
    };
    // torch writes the line of the call for the function in which the recording began.
    let train = [("sgd.py(5): train", 3)];
    assert_eq!(places("aten::linear"), train);
    assert_eq!(places("AddmmBackward0"), train, "the place of the forward operator");
    assert_eq!(imported.program_model, None);
    assert!(imported.memory.is_empty(), "there was no GPU");
    assert!(imported.regions.iter().any(|r| r.display().ends_with("Optimizer.step#SGD.step")));
}

/// DistributedDataParallel: autograd's thread starts collectives, and torch opens a range around
/// each.
#[test]
fn a_backward_pass_with_collectives_counts_for_its_step() {
    let imported = imported_from("hook", "ddp");
    let step = imported.regions.iter().find(|region| region.display() == "torch@step").unwrap();
    assert_eq!((step.gpu_ns, step.inferred_gpu_ns), (Some(2_655_865), Some(1_575_291)));
    let inferred = imported.launches.iter().filter(|launch| launch.region_inferred).count();
    assert_eq!((imported.launches.len(), inferred), (63, 49));
    let collectives = |r: &&rgpu_model::Region| r.display() == "nccl:all_reduce";
    assert_eq!(imported.regions.iter().find(collectives).unwrap().instances, Some(5));
}

#[test]
fn calls_of_a_hugging_face_model_are_stages_with_their_rate() {
    let imported = imported_from("hook", "llama");
    let model = imported.program_model.unwrap();
    assert_eq!((model.name.as_str(), model.dtype.as_str()), ("LlamaForCausalLM", "float32"));
    assert_eq!((model.parameters, &*model.settings["layers"]), (Some(49_856), "1"));
    let shown: Vec<_> =
        imported.stages.iter().map(|s| (s.region.as_str(), s.instances, s.flops)).collect();
    let expected = [("LLM@prefill", 1, Some(1_409_024.0)), ("LLM@decode_step", 2, Some(178_688.0))];
    assert_eq!(shown, expected);
    assert!(imported.stages.iter().all(|stage| stage.flops_per_s.is_some_and(|rate| rate > 0.0)));
}

#[test]
fn a_trace_of_a_program_that_used_the_gpu_is_refused_without_gpu_work() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/torch/hook/sgd");
    let text = std::fs::read_to_string(root.join("trace.json")).unwrap();
    let used = text.replacen("\"cuda\": false", "\"cuda\": true", 1);
    assert_ne!(used, text);
    let imported = import(&TorchTrace::read(used.as_bytes()).unwrap(), "trace.json");
    let codes: Vec<_> = imported.refusals.iter().map(|refusal| refusal.code).collect();
    assert_eq!(codes, [nsys::NO_GPU_ROWS]);
}

/// A call of `aten::addmm` whose product has 48 operations.
fn product(start: u32, end: u32) -> String {
    format!(
        r#"{{"ph":"X","cat":"cpu_op","name":"aten::addmm","pid":7,"tid":7,"ts":{start},"dur":{},
            "args":{{"Input Dims":[[4],[2,3],[3,4],[],[]]}}}}"#,
        end - start
    )
}

/// The launch of a kernel, and the kernel.
fn launched(at: u32) -> String {
    format!(
        r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,"ts":{at},"dur":1,
            "args":{{"correlation":{at}}}}},
           {{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{at},"dur":2,
            "args":{{"correlation":{at},"device":0,"stream":7,"grid":[1,2,3],"block":[4,1,1]}}}}"#
    )
}

/// Calls and operations of `aten::addmm` in a trace of these events.
fn operations(events: &[String]) -> (u64, Option<f64>) {
    let file = format!(r#"{{"traceEvents":[{}]}}"#, events.join(","));
    let imported = import(&TorchTrace::read(file.as_bytes()).unwrap(), "trace.json");
    let product = imported.operators.iter().find(|o| o.name == "aten::addmm").unwrap();
    (product.calls, product.flops)
}

/// torch.autocast: the product of FP32 matrices calls itself with BF16 ones. A training of GPT-2
/// had 1.24 PFLOP/s of 989 TFLOP/s.
#[test]
fn a_product_inside_itself_is_computed_once() {
    let events = [product(1, 9), product(3, 8), launched(4), product(11, 15), launched(12)];
    assert_eq!(operations(&events), (3, Some(96.0)), "two products of 48 operations");
}

/// torch.compile calls products with tensors that have no data: a compiled block had 1.02 PFLOP/s
/// of 989 TFLOP/s.
#[test]
fn a_product_without_a_kernel_has_computed_nothing() {
    let traced = [product(1, 5), product(11, 15), launched(12)];
    assert_eq!(operations(&traced), (2, Some(48.0)));
    assert_eq!(operations(&[product(1, 5), product(11, 15)]), (2, Some(96.0)), "on a CPU");
}

/// Imports a trace as a file, packed or not, with these events.
fn imported_events(events: &[String], pack: fn(&[u8]) -> Vec<u8>) -> ImportedArtifact {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("synthetic.pt.trace.json.gz");
    let text = format!("{{\"schemaVersion\":1,\"traceEvents\":[{}]}}", events.join(","));
    std::fs::write(&path, pack(text.as_bytes())).unwrap();
    let source = crate::Source::new(&path, "synthetic");
    assert!((IMPORTER.recognises)("synthetic.pt.trace.json.gz", &source.head().unwrap()));
    (IMPORTER.import)(&source).unwrap()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    use std::io::Write;
    // Two members, as `cat a.gz b.gz` makes.
    let (a, b) = text.split_at(text.len() / 2);
    let member = |part: &[u8]| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(part).unwrap();
        packer.finish().unwrap()
    };
    [member(a), member(b)].concat()
}

fn kernel(ts: &str, dur: &str, correlation: i64) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":{dur},
            "args":{{"device":0,"stream":7,"correlation":{correlation}}}}}"#
    )
}

#[test]
fn packed_traces_are_read_by_their_content() {
    let events = [kernel("1000", "5", 1)];
    for pack in [gzip, |text: &[u8]| zstd::encode_all(text, 1).unwrap(), <[u8]>::to_vec] {
        assert_eq!(imported_events(&events, pack).kernels[0].total_ns, 5000);
    }
    let cut = |text: &[u8]| {
        let mut packed = gzip(text);
        packed.truncate(packed.len() - 9);
        packed
    };
    let many: Vec<String> = (1..200).map(|n| kernel(&(n * 10).to_string(), "5", n)).collect();
    let cut = imported_events(&many, cut);
    assert!(cut.gaps.iter().any(|gap| gap.text.contains("gzip")), "{:?}", cut.gaps);
}

#[test]
fn events_with_times_that_cannot_be_do_not_stretch_the_trace() {
    let today = 1_700_000_000_000_000_i64;
    let mut events: Vec<String> =
        (1..6).map(|n| kernel(&(today + n * 10).to_string(), "5", n)).collect();
    let good = imported_events(&events, <[u8]>::to_vec);
    for (ts, dur) in [("0", "0"), ("0", "7"), ("NaN", "1"), ("\"x\"", "1"), ("12", "-3")] {
        events.truncate(5);
        // The broken rows come first: what follows must be read, too.
        (0..3).for_each(|n| events.insert(0, kernel(ts, dur, 10 + n)));
        let imported = imported_events(&events, <[u8]>::to_vec);
        assert_eq!(imported.kernels, good.kernels, "{ts} {dur}");
        let span = |imported: &ImportedArtifact| imported.sidecars.trace.as_ref().unwrap().span_ns;
        assert_eq!(span(&imported), span(&good), "{ts} {dur}");
        let told = imported.gaps.iter().any(|gap| gap.text.contains("3 "));
        assert!(told, "{ts} {dur}: {:?}", imported.gaps);
        events.drain(..3);
    }
}

#[test]
fn operators_do_not_get_the_time_that_the_streams_order_forbids() {
    let mut events: Vec<String> = (0..20)
        .map(|n| kernel(&(1000 + n * 20).to_string(), if n == 5 { "3000000" } else { "9" }, n))
        .collect();
    for n in 0..20 {
        let ts = 100 + n * 2;
        events.push(format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":9,"tid":9,"ts":{ts},"dur":1}}"#
        ));
        events.push(format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":{ts},
                "dur":1,"args":{{"correlation":{n}}}}}"#
        ));
    }
    let imported = imported_events(&events, <[u8]>::to_vec);
    assert_eq!(imported.kernels[0].total_ns, 19 * 9000 + 20_000);
    assert_eq!(imported.operators[0].gpu_ns, Some(19 * 9000 + 20_000));
    assert!(imported.gaps.iter().any(|gap| gap.code == "stream_overlap"));
}

#[test]
fn a_trace_without_gpu_work_tells_what_it_has() {
    let event =
        r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":9,"tid":9,"ts":5,"dur":1}"#.to_owned();
    let imported = imported_events(&[event.clone(), event], <[u8]>::to_vec);
    let gap = imported.gaps.iter().find(|gap| gap.code == "no_gpu_rows").unwrap();
    assert!(gap.text.contains("2 operators"), "{}", gap.text);
    assert!(gap.text.contains("ProfilerActivity.CUDA"), "{}", gap.text);
}
