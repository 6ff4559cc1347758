//! `layout dump`: the layouts of a CuTe DSL kernel as the DSL prints them, and by our formulas.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use rgpu_layout::sm100::{MmaTile, ProblemShape, bundle};
use rgpu_layout::{Limits, SwizzledLayout, compare};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::document::line;
use super::input::{numbers, usage};
use super::named::NamedLayout;
use super::output::save;
use crate::cli::support::app::{App, Status};
use crate::cli::support::followed_run::{FollowedRun, NewRun};
use crate::cli::support::session::{self, OutputOptions};
use crate::cli::support::{fetch_consent, missing};
use rgpu_model::duration::duration;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::name_of;
use rgpu_plan::tool::{CUTE, Dsl, DslLayouts, LayoutQuestions};
use rgpu_remote::RemoteSpec;
use rgpu_report::json;
use rgpu_run::run::LayoutsRun;
use rgpu_run::store::{InputsRecord, RunRecord, digest_file};

/// The tile if neither the command line nor the kernel names one.
pub(super) const DEFAULT_TILE: &str = "128x128x256";

/// The problem and tile of a kernel, and the Python that prints its layouts.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct KernelArgs {
    /// The sizes M, N and K of the problem, and the number of batches L
    #[arg(long, value_name = "M,N,K,L")]
    pub shape: Option<String>,

    /// The tile [default: the kernel's, else 128x128x256]
    #[arg(long, value_name = "MxNxK")]
    pub tile: Option<String>,

    /// Stages of A and B [default: the kernel's, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=64))]
    pub stages: Option<i64>,

    /// CTAs that share the MMA: 1 or 2
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub cta_group: u8,

    /// The load of the epilogue: 32x32b.x1 to 32x32b.x128 [default: as wide as divides the tile]
    #[arg(long, value_name = "LOAD")]
    pub ldtm: Option<String>,

    /// A Python that has nvidia-cutlass-dsl, in place of rgpu's own environment
    #[arg(long, value_name = "PYTHON", help_heading = "Where")]
    pub python: Option<String>,

    /// Ask the DSL on this remote [default: this machine]
    #[arg(long, short, value_name = "REMOTE", help_heading = "Where")]
    pub remote: Option<String>,

    /// Accept the key of an unknown host
    #[arg(long, help_heading = "Where")]
    pub accept_new: bool,

    /// Fetch the DSL without asking
    #[arg(long, short)]
    pub yes: bool,

    /// Time limit of the DSL, e.g. 90s, 10m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub timeout: Duration,
}

impl KernelArgs {
    /// The numbers of `--shape`.
    fn shape(&self) -> Result<Option<[i64; 4]>> {
        let text = self.shape.as_deref();
        let shape = text.map(|text| numbers(text, ',', "80,4096,7168,1")).transpose()?;
        if let Some(shape) = shape
            && shape.iter().any(|extent| !(1..1 << 31).contains(extent))
        {
            return Err(usage("extents of a problem are from 1 to 2^31 - 1"));
        }
        Ok(shape)
    }

    /// The problem of `--shape`.
    pub(super) fn problem_shape(&self) -> Result<Option<ProblemShape>> {
        Ok(self.shape()?.map(|[m, n, k, l]| ProblemShape { m, n, k, l }))
    }

    fn load(&self) -> Result<Option<i64>> {
        let Some(text) = &self.ldtm else { return Ok(None) };
        let columns = text.strip_prefix("32x32b.x").and_then(|n| n.parse().ok());
        let known = columns.filter(|n| [1, 2, 4, 8, 16, 32, 64, 128].contains(n));
        known.map(Some).ok_or_else(|| {
            usage(format!("`{text}` is not a load whose threads have a row each"))
                .hint("32x32b.x1, .x2, .x4 … .x128")
        })
    }

    /// The columns of the epilogue's load for a tile of `n` columns.
    pub(super) fn load_columns(&self, n: i64) -> Result<i64> {
        Ok(self.load()?.unwrap_or_else(|| widest_load(n)))
    }
}

/// The widest load that divides a tile of `n` columns.
fn widest_load(n: i64) -> i64 {
    if n > 0 { (1_i64 << n.trailing_zeros().min(7)).min(128) } else { 1 }
}

