//! The source page to launches with hot spots.
//!
//! The page has labels; this module knows those of the counts that a report has for each
//! instruction, and leaves out the averages that ncu computes from them. A launch gets the sums of
//! its instructions, which are the counts of the whole launch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rgpu_format::ncu_csv::{CellValue, SourceLaunch, SourcePage, SourceRow};
use rgpu_format::units::metric_unit;

use super::super::ImportedArtifact;
use super::{damage, empty};
use crate::ncu::stalls;
use rgpu_model::hotspots::{Access, Counts, InstructionSpot, LaunchSpots, SCHEMA};
use rgpu_model::profile::Gap;
use rgpu_model::{HotSpots, Launch, Metric, SharedText, Value};

/// Labels of stall reasons, without `stall_`, and the names of their sampled counters.
const REASONS: &[(&str, &str)] = &[
    ("dispatch", "dispatch_stall"),
    ("imc", "imc_miss"),
    ("lg", "lg_throttle"),
    ("long_sb", "long_scoreboard"),
    ("math", "math_pipe_throttle"),
    ("mio", "mio_throttle"),
    ("no_inst", "no_instructions"),
    ("short_sb", "short_scoreboard"),
    ("sleep", "sleeping"),
    ("tex", "tex_throttle"),
];

/// Labels and metrics of the other counts. In ncu 2025.3 page and report agree on each of them.
const METRICS: &[(&str, &str)] = &[
    ("Thread Instructions Executed", "thread_inst_executed"),
    ("L1 Tag Requests Global", "memory_l1_tag_requests_global"),
    ("L1 Conflicts Shared N-Way", "derived__memory_l1_conflicts_shared_nway"),
    ("L1 Wavefronts Shared", "memory_l1_wavefronts_shared"),
    ("L1 Wavefronts Shared Ideal", "memory_l1_wavefronts_shared_ideal"),
    ("L1 Wavefronts Shared Excessive", "derived__memory_l1_wavefronts_shared_excessive"),
    ("L2 Theoretical Sectors Global", "memory_l2_theoretical_sectors_global"),
    ("L2 Theoretical Sectors Global Ideal", "memory_l2_theoretical_sectors_global_ideal"),
    (
        "L2 Theoretical Sectors Global Excessive",
        "derived__memory_l2_theoretical_sectors_global_excessive",
    ),
];

/// The meaning of a column's cells.
enum Column {
    Samples,
    NotIssued,
    Stall {
        reason: Arc<str>,
        issued: bool,
    },
    Executed,
    ThreadExecuted,
    Space,
    Operation,
    Bits,
    Metric(Arc<str>),
    /// An average, or a label without a known metric.
    Other,
}

impl Column {
    fn from_label(label: &str) -> Column {
        if let Some(reason) = label.strip_prefix("stall_") {
            let (reason, issued) = match reason.strip_suffix(" (Not Issued)") {
                Some(reason) => (reason, false),
                None => (reason, true),
            };
            let known = REASONS.iter().find(|row| row.0 == reason).map_or(reason, |row| row.1);
            return Column::Stall { reason: known.into(), issued };
        }
        match label {
            "# Samples" => Column::Samples,
            "Warp Stall Sampling (Not-issued Samples)"
            | "Warp Stall Sampling (Not-issued Cycles)" => Column::NotIssued,
            "Instructions Executed" => Column::Executed,
            "Predicated-On Thread Instructions Executed" => Column::ThreadExecuted,
            "Address Space" => Column::Space,
            "Access Operation" => Column::Operation,
            "Access Size" => Column::Bits,
            _ => match METRICS.iter().find(|row| row.0 == label) {
                Some((_, metric)) => Column::Metric((*metric).into()),
                None => Column::Other,
            },
        }
    }
}

/// Imports a page; `from` is its path in the run folder.
pub(super) fn import(page: &SourcePage, from: &str) -> ImportedArtifact {
    let mut imported = ImportedArtifact::default();
    let mut spots = Vec::new();
    for (read, id) in page.launches.iter().zip(0..) {
        let columns: Vec<Column> = read.columns.iter().map(|c| Column::from_label(c)).collect();
        let mut launch = Launch { id, kernel: read.kernel.clone(), ..Launch::default() };
        launch.metrics = sums(read, &columns, &SharedText::from(from));
        imported.gaps.extend(stalls::import(&mut launch));
        spots.push(LaunchSpots {
            launch: id,
            kernel: read.kernel.clone(),
            samples: launch.number("smsp__pcsamp_sample_count").map(|count| count as u64),
            instructions: instructions(read, &columns),
            lines: Vec::new(),
            from: from.to_owned(),
        });
        imported.launches.push(launch);
    }
    imported.gaps.extend(unknown_labels(page, from));
    imported.gaps.extend(damage(page.broken.as_ref(), page.ragged, from));
    imported.refusals.extend(empty(&imported.launches, from));
    imported.sidecars.hotspots = Some(HotSpots { schema: SCHEMA.to_owned(), launches: spots });
    imported
}

