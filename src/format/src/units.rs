//! Units of NVIDIA's metrics, which no report holds.
//!
//! A name is `base.rollup.submetric`, such as `dram__bytes.sum.per_second`, or a base alone. The
//! unit of the base is in a table (`units.tsv`: base, tab, unit; read from the unit row that ncu
//! 2025.3 prints with `--page raw --csv --print-units base`); the submetric makes of it a
//! percentage, a rate per second or a rate per cycle.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

const TABLE: &str = include_str!("units.tsv");

fn table() -> &'static HashMap<&'static str, &'static str> {
    static CELL: OnceLock<HashMap<&str, &str>> = OnceLock::new();
    CELL.get_or_init(|| TABLE.lines().filter_map(|line| line.split_once('\t')).collect())
}

/// The base unit of a metric, in NVIDIA's spelling (`byte`, `byte/s`, `inst/cycle`, `%`, `ns`).
///
/// Nothing for metrics without a unit (ratios, enumerations) and for counters that the table lacks.
pub fn metric_unit(name: &str) -> Option<Cow<'static, str>> {
    if let Some(unit) = table().get(name) {
        return Some(Cow::Borrowed(unit));
    }
    let (base, suffix) = split(name);
    if suffix.split('.').any(|part| part.starts_with("pct")) {
        return Some(Cow::Borrowed("%"));
    }
    let last = suffix.rsplit('.').next().unwrap_or_default();
    // A ratio's own unit is in the table under its whole name, if it has one.
    if last == "ratio" || last == "max_rate" {
        return None;
    }
    let unit = *table().get(base)?;
    if last == "per_second" {
        return Some(Cow::Owned(format!("{unit}/s")));
    }
    if last.starts_with("per_cycle") || last.starts_with("peak_sustained") {
        return Some(Cow::Owned(format!("{unit}/cycle")));
    }
    Some(Cow::Borrowed(unit))
}

/// The base and the rest. PM sampling puts a group before the base: `TPC.TriageCompute.sm__…`.
fn split(name: &str) -> (&str, &str) {
    let from = name.find("__").unwrap_or(0);
    match name.get(from..).and_then(|rest| rest.find('.')) {
        Some(dot) => name.split_at(from + dot),
        None => (name, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_has_no_name_twice() {
        let names: Vec<_> = TABLE.lines().map(|line| line.split_once('\t').unwrap().0).collect();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn units_follow_from_the_base_and_the_submetric() {
        let unit = |name| metric_unit(name).unwrap_or_default().into_owned();
        assert_eq!(unit("gpu__time_duration.sum"), "ns");
        assert_eq!(unit("dram__bytes.sum.per_second"), "byte/s");
        assert_eq!(unit("smsp__inst_executed.avg.per_cycle_active"), "inst/cycle");
        assert_eq!(unit("sm__throughput.avg.pct_of_peak_sustained_elapsed"), "%");
        assert_eq!(unit("launch__registers_per_thread"), "register/thread");
        assert_eq!(unit("lts__t_sector_hit_rate.pct"), "%");
        assert_eq!(unit("SM_A.TriageAC.sm__cycles_active.avg"), "cycle");
        assert_eq!(unit("launch__waves_per_multiprocessor"), "");
        assert_eq!(unit("nobody__knows.sum"), "");
    }
}