#[derive(Args, Clone, Debug)]
#[command(after_long_help = WAYS)]
pub(in crate::cli) struct DumpArgs {
    /// The kernel: a .py file. Its constants, such as mma_tiler_mnk and num_ab_stage, say what to
    /// ask for
    #[arg(value_name = "KERNEL.py")]
    pub kernel_file: PathBuf,

    #[command(flatten)]
    pub kernel: KernelArgs,

    /// Which ways to ask: the one that works without a GPU, or all, with the failure of each
    #[arg(long, value_enum, default_value_t = Probe::Default)]
    pub probe: Probe,

    /// Also call cpasync.tma_partition, and record what it is given
    #[arg(long)]
    pub try_tma_partition: bool,

    /// Also print the layouts of the epilogue: tDtAcc, tDgC and gC
    #[arg(long)]
    pub epilogue: bool,

    /// Write the dump into this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Overwrite a file that was not written by this command
    #[arg(long, requires = "out")]
    pub force: bool,
}

const WAYS: &str = "\
Examples:
  rgpu layout dump kernel.py --shape 80,4096,7168,1 --epilogue

Ways to ask the DSL (--probe all tries each):
  with_module_ip  inside an MLIR module with an insertion point: works without a GPU
  with_context    inside an MLIR context alone
  bare            with neither, as in a plain script";

/// The ways to ask the DSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Probe {
    /// The way that works without a GPU
    Default,
    /// Every way
    All,
}

/// The output of `layout dump` (`rgpu.layout-dump/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct LayoutDump {
    /// Name and version of this schema: `rgpu.layout-dump/1`.
    schema: &'static str,
    /// The kernel's file.
    kernel: String,
    /// The run that asked the DSL.
    run: String,
    /// The DSL with its version.
    dsl: String,
    /// The version of Python.
    python: String,
    /// The settings of the requested layouts.
    settings: DumpSettings,
    /// The layouts, each with what our formula says.
    layouts: Vec<DumpedLayout>,
    /// Inputs of `cpasync.tma_partition`, as the DSL prints them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    records: Vec<DumpRecord>,
    /// Probes that failed.
    failures: Vec<ProbeFailure>,
    /// Remarks of the script.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// The settings of the layouts that the DSL was asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct DumpSettings {
    /// M, N and K of the tile.
    tile: Vec<i64>,
    /// Stages of A and B.
    stages: i64,
    /// Elements that share a scale.
    sf_vec: i64,
    /// CTAs that share an MMA.
    cta_group: u8,
    /// Columns of a load from tensor memory.
    load_columns: i64,
}

/// A layout that the DSL printed.
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct DumpedLayout {
    /// The name by which the layout was asked for.
    name: String,
    /// The layout, as the DSL prints it.
    layout: String,
    /// The layout by our formula. Absent if there is none for this name.
    formula: Option<SwizzledLayout>,
    /// Whether both are one function. Absent if that is not known.
    agrees: Option<bool>,
}

/// A text of the DSL.
#[derive(Serialize, Deserialize, JsonSchema)]
struct DumpRecord {
    /// The name that the script gives to the text.
    name: String,
    /// The text that the DSL printed.
    text: String,
}

/// Something that the DSL did not answer.
#[derive(Serialize, Deserialize, JsonSchema)]
struct ProbeFailure {
    /// The way to ask.
    probe: String,
    /// What was asked for.
    what: String,
    /// The class of the exception.
    class: String,
    /// The message of the exception.
    message: String,
}

/// The report of `harness/templates/dump_layouts.py`.
#[derive(Deserialize)]
struct ScriptReport {
    #[serde(default)]
    dsl: String,
    #[serde(default)]
    python: String,
    #[serde(default)]
    settings: DumpSettings,
    #[serde(default)]
    layouts: Vec<PrintedLayout>,
    #[serde(default)]
    records: Vec<DumpRecord>,
    #[serde(default)]
    failures: Vec<ProbeFailure>,
    #[serde(default)]
    notes: Vec<String>,
    error: Option<ScriptError>,
}

#[derive(Deserialize)]
struct PrintedLayout {
    name: String,
    layout: String,
}

#[derive(Deserialize)]
struct ScriptError {
    kind: String,
    class: String,
    message: String,
}

