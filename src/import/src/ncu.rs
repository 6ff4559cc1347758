//! Reports of Nsight Compute (`.ncu-rep`, `.ncu-repz`) to launches.
//!
//! The report decides whether the rung succeeded. A tool that exits with 0 may have written no
//! result, only NaN counters, or nothing for a requested metric. Such a report is refused
//! ([`RejectedReport`](super::RejectedReport)) and the run sends the next plan. Its
//! content is still imported.

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

use rgpu_format::memory::MemoryBudget;
use rgpu_format::ncu_rep::{self, Error, NcuReadLimits, NcuReport, NcuResult, Problem};

use super::{Detail, ImportedArtifact, Importer};
use crate::sound_times::check_launches;
use code::ReportSources;
use hotspots::{HotSpotBuilder, MAX_KEPT_INSTRUCTIONS};
use metrics::AbsentMetrics;
use rgpu_model::hotspots::LaunchSpots;
use rgpu_model::profile::ArtifactKind;
use rgpu_model::profile::Gap;
use rgpu_model::{HotSpots, Launch, Sidecars};

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
        let limits = NcuReadLimits { max_size: source.max_bytes };
        import_in_detail(&bytes, source.from, &source.requested, &limits, source.detail)
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
    requested: &RequestedCounters<'_>,
    limits: &NcuReadLimits,
) -> Result<ImportedArtifact, UnusableReport> {
    import_in_detail(bytes, from, requested, limits, Detail::Full)
}

/// Imports the report in `bytes`, with the errors of [`import`].
fn import_in_detail(
    bytes: &[u8],
    from: &str,
    requested: &RequestedCounters<'_>,
    limits: &NcuReadLimits,
    detail: Detail,
) -> Result<ImportedArtifact, UnusableReport> {
    let (report, mut problems) = NcuReport::read(bytes, limits)?;
    let broken = problems.iter().position(|p| !matches!(p, Problem::Version { .. }));
    if let (None, Some(broken)) = (report.results().next(), broken) {
        return Err(UnusableReport::NoResult(problems.swap_remove(broken)));
    }
    let LaunchesOfReport { mut launches, mut gaps, spots, absent } =
        launches(&report, from, detail);
    let schema = rgpu_model::hotspots::SCHEMA.to_owned();
    let hotspots = (!spots.is_empty()).then_some(HotSpots { schema, launches: spots });
    gaps.extend(absent.gaps());
    gaps.extend(problems.iter().map(|problem| damage(problem, from)));
    gaps.extend(unknown_fields(&report));
    let session = report.session();
    gaps.extend(check_launches(&mut launches, from));
    region::keep_own_regions(&report, &mut launches);
    let regions = region::rows(&report, &launches, from);
    Ok(ImportedArtifact {
        regions,
        refusals: refusal::judge(&launches, &absent, requested, &session.command_line),
        launches,
        gaps,
        tool_version: session.version("Nsight Compute").map(str::to_owned),
        clock_control: clock_control(&session.command_line),
        sidecars: Sidecars { hotspots, ..Sidecars::default() },
        device: session.devices.first().map(|device| device.name.clone()),
        ..ImportedArtifact::default()
    })
}

/// The launches of a report.
struct LaunchesOfReport {
    launches: Vec<Launch>,
    /// Of stalls and hot spots.
    gaps: Vec<Gap>,
    spots: Vec<LaunchSpots>,
    absent: AbsentMetrics,
}

/// The launches and gaps that one thread makes of its part of the results.
struct LaunchPart {
    launches: Vec<Launch>,
    gaps: Vec<Gap>,
    spots: HotSpotPart,
    absent: AbsentMetrics,
}

/// Hot spots of some launches, in order.
#[derive(Default)]
struct HotSpotPart {
    spots: Vec<LaunchSpots>,
    gaps: Vec<Gap>,
    kept: usize,
}

impl HotSpotPart {
    /// Adds those of a launch, if it has any.
    fn add(&mut self, spots: Option<LaunchSpots>, launch: &Launch) {
        if let Some(spots) = spots {
            self.gaps.extend(hotspots::check(&spots, launch));
            self.spots.push(spots);
        }
    }

    /// Adds what the builder left out.
    fn finish(mut self, builder: &HotSpotBuilder<'_>) -> HotSpotPart {
        self.gaps.extend(builder.gap());
        HotSpotPart { kept: builder.kept(), ..self }
    }
}

