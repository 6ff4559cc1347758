//! The data for the page's script: the profile's parts unchanged, but metrics as one table and
//! events as arrays, because keys would make them much larger.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::account::PageAccount;
use crate::ReportInput;
use crate::busy;
use crate::checks;
use crate::finding;
use crate::headline::{self, Headline};
use crate::kernel_name::{KernelLabels, KernelNames};
use crate::missing;
use crate::phrase::model_text;
use crate::region_rows;
use crate::sections::selection;
use crate::text::capital;
use rgpu_model::bound::BoundShare;
use rgpu_model::finding::KernelVerdict;
use rgpu_model::hotspots::LaunchSpots;
use rgpu_model::launch::{MetricSeries, Roof, RuleMessage, StallReason};
use rgpu_model::memory::MemoryUse;
use rgpu_model::metric::{MAIN_METRICS, MainMetric};
use rgpu_model::number_form::by_number;
use rgpu_model::profile::{
    CaseResult, Correctness, Gap, GeometricMean, KernelInfo, RunInfo, Timing,
};
use rgpu_model::ranks::Ranks;
use rgpu_model::sanitizer::SanitizerResult;
use rgpu_model::stall_meaning::stall_meaning;
use rgpu_model::timeline::{CopySum, KernelSum, Timeline};
use rgpu_model::trace::{Trace, TraceWorkKind};
use rgpu_model::{
    Classification, Comparison, Finding, KernelCode, Launch, Operator, Profile, Region,
    SpeedOfLight, Stage, Value,
};

/// The maximum number of entries of each list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListLimits {
    /// Launches, with metrics or without.
    pub(super) launches: usize,
    /// Launches with all their metrics.
    pub(super) detailed: usize,
    /// Launches with hot spots.
    pub(super) spots: usize,
    /// Instructions and lines per launch with hot spots.
    pub(super) instructions: usize,
    /// Events of each kind.
    pub(super) events: usize,
    /// Sums: kernels, regions, operators.
    pub(super) sums: usize,
}

/// The data of the page.
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
pub(super) struct Page<'a> {
    headline: Headline,
    /// Full and short names of kernels.
    names: Vec<(&'a str, String)>,
    run: &'a RunInfo,
    kernel: &'a KernelInfo,
    /// The model of the program, as a phrase.
    model: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stages: &'a [Stage],
    memory: &'a [MemoryUse],
    #[serialize_always]
    device: Option<&'a str>,
    rung: &'a str,
    ladder: &'a [rgpu_protocol::RungRecord],
    /// The gaps: what was not measured, and why.
    gaps: Vec<String>,
    #[serialize_always]
    timing: Option<&'a Timing>,
    cases: &'a [CaseResult],
    #[serialize_always]
    correctness: Option<&'a Correctness>,
    speed_of_light: &'a [SpeedOfLight],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    bound: &'a [BoundShare],
    geometric_mean: Option<&'a GeometricMean>,
    launches: Vec<PageLaunch<'a>>,
    /// The metrics that have a tile each.
    main_metrics: [MainMetric; 4],
    /// What the stall reasons on the page say of a warp.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    stall_meanings: BTreeMap<&'a str, String>,
    pub(super) metrics: MetricTable<'a>,
    kernels: &'a [KernelSum],
    copies: &'a [CopySum],
    /// As a tree, most GPU time first, without those of libraries.
    regions: Vec<&'a Region>,
    library_regions: Option<FoldedRegions>,
    operators: &'a [Operator],
    sanitizer: &'a [SanitizerResult],
    /// What the sanitizer checked, as a sentence.
    checks_covered: Option<String>,
    /// The checks of the sanitizer that did not run, as a sentence.
    checks_not_run: Option<String>,
    code: &'a [KernelCode],
    findings: &'a [Finding],
    /// Of each finding, the texts that all reports share.
    finding_texts: Vec<FindingTexts<'a>>,
    kernel_verdicts: &'a [KernelVerdict],
    /// What the profiled kernels cover and how long that took, as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    profiled: Vec<String>,
    warnings: Vec<&'a Gap>,
    pub(super) hotspots: Vec<LaunchSpots>,
    /// Launches whose hot spots are not in the page.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hotspots_left_out: Vec<u32>,
    /// The launch that the page shows first: the headline's, or else the longest with metrics.
    first_launch: Option<u32>,
    #[serialize_always]
    pub(super) trace: Option<PageTrace<'a>>,
    busy: Option<BusyTile>,
    /// The GPUs over which sums run, if there are several: `4 GPUs`.
    summed_over: Option<String>,
    /// The picture of a step.
    account: Option<PageAccount>,
    #[serialize_always]
    timeline: Option<&'a Timeline>,
    ranks: Option<&'a Ranks>,
    #[serialize_always]
    comparison: Option<&'a Comparison>,
    left_out: Vec<String>,
}

