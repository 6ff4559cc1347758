//! `rgpu report`: a run, or a report file of NVIDIA's tools, read here and now. No host, no GPU and
//! nothing from NVIDIA is needed.

use std::io::Read;
use std::path::Path;

use clap::Args;

use super::app::{App, Status};
use crate::error::{Exit, Failure, Result};
use crate::import::{IMPORTERS, Source};
use crate::model::profile::{KernelInfo, RunInfo, SCHEMA};
use crate::model::{Beside, Profile};
use crate::report::{REPORTS, report};
use crate::store::{RunFolder, Runs};

/// Read a run, or a report file, and explain it
#[derive(Args, Clone, Debug)]
pub(super) struct ReportArgs {
    /// A run (id, prefix, latest, folder), or a file: .ncu-rep, .ncu-repz, nsys's .sqlite or
    /// .nsys-rep, a sanitizer log or XML, a cubin
    #[arg(value_name = "RUN|FILE", default_value = "latest")]
    pub what: String,

    /// How it is shown [default: table, or json under --json]
    #[arg(long, value_name = "FORMAT", value_parser = clap::builder::PossibleValuesParser::new(REPORTS.iter().map(|r| r.id)))]
    pub format: Option<String>,
}

/// Shows a report.
pub(super) fn run(app: &App, args: &ReportArgs) -> Result<Status> {
    let path = Path::new(&args.what);
    let profile =
        if path.is_file() {
            file(path, &args.what)?
        } else {
            let found = Runs::new(&app.config.runs_dir.value).find(&args.what);
            saved(&found.map_err(|e| {
                Failure::from(e).hint(format!("and there is no file `{}`", args.what))
            })?)?
        };
    let default = if app.global.json { "json" } else { "table" };
    if let Some(report) = report(args.format.as_deref().unwrap_or(default)) {
        app.print(&report.text(&(&profile).into(), &app.style()));
    }
    Ok(0)
}

/// The profile that a run left.
pub(super) fn saved(folder: &RunFolder) -> Result<Profile> {
    let path = folder.path().join("profile.json");
    if !path.is_file() {
        return Err(Failure::new(Exit::Artifact, "no_profile", "this run has no profile")
            .file(path.display())
            .hint(format!("`rgpu runs show {}` says how it stands", folder.path().display())));
    }
    serde_json::from_slice(&folder.read("profile.json")?).map_err(|e| {
        Failure::new(Exit::Artifact, "bad_profile", "the run's profile cannot be read")
            .file(path.display())
            .cause(e)
    })
}

/// A profile of one file alone.
fn file(path: &Path, shown: &str) -> Result<Profile> {
    let unreadable = |e: std::io::Error| {
        Failure::new(Exit::Artifact, "unreadable", "the file cannot be read").file(shown).cause(e)
    };
    let mut head = Vec::new();
    std::fs::File::open(path)
        .and_then(|f| f.take(64 << 10).read_to_end(&mut head))
        .map_err(unreadable)?;
    let name = path.file_name().map_or(String::new(), |n| n.to_string_lossy().into_owned());
    let Some(importer) = IMPORTERS.iter().find(|i| (i.recognises)(&name, &head)) else {
        let first = String::from_utf8_lossy(&head[..head.len().min(200)]).into_owned();
        let kinds = IMPORTERS.iter().map(|i| i.kind).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(
            Exit::Artifact,
            "unknown_file",
            "this file is of no kind that rgpu reads",
        )
        .file(shown)
        .cause(format!("it begins with `{}`", first.escape_debug()))
        .hint(format!("kinds: {kinds}")));
    };
    let mut imported = (importer.import)(&Source::new(path, shown).alone()).map_err(|e| {
        Failure::new(Exit::Artifact, "damaged_report", "the file cannot be understood")
            .file(shown)
            .because(&e)
    })?;
    let mut profile = Profile {
        schema: SCHEMA.to_owned(),
        run: RunInfo {
            id: name.clone(),
            mode: importer.kind.to_owned(),
            remote: shown.to_owned(),
            rgpu: env!("CARGO_PKG_VERSION").to_owned(),
            ..RunInfo::default()
        },
        kernel: KernelInfo { name, language: "report".to_owned(), ..KernelInfo::default() },
        rung: importer.kind.to_owned(),
        ..Profile::default()
    };
    for refusal in imported.refusals.drain(..) {
        profile
            .gaps
            .push(crate::model::profile::Gap { code: refusal.code.to_owned(), text: refusal.text });
    }
    let mut beside = Beside::default();
    imported.add_to(&mut profile, &mut beside);
    crate::analysis::analyze(&mut profile);
    Ok(profile)
}
