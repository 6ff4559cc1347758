//! `rgpu model fit`: efficiencies from measured rows, judged on rows that were held out.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use rgpu_predict::Calibration;
use rgpu_predict::calibration::{Efficiency, Errors, Regime};
use rgpu_predict::collective::Topology;
use rgpu_predict::config::Model;
use rgpu_predict::fit::{fit, fit_steps, gpu_rows};
use rgpu_predict::measurement::Measurement;
use schemars::JsonSchema;
use serde::Serialize;

use super::rows::{DateArgs, rows};
use super::{gpu, llm};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::number_form::by_number;
use rgpu_report::{TextTable, duration, percent};
use rgpu_run::store::atomic;

/// Fit efficiencies to measured rows
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct FitArgs {
    /// CSVs of `rgpu model import`, and runs (id, prefix, latest, folder)
    #[arg(required = true, value_name = "CSV|RUN")]
    pub sources: Vec<String>,

    /// The GPU whose rows are fitted
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub gpu: String,

    /// Write the calibration here
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// The config.json of a model whose steps are fitted. Rows name it as the file, without .json,
    /// or as NAME
    #[arg(long = "config", value_name = "[NAME=]FILE", value_hint = ValueHint::FilePath)]
    pub configs: Vec<String>,

    /// Fit rows of one framework only, for example vllm
    #[arg(long, value_name = "NAME")]
    pub framework: Option<String>,

    #[command(flatten)]
    pub dates: DateArgs,
}

/// The result of a fit (`rgpu.model-fit/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct FitResult {
    /// Name and version of this schema: `rgpu.model-fit/1`.
    schema: &'static str,
    /// The calibration.
    calibration: Calibration,
    /// Rows faster than their speed-of-light bound, which were left out.
    too_fast: Vec<FasterThanBound>,
    /// Kinds with too few rows to fit.
    too_few: Vec<TooFew>,
    /// Rows that no fit can use: of servers, of steps whose model or kernels are not known, or
    /// without a size.
    unused: usize,
    /// The file that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<String>,
}

/// A row measured faster than its bound: the measurement is faulty or data was in a cache.
#[derive(Debug, Serialize, JsonSchema)]
struct FasterThanBound {
    /// The measurement.
    row: Measurement,
    /// Its speed-of-light bound in nanoseconds.
    bound_ns: f64,
    /// Its measured time in nanoseconds.
    measured_ns: f64,
}

/// A kind with too few rows.
#[derive(Debug, Serialize, JsonSchema)]
struct TooFew {
    /// The kind of kernel or collective.
    kind: String,
    /// Number of its rows.
    rows: usize,
}

pub(super) fn run(app: &App, args: &FitArgs) -> Result<Status> {
    let hardware = gpu::load(app, &args.gpu)?;
    let numbers = gpu::resolve(&hardware)?;
    let all = rows(app, &args.sources, &args.dates)?;
    let wanted = |row: &&Measurement| match &args.framework {
        Some(name) => row.framework.as_deref() == Some(name),
        None => true,
    };
    let own: Vec<Measurement> = gpu_rows(&all, &hardware.id).filter(wanted).cloned().collect();
    if own.is_empty() {
        let what = format!("none of {} rows is of `{}`", all.len(), hardware.id);
        return Err(Failure::new(Exit::Artifact, "no_rows", what)
            .hint("check `--gpu`, `--framework`, `--since` and `--until`"));
    }
    let topology = Topology::for_gpu(&numbers);
    let models = args.configs.iter().map(|text| named_model(text)).collect::<Result<Vec<_>>>()?;
    let mut fitted = fit(&hardware.id, &numbers, topology.as_ref(), &own);
    if let Some(topology) = &topology {
        fit_steps(&mut fitted, &numbers, topology, &models, &own);
    }
    let calibration = fitted.calibration;
    let is_empty = calibration.kernel.is_empty() && calibration.collective.is_empty();
    if let (Some(out), false) = (&args.out, is_empty) {
        let text = toml::to_string(&calibration).map_err(|error| {
            Failure::new(Exit::Bug, "bug", "the fit cannot be written as TOML").cause(error)
        })?;
        atomic::write(out, text.as_bytes()).map_err(|error| {
            Failure::new(Exit::Disk, "disk", "cannot write").file(out.display()).cause(error)
        })?;
        app.print_note(&format!("wrote {}", out.display()));
    }
    if !app.global.json {
        app.print(&text(app, &calibration));
    }
    if !fitted.too_fast.is_empty() {
        let share = 100.0 * fitted.too_fast.len() as f64 / own.len() as f64;
        let n = fitted.too_fast.len();
        app.print_note(&format!(
            "{n} rows ({}) are faster than the speed-of-light bound and were left out",
            percent(share)
        ));
    }
    for (kind, n) in &fitted.too_few {
        let are = by_number(*n, "row is", "rows are");
        app.print_note(&format!("{kind}: {n} {are} too few to fit"));
    }
    if fitted.unused > 0 {
        app.print_note(&format!(
            "{} {} of servers, of steps without their --config or with kernels that have no fit, or \
             without a size",
            fitted.unused,
            by_number(fitted.unused, "row is", "rows are")
        ));
    }
    if app.global.json {
        let too_fast = fitted.too_fast.into_iter();
        let too_few = fitted.too_few.into_iter();
        app.print_json(&FitResult {
            schema: "rgpu.model-fit/1",
            calibration,
            too_fast: too_fast
                .map(|(row, bound_ns, measured_ns)| FasterThanBound { row, bound_ns, measured_ns })
                .collect(),
            too_few: too_few.map(|(kind, rows)| TooFew { kind, rows }).collect(),
            unused: fitted.unused,
            out: args.out.as_ref().map(|out| out.display().to_string()),
        })?;
    }
    if is_empty {
        Err(Failure::new(Exit::Artifact, "no_fit", "no kind has enough rows to fit")
            .hint("add measured rows of this GPU: CSVs of `rgpu model import`, or runs"))
    } else {
        Ok(0)
    }
}

