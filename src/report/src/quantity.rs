//! Numbers for readers: three significant digits and a suitable unit.

use std::time::Duration;

use rgpu_model::Evidence;

/// Units of ncu that are things to count.
const COUNTED_UNITS: &[&str] = &["block", "cycle", "sector", "thread", "warp"];

/// Units of time, by their nanoseconds.
const TIME_UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];

/// Nanoseconds as `812 ns`, `59.7 µs`, `1.20 ms`, `3.4 s`.
pub fn duration(ns: f64) -> String {
    scaled(ns, &TIME_UNITS)
}

/// Two times with their unit once: `26.9 to 28.6 ms`; `980 µs to 1.20 ms` if they have several.
pub(super) fn duration_range(low_ns: u64, high_ns: u64) -> String {
    let [low, high] = [low_ns, high_ns].map(|ns| duration(ns as f64));
    join_with_unit(&low, " to ", &high)
}

/// Two quantities, the unit of the first one left out if it is that of the second.
pub(super) fn join_with_unit(first: &str, between: &str, second: &str) -> String {
    match (first.rsplit_once(' '), second.rsplit_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => {
            format!("{number}{between}{second}")
        }
        _ => format!("{first}{between}{second}"),
    }
}

/// A time and what it becomes, with the interval of that: `33.1 → 27.4 ms (26.9 to 28.6)`.
pub(super) fn duration_change(before_ns: u64, after_ns: u64, interval: Option<[u64; 2]>) -> String {
    let [before, after] = [before_ns, after_ns].map(|ns| duration(ns as f64));
    let mut text = join_with_unit(&before, " → ", &after);
    if let Some([low_ns, high_ns]) = interval {
        let parts = [low_ns, high_ns].map(|ns| duration(ns as f64));
        // An interval that no digit shows is none.
        if parts[0] == parts[1] {
            return text;
        }
        let unit = after.rsplit_once(' ').map(|(_, unit)| unit);
        // The time before the interval has the unit.
        let number = |text: &str| {
            let (number, own) = text.rsplit_once(' ')?;
            (Some(own) == unit).then(|| number.to_owned())
        };
        let range = match parts.each_ref().map(|text| number(text)) {
            [Some(low), Some(high)] => format!("{low} to {high}"),
            _ => duration_range(low_ns, high_ns),
        };
        text += &format!(" ({range})");
    }
    text
}

/// A time of work: `40 s`, `90 min`, `6 h`.
pub fn time_span(seconds: f64) -> String {
    match seconds {
        _ if seconds < 120.0 => format!("{seconds:.0} s"),
        _ if seconds < 10_800.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{} h", (seconds / 360.0).round() / 10.0),
    }
}

/// Bytes as `512 B`, `4.2 MB`, `1.3 GB` (powers of ten).
pub fn bytes(n: f64) -> String {
    scaled(n, &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])
}

/// An amount in US dollars: `$12.30`, `$0.0042`, `< $0.0001`.
pub fn usd(amount: f64) -> String {
    match amount {
        a if a > 0.0 && a < 0.000_05 => "< $0.0001".to_owned(),
        a if a < 1.0 => format!("${a:.4}"),
        a => format!("${a:.2}"),
    }
}

/// The cost of a run; marked "as billed" if `from` (a profile's `cost_from`) is the provider.
pub fn cost(usd_spent: f64, from: Option<&str>) -> String {
    let amount = usd(usd_spent);
    if from == Some("provider") { format!("{amount} as billed") } else { amount }
}

/// A time in RFC 3339 without fractions of a second.
pub fn timestamp(rfc3339: &str) -> String {
    let Some((seconds, rest)) = rfc3339.split_once('.') else { return rfc3339.to_owned() };
    format!("{seconds}{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// A time that has passed, in the unit that fits: `40 s`, `12 min`, `3 h` or `2 days`.
pub fn age(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..=99 => format!("{s} s"),
        s @ 100..=5999 => format!("{} min", s / 60),
        s @ 6000..=172_799 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86400),
    }
}

/// A count: `812`, `25.6 k`, `5.25 M`.
pub(super) fn count_of(n: f64) -> String {
    scaled(n, &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]).trim_end().to_owned()
}