/// Regions that libraries open around their own work, as one row.
#[derive(Serialize)]
struct FoldedRegions {
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_ns: Option<u64>,
}

/// How busy the GPUs were, as texts.
#[derive(Serialize)]
struct BusyTile {
    percent: String,
    note: String,
    /// The lowest share of a GPU, 0 to 1.
    share: f64,
}

impl BusyTile {
    fn from_profile(profile: &Profile) -> Option<Self> {
        let busy = busy::busy(profile)?;
        Some(Self { percent: busy.percent(), note: busy.note(), share: busy.least_share() })
    }
}

/// Texts of a finding: title, advice, possible saving, the places of idle time, and those in the
/// user's own code.
#[derive(Serialize)]
struct FindingTexts<'a> {
    title: String,
    hint: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gain: Option<String>,
    places: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// Whether it is about next to nothing of a step.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    little: bool,
}

impl<'a> FindingTexts<'a> {
    fn new(profile: &'a Profile, at: usize, labels: &KernelLabels<'_>) -> Self {
        let findings = &profile.findings;
        let of = &findings[at];
        let places = of.places.iter().map(|place| finding::idle_location_text(place, labels));
        Self {
            title: capital(&of.text),
            hint: finding::hint(findings, at),
            gain: finding::gain(of, profile),
            places: places.collect(),
            code: finding::code(of),
            little: profile.is_little(of),
        }
    }
}

/// A launch without its metrics.
#[serde_with::skip_serializing_none]
#[derive(Serialize)]
struct PageLaunch<'a> {
    id: u32,
    kernel: &'a str,
    #[serde(skip_serializing_if = "rgpu_model::launch::unmeasured")]
    grid: [u32; 3],
    #[serde(skip_serializing_if = "rgpu_model::launch::unmeasured")]
    block: [u32; 3],
    duration_ns: Option<f64>,
    registers: Option<u32>,
    region: &'a [String],
    stalls: &'a [StallReason],
    #[serialize_always]
    classification: Option<&'a Classification>,
    rules: &'a [RuleMessage],
    roofline: &'a [Roof],
    /// The label of the compute ceiling that the launch is held against.
    compute_roof: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    series: &'a [MetricSeries],
    /// Whether the launch has metrics, not only a duration.
    detailed: bool,
}

/// Metrics by launch id: one row of values per launch, in the order of `ids`.
#[derive(Serialize)]
pub(super) struct MetricTable<'a> {
    ids: Vec<&'a str>,
    units: Vec<&'a str>,
    rows: BTreeMap<u32, Vec<Option<&'a Value>>>,
}

/// Kind, name, start, duration, GPU, stream, bytes, launch, rank.
type WorkRow = (TraceWorkKind, u32, u64, u64, u32, u64, Option<u64>, Option<u32>, Option<u32>);

/// Events as arrays, in the field order that the script expects.
#[derive(Serialize)]
pub(super) struct PageTrace<'a> {
    span_ns: u64,
    names: &'a [String],
    work: Vec<WorkRow>,
    /// Name, start, duration, thread, depth, rank.
    ranges: Vec<(u32, u64, Option<u64>, u64, u32, Option<u32>)>,
    /// Name, start, duration, thread, whether it waits, rank.
    calls: Vec<(u32, u64, u64, u64, bool, Option<u32>)>,
    /// The allocator over time: time, GPU, bytes in tensors, bytes held.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    memory: Vec<(u64, u32, u64, u64)>,
    /// Events left out here or when the trace was imported.
    cut: u64,
}

