//! `rgpu report`: reads a run, or a report file of NVIDIA's tools, on this machine. Needs no host,
//! no GPU and no NVIDIA software.

mod perfetto_ui;
mod place;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::support::app::{App, Status};
use super::support::open_profile::{OpenedProfile, open_comparison, open_within};
use super::support::{joined_reports, missing, saved_comparison, saved_fan_out};
use rgpu_import::Detail;
use rgpu_model::byte_size::bytes;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::{MIN_BUDGET_BYTES, REPORTS, Style, report, wrap};

/// Explain a run or a report file
///
/// The exit status is 0 if the file could be read, even if a sanitizer log has findings (`rgpu
/// profile --mode sanitizer` exits with 1 on them). `--lint` exits with 1 on any fault.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = examples!(
    "rgpu report latest",
    "rgpu report mine.ncu-rep --format html --open",
    "rgpu report latest --format perfetto --open",
    "rgpu report latest --lint nvtx",
    "rgpu report rank0.nsys-rep rank1.nsys-rep",
))]
pub(super) struct ReportArgs {
    /// A run (id, prefix, latest, folder), or a file: .ncu-rep, .ncu-repz, nsys's .sqlite or
    /// .nsys-rep, a page of ncu or nsys stats as .csv, a sanitizer log or XML, a cubin. Several
    /// reports of nsys or torch, or a folder with them, are the ranks of one program
    #[arg(value_name = "RUN|FILE", default_value = "latest")]
    pub what: Vec<String>,

    /// The format of the output [default: table, or json with --json]
    #[arg(long, value_name = "FORMAT", value_parser = clap::builder::PossibleValuesParser::new(REPORTS.iter().map(|r| r.id)))]
    pub format: Option<String>,

    /// Write to this file, or into this folder if there are several files, and print the names. By
    /// default `html` goes to report.html and `perfetto` to trace.pftrace, in the run's folder, or
    /// in the current folder if the input is a file
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,

    /// Overwrite a file that is not an earlier report of the same kind
    #[arg(long)]
    pub force: bool,

    /// Open the written file; a `perfetto` trace opens at ui.perfetto.dev, in your browser only:
    /// nothing is uploaded
    #[arg(long)]
    pub open: bool,

    /// Check the program instead of showing it: `nvtx` checks how it uses NVTX ranges. Exits with 1
    /// on any fault
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with_all = ["format", "out", "open", "redact"])]
    pub lint: Option<LintName>,

    /// Remove host, user, paths, command lines, environment and source text. The tools' own reports
    /// contain all of this and are never included
    #[arg(long)]
    pub redact: bool,

    /// Refuse a file that is larger than this, compressed or unpacked
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "4GiB")]
    pub max_size: u64,

    /// Show kernels by their full names in tables, Markdown and the brief summary; JSON and CSV
    /// always have them
    #[arg(long)]
    pub full_names: bool,

    /// Size limit of `--format brief`, such as 2048 or 16KiB; at least 256 [default: 4096]
    #[arg(long, value_name = "BYTES", value_parser = budget)]
    pub bytes: Option<usize>,
}

/// Parses `--bytes`; refuses a budget too small for a summary.
fn budget(text: &str) -> Result<usize, String> {
    match usize::try_from(bytes(text)?) {
        Ok(n) if n >= MIN_BUDGET_BYTES => Ok(n),
        Ok(_) => Err(format!("too few for a report: write {MIN_BUDGET_BYTES} or more bytes")),
        Err(_) => Err("more than this machine can hold".to_owned()),
    }
}

/// A group of checks for `--lint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LintName {
    /// NVTX ranges
    Nvtx,
}

/// Prints the findings of the lints.
fn lint(app: &App, opened: &OpenedProfile) -> Result<Status> {
    let findings = rgpu_analysis::lint::lint(&opened.profile, opened.sidecars.trace.as_ref());
    if app.global.json {
        app.print_json(&findings)?;
    } else {
        let width = app.style().width;
        for finding in &findings {
            let text = wrap(&format!("{}: {}", finding.id, finding.text), width - 2).join("\n  ");
            let hint = wrap(&finding.hint, width - 4).join("\n    ");
            app.print(&format!("{text}\n    {hint}\n"));
        }
    }
    let trace = opened.sidecars.trace.as_ref();
    let ranges = !opened.profile.regions.is_empty()
        || opened.profile.launches.iter().any(|launch| !launch.region.is_empty())
        || trace.is_some_and(|t| !t.ranges.is_empty());
    if findings.is_empty() {
        app.print_note(if ranges {
            "no fault was found in the NVTX ranges"
        } else {
            "nothing to check: no NVTX ranges were recorded"
        });
    }
    Ok(if findings.is_empty() { 0 } else { Exit::Findings as u8 })
}

