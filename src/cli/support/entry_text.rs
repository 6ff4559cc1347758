//! Words about entries of the queue, for the commands that show them.

use rgpu_work::queue::Entry;

/// How long a running entry has printed nothing: `silent for 12 min`. `None` if that is not long.
pub(in crate::cli) fn silence_text(entry: &Entry) -> Option<String> {
    entry.shown_silence_s().map(|silent| format!("silent for {}", seconds_text(silent)))
}

/// A time: `0.4 s`, `12 min`, `3.2 h`.
pub(in crate::cli) fn seconds_text(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
