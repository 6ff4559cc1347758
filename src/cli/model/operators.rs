//! `rgpu model compare`: the operators of a recorded torch program beside their predictions, and
//! what they would take on another GPU.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use rgpu_analysis::measured_rows::{OperatorRow, gpu_of, operator_rows};
use rgpu_model::Profile;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_predict::Calibration;
use rgpu_predict::hw::{Gpu, Hardware};
use rgpu_predict::measurement::{self, Measurement};
use rgpu_report::{TextTable, duration, percent};
use schemars::JsonSchema;
use serde::Serialize;

use super::gpu;
use crate::cli::support::app::{App, Status};
use crate::cli::support::open_profile;

/// Predict the operators of a recorded torch program one by one, on its GPU and on another
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct OperatorArgs {
    /// A run with operators (id, prefix, latest, folder), or a torch trace
    #[arg(value_name = "RUN|FILE")]
    pub run: String,

    /// Also predict the operators on this GPU: a name of `rgpu model hw list`, or a hardware file
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub gpu: Option<String>,

    /// Measured efficiencies of the run's GPU, as `rgpu model fit` writes them, instead of those
    /// that ship with rgpu; `none` predicts with full efficiency
    #[arg(long, value_name = "FILE|none")]
    pub calib: Option<PathBuf>,
}

/// The operators of a program beside their predictions (`rgpu.model-operators/1`).
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct OperatorComparison {
    /// Name and version of this schema: `rgpu.model-operators/1`.
    schema: &'static str,
    /// The GPU of the run.
    gpu: String,
    /// The other GPU, with `--gpu`.
    other_gpu: Option<String>,
    /// GPU time of all operators in nanoseconds.
    all_ns: f64,
    /// The operators with a prediction, summed.
    sum: OperatorTimes,
    /// The operators by their inputs, those first that take most longer than predicted.
    operators: Vec<PredictedOperator>,
    /// Where the efficiencies come from.
    notes: Vec<String>,
}

/// The calls of an operator with the same inputs.
#[derive(Debug, Serialize, JsonSchema)]
struct PredictedOperator {
    /// The operator: `aten::mm`.
    operator: String,
    /// Shapes of the inputs.
    shapes: String,
    /// Number of calls.
    calls: u64,
    #[serde(flatten)]
    times: OperatorTimes,
}

/// GPU times of all calls, in nanoseconds.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
struct OperatorTimes {
    /// What was measured.
    measured_ns: f64,
    /// What the run's GPU is predicted to take.
    predicted_ns: f64,
    /// The speed-of-light bound of the run's GPU.
    bound_ns: f64,
    /// What the other GPU would take: the measured time by the ratio of both predictions.
    other_ns: Option<f64>,
}

/// What two CUDA events add to the time of a kernel, by which efficiencies were measured, in ns: on
/// an H200, 65,536 additions take 4.67 µs between events and 2.13 µs in a graph.
const EVENTS_NS: f64 = 2540.0;
/// No kernel of a trace is predicted to take less, in ns.
const LEAST_KERNEL_NS: f64 = 1000.0;
/// Operators that the text shows.
const SHOWN_OPERATORS: usize = 24;

/// A GPU with the efficiencies of its kernels.
struct Predictor {
    hardware: Hardware,
    gpu: Gpu,
    calibration: Option<Calibration>,
}

impl Predictor {
    /// The predicted GPU time of one call as a trace has it, and its bound, in ns.
    fn call(&self, row: &Measurement) -> Option<(f64, f64)> {
        let context = measurement::context(&self.gpu, self.calibration.as_ref());
        let predicted = row.predict(&context, None)?;
        let bound_ns = predicted.bound_ns();
        let events = if predicted.is_calibrated() { EVENTS_NS } else { 0.0 };
        let kernel_ns = (predicted.time_ns() - events).max(LEAST_KERNEL_NS).max(bound_ns);
        Some((kernel_ns, bound_ns))
    }
}

pub(super) fn run(app: &App, args: &OperatorArgs) -> Result<Status> {
    let profile = open_profile::open(app, &args.run)?.profile;
    let hardware = device(&profile)?;
    let here = Predictor {
        gpu: gpu::resolve(&hardware)?,
        calibration: gpu::calibration(args.calib.as_deref(), &hardware.id)?,
        hardware,
    };
    let other = args.gpu.as_deref().map(|name| other_gpu(app, name)).transpose()?;
    let rows = operator_rows(&profile);
    if rows.is_empty() {
        let what = format!("`{}` has no operator whose inputs are known", args.run);
        return Err(Failure::new(Exit::Artifact, "no_rows", what).hint(
            "`rgpu profile --mode torch -- python3 train.py` records operators with shapes",
        ));
    }
    let all_ns = profile.operators.iter().filter_map(|o| o.gpu_self_ns).sum::<u64>() as f64;
    let document = comparison(&here, other.as_ref(), rows, all_ns);
    if app.global.json {
        app.print_json(&document)?;
    } else {
        print(app, &document);
    }
    Ok(0)
}

/// The GPU of the run.
fn device(profile: &Profile) -> Result<Hardware> {
    gpu_of(profile).cloned().map_err(|name| {
        let what = format!("the run's GPU `{name}` is not in the catalogue");
        Failure::new(Exit::Config, "unknown_gpu", what).hint("`rgpu model hw list` shows all")
    })
}

fn other_gpu(app: &App, name: &str) -> Result<Predictor> {
    let hardware = gpu::load(app, name)?;
    let calibration = gpu::calibration(None, &hardware.id)?;
    Ok(Predictor { gpu: gpu::resolve(&hardware)?, calibration, hardware })
}

