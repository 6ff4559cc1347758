//! Opens several reports of one program, one or more ranks in each.

#![expect(clippy::disallowed_methods, reason = "a folder of reports that the user named")]

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::app::App;
use super::open_profile::{OpenedProfile, file_name, from_imported, import_file};
use rgpu_import::join::join_reports;
use rgpu_import::{Detail, ImportedArtifact, Source};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::profile::{ArtifactKind, Gap};

/// The files of a folder that is no run: its reports of nsys and traces of torch. `None` if it has
/// none.
pub(in crate::cli) fn in_folder(folder: &Path) -> Option<Vec<PathBuf>> {
    if folder.join("run.json").is_file() || folder.join("profile.json").is_file() {
        return None;
    }
    let entries = std::fs::read_dir(folder).ok()?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut reports: Vec<PathBuf> = files.filter(|path| is_report(path)).collect();
    reports.sort();
    (!reports.is_empty()).then_some(reports)
}

/// Whether a file is a report by its name. An export beside its report is read with that.
fn is_report(path: &Path) -> bool {
    let name = file_name(path);
    let is_export = name.ends_with(".sqlite");
    path.is_file()
        && (name.ends_with(".nsys-rep")
            || name.ends_with(".qdrep")
            || name.ends_with(".trace.json")
            || (name.contains("rank") && name.ends_with(".json"))
            || (is_export && !path.with_extension("nsys-rep").is_file()))
}

/// Reads and joins reports. A report that cannot be read is left out, and the profile says so.
pub(in crate::cli) fn open(
    app: &App,
    paths: &[PathBuf],
    shown: &str,
    max_bytes: u64,
) -> Result<OpenedProfile> {
    let mut reports = Vec::new();
    let mut left_out = Vec::new();
    let mut kind = ArtifactKind::default();
    for (path, outcome) in paths.iter().zip(read_all(paths, max_bytes)) {
        match outcome {
            Ok((of_file, imported)) => {
                kind = of_file;
                reports.push(imported);
            }
            Err(failure) => left_out.push((path, failure)),
        }
    }
    if reports.is_empty()
        && let Some((_, failure)) = left_out.pop()
    {
        return Err(failure);
    }
    let mut joined = join_reports(reports);
    joined.gaps.extend(left_out.into_iter().map(|(path, failure)| {
        let why = failure.cause.map_or_else(String::new, |cause| format!(": {cause}"));
        let text = format!("{}: left out: {}{why}", path.display(), failure.what);
        Gap { code: "report_left_out".to_owned(), text }
    }));
    let name = paths.first().map(|path| file_name(path)).unwrap_or_default();
    let name = match paths.len() {
        0 | 1 => name,
        many => format!("{many} reports: {name} …"),
    };
    let path = paths.first().map_or(Path::new(""), PathBuf::as_path);
    Ok(from_imported(app, joined, &kind, (&name, shown), path, Detail::Full))
}

/// The kind of a file and its content.
type ReadReport = Result<(ArtifactKind, ImportedArtifact)>;

/// Reads reports, as many at a time as there are cores and as are together no larger than one may
/// be. They share the cores: with fewer reports than cores, each is read by several threads. What
/// is kept of a report grows with its GPU work and ranges.
fn read_all(paths: &[PathBuf], max_bytes: u64) -> Vec<ReadReport> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let bytes = paths.iter().filter_map(|path| Some(path.metadata().ok()?.len()));
    let fit = max_bytes / bytes.max().unwrap_or(0).max(1);
    let at_once = cores.min(paths.len()).min(usize::try_from(fit).unwrap_or(usize::MAX)).max(1);
    let readers = cores / at_once;
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, ReadReport)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(path) = paths.get(at) else { break };
                    let report = read(path, max_bytes, readers);
                    if let Ok(mut done) = done.lock() {
                        done.push((at, report));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, report)| report).collect()
}

fn read(path: &Path, max_bytes: u64, readers: usize) -> ReadReport {
    let shown = path.display().to_string();
    let source = Source {
        max_bytes,
        is_rank: true,
        readers: Some(readers),
        ..Source::new(path, &shown).alone()
    };
    let (importer, imported) = import_file(&source)?;
    match &importer.kind {
        kind @ (ArtifactKind::NsysRep | ArtifactKind::NsysSqlite | ArtifactKind::TorchTrace) => {
            Ok((kind.clone(), imported))
        }
        kind => Err(Failure::new(
            Exit::Usage,
            "cannot_join",
            format!("a file of the kind `{kind}` cannot be joined with others"),
        )
        .file(shown)
        .hint("rgpu joins .nsys-rep, nsys's .sqlite and torch traces; name other files alone")),
    }
}
