//! Logs and XML of compute-sanitizer to results, by tool and cause.
//!
//! The verdict comes from the log, since only the log has the tool's summary. The XML of the same
//! run is beside it under the same stem (`memcheck.log`, `memcheck.xml`) and adds full paths and
//! names of causes. The stem names the tool.

use std::borrow::Cow;

use rgpu_format::sanitizer::{
    self, AbortKind, Frame, Hazard, InstructionLocation, Log, Record, RecordKind, Tool,
    UnknownReason, Verdict,
};

use super::join::rank_of_name;
use super::{ImportError, ImportedArtifact, Importer, Source};
use rgpu_model::number_form::by_number;
use rgpu_model::profile::ArtifactKind;
use rgpu_model::profile::Gap;
use rgpu_model::sanitizer::{CheckTool, FaultKind, SanitizerVerdict};
use rgpu_model::sanitizer::{SanitizerCause, SanitizerResult};

/// `sanitizer_log`: the output of the tool.
pub(super) const LOG_IMPORTER: Importer = Importer {
    kind: ArtifactKind::SanitizerLog,
    recognises: |_, head| head.starts_with(b"========= COMPUTE-SANITIZER"),
    import: import_log_file,
};

/// `sanitizer_xml`: the file that the tool saves.
pub(super) const XML_IMPORTER: Importer = Importer {
    kind: ArtifactKind::SanitizerXml,
    recognises: |_, head| {
        head.windows(ROOT.len()).take(512).any(|window| window == ROOT.as_bytes())
    },
    import: import_xml_file,
};

const ROOT: &str = "<ComputeSanitizerOutput";

/// What the note of a check without a summary asks for. A run that has tried it says what happened.
pub const SEE_ALONE: &str = "see whether the program ends well alone";

fn import_log_file(source: &Source<'_>) -> Result<ImportedArtifact, ImportError> {
    let log = sanitizer::read_log(&source.bytes()?);
    let xml_path = source.path.with_extension("xml");
    let mut gaps = Vec::new();
    let mut records = None;
    if xml_path.is_file() {
        let xml = Source { path: &xml_path, ..*source };
        match sanitizer::read_xml(&xml.bytes()?) {
            // With the same number of records both are of one run. Otherwise only the log is used.
            Ok(report) if report.records.len() == log.records.len() => {
                records = Some(report.records);
            }
            Ok(report) => gaps.push(Gap {
                code: "sanitizer_xml_differs".to_owned(),
                text: format!(
                    "{}: the log has {} records, but the XML beside it has {}; the paths are from \
                     the log",
                    source.from,
                    log.records.len(),
                    report.records.len()
                ),
            }),
            Err(e) => gaps.push(Gap {
                code: "sanitizer_xml_broken".to_owned(),
                text: format!("the XML beside {}: {e}", source.from),
            }),
        }
    }
    gaps.extend(log.first_left_out.map(|line| Gap {
        code: "damaged_report".to_owned(),
        text: format!(
            "{}: line {line} and those after it are left out, because the log has too many short \
             lines for its size; its summaries are read",
            source.from
        ),
    }));
    let tool = tool_of(source, &log);
    let mut result = import_unnamed(&log, tool, source.from);
    if let Some(exact) = records {
        name_files(&mut result, &log.records, &exact);
    }
    Ok(ImportedArtifact { sanitizer: vec![result], gaps, ..ImportedArtifact::default() })
}

fn import_xml_file(source: &Source<'_>) -> Result<ImportedArtifact, ImportError> {
    if !source.alone && source.path.with_extension("log").is_file() {
        // This file is imported with the log, which gives the verdict.
        return Ok(ImportedArtifact::default());
    }
    let report = sanitizer::read_xml(&source.bytes()?).map_err(|cause| source.broken(cause))?;
    let log = Log { records: report.records, ..Log::default() };
    let mut result = import_unnamed(&log, tool_of(source, &log), source.from);
    if log.records.is_empty() {
        result.note = "the XML alone cannot tell a clean run from one that checked nothing".into();
    }
    let gaps = report.broken.map(|(offset, cause)| Gap {
        code: "damaged_report".to_owned(),
        text: format!("{}: broken at offset {offset}: {cause}", source.from),
    });
    Ok(ImportedArtifact {
        sanitizer: vec![result],
        gaps: gaps.into_iter().collect(),
        ..ImportedArtifact::default()
    })
}

