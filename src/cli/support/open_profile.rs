//! Opens the source of a report: a run's documents, or a file of NVIDIA's tools.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::app::App;
use super::joined_reports;
use super::missing;
use super::nvdisasm;
use super::reading_bar::ReadingBar;
use rgpu_import::{
    DEFAULT_MAX_BYTES, Detail, IMPORTERS, ImportError, ImportedArtifact, Importer, Source,
};
use rgpu_model::agent_files;
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_model::profile::{ArtifactKind, CodeLanguage, Gap, KernelInfo, RunInfo, SCHEMA};
use rgpu_model::{Comparison, Profile, Sidecars};
use rgpu_report::{ReportInput, one_line, timestamp};
use rgpu_run::foreign_file;
use rgpu_run::store::{RunFolder, RunState, StoreError};

/// A profile and its sidecar documents.
#[derive(Debug)]
pub(in crate::cli) struct OpenedProfile {
    pub(in crate::cli) profile: Profile,
    pub(in crate::cli) sidecars: Sidecars,
    /// The comparison with another run, if the source is one.
    pub(in crate::cli) comparison: Option<Comparison>,
    /// The run folder; `None` for a file.
    pub(in crate::cli) folder: Option<PathBuf>,
}

impl OpenedProfile {
    /// The subject that reports render.
    pub(in crate::cli) fn subject(&self) -> ReportInput<'_> {
        let comparison = self.comparison.as_ref();
        ReportInput { comparison, ..ReportInput::new(&self.profile, &self.sidecars) }
    }
}

/// Opens a file, a folder with reports of many ranks, or else a run by id, prefix, `latest` or
/// folder.
pub(in crate::cli) fn open(app: &App, what: &str) -> Result<OpenedProfile> {
    open_within(app, what, DEFAULT_MAX_BYTES, Detail::Full)
}

/// Like [`open`], with a limit on the file's size, packed and unpacked, and with a level of detail.
pub(in crate::cli) fn open_within(
    app: &App,
    what: &str,
    max_bytes: u64,
    detail: Detail,
) -> Result<OpenedProfile> {
    let path = Path::new(what);
    if path.is_file() {
        app.config.check_input(&app.cwd, path)?;
        return file(app, path, what, max_bytes, detail);
    }
    if what.contains('/') {
        app.config.check_input(&app.cwd, path)?;
    }
    if let Some(reports) = joined_reports::in_folder(path) {
        return joined_reports::open(app, &reports, what, max_bytes);
    }
    let found = app.runs().find_result(what);
    let folder = found.map_err(|e| match e {
        StoreError::Unknown(_) => missing::run_or_file(what),
        other => other.into(),
    })?;
    note_latest(app, what, &folder);
    open_run(&folder)
}

/// Says which run `latest` or `latest~1` is.
pub(in crate::cli) fn note_latest(app: &App, what: &str, folder: &RunFolder) {
    if !what.starts_with("latest") || app.global.json {
        return;
    }
    let Ok(record) = folder.record() else { return };
    app.print_note(&format!(
        "`{what}` is {}: {}, started {}",
        record.id,
        one_line(&record.title),
        timestamp(&record.started)
    ));
    if what != "latest" {
        return;
    }
    // The newest run may have ended without a result, and then an older one is shown.
    let newest = app.runs().find(what).and_then(|folder| folder.record());
    let newest = newest.ok().filter(|newest| newest.id != record.id);
    if let Some(newest) = newest
        && matches!(newest.state, RunState::Failed | RunState::Cancelled)
    {
        let ended = if newest.state == RunState::Failed { "failed" } else { "was cancelled" };
        app.print_note(&format!(
            "a newer run {ended} and has no report: {}: {}; `rgpu runs show {}` tells why",
            newest.id,
            one_line(&newest.title),
            newest.id
        ));
    }
}