impl<'a> Page<'a> {
    /// The data of `subject` within `caps`.
    pub(super) fn new(subject: &ReportInput<'a>, caps: ListLimits) -> Self {
        let profile = subject.profile;
        let mut left_out = Vec::new();
        let labels = KernelNames::Short.labels(profile);
        let headline = headline::headline(subject, &labels);
        let launches = cut(&profile.launches, caps.launches, "launches", &mut left_out);
        let first = first_launch(launches, headline.launch);
        let order = by_importance(launches, first);
        let metrics = MetricTable::new(&order, caps.detailed, &mut left_out);
        let (hotspots, hotspots_left_out) = spots(subject, &order, caps, &mut left_out);
        let trace = subject.trace.map(|t| PageTrace::new(t, caps.events));
        Self {
            headline,
            first_launch: first.map(|launch| launch.id),
            names: names(subject, caps, &labels),
            run: &profile.run,
            kernel: &profile.kernel,
            model: profile.kernel.model.as_ref().map(model_text),
            stages: &profile.stages,
            memory: &profile.memory,
            device: profile.device.as_deref(),
            rung: &profile.rung,
            ladder: &profile.ladder,
            gaps: missing::texts(profile.missing(), &KernelNames::Full.labels(profile))
                .into_iter()
                .map(|missing| missing.text)
                .collect(),
            timing: profile.timing.as_ref(),
            cases: &profile.cases,
            correctness: profile.correctness.as_ref(),
            speed_of_light: &profile.speed_of_light,
            bound: &profile.bound,
            geometric_mean: profile.geometric_mean.as_ref(),
            main_metrics: MAIN_METRICS,
            launches: launches
                .iter()
                .map(|launch| PageLaunch::new(launch, metrics.rows.contains_key(&launch.id)))
                .collect(),
            stall_meanings: stall_meanings(launches),
            metrics,
            kernels: cut(&profile.kernels, caps.sums, "kernels", &mut left_out),
            copies: &profile.copies,
            regions: cut(&own_regions(profile), caps.sums, "regions", &mut left_out).to_vec(),
            library_regions: region_rows::library_row(profile)
                .map(|row| FoldedRegions { label: row.label, gpu_ns: row.gpu_ns }),
            operators: cut(&profile.operators, caps.sums, "operators", &mut left_out),
            sanitizer: &profile.sanitizer,
            checks_covered: checks::covered(profile, &labels),
            checks_not_run: checks::not_run(profile),
            code: cut(&profile.code, caps.sums, "compiled kernels", &mut left_out),
            findings: &profile.findings,
            finding_texts: (0..profile.findings.len())
                .map(|at| FindingTexts::new(profile, at, &labels))
                .collect(),
            kernel_verdicts: &profile.kernel_verdicts,
            profiled: selection::sentences(profile),
            warnings: profile.stopped_pass().into_iter().chain(&profile.warnings).collect(),
            hotspots,
            hotspots_left_out,
            busy: BusyTile::from_profile(profile),
            summed_over: busy::several_gpus(profile),
            account: PageAccount::new(profile, &labels),
            timeline: profile.timeline.as_ref(),
            ranks: profile.ranks.as_ref(),
            comparison: subject.comparison,
            trace,
            left_out,
        }
    }
}

/// The stall reasons of launches, and what each says of a warp.
fn stall_meanings(launches: &[Launch]) -> BTreeMap<&str, String> {
    let reasons = launches.iter().flat_map(|launch| &launch.stalls).map(|s| s.reason.as_str());
    reasons.filter_map(|reason| Some((reason, stall_meaning(reason)?))).collect()
}

/// The regions that are no library's, as a tree.
fn own_regions(profile: &Profile) -> Vec<&Region> {
    let mut regions = region_rows::by_time(&profile.regions);
    regions.retain(|region| !region_rows::is_of_library(region));
    regions
}