/// The model of `[NAME=]FILE`, with its name.
fn named_model(text: &str) -> Result<(String, Model)> {
    let (name, file) = match text.split_once('=') {
        Some((name, file)) if !Path::new(text).is_file() => (Some(name.to_owned()), file),
        _ => (None, text),
    };
    let file = Path::new(file);
    let stem = || file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name.unwrap_or_else(stem), llm::model(file)?))
}

/// How well a fit predicts, as cells: rows, mean, median, 90 %.
pub(super) fn error_cells(errors: &Errors) -> [String; 5] {
    [
        errors.n.to_string(),
        percent(100.0 * errors.mape),
        percent(100.0 * errors.median),
        percent(100.0 * errors.p90),
        percent(100.0 * errors.bias),
    ]
}

/// Numbers of some kinds of kernels: the share of the bandwidth that a quantization reaches and
/// what each of its blocks adds, or the share of the softmax that the products do not hide.
fn quantization_or_softmax(efficiency: &Efficiency) -> String {
    match (efficiency.quantize, efficiency.block_ns, efficiency.softmax) {
        (Some(share), Some(ns), _) => format!("{}, {}", percent(100.0 * share), duration(ns)),
        (_, _, Some(share)) => percent(100.0 * share),
        _ => String::new(),
    }
}

fn text(app: &App, calibration: &Calibration) -> String {
    let mut table = TextTable::new(
        "fit | compute: | memory or link: | launch or latency: | quantization or softmax: | \
         fitted: | mean error: | held out: | mean: | median: | 90 %: | on a bound",
    );
    let errors = |train: &Errors, test: &Errors| {
        let [n, mape, ..] = error_cells(train);
        let [held_out, mean, median, p90, _] = error_cells(test);
        [n, mape, held_out, mean, median, p90]
    };
    for fit in &calibration.kernel {
        let launch = fit.efficiency.launch_ns.map(duration).unwrap_or_default();
        let head = [
            format!("{} {}", fit.op.name(), fit.dtype),
            percent(100.0 * fit.efficiency.compute),
            percent(100.0 * fit.efficiency.memory),
            launch,
            quantization_or_softmax(&fit.efficiency),
        ];
        let row = head.into_iter().chain(errors(&fit.train, &fit.test));
        table.add_row(row.chain([fit.active_bounds.join(", ")]));
    }
    for fit in &calibration.collective {
        let of_all = |value: fn(&Regime) -> String| {
            fit.regimes.iter().map(value).collect::<Vec<_>>().join(", ")
        };
        let head = [
            format!("{} on {}", fit.op, fit.gpus),
            String::new(),
            of_all(|regime| percent(100.0 * regime.bandwidth)),
            of_all(|regime| duration(regime.alpha_ns)),
            String::new(),
        ];
        let row = head.into_iter().chain(errors(&fit.train, &fit.test));
        table.add_row(row.chain([fit.active_bounds.join(", ")]));
    }
    table.fitted(app.columns(), 0)
}
