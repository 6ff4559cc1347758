//! `rgpu runs export`: writes a run into one archive, complete or redacted.

#![expect(
    clippy::disallowed_methods,
    reason = "the size of the archive just written where the user said"
)]

use std::fs::File;
use std::io;
use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::support::app::{App, Status};
use super::super::support::open_profile::{self, OpenedProfile};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::bytes;
use rgpu_run::store::archive::Archive;
use rgpu_run::store::{RunFolder, atomic};

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ExportArgs {
    /// The run: an id, a unique prefix, latest, latest~1 or a folder
    pub run: String,

    /// The archive [default: <run>.tar.zst in the current folder]; an existing file is not
    /// overwritten
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Include only profile and reports, without what tells where and by whom they were made: host,
    /// user, paths, command lines, environment, source text
    #[arg(long)]
    pub redact: bool,
}

/// The output of `runs export --json` (`rgpu.exported/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct ExportResult {
    /// Name and version of this schema: `rgpu.exported/1`.
    schema: &'static str,
    /// The id of the run.
    run: String,
    /// The path of the archive.
    file: PathBuf,
    /// The size of the archive in bytes.
    bytes: u64,
    /// Whether the parts that tell where and by whom it was made were left out.
    redacted: bool,
}

/// Writes a run into an archive.
pub(super) fn export(app: &App, folder: &RunFolder, args: &ExportArgs) -> Result<Status> {
    let record = folder.current_record()?;
    if record.state.is_active() {
        app.print_note(&format!(
            "warning: `{}` has not ended: `rgpu runs attach {}` fetches the rest",
            record.id, record.id
        ));
    }
    let redacted = if args.redact { Some(open_redacted(folder)?) } else { None };
    let mut document_count = 0;
    let suffix = if args.redact { "-redacted" } else { "" };
    let path = args.out.clone().unwrap_or_else(|| format!("{}{suffix}.tar.zst", record.id).into());
    let path = app.cwd.join(path);
    let now_s = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0);
    let fill = |file: &mut File| -> io::Result<()> {
        let mut archive = Archive::new(file)?;
        match &redacted {
            None => archive.folder(&record.id, folder.path())?,
            Some(opened) => each_document(opened, |name, bytes| {
                document_count += 1;
                archive.document(&format!("{}/{name}", record.id), &bytes, now_s)
            })?,
        }
        archive.finish()
    };
    atomic::write_new(&path, fill).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::new(Exit::Usage, "out_exists", format!("`{}` already exists", path.display()))
                .hint("name another file with `--out`")
        }
        _ => Failure::new(Exit::Disk, "disk", "cannot write the archive")
            .file(path.display())
            .cause(e),
    })?;
    let size = std::fs::metadata(&path).map_or(0, |m| m.len());
    if app.global.json {
        app.print_json(&ExportResult {
            schema: "rgpu.exported/1",
            run: record.id,
            file: path,
            bytes: size,
            redacted: args.redact,
        })?;
        return Ok(0);
    }
    app.print(&format!("{}\n", path.display()));
    app.print_note(&match redacted {
        None => format!(
            "{}; it tells where and by whom it was made (see `--redact`)",
            bytes(size as f64)
        ),
        Some(_) => format!(
            "{}, {document_count} files; logs, the tools' own reports, compiled code and settings \
             are left out",
            bytes(size as f64)
        ),
    });
    Ok(0)
}

/// The redacted profile of a run, with its sidecar documents.
fn open_redacted(folder: &RunFolder) -> Result<OpenedProfile> {
    if !folder.has("profile.json") {
        return Err(Failure::new(
            Exit::Usage,
            "no_profile",
            "this run has no profile: a program's output cannot be redacted",
        )
        .hint("leave `--redact` out to export it as it is"));
    }
    let mut opened = open_profile::open_run(folder)?;
    crate::redact::redact(&mut opened.profile, &mut opened.sidecars).map_err(|e| {
        Failure::new(Exit::Bug, "redact", "the run cannot be redacted").cause_from(&e)
    })?;
    Ok(opened)
}

/// Makes each document and report of a run in turn, and gives its name and bytes to `add`.
fn each_document(
    opened: &OpenedProfile,
    mut add: impl FnMut(&str, Vec<u8>) -> io::Result<()>,
) -> io::Result<()> {
    add("profile.json", json(&opened.profile)?)?;
    if let Some(hotspots) = &opened.sidecars.hotspots {
        add("hotspots.json", json(hotspots)?)?;
    }
    if let Some(trace) = &opened.sidecars.trace {
        add("trace.json", json(trace)?)?;
    }
    for report in ["markdown", "html"].into_iter().filter_map(rgpu_report::report) {
        for document in (report.render)(&opened.subject(), &rgpu_report::Style::default()) {
            add(document.name, document.into_bytes())?;
        }
    }
    for file in rgpu_report::regions::files(&opened.profile) {
        add(&file.path, file.text.into_bytes())?;
    }
    Ok(())
}

fn json(document: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    rgpu_report::json::write(&mut bytes, document)?;
    Ok(bytes)
}
