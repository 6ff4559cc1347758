//! Traces of Nsight Systems to launches, copies and regions.
//!
//! GPU work belongs to the region in which it was *launched*. Each GPU row is joined to its API
//! call by process and correlation id; the call's thread and time give the region. A kernel that
//! runs long after its range has closed still counts for that range, as users expect.

mod attribute;
mod calls;
mod events;
mod first;
mod numbers;
mod pieces;
pub(super) mod ranks;
pub(super) mod rows;
mod sound_rows;
mod stacks;
mod sums;
mod trace;
mod without_gpu;

use std::path::Path;

use rgpu_format::nsys_rep::{NsysRepError, NsysReport};
use rgpu_format::nsys_row::Diagnostic;
use rgpu_format::nsys_sqlite::{NsysSqlite, NsysSqliteError};

use super::trace_events::unlisted_events_gap;
use super::{
    ImportError, ImportedArtifact, Importer, RejectedReport, Source, TracedActivity, join,
};
use rgpu_model::profile::ArtifactKind;
use rgpu_model::profile::Gap;
use rows::{ExportRows, ReportRows, TraceRows};

/// `nsys_rep`: a report, parsed directly and compared with the export beside it.
pub(super) const REPORT_IMPORTER: Importer = Importer {
    kind: ArtifactKind::NsysRep,
    // `.qdrep` is the name of the same container before 2021.4.
    recognises: |name, head| {
        NsysReport::is_report(head) || name.ends_with(".nsys-rep") || name.ends_with(".qdrep")
    },
    import: import_report_file,
};

/// `nsys_sqlite`: what `nsys export --type sqlite` makes of a report. If the report is beside it,
/// both are imported as part of the report, because the report is what the rung should deliver.
pub(super) const SQLITE_IMPORTER: Importer = Importer {
    kind: ArtifactKind::NsysSqlite,
    recognises: |name, head| head.starts_with(b"SQLite format 3\0") || name.ends_with(".sqlite"),
    import: |source| {
        source.size()?;
        if !source.alone && source.path.with_extension("nsys-rep").is_file() {
            return Ok(ImportedArtifact::default());
        }
        let imported = import_export(source.path, source);
        imported.map(|i| as_asked(i, source)).map_err(|cause| source.broken(cause))
    },
};

/// `nsys_qdstrm`: the raw capture. It is left where nsys failed to convert it to a report.
pub(super) const CAPTURE_IMPORTER: Importer = Importer {
    kind: ArtifactKind::NsysQdstrm,
    recognises: |name, _| name.ends_with(".qdstrm"),
    import: |source| {
        let mut imported = ImportedArtifact::default();
        if !source.path.with_extension("nsys-rep").is_file() {
            let text = format!(
                "{}: this is a raw capture that nsys did not convert to a report; only nsys's own \
                 importer reads it: run `QdstrmImporter -i {}` of the same nsys version on a host \
                 with a complete installation",
                source.from,
                source.path.file_name().map_or_else(Default::default, |n| n.to_string_lossy()),
            );
            imported.gaps.push(Gap { code: "capture_not_imported".to_owned(), text });
        }
        Ok(imported)
    },
};

/// The report format is not published, so nsys's own export wins if there is one. It is used when
/// the report cannot be read, has unknown content, or differs from it.
fn import_report_file(source: &Source<'_>) -> Result<ImportedArtifact, ImportError> {
    let native = import_report_as(&source.bytes()?, source);
    let path = source.path.with_extension("sqlite");
    let export = if path.is_file() { import_export(&path, source).ok() } else { None };
    let (mut native, mut export) = match (native, export) {
        (Ok(native), None) => return Ok(as_asked(native, source)),
        (Err(cause), None) => return Err(source.broken(cause)),
        (Err(_), Some(export)) => return Ok(as_asked(export, source)),
        (Ok(native), Some(export)) => (native, export),
    };
    // Frames of Python are in the report alone.
    let stacks_of = |imported: &mut ImportedArtifact| {
        imported.sidecars.trace.as_mut().map(|trace| std::mem::take(&mut trace.stacks))
    };
    let (of_native, of_export) = (stacks_of(&mut native), stacks_of(&mut export));
    let same = native.launches == export.launches
        && native.kernels == export.kernels
        && native.copies == export.copies
        && native.regions == export.regions
        && native.sidecars.trace == export.sidecars.trace;
    let understood = !native.gaps.iter().any(|gap| gap.code == rows::UNKNOWN);
    if !same && understood {
        export.gaps.push(Gap {
            code: "native_reading_differs".to_owned(),
            text: format!("{}: differs from nsys's own export; the export is used", source.from),
        });
    }
    // Of ranks, only the export has the host and the sizes of messages.
    let native_has_all = same && native.sidecars.ranks.is_none();
    let mut imported = if native_has_all { native } else { export };
    if let Some(trace) = &mut imported.sidecars.trace {
        trace.stacks = of_native.filter(|_| same).or(of_export).unwrap_or_default();
    }
    Ok(as_asked(imported, source))
}

