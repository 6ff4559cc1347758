//! Where the samples fell: the lines, or without lines the instructions, that hold most of them.

use super::Page;
use crate::model::HotSpots;
use crate::model::hotspots::{Counts, LaunchSpots};
use crate::report::quantity::percent;
use crate::report::text::short_name;

/// Rows for each launch.
const MAX_ROWS_PER_LAUNCH: usize = 5;
/// Launches shown at most; the document has all.
const MAX_LAUNCHES: usize = 3;

/// The hottest lines of the launches with most samples.
pub(super) fn hotspots(page: &mut Page<'_>, spots: &HotSpots) {
    let mut launches: Vec<&LaunchSpots> =
        spots.launches.iter().filter(|l| l.samples.unwrap_or(0) > 0).collect();
    launches.sort_by_key(|l| std::cmp::Reverse(l.samples));
    let several = launches.len() > 1;
    let mut shown: Vec<&str> = Vec::new();
    for launch in launches {
        // Launches of one kernel look alike: the one with most samples speaks for them.
        if shown.len() >= MAX_LAUNCHES || shown.contains(&launch.kernel.as_str()) {
            continue;
        }
        shown.push(&launch.kernel);
        let title = if several {
            format!("hot spots of {}", short_name(&launch.kernel))
        } else {
            "hot spots".to_owned()
        };
        page.line("");
        let title = page.bold(&title);
        page.line(&format!("  {title}"));
        rows(page, launch);
    }
}

/// Two lines for each: where and why, and the code under it.
fn rows(page: &mut Page<'_>, launch: &LaunchSpots) {
    let total = launch.samples.unwrap_or(0).max(1) as f64;
    let mut row = |counts: &Counts, place: String, code: &str| {
        let share = percent(100.0 * counts.samples.unwrap_or(0) as f64 / total);
        page.line(&format!("    {share:>6}  {place}  {}", waits(counts)));
        let code = cut(code, page.style.width.saturating_sub(12));
        if !code.is_empty() {
            page.line(&format!("            {code}"));
        }
    };
    for spot in launch.lines.iter().take(MAX_ROWS_PER_LAUNCH) {
        let place = format!("{}:{}", file(&spot.at.file), spot.at.line);
        row(&spot.counts, place, spot.text.as_deref().unwrap_or_default());
    }
    if launch.lines.is_empty() {
        let mut hottest: Vec<_> = launch.instructions.iter().collect();
        hottest.sort_by_key(|i| std::cmp::Reverse(i.counts.samples));
        for spot in hottest.into_iter().take(MAX_ROWS_PER_LAUNCH) {
            let place = format!("+0x{:04x}", spot.offset);
            row(&spot.counts, place, spot.sass.as_deref().unwrap_or_default());
        }
    }
}

/// The stall reason with most samples.
fn waits(counts: &Counts) -> String {
    let reasons = counts.stalls.iter().filter(|(reason, _)| *reason != "selected");
    reasons.max_by_key(|(_, n)| **n).map(|(reason, _)| reason.to_owned()).unwrap_or_default()
}

fn file(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Code on one line of at most `room` columns.
fn cut(code: &str, room: usize) -> String {
    let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
    if code.chars().count() <= room {
        code
    } else {
        format!("{}…", code.chars().take(room.saturating_sub(1)).collect::<String>())
    }
}
