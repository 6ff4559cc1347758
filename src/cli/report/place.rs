//! Writes a report to stdout, into a file, or as several files into a folder.

use std::path::PathBuf;

use super::{ReportArgs, perfetto_ui};
use crate::cli::support::app::App;
use crate::cli::support::desktop::open_on_desktop;
use crate::cli::support::open_profile::OpenedProfile;
use crate::cli::support::overwrite;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::{Destination, Document, OneLineRows, Report, Style};
use rgpu_run::store::atomic;

/// Renders `report` and writes it where the user asked. Prints the paths of written files.
pub(super) fn write_report(
    app: &App,
    args: &ReportArgs,
    report: &Report,
    opened: &OpenedProfile,
    style: &Style,
) -> Result<()> {
    if let Some(why) = (report.lacks)(&opened.subject()) {
        let what = format!("there is nothing to show as `{}`", report.id);
        return Err(Failure::new(Exit::Artifact, "nothing_to_show", what)
            .file(args.what.join(" "))
            .cause(why)
            .hint("`--format table` shows the content"));
    }
    if args.out.is_none() && !args.open && report.destination == Destination::Stdout {
        let mut documents = (report.render)(&opened.subject(), style).into_iter();
        let Some(first) = documents.next() else { return Ok(()) };
        let rest: Vec<&str> = documents.map(|d| d.name).collect();
        if !rest.is_empty() {
            app.print_note(&format!("`--out FOLDER` writes {} too", rest.join(", ")));
        }
        if first.name.ends_with(".csv") {
            return app.print_pieces(&|out| first.write_to(&mut OneLineRows::new(out)));
        }
        return app.print_pieces(&|out| first.write_to(out));
    }
    // A file is not read by this terminal.
    let style = Style { color: false, ..*style };
    let documents = (report.render)(&opened.subject(), &style);
    let paths = paths(args, opened, &documents);
    if !args.force {
        for (document, path) in documents.iter().zip(&paths) {
            overwrite::check(path, &document.head(overwrite::SNIFF_BYTES))?;
        }
    }
    for (document, path) in documents.iter().zip(&paths) {
        atomic::write_with(path, |file| document.write_to(file)).map_err(|e| {
            Failure::new(Exit::Disk, "disk", "the report cannot be written")
                .file(path.display())
                .cause(e)
        })?;
    }
    let written: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    if app.global.json {
        app.print_json(&serde_json::json!({ "written": written }))?
    } else {
        written.iter().for_each(|path| app.print(&format!("{path}\n")))
    }
    match (paths.first(), documents.into_iter().next()) {
        (Some(trace), Some(document)) if args.open && report.id == "perfetto" => {
            perfetto_ui::show(app, trace, document.into_bytes())
        }
        (Some(main), _) if args.open => {
            open_on_desktop("the written report", &main.display().to_string())
                .map_err(|failure| failure.file(main.display()))
        }
        _ => Ok(()),
    }
}

/// A path for each document. A single document takes the path itself, unless that is a folder;
/// several go into it. Without a path they go into the run folder, or for a file into the current
/// folder.
fn paths(args: &ReportArgs, opened: &OpenedProfile, documents: &[Document]) -> Vec<PathBuf> {
    match (&args.out, documents) {
        (Some(out), [_]) if !out.is_dir() => vec![out.clone()],
        (out, _) => {
            let folder = out.clone().or_else(|| opened.folder.clone()).unwrap_or_default();
            documents.iter().map(|d| folder.join(d.name)).collect()
        }
    }
}
