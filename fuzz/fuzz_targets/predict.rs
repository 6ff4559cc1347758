//! Treats any bytes as every file that `rgpu model` reads, and predicts what was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_predict::calibration::Calibration;
use rgpu_predict::collective::Topology;
use rgpu_predict::collective::topology::TopologyFile;
use rgpu_predict::config::Model;
use rgpu_predict::hw::{Hardware, check, find};
use rgpu_predict::import::{ImportDefaults, aic, inferencemax, mlperf, trtllm, vllm};
use rgpu_predict::kernel::Context;
use rgpu_predict::llm::{Deployment, Load, serve};
use rgpu_predict::measurement::{context, read_csv, write_csv};

fuzz_target!(|file: &[u8]| {
    let h200 = find("h200").unwrap().gpu().unwrap();
    if let Ok(config) = serde_json::from_slice(file)
        && let Ok(model) = Model::from_config(&config)
    {
        assert!(model.parameters().is_finite() && model.parameters() > 0.0);
        let deployment = Deployment::new(&model, Topology::for_gpu(&h200).unwrap());
        let load = Load { input: 64.0, output: 64.0, concurrency: 4.0, prefill_gpus: None };
        if let Ok(served) = serve(&model, &deployment, &load, &Context::new(&h200)) {
            assert!(served.serving.tpot_ns >= served.serving.tpot_bound_ns);
            assert!(served.serving.ttft_ns >= served.serving.ttft_bound_ns);
        }
    }
    if let Ok(text) = std::str::from_utf8(file) {
        if let Ok(hardware) = Hardware::parse(text) {
            let problems = check(&hardware);
            // What passes the check can be predicted for.
            assert!(!problems.is_empty() || hardware.gpu().is_ok());
        }
        let _ = (TopologyFile::parse(text), Calibration::parse(text));
    }
    let given =
        ImportDefaults { gpu: Some("h200".into()), tp: Some(8), ..ImportDefaults::default() };
    let mut rows = Vec::new();
    for read in [inferencemax::read, vllm::read, trtllm::read, mlperf::read] {
        rows.extend(read("file.json", file, &given).unwrap_or_default());
    }
    for name in ["gemm_perf.parquet", "context_attention_perf.parquet", "nccl_perf.parquet"] {
        rows.extend(aic::read(name, file).unwrap_or_default());
    }
    rows.extend(read_csv(file).unwrap_or_default());
    // Whatever is read can be written and read again.
    let again = read_csv(&write_csv(&rows).unwrap()).unwrap();
    assert_eq!(again.len(), rows.len());
    for row in rows.iter().take(64) {
        if let Some(predicted) = row.predict(&context(&h200, None), None) {
            assert!(predicted.time_ns() >= predicted.bound_ns());
        }
    }
});
