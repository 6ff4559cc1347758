//! Results of InferenceMAX, now InferenceX: `agg_*.json` of one run, lists of them
//! (`agg_bmk.json`), and single artifacts with the configuration in their name.
//!
//! The format is that of `utils/process_result.py` at 19f43e0a. Times are in seconds there. An
//! artifact is called `MODEL_1k1k_PRECISION_FRAMEWORK_tp8_ep1_dpa_false_conc64_GPU_0.json` and
//! holds what vLLM's benchmark wrote.

use serde_json::{Map, Value};

use super::{ImportDefaults, ImportError, day, flag, gpu_name, json, number, text, vllm, whole};
use crate::Dtype;
use crate::measurement::{Measurement, MeasurementKind};

/// The rows of a file.
///
/// # Errors
/// It is not JSON, or neither of the forms above.
pub fn read(
    file: &str,
    bytes: &[u8],
    defaults: &ImportDefaults,
) -> Result<Vec<Measurement>, ImportError> {
    let document = json(file, bytes)?;
    match &document {
        Value::Array(list) => {
            let rows = list.iter().enumerate().map(|(at, value)| match value.as_object() {
                Some(object) => row(file, &format!("/{at}"), object, defaults),
                None => Err(ImportError::shape(file, format!("/{at}"), "is not an object")),
            });
            rows.collect()
        }
        Value::Object(object) if object.contains_key("hw") => {
            Ok(vec![row(file, "", object, defaults)?])
        }
        Value::Object(_) => {
            let named = configuration(file).ok_or_else(|| {
                let wanted = "MODEL_1k1k_PRECISION_FRAMEWORK_tp8_ep1_dpa_false_conc64_GPU_0.json";
                ImportError::shape(file, "/hw", format!("is missing, and its name is not {wanted}"))
            })?;
            let mut rows = vllm::read(file, bytes, &named.defaults)?;
            for row in &mut rows {
                named.apply(row);
                row.date = row.date.take().or_else(|| defaults.date.clone());
            }
            Ok(rows)
        }
        _ => Err(ImportError::shape(file, "/", "is neither a list nor an object")),
    }
}

fn row(
    file: &str,
    place: &str,
    object: &Map<String, Value>,
    defaults: &ImportDefaults,
) -> Result<Measurement, ImportError> {
    let get = |key: &str| object.get(key);
    let wrong = |key: &str| {
        ImportError::shape(file, format!("{place}/{key}"), "is missing or no number of 0 or more")
    };
    let hardware = text(get("hw")).ok_or_else(|| wrong("hw"))?;
    let mut row = Measurement::new(MeasurementKind::Serving, file, &gpu_name(&hardware));
    let tp = whole(get("tp")).or_else(|| whole(get("decode_tp")));
    row.tp = Some(tp.ok_or_else(|| wrong("tp"))?);
    row.gpus = row.tp;
    row.ep = whole(get("ep"));
    row.dp_attention = flag(get("dp_attention"));
    row.concurrency = Some(number(get("conc")).ok_or_else(|| wrong("conc"))?);
    row.model = text(get("model"));
    row.framework = text(get("framework"));
    row.version = text(get("image"));
    row.dtype = text(get("precision")).and_then(|name| name.parse::<Dtype>().ok());
    row.input = number(get("isl")).or(defaults.input);
    row.output = number(get("osl")).or(defaults.output);
    row.date = text(get("date")).and_then(|date| day(&date)).or_else(|| defaults.date.clone());
    // Seconds.
    let ns = |keys: [&str; 2]| keys.iter().find_map(|key| number(get(key))).map(|s| s * 1e9);
    row.ttft_ns = ns(["median_ttft", "mean_ttft"]);
    row.tpot_ns = ns(["median_tpot", "mean_tpot"]);
    row.output_tokens_per_s_gpu = number(get("output_tput_per_gpu"));
    if row.ttft_ns.is_none() && row.tpot_ns.is_none() && row.output_tokens_per_s_gpu.is_none() {
        return Err(ImportError::shape(file, place, "has neither ttft, tpot nor throughput"));
    }
    Ok(row)
}

/// The settings in the name of an artifact.
struct ArtifactSettings {
    defaults: ImportDefaults,
    precision: String,
    framework: String,
    ep: u32,
    dp_attention: bool,
    concurrency: f64,
}