/// Refuses flags that do not fit the format.
fn check_format(app: &App, args: &ReportArgs) -> Result<()> {
    let format = args.format.as_deref();
    app.check_one_format(format)?;
    if args.bytes.is_some() && format != Some("brief") {
        return Err(Failure::new(
            Exit::Usage,
            "usage",
            "`--bytes` works only with `--format brief`",
        )
        .hint("`--max-size` limits the bytes of the file that is read"));
    }
    Ok(())
}

pub(super) fn run(app: &App, args: &ReportArgs) -> Result<Status> {
    check_format(app, args)?;
    if let Some(failure) = args.what.iter().find_map(|name| missing::compiled_code(name)) {
        return Err(failure);
    }
    match &args.what[..] {
        [what] => run_one(app, args, what),
        several => run_joined(app, args, several),
    }
}

/// Shows the reports of many ranks as one.
fn run_joined(app: &App, args: &ReportArgs, several: &[String]) -> Result<Status> {
    let mut paths = Vec::new();
    for what in several {
        let path = PathBuf::from(what);
        match joined_reports::in_folder(&path) {
            Some(reports) => paths.extend(reports),
            None if path.is_file() => paths.push(path),
            None => return Err(missing::file(what)),
        }
    }
    let opened = joined_reports::open(app, &paths, &several.join(" "), args.max_size)?;
    show(app, args, opened)
}

fn run_one(app: &App, args: &ReportArgs, what: &str) -> Result<Status> {
    if let Some(several) = saved_fan_out::find(app, what)? {
        if args.redact || args.lint.is_some() {
            let message = format!("`{}` is a fan-out of several runs", what);
            return Err(Failure::new(Exit::Usage, "usage", message)
                .hint("`--redact` and `--lint` work on one run; `rgpu runs list` shows each"));
        }
        check_only_printed(args, "a fan-out of several runs")?;
        return saved_fan_out::show_as(app, &several, what, args.format.as_deref());
    }
    let kept = saved_comparison::find(app, what)?;
    if kept.is_some() && args.redact {
        return Err(Failure::new(Exit::Usage, "redact", "a comparison cannot be redacted")
            .hint("redact the report of each side: `rgpu report RUN --redact`"));
    }
    if kept.is_some() && args.lint.is_some() {
        return Err(Failure::new(
            Exit::Usage,
            "lint",
            "a comparison cannot be checked with `--lint`",
        )
        .hint("look at each side: `rgpu report RUN --lint nvtx`"));
    }
    let default = if app.global.json { "json" } else { "table" };
    let Some(report) = report(args.format.as_deref().unwrap_or(default)) else { return Ok(0) };
    let opened = match kept {
        Some(kept) if args.format.as_deref() == Some("html") => open_comparison(app, what, kept)?,
        Some(kept) => {
            check_only_printed(args, "a comparison without `--format html`")?;
            return saved_comparison::show_as(app, &kept, what, args.format.as_deref());
        }
        None => {
            let is_summary = report.is_summary && args.lint.is_none();
            let detail = if is_summary { Detail::Summary } else { Detail::Full };
            open_within(app, what, args.max_size, detail)?
        }
    };
    show(app, args, opened)
}

/// Refuses `--out` and `--open` for what is only printed.
fn check_only_printed(args: &ReportArgs, what: &str) -> Result<()> {
    let flag = match (&args.out, args.open) {
        (Some(_), _) => "--out",
        (None, true) => "--open",
        (None, false) => return Ok(()),
    };
    let message = format!("`{flag}` does not work for {what}: it is only printed");
    Err(Failure::new(Exit::Usage, "usage", message).hint("write it with `rgpu report RUN > FILE`"))
}

/// Shows what was opened.
fn show(app: &App, args: &ReportArgs, mut opened: OpenedProfile) -> Result<Status> {
    let default = if app.global.json { "json" } else { "table" };
    let Some(report) = report(args.format.as_deref().unwrap_or(default)) else { return Ok(0) };
    if args.lint == Some(LintName::Nvtx) {
        return lint(app, &opened);
    }
    if args.redact {
        crate::redact::redact(&mut opened.profile, &mut opened.sidecars).map_err(|e| {
            Failure::new(Exit::Bug, "redact", "the report cannot be redacted").cause_from(&e)
        })?;
        // Do not overwrite the full report in the run folder.
        opened.folder = None;
    }
    let style = Style { budget: args.bytes.unwrap_or(app.style().budget), ..app.style() };
    place::write_report(app, args, report, &opened, &style)?;
    // The process ends: to free each name and number of a large profile takes milliseconds.
    std::mem::forget(opened);
    Ok(0)
}