/// A saved comparison, with the profile of its second side.
pub(in crate::cli) fn open_comparison(
    app: &App,
    what: &str,
    comparison: Comparison,
) -> Result<OpenedProfile> {
    let folder = app.runs().find_result(what)?;
    // The document names the file, and may come with the project.
    let side = comparison.b.profile.as_ref().filter(|path| folder.has(path));
    let folder = folder.path().to_owned();
    let side = side.map(|path| folder.join(path));
    let opened = match side.as_deref().and_then(Path::parent) {
        Some(side) => open_run(&RunFolder::open(side)?)?,
        None => {
            let name = comparison.b.kernel.clone();
            let kernel = KernelInfo { name, ..KernelInfo::default() };
            let profile = Profile { kernel, ..Profile::default() };
            OpenedProfile { profile, sidecars: Sidecars::default(), comparison: None, folder: None }
        }
    };
    Ok(OpenedProfile { comparison: Some(comparison), folder: Some(folder), ..opened })
}

/// The saved documents of a run.
pub(in crate::cli) fn open_run(folder: &RunFolder) -> Result<OpenedProfile> {
    Ok(OpenedProfile {
        profile: saved_profile(folder)?,
        sidecars: Sidecars {
            hotspots: document(folder, "hotspots.json")?,
            trace: document(folder, "trace.json")?,
            ranks: None,
        },
        comparison: None,
        folder: Some(folder.path().to_owned()),
    })
}

/// A document that not every run has.
fn document<T: DeserializeOwned>(folder: &RunFolder, name: &str) -> Result<Option<T>> {
    let path = folder.path().join(name);
    if !folder.has(name) {
        return Ok(None);
    }
    rgpu_run::saved_json::from_slice(&folder.read(name)?).map(Some).map_err(|e| {
        Failure::new(Exit::Artifact, "bad_document", format!("the run's `{name}` cannot be read"))
            .file(path.display())
            .cause(e)
    })
}

/// The saved profile of a run.
pub(in crate::cli) fn saved_profile(folder: &RunFolder) -> Result<Profile> {
    let path = folder.path().join("profile.json");
    if !folder.has("profile.json") {
        return Err(no_profile(folder).file(path.display()));
    }
    rgpu_run::saved_json::from_slice(&folder.read("profile.json")?).map_err(|e| {
        Failure::new(Exit::Artifact, "bad_profile", "the run's profile cannot be read")
            .file(path.display())
            .cause(e)
    })
}

/// The failure for a run without a profile, with the reason.
fn no_profile(folder: &RunFolder) -> Failure {
    if folder.has("suite.json") {
        let what = "this run is a suite: its cases have profiles, and it has none";
        return Failure::new(Exit::Artifact, "no_profile", what).hint(format!(
            "`rgpu bench show {}` shows it, with its cases",
            shell_word(folder.path().display())
        ));
    }
    let title = folder.record().map(|record| record.title).unwrap_or_default();
    let message = if title.starts_with("build ") {
        "this run is a build, and has no profile"
    } else {
        "this run has no profile"
    };
    let failure = Failure::new(Exit::Artifact, "no_profile", message)
        .hint(format!("`rgpu runs show {}` shows its state", shell_word(folder.path().display())));
    match folder.failure().map(|document| document.error) {
        Some(Failure { what: message, cause: Some(cause), .. }) => {
            failure.cause(format!("{message}: {cause}"))
        }
        Some(Failure { what: message, .. }) => failure.cause(message),
        None => failure,
    }
}

/// The profile of a single file.
fn file(
    app: &App,
    path: &Path,
    shown: &str,
    max_bytes: u64,
    detail: Detail,
) -> Result<OpenedProfile> {
    let name = file_name(path);
    let bar = ReadingBar::new(app, &name);
    let source = Source { max_bytes, detail, ..Source::new(path, shown).alone().watched(&bar) };
    let (importer, imported) = import_file(&source)?;
    drop(bar);
    Ok(from_imported(app, imported, &importer.kind, (&name, shown), path, detail))
}

pub(in crate::cli) fn file_name(path: &Path) -> String {
    path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
}

