//! ncu's launches with stall reasons, roofline and bounds.

use super::{MAX_ROWS, View};
use crate::TextTable;
use crate::blocks::{Block, Blocks, TableBlock};
use crate::quantity::{digits, duration, measured, per_second, percent};
use rgpu_model::launch::EXECUTED;
use rgpu_model::metric::{MEMORY_THROUGHPUT, MainMetric, OCCUPANCY, SM_THROUGHPUT};
use rgpu_model::profile::CodeLanguage;
use rgpu_model::{Classification, Launch};

/// The most launches that a whole report lists.
const MAX_LAUNCHES: usize = 100;

/// Adds ncu's launches, one row each.
pub(super) fn add_launches(out: &mut Blocks, view: &View<'_>) {
    let profile = view.profile;
    if profile.launches.iter().all(|l| l.metrics.is_empty()) {
        return;
    }
    let max = view.rows(MAX_ROWS).min(MAX_LAUNCHES);
    let shown = &profile.launches[..profile.launches.len().min(max)];
    // The grid distinguishes launches of one kernel.
    let differ = |a: &Launch| shown.iter().any(|b| a.kernel == b.kernel && a.grid != b.grid);
    let several_grids = shown.iter().any(differ);
    let share = |launch: &Launch, of: MainMetric| {
        launch.first_number(of.ids).map(|(_, x)| format!("{x:.1}")).unwrap_or_default()
    };
    let main = |of: MainMetric| format!("{}:", of.head);
    let table = TextTable::of(
        shown,
        &[
            ("kernel", &|l| view.names.name(&l.kernel)),
            ("grid:", &|l| if several_grids { grid_text(l) } else { String::new() }),
            ("duration:", &|l| l.duration_ns.map(duration).unwrap_or_default()),
            (main(SM_THROUGHPUT).as_str(), &|l| share(l, SM_THROUGHPUT)),
            (main(MEMORY_THROUGHPUT).as_str(), &|l| share(l, MEMORY_THROUGHPUT)),
            (main(OCCUPANCY).as_str(), &|l| share(l, OCCUPANCY)),
            ("regs:", &|l| l.registers.map(|r| r.to_string()).unwrap_or_default()),
        ],
    );
    let title = "launches".to_owned();
    let spare = Some((5, &["regs"][..]));
    out.full_table(TableBlock { title, table, indent: 4, spare, ..TableBlock::default() });
    if profile.launches.len() > shown.len() {
        let more = profile.launches.len() - shown.len();
        // An imported file has no run folder, so there is no profile.json.
        out.note(match profile.kernel.language {
            CodeLanguage::Report => format!("… and {more} more: `--format json` has them"),
            _ => format!("… and {more} more in profile.json"),
        });
    }
    out.add(Block::Group(""));
    distinct_field(out, view, shown, "stalls", stalls_text);
    distinct_field(out, view, shown, "roofline", roofline_text);
    // With several kernels, the verdicts on the longest ones follow below.
    if profile.kernels.len() < 2 {
        distinct_field(out, view, shown, "bound by", |launch| {
            launch.classification.as_ref().map(classification_text)
        });
    }
}

/// `448`, or `8×4` for a grid of two dimensions; empty if it is not known.
fn grid_text(launch: &Launch) -> String {
    let sizes = match launch.grid {
        [0, ..] => &[][..],
        [_, 1, 1] => &launch.grid[..1],
        [_, _, 1] => &launch.grid[..2],
        _ => &launch.grid[..],
    };
    sizes.iter().map(u32::to_string).collect::<Vec<_>>().join("×")
}

/// The rate reached, as a share of the roof at the launch's DRAM arithmetic intensity.
fn roofline_text(launch: &Launch) -> Option<String> {
    let (compute, rate) = launch.compute_roof()?;
    let dram = launch.roofline.iter().filter(|r| r.label == "DRAM" && r.peak > 0.0);
    let moved = dram.filter_map(|r| Some((r, r.achieved.filter(|x| *x > 0.0)?)));
    let (memory, bytes) = moved.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let intensity = rate / bytes;
    let roof = compute.peak.min(intensity * memory.peak);
    let roof_label = if roof < compute.peak { &memory.label } else { &compute.label };
    let executed = if compute.is_tensor() { format!(" {EXECUTED}") } else { String::new() };
    Some(format!(
        "{} {}{executed}, {} of the {roof_label} roof at {} FLOP/byte (ceilings: {})",
        per_second(rate, "FLOP"),
        compute.label,
        percent(100.0 * rate / roof),
        digits(intensity),
        compute.source
    ))
}

/// Writes a field that launches of one kernel mostly share: one text for each of its grids, and
/// each text once, with the kernel's name if there are several texts.
fn distinct_field(
    out: &mut Blocks,
    view: &View<'_>,
    shown: &[Launch],
    label: &str,
    text: impl Fn(&Launch) -> Option<String>,
) {
    let mut texts: Vec<(String, &Launch, String)> = Vec::new();
    for launch in shown {
        let Some(text) = text(launch) else { continue };
        let kernel = view.names.name(&launch.kernel);
        // Texts that differ only in their numbers are written once.
        let words = |text: &str| text.replace(|c: char| c.is_ascii_digit() || c == '.', "");
        let alike = |other: &str| words(other) == words(&text);
        let is_same_shape = |of: &Launch| launch.grid[0] > 0 && of.grid == launch.grid;
        if !texts.iter().any(|(k, of, t)| *k == kernel && (is_same_shape(of) || alike(t))) {
            texts.push((kernel, launch, text));
        }
    }
    let several = texts.len() > 1;
    for (at, (kernel, launch, text)) in texts.iter().enumerate() {
        let label = if at == 0 { label } else { "" };
        let is_other =
            |(other, of, _): &(String, &Launch, String)| other == kernel && of.grid != launch.grid;
        let grid = if texts.iter().any(is_other) {
            format!(" with grid {}", grid_text(launch))
        } else {
            String::new()
        };
        let text = if several { format!("{kernel}{grid}: {text}") } else { text.clone() };
        out.field(label, text);
    }
}

/// The top three stall reasons, in percent of the cycles between two instructions.
fn stalls_text(launch: &Launch) -> Option<String> {
    let top: Vec<String> = launch
        .stalls
        .iter()
        .filter(|s| s.reason != "selected")
        .take(3)
        .map(|s| match s.percent {
            Some(p) => format!("{} {p:.0} %", s.reason),
            None => s.reason.clone(),
        })
        .collect();
    (!top.is_empty()).then(|| top.join(", "))
}

fn classification_text(class: &Classification) -> String {
    let mut text = class.primary.replace('_', " ");
    let primary = class.verdicts.iter().find(|v| v.verdict == class.primary);
    if let Some(e) = primary.and_then(|v| v.evidence.first()) {
        // The counter's name without its suffix; the profile has the full id.
        let counter = e.metric.split('.').next().unwrap_or(&e.metric);
        text += &format!(" ({counter} {})", measured(e.value, &e.unit));
    }
    let others: Vec<_> = class
        .verdicts
        .iter()
        .filter(|v| v.verdict != class.primary)
        .map(|v| v.verdict.replace('_', " "))
        .collect();
    if !others.is_empty() {
        text += &format!("; also {}", others.join(", "));
    }
    text
}
