//! Sums of a timeline: kernels, copies, GPU busy time and regions.

use super::{MAX_ROWS, View};
use crate::TextTable;
use crate::account;
use crate::blocks::{Block, Blocks};
use crate::busy::{graphs_note, sum_title};
use crate::kernel_sums::set_up_cell;
use crate::quantity::percent;
use crate::quantity::{bytes, duration};
use crate::region_rows;
use rgpu_model::Profile;

/// Adds a timeline's kernels, summed by name, and its copies. A terminal shows launches with
/// counters in their place.
pub(super) fn add_kernels(out: &mut Blocks, view: &View<'_>) {
    let profile = view.profile;
    if profile.launches.iter().any(|l| !l.metrics.is_empty()) && !view.is_whole {
        return;
    }
    let kernels = kernels(view, view.rows(MAX_ROWS));
    out.table_or(sum_title("kernels", profile), kernels, no_kernels(profile));
    let copies = TextTable::of(
        &profile.copies,
        &[
            ("copies", &|c| c.kind.clone()),
            ("count:", &|c| c.count.to_string()),
            ("bytes:", &|c| bytes(c.bytes as f64)),
            ("time:", &|c| duration(c.total_ns as f64)),
        ],
    );
    out.table(sum_title("copies", profile), copies);
}

/// Why a report has no kernels.
pub(crate) fn no_kernels(profile: &Profile) -> &'static str {
    if nothing_ran_on_a_gpu(profile) {
        return "Nothing was measured on a GPU, so no kernels are recorded.";
    }
    "This rung records no kernels."
}

/// Whether the run's host had no GPU, so that nothing in the profile is of one. A report of another
/// tool names no host.
pub(crate) fn nothing_ran_on_a_gpu(profile: &Profile) -> bool {
    profile.host.is_some() && profile.gpu.is_none() && !profile.has_gpu_number()
}

/// A table of the first `max` kernels.
pub(crate) fn kernels(view: &View<'_>, max: usize) -> TextTable {
    TextTable::of(
        view.profile.kernels.iter().take(max),
        &[
            ("kernel", &|k| view.names.name(&k.kernel)),
            ("launches:", &|k| k.launches.to_string()),
            ("total:", &|k| duration(k.total_ns as f64)),
            ("set-up:", &|k| set_up_cell(k)),
            ("mean:", &|k| duration(k.total_ns as f64 / k.launches.max(1) as f64)),
            ("min:", &|k| duration(k.min_ns as f64)),
            ("max:", &|k| duration(k.max_ns as f64)),
        ],
    )
}

/// Writes how busy each GPU was and why it was idle.
pub(super) fn add_busy_time(out: &mut Blocks, view: &View<'_>) {
    let profile = view.profile;
    let Some(timeline) = profile.timeline.as_ref().filter(|t| !t.devices.is_empty()) else {
        return;
    };
    // The account of a step says why the GPU was idle, and what it did.
    let has_account = profile.account.as_ref().and_then(account::step).is_some();
    if has_account && timeline.gpus() < 2 {
        graphs_note(profile).into_iter().for_each(|note| out.add(Block::Note(2, note.to_owned())));
        return;
    }
    out.add(Block::Group("busy time"));
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
        if !causes.is_empty() && !has_account {
            text += &format!("; without a kernel: {}", causes.join(", "));
        }
        out.field(format!("GPU {}", device.device), text);
    }
    graphs_note(profile).into_iter().for_each(|note| out.add(Block::Note(2, note.to_owned())));
}

pub(super) fn add_regions(out: &mut Blocks, view: &View<'_>) {
    let profile = view.profile;
    let note = region_rows::gpu_note(profile).map(|note| format!(" ({note})")).unwrap_or_default();
    let title = sum_title("regions", profile) + &note;
    out.table_or(title, regions(profile, view.rows(2 * MAX_ROWS)), NO_REGIONS);
}

/// Why a report has no regions.
pub(crate) const NO_REGIONS: &str = "No NVTX range was recorded, so there are no times by region.";

/// A table of regions, at most `max` single ones.
pub(crate) fn regions(profile: &Profile, max: usize) -> TextTable {
    let time = |ns: Option<u64>| ns.map(|ns| duration(ns as f64)).unwrap_or_default();
    TextTable::of(
        region_rows::rows(profile, max),
        &[
            ("region", &|row| row.label.clone()),
            ("count:", &|row| row.instances.map(|n| n.to_string()).unwrap_or_default()),
            ("host:", &|row| time(row.host_ns)),
            ("GPU:", &|row| row.gpu_text()),
            ("GPU span:", &|row| time(row.gpu_span_ns)),
            ("kernels:", &|row| match row.launches {
                0 => String::new(),
                launches => launches.to_string(),
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gpu_the_reason_is_not_the_rung() {
        let mut profile = Profile { host: Some(Default::default()), ..Profile::default() };
        assert!(no_kernels(&profile).starts_with("Nothing was measured on a GPU"));
        profile.gpu = Some("GPU-1".to_owned());
        assert_eq!(no_kernels(&profile), "This rung records no kernels.");
    }
}