/// The tool, by the file's stem or else by the log's content.
fn tool_of(source: &Source<'_>, log: &Log) -> Option<Tool> {
    let stem = source.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let races = log.summaries.iter().any(|s| matches!(s, sanitizer::Summary::Races { .. }));
    let by_records = log.records.iter().find_map(|record| match record.kind {
        RecordKind::Race | RecordKind::Hazard => Some(Tool::Racecheck),
        RecordKind::Uninitialized | RecordKind::UnusedMemory => Some(Tool::Initcheck),
        RecordKind::Synchronization => Some(Tool::Synccheck),
        _ => None,
    });
    let words = stem.split(['.', '-', '_']);
    words
        .filter_map(|word| word.parse().ok())
        .next()
        .or(races.then_some(Tool::Racecheck))
        .or(by_records)
}

/// The result of a log whose tool may be unknown: a clean log does not name it.
fn import_unnamed(log: &Log, tool: Option<Tool>, from: &str) -> SanitizerResult {
    let mut result = import_log(log, tool.unwrap_or(Tool::Memcheck), from);
    if tool.is_none() && log.records.is_empty() {
        result.tool = CheckTool::Sanitizer;
        if result.verdict == SanitizerVerdict::Clean {
            result.verdict = SanitizerVerdict::Unknown;
            result.note = "no errors, but the log does not name its tool: memcheck, initcheck or \
                           synccheck"
                .to_owned();
        }
    }
    result
}

/// Imports a log as a run of `tool`; `from` is its path in the run folder.
pub fn import_log(log: &Log, tool: Tool, from: &str) -> SanitizerResult {
    let (log, probes) = without_library_probes(log);
    let log = log.as_ref();
    let verdict = sanitizer::verdict(log, tool);
    let mut note = match verdict {
        Verdict::Unknown(UnknownReason::NoSummary) => format!(
            "{tool} ended without its summary, so nothing is known: it crashed, or the program under \
             it; {SEE_ALONE}"
        ),
        Verdict::Unknown(UnknownReason::Aborted(kind)) => abort_words(log, kind),
        Verdict::Clean | Verdict::Found { .. } => String::new(),
    };
    if log.not_printed > 0 {
        let were = by_number(log.not_printed, "error was", "errors were");
        note = format!("{} more {were} counted and not printed", log.not_printed);
    }
    if let Some((library, calls)) = probes {
        let probes = format!(
            "{calls} failing calls by which {library} asks what the GPU has are not counted"
        );
        note = if note.is_empty() { probes } else { format!("{note}; {probes}") };
    }
    SanitizerResult {
        tool: tool.name().into(),
        rank: rank_of_name(from),
        verdict: match verdict {
            Verdict::Clean => SanitizerVerdict::Clean,
            Verdict::Found { .. } => SanitizerVerdict::Found,
            Verdict::Unknown(_) => SanitizerVerdict::Unknown,
        },
        errors: match verdict {
            Verdict::Clean => Some(0),
            Verdict::Found { errors, .. } => Some(errors),
            Verdict::Unknown(_) => None,
        },
        causes: causes(&log.records),
        note,
        from: from.to_owned(),
    }
}

/// The log without the failing calls by which a library of NVIDIA asks what the GPU or the
/// driver has, and their library and number. NCCL, for one, asks for kernels of architectures that
/// it was not built for. The program never sees these errors.
fn without_library_probes(log: &Log) -> (Cow<'_, Log>, Option<(String, u64)>) {
    if !log.records.iter().any(|record| probing_library(record).is_some()) {
        return (Cow::Borrowed(log), None);
    }
    let mut log = log.clone();
    let mut libraries = Vec::new();
    log.records.retain(|record| {
        let library = probing_library(record).map(str::to_owned);
        let keep = library.is_none();
        libraries.extend(library);
        keep
    });
    let calls = libraries.len() as u64;
    let mut left = calls;
    for summary in &mut log.summaries {
        if let sanitizer::Summary::Errors(errors) = summary {
            let taken = left.min(*errors);
            *errors -= taken;
            left -= taken;
        }
    }
    (Cow::Owned(log), libraries.into_iter().next().map(|library| (library, calls)))
}

