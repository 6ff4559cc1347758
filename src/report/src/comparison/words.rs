//! Texts of a comparison that the terminal and the Markdown rendering share: one number, name or
//! note each, and the tables of ranks and causes.

use crate::quantity::{bytes, digits, duration, per_second, percent};
use crate::{KernelNames, TextTable};
use rgpu_model::Comparison;
use rgpu_model::comparison::{AccountChange, ChangeEffect, JoinedBy, PartChange};
use rgpu_model::comparison::{KernelChange, MetricChange, SideTime, TimeChange};
use rgpu_model::profile::Gap;

/// The maximum number of metrics shown per kernel; `compare.json` has all.
pub(super) const MAX_METRICS: usize = 12;

/// A factor with three decimals, such as `1.980×`.
pub(super) fn factor(x: f64) -> String {
    format!("{x:.3}×")
}

/// The 95 % interval, `1.95 – 2.01`; empty if there is none.
pub(super) fn interval(time: &TimeChange) -> String {
    time.ci95.map_or(String::new(), |[low, high]| format!("{low:.3} – {high:.3}"))
}

/// A median with half the width of its interval: `80.3 µs ± 0.4 %`.
pub(super) fn side(time: &SideTime) -> String {
    let median = duration(time.median_ns);
    match time.ci95_ns {
        Some([low, high]) if time.median_ns > 0.0 => {
            let half = (high - low) / 2.0 / time.median_ns * 100.0;
            format!("{median} ± {half:.1} %")
        }
        _ => median,
    }
}

/// `5 launches each`, `3 and 31 launches`.
pub(super) fn launches([a, b]: [u64; 2]) -> String {
    if a == b {
        format!("{a} launch{} each", if a == 1 { "" } else { "es" })
    } else {
        format!("{a} and {b} launches")
    }
}

/// The kernel's name, or both names if they differ.
pub(super) fn kernel(change: &KernelChange, names: KernelNames) -> String {
    let name = names.name(&change.kernel);
    match &change.kernel_b {
        Some(other) => format!("{name} → {}", names.name(other)),
        None => name,
    }
}

/// The label of a gap: `launches` for notes about which launches were compared, else `missing`.
pub(super) fn gap_label(gap: &Gap) -> &'static str {
    match gap.code.as_str() {
        "launch_counts" | "one_side_only" => "launches",
        _ => "missing",
    }
}

/// How the kernels of the two sides were matched; `None` if by name and geometry.
pub(super) fn join_note(change: &KernelChange) -> Option<String> {
    match change.joined_by {
        JoinedBy::Name => {
            let shape = |g: &rgpu_model::comparison::Geometry| {
                let dims = |d: [u32; 3]| format!("{}×{}×{}", d[0], d[1], d[2]);
                format!("{} blocks of {}", dims(g.grid), dims(g.block))
            };
            let (a, b) = (shape(&change.geometry_a), shape(&change.geometry_b));
            Some(format!("geometry changed: {a} → {b}"))
        }
        JoinedBy::Alone => {
            Some("compared as one kernel: the only unmatched one on each side".to_owned())
        }
        _ => None,
    }
}

/// A number in its unit. The unit `way` is that of bank conflicts: one way is no conflict.
pub(super) fn value(x: f64, unit: &str) -> String {
    match unit {
        "%" => percent(x),
        "byte" | "byte/block" => bytes(x),
        "ns" => duration(x),
        "byte/s" => per_second(x, "B"),
        "hz" => per_second(x, "cycle"),
        "way" if x < 1.5 => "none".to_owned(),
        "way" => format!("{x:.0}-way"),
        _ if x.fract() == 0.0 && x.abs() < 1e6 => format!("{x}"),
        _ if x.abs() >= 1e6 => format!("{x:.3e}"),
        _ => digits(x),
    }
}

/// The change of a number: percentage points for percentages, else relative.
pub(super) fn change(m: &MetricChange) -> String {
    match m.unit.as_str() {
        "%" => format!("{:+.1} points", m.b - m.a).replace('-', "−"),
        _ if m.a == 0.0 => String::new(),
        _ => format!("{:+.1} %", (m.b - m.a) / m.a * 100.0).replace('-', "−"),
    }
}

