//! Reports of Nsight Compute (`.ncu-rep`, `.ncu-repz`) to launches.
//!
//! The report decides whether the rung succeeded. A tool that exits with 0 may have written no
//! result, only NaN counters, or nothing for a requested metric. Such a report is refused
//! ([`Refusal`](super::Refusal)) and the engine sends the next plan. Its content is still imported.

mod code;
mod hotspots;
mod launch;
mod metrics;
mod refusal;
mod region;
mod roofline;
mod section;
mod series;
pub(super) mod stalls;

use rgpu_format::ncu_rep::{self, Error, Limits, NcuReport, Problem};

use super::{Detail, Imported, Importer};
use crate::model::profile::ArtifactKind;
use crate::model::profile::Gap;
use crate::model::{HotSpots, Launch, Sidecars};
use code::ReportSources;
use hotspots::HotSpotBuilder;

/// The counters that ncu was asked for, as far as the report must contain them.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestedCounters<'a> {
    /// Metrics given by name, as in `--metrics`. Groups and expressions are not checked.
    pub metrics: &'a [String],
}

/// `ncu_rep`: a report, compressed or not.
pub(super) const IMPORTER: Importer = Importer {
    kind: ArtifactKind::NcuRep,
    recognises: |name, head| {
        head.starts_with(b"NVR\0") || name.ends_with(".ncu-rep") || name.ends_with(".ncu-repz")
    },
    import: |source| {
        // The name and the first bytes are enough to reject other kinds of files.
        let head = source.head()?;
        let bytes = if ncu_rep::begins(&head) { source.bytes()? } else { head };
        let limits = Limits { max_size: source.max_bytes };
        import_in_detail(&bytes, source.from, &source.asked, &limits, source.detail)
            .map_err(|cause| source.broken(cause))
    },
};

/// Why a report could not be used.
#[derive(Debug, thiserror::Error)]
pub enum UnusableReport {
    /// The report cannot be read at all.
    #[error(transparent)]
    Report(#[from] Error),
    /// The report is damaged before the end of its first result.
    #[error("the report is damaged before the end of its first result")]
    NoResult(#[source] Problem),
}

/// Imports all of the report in `bytes`; `from` is its path in the run folder.
///
/// # Errors
/// [`UnusableReport`]. A report that is damaged after its first result is imported up to there,
/// with a gap. An intact report without results is refused.
pub fn import(
    bytes: &[u8],
    from: &str,
    asked: &RequestedCounters<'_>,
    limits: &Limits,
) -> Result<Imported, UnusableReport> {
    import_in_detail(bytes, from, asked, limits, Detail::Full)
}

/// Imports the report in `bytes`, with the errors of [`import`].
fn import_in_detail(
    bytes: &[u8],
    from: &str,
    asked: &RequestedCounters<'_>,
    limits: &Limits,
    detail: Detail,
) -> Result<Imported, UnusableReport> {
    let (report, mut problems) = NcuReport::read(bytes, limits)?;
    let broken = problems.iter().position(|p| !matches!(p, Problem::Version { .. }));
    if let (None, Some(broken)) = (report.results().next(), broken) {
        return Err(UnusableReport::NoResult(problems.swap_remove(broken)));
    }
    let mut known = launch::Known::default();
    let mut launches = Vec::new();
    for (result, id) in report.results().zip(0..) {
        launches.push(launch::import(&result, id, from, &mut known, detail));
    }
    let mut gaps = Vec::new();
    for launch in &mut launches {
        gaps.extend(stalls::import(launch));
    }
    let (hotspots, hotspot_gaps) = hot_spots(&report, &launches, from, detail);
    gaps.extend(hotspot_gaps);
    gaps.extend(known.absent.gaps());
    gaps.extend(problems.iter().map(|problem| damage(problem, from)));
    gaps.extend(unknown_fields(&report));
    let session = report.session();
    region::keep_own_regions(&report, &mut launches);
    let regions = region::rows(&report, &launches, from);
    Ok(Imported {
        regions,
        refusals: refusal::judge(&launches, &known.absent, asked),
        launches,
        gaps,
        tool_version: session.version("Nsight Compute").map(str::to_owned),
        clock_control: clock_control(&session.command_line),
        sidecars: Sidecars { hotspots, ..Sidecars::default() },
        device: session.devices.first().map(|device| device.name.clone()),
        ..Imported::default()
    })
}

/// The hot spots of every launch that has values per instruction.
fn hot_spots(
    report: &NcuReport<'_>,
    launches: &[Launch],
    from: &str,
    detail: Detail,
) -> (Option<HotSpots>, Vec<Gap>) {
    let sources = code::sources(report);
    let code = ReportSources::new(&sources);
    let mut spotter = HotSpotBuilder::new(&code, detail);
    let (mut spots, mut gaps) = (Vec::new(), Vec::new());
    for (result, launch) in report.results().zip(launches) {
        if let Some(found) = spotter.launch(&result, launch, from) {
            gaps.extend(hotspots::check(&found, launch));
            spots.push(found);
        }
    }
    gaps.extend(spotter.gap());
    let schema = crate::model::hotspots::SCHEMA.to_owned();
    let hotspots = (!spots.is_empty()).then_some(HotSpots { schema, launches: spots });
    (hotspots, gaps)
}

/// In the reports seen, the session's settings are empty; the command line has the option.
fn clock_control(command_line: &str) -> Option<String> {
    let mut words = command_line.split_whitespace();
    let word = words.find(|word| word.starts_with("--clock-control"))?;
    let value = word.split_once('=').map(|(_, value)| value).or_else(|| words.next());
    value.map(str::to_owned)
}

fn damage(problem: &Problem, from: &str) -> Gap {
    let mut text = format!("{from}: {problem}");
    if let Some(source) = std::error::Error::source(problem) {
        text.push_str(&format!(": {source}"));
    }
    Gap { code: "damaged_report".to_owned(), text }
}

fn unknown_fields(report: &NcuReport<'_>) -> Option<Gap> {
    let total = report.unknown_fields().total();
    (total > 0).then(|| Gap {
        code: "unknown_fields".to_owned(),
        text: format!(
            "the report has {total} values of kinds unknown to this version of rgpu; they were \
             skipped"
        ),
    })
}

#[cfg(test)]
mod tests;