/// Reads all launches, those of a large report on several threads.
fn launches(report: &NcuReport<'_>, from: &str, detail: Detail) -> LaunchesOfReport {
    let (results, without_room) = results_with_room(report, from);
    let sources = code::sources(report);
    let code = ReportSources::new(&sources);
    let per_thread = results.len().div_ceil(report.threads()).max(1);
    let import = |(results, first)| import_part(results, first, &code, from, detail);
    let mut parts = results.chunks(per_thread).zip((0..).step_by(per_thread));
    let own = parts.next();
    let parts: Vec<LaunchPart> = std::thread::scope(|scope| {
        let import = &import;
        let running: Vec<_> = parts.map(|part| scope.spawn(move || import(part))).collect();
        let own = own.map(import);
        let joined = running.into_iter().map(|thread| thread.join());
        let joined = joined.map(|part| part.unwrap_or_else(|e| std::panic::resume_unwind(e)));
        own.into_iter().chain(joined).collect()
    });
    let kept: usize = parts.iter().map(|part| part.spots.kept).sum();
    let mut all = LaunchesOfReport {
        launches: Vec::with_capacity(results.len()),
        gaps: without_room.into_iter().collect(),
        spots: Vec::new(),
        absent: AbsentMetrics::default(),
    };
    let mut spot_gaps = Vec::new();
    let several = parts.len() > 1;
    for part in parts {
        all.launches.extend(part.launches);
        all.gaps.extend(part.gaps);
        all.absent.append(part.absent);
        all.spots.extend(part.spots.spots);
        spot_gaps.extend(part.spots.gaps);
    }
    // The bound is for the whole report, and earlier launches have priority.
    if several && kept >= MAX_KEPT_INSTRUCTIONS {
        let cut = hot_spots(&results, &all.launches, &code, from, detail);
        (all.spots, spot_gaps) = (cut.spots, cut.gaps);
    }
    all.gaps.extend(spot_gaps);
    all
}

/// Memory of a launch and of a metric, with their text in a document.
const LAUNCH_BYTES: usize = 3 << 10;
const METRIC_BYTES: usize = 230;

/// The results of a report up to the first for which a report of this size has no memory, and a gap
/// for those that are left out.
fn results_with_room<'r>(
    report: &'r NcuReport<'_>,
    from: &str,
) -> (Vec<NcuResult<'r>>, Option<Gap>) {
    let mut budget = MemoryBudget::for_file(report.size());
    let (mut results, mut over, mut left_out) = (Vec::new(), None, 0_u64);
    for result in report.results() {
        if over.is_none() {
            // Texts of rules and sections are kept as they are.
            let metrics = result.metric_count() * METRIC_BYTES;
            over = budget.take(LAUNCH_BYTES + metrics + result.byte_count()).err();
        }
        match over {
            None => results.push(result),
            Some(_) => left_out += 1,
        }
    }
    let gap = over.map(|over| Gap {
        code: "damaged_report".to_owned(),
        text: format!(
            "{from}: result {} does not fit: {over}; the results before are kept, {left_out} are \
             left out",
            results.len() + 1
        ),
    });
    (results, gap)
}

/// Reads the launches of `results`, of which the first has the number `first`.
fn import_part(
    results: &[NcuResult<'_>],
    first: usize,
    code: &ReportSources<'_>,
    from: &str,
    detail: Detail,
) -> LaunchPart {
    let mut known = launch::ReportContext::default();
    let first = u32::try_from(first).unwrap_or(u32::MAX);
    let mut launches = Vec::with_capacity(results.len());
    let mut gaps = Vec::new();
    let mut spotter = HotSpotBuilder::new(code, detail);
    let mut spots = HotSpotPart::default();
    let mut metrics = Vec::new();
    for (result, id) in results.iter().zip(first..) {
        // To find the next metric takes a walk over all instances of this one.
        metrics.clear();
        metrics.extend(result.metrics());
        let mut launch = launch::import(result, &metrics, id, from, &mut known, detail);
        gaps.extend(stalls::import(&mut launch));
        spots.add(spotter.launch(result, &metrics, &launch, from), &launch);
        launches.push(launch);
    }
    LaunchPart { launches, gaps, spots: spots.finish(&spotter), absent: known.absent }
}

/// The hot spots of every launch that has values per instruction, with one bound for all.
fn hot_spots(
    results: &[NcuResult<'_>],
    launches: &[Launch],
    code: &ReportSources<'_>,
    from: &str,
    detail: Detail,
) -> HotSpotPart {
    let mut spotter = HotSpotBuilder::new(code, detail);
    let mut spots = HotSpotPart::default();
    for (result, launch) in results.iter().zip(launches) {
        let metrics: Vec<_> = result.metrics().collect();
        spots.add(spotter.launch(result, &metrics, launch, from), launch);
    }
    spots.finish(&spotter)
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
