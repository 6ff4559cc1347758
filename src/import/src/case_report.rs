//! Imports the JSON report of the runner, the program on the host that launches a kernel: times and
//! correctness of each case, findings of guarded launches, warnings about the host, and the error
//! if it stopped early.

use rgpu_case::stats::{Summary, median, without_discarded};
use rgpu_case::{
    Baseline, CaseReport, ErrorClass, GuardFinding, GuardKind, OutputCheck, RunnerError, RunnerJob,
    RunnerReport, TimingSource,
};

use rgpu_format::memory::{JsonOverBudget, MemoryBudget};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::histogram::histogram;
use super::{ImportedArtifact, Importer, Source};
use rgpu_model::profile::ArtifactKind;
use rgpu_model::profile::{
    BaselineTime, CaseResult, Cooling, Correctness, Gap, GraphTiming, Timing,
};
use rgpu_model::profile::{CheckVerdict, TimingClock, Trust};
use rgpu_model::sanitizer::{CheckTool, FaultKind, SanitizerVerdict};
use rgpu_model::sanitizer::{SanitizerCause, SanitizerResult};

/// `case_report`: what `rgpu-runner` writes.
pub(super) const IMPORTER: Importer = Importer {
    kind: ArtifactKind::CaseReport,
    recognises: |name, head| {
        name.ends_with(".json")
            && head.starts_with(b"{")
            && contains(head, b"\"abi\"")
            && contains(head, b"\"runner\"")
    },
    import: |source| {
        let bytes = source.bytes()?;
        check_size(&bytes).map_err(|cause| source.broken(cause))?;
        let report: RunnerReport =
            serde_json::from_slice(&bytes).map_err(|cause| source.broken(cause))?;
        Ok(import(&report, source))
    },
};

/// Memory of a case of the report, of another object and of another value, in bytes, with all that
/// a profile makes of them.
const CASE_BYTES: usize = 2 << 10;
const OBJECT_BYTES: usize = 256;
const VALUE_BYTES: usize = 32;

/// The cases of a report, as text.
#[derive(Deserialize)]
struct CaseTexts<'a> {
    #[serde(borrow, default)]
    cases: Vec<&'a RawValue>,
}

/// Checks that the values of a report fit into memory before they are made.
fn check_size(bytes: &[u8]) -> Result<(), JsonOverBudget> {
    let mut budget = MemoryBudget::for_file(bytes.len());
    // A report of another form has no cases, and the typed reader says what is wrong with it.
    let cases = serde_json::from_slice::<CaseTexts<'_>>(bytes).map_or(0, |all| all.cases.len());
    budget.take_values("case", cases, CASE_BYTES)?;
    budget.take_json(bytes, OBJECT_BYTES, VALUE_BYTES)
}

fn contains(head: &[u8], word: &[u8]) -> bool {
    head.windows(word.len()).any(|w| w == word)
}

/// Why the runner stopped early. `rgpu_run::run` decides by the class whether another rung may do
/// better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerFailure {
    /// The kind of failure, such as a wrong result or an illegal memory access.
    pub class: ErrorClass,
    /// The runner's message: the failed call, or what is wrong, and the case.
    pub text: String,
}

impl From<&RunnerError> for RunnerFailure {
    fn from(error: &RunnerError) -> Self {
        let text = match &error.case {
            Some(case) => format!("{} (case `{case}`)", error.text),
            None => error.text.clone(),
        };
        Self { class: error.class, text }
    }
}

fn import(report: &RunnerReport, source: &Source<'_>) -> ImportedArtifact {
    let guarded: Vec<SanitizerResult> =
        report.cases.iter().filter_map(|case| guard_result(case, source.from)).collect();
    ImportedArtifact {
        cases: report
            .cases
            .iter()
            .map(|case| {
                let stopped = report.job == RunnerJob::Verify && report.error.is_some();
                case_result(case, stopped, report.device.as_ref().map(|d| d.l2_bytes))
            })
            .collect(),
        sanitizer: guarded,
        warnings: report
            .warnings
            .iter()
            .map(|w| Gap { code: snake_case(&format!("{:?}", w.kind)), text: w.text.clone() })
            .collect(),
        gaps: report
            .gaps
            .iter()
            .map(|text| Gap { code: "runner".to_owned(), text: text.clone() })
            .collect(),
        model: report.model.clone(),
        board: report.board.clone(),
        device: report.device.as_ref().map(|d| d.name.clone()),
        runner_failure: report.error.as_ref().map(RunnerFailure::from),
        ..ImportedArtifact::default()
    }
}

