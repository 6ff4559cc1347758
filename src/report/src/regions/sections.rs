//! `sections.txt`: the tool's section tables for every launch in a region, like its details page
//! but in base units.

use crate::text::one_line;
use rgpu_model::launch::{RawRow, RawSection};
use rgpu_model::regions::RegionEntry;
use rgpu_model::{Launch, Value};

pub(super) fn text(entry: &RegionEntry, launches: &[&Launch]) -> String {
    let mut out = format!("region {}\n", one_line(&entry.name));
    for launch in launches {
        let range = entry.region.ranges.iter().any(|range| range.launch == launch.id);
        let what = if range { "result" } else { "launch" };
        out += &format!("\n{what} {}: {}\n", launch.id, one_line(&launch.kernel));
        for section in &launch.raw_sections {
            out += &section_text(launch, section);
        }
        if launch.raw_sections.is_empty() && !launch.metrics.is_empty() {
            out += "\n  Metrics\n";
            for (id, metric) in &launch.metrics {
                out += &labelled(id, &value(&metric.value), &metric.unit);
            }
        }
    }
    if launches.iter().all(|launch| launch.metrics.is_empty()) {
        out += "\nNo sections: this rung collects no counters. `--mode ncu` does.\n";
    }
    out
}

fn section_text(launch: &Launch, section: &RawSection) -> String {
    let mut out = format!("\n  {} ({})\n", one_line(&section.name), one_line(&section.id));
    let rows = |rows: &[RawRow]| -> String {
        rows.iter().map(|row| labelled(&row.label, &value(&row.value), &row.unit)).collect()
    };
    out += &rows(&section.rows);
    for table in &section.tables {
        out += &format!("    {}\n", one_line(&table.label));
        out += &rows(&table.rows);
    }
    for rule in section.rules.iter().filter_map(|index| launch.rules.get(*index as usize)) {
        out += &format!("    {}: {}\n", rule.kind, one_line(&rule.text));
    }
    out
}

fn value(value: &Value) -> String {
    match value {
        Value::Int(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Text(text) => text.clone(),
    }
}

fn labelled(label: &str, value: &str, unit: &str) -> String {
    format!("    {:<48} {:>20} {unit}", one_line(label), one_line(value)).trim_end().to_owned()
        + "\n"
}
