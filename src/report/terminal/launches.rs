//! ncu's launches with stall reasons, roofline and bounds.

use super::{MAX_ROWS, Page};
use crate::model::profile::CodeLanguage;
use crate::model::{Classification, Launch, Profile};
use crate::report::quantity::{digits, duration, measured, per_second, percent};
use crate::report::{Align, TextTable};

fn metric(launch: &Launch, ids: &[&str]) -> String {
    launch.first_number(ids).map(|(_, x)| format!("{x:.1}")).unwrap_or_default()
}

/// Writes ncu's launches, one row each.
pub(super) fn launches(page: &mut Page<'_>, profile: &Profile) {
    if profile.launches.iter().all(|l| l.metrics.is_empty()) {
        return;
    }
    let mut table = TextTable::new(&[
        ("kernel", Align::Left),
        ("duration", Align::Right),
        ("SM %", Align::Right),
        ("mem %", Align::Right),
        ("occ %", Align::Right),
        ("regs", Align::Right),
    ]);
    let rows = || profile.launches.iter().take(MAX_ROWS);
    for (launch, name) in rows().zip(page.style.names.distinct(rows().map(|l| l.kernel.as_str()))) {
        table.add_row([
            name,
            launch.duration_ns.map(duration).unwrap_or_default(),
            metric(launch, &["sm__throughput.avg.pct_of_peak_sustained_elapsed"]),
            metric(launch, &["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"]),
            metric(launch, &["sm__warps_active.avg.pct_of_peak_sustained_active"]),
            launch.registers.map(|r| r.to_string()).unwrap_or_default(),
        ]);
    }
    page.table("launches", table);
    if profile.launches.len() > MAX_ROWS {
        let more = profile.launches.len() - MAX_ROWS;
        // An imported file has no run folder, so there is no profile.json.
        page.line(&match profile.kernel.language {
            CodeLanguage::Report => format!("    … and {more} more: `--format json` has them"),
            _ => format!("    … and {more} more in profile.json"),
        });
    }
    page.line("");
    distinct_field(page, profile, "stalls", stalls_text);
    distinct_field(page, profile, "roofline", roofline_text);
    // Of several kernels, the verdicts on the longest are told below.
    if profile.kernels.len() < 2 {
        distinct_field(page, profile, "bound by", |launch| {
            launch.classification.as_ref().map(classification_text)
        });
    }
}

/// The rate reached, as a share of the roof at the launch's DRAM arithmetic intensity.
pub(in crate::report) fn roofline_text(launch: &Launch) -> Option<String> {
    let (compute, rate) = launch.compute_roof()?;
    let dram = launch.roofline.iter().filter(|r| r.label == "DRAM" && r.peak > 0.0);
    let moved = dram.filter_map(|r| Some((r, r.achieved.filter(|x| *x > 0.0)?)));
    let (memory, bytes) = moved.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let intensity = rate / bytes;
    let roof = compute.peak.min(intensity * memory.peak);
    let roof_label = if roof < compute.peak { &memory.label } else { &compute.label };
    Some(format!(
        "{} {}, {} of the {roof_label} roof at {} FLOP/byte (ceilings: {})",
        per_second(rate, "FLOP"),
        compute.label,
        percent(100.0 * rate / roof),
        digits(intensity),
        compute.source
    ))
}

/// Writes a field that launches of one kernel mostly share: each text once, with the kernel's name if
/// there are several texts.
fn distinct_field(
    page: &mut Page<'_>,
    profile: &Profile,
    label: &str,
    text: impl Fn(&Launch) -> Option<String>,
) {
    let mut texts: Vec<(String, String)> = Vec::new();
    for launch in profile.launches.iter().take(MAX_ROWS) {
        let Some(text) = text(launch) else { continue };
        let kernel = page.style.names.name(&launch.kernel);
        // Texts that differ only in their numbers are written once.
        let words = |text: &str| text.replace(|c: char| c.is_ascii_digit() || c == '.', "");
        let alike = |other: &str| words(other) == words(&text);
        if !texts.iter().any(|(k, t)| *k == kernel && alike(t)) {
            texts.push((kernel, text));
        }
    }
    let several = texts.len() > 1;
    for (at, (kernel, text)) in texts.into_iter().enumerate() {
        let label = if at == 0 { label } else { "" };
        page.field(label, &if several { format!("{kernel}: {text}") } else { text });
    }
}

/// The top three stall reasons, in percent of the cycles between two instructions.
pub(in crate::report) fn stalls_text(launch: &Launch) -> Option<String> {
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

pub(super) fn classification_text(class: &Classification) -> String {
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