/// The short name of each kernel that the page names, and the words of each metric that is missing.
fn names<'a>(
    subject: &ReportInput<'a>,
    caps: ListLimits,
    labels: &KernelLabels<'_>,
) -> Vec<(&'a str, String)> {
    let profile = subject.profile;
    let launches = profile.launches.iter().take(caps.launches).map(|l| &l.kernel);
    let kernels = profile.kernels.iter().take(caps.sums).map(|k| &k.kernel);
    let regions = own_regions(profile).into_iter().take(caps.sums);
    let regions = regions.flat_map(|r| &r.kernels).map(|k| &k.kernel);
    let covered = profile.findings.iter().flat_map(|f| &f.covers).map(|covered| &covered.kernel);
    let verdicts = profile.kernel_verdicts.iter().map(|verdict| &verdict.kernel);
    let shown = kernels.chain(launches).chain(regions).chain(covered).chain(verdicts);
    let shown: BTreeSet<&str> = shown.map(String::as_str).collect();
    let missing = missing::short_forms(profile.missing(), labels);
    let missing = missing.into_iter().filter(|(name, _)| !shown.contains(name));
    let missing: BTreeMap<&str, String> = missing.collect();
    shown.iter().map(|name| (*name, labels.name(name))).chain(missing).collect()
}

/// The first `max` entries of a list; a cut is noted in `left_out`.
fn cut<'t, T>(list: &'t [T], max: usize, what: &str, left_out: &mut Vec<String>) -> &'t [T] {
    if list.len() > max {
        let left = list.len() - max;
        let are = by_number(left, "is", "are");
        left_out.push(format!("{left} of {} {what} {are} in the JSON only", list.len()));
    }
    &list[..list.len().min(max)]
}

/// The launch with the id `told` if it has metrics, or else the longest that has.
fn first_launch(launches: &[Launch], told: Option<u32>) -> Option<&Launch> {
    let detailed = || launches.iter().filter(|launch| !launch.metrics.is_empty());
    let ns = |launch: &Launch| launch.duration_ns.unwrap_or(0.0);
    let longest = || detailed().rev().max_by(|a, b| ns(a).total_cmp(&ns(b)));
    detailed().find(|launch| Some(launch.id) == told).or_else(longest)
}

/// The launches in the order in which the page keeps their details: `first`, one of each other
/// kernel, and then the rest.
fn by_importance<'a>(launches: &'a [Launch], first: Option<&'a Launch>) -> Vec<&'a Launch> {
    let mut kernels: BTreeSet<&str> =
        first.map(|launch| launch.kernel.as_str()).into_iter().collect();
    let mut order: Vec<&Launch> = launches.iter().collect();
    order.sort_by_cached_key(|launch| {
        let is_first = first.is_some_and(|first| first.id == launch.id);
        (!is_first, !kernels.insert(&launch.kernel))
    });
    order
}

/// Hot spots of the first launches of `order`, with the heaviest instructions and lines of each,
/// and the launches whose hot spots are left out.
fn spots(
    subject: &ReportInput<'_>,
    order: &[&Launch],
    caps: ListLimits,
    left_out: &mut Vec<String>,
) -> (Vec<LaunchSpots>, Vec<u32>) {
    let Some(all) = subject.hotspots else { return Default::default() };
    let ranks: BTreeMap<u32, usize> = order.iter().map(|l| l.id).zip(0..).collect();
    let mut all: Vec<&LaunchSpots> = all.launches.iter().collect();
    all.sort_by_key(|spots| ranks.get(&spots.launch).copied().unwrap_or(usize::MAX));
    let gone = all.iter().skip(caps.spots).map(|spots| spots.launch).collect();
    let shown = cut(&all, caps.spots, "launches' hot spots", left_out);
    let mut shown: Vec<LaunchSpots> = shown.iter().map(|spots| (*spots).clone()).collect();
    for spots in &mut shown {
        // The page shows only the named counts; hotspots.json has all metrics by address.
        spots.instructions.iter_mut().for_each(|i| i.counts.metrics.clear());
        spots.lines.iter_mut().for_each(|l| l.counts.metrics.clear());
        if spots.instructions.len() > caps.instructions {
            spots.instructions.sort_by_key(|i| std::cmp::Reverse(i.counts.samples));
            spots.instructions.truncate(caps.instructions);
            left_out
                .push(format!("{}: cold instructions are in hotspots.json alone", spots.kernel));
        }
        spots.lines.truncate(caps.instructions);
    }
    (shown, gone)
}