/// An amount: `4.70 GFLOP`.
pub fn amount(x: f64, unit: &str) -> String {
    let text =
        scaled(x, &[(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]);
    format!("{text}{unit}")
}

/// A rate: `3.17 TB/s`, `7.73 TFLOP/s`.
pub fn per_second(x: f64, unit: &str) -> String {
    amount(x, unit) + "/s"
}

/// A percentage: `0.06 %`, `66 %`. Two decimals below ten.
pub fn percent(x: f64) -> String {
    if x.abs() < 9.995 { format!("{x:.2} %") } else { format!("{x:.0} %") }
}

/// A number with the unit that evidence has: times as [`duration`], shares with three digits, and
/// counts as [`count_of`] with their unit: `59.7 µs`, `66.4 %`, `12.5 % of the sectors`,
/// `2.21 M cycles`.
pub(super) fn measured(value: f64, unit: &str) -> String {
    match unit.strip_prefix('%') {
        Some(of) if value.fract() == 0.0 => format!("{value} %{of}"),
        Some(of) if value.abs() < 9.995 => format!("{}{of}", percent(value)),
        Some(of) => format!("{} %{of}", digits(value)),
        None if unit == "ns" => duration(value),
        None => {
            let s = if value != 1.0 && COUNTED_UNITS.contains(&unit) { "s" } else { "" };
            format!("{} {unit}{s}", count_of(value)).trim_end().to_owned()
        }
    }
}

/// The threshold of evidence with its unit. What a share is of is said at the value only.
pub(super) fn threshold(evidence: &Evidence) -> Option<String> {
    let unit = if evidence.unit.starts_with('%') { "%" } else { evidence.unit.as_str() };
    evidence.threshold.map(|threshold| measured(threshold, unit))
}

fn scaled(x: f64, units: &[(f64, &str)]) -> String {
    let fits = units.iter().find(|(scale, _)| x.abs() >= *scale * 0.9995).or(units.last());
    let Some((scale, unit)) = fits else { return digits(x) };
    let value = x / scale;
    let text =
        if *scale == 1.0 && value.fract() == 0.0 { format!("{value}") } else { digits(value) };
    format!("{text} {unit}")
}

/// Three significant digits, two below 0.1; values below 0.001 in exponent form.
pub(super) fn digits(x: f64) -> String {
    match x.abs() {
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        a if a >= 0.0995 || a == 0.0 => format!("{x:.2}"),
        a if a >= 0.009_95 => format!("{x:.3}"),
        a if a >= 0.000_995 => format!("{x:.4}"),
        _ => format!("{x:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_the_unit_that_fits() {
        let age = |seconds| age(Duration::from_secs(seconds));
        assert_eq!(age(40), "40 s");
        assert_eq!(age(12 * 60), "12 min");
        assert_eq!(age(3 * 3600), "3 h");
        assert_eq!(age(2 * 86_400), "2 days");
    }

    #[test]
    fn a_moment_has_whole_seconds() {
        assert_eq!(timestamp("2026-11-21T12:36:03.123456789Z"), "2026-11-21T12:36:03Z");
        assert_eq!(timestamp("2026-11-21T12:36:03.5+01:00"), "2026-11-21T12:36:03+01:00");
        assert_eq!(timestamp("2026-11-21T12:36:03Z"), "2026-11-21T12:36:03Z");
        assert_eq!(timestamp(""), "");
    }

    #[test]
    fn a_unit_is_told_once_where_it_is_the_same() {
        let ms = |ms: f64| (ms * 1e6) as u64;
        assert_eq!(duration_range(ms(26.9), ms(28.6)), "26.9 to 28.6 ms");
        assert_eq!(duration_range(ms(0.98), ms(1.2)), "980 µs to 1.20 ms");
        let change =
            |after, low, high| duration_change(ms(33.1), ms(after), Some([low, high].map(ms)));
        assert_eq!(change(27.4, 26.9, 28.6), "33.1 → 27.4 ms (26.9 to 28.6)");
        assert_eq!(change(1.1, 0.9, 1.2), "33.1 → 1.10 ms (900 µs to 1.20 ms)");
        assert_eq!(change(0.9, 0.8, 1.2), "33.1 ms → 900 µs (800 µs to 1.20 ms)");
        assert_eq!(duration_change(ms(33.1), ms(21.0), None), "33.1 → 21.0 ms");
        assert_eq!(change(27.4, 27.401, 27.404), "33.1 → 27.4 ms");
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit_that_fits() {
        assert_eq!(duration(59_712.0), "59.7 µs");
        assert_eq!(duration(812.0), "812 ns");
        assert_eq!(duration(1.204e6), "1.20 ms");
        assert_eq!(duration(999_990.0), "1.00 ms");
        assert_eq!(bytes(134_227_456.0), "134 MB");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(per_second(3.1697e12, "B"), "3.17 TB/s");
        assert_eq!(per_second(7.73e12, "FLOP"), "7.73 TFLOP/s");
        assert_eq!(digits(0.0), "0.00");
        assert_eq!([0.05, 0.00758, 0.0004].map(digits), ["0.050", "0.0076", "4.0e-4"]);
        assert_eq!(percent(0.057), "0.06 %");
        assert_eq!(percent(66.4), "66 %");
        assert_eq!(measured(3_999.6, "ns"), "4.00 µs");
        assert_eq!(measured(12.46, "% of the sectors"), "12.5 % of the sectors");
        assert_eq!(measured(0.06, "%"), "0.06 %");
        assert_eq!(measured(2_208_143.0, "cycle"), "2.21 M cycles");
        assert_eq!([1.0, 640.0].map(|n| measured(n, "block")), ["1 block", "640 blocks"]);
        assert_eq!(measured(0.5, ""), "0.50");
        let unit = "% of the sectors".to_owned();
        let share = Evidence { value: 12.0, unit, threshold: Some(10.0), ..Evidence::default() };
        assert_eq!(threshold(&share).as_deref(), Some("10 %"));
    }
}
