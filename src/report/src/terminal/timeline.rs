//! Sums of a timeline: kernels, copies, GPU busy time and regions.

use super::{MAX_ROWS, Page};
use crate::TextTable;
use crate::busy::{graphs_note, sum_title};
use crate::kernel_sums::set_up_cell;
use crate::quantity::percent;
use crate::quantity::{bytes, duration};
use crate::region_rows;
use rgpu_model::Profile;

/// Writes a timeline's kernels, summed by name, and its copies.
pub(super) fn add_kernels(page: &mut Page<'_>, profile: &Profile) {
    if profile.launches.iter().any(|l| !l.metrics.is_empty()) {
        return;
    }
    let mut table = TextTable::new("kernel | launches: | total: | set-up: | mean: | min: | max:");
    for k in profile.kernels.iter().take(MAX_ROWS) {
        table.add_row([
            page.names.name(&k.kernel),
            k.launches.to_string(),
            duration(k.total_ns as f64),
            set_up_cell(k),
            duration(k.total_ns as f64 / k.launches.max(1) as f64),
            duration(k.min_ns as f64),
            duration(k.max_ns as f64),
        ]);
    }
    page.table(&sum_title("kernels", profile), table.without_empty_columns());
    let mut table = TextTable::new("copies | count: | bytes: | time:");
    for c in &profile.copies {
        table.add_row([
            c.kind.clone(),
            c.count.to_string(),
            bytes(c.bytes as f64),
            duration(c.total_ns as f64),
        ]);
    }
    page.table(&sum_title("copies", profile), table);
}

/// Writes how busy each GPU was and why it was idle.
pub(super) fn add_busy_time(page: &mut Page<'_>, profile: &Profile) {
    let Some(timeline) = profile.timeline.as_ref().filter(|t| !t.devices.is_empty()) else {
        return;
    };
    page.line("");
    for device in &timeline.devices {
        let share = |ns: u64| percent(100.0 * ns as f64 / device.span_ns.max(1) as f64);
        let span = duration(device.span_ns as f64);
        let (busy, in_kernels) = (share(device.busy_ns), share(device.kernel_ns));
        let mut text = format!("busy {busy} of {span} from first to last kernel");
        // Only kernels and the time without one add up to the span: copies run in both.
        if busy != in_kernels && device.kernel_ns > 0 {
            text += &format!(" ({in_kernels} in kernels)");
        }
        let causes: Vec<String> = device
            .waiting
            .iter()
            .take(4)
            .map(|w| format!("{} {}", w.cause.replace('_', " "), duration(w.total_ns as f64)))
            .collect();
        if !causes.is_empty() {
            text += &format!("; without a kernel: {}", causes.join(", "));
        }
        page.field(&format!("GPU {}", device.device), &text);
    }
    graphs_note(profile).iter().for_each(|note| page.line(&format!("  {note}")));
}

pub(super) fn add_regions(page: &mut Page<'_>, profile: &Profile) {
    let mut table = TextTable::new("region | count: | host: | GPU: | GPU span: | kernels:");
    for row in region_rows::rows(profile, 2 * MAX_ROWS) {
        let time = |ns: Option<u64>| ns.map(|ns| duration(ns as f64)).unwrap_or_default();
        table.add_row([
            row.label.clone(),
            row.instances.map(|n| n.to_string()).unwrap_or_default(),
            time(row.host_ns),
            row.gpu_text(),
            time(row.gpu_span_ns),
            if row.launches > 0 { row.launches.to_string() } else { String::new() },
        ]);
    }
    let note = region_rows::gpu_note(profile).map(|note| format!(" ({note})")).unwrap_or_default();
    let title = sum_title("regions", profile) + &note;
    page.table(&title, table.without_empty_columns());
}