/// A trace of the host alone is not refused for having no GPU rows.
fn as_asked(mut imported: ImportedArtifact, source: &Source<'_>) -> ImportedArtifact {
    if source.traced == TracedActivity::HostOnly {
        imported.refusals.retain(|refusal| refusal.code != NO_GPU_ROWS);
    }
    imported
}

pub(super) use without_gpu::grouped;

/// The code of the refusal of a trace without GPU rows.
pub const NO_GPU_ROWS: &str = "no_gpu_rows";

/// Most launches listed one by one, since a profile is one JSON document. Later ones are only
/// summed.
pub(super) const MAX_LAUNCHES: usize = 10_000;

/// Imports an export; `from` is its path in the run folder.
pub fn import_sqlite(path: &Path, from: &str) -> Result<ImportedArtifact, NsysSqliteError> {
    import_export(path, &Source::new(path, from))
}

/// Imports the export at `path`, which is the file of `source` or beside it.
fn import_export(path: &Path, source: &Source<'_>) -> Result<ImportedArtifact, NsysSqliteError> {
    let Source { from, is_rank, .. } = *source;
    let file = NsysSqlite::open(path)?;
    let file = match source.readers {
        Some(most) => file.with_readers(most),
        None => file,
    };
    let mut imported = import(&ExportRows::new(&file, source.watch), from, is_rank)?;
    if let Some(joined) = &mut imported.sidecars.ranks {
        let start_ns = if is_rank { file.session_start_ns()? } else { None };
        ranks::add_rank_location(joined, file.host_name()?, start_ns);
    }
    let remarks = remarks(&file.diagnostics()?, &imported);
    imported.gaps.extend(remarks);
    imported.gaps.extend(tables(&file, from));
    imported.device = file.gpus()?.into_iter().find_map(|gpu| gpu.name);
    imported.tool_version = file.export()?.remove("EXPORT_PRODUCT_VERSION");
    Ok(imported)
}

/// Gaps for tables under other names than those that nsys is known to give.
fn tables(file: &NsysSqlite, from: &str) -> Vec<Gap> {
    let renamed = file.renamed_tables().map(|(table, stored)| {
        format!("{from}: the table `{stored}` was read as `{table}`, which it resembles")
    });
    let unread = file.unread_tables().into_iter().map(|(table, stored)| {
        format!(
            "{from}: there is no table `{table}`, but `{stored}`, whose columns rgpu does not \
             know; it was not read"
        )
    });
    let texts = renamed.chain(unread);
    texts.map(|text| Gap { code: rows::UNKNOWN.to_owned(), text }).collect()
}

/// Imports a report; `from` is its path in the run folder.
pub fn import_report(bytes: &[u8], from: &str) -> Result<ImportedArtifact, NsysRepError> {
    import_report_as(bytes, &Source::new(Path::new(from), from))
}

/// Imports the report `bytes`, which is the file of `source`.
fn import_report_as(bytes: &[u8], source: &Source<'_>) -> Result<ImportedArtifact, NsysRepError> {
    let Source { from, is_rank, .. } = *source;
    let mut damage = Vec::new();
    let mut report = match NsysReport::read(bytes) {
        Ok(report) => report,
        Err(cause) => {
            let Some(salvaged) = NsysReport::salvage(bytes) else { return Err(cause) };
            damage.push(cause);
            salvaged
        }
    };
    if let Some(most) = source.readers {
        report = report.with_readers(most);
    }
    let mut outcome = import_whole(&report, from, is_rank);
    if matches!(outcome, Err(NsysRepError::Chunk { .. })) {
        let (whole, broken) = report.whole_chunks();
        damage.extend(broken);
        report = whole;
        outcome = import_whole(&report, from, is_rank);
    }
    let mut imported = outcome?;
    imported.gaps.extend(damage.iter().map(|cause| {
        let names = if report.strings().is_empty() {
            ", without names, which come later in the file"
        } else {
            ""
        };
        let text = format!("{from}: {cause}; the intact chunks of events are kept{names}");
        Gap { code: "damaged_report".to_owned(), text }
    }));
    Ok(imported)
}

