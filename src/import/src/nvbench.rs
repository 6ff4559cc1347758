//! Imports what a program of nvbench writes with `--json`: each state of each benchmark becomes a
//! case, named by its axes.
//!
//! ```text
//! {"devices": [{"id": 0, "name": "…"}],
//!  "benchmarks": [{"name": "copy", "states": [
//!     {"name": "Device=0 N=2^20", "is_skipped": false, "skip_reason": "…",
//!      "axis_values": [{"name": "N", "type": "int64", "value": "1048576"}],
//!      "summaries": [{"tag": "nv/cold/time/gpu/mean",
//!                     "data": [{"name": "value", "type": "float64", "value": "1.2e-05"}]}]}]}]}
//! ```
//!
//! Numbers are texts, times are seconds. The names of tags are those of nvbench's summaries
//! (github.com/NVIDIA/nvbench at 66212f1); no file of a real run was at hand.

use std::collections::BTreeMap;

use rgpu_format::memory::MemoryBudget;
use rgpu_model::profile::{ArtifactKind, CaseResult, Gap, Timing, TimingClock, Trust};
use serde::Deserialize;

use super::{ImportedArtifact, Importer};

/// `nvbench_json`: what a program of nvbench writes with `--json`.
pub(super) const IMPORTER: Importer = Importer {
    kind: ArtifactKind::NvbenchJson,
    recognises: |name, head| {
        let has = |word: &[u8]| head.windows(word.len()).any(|part| part == word);
        name.ends_with(".json") && head.starts_with(b"{") && has(b"\"nvbench\"")
    },
    import: |file| {
        let bytes = file.bytes()?;
        let mut budget = MemoryBudget::for_file(bytes.len());
        budget.take_document(&bytes).map_err(|cause| file.broken(cause))?;
        let document: Document =
            serde_json::from_slice(&bytes).map_err(|cause| file.broken(cause))?;
        Ok(import(&document))
    },
};

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    devices: Vec<Device>,
    #[serde(default)]
    benchmarks: Vec<Benchmark>,
}

#[derive(Deserialize)]
struct Device {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Benchmark {
    name: String,
    #[serde(default)]
    states: Vec<State>,
}

#[derive(Deserialize)]
struct State {
    name: String,
    #[serde(default)]
    axis_values: Option<Vec<AxisValue>>,
    #[serde(default)]
    summaries: Option<Vec<Summary>>,
    #[serde(default)]
    is_skipped: bool,
    #[serde(default)]
    skip_reason: Option<String>,
}

#[derive(Deserialize)]
struct AxisValue {
    name: String,
    #[serde(default)]
    value: serde_json::Value,
}

#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    tag: String,
    #[serde(default)]
    data: Vec<SummaryValue>,
}

#[derive(Deserialize)]
struct SummaryValue {
    #[serde(default)]
    name: String,
    #[serde(default)]
    value: serde_json::Value,
}

fn import(document: &Document) -> ImportedArtifact {
    let mut cases = Vec::new();
    let mut gaps = Vec::new();
    for benchmark in &document.benchmarks {
        for state in &benchmark.states {
            let name = case_name(benchmark, state);
            if state.is_skipped {
                let reason = state.skip_reason.as_deref().unwrap_or("it gives no reason");
                let text = format!("nvbench skipped `{name}`: {reason}");
                gaps.push(Gap { code: "nvbench_skipped".to_owned(), text });
                continue;
            }
            let sizes: BTreeMap<String, i64> =
                state.axis_values.iter().flatten().filter_map(whole_number).collect();
            let sizes = if sizes.is_empty() { Vec::new() } else { vec![sizes] };
            let timing = timing(state);
            cases.push(CaseResult {
                name,
                sizes,
                timing,
                correctness: None,
                baselines: Vec::new(),
            });
        }
    }
    if cases.iter().any(|case| case.timing.is_some()) {
        let text = "times are nvbench's means of cold calls, and intervals follow from its \
                    standard deviation";
        gaps.push(Gap { code: "nvbench_means".to_owned(), text: text.to_owned() });
    }
    let device = document.devices.first().map(|device| device.name.clone());
    ImportedArtifact {
        cases,
        gaps,
        device: device.filter(|name| !name.is_empty()),
        ..ImportedArtifact::default()
    }
}

/// The benchmark with the values of its axes: `copy N=2^20`.
fn case_name(benchmark: &Benchmark, state: &State) -> String {
    let axes = state.name.split_whitespace().filter(|word| !word.starts_with("Device="));
    let words: Vec<&str> = std::iter::once(benchmark.name.as_str()).chain(axes).collect();
    words.join(" ")
}

