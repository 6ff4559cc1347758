//! CSV pages of ncu to launches, for hosts that provide no report.
//!
//! The raw page has metric ids. The details page has labels; this module knows the labels of the
//! metrics that analysis rules need, by section and label, and counts the others in a gap. The
//! source page has the counts of each instruction. Values are scaled to NVIDIA's base units. They
//! have only the digits that ncu printed, which a gap says.

use std::collections::{BTreeMap, HashSet};

use rgpu_format::csv::CsvError;
use rgpu_format::ncu_csv::{
    Cell, CellValue, CsvLaunch, CsvRule, NcuCsv, RangeName, SourcePage, scale,
};

use super::ncu::stalls;
use super::region_tree::part;
use super::{ImportedArtifact, Importer, RejectedReport};
use crate::sound_times::check_launches;
use rgpu_model::launch::MessageKind;
use rgpu_model::launch::RuleMessage;
use rgpu_model::number_form::by_number;
use rgpu_model::profile::ArtifactKind;
use rgpu_model::profile::Gap;
use rgpu_model::{Launch, Metric, SharedText, Value};

mod source;

/// `ncu_csv`: `ncu --import … --csv --page raw`, `--page details` or `--page source`.
pub(super) const IMPORTER: Importer = Importer {
    kind: ArtifactKind::NcuCsv,
    recognises: |_, head| NcuCsv::is_page(head) || SourcePage::is_page(head),
    import: |file| {
        let bytes = file.bytes()?;
        if SourcePage::is_page(&bytes) {
            let page = SourcePage::read(&bytes).map_err(|cause| file.broken(cause))?;
            return Ok(source::import(&page, file.from));
        }
        let page = NcuCsv::read(&bytes).map_err(|cause| file.broken(cause))?;
        Ok(import(&page, file.from))
    },
};