/// The library of NVIDIA that made a failing call only to ask what there is.
fn probing_library(record: &Record) -> Option<&str> {
    // Errors of other names may be the fault of the program that called the library.
    const ANSWERS: [&str; 5] = [
        "cudaErrorNoKernelImageForDevice",
        "cudaErrorInvalidDeviceFunction",
        "cudaErrorSymbolNotFound",
        "cudaErrorNotSupported",
        "CUDA_ERROR_NOT_FOUND",
    ];
    let error = record.api.as_ref()?.name.as_deref()?;
    let mut modules = record.host_stack.iter().filter_map(|frame| {
        let path = frame.module.as_deref()?;
        path.rsplit('/').next()
    });
    let caller = modules.find(|module| !is_one_of(module, &DRIVER_AND_RUNTIME))?;
    (ANSWERS.contains(&error) && is_one_of(caller, &LIBRARIES)).then_some(caller)
}

fn abort_words(log: &Log, kind: AbortKind) -> String {
    let abort = log.aborts.iter().find(|abort| abort.kind == kind);
    abort.map(|abort| abort.text.clone()).unwrap_or_default()
}

fn causes(records: &[Record]) -> Vec<SanitizerCause> {
    let groups = sanitizer::group(records);
    groups
        .iter()
        .map(|group| {
            let record = &records[group.first];
            let count = group.repeats.iter().map(|index| reports(&records[*index])).sum::<u64>();
            let location = shown_location(record);
            SanitizerCause {
                kind: kind(record),
                text: record.message.lines().next().unwrap_or_default().to_owned(),
                kernel: record.kernel().unwrap_or_default().to_owned(),
                file: location.map(|(file, _)| file.to_owned()),
                line: location.and_then(|(_, line)| line),
                count: reports(record).saturating_add(count),
                block: record.position.map(|p| p.block),
                thread: record.position.map(|p| p.thread),
                details: details(record),
                follow_ups: group.follow_ups.len() as u64,
            }
        })
        .collect()
}

/// The number of hazards that a record of racecheck's analysis combines; 1 for other records.
fn reports(record: &Record) -> u64 {
    let hazards = record.race.iter().filter_map(|side| side.hazards);
    hazards.fold(0, u64::saturating_add).max(1)
}

/// The position of the instruction itself.
fn innermost(record: &Record) -> Option<&InstructionLocation> {
    record.place.as_ref().or_else(|| record.race.first().map(|side| &side.place))
}

/// The position to show the user: the instruction, or, if it lies in a header of the toolkit
/// (`atomicAdd`), the innermost caller's line outside the toolkit.
fn shown_location(record: &Record) -> Option<(&str, Option<u32>)> {
    let own = innermost(record).map(|p| (p.file.as_deref(), p.line));
    let frames = record.device_stack.iter().map(|f| (f.file.as_deref(), f.line));
    let known = own.into_iter().chain(frames).filter_map(|(file, line)| Some((file?, line)));
    let mut known = known.peekable();
    let first = known.peek().copied();
    known.find(|(file, _)| !is_toolkit_header(file)).or(first)
}

/// Whether a file is a header of the CUDA toolkit: by its folder if the tool gives one, else by its
/// name.
fn is_toolkit_header(file: &str) -> bool {
    const NAMES: [&str; 8] = [
        "device_",
        "sm_",
        "cuda_",
        "math_functions",
        "common_functions",
        "cooperative_groups",
        "crt_",
        "texture_",
    ];
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let header = name.ends_with(".h") || name.ends_with(".hpp");
    if folder.is_empty() {
        return header && NAMES.iter().any(|prefix| name.starts_with(prefix));
    }
    header && folder.contains("/include") && (folder.contains("cuda") || folder.contains("nvidia"))
}

fn kind(record: &Record) -> FaultKind {
    match (record.kind, record.problem.as_deref()) {
        (RecordKind::InvalidAccess, Some(p)) if p.contains("out of bounds") => {
            FaultKind::OutOfBounds
        }
        (RecordKind::InvalidAccess, Some(p)) if p.contains("misaligned") => FaultKind::Misaligned,
        (RecordKind::InvalidAccess, _) => FaultKind::InvalidAccess,
        (RecordKind::Api, _) => FaultKind::ApiError,
        (RecordKind::Leak, _) => FaultKind::Leak,
        (RecordKind::Uninitialized, _) => FaultKind::Uninitialized,
        (RecordKind::UnusedMemory, _) => FaultKind::UnusedMemory,
        (RecordKind::HostAccess, _) => FaultKind::HostAccess,
        (RecordKind::Synchronization, _) => FaultKind::Barrier,
        (RecordKind::Race | RecordKind::Hazard, _) => FaultKind::Race,
        (RecordKind::Other, _) => FaultKind::Unnamed,
    }
}

