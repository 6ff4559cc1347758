//! Values per instruction and per source line of a launch.
//!
//! A metric's instances that correlate to addresses are the values of single instructions: warp
//! samples by stall reason, execution counts, memory traffic. The code inside the report maps an
//! address to a function and a line.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rgpu_format::ncu_rep::{Instance, Metric, NcuResult};

use super::code::ReportSources;
use super::stalls::reason_name;
use crate::Detail;
use rgpu_model::Launch;
use rgpu_model::hotspots::{Counts, InstructionSpot, LaunchSpots, LineSpot, SourceAt};
use rgpu_model::profile::Gap;

const SAMPLES: &str = "smsp__pcsamp_sample_count";
const REASON: &str = "smsp__pcsamp_warps_issue_stalled_";
const NOT_ISSUED: &str = "_not_issued";

/// Most instructions imported from one report. Earlier launches have priority.
pub(super) const MAX_KEPT_INSTRUCTIONS: usize = 1 << 18;

/// Turns the instances of results into hot spots, with one bound for the whole report.
pub(super) struct HotSpotBuilder<'c> {
    code: &'c ReportSources<'c>,
    detail: Detail,
    left: usize,
    without: u32,
}

impl<'c> HotSpotBuilder<'c> {
    pub(super) fn new(code: &'c ReportSources<'c>, detail: Detail) -> HotSpotBuilder<'c> {
        HotSpotBuilder { code, detail, left: MAX_KEPT_INSTRUCTIONS, without: 0 }
    }

    /// The hot spots of one launch with all its metrics. `None` if the report has no values per
    /// instruction.
    pub(super) fn launch(
        &mut self,
        result: &NcuResult<'_>,
        metrics: &[Metric<'_>],
        launch: &Launch,
        from: &str,
    ) -> Option<LaunchSpots> {
        let references = result.source_references();
        // Addresses, each with its place in `found`. All metrics have them in the same order, so
        // the next one is mostly the one after the last.
        let mut order: Vec<(u64, Option<usize>)> = Vec::new();
        let mut at: HashMap<u64, usize> = HashMap::new();
        let mut found: Vec<InstructionSpot> = Vec::new();
        let own = launch.mangled.as_deref().unwrap_or(&launch.kernel);
        // Sorted by name, so that new names of an instruction are always appended.
        let named =
            metrics.iter().filter_map(|metric| Some((ColumnKind::from_metric(metric)?, metric)));
        let named = named.filter(|(kind, _)| self.detail == Detail::Full || kind.is_in_summary());
        let mut named: Vec<(ColumnKind, &Metric<'_>)> = named.collect();
        named.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
        for (kind, metric) in named {
            let mut next = 0;
            for instance in metric.instances() {
                let Some((address, value)) = by_address(&instance) else { continue };
                let mut spot_of = |address: u64| {
                    let place = self.code.locate(references, address)?;
                    self.left = self.left.checked_sub(1)?;
                    let symbol = Some(place.symbol).filter(|symbol| *symbol != own);
                    found.push(InstructionSpot {
                        offset: place.offset,
                        address: Some(address),
                        function: symbol.map(str::to_owned),
                        at: place.at,
                        ptx_line: place.ptx_line,
                        sass: place.sass,
                        ..InstructionSpot::default()
                    });
                    Some(found.len() - 1)
                };
                let number = match order.get(next) {
                    Some((expected, _)) if *expected == address => next,
                    _ => *at.entry(address).or_insert_with(|| {
                        order.push((address, spot_of(address)));
                        order.len() - 1
                    }),
                };
                next = number + 1;
                let place = order.get(number).and_then(|(_, place)| *place);
                if let Some(spot) = place.and_then(|place| found.get_mut(place)) {
                    kind.count(spot, value);
                }
            }
        }
        if found.is_empty() {
            self.without += u32::from(self.left == 0);
            return None;
        }
        found.sort_by_key(|spot| spot.address);
        for counts in found.iter_mut().map(|spot| &mut spot.counts) {
            counts.stalls.shrink();
            counts.stalls_not_issued.shrink();
            counts.metrics.shrink();
        }
        Some(LaunchSpots {
            launch: launch.id,
            kernel: launch.kernel.clone(),
            samples: launch.number(SAMPLES).map(|count| count as u64),
            lines: lines(&found, self.code),
            instructions: found,
            from: from.to_owned(),
        })
    }

    /// Number of instructions so far.
    pub(super) fn kept(&self) -> usize {
        MAX_KEPT_INSTRUCTIONS - self.left
    }

    /// The gap for instructions that were left out because of the bound.
    pub(super) fn gap(&self) -> Option<Gap> {
        (self.left == 0).then(|| Gap {
            code: "hotspots_cut".to_owned(),
            text: format!(
                "the report has values for more than {MAX_KEPT_INSTRUCTIONS} instructions; the \
                 rest, including {} whole launches, has no hot spots",
                self.without
            ),
        })
    }
}

/// The unit that the instances of a metric count.
enum ColumnKind {
    Samples,
    Stall { reason: Arc<str>, issued: bool },
    Executed,
    ThreadExecuted,
    Space,
    Operation,
    Bits,
    Other(Arc<str>),
}

impl ColumnKind {
    /// The kind by a metric's name. Series over time and values per launch are recognised later, by
    /// their correlation. Names that never correlate to addresses are skipped here, because they
    /// have most of the instances.
    fn from_metric(metric: &Metric<'_>) -> Option<ColumnKind> {
        let name = metric.name();
        if metric.is_pm_sampled() || name.starts_with("launch__") || name.starts_with("profiler__")
        {
            return None;
        }
        if let Some(reason) = name.strip_prefix(REASON) {
            let (reason, issued) = match reason.strip_suffix(NOT_ISSUED) {
                Some(reason) => (reason, false),
                None => (reason, true),
            };
            return Some(ColumnKind::Stall { reason: reason_name(reason).into(), issued });
        }
        Some(match name {
            SAMPLES => ColumnKind::Samples,
            "inst_executed" => ColumnKind::Executed,
            "thread_inst_executed_true" => ColumnKind::ThreadExecuted,
            "memory_type" => ColumnKind::Space,
            "memory_access_type" => ColumnKind::Operation,
            "memory_access_size_type" => ColumnKind::Bits,
            _ => ColumnKind::Other(name.into()),
        })
    }

    /// Whether a summary has it.
    fn is_in_summary(&self) -> bool {
        matches!(
            self,
            ColumnKind::Samples | ColumnKind::Executed | ColumnKind::Stall { issued: true, .. }
        )
    }

    /// The name in an instruction's list of metrics.
    fn name(&self) -> &str {
        match self {
            ColumnKind::Stall { reason, .. } => reason,
            ColumnKind::Other(name) => name,
            _ => "",
        }
    }

    fn count(&self, spot: &mut InstructionSpot, value: f64) {
        let (counts, whole) = (&mut spot.counts, value.max(0.0) as u64);
        match self {
            ColumnKind::Samples => add(&mut counts.samples, whole),
            ColumnKind::Stall { reason, issued } => {
                if !issued {
                    add(&mut counts.samples_not_issued, whole);
                }
                if whole > 0 {
                    let reasons =
                        if *issued { &mut counts.stalls } else { &mut counts.stalls_not_issued };
                    *reasons.entry(reason) += whole;
                }
            }
            ColumnKind::Executed => add(&mut counts.executed, whole),
            ColumnKind::ThreadExecuted => add(&mut counts.thread_executed, whole),
            ColumnKind::Space => spot.access.get_or_insert_default().space = space(whole),
            ColumnKind::Operation => {
                spot.access.get_or_insert_default().operation = operation(whole)
            }
            ColumnKind::Bits => {
                spot.access.get_or_insert_default().bits = u32::try_from(whole).unwrap_or(0);
            }
            ColumnKind::Other(name) => {
                *counts.metrics.entry(name) = value;
            }
        }
    }
}

fn add(count: &mut Option<u64>, more: u64) {
    *count = Some(count.unwrap_or(0).saturating_add(more));
}

/// ncu's numbers for memory spaces, as far as its own pages confirm them. ncu gives 0 to
/// instructions that never ran.
fn space(number: u64) -> String {
    match number {
        0 => String::new(),
        4 => "global".to_owned(),
        8 => "local".to_owned(),
        16 => "shared".to_owned(),
        other => format!("memory {other}"),
    }
}

/// ncu's numbers for memory operations, with the same limits.
fn operation(number: u64) -> String {
    match number {
        0 => String::new(),
        2 => "load".to_owned(),
        4 => "store".to_owned(),
        other => format!("operation {other}"),
    }
}

/// The address and value of an instance that belongs to an instruction.
fn by_address(instance: &Instance<'_>) -> Option<(u64, f64)> {
    let address = instance.correlation.integer()?;
    Some((address, instance.value.finite()?))
}

/// Sums by innermost source line, sorted by samples, then by executions.
fn lines(instructions: &[InstructionSpot], code: &ReportSources<'_>) -> Vec<LineSpot> {
    let mut lines: BTreeMap<SourceAt, LineSums> = BTreeMap::new();
    for spot in instructions {
        let Some(innermost) = spot.at.last() else { continue };
        let at = SourceAt { function: None, ..innermost.clone() };
        lines.entry(at).or_default().add(&spot.counts);
    }
    let lines = lines.into_iter().map(|(at, sums)| LineSpot {
        text: code.text(&at),
        at,
        instructions: sums.instructions,
        counts: sums.counts(),
    });
    let mut lines: Vec<_> = lines.collect();
    let weight = |line: &LineSpot| (line.counts.samples, line.counts.executed);
    lines.sort_by_key(|line| std::cmp::Reverse(weight(line)));
    lines
}

/// The sums over one source line.
#[derive(Default)]
struct LineSums {
    instructions: u32,
    /// The total, without the values that are listed by name.
    whole: Counts,
    stalls: BTreeMap<Arc<str>, u64>,
    stalls_not_issued: BTreeMap<Arc<str>, u64>,
    metrics: BTreeMap<Arc<str>, f64>,
}

impl LineSums {
    fn add(&mut self, spot: &Counts) {
        self.instructions += 1;
        let whole = &mut self.whole;
        for (sum, more) in [
            (&mut whole.samples, spot.samples),
            (&mut whole.samples_not_issued, spot.samples_not_issued),
            (&mut whole.executed, spot.executed),
            (&mut whole.thread_executed, spot.thread_executed),
        ] {
            if let Some(more) = more {
                add(sum, more);
            }
        }
        for (sums, more) in [
            (&mut self.stalls, &spot.stalls),
            (&mut self.stalls_not_issued, &spot.stalls_not_issued),
        ] {
            for (reason, count) in more.shared() {
                *sums.entry(Arc::clone(reason)).or_default() += count;
            }
        }
        for (name, value) in spot.metrics.shared().filter(|(name, _)| adds_up(name)) {
            *self.metrics.entry(Arc::clone(name)).or_default() += value;
        }
    }

    fn counts(self) -> Counts {
        Counts {
            stalls: self.stalls.into(),
            stalls_not_issued: self.stalls_not_issued.into(),
            metrics: self.metrics.into(),
            ..self.whole
        }
    }
}

/// Whether a metric can be summed over a line. Averages, degrees of conflict and numeric codes
/// cannot.
fn adds_up(metric: &str) -> bool {
    !["_avg_", "_nway", "_type", "_pct"].iter().any(|part| metric.contains(part))
}

/// A gap if a launch's values per instruction do not add up to the launch's totals: either the
/// report left some out, or they were misunderstood.
pub(super) fn check(spots: &LaunchSpots, launch: &Launch) -> Option<Gap> {
    let sum = |count: fn(&Counts) -> Option<u64>| -> Option<u64> {
        let counts = spots.instructions.iter().filter_map(|spot| count(&spot.counts));
        counts.reduce(u64::saturating_add)
    };
    let whole = |metric: &str| launch.number(metric).map(|number| number as u64);
    let pairs = [
        ("samples", sum(|c| c.samples), spots.samples),
        ("executed instructions", sum(|c| c.executed), whole("inst_executed")),
    ];
    let wrong = pairs
        .into_iter()
        .filter(|(_, parts, all)| parts.is_some() && all.is_some() && parts != all);
    let mut differences: Vec<_> = wrong
        .map(|(what, parts, all)| {
            let (parts, all) = (parts.unwrap_or_default(), all.unwrap_or_default());
            format!("its instructions have {parts} {what}, but the launch has {all}")
        })
        .collect();
    let uneven = spots.instructions.iter().filter(|spot| {
        let counts = &spot.counts;
        !counts.stalls.is_empty() && counts.samples != Some(counts.stalls.values().sum())
    });
    let uneven = uneven.count();
    if uneven > 0 {
        differences.push(match uneven {
            1 => "the stall reasons of 1 instruction do not sum to its samples".to_owned(),
            n => format!("the stall reasons of {n} instructions do not sum to their samples"),
        });
    }
    (!differences.is_empty()).then(|| Gap {
        code: "hotspot_sums".to_owned(),
        text: format!("launch {}: {}", launch.id, differences.join("; ")),
    })
}

#[cfg(test)]
mod tests;