/// Section and label on the details page, and the metric's id. In ncu 2025.3 the raw page and the
/// details page of one report agree on every row of this table.
const LABELS: &[(&str, &str, &str)] = &[
    (SPEED, "Duration", "gpu__time_duration.sum"),
    (SPEED, "Elapsed Cycles", "gpc__cycles_elapsed.max"),
    (SPEED, "SM Active Cycles", "sm__cycles_active.avg"),
    (SPEED, "SM Frequency", "gpc__cycles_elapsed.avg.per_second"),
    (SPEED, "DRAM Frequency", "dram__cycles_elapsed.avg.per_second"),
    (
        SPEED,
        "Memory Throughput",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    (SPEED, "DRAM Throughput", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
    (SPEED, "L1/TEX Cache Throughput", "l1tex__throughput.avg.pct_of_peak_sustained_active"),
    (SPEED, "L2 Cache Throughput", "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    (SPEED, "Compute (SM) Throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    (MEMORY, "Memory Throughput", "dram__bytes.sum.per_second"),
    (MEMORY, "L1/TEX Hit Rate", "l1tex__t_sector_hit_rate.pct"),
    (MEMORY, "L2 Hit Rate", "lts__t_sector_hit_rate.pct"),
    (SCHEDULER, "Issued Warp Per Scheduler", "smsp__issue_active.avg.per_cycle_active"),
    (SCHEDULER, "Eligible Warps Per Scheduler", "smsp__warps_eligible.avg.per_cycle_active"),
    (SCHEDULER, "Active Warps Per Scheduler", "smsp__warps_active.avg.per_cycle_active"),
    (
        WARP,
        "Warp Cycles Per Issued Instruction",
        "smsp__average_warp_latency_per_inst_issued.ratio",
    ),
    (
        WARP,
        "Avg. Not Predicated Off Threads Per Warp",
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    ),
    (WARP, "Avg. Active Threads Per Warp", "smsp__thread_inst_executed_per_inst_executed.ratio"),
    ("Instruction Statistics", "Executed Instructions", "smsp__inst_executed.sum"),
    (LAUNCH, "Registers Per Thread", "launch__registers_per_thread"),
    (LAUNCH, "Waves Per SM", "launch__waves_per_multiprocessor"),
    (LAUNCH, "Dynamic Shared Memory Per Block", "launch__shared_mem_per_block_dynamic"),
    (LAUNCH, "Static Shared Memory Per Block", "launch__shared_mem_per_block_static"),
    (OCCUPANCY, "Block Limit SM", "launch__occupancy_limit_blocks"),
    (OCCUPANCY, "Block Limit Registers", "launch__occupancy_limit_registers"),
    (OCCUPANCY, "Block Limit Shared Mem", "launch__occupancy_limit_shared_mem"),
    (OCCUPANCY, "Block Limit Warps", "launch__occupancy_limit_warps"),
    (OCCUPANCY, "Block Limit Barriers", "launch__occupancy_limit_barriers"),
    (OCCUPANCY, "Theoretical Occupancy", "sm__maximum_warps_per_active_cycle_pct"),
    (OCCUPANCY, "Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"),
];
const SPEED: &str = "GPU Speed Of Light Throughput";
const MEMORY: &str = "Memory Workload Analysis";
const SCHEDULER: &str = "Scheduler Statistics";
const WARP: &str = "Warp State Statistics";
const LAUNCH: &str = "Launch Statistics";
const OCCUPANCY: &str = "Occupancy";

/// Imports a page; `from` is its path in the run folder.
pub fn import(page: &NcuCsv, from: &str) -> ImportedArtifact {
    let mut absent = AbsentCells::default();
    let mut gaps = vec![Gap {
        code: "printed_values".to_owned(),
        text: format!(
            "{from}: values are rounded as ncu printed them; import the report for exact ones"
        ),
    }];
    let mut known = KnownTexts { from: SharedText::from(from), all: HashSet::new() };
    let mut launches = Vec::new();
    for (row, id) in page.launches.iter().zip(0..) {
        let mut launch = launch(row, id, &mut known, &mut absent);
        gaps.extend(stalls::import(&mut launch));
        launches.push(launch);
    }
    gaps.extend(absent.gaps(from));
    gaps.extend(check_launches(&mut launches, from));
    gaps.extend(damage(page.broken.as_ref(), page.ragged, from));
    let refusals = empty(&launches, from).into_iter().collect();
    ImportedArtifact { launches, gaps, refusals, ..ImportedArtifact::default() }
}

/// Gaps for rows that could not be read.
fn damage(broken: Option<&CsvError>, ragged: u64, from: &str) -> impl Iterator<Item = Gap> {
    let cut = broken.map(|cause| format!("{from}: {cause}; the rows before are kept"));
    let ragged = (ragged > 0).then(|| {
        let have = by_number(ragged, "row has", "rows have");
        format!("{from}: {ragged} {have} a different number of fields than the header")
    });
    let texts = cut.into_iter().chain(ragged);
    texts.map(|text| Gap { code: "damaged_report".to_owned(), text })
}

/// A refusal if the page has no launch.
fn empty(launches: &[Launch], from: &str) -> Option<RejectedReport> {
    launches.is_empty().then(|| RejectedReport {
        code: "empty_report",
        text: format!("{from}: the page has no launch"),
        ..RejectedReport::default()
    })
}

/// Metrics that a page lists without a usable number.
#[derive(Default)]
struct AbsentCells {
    not_finite: Vec<String>,
    labels: u64,
}

impl AbsentCells {
    fn gaps(mut self, from: &str) -> Vec<Gap> {
        self.not_finite.sort_unstable();
        self.not_finite.dedup();
        let names = self.not_finite.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
        let nan = (!names.is_empty()).then(|| Gap {
            code: "nan_metric".to_owned(),
            text: format!("{from}: not finite numbers: {}", names.join(", ")),
        });
        let labels = (self.labels > 0).then(|| Gap {
            code: "labels_only".to_owned(),
            text: format!(
                "{from}: {} {} a label but no metric name; use `--page raw` or \
                 `--print-metric-name name` to print names",
                self.labels,
                by_number(self.labels, "value has", "values have")
            ),
        });
        nan.into_iter().chain(labels).collect()
    }
}

/// The names and units of a page, each stored once.
struct KnownTexts {
    from: SharedText,
    all: HashSet<SharedText>,
}

impl KnownTexts {
    fn share(&mut self, text: &str) -> SharedText {
        if let Some(known) = self.all.get(text) {
            return known.clone();
        }
        let text = SharedText::from(text);
        self.all.insert(text.clone());
        text
    }
}

fn launch(row: &CsvLaunch, id: u32, known: &mut KnownTexts, absent: &mut AbsentCells) -> Launch {
    let mut metrics: BTreeMap<SharedText, Metric> = BTreeMap::new();
    for cell in &row.cells {
        let Some(name) = name(cell) else {
            absent.labels += 1;
            continue;
        };
        let (unit, factor) = scale(&cell.unit);
        let value = match &cell.value {
            CellValue::Number(value) => number(*value, factor),
            CellValue::Text(text) => Value::Text(text.clone()),
            CellValue::Missing => continue,
            CellValue::NotFinite => {
                absent.not_finite.push(name.to_owned());
                continue;
            }
        };
        let (unit, from) = (known.share(&unit), known.from.clone());
        metrics.entry(known.share(name)).or_insert(Metric { value, unit, from });
    }
    let compute = row.compute.map(|(major, minor)| [("major", major), ("minor", minor)]);
    for (part, number) in compute.into_iter().flatten() {
        let value = Value::Int(u64::from(number));
        let metric = Metric { value, unit: known.share(""), from: known.from.clone() };
        let name = known.share(&format!("device__attribute_compute_capability_{part}"));
        metrics.entry(name).or_insert(metric);
    }
    let mut launch = Launch {
        id,
        kernel: row.kernel.clone(),
        grid: row.grid.unwrap_or_default(),
        block: row.block.unwrap_or_default(),
        stream: row.stream,
        region: region(row).into(),
        metrics,
        rules: row.rules.iter().map(rule).collect(),
        ..Launch::default()
    };
    launch.duration_ns = launch.number("gpu__time_duration.sum");
    let whole =
        |number: f64| (0.0..=f64::from(u32::MAX)).contains(&number).then_some(number as u32);
    launch.registers = launch.number("launch__registers_per_thread").and_then(whole);
    let shared = |kind| launch.number(&format!("launch__shared_mem_per_block_{kind}"));
    launch.shared_bytes = shared("static").zip(shared("dynamic")).map(|(a, b)| (a + b) as u64);
    launch
}

/// A metric's id: the printed name if it is an id, else the id for this label.
fn name(cell: &Cell) -> Option<&str> {
    if cell.section.is_empty() || cell.name.contains("__") {
        return Some(&cell.name);
    }
    let row = LABELS.iter().find(|row| row.0 == &*cell.section && row.1 == &*cell.name);
    row.map(|row| row.2)
}

/// Converts to base units. Whole numbers stay integers, as counters are.
fn number(value: f64, factor: f64) -> Value {
    let scaled = value * factor;
    if scaled >= 0.0 && scaled.fract() == 0.0 && scaled < 9e15 {
        return Value::Int(scaled as u64);
    }
    Value::Float(scaled)
}

/// The region path, built as for reports: push/pop ranges with rgpu's domain first, else open
/// start/end ranges.
fn region(row: &CsvLaunch) -> Vec<String> {
    let rank = |range: &RangeName| match range.domain.as_deref() {
        Some("rgpu") => 0,
        None => 1,
        Some(_) => 2,
    };
    let mut ranges: Vec<&RangeName> = row.push_pop.iter().collect();
    ranges.sort_by_key(|range| rank(range));
    if ranges.is_empty() {
        ranges = row.start_end.iter().collect();
    }
    ranges.into_iter().map(|range| part(range.domain.as_deref(), Some(&range.name))).collect()
}

fn rule(rule: &CsvRule) -> RuleMessage {
    let kind = match rule.kind.as_str() {
        "OPT" => MessageKind::Optimization,
        "WRN" => MessageKind::Warning,
        "ERR" => MessageKind::Error,
        "OK" => MessageKind::Ok,
        _ => MessageKind::None,
    };
    RuleMessage {
        rule: rule.rule.clone(),
        kind,
        title: String::new(),
        text: rule.text.clone(),
        speedup_percent: rule.speedup,
    }
}

#[cfg(test)]
mod tests;
