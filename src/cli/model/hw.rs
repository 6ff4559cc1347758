//! `rgpu model hw`: the catalogue of GPUs.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rgpu_predict::document::{CheckDocument, CheckedItem, GpuList, gpu_document, gpu_line};
use rgpu_predict::hw::host::{DoctorReport, DoctorReportError, complete};
use rgpu_predict::hw::{FigureKind, Hardware, Problem, check, find};

use super::{gpu, input};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::{TextTable, bytes, per_second};
use rgpu_run::store::atomic;

/// List, show, add and check GPUs
#[derive(Subcommand, Clone, Debug)]
pub(in crate::cli) enum HwCommand {
    /// List the GPUs that --gpu takes
    #[command(after_long_help = examples!("rgpu model hw list"))]
    List,
    /// Show every number of a GPU with its unit and source
    #[command(after_long_help = examples!(
        "rgpu model hw show h200",
        "rgpu model hw show h200 --toml",
    ))]
    Show(ShowArgs),
    /// Check a hardware file and add it to the catalogue
    #[command(after_long_help = examples!("rgpu model hw add my-gpu.toml"))]
    Add(AddArgs),
    /// Check hardware files: units, ranges, and numbers that must agree
    #[command(after_long_help = examples!("rgpu model hw check my-gpu.toml"))]
    Check(CheckArgs),
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ShowArgs {
    /// A name or a file
    pub name: String,

    /// Print the file itself, to start another from
    #[arg(long)]
    pub toml: bool,
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct AddArgs {
    /// The hardware file, in the form that `hw show --toml` prints
    pub file: PathBuf,

    /// Fill in missing values from the output of `rgpu doctor --json`
    #[arg(long, value_name = "JSON")]
    pub doctor: Option<PathBuf>,

    /// Which GPU of that host, by its index, if they differ
    #[arg(long, value_name = "INDEX", requires = "doctor")]
    pub device: Option<u32>,

    /// Replace a GPU of this name that was added before
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CheckArgs {
    /// Files; without any, those that were added
    pub files: Vec<PathBuf>,
}

pub(super) fn run(app: &App, command: &HwCommand) -> Result<Status> {
    match command {
        HwCommand::List => list(app),
        HwCommand::Show(args) => show(app, args),
        HwCommand::Add(args) => add(app, args),
        HwCommand::Check(args) => check_files(app, args),
    }
}

fn list(app: &App) -> Result<Status> {
    let all = gpu::all(app);
    let lines: Vec<_> = all.iter().filter_map(|(gpu, from)| gpu_line(gpu, from)).collect();
    if app.global.json {
        app.print_json(&GpuList { schema: "rgpu.model-gpus/1", gpus: lines })?;
        return Ok(0);
    }
    let mut table =
        TextTable::new("name | HBM: | : | bf16: | fp8: | fp4: | NVLink one way: | product | from");
    let rate = |flops: f64| if flops > 0.0 { per_second(flops, "FLOP") } else { "none".into() };
    for line in lines {
        table.add_row([
            line.id,
            bytes(line.hbm_bytes),
            per_second(line.hbm_bandwidth, "B"),
            rate(line.bf16),
            rate(line.fp8),
            rate(line.fp4),
            line.nvlink.map(|rate| per_second(rate, "B")).unwrap_or_default(),
            line.name,
            line.from,
        ]);
    }
    app.print(&table.fitted(app.columns(), 0));
    Ok(0)
}

fn show(app: &App, args: &ShowArgs) -> Result<Status> {
    let hardware = gpu::load(app, &args.name)?;
    let document = gpu_document(&hardware);
    if app.global.json {
        app.print_json(&document)?;
        return Ok(0);
    }
    if args.toml {
        app.print(&toml_text(&hardware)?);
        return Ok(0);
    }
    app.print(&format!("{}  {}\n\n", hardware.id, hardware.name));
    app.print(&figures(&hardware).fitted(app.columns(), 2));
    app.print("\n  ridge points: ");
    let ridges = document.ridge_flop_per_byte.iter();
    let ridges: Vec<String> = ridges.map(|(dtype, x)| format!("{dtype} {x:.0}")).collect();
    app.print(&format!("{} FLOP a byte of HBM\n\n", ridges.join(", ")));
    let mut table = TextTable::new("source | read | ");
    for (name, source) in &hardware.sources {
        let url = source.url.as_deref().unwrap_or_default();
        table.add_row([name.clone(), source.date.clone(), format!("{} {url}", source.title)]);
    }
    app.print(&table.fitted(app.columns(), 2));
    Ok(0)
}

fn toml_text(hardware: &Hardware) -> Result<String> {
    toml::to_string(hardware).map_err(|error| {
        Failure::new(Exit::Bug, "bug", "the GPU cannot be written as TOML").cause(error)
    })
}

/// A datasheet with what the diagnosis of a host adds, and what both contradict in.
fn completed(
    datasheet: Hardware,
    doctor: &Path,
    device: Option<u32>,
) -> Result<(Hardware, Vec<Problem>)> {
    let wrong = |error: DoctorReportError| {
        Failure::new(Exit::Artifact, "bad_diagnosis", error.to_string())
            .file(doctor.display())
            .hint("`rgpu doctor --json > FILE` writes it; `--device` chooses a GPU")
    };
    let text = input::text(doctor)?;
    rgpu_run::saved_json::check_any(text.as_bytes())
        .map_err(|over| wrong(DoctorReportError::Json(over.to_string())))?;
    let diagnosis = DoctorReport::parse(&text).map_err(wrong)?;
    let gpu = diagnosis.gpu(device).map_err(wrong)?;
    let today = jiff::Zoned::now().date().to_string();
    Ok(complete(datasheet, gpu, diagnosis.host.driver.as_deref(), &today))
}

/// Every number with its unit, kind and source.
fn figures(hardware: &Hardware) -> TextTable {
    let mut table = TextTable::new("number | value: | unit |  | source");
    let unit = |unit| serde_json::to_value(unit).ok().and_then(|v| v.as_str().map(str::to_owned));
    let kind = |kind| match kind {
        FigureKind::Stated => "",
        FigureKind::Measured => "measured",
        FigureKind::Derived => "derived",
    };
    let mut row = |name: String, value: f64, of, words: String, source: &str| {
        let unit = unit(of).unwrap_or_default();
        table.add_row([name, value.to_string(), unit, words, source.to_owned()]);
    };
    let mut figure = |name: String, figure: &rgpu_predict::hw::Figure| {
        row(name, figure.value, figure.unit, kind(figure.kind).to_owned(), &figure.source);
    };
    figure("processors".into(), &hardware.processors);
    figure("domain".into(), &hardware.domain);
    if let Some(clock) = &hardware.clock {
        figure("clock".into(), clock);
    }
    for memory in &hardware.memory {
        let tier = format!("{:?}", memory.tier).to_lowercase();
        if let Some(capacity) = &memory.capacity {
            figure(format!("{tier} capacity"), capacity);
        }
        if let Some(bandwidth) = &memory.bandwidth {
            figure(format!("{tier} bandwidth"), bandwidth);
        }
    }
    for peak in &hardware.compute {
        let name = format!("{} {:?}", peak.dtype, peak.path).to_lowercase();
        let words = format!("{:?} {}", peak.sparsity, kind(peak.kind)).to_lowercase();
        row(name, peak.value, peak.unit, words.trim().to_owned(), &peak.source);
    }
    for link in &hardware.link {
        let name = format!("{:?} link", link.kind).to_lowercase();
        let words = match link.direction {
            rgpu_predict::hw::Direction::One => "one way",
            rgpu_predict::hw::Direction::Both => "both ways",
        };
        row(name, link.value, link.unit, words.to_owned(), &link.source);
    }
    table
}

fn add(app: &App, args: &AddArgs) -> Result<Status> {
    let datasheet = gpu::read(&args.file)?;
    let (hardware, mut problems) = match &args.doctor {
        Some(doctor) => completed(datasheet, doctor, args.device)?,
        None => (datasheet, Vec::new()),
    };
    problems.extend(check(&hardware));
    if let Some(first) = problems.first() {
        let what = format!("the file has {} problems", problems.len());
        let failure = Failure::new(Exit::Config, "bad_hardware", what)
            .file(args.file.display())
            .cause(format!("{}: {}", first.place, first.text));
        return Err(match args.doctor {
            Some(_) => failure.hint("a datasheet of another GPU contradicts the host"),
            None => {
                failure.hint(format!("`rgpu model hw check {}` shows all", args.file.display()))
            }
        });
    }
    if find(&hardware.id).is_ok() {
        let what = format!("`{}` is a GPU of the catalogue: give it another id", hardware.id);
        return Err(Failure::new(Exit::Config, "exists", what).file(args.file.display()));
    }
    let target = gpu::folder(app).join(format!("{}.toml", hardware.id));
    if target.exists() && !args.force {
        let what = format!("there is already a GPU `{}`", hardware.id);
        return Err(Failure::new(Exit::Config, "exists", what)
            .file(target.display())
            .hint("`--force` replaces it"));
    }
    let unwritten = |error: std::io::Error| {
        Failure::new(Exit::Disk, "disk", "cannot write").file(target.display()).cause(error)
    };
    atomic::make_private_folder(&gpu::folder(app)).map_err(unwritten)?;
    // A file that the user wrote keeps its comments.
    let bytes = match &args.doctor {
        Some(_) => toml_text(&hardware)?.into_bytes(),
        None => input::read(&args.file)?,
    };
    atomic::write(&target, &bytes).map_err(unwritten)?;
    app.print_note(&format!("added {} as `{}`", target.display(), hardware.id));
    Ok(0)
}

fn check_files(app: &App, args: &CheckArgs) -> Result<Status> {
    let files = if args.files.is_empty() { gpu::added(app) } else { args.files.clone() };
    let mut checks = Vec::new();
    for file in &files {
        let hardware = gpu::read(file)?;
        checks
            .push(CheckedItem { subject: file.display().to_string(), problems: check(&hardware) });
    }
    if files.is_empty() {
        app.print_note("no GPU was added; name a file to check");
    }
    print_checks(app, checks)
}

/// Prints checks, and fails if one found something.
pub(super) fn print_checks(app: &App, checks: Vec<CheckedItem>) -> Result<Status> {
    let passed = checks.iter().all(|check| check.problems.is_empty());
    if app.global.json {
        app.print_json(&CheckDocument { schema: "rgpu.model-check/1", passed, checks })?;
    } else {
        for check in &checks {
            let mark = if check.problems.is_empty() { "ok  " } else { "bad " };
            app.print(&format!("{mark} {}\n", check.subject));
            for problem in &check.problems {
                app.print(&format!("     {}: {}\n", problem.place, problem.text));
            }
        }
    }
    Ok(if passed { 0 } else { Exit::Findings as u8 })
}