fn comparison(
    here: &Predictor,
    other: Option<&Predictor>,
    rows: Vec<OperatorRow>,
    all_ns: f64,
) -> OperatorComparison {
    let mut sum = OperatorTimes { other_ns: other.map(|_| 0.0), ..OperatorTimes::default() };
    let mut operators = Vec::new();
    for row in rows {
        let Some((predicted, bound)) = here.call(&row.row) else { continue };
        let there = other.and_then(|other| other.call(&row.row));
        if other.is_some() && there.is_none() {
            continue;
        }
        let calls = row.calls as f64;
        let measured_ns = row.measured_ns as f64;
        let times = OperatorTimes {
            measured_ns,
            predicted_ns: calls * predicted,
            bound_ns: calls * bound,
            other_ns: there.map(|(there, _)| measured_ns * there / predicted),
        };
        sum.measured_ns += times.measured_ns;
        sum.predicted_ns += times.predicted_ns;
        sum.bound_ns += times.bound_ns;
        sum.other_ns = sum.other_ns.zip(times.other_ns).map(|(sum, one)| sum + one);
        let (operator, shapes) = (row.operator, row.shapes);
        operators.push(PredictedOperator { operator, shapes, calls: row.calls, times });
    }
    let lost = |one: &PredictedOperator| one.times.measured_ns - one.times.predicted_ns;
    operators.sort_by(|a, b| lost(b).total_cmp(&lost(a)));
    let sources = [Some(here), other].into_iter().flatten();
    let note = |gpu: &Predictor| gpu.calibration.as_ref().and_then(Calibration::source_text);
    OperatorComparison {
        schema: "rgpu.model-operators/1",
        gpu: here.hardware.id.clone(),
        other_gpu: other.map(|other| other.hardware.id.clone()),
        all_ns,
        sum,
        operators,
        notes: sources.filter_map(note).collect(),
    }
}

fn print(app: &App, document: &OperatorComparison) {
    let (sum, here) = (&document.sum, &document.gpu);
    app.print(&format!(
        "{} of {} in operators with a prediction: {} measured, {} predicted on {here}, bound {}\n",
        percent(100.0 * sum.measured_ns / document.all_ns.max(1.0)),
        duration(document.all_ns),
        duration(sum.measured_ns),
        duration(sum.predicted_ns),
        duration(sum.bound_ns)
    ));
    if let (Some(other), Some(ns)) = (&document.other_gpu, sum.other_ns) {
        let ratio = sum.measured_ns / ns;
        app.print(&format!(
            "on {other} they would take {}: {ratio:.2} times as fast\n",
            duration(ns)
        ));
    }
    let other = document.other_gpu.as_ref().map(|other| format!(" | {other}:")).unwrap_or_default();
    let mut table = TextTable::new(&format!(
        "operator | calls: | measured: | predicted: | bound: | of predicted:{other} | inputs"
    ));
    for one in document.operators.iter().take(SHOWN_OPERATORS) {
        let times = &one.times;
        let mut cells = vec![
            one.operator.trim_start_matches("aten::").to_owned(),
            one.calls.to_string(),
            duration(times.measured_ns),
            duration(times.predicted_ns),
            duration(times.bound_ns),
            format!("{:.2}", times.measured_ns / times.predicted_ns),
        ];
        cells.extend(times.other_ns.map(duration));
        cells.push(one.shapes.clone());
        table.add_row(cells);
    }
    app.print("\n");
    app.print(&table.fitted(app.columns(), 0));
    let hidden = document.operators.len().saturating_sub(SHOWN_OPERATORS);
    if hidden > 0 {
        app.print(&format!("{hidden} more: `--json` lists all\n"));
    }
    for note in &document.notes {
        app.print(&format!("note: {note}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_predict::Dtype;
    use rgpu_predict::calibration::shipped;
    use rgpu_predict::hw::find;
    use rgpu_predict::measurement::MeasurementKind;

    fn predictor(id: &str) -> Predictor {
        let hardware = find(id).unwrap().clone();
        Predictor { gpu: hardware.gpu().unwrap(), calibration: shipped(id), hardware }
    }

    fn product(n: f64, calls: u64, call_ns: u64) -> OperatorRow {
        let mut row = Measurement::new(MeasurementKind::Kernel, "", "");
        (row.op, row.dtype) = (Some("gemm".to_owned()), Some(Dtype::Bf16));
        (row.m, row.n, row.k) = (Some(n), Some(n), Some(n));
        OperatorRow {
            operator: "aten::mm".to_owned(),
            shapes: format!("[[{n}, {n}], [{n}, {n}]]"),
            calls,
            measured_ns: calls * call_ns,
            row,
        }
    }

    #[test]
    fn operators_that_lose_most_come_first_and_scale_to_another_gpu() {
        // 4096³ takes 139 µs at the peak of an H200.
        let rows = vec![product(4096.0, 2, 180_000), product(4000.0, 3, 900_000)];
        let found = comparison(&predictor("h200"), Some(&predictor("b200")), rows, 4e6);
        let [slow, usual] = &found.operators[..] else { panic!("{found:?}") };
        assert_eq!((slow.calls, usual.calls), (3, 2));
        assert!(slow.times.measured_ns > 3.0 * slow.times.predicted_ns, "{slow:?}");
        let ratio = usual.times.measured_ns / usual.times.predicted_ns;
        assert!((0.8..1.3).contains(&ratio), "{ratio}");
        assert!(usual.times.bound_ns <= usual.times.predicted_ns);
        let faster = usual.times.measured_ns / usual.times.other_ns.unwrap();
        assert!((1.5..2.6).contains(&faster), "{faster}");
        assert_eq!(found.sum.measured_ns, 3_060_000.0);
        assert_eq!((found.gpu.as_str(), found.other_gpu.as_deref()), ("h200", Some("b200")));
        assert!(found.notes.iter().any(|note| note.contains("b200")));
    }
}
