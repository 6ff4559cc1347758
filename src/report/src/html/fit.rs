//! Keeps the page within its maximum size by cutting long lists. The page says what was cut.

use serde::Serialize;

use super::data::{ListLimits, Page};
use crate::ReportInput;

/// The maximum lengths of the lists, whatever their size in bytes.
const CAPS: ListLimits = ListLimits {
    launches: 400,
    detailed: 64,
    spots: 64,
    instructions: 6000,
    events: 30_000,
    sums: 1000,
};

/// The page's data as JSON. Halves the lists until the JSON has at most `room` bytes, or until
/// there are no more events to cut.
pub(super) fn json(subject: &ReportInput<'_>, room: usize) -> String {
    let mut caps = CAPS;
    loop {
        let page = Page::new(subject, caps);
        let text = serde_json::to_string(&page).unwrap_or_else(|e| {
            format!("{{\"error\":\"the page's data cannot be written: {e}\"}}")
        });
        // Escaping turns `<` into six bytes.
        let size = |json: &str| json.len() + 5 * json.matches('<').count();
        if size(&text) <= room || caps.events <= 1 {
            return text;
        }
        let heavy = |part: &dyn Fn() -> String| size(&part());
        let metrics = heavy(&|| written(&page.metrics));
        let spots = heavy(&|| written(&page.hotspots));
        let events = heavy(&|| written(&page.trace));
        match metrics.max(spots).max(events) {
            most if most * 3 < size(&text) => {
                caps.launches /= 2;
                caps.sums /= 2;
                caps.events /= 2;
            }
            most if most == metrics => caps.detailed /= 2,
            most if most == spots && caps.spots > 1 => caps.spots /= 2,
            most if most == spots => caps.instructions /= 2,
            _ => caps.events /= 2,
        }
    }
}

fn written(part: &impl Serialize) -> String {
    serde_json::to_string(part).unwrap_or_default()
}
