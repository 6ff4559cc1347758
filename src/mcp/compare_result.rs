//! Answers about a comparison.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::run_result::{ErrorFigures, error_of, wait_for, without_result};
use rgpu_model::Comparison;
use rgpu_model::comparison::{
    ComparedSide, Difference, KernelChange, PartName, TimeChange, TimeVerdict,
};
use rgpu_model::error::{Failure, Result};
use rgpu_report::KernelNames;
use rgpu_run::store::{RunFolder, RunRecord, RunState};

/// The most kernels, changed metrics of each, and regions in a result.
const MAX_KERNELS: usize = 4;
const MAX_METRICS: usize = 8;
const MAX_REGIONS: usize = 6;

/// A comparison: `a` is the base, `b` what is compared with it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct CompareResult {
    /// Name and version of this schema: `rgpu.mcp-compare/1`.
    schema: String,
    /// The id of its run, if two kernels were measured.
    run: Option<String>,
    /// `running`, `done`, `failed` …
    state: String,
    /// What a running comparison does at the moment.
    phase: Option<String>,
    /// `FASTER`: b is faster than a; `SLOWER`, `SAME` or `AMBIGUOUS`.
    verdict: Option<String>,
    /// The verdict with its numbers and, if metrics explain it, the reason.
    summary: Option<String>,
    /// The times of both sides; above 1, the speedup says that b is faster.
    time: Option<TimeChange>,
    /// What Nsight Compute's counters say of both sides, or why nothing.
    ncu: Option<NcuChange>,
    /// What Nsight Systems' traces say of both sides, or why nothing.
    nsys: Option<NsysChange>,
    /// What differs between the conditions of the two sides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    differences: Vec<Difference>,
    /// Why it failed, and what to do.
    error: Option<ErrorFigures>,
    /// The next calls that make sense.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    next: Vec<String>,
    /// What was left out to stay short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cut: Vec<String>,
}

/// Counters of both sides.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct NcuChange {
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    absent: Option<String>,
    /// The kernels with the longest times.
    #[serde(default)]
    kernels: Vec<KernelFigures>,
}

/// A kernel on both sides.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct KernelFigures {
    /// Its name on the base.
    kernel: String,
    /// What limits it most on each side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bound_by: Option<[String; 2]>,
    /// Numbers that changed, most important first: name, base, new, unit.
    changes: Vec<(String, f64, f64, String)>,
}

/// Traces of both sides.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct NsysChange {
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    absent: Option<String>,
    /// Kernels: name, launches of both sides, speedup.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kernels: Vec<(String, [u64; 2], Option<f64>)>,
    /// NVTX regions: name, nanoseconds on the GPU of both sides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    regions: Vec<(String, Option<[u64; 2]>)>,
}

impl CompareResult {
    /// The figures of a comparison that is done.
    pub(super) fn from_comparison(comparison: Comparison) -> Self {
        let names = KernelNames::default();
        let absent = |tool: PartName, word: &str| {
            let has_it =
                |side: &ComparedSide| side.mode == "deep" || side.rung.as_str().starts_with(word);
            match comparison.parts.iter().find(|part| part.part == tool) {
                Some(part) if part.there => None,
                Some(part) => Some(part.note.clone()),
                None if has_it(&comparison.a) && has_it(&comparison.b) => None,
                None => Some(without_results(&comparison)),
            }
        };
        let shown = || comparison.kernels.iter().take(MAX_KERNELS);
        let ncu = match absent(PartName::Ncu, "ncu") {
            None => NcuChange {
                kernels: shown().map(|kernel| KernelFigures::from_change(kernel, names)).collect(),
                absent: None,
            },
            absent => NcuChange { absent, ..NcuChange::default() },
        };
        let nsys = match absent(PartName::Nsys, "nsys") {
            None => NsysChange {
                absent: None,
                kernels: shown()
                    .map(|kernel| {
                        let speedup = kernel.time.as_ref().map(|time| time.speedup);
                        (names.name(&kernel.kernel), kernel.launches, speedup)
                    })
                    .collect(),
                regions: (comparison.regions.iter().take(MAX_REGIONS))
                    .map(|region| (region.region.clone(), region.gpu_ns))
                    .collect(),
            },
            absent => NsysChange { absent, ..NsysChange::default() },
        };
        let mut cut = Vec::new();
        if comparison.kernels.len() > MAX_KERNELS {
            let left_out = comparison.kernels.len() - MAX_KERNELS;
            cut.push(format!("kernels: {left_out} more; look at each side with report"));
        }
        Self {
            schema: SCHEMA.to_owned(),
            state: RunState::Done.as_str().to_owned(),
            verdict: Some(comparison.verdict.as_str().to_owned()),
            summary: Some(comparison.summary),
            time: comparison.time,
            ncu: Some(ncu),
            nsys: Some(nsys),
            differences: comparison.differences,
            cut,
            ..Self::default()
        }
    }
}