pub(super) fn run(app: &App, args: &DumpArgs) -> Result<Status> {
    let options = DumpOptions {
        probes: match args.probe {
            Probe::Default => vec!["with_module_ip"],
            Probe::All => vec!["with_module_ip", "with_context", "bare"],
        },
        try_tma_partition: args.try_tma_partition,
        epilogue: args.epilogue,
    };
    let dump = dump(app, &args.kernel_file, &args.kernel, options)?;
    let pretty = json::pretty(&dump)
        .map_err(|e| Failure::new(Exit::Bug, "bug", "a dump cannot be written as JSON").cause(e))?;
    let mut text = text(&dump);
    if let Some(path) = &args.out {
        text += &line("dump", save(path, &pretty, args.force)?);
    }
    app.print(if app.global.json { &pretty } else { &text });
    Ok(0)
}

/// The layouts of a kernel with its epilogue, for a snapshot.
pub(super) fn layouts(app: &App, file: &Path, args: &KernelArgs) -> Result<Vec<NamedLayout>> {
    let options =
        DumpOptions { probes: vec!["with_module_ip"], try_tma_partition: false, epilogue: true };
    let dump = dump(app, file, args, options)?;
    let mut layouts = Vec::new();
    for DumpedLayout { name, layout, .. } in dump.layouts {
        match layout.parse() {
            Ok(layout) => layouts.push(NamedLayout { name, layout }),
            Err(_) => {
                app.print_note(&format!("`{name}` is left out: `{layout}` has no fixed offsets"))
            }
        }
    }
    Ok(layouts)
}

/// Requests beyond the layouts of the operands.
struct DumpOptions {
    probes: Vec<&'static str>,
    try_tma_partition: bool,
    epilogue: bool,
}

fn dump(app: &App, file: &Path, args: &KernelArgs, options: DumpOptions) -> Result<LayoutDump> {
    if file.extension().is_none_or(|extension| extension != "py") {
        return Err(usage(format!("`{}` is not a Python file", file.display())));
    }
    let source = digest_file(file).map_err(|e| {
        let failure = Failure::new(Exit::Config, "missing_source", "the kernel cannot be read");
        missing::file_or(file, &e, failure)
    })?;
    let tile = args.tile.as_deref().map(|text| numbers(text, 'x', DEFAULT_TILE)).transpose()?;
    let shape = args.shape()?;
    let request = DslLayouts {
        file: file.to_owned(),
        questions: LayoutQuestions {
            shape,
            tile,
            stages: args.stages,
            cta_group: args.cta_group,
            load_columns: args.load()?,
            probes: options.probes,
            try_tma_partition: options.try_tma_partition,
            epilogue: options.epilogue,
        },
        python: args.python.clone(),
        timeout_s: args.timeout.as_secs().max(1),
    };
    let spec = match &args.remote {
        Some(name) => session::spec(app, Some(name))?,
        None => RemoteSpec::local(),
    };
    let new_consent = match args.python {
        None => fetch_consent::require_wheel_consent(app, &spec, Dsl::Cute.wheels(), args.yes)?,
        Some(_) => None,
    };
    let name = name_of(file);
    let new = NewRun {
        command: "layout",
        name: &format!("{name}-layouts"),
        run_id: None,
        out: None,
        detach: false,
    };
    let inputs = InputsRecord {
        schema: "rgpu.inputs/1".to_owned(),
        seed: 0,
        cases: Vec::new(),
        files: vec![source],
    };
    let mut run = FollowedRun::begin(app, &spec, &new, &inputs, |record| RunRecord {
        title: format!("layouts of {name}"),
        kernel: name.clone(),
        ..record
    })?;
    let output_options = OutputOptions::with_progress_bar(app, None, args.accept_new);
    let status = |report: &Result<Vec<u8>>| report.as_ref().err().map_or(0, |f| f.exit as u8);
    let report =
        run.connect_and_run(app, &spec, output_options, status, async |run_session, context| {
            LayoutsRun { request }.run(run_session, context).await
        });
    if let (Some(consent), Err(failure)) = (new_consent, &report)
        && failure.exit == Exit::Cancelled
    {
        // The user stopped the download, so the next command asks again.
        consent.revoke();
    }
    let dump = report.and_then(|bytes| document(file, shape, &run.record.id, &bytes));
    run.record_end(
        dump.as_ref().err(),
        dump.as_ref().err().map_or(0, |failure| failure.exit as u8),
    )?;
    let dump = dump?;
    run.folder.write_json("layouts.json", &dump)?;
    Ok(dump)
}

