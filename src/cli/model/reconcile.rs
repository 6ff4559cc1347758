//! `rgpu model reconcile`: predictions beside measured rows.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use rgpu_predict::collective::Topology;
use rgpu_predict::config::Model;
use rgpu_predict::hw::Gpu;
use rgpu_predict::kernel::Context;
use rgpu_predict::llm::{Deployment, Load, Parallelism, serve};
use rgpu_predict::measured_step::MeasuredStep;
use rgpu_predict::measurement::{self, Measurement, MeasurementKind, Prediction};
use rgpu_predict::reconcile::{Pair, ReconcileSummary, reconcile};
use rgpu_predict::{Calibration, Dtype};
use schemars::JsonSchema;
use serde::Serialize;

use super::fit::error_cells;
use super::rows::{DateArgs, rows};
use super::{gpu, llm, steps};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::number_form::by_number;
use rgpu_report::{TextTable, percent};

/// Compare predictions with measured rows
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ReconcileArgs {
    /// CSVs of `rgpu model import`, and runs (id, prefix, latest, folder)
    #[arg(required = true, value_name = "CSV|RUN")]
    pub sources: Vec<String>,

    /// The GPU whose rows are compared
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub gpu: String,

    /// Measured efficiencies, as `rgpu model fit` writes them, instead of those that ship with
    /// rgpu; `none` predicts with full efficiency
    #[arg(long, value_name = "FILE|none")]
    pub calib: Option<PathBuf>,

    /// The config.json of the model of servers and steps
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Compare only rows whose model has this in its name
    #[arg(long, value_name = "TEXT")]
    pub model: Option<String>,

    #[command(flatten)]
    pub dates: DateArgs,
}

/// How far predictions are from measurements (`rgpu.model-reconcile/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct ReconcileResult {
    /// Name and version of this schema: `rgpu.model-reconcile/1`.
    schema: &'static str,
    /// The GPU of rows and predictions.
    gpu: String,
    /// Errors by quantity, axis and month.
    summary: ReconcileSummary,
    /// Rows without a prediction, by reason.
    unpredicted: Vec<UnpredictedRows>,
    /// Every row with its prediction.
    pairs: Vec<Pair>,
}

/// Rows without a prediction.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct UnpredictedRows {
    /// Why there is no prediction.
    reason: String,
    /// Number of rows with this reason.
    rows: usize,
}

/// The patterns that the text shows.
const SHOWN_PATTERNS: usize = 16;

pub(super) fn run(app: &App, args: &ReconcileArgs) -> Result<Status> {
    let hardware = gpu::load(app, &args.gpu)?;
    let numbers = gpu::resolve(&hardware)?;
    let calibration = gpu::calibration(args.calib.as_deref(), &hardware.id)?;
    let model = args.config.as_deref().map(llm::model).transpose()?;
    let all = rows(app, &args.sources, &args.dates)?;
    let has_name = |row: &&Measurement| match &args.model {
        Some(part) => row.model.as_deref().is_some_and(|name| name.contains(part)),
        None => true,
    };
    let own: Vec<&Measurement> =
        rgpu_predict::fit::gpu_rows(&all, &hardware.id).filter(has_name).collect();
    let predictor = Predictor {
        gpu: &numbers,
        calibration: calibration.as_ref(),
        ends: calibration.as_ref().map(Calibration::ends),
        topology: Topology::for_gpu(&numbers),
        model: model.as_ref(),
    };
    let mut pairs = Vec::new();
    let mut unpredicted: Vec<UnpredictedRows> = Vec::new();
    for row in own {
        if let Err(reason) = predictor.pairs(row, &mut pairs) {
            match unpredicted.iter_mut().find(|other| other.reason == reason) {
                Some(same) => same.rows += 1,
                None => unpredicted.push(UnpredictedRows { reason, rows: 1 }),
            }
        }
    }
    for UnpredictedRows { reason, rows } in &unpredicted {
        let have = by_number(*rows, "row has", "rows have");
        app.print_note(&format!("{rows} {have} no prediction: {reason}"));
    }
    if pairs.is_empty() {
        let what = format!("no row of `{}` could be compared", hardware.id);
        return Err(Failure::new(Exit::Artifact, "no_rows", what)
            .hint("servers and steps need the model: `--config config.json`"));
    }
    let summary = reconcile(&pairs);
    if app.global.json {
        app.print_json(&ReconcileResult {
            schema: "rgpu.model-reconcile/1",
            gpu: hardware.id,
            summary,
            unpredicted,
            pairs,
        })?;
        return Ok(0);
    }
    print(app, &summary, &pairs);
    Ok(0)
}

struct Predictor<'a> {
    gpu: &'a Gpu,
    calibration: Option<&'a Calibration>,
    /// The calibration at both ends of the likely range.
    ends: Option<[Calibration; 2]>,
    topology: Option<Topology>,
    model: Option<&'a Model>,
}