/// The median SM clock over the samples that have one; `None` if none has.
fn median_sm_mhz(clocks: &[rgpu_case::ClockReading]) -> Option<f64> {
    let sm_mhz: Vec<f64> = clocks.iter().filter_map(|c| c.sm_mhz).map(f64::from).collect();
    median(&sm_mhz)
}

fn trust(of_report: rgpu_case::Trust) -> Trust {
    match of_report {
        rgpu_case::Trust::Proven => Trust::Proven,
        rgpu_case::Trust::Bounded => Trust::Bounded,
        rgpu_case::Trust::Unprotected => Trust::Unprotected,
    }
}

fn case_result(data: &CaseReport, stopped: bool, l2_bytes: Option<u64>) -> CaseResult {
    let kernel_ns = data.timing.as_ref().map(|timing| timing.median_ns).filter(|ns| *ns > 0.0);
    CaseResult {
        name: data.name.clone(),
        sizes: Vec::new(),
        baselines: data
            .baselines
            .iter()
            .map(|baseline| BaselineTime {
                form: match baseline.form {
                    Baseline::Eager => "eager",
                    Baseline::Compile => "compile",
                }
                .to_owned(),
                median_ns: baseline.median_ns,
                speedup: kernel_ns.map(|ns| baseline.median_ns / ns),
            })
            .collect(),
        timing: data.timing.as_ref().map(|t| Timing {
            median_ns: t.median_ns,
            ci95_ns: t.ci95_ns,
            samples: t.samples as u64,
            discarded: t.discarded.len() as u64,
            min_ns: t.min_ns,
            mad_ns: t.mad_ns,
            clock: match t.source {
                TimingSource::Events => TimingClock::CudaEvents,
                TimingSource::Host => TimingClock::HostClock,
                TimingSource::Cpu => TimingClock::CpuReference,
            },
            prepare_ns: data.prepare_ns,
            l2_flushed: t.l2_flushed,
            flushed_bytes: t.flushed_bytes,
            wall_ns: t.wall_ns,
            distinct_inputs: t.distinct_inputs,
            verified: t.verified,
            repeated: t.repeated,
            sm_mhz: median_sm_mhz(&t.clocks),
            temperature_c: t.clocks.iter().rev().find_map(|c| c.temperature_c).map(f64::from),
            throttle: {
                let mut reasons: Vec<String> =
                    t.clocks.iter().flat_map(|c| c.throttle.clone()).collect();
                reasons.sort();
                reasons.dedup();
                reasons
            },
            flops_per_s: None,
            bytes_per_s: None,
            histogram: histogram(
                &without_discarded(&t.sample_ns, &t.discarded),
                t.median_ns,
                t.mad_ns,
            ),
            graph: t.graph.as_ref().map(graph_timing),
            trust: t.trust.map(trust),
            trust_reason: t.trust_reason.clone(),
            bound_ns: t.bound_ns,
            bound_range_ns: t.bound_range_ns,
            claimed_ns: t.claimed_ns,
            needed_bytes: t.needed_bytes,
            l2_bytes,
            cooling: t.cooling.as_ref().map(|cooling| Cooling {
                seconds: cooling.seconds,
                from_c: cooling.from_c,
                to_c: cooling.to_c,
            }),
        }),
        correctness: data.correctness.as_ref().map(correctness).or_else(|| {
            (stopped && data.timing.is_none()).then(|| Correctness {
                verdict: CheckVerdict::Unchecked,
                note: "the run stopped before the check".to_owned(),
                ..Correctness::default()
            })
        }),
    }
}

fn graph_timing(t: &rgpu_case::GraphTiming) -> GraphTiming {
    let kept = without_discarded(&t.sample_ns, &t.discarded);
    let mad_ns = Summary::from_samples(&kept).map_or(0.0, |summary| summary.mad);
    GraphTiming {
        median_ns: t.median_ns,
        ci95_ns: t.ci95_ns,
        samples: t.samples as u64,
        discarded: t.discarded.len() as u64,
        launches: t.launches.into(),
        prepare_ns: t.prepare_ns,
        call_nodes: t.call_nodes.map(u64::from),
        prepare_nodes: t.prepare_nodes.map(u64::from),
        histogram: histogram(&kept, t.median_ns, mad_ns),
    }
}