/// The instructions of a launch, without the padding that was never counted.
fn instructions(launch: &SourceLaunch, columns: &[Column]) -> Vec<InstructionSpot> {
    let first = launch.instructions.first().map_or(0, |row| row.address);
    let last = launch.instructions.last().map_or(0, |row| row.address);
    let spots = launch.instructions.iter().map(|row| InstructionSpot {
        offset: row.address.saturating_sub(first),
        address: Some(row.address),
        sass: Some(with_offset(&row.text, first, last)),
        access: access(row, columns),
        counts: counts(row, columns),
        ..InstructionSpot::default()
    });
    let mut spots: Vec<_> = spots.collect();
    let counted = |spot: &InstructionSpot| {
        spot.sass.as_deref() != Some("NOP")
            || spot.counts.executed.is_some_and(|n| n > 0)
            || spot.counts.samples.is_some_and(|n| n > 0)
    };
    spots.truncate(spots.iter().rposition(counted).map_or(0, |last| last + 1));
    spots
}

/// The text with an offset instead of the address of a branch target.
fn with_offset(text: &str, first: u64, last: u64) -> String {
    let target = text.rsplit_once("0x").and_then(|(before, hex)| {
        let address = u64::from_str_radix(hex, 16).ok()?;
        (first..=last).contains(&address).then(|| format!("{before}{:#x}", address - first))
    });
    // A kernel does not begin at 0, so a smaller number is no address.
    target.filter(|_| first > 0).unwrap_or_else(|| text.to_owned())
}

fn counts(row: &SourceRow, columns: &[Column]) -> Counts {
    let mut counts = Counts::default();
    let (mut stalls, mut not_issued) = (BTreeMap::new(), BTreeMap::new());
    let mut metrics = BTreeMap::new();
    for (column, cell) in columns.iter().zip(&row.cells) {
        let CellValue::Number(value) = cell else { continue };
        let whole = value.max(0.0) as u64;
        match column {
            Column::Samples => counts.samples = Some(whole),
            Column::NotIssued => counts.samples_not_issued = Some(whole),
            Column::Stall { reason, issued } if whole > 0 => {
                let reasons = if *issued { &mut stalls } else { &mut not_issued };
                reasons.insert(Arc::from(stalls::reason_name(reason)), whole);
            }
            Column::Executed => counts.executed = Some(whole),
            Column::ThreadExecuted => counts.thread_executed = Some(whole),
            Column::Metric(name) => {
                metrics.insert(Arc::clone(name), *value);
            }
            Column::Stall { .. }
            | Column::Space
            | Column::Operation
            | Column::Bits
            | Column::Other => {}
        }
    }
    counts.stalls = stalls.into();
    counts.stalls_not_issued = not_issued.into();
    counts.metrics = metrics.into();
    counts
}

/// The memory access; `None` if the cells are empty.
fn access(row: &SourceRow, columns: &[Column]) -> Option<Access> {
    let mut access = Access::default();
    for (column, cell) in columns.iter().zip(&row.cells) {
        match (column, cell) {
            (Column::Space, CellValue::Text(text)) if text != "-" => {
                access.space = text.to_lowercase();
            }
            (Column::Operation, CellValue::Text(text)) if text != "-" => {
                access.operation = text.to_lowercase();
            }
            (Column::Bits, CellValue::Number(bits)) => access.bits = *bits as u32,
            _ => {}
        }
    }
    (!access.space.is_empty()).then_some(access)
}

/// The counts of the whole launch, under the names that the raw page has for them.
fn sums(
    launch: &SourceLaunch,
    columns: &[Column],
    from: &SharedText,
) -> BTreeMap<SharedText, Metric> {
    let mut sums = BTreeMap::new();
    for (index, column) in columns.iter().enumerate() {
        let name = match column {
            Column::Samples => "smsp__pcsamp_sample_count".to_owned(),
            Column::Executed => "inst_executed".to_owned(),
            Column::ThreadExecuted => "thread_inst_executed_true".to_owned(),
            Column::Stall { reason, issued } => {
                let suffix = if *issued { "" } else { "_not_issued" };
                format!("smsp__pcsamp_warps_issue_stalled_{reason}{suffix}")
            }
            _ => continue,
        };
        let cells = launch.instructions.iter().filter_map(|row| row.cells.get(index));
        let sum: f64 = cells
            .map(|cell| match cell {
                CellValue::Number(value) => value.max(0.0),
                _ => 0.0,
            })
            .sum();
        let unit = metric_unit(&name).unwrap_or_default().as_ref().into();
        let metric = Metric { value: Value::Int(sum as u64), unit, from: from.clone() };
        sums.insert(name.into(), metric);
    }
    sums
}

/// A gap if columns with values have labels that no metric is known for.
fn unknown_labels(page: &SourcePage, from: &str) -> Option<Gap> {
    let mut unknown = BTreeSet::new();
    for launch in &page.launches {
        for (index, label) in launch.columns.iter().enumerate() {
            let is_known = !matches!(Column::from_label(label), Column::Other)
                || label.contains("Avg. ")
                || label.starts_with("Warp Stall Sampling (All ");
            let has_values = launch.instructions.iter().any(|row| {
                matches!(row.cells.get(index), Some(CellValue::Number(value)) if *value != 0.0)
            });
            if !is_known && has_values {
                unknown.insert(format!("`{label}`"));
            }
        }
    }
    let names: Vec<String> = unknown.into_iter().collect();
    (!names.is_empty()).then(|| Gap {
        code: "labels_only".to_owned(),
        text: format!("{from}: no metric is known for these columns: {}", names.join(", ")),
    })
}
