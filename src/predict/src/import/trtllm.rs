//! Imports a report of `trtllm-bench --report_json` as one measurement of a serving system.
//!
//! The format is that of `tensorrt_llm/bench/dataclasses/reporting.py` at commit 02499765.

use super::{ImportDefaults, ImportError, gpu_name, json, number, text, whole};
use crate::measurement::{Measurement, MeasurementKind};

/// The measurement in a report. `defaults` fill in what the report lacks.
///
/// # Errors
/// If it is not JSON, or lacks what a report of trtllm-bench has.
pub fn read(
    file: &str,
    bytes: &[u8],
    defaults: &ImportDefaults,
) -> Result<Vec<Measurement>, ImportError> {
    let document = json(file, bytes)?;
    let at = |pointer: &str| document.pointer(pointer);
    let missing =
        |place: &str| ImportError::shape(file, place, "is missing: is it a trtllm-bench report?");
    let machine = text(at("/machine/name")).map(|name| gpu_name(&name));
    let gpu = defaults.gpu.clone().or(machine);
    let gpu =
        gpu.ok_or_else(|| ImportError::shape(file, "/machine/name", "is missing: give --gpu"))?;
    let mut row = Measurement::new(MeasurementKind::Serving, file, &gpu);
    row.framework = Some("trtllm".into());
    row.version = text(at("/engine/version"));
    row.model = text(at("/engine/model"));
    let precision = text(at("/engine/quantization")).or_else(|| text(at("/engine/dtype")));
    row.dtype = precision.and_then(|name| name.parse().ok());
    row.date.clone_from(&defaults.date);
    row.tp = Some(whole(at("/world_info/tp_size")).ok_or_else(|| missing("/world_info/tp_size"))?);
    row.pp = whole(at("/world_info/pp_size"));
    row.ep = whole(at("/world_info/ep_size")).filter(|ep| *ep > 0);
    row.gpus = whole(at("/world_info/world_size")).or(row.tp);
    row.concurrency = number(at("/request_info/avg_num_concurrent_requests"));
    row.input = defaults.input.or_else(|| number(at("/request_info/avg_input_length")));
    row.output = defaults.output.or_else(|| number(at("/request_info/avg_output_length")));
    let ns = |pointers: [&str; 2]| pointers.iter().find_map(|p| number(at(p))).map(|ms| ms * 1e6);
    row.ttft_ns = ns(["/streaming_metrics/ttft_percentiles/p50", "/streaming_metrics/avg_ttft_ms"]);
    row.tpot_ns = ns(["/streaming_metrics/tpot_percentiles/p50", "/streaming_metrics/avg_tpot_ms"]);
    let rate = number(at("/performance/output_throughput_per_gpu_tok_s"));
    row.output_tokens_per_s_gpu = Some(rate.ok_or_else(|| missing("/performance"))?);
    Ok(vec![row])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let text = br#"{"engine": {"model": "m", "version": "1.0", "quantization": "FP8"},
            "machine": {"name": "NVIDIA H200"}, "world_info": {"tp_size": 4, "pp_size": 1,
            "ep_size": null, "world_size": 4}, "request_info": {"avg_num_concurrent_requests": 8.0,
            "avg_input_length": 128, "avg_output_length": 64}, "performance":
            {"output_throughput_per_gpu_tok_s": 250.0}, "streaming_metrics": {"avg_ttft_ms": 9.0,
            "ttft_percentiles": {"p50": 8.0}}}"#;
        let row = &read("r.json", text, &ImportDefaults::default()).unwrap()[0];
        assert_eq!((row.gpu.as_str(), row.tp, row.ep), ("h200", Some(4), None));
        assert_eq!((row.ttft_ns, row.output_tokens_per_s_gpu), (Some(8e6), Some(250.0)));
        let defaults = ImportDefaults { gpu: Some("h200".into()), ..ImportDefaults::default() };
        assert!(read("r.json", b"{}", &defaults).unwrap_err().to_string().contains("/world_info"));
    }
}