fn correctness(c: &rgpu_case::Correctness) -> Correctness {
    let largest = |f: fn(&OutputCheck) -> f64| {
        c.outputs
            .iter()
            .map(f)
            .filter(|x| x.is_finite())
            .fold(None, |max: Option<f64>, x| Some(max.map_or(x, |m| m.max(x))))
    };
    let wrong: u64 = c.outputs.iter().map(|o| o.mismatches).sum();
    let changed = (!c.changed_inputs.is_empty())
        .then(|| format!("the kernel changed its input `{}`", c.changed_inputs.join("`, `")));
    let has_check = !c.outputs.is_empty() || c.checker.is_some();
    let refusal = c.checker.clone().filter(|text| !text.is_empty());
    let verdict = match (!has_check, c.passed) {
        (true, true) => CheckVerdict::Unchecked,
        (_, true) => CheckVerdict::Right,
        (_, false) => CheckVerdict::Wrong,
    };
    Correctness {
        verdict,
        checked: c.outputs.iter().map(|o| o.elements).sum(),
        wrong,
        // A function of the task tells no errors.
        max_abs: if c.checker.is_some() { None } else { largest(|o| o.max_abs_error) },
        max_rel: if c.checker.is_some() { None } else { largest(|o| o.max_rel_error) },
        first_wrong: refusal.or_else(|| c.outputs.iter().find_map(first_wrong)).or(changed),
        bit_equal: Some(c.bit_equal),
        timed_calls: None,
        timed_inputs: None,
        note: if !has_check {
            "there is no reference to compare with".to_owned()
        } else {
            String::new()
        },
    }
}

fn first_wrong(output: &OutputCheck) -> Option<String> {
    let first = output.first_mismatch.as_ref()?;
    let at: Vec<String> = first.coordinates.iter().map(u64::to_string).collect();
    let unwritten = if output.unwritten > 0 {
        format!(", {} never written", output.unwritten)
    } else {
        String::new()
    };
    Some(format!(
        "{}[{}] is {}, expected {}{unwritten}",
        output.name,
        at.join(", "),
        first.actual,
        first.expected
    ))
}

/// A guarded run can report findings, but it never proves that a kernel is clean.
fn guard_result(data: &CaseReport, from: &str) -> Option<SanitizerResult> {
    let guard = data.guard.as_ref()?;
    let found = !guard.findings.is_empty();
    Some(SanitizerResult {
        tool: CheckTool::Guard,
        rank: None,
        verdict: if found { SanitizerVerdict::Found } else { SanitizerVerdict::Unknown },
        errors: None,
        causes: guard.findings.iter().map(guard_cause).collect(),
        note: if found {
            String::new()
        } else {
            format!(
                "no findings in {} guarded launches; this does not prove that the kernel is clean",
                guard.launches
            )
        },
        from: from.to_owned(),
    })
}

fn guard_cause(finding: &GuardFinding) -> SanitizerCause {
    let arg = &finding.arg;
    let (kind, text) = match finding.kind {
        GuardKind::WriteBefore => {
            (FaultKind::OutOfBounds, format!("a write before `{arg}`, at byte {}", finding.offset))
        }
        GuardKind::WriteAfter => {
            (FaultKind::OutOfBounds, format!("a write after `{arg}`, at byte {}", finding.offset))
        }
        GuardKind::Unwritten => (
            FaultKind::Unwritten,
            format!("{} elements of `{arg}` were not written", finding.count),
        ),
        GuardKind::InputWritten => {
            (FaultKind::InputWritten, format!("the input `{arg}` was written"))
        }
        GuardKind::NotRepeatable => {
            (FaultKind::Race, format!("two launches gave different bits in `{arg}`"))
        }
        GuardKind::ReadsStray => (
            FaultKind::Uninitialized,
            format!("`{arg}` depends on memory that was never initialised"),
        ),
    };
    SanitizerCause { kind, text, count: 1, ..SanitizerCause::default() }
}

/// Turns `PowerLimit` into `power_limit`.
fn snake_case(camel: &str) -> String {
    let mut out = String::new();
    for c in camel.chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