/// `better` or `worse`; empty for a neutral change.
pub(super) fn effect(m: &MetricChange) -> String {
    if m.change == ChangeEffect::Neutral { String::new() } else { m.change.to_string() }
}

/// The times of each rank on both sides, as `a → b`; [`rgpu_model::ranks::RankTime`] says what
/// each column means.
pub(super) fn rank_changes(c: &Comparison) -> TextTable {
    let pair = |[a, b]: [u64; 2]| match (a, b) {
        (0, 0) => String::new(),
        _ => format!("{} → {}", duration(a as f64), duration(b as f64)),
    };
    TextTable::of(
        &c.ranks,
        &[
            ("rank", &|rank| format!("rank {}", rank.rank)),
            ("span:", &|rank| pair(rank.span_ns)),
            ("compute:", &|rank| pair(rank.compute_ns)),
            ("exposed:", &|rank| pair(rank.exposed_ns)),
            ("idle:", &|rank| pair(rank.idle_ns)),
            ("waited:", &|rank| pair(rank.waited_ns)),
            ("late:", &|rank| pair(rank.late_ns)),
        ],
    )
}

/// The least change of a cause that a screen shows, as a part of the time of the base.
const LEAST_CHANGE: f64 = 0.005;

/// The whole time and the causes that changed, largest change first; all of them if `is_whole`.
pub(super) fn account_changes(
    account: &AccountChange,
    names: KernelNames,
    is_whole: bool,
) -> TextTable {
    let least = account.ns[0].max(account.ns[1]) as f64 * LEAST_CHANGE;
    let grew = |[a, b]: [u64; 2]| i64::try_from(i128::from(b) - i128::from(a)).unwrap_or(i64::MAX);
    let whole =
        PartChange { ns: account.ns, difference_ns: grew(account.ns), ..PartChange::default() };
    let changed = account.parts.iter();
    let changed =
        changed.filter(|part| is_whole || part.difference_ns.unsigned_abs() as f64 >= least);
    let rows = std::iter::once((true, &whole)).chain(changed.map(|part| (false, part)));
    TextTable::of(
        rows.collect::<Vec<_>>(),
        &[
            ("", &|(is_whole, part)| {
                if *is_whole { "all".to_owned() } else { part.cause.words().to_owned() }
            }),
            ("a:", &|(_, part)| duration(part.ns[0] as f64)),
            ("b:", &|(_, part)| duration(part.ns[1] as f64)),
            ("change:", &|(_, part)| {
                let sign = if part.difference_ns < 0 { "−" } else { "+" };
                format!("{sign}{}", duration(part.difference_ns.unsigned_abs() as f64))
            }),
            ("most in", &|(_, part)| {
                if part.cause.is_gpu() { names.name(&part.row) } else { part.row.clone() }
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::account::AccountCause;

    #[test]
    fn a_change_of_the_account_is_told_by_cause() {
        let part = |cause, ns: [u64; 2], row: &str| {
            let difference_ns = ns[1] as i64 - ns[0] as i64;
            PartChange { cause, ns, difference_ns, row: row.to_owned() }
        };
        let account = AccountChange {
            ns: [12_000_000, 9_100_000],
            parts: vec![
                part(AccountCause::CopyPageable, [3_000_000, 0], "HtoD"),
                part(AccountCause::Host, [100_000, 200_000], "train.py(12): load"),
                part(AccountCause::Cast, [1_000, 2_000], "cast"),
            ],
            ..AccountChange::default()
        };
        let rows = |is_whole| {
            let text = account_changes(&account, KernelNames::Full, is_whole).plain(120, 0);
            let lines = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "));
            lines.collect::<Vec<_>>()
        };
        let expected = [
            "a b change most in",
            "all 12.0 ms 9.10 ms −2.90 ms",
            "copies, pageable memory 3.00 ms 0 ns −3.00 ms HtoD",
            "host work 100 µs 200 µs +100 µs train.py(12): load",
        ];
        assert_eq!(rows(false), expected);
        assert_eq!(rows(true).len(), 5);
    }
}