impl ArtifactSettings {
    fn apply(&self, row: &mut Measurement) {
        row.dtype = self.precision.parse().ok();
        row.framework = Some(self.framework.clone());
        row.ep = Some(self.ep);
        row.dp_attention = Some(self.dp_attention);
        row.concurrency = Some(self.concurrency);
        row.input = self.defaults.input;
        row.output = self.defaults.output;
    }
}

/// Reads a name from its end, since models have `_` in theirs.
fn configuration(file: &str) -> Option<ArtifactSettings> {
    let name = file.rsplit(['/', '\\']).next()?;
    let name = name.strip_suffix(".json")?;
    let mut words = name.rsplit('_');
    words.next()?.parse::<u32>().ok()?;
    let gpu = gpu_name(words.next()?);
    let concurrency = words.next()?.strip_prefix("conc")?.parse().ok()?;
    let dp_attention = flag(Some(&Value::from(words.next()?)))?;
    (words.next()? == "dpa").then_some(())?;
    let ep = words.next()?.strip_prefix("ep")?.parse().ok()?;
    let tp = words.next()?.strip_prefix("tp")?.parse().ok()?;
    let framework = words.next()?.to_owned();
    let precision = words.next()?.to_owned();
    let (input, output) = lengths(words.next()?)?;
    let defaults = ImportDefaults { gpu: Some(gpu), tp: Some(tp), input, output, date: None };
    Some(ArtifactSettings { defaults, precision, framework, ep, dp_attention, concurrency })
}

/// `1k8k` as 1024 and 8192.
fn lengths(word: &str) -> Option<(Option<f64>, Option<f64>)> {
    let (input, rest) = word.split_once('k')?;
    let thousands = |text: &str| text.parse::<u32>().ok().map(|n| f64::from(n) * 1024.0);
    Some((Some(thousands(input)?), Some(thousands(rest.strip_suffix('k')?)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_results_is_read() {
        let text = br#"[{"hw": "h200-trt", "tp": 8, "ep": "1", "conc": 64, "dp_attention": "false",
            "model": "openai/gpt-oss-120b", "framework": "trt", "precision": "fp4", "isl": 1024,
            "osl": 8192, "tput_per_gpu": 900.0, "output_tput_per_gpu": 800.0,
            "median_ttft": 0.25, "mean_ttft": 0.5, "median_tpot": 0.01}]"#;
        let rows = read("agg_bmk.json", text, &ImportDefaults::default()).unwrap();
        let row = &rows[0];
        assert_eq!((row.gpu.as_str(), row.tp, row.ep), ("h200", Some(8), Some(1)));
        assert_eq!((row.ttft_ns, row.tpot_ns), (Some(0.25e9), Some(0.01e9)));
        assert_eq!((row.dp_attention, row.dtype), (Some(false), Some(Dtype::Nvfp4)));
    }

    #[test]
    fn an_artifact_is_read_with_its_name() {
        let name = "run/gpt_oss_1k8k_fp4_vllm_tp4_ep1_dpa_true_conc16_b200_0.json";
        let text = br#"{"model_id": "openai/gpt-oss-120b", "max_concurrency": 16,
            "output_throughput": 4000.0, "median_ttft_ms": 120.0, "median_tpot_ms": 3.5,
            "date": "20260102-030405"}"#;
        let row = &read(name, text, &ImportDefaults::default()).unwrap()[0];
        assert_eq!((row.gpu.as_str(), row.tp, row.concurrency), ("b200", Some(4), Some(16.0)));
        assert_eq!((row.input, row.output), (Some(1024.0), Some(8192.0)));
        assert_eq!(row.output_tokens_per_s_gpu, Some(1000.0));
        assert_eq!(row.date.as_deref(), Some("2026-01-02"));
        assert_eq!(row.dp_attention, Some(true));
    }

    #[test]
    fn what_is_neither_is_refused_with_its_place() {
        let error = read("x.json", b"{}", &ImportDefaults::default()).unwrap_err();
        assert!(error.to_string().contains("/hw"), "{error}");
        let error = read("x.json", br#"[{"hw": "h200"}]"#, &ImportDefaults::default()).unwrap_err();
        assert!(error.to_string().contains("/0/tp"), "{error}");
        assert!(read("x.json", b"{", &ImportDefaults::default()).is_err());
        assert!(read("x.json", b"3", &ImportDefaults::default()).is_err());
    }
}
