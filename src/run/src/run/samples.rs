//! `samples.jsonl`: every sample of the timed calls in the order taken, one a line.

use rgpu_case::RunnerReport;
use serde::Serialize;

use crate::store::RunFolder;
use rgpu_model::error::{Exit, Failure, Result};

/// The runner's report of its step `time`.
const REPORT: &str = "raw/time.json";

/// A line of the file: one sample of a case.
#[derive(Serialize)]
struct Sample<'a> {
    /// The case of sizes.
    case: &'a str,
    /// Number of the sample within the case, from 0.
    sample: usize,
    /// The time of one call in nanoseconds.
    ns: f64,
    /// Whether the statistics leave it out, because the clock changed or the GPU was throttled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    discarded: bool,
    /// Whether the call was one of a CUDA graph; such samples have numbers of their own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    graph: bool,
}

/// Writes the samples of a run, if its calls were timed.
pub fn write_samples(folder: &RunFolder) -> Result<()> {
    let Ok(bytes) = folder.read(REPORT) else { return Ok(()) };
    let Ok(report) = crate::saved_json::from_slice::<RunnerReport>(&bytes) else { return Ok(()) };
    let mut lines = Vec::new();
    for case in &report.cases {
        let Some(timing) = &case.timing else { continue };
        let events = (&timing.sample_ns, &timing.discarded, false);
        let graph = timing.graph.as_ref().map(|graph| (&graph.sample_ns, &graph.discarded, true));
        for (samples, discarded, graph) in std::iter::once(events).chain(graph) {
            for (sample, ns) in samples.iter().enumerate() {
                let discarded = discarded.contains(&sample);
                let line = Sample { case: &case.name, sample, ns: *ns, discarded, graph };
                serde_json::to_writer(&mut lines, &line).map_err(|e| {
                    Failure::new(Exit::Bug, "bug", "a sample cannot be written as JSON").cause(e)
                })?;
                lines.push(b'\n');
            }
        }
    }
    if !lines.is_empty() {
        folder.write("samples.jsonl", &lines)?;
    }
    Ok(())
}