/// Imports a report whose chunks are all readable.
fn import_whole(
    report: &NsysReport<'_>,
    from: &str,
    is_rank: bool,
) -> Result<ImportedArtifact, NsysRepError> {
    let rows = ReportRows::new(report)?;
    let mut imported = import(&rows, from, is_rank)?;
    let remarks = remarks(&rows.diagnostics()?, &imported);
    imported.gaps.extend(remarks);
    imported.gaps.extend(rows.gaps(from));
    imported.device = report.gpus().iter().find_map(|gpu| gpu.name.clone());
    imported.tool_version = Some(report.build().to_owned());
    Ok(imported)
}

/// Imports the rows of a trace from any tool. With `is_rank`, a single process is a rank, too.
pub(super) fn import<R: TraceRows>(
    file: &R,
    from: &str,
    is_rank: bool,
) -> Result<ImportedArtifact, R::Error> {
    let mut imported = ImportedArtifact::default();
    let (trace, left_out) = sound_rows::read(file, MAX_LAUNCHES)?;
    let placed = attribute::AttributedWork::new(&trace);
    let (numbers, joined) = ranks::read(&trace, &placed, &file.collectives(), is_rank, from);
    imported.sidecars.ranks = joined;
    let mut events = events::list(&trace, &placed, from, &numbers);
    if let Some(joined) = &imported.sidecars.ranks {
        events.ranks = joined.ranks.iter().map(|rank| rank.location.clone()).collect();
    }
    attribute::add(&trace, placed, from, &numbers, &mut imported);
    imported.gaps.extend(ranks::too_many_processes(&trace, from));
    imported.gaps.extend(left_out.gaps(from));
    imported.gaps.extend(trace.without_room.map(|rows| rows.gap(from)));
    imported.gaps.extend(unlisted_events_gap(&events));
    imported.sidecars.trace = Some(events);
    if !is_rank {
        join::join_processes(&mut imported);
    }
    if trace.work_count == 0 {
        imported.refusals.push(RejectedReport {
            code: NO_GPU_ROWS,
            text: format!(
                "{from}: no work on a GPU was traced; {}",
                without_gpu::describe(file, &trace, &left_out)?
            ),
            ..RejectedReport::default()
        });
    }
    Ok(imported)
}

/// A gap for each warning and error of nsys itself, without its progress notes. nsys repeats some
/// for each process; equal ones are counted. That a process has no NVTX ranges, or no CUDA although
/// another has, is no gap: most have none.
fn remarks(diagnostics: &[Diagnostic], imported: &ImportedArtifact) -> Vec<Gap> {
    // ENUM_DIAGNOSTIC_SEVERITY_LEVEL: 0 unknown, 1 information, 4 verbose.
    const WARNING: i64 = 2;
    const ERROR: i64 = 3;
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for diagnostic in diagnostics {
        if !matches!(diagnostic.severity, Some(WARNING | ERROR) | None) {
            continue;
        }
        let text = diagnostic.text.trim();
        match counted.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => counted.push((text, 1)),
        }
    }
    let has_gpu_work = !imported.refusals.iter().any(|refusal| refusal.code == NO_GPU_ROWS);
    let is_gap = |text: &str| {
        let of_cuda = ["No CUDA events collected", "CUDA profiling might have not been started"];
        let is_contradicted = has_gpu_work && of_cuda.iter().any(|start| text.starts_with(start));
        !is_contradicted && !text.starts_with("No NVTX events collected")
    };
    counted
        .into_iter()
        .filter(|(text, _)| is_gap(text))
        .map(|(text, count)| {
            let text = processing_error(text).unwrap_or_else(|| text.to_owned());
            let text = if count == 1 { text } else { format!("{text} ({count} times)") };
            Gap { code: "nsys_diagnostic".to_owned(), text }
        })
        .collect()
}

/// Shortens nsys's dump of an exception in its importer to the exception's message.
fn processing_error(text: &str) -> Option<String> {
    text.strip_prefix("Error when processing events")?;
    let message = text.lines().find_map(|line| line.split_once("tag_message*] = "))?.1.trim();
    Some(format!("nsys could not process some events: {message}"))
}

#[cfg(test)]
mod tests;