fn whole_number(axis: &AxisValue) -> Option<(String, i64)> {
    let number = axis.value.as_i64().or_else(|| axis.value.as_str()?.parse().ok())?;
    Some((axis.name.clone(), number))
}

/// The time of a state from its summaries. `None` without a mean, or with one that is no time.
fn timing(state: &State) -> Option<Timing> {
    let number = |tag: &str| {
        let summary = state.summaries.iter().flatten().find(|summary| summary.tag == tag)?;
        let value = &summary.data.iter().find(|value| value.name == "value")?.value;
        value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|n: &f64| n.is_finite())
    };
    let nanoseconds = |tag: &str| number(tag).filter(|s| *s > 0.0).map(|seconds| seconds * 1e9);
    let mean_ns = nanoseconds("nv/cold/time/gpu/mean")?;
    let samples = number("nv/cold/sample_size").unwrap_or(1.0).max(1.0);
    let deviation_ns = number("nv/cold/time/gpu/stdev/relative").unwrap_or(0.0).abs() * mean_ns;
    let half_ns = 1.96 * deviation_ns / samples.sqrt();
    Some(Timing {
        median_ns: nanoseconds("nv/cold/time/gpu/median").unwrap_or(mean_ns),
        ci95_ns: [(mean_ns - half_ns).max(0.0), mean_ns + half_ns],
        samples: samples as u64,
        min_ns: nanoseconds("nv/cold/time/gpu/min").unwrap_or(mean_ns),
        // Of a normal distribution.
        mad_ns: 0.6745 * deviation_ns,
        clock: TimingClock::CudaEvents,
        l2_flushed: true,
        trust: Some(Trust::Unprotected),
        trust_reason: Some("the program timed itself, with nvbench".to_owned()),
        bytes_per_s: number("nv/cold/bw/global/bytes_per_second"),
        ..Timing::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    const REPORT: &str = r#"{"meta": {"version": {"nvbench": {}}},
        "devices": [{"id": 0, "name": "NVIDIA H200"}],
        "benchmarks": [{"name": "copy", "states": [
            {"name": "Device=0 N=2^20 T=I32", "is_skipped": false,
             "axis_values": [{"name": "N", "type": "int64", "value": "1048576"},
                             {"name": "T", "type": "string", "value": "I32"}],
             "summaries": [
                {"tag": "nv/cold/sample_size", "data": [{"name": "value", "value": "100"}]},
                {"tag": "nv/cold/time/gpu/mean", "data": [{"name": "value", "value": "2e-05"}]},
                {"tag": "nv/cold/time/gpu/stdev/relative",
                 "data": [{"name": "value", "value": "0.1"}]}]},
            {"name": "Device=0 N=2^24", "is_skipped": true, "skip_reason": "too large"},
            {"name": "Device=0 N=2^4", "summaries": null, "axis_values": null}]}]}"#;

    fn read(text: &str) -> Result<ImportedArtifact, String> {
        let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
        std::fs::write(file.path(), text).unwrap();
        let name = file.path().display().to_string();
        let source = Source::new(file.path(), &name);
        assert!((IMPORTER.recognises)(&name, REPORT.as_bytes()));
        (IMPORTER.import)(&source).map_err(|error| error.to_string())
    }

    #[test]
    fn each_state_is_a_case_with_its_axes() {
        let found = read(REPORT).unwrap();
        assert_eq!(found.device.as_deref(), Some("NVIDIA H200"));
        let names: Vec<&str> = found.cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["copy N=2^20 T=I32", "copy N=2^4"]);
        assert_eq!(found.cases[0].sizes[0], [("N".to_owned(), 1 << 20)].into());
        let timing = found.cases[0].timing.clone().unwrap();
        assert!((timing.median_ns - 20_000.0).abs() < 1e-6 && timing.samples == 100);
        assert!((timing.ci95_ns[1] - 20_392.0).abs() < 1.0, "{:?}", timing.ci95_ns);
        assert!(found.cases[1].timing.is_none());
        assert!(found.gaps[0].text.contains("skipped `copy N=2^24`: too large"));
    }

    #[test]
    fn what_is_no_report_is_an_error_and_numbers_that_cannot_be_are_left_out() {
        assert!(read("{\"nvbench\": 1, \"benchmarks\": 3}").is_err());
        assert!(read(&REPORT[..400]).is_err());
        let negative = read(&REPORT.replace("2e-05", "-1")).unwrap();
        assert!(negative.cases[0].timing.is_none());
        assert_eq!(read("{}").unwrap().cases.len(), 0);
    }
}
