//! Hot spots: the source lines with the most samples, or the instructions if there are no lines.

use super::Page;
use crate::quantity::percent;
use rgpu_model::HotSpots;
use rgpu_model::hotspots::{Counts, LaunchSpots};

/// The maximum number of rows per launch.
const MAX_ROWS_PER_LAUNCH: usize = 5;
/// The maximum number of launches shown; `hotspots.json` has all.
const MAX_LAUNCHES: usize = 3;

/// Writes the hottest lines of the launches with the most samples.
pub(super) fn add_hotspots(page: &mut Page<'_>, spots: &HotSpots) {
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
            format!("hot spots of {}", page.names.name(&launch.kernel))
        } else {
            "hot spots".to_owned()
        };
        page.line("");
        let title = page.bold(&title);
        page.line(&format!("  {title}"));
        rows(page, launch);
    }
}

/// Writes two lines per hot spot: location with stall reason, and the code.
fn rows(page: &mut Page<'_>, launch: &LaunchSpots) {
    let total = launch.samples.unwrap_or(0).max(1) as f64;
    let mut row = |counts: &Counts, location: String, code: &str| {
        let share = percent(100.0 * counts.samples.unwrap_or(0) as f64 / total);
        page.line(&format!("    {share:>6}  {location}  {}", waits(counts)));
        let code = cut(code, page.style.width.saturating_sub(12));
        if !code.is_empty() {
            page.line(&format!("            {code}"));
        }
    };
    for spot in launch.lines.iter().take(MAX_ROWS_PER_LAUNCH) {
        let location = format!("{}:{}", file(&spot.at.file), spot.at.line);
        row(&spot.counts, location, spot.text.as_deref().unwrap_or_default());
    }
    if launch.lines.is_empty() {
        let mut hottest: Vec<_> = launch.instructions.iter().collect();
        hottest.sort_by_key(|i| std::cmp::Reverse(i.counts.samples));
        for spot in hottest.into_iter().take(MAX_ROWS_PER_LAUNCH) {
            let location = format!("+0x{:04x}", spot.offset);
            row(&spot.counts, location, spot.sass.as_deref().unwrap_or_default());
        }
    }
}

/// The stall reason with the most samples.
fn waits(counts: &Counts) -> String {
    let reasons = counts.stalls.iter().filter(|(reason, _)| *reason != "selected");
    reasons.max_by_key(|(_, n)| **n).map(|(reason, _)| reason.to_owned()).unwrap_or_default()
}

fn file(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// The code on one line, cut to `room` columns.
fn cut(code: &str, room: usize) -> String {
    let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
    if code.chars().count() <= room {
        code
    } else {
        format!("{}…", code.chars().take(room.saturating_sub(1)).collect::<String>())
    }
}