fn document(file: &Path, shape: Option<[i64; 4]>, run: &str, bytes: &[u8]) -> Result<LayoutDump> {
    let report: ScriptReport = rgpu_run::saved_json::from_slice(bytes).map_err(|e| {
        Failure::new(Exit::Host, "bad_report", "the report of the layouts cannot be read").cause(e)
    })?;
    if let Some(error) = &report.error {
        return Err(script_failure(file, &report, error));
    }
    let formulas = formulas(&report.settings, shape);
    let layouts = report.layouts.into_iter().map(|printed| compared(printed, &formulas)).collect();
    Ok(LayoutDump {
        schema: "rgpu.layout-dump/1",
        kernel: file.display().to_string(),
        run: run.to_owned(),
        dsl: report.dsl,
        python: report.python,
        settings: report.settings,
        layouts,
        records: report.records,
        failures: report.failures,
        notes: report.notes,
    })
}

fn script_failure(file: &Path, report: &ScriptReport, error: &ScriptError) -> Failure {
    let cause = format!("{}: {}", error.class, error.message);
    match error.kind.as_str() {
        "missing" => Failure::new(Exit::Tool, "dsl_missing", "this Python has no CuTe DSL")
            .cause(cause)
            .hint("leave `--python` out, and rgpu makes its own environment")
            .hint("or install nvidia-cutlass-dsl on the host"),
        "kernel" => {
            Failure::new(Exit::Kernel, "kernel_raised", "the kernel's file raised an exception")
                .file(file.display())
                .cause(cause)
        }
        _ => Failure::new(Exit::Tool, "dsl_failed", "the DSL printed no layout")
            .tool(report.dsl.clone())
            .cause(cause)
            .hint(format!(
                "another version may have other functions; rgpu's own environment has {}",
                CUTE.version()
            ))
            .hint("`rgpu layout snapshot` has the layouts of the formulas"),
    }
}

/// The layouts of our formulas for these settings; none if no formula is known.
fn formulas(
    settings: &DumpSettings,
    shape: Option<[i64; 4]>,
) -> Vec<(&'static str, SwizzledLayout)> {
    let [m, n, k] = settings.tile[..] else { return Vec::new() };
    let pair = settings.cta_group == 2;
    let shape = shape.map(|[m, n, k, l]| ProblemShape { m, n, k, l });
    MmaTile::new(m, n, k, pair, settings.sf_vec)
        .and_then(|tile| bundle(tile, settings.stages, settings.load_columns, shape))
        .unwrap_or_default()
}

fn compared(printed: PrintedLayout, formulas: &[(&'static str, SwizzledLayout)]) -> DumpedLayout {
    let PrintedLayout { name, layout } = printed;
    let formula = formulas.iter().find(|(known, _)| *known == name).map(|(_, layout)| layout);
    let agrees = formula.and_then(|formula| {
        let dumped: SwizzledLayout = layout.parse().ok()?;
        compare(&dumped, formula, Limits::default()).ok().map(|change| change.same.is_some())
    });
    DumpedLayout { formula: formula.cloned(), agrees, name, layout }
}

fn text(dump: &LayoutDump) -> String {
    let tile: Vec<String> = dump.settings.tile.iter().map(i64::to_string).collect();
    let mut text = format!(
        "{}  {}, tile {}, {} stages\n",
        dump.kernel,
        dump.dsl,
        tile.join("x"),
        dump.settings.stages
    );
    for layout in &dump.layouts {
        text += &line(&layout.name, &layout.layout);
        match (layout.agrees, &layout.formula) {
            (Some(true), _) => text += &line("", "the formula agrees, proved"),
            (_, Some(formula)) => text += &line("", format!("the formula has {formula}")),
            _ => {}
        }
    }
    for record in &dump.records {
        text += &line(&record.name, record.text.lines().next().unwrap_or_default());
    }
    for failure in &dump.failures {
        let message = failure.message.lines().next().unwrap_or_default();
        let what = format!("{} by {}: {}: {message}", failure.what, failure.probe, failure.class);
        text += &line("no answer", what);
    }
    for note in &dump.notes {
        text += &line("note", note);
    }
    text
}