impl<'a> PageLaunch<'a> {
    fn new(launch: &'a Launch, with_series: bool) -> Self {
        Self {
            id: launch.id,
            kernel: &launch.kernel,
            grid: launch.grid,
            block: launch.block,
            duration_ns: launch.duration_ns,
            registers: launch.registers,
            region: &launch.region,
            stalls: &launch.stalls,
            classification: launch.classification.as_ref(),
            rules: &launch.rules,
            roofline: &launch.roofline,
            compute_roof: launch.compute_roof().map(|(roof, _)| roof.label.as_str()),
            series: if with_series { &launch.series } else { &[] },
            detailed: !launch.metrics.is_empty(),
        }
    }
}

impl<'a> MetricTable<'a> {
    /// The metrics of the first `max` launches of `order` that have any.
    fn new(order: &[&'a Launch], max: usize, left_out: &mut Vec<String>) -> Self {
        let with: Vec<&Launch> = order.iter().copied().filter(|l| !l.metrics.is_empty()).collect();
        if with.len() > max {
            left_out.push(format!(
                "the metrics of {} of {} launches are in the JSON and CSV alone",
                with.len() - max,
                with.len()
            ));
        }
        let with = &with[..with.len().min(max)];
        let mut columns: BTreeMap<&str, &str> = BTreeMap::new();
        for (id, metric) in with.iter().flat_map(|l| &l.metrics) {
            columns.insert(id, &metric.unit);
        }
        let row = |l: &&'a Launch| {
            let values = columns.keys().map(|id| l.metrics.get(*id).map(|m| &m.value)).collect();
            (l.id, values)
        };
        let rows = with.iter().map(row).collect();
        let (ids, units) = columns.into_iter().unzip();
        Self { ids, units, rows }
    }
}

impl<'a> PageTrace<'a> {
    fn new(trace: &'a Trace, max: usize) -> Self {
        let gone = |n: usize| n.saturating_sub(max) as u64;
        let cut = trace.cut.work
            + trace.cut.ranges
            + trace.cut.calls
            + gone(trace.work.len())
            + gone(trace.ranges.len())
            + gone(trace.calls.len());
        Self {
            span_ns: trace.span_ns,
            names: &trace.names,
            work: trace
                .work
                .iter()
                .take(max)
                .map(|w| {
                    (
                        w.kind,
                        w.name,
                        w.start_ns,
                        w.duration_ns,
                        w.device,
                        w.stream,
                        w.bytes,
                        w.launch,
                        w.rank,
                    )
                })
                .collect(),
            ranges: trace
                .ranges
                .iter()
                .take(max)
                .map(|r| (r.name, r.start_ns, r.duration_ns, r.thread, r.depth, r.rank))
                .collect(),
            calls: trace
                .calls
                .iter()
                .take(max)
                .map(|c| (c.name, c.start_ns, c.duration_ns, c.thread, c.waits, c.rank))
                .collect(),
            memory: trace
                .memory
                .iter()
                .map(|m| (m.at_ns, m.device, m.allocated_bytes, m.reserved_bytes))
                .collect(),
            cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A launch with a metric.
    fn launch(id: u32, kernel: &str, ns: f64) -> Launch {
        serde_json::from_value(json!({
            "id": id, "kernel": kernel, "duration_ns": ns, "metrics": { "m": { "value": 1.0 } },
        }))
        .unwrap()
    }

    #[test]
    fn details_of_the_first_launch_and_of_each_kernel_are_kept_before_others() {
        let launches = [
            launch(0, "a", 1.0),
            launch(1, "a", 2.0),
            launch(2, "b", 1.0),
            launch(3, "c", 9.0),
            launch(4, "c", 9.0),
        ];
        let first = |told| first_launch(&launches, told).map(|launch| launch.id);
        assert_eq!([first(None), first(Some(1)), first(Some(7))], [Some(3), Some(1), Some(3)]);
        let order = by_importance(&launches, first_launch(&launches, None));
        assert_eq!(order.iter().map(|launch| launch.id).collect::<Vec<_>>(), [3, 0, 2, 1, 4]);
    }
}
