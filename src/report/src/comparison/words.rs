//! Texts of a comparison that the terminal and the Markdown rendering share: one number, name or
//! note each, and the table of ranks.

use crate::quantity::{bytes, digits, duration, per_second, percent};
use crate::{KernelNames, TextTable};
use rgpu_model::Comparison;
use rgpu_model::comparison::{ChangeEffect, JoinedBy};
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