/// Why two results that are there have nothing of a tool on both sides.
fn without_results(comparison: &Comparison) -> String {
    let side = |side: &ComparedSide| format!("{} on rung {}", side.mode, side.rung);
    let (a, b) = (side(&comparison.a), side(&comparison.b));
    format!("not in both results: the base is of mode {a}, the other of {b}")
}

const SCHEMA: &str = "rgpu.mcp-compare/1";

/// What decides between two results. Two kernels that were measured in turns have had it.
const AMBIGUOUS: &str =
    "measure both kernels side by side: compare {\"kernels\": [\"BASE\", \"NEW\"]}";

impl KernelFigures {
    fn from_change(kernel: &KernelChange, names: KernelNames) -> Self {
        let changes = kernel.metrics.iter().chain(&kernel.resources).take(MAX_METRICS);
        let change = |change: &rgpu_model::comparison::MetricChange| {
            (change.label.clone(), change.a, change.b, change.unit.clone())
        };
        Self {
            kernel: names.name(&kernel.kernel),
            bound_by: kernel.bound.clone(),
            changes: changes.map(change).collect(),
        }
    }
}

/// What is known of a comparison's run.
pub(super) fn run_answer(folder: &RunFolder, record: &RunRecord, is_own: bool) -> Result<Answer> {
    let is_active = record.state.is_active();
    let comparison = folder.read("compare.json").ok();
    let comparison = comparison.and_then(|bytes| rgpu_run::saved_json::from_slice(&bytes).ok());
    let mut result = match comparison {
        Some(comparison) if !is_active => CompareResult::from_comparison(comparison),
        _ => {
            let absent = Some(without_result(is_active));
            CompareResult {
                schema: SCHEMA.to_owned(),
                ncu: Some(NcuChange { absent: absent.clone(), ..NcuChange::default() }),
                nsys: Some(NsysChange { absent, ..NsysChange::default() }),
                ..CompareResult::default()
            }
        }
    };
    result.run = Some(record.id.clone());
    result.state = record.state.as_str().to_owned();
    if is_active {
        result.phase = rgpu_run::store::live::phase(folder);
        result.next.push(wait_for(&record.id));
    }
    result.error = error_of(folder, record, is_own);
    let is_error = result.error.is_some();
    Answer::with(&result, is_error)
}

/// Reads the document of `rgpu compare`.
pub(super) fn document_answer(document: serde_json::Value) -> Result<Answer> {
    let comparison: Comparison = serde_json::from_value(document).map_err(|e| {
        let what = "the comparison cannot be read";
        Failure::new(rgpu_model::error::Exit::Bug, "bug", what).cause(e)
    })?;
    let is_ambiguous = comparison.verdict == TimeVerdict::Ambiguous;
    let mut result = CompareResult::from_comparison(comparison);
    if is_ambiguous {
        result.next.push(AMBIGUOUS.to_owned());
    }
    Answer::from_result(&result)
}
