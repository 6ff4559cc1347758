//! Results of vLLM's `benchmark_serving.py` and `vllm bench serve --save-result`, which SGLang's
//! `bench_serving` also writes. Times are in ms. The file tells neither the GPU nor its number.

use super::{ImportDefaults, ImportError, day, json, number, text};
use crate::measurement::{Measurement, MeasurementKind};

/// The row of a file.
///
/// # Errors
/// It is not JSON, has no results, or the GPU and `tp` were not given.
pub fn read(
    file: &str,
    bytes: &[u8],
    defaults: &ImportDefaults,
) -> Result<Vec<Measurement>, ImportError> {
    let document = json(file, bytes)?;
    let get = |key: &str| document.get(key);
    let missing =
        |flag: &str| ImportError::shape(file, "/", format!("does not tell it: give {flag}"));
    let gpu = defaults.gpu.as_deref().ok_or_else(|| missing("--gpu"))?;
    let tp = defaults.tp.filter(|tp| *tp > 0).ok_or_else(|| missing("--tp"))?;
    let mut row = Measurement::new(MeasurementKind::Serving, file, gpu);
    row.framework = text(get("backend"));
    row.model = text(get("model_id"));
    row.date = text(get("date")).and_then(|date| day(&date)).or_else(|| defaults.date.clone());
    row.tp = Some(tp);
    row.gpus = Some(tp);
    row.concurrency = number(get("max_concurrency"));
    let completed = number(get("completed")).filter(|n| *n > 0.0);
    let mean = |key: &str| Some((number(get(key))? / completed?).round());
    row.input = defaults.input.or_else(|| mean("total_input_tokens"));
    row.output = defaults.output.or_else(|| mean("total_output_tokens"));
    let ns = |keys: [&str; 2]| keys.iter().find_map(|key| number(get(key))).map(|ms| ms * 1e6);
    row.ttft_ns = ns(["median_ttft_ms", "mean_ttft_ms"]);
    row.tpot_ns = ns(["median_tpot_ms", "mean_tpot_ms"]);
    row.output_tokens_per_s_gpu = number(get("output_throughput")).map(|rate| rate / f64::from(tp));
    if row.ttft_ns.is_none() && row.tpot_ns.is_none() {
        return Err(ImportError::shape(
            file,
            "/median_ttft_ms",
            "is missing: is it a result file?",
        ));
    }
    Ok(vec![row])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_means_and_the_gpu_must_be_given() {
        let text = br#"{"backend": "vllm", "completed": 10, "total_input_tokens": 10240,
            "total_output_tokens": 1280, "output_throughput": 100.0, "mean_ttft_ms": 5.0}"#;
        assert!(
            read("r.json", text, &ImportDefaults::default())
                .unwrap_err()
                .to_string()
                .contains("--gpu")
        );
        let defaults =
            ImportDefaults { gpu: Some("h200".into()), tp: Some(2), ..ImportDefaults::default() };
        let row = &read("r.json", text, &defaults).unwrap()[0];
        assert_eq!((row.input, row.output), (Some(1024.0), Some(128.0)));
        assert_eq!((row.ttft_ns, row.output_tokens_per_s_gpu), (Some(5e6), Some(50.0)));
        assert!(read("r.json", b"{}", &defaults).is_err());
    }
}
