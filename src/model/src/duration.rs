//! How a time is written in flags and settings files: `90` (seconds), `90s`, `1h30m`, `2d`.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// Parses a time: a number of seconds, or numbers with units from milliseconds to weeks (a day has
/// 24 hours). `None` if it is neither, negative, or out of range.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let span: Span = text.parse().ok()?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(duration).ok()
}

/// Parses a time of a flag, above 0 and at most 7 days: `90`, `90s`, `10m`, `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    const MAX: Duration = Duration::from_secs(7 * 24 * 3600);
    match parse_duration(text) {
        None => Err("not a time: write 90s, 10m or 1h30m".to_owned()),
        Some(time) if time.is_zero() || time > MAX => {
            Err("a time must be above 0 and at most 7 days".to_owned())
        }
        Some(time) => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_seconds_or_numbers_with_units() {
        let cases = [
            ("90", 90.0),
            ("0.5", 0.5),
            ("90s", 90.0),
            ("10m", 600.0),
            ("10min", 600.0),
            ("1.5h", 5400.0),
            ("1h30m", 5400.0),
            ("1h 30m 5s", 5405.0),
            ("2d12h", 216_000.0),
            ("250ms", 0.25),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse_duration(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for wrong in ["", "s", "never", "-5s", "-1", "1h30", "1h ago", "2 months", "inf", "nan"] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }
}