impl Predictor<'_> {
    /// The pairs of a row, or why there are none.
    fn pairs(&self, row: &Measurement, pairs: &mut Vec<Pair>) -> std::result::Result<(), String> {
        match row.kind {
            MeasurementKind::Serving => return self.serving(row, pairs),
            MeasurementKind::Step => {
                let model = self.model.ok_or("steps need --config")?;
                let topology = self.topology.ok_or("no link between GPUs is known")?;
                let step = MeasuredStep::new(row, model, topology, self.gpu)?;
                pairs.push(step.pair(self.gpu, self.calibration)?);
                return Ok(());
            }
            MeasurementKind::Kernel | MeasurementKind::Collective => {}
        }
        let context = measurement::context(self.gpu, self.calibration);
        let predicted = row.predict(&context, self.topology.as_ref());
        let predicted = predicted.ok_or("a size or the kind is not known")?;
        let measured_ns = row.time_ns.ok_or("no time was measured")?;
        pairs.push(Pair {
            row: row.clone(),
            quantity: "time",
            measured_ns,
            bound_ns: predicted.bound_ns(),
            predicted_ns: predicted.time_ns(),
            likely_ns: self.likely(row, &predicted),
            is_calibrated: predicted.is_calibrated(),
            launches: None,
        });
        Ok(())
    }

    /// The likely range of a calibrated prediction.
    fn likely(&self, row: &Measurement, predicted: &Prediction) -> Option<[f64; 2]> {
        let ends = self.ends.as_ref().filter(|_| predicted.is_calibrated())?;
        let of = |end: &Calibration| {
            let context = measurement::context(self.gpu, Some(end));
            Some(row.predict(&context, self.topology.as_ref())?.time_ns())
        };
        Some([of(&ends[0])?, of(&ends[1])?])
    }

    fn serving(&self, row: &Measurement, pairs: &mut Vec<Pair>) -> std::result::Result<(), String> {
        let model = self.model.ok_or("servers need --config")?;
        let topology = self.topology.ok_or("no link between GPUs is known")?;
        let mut model = model.clone();
        // A quantised checkpoint has its own config; this is for rows of another precision.
        if let Some(dtype) = row.dtype.filter(|dtype| *dtype != Dtype::Bf16)
            && model.expert_dtype.bits() > dtype.bits()
        {
            (model.linear_dtype, model.expert_dtype) = (dtype, dtype);
        }
        let mut deployment = Deployment::new(&model, topology);
        deployment.parallelism = Parallelism {
            tp: row.tp.ok_or("tp is not known")?,
            pp: row.pp.unwrap_or(1),
            ep: row.ep.unwrap_or(1).max(1),
            sp: false,
            dp_attention: row.dp_attention.unwrap_or(false),
        };
        let load = Load {
            input: row.input.ok_or("the prompt's length is not known")?,
            output: row.output.ok_or("the answer's length is not known")?,
            concurrency: row.concurrency.ok_or("the concurrency is not known")?.max(1.0),
            prefill_gpus: None,
        };
        let context = Context { calibration: self.calibration, ..Context::new(self.gpu) };
        let served = serve(&model, &deployment, &load, &context).map_err(|e| e.to_string())?;
        let serving = served.serving;
        let quantities = [
            ("ttft", row.ttft_ns, serving.ttft_bound_ns, serving.ttft_ns),
            ("tpot", row.tpot_ns, serving.tpot_bound_ns, serving.tpot_mixed_ns),
        ];
        for (quantity, measured, bound_ns, predicted_ns) in quantities {
            if let Some(measured_ns) = measured {
                pairs.push(Pair {
                    row: row.clone(),
                    quantity,
                    measured_ns,
                    bound_ns,
                    predicted_ns,
                    likely_ns: None,
                    is_calibrated: serving.is_calibrated,
                    launches: None,
                });
            }
        }
        Ok(())
    }
}

fn print(app: &App, summary: &ReconcileSummary, pairs: &[Pair]) {
    let calibrated = pairs.iter().filter(|pair| pair.is_calibrated).count();
    app.print(&format!("{} comparisons, {calibrated} of them calibrated\n\n", pairs.len()));
    const ERRORS: &str = "rows: | mean: | median: | 90 %: | bias:";
    let mut table = TextTable::new(&format!("error | {ERRORS} | share of bound:"));
    for (quantity, errors) in &summary.by_quantity {
        let share = summary.share_of_bound.get(quantity).copied().unwrap_or_default();
        let row = std::iter::once((*quantity).to_owned()).chain(error_cells(errors));
        table.add_row(row.chain([percent(100.0 * share)]));
    }
    app.print(&table.fitted(app.columns(), 0));
    for (quantity, coverage) in &summary.coverage {
        app.print(&format!(
            "\n{} of the measured {quantity}s are in their likely range (80 % should be); the \
             median range is ± {} wide\n",
            percent(100.0 * coverage.inside),
            percent(100.0 * coverage.half_width)
        ));
    }
    if let Some(table) = steps::table(pairs) {
        app.print(&format!("\n{}", table.fitted(app.columns(), 0)));
    }
    let mut table = TextTable::new(&format!("where | {ERRORS}"));
    for pattern in summary.patterns.iter().take(SHOWN_PATTERNS) {
        let place = format!("{} {}", pattern.axis, pattern.value);
        table.add_row(std::iter::once(place).chain(error_cells(&pattern.errors)));
    }
    if !table.is_empty() {
        app.print(&format!("\nworst first\n{}", table.fitted(app.columns(), 0)));
    }
    let mut table = TextTable::new(&format!("month | {ERRORS}"));
    for month in &summary.trend {
        table.add_row(std::iter::once(month.value.clone()).chain(error_cells(&month.errors)));
    }
    if !table.is_empty() {
        app.print(&format!("\nover time\n{}", table.fitted(app.columns(), 0)));
    }
    if summary.too_fast > 0 {
        let n = summary.too_fast;
        let are = by_number(n, "measured time is", "measured times are");
        app.print_note(&format!(
            "{n} {are} faster than the speed-of-light bound, and part of no error above"
        ));
    }
}