/// Recognises and imports one file.
pub(in crate::cli) fn import_file(
    source: &Source<'_>,
) -> Result<(&'static Importer, ImportedArtifact)> {
    let (path, shown) = (source.path, source.from);
    let unreadable = |e: std::io::Error| {
        Failure::new(Exit::Artifact, "unreadable", "the file cannot be read").file(shown).cause(e)
    };
    let mut head = Vec::new();
    agent_files::open_named(path)
        .and_then(|f| f.take(64 << 10).read_to_end(&mut head))
        .map_err(unreadable)?;
    let name = file_name(path);
    if let Some(known) = foreign_file::recognise(&name, &head) {
        return Err(Failure::new(Exit::Artifact, "unknown_file", known.what)
            .file(shown)
            .hint(known.next_step));
    }
    let Some(importer) = IMPORTERS.iter().find(|i| (i.recognises)(&name, &head)) else {
        let cause = match head.get(..head.len().min(40)) {
            Some(first) if !first.is_empty() => {
                format!("it begins with `{}`", first.escape_ascii())
            }
            _ => "it is empty".to_owned(),
        };
        return Err(Failure::new(
            Exit::Artifact,
            "unknown_file",
            "rgpu cannot read this kind of file",
        )
        .file(shown)
        .cause(cause)
        .hint(
            "rgpu reads .ncu-rep, .ncu-repz, .nsys-rep, nsys's .sqlite, .csv of ncu's raw, \
               details and source pages and of nsys stats, a sanitizer's .log or .xml, a torch or JAX trace's .json, \
               packed (.gz, .zst) or not, .cubin",
        ));
    };
    let damaged =
        || Failure::new(Exit::Artifact, "damaged_report", "the file cannot be parsed").file(shown);
    // Importers would report this differently, or not at all.
    if head.is_empty() {
        return Err(damaged().cause("it is empty"));
    }
    let imported = (importer.import)(source).map_err(|e| match &e {
        ImportError::TooLarge { .. } => {
            damaged().cause_from(&e).hint("to read it anyway: `--max-size BYTES`")
        }
        ImportError::Read { cause, .. } => {
            Failure::new(Exit::Artifact, "unreadable", "the file cannot be read")
                .file(shown)
                .cause(cause)
        }
        // `damaged` already says that the file cannot be understood.
        ImportError::Format { cause, .. } => damaged().cause_from(&**cause),
    })?;
    Ok((importer, imported))
}

/// The profile of what was imported from a file, or from several reports of one program. `names`
/// are the name and the path, as shown.
pub(in crate::cli) fn from_imported(
    app: &App,
    mut imported: ImportedArtifact,
    kind: &ArtifactKind,
    names: (&str, &str),
    path: &Path,
    detail: Detail,
) -> OpenedProfile {
    let (name, shown) = (names.0.to_owned(), names.1);
    let mut profile = Profile {
        schema: SCHEMA.to_owned(),
        run: RunInfo {
            id: name.clone(),
            mode: kind.to_string(),
            remote: shown.to_owned(),
            rgpu: env!("CARGO_PKG_VERSION").to_owned(),
            ..RunInfo::default()
        },
        kernel: KernelInfo { name, language: CodeLanguage::Report, ..KernelInfo::default() },
        rung: kind.as_str().into(),
        ..Profile::default()
    };
    for refusal in imported.refusals.drain(..) {
        profile.gaps.push(Gap { code: refusal.code.to_owned(), text: refusal.text });
    }
    let mut sidecars = Sidecars::default();
    imported.add_to(&mut profile, &mut sidecars);
    // A summary shows instructions only of a launch without source lines.
    if let Some(spots) = &mut sidecars.hotspots
        && *kind == ArtifactKind::NcuRep
        && (detail == Detail::Full || spots.launches.iter().any(|spots| spots.lines.is_empty()))
    {
        nvdisasm::add_operands(app, spots, &|_| path.to_owned());
    }
    rgpu_analysis::analyze_all(&mut profile, &sidecars, &app.config.thresholds.value);
    sidecars.cut_to_documents();
    OpenedProfile { profile, sidecars, comparison: None, folder: None }
}
