//! `rgpu loop schema`, `validate` and `report-time`: what workers and reviewers need.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::support::app::{App, Status};
use crate::cli::support::missing;
use rgpu_model::agent_files;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_work::loops::{DocumentKind, ProgressReport, WorkerProgress};

/// The largest checked file.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ValidateArgs {
    /// The worker's result or the reviewer's verdict
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Which kind of file [default: a reviewer's if it has a `verdict`]
    #[arg(long, value_enum)]
    pub kind: Option<DocumentKind>,
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ReportTimeArgs {
    /// The loop's id, or the beginning of it [default: the newest]
    #[arg(value_name = "ID")]
    pub id: Option<String>,

    /// The iteration of the prompt
    #[arg(long, value_name = "N")]
    pub iter: u32,

    /// A measured time in microseconds
    #[arg(long, value_name = "T", value_parser = time)]
    pub time_us: Option<f64>,

    /// The file with the measurement
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub artifact: Option<String>,

    /// The worker's activity, in its own word
    #[arg(long, value_name = "WORD")]
    pub status: Option<String>,

    /// A note for whoever reads the progress
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,

    /// Something that went wrong
    #[arg(long, value_name = "TEXT")]
    pub error: Option<String>,
}

/// The output of `rgpu loop validate --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct CheckDocument {
    /// Name and version of this schema: `rgpu.loop-check/1`.
    pub schema: &'static str,
    /// The path of the file.
    pub file: String,
    /// The kind of the file: `worker` or `reviewer`.
    pub kind: &'static str,
}

/// The output of `rgpu loop report-time --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct ProgressDocument {
    /// Name and version of this schema: `rgpu.loop-progress/1`.
    pub schema: &'static str,
    /// The worker's reports during the iteration.
    #[serde(flatten)]
    pub progress: WorkerProgress,
}

fn time(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(time) if time > 0.0 && time.is_finite() => Ok(time),
        _ => Err("a time in microseconds is a number above 0".to_owned()),
    }
}

pub(super) fn schema(app: &App, kind: DocumentKind) -> Result<Status> {
    app.print_json(&kind.schema())?;
    Ok(0)
}

pub(super) fn validate(app: &App, args: &ValidateArgs) -> Result<Status> {
    let shown = args.file.display().to_string();
    let text = agent_files::read(&args.file, MAX_BYTES).map_err(|e| {
        let failure = Failure::new(Exit::Config, "unreadable", "the file cannot be read");
        missing::file_or(&args.file, &e, failure)
    })?;
    let kind = args.kind.unwrap_or_else(|| DocumentKind::guess(&text));
    let name = match kind {
        DocumentKind::Worker => "worker's result",
        DocumentKind::Reviewer => "reviewer's verdict",
    };
    if let Some(fault) = kind.fault(&text) {
        let words = format!("`{shown}` is not a {name}");
        let command = match kind {
            DocumentKind::Worker => "rgpu loop schema worker",
            DocumentKind::Reviewer => "rgpu loop schema reviewer",
        };
        return Err(Failure::new(Exit::Artifact, "invalid_document", words)
            .cause(fault)
            .hint(format!("`{command}` prints its schema")));
    }
    if app.global.json {
        let kind = match kind {
            DocumentKind::Worker => "worker",
            DocumentKind::Reviewer => "reviewer",
        };
        app.print_json(&CheckDocument { schema: "rgpu.loop-check/1", file: shown, kind })?;
        return Ok(0);
    }
    app.print_note(&format!("`{shown}` is a {name}"));
    Ok(0)
}

/// Adds a report to the progress of an iteration.
pub(super) fn report_time(app: &App, args: &ReportTimeArgs) -> Result<Status> {
    let loops = super::open_existing(app)?;
    let row = loops.find(args.id.as_deref())?;
    let report = ProgressReport {
        time_us: args.time_us,
        artifact: args.artifact.clone(),
        status: args.status.clone(),
        note: args.note.clone(),
        error: args.error.clone(),
    };
    let progress = loops.report_progress(&row, args.iter, &report)?;
    if app.global.json {
        app.print_json(&ProgressDocument { schema: "rgpu.loop-progress/1", progress })?;
        return Ok(0);
    }
    let best = progress.best_time_us.map_or("no time yet".to_owned(), |time| format!("{time} µs"));
    app.print_note(&format!("noted; best reported in iteration {}: {best}", args.iter));
    Ok(0)
}
