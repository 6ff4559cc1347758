//! Hot spots: the source lines with the most samples, or the instructions if there are no lines.

use super::View;
use crate::blocks::{Block, Blocks};
use crate::quantity::percent;
use rgpu_model::HotSpots;
use rgpu_model::hotspots::{Counts, LaunchSpots};

/// The maximum number of rows per launch.
const MAX_ROWS_PER_LAUNCH: usize = 5;
/// The maximum number of launches shown; `hotspots.json` has all.
const MAX_LAUNCHES: usize = 3;

/// Writes the hottest lines of the launches with the most samples.
pub(super) fn add_hotspots(out: &mut Blocks, view: &View<'_>, spots: &HotSpots) {
    let mut launches: Vec<&LaunchSpots> =
        spots.launches.iter().filter(|l| l.samples.unwrap_or(0) > 0).collect();
    launches.sort_by_key(|l| std::cmp::Reverse(l.samples));
    let several = launches.len() > 1;
    let mut shown: Vec<&str> = Vec::new();
    for launch in launches {
        // Launches of one kernel look alike, so only the one with the most samples is shown.
        if shown.len() >= MAX_LAUNCHES || shown.contains(&launch.kernel.as_str()) {
            continue;
        }
        shown.push(&launch.kernel);
        let title = if several {
            format!("hot spots of {}", view.names.name(&launch.kernel))
        } else {
            "hot spots".to_owned()
        };
        out.heading(title);
        rows(out, launch);
    }
}

/// Adds the location of each hot spot with its stall reason, and its code.
fn rows(out: &mut Blocks, launch: &LaunchSpots) {
    let total = launch.samples.unwrap_or(0).max(1) as f64;
    let row = |counts: &Counts, location: String, code: &Option<String>| {
        let share = percent(100.0 * counts.samples.unwrap_or(0) as f64 / total);
        let place = format!("{share:>6}  {location}  {}", waits(counts));
        [place, code.clone().unwrap_or_default()]
    };
    let lines = launch.lines.iter().take(MAX_ROWS_PER_LAUNCH).map(|spot| {
        let location = format!("{}:{}", file(&spot.at.file), spot.at.line);
        row(&spot.counts, location, &spot.text)
    });
    let mut rows: Vec<[String; 2]> = lines.collect();
    if launch.lines.is_empty() {
        let mut hottest: Vec<_> = launch.instructions.iter().collect();
        hottest.sort_by_key(|i| std::cmp::Reverse(i.counts.samples));
        let hottest = hottest.into_iter().take(MAX_ROWS_PER_LAUNCH);
        rows.extend(
            hottest.map(|spot| row(&spot.counts, format!("+0x{:04x}", spot.offset), &spot.sass)),
        );
    }
    out.add(Block::Code(rows));
}

/// The stall reason with the most samples.
fn waits(counts: &Counts) -> String {
    let reasons = counts.stalls.iter().filter(|(reason, _)| *reason != "selected");
    reasons.max_by_key(|(_, n)| **n).map(|(reason, _)| reason.to_owned()).unwrap_or_default()
}

fn file(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}
