//! `mlperf_log_summary.txt` of MLPerf's LoadGen: lines of a name, a colon and a value. Rates are
//! of the whole system, so the number of GPUs must be given.

use std::collections::BTreeMap;

use super::{ImportDefaults, ImportError};
use crate::measurement::{MAX_NUMBER, Measurement, MeasurementKind};

/// The row of a file.
///
/// # Errors
/// It is not a summary, its result is not valid, or the GPU and `tp` were not given.
pub fn read(
    file: &str,
    bytes: &[u8],
    defaults: &ImportDefaults,
) -> Result<Vec<Measurement>, ImportError> {
    let text = String::from_utf8_lossy(bytes);
    let lines: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    if !lines.contains_key("SUT name") {
        let what = "is missing: is it mlperf_log_summary.txt?";
        return Err(ImportError::shape(file, "SUT name", what));
    }
    let missing =
        |flag: &str| ImportError::shape(file, "", format!("does not tell it: give {flag}"));
    let gpu = defaults.gpu.as_deref().ok_or_else(|| missing("--gpu"))?;
    let tp = defaults.tp.filter(|tp| *tp > 0).ok_or_else(|| missing("--tp, the number of GPUs"))?;
    match lines.get("Result is") {
        Some(&"VALID") => {}
        other => {
            let result = other.copied().unwrap_or("missing");
            return Err(ImportError::shape(file, "Result is", format!("{result}, not VALID")));
        }
    }
    let number = |names: &[&str]| {
        let found = names.iter().find_map(|name| lines.get(name));
        let value: f64 = found?.parse().ok()?;
        (0.0..=MAX_NUMBER).contains(&value).then_some(value)
    };
    let mut row = Measurement::new(MeasurementKind::Serving, file, gpu);
    row.framework = Some("mlperf".into());
    row.model = lines.get("SUT name").map(ToString::to_string);
    row.date.clone_from(&defaults.date);
    (row.tp, row.gpus) = (Some(tp), Some(tp));
    (row.input, row.output) = (defaults.input, defaults.output);
    row.ttft_ns =
        number(&["50.00 percentile first token latency (ns)", "Mean First Token latency (ns)"]);
    row.tpot_ns =
        number(&["50.00 percentile time to output token (ns)", "Mean Time per Output Token (ns)"]);
    let rate = number(&["Completed tokens per second", "Tokens per second"]);
    let rate = rate.ok_or_else(|| {
        ImportError::shape(file, "Tokens per second", "is missing: only token rates are compared")
    })?;
    row.output_tokens_per_s_gpu = Some(rate / f64::from(tp));
    Ok(vec![row])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = "====\nMLPerf Results Summary\n====\nSUT name : PySUT\nScenario : Server\n\
        Completed tokens per second  : 34029.38\nResult is : VALID\n\
        Mean First Token latency (ns)     : 42345678901\n";

    #[test]
    fn a_summary_is_read_and_an_invalid_result_is_not() {
        let defaults =
            ImportDefaults { gpu: Some("h200".into()), tp: Some(8), ..ImportDefaults::default() };
        let row = &read("s.txt", SUMMARY.as_bytes(), &defaults).unwrap()[0];
        assert_eq!(row.output_tokens_per_s_gpu, Some(34029.38 / 8.0));
        assert_eq!(row.ttft_ns, Some(42_345_678_901.0));
        let invalid = SUMMARY.replace("VALID", "INVALID");
        let error = read("s.txt", invalid.as_bytes(), &defaults).unwrap_err();
        assert!(error.to_string().contains("INVALID"), "{error}");
        assert!(read("s.txt", b"\xff\xfe", &defaults).is_err());
    }
}