/// The remaining details: the nearest allocation, the other accesses of a race, the position on the
/// host.
fn details(record: &Record) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(address), Some(problem)) = (record.address, &record.problem) {
        lines.push(format!("address 0x{address:x} is {problem}"));
    }
    if let Some(near) = &record.allocation {
        let distance = near.distance_bytes.map(|n| format!("{n} bytes ")).unwrap_or_default();
        let size = near.bytes.map(|n| format!(" of {n} bytes")).unwrap_or_default();
        lines.push(format!("{distance}{} the nearest allocation{size}", near.relation));
    }
    if let Some(hazard) = record.hazard {
        let order = match hazard {
            Hazard::Raw => "read after write",
            Hazard::War => "write after read",
            Hazard::Waw => "write after write",
        };
        lines.push(order.to_owned());
    }
    for side in &record.race {
        let direction = side.direction.map_or("access", |d| match d {
            sanitizer::Direction::Read => "read",
            sanitizer::Direction::Write => "write",
            sanitizer::Direction::Atomic => "atomic",
        });
        let file = side.place.file.as_deref().unwrap_or("unknown file");
        let line = side.place.line.map(|n| format!(":{n}")).unwrap_or_default();
        let hazards = side.hazards.map(|n| format!(", {n} hazards")).unwrap_or_default();
        lines.push(format!("{direction} at {file}{line}{hazards}"));
    }
    let inner = innermost(record).and_then(|p| Some((p.file.as_deref()?, p)));
    if let Some((file, inner)) =
        inner.filter(|(file, p)| shown_location(record) != Some((file, p.line)))
    {
        let function = inner.function.as_deref().unwrap_or("unknown function");
        let line = inner.line.map(|n| format!(":{n}")).unwrap_or_default();
        lines.push(format!("in {function} at {file}{line}"));
    }
    lines.extend(caller(record).map(|function| format!("called from {function}")));
    lines.extend(record.details.iter().cloned());
    lines
}

/// The innermost host function that is the user's: neither the CUDA runtime nor the stub with the
/// kernel's own name, which nvcc makes. If there is no such function, the innermost one.
fn caller(record: &Record) -> Option<&str> {
    let bare = |function: &'_ str| function.split(['(', '<']).next().unwrap_or_default().to_owned();
    let kernel = record.device_stack.last().and_then(|frame| frame.function.as_deref());
    let kernel = kernel.or_else(|| innermost(record)?.function.as_deref()).map(bare);
    let is_users = |frame: &&Frame| {
        frame.function.as_deref().is_some_and(|function| {
            !is_runtime(function, frame.module.as_deref()) && Some(bare(function)) != kernel
        })
    };
    let frames = record.host_stack.iter();
    let named = frames.clone().find(|frame| frame.function.is_some());
    frames.clone().find(is_users).or(named)?.function.as_deref()
}

/// Whether a host function belongs to the CUDA driver, the runtime or NVIDIA's libraries.
fn is_runtime(function: &str, module: Option<&str>) -> bool {
    let library = module.and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    // The names of the API continue with a capital: `cudaMalloc`, `cuLaunchKernel`.
    let api = ["cuda", "cu"].iter().any(|prefix| {
        let rest = function.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    });
    let inner = ["libcudart_static", "__cuda", "__device_stub__"];
    api || inner.iter().any(|prefix| function.starts_with(prefix))
        || is_one_of(library, &DRIVER_AND_RUNTIME)
        || is_one_of(library, &LIBRARIES)
}

/// Starts of the file names of the CUDA driver and runtime.
const DRIVER_AND_RUNTIME: [&str; 2] = ["libcuda.so", "libcudart"];

/// Starts of the file names of NVIDIA's libraries above the runtime.
const LIBRARIES: [&str; 4] = ["libcublas", "libcudnn", "libnccl", "libnvrtc"];

fn is_one_of(library: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| library.starts_with(prefix))
}

/// Fills in full paths from the XML where both describe the same line, since the log strips paths.
fn name_files(result: &mut SanitizerResult, log: &[Record], exact: &[Record]) {
    for cause in &mut result.causes {
        let Some(name) = cause.file.as_deref() else { continue };
        let whole = log.iter().zip(exact).find_map(|(short, whole)| {
            let (file, line) = shown_location(whole)?;
            let same = shown_location(short) == Some((name, cause.line)) && line == cause.line;
            (same && file.ends_with(name)).then(|| file.to_owned())
        });
        if whole.is_some() {
            cause.file = whole;
        }
    }
}

#[cfg(test)]
mod tests;
