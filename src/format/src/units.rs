//! Units of NVIDIA's metrics, which reports do not contain.
//!
//! A name is `base.rollup.submetric`, such as `dram__bytes.sum.per_second`, or a base alone. A
//! table gives the unit of the base (`units.tsv`: base, tab, unit; from the unit row that ncu
//! 2025.3 prints with `--page raw --csv --print-units base`). The submetric turns it into a
//! percentage, a rate per second or a rate per cycle.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

const TABLE: &str = include_str!("units.tsv");

fn table() -> &'static HashMap<&'static str, &'static str> {
    static CELL: OnceLock<HashMap<&str, &str>> = OnceLock::new();
    CELL.get_or_init(|| TABLE.lines().filter_map(|line| line.split_once('\t')).collect())
}

/// The base unit of a metric, in NVIDIA's spelling (`byte`, `byte/s`, `inst/cycle`, `%`, `ns`,
/// `hz`).
///
/// `None` for metrics without a unit (ratios, enumerations) and for counters that the table lacks.
pub fn metric_unit(name: &str) -> Option<Cow<'static, str>> {
    if let Some(unit) = table().get(name) {
        return Some(Cow::Borrowed(unit));
    }
    let (group, base, suffix) = split(name);
    if suffix.split('.').any(|part| part.starts_with("pct")) {
        return Some(Cow::Borrowed("%"));
    }
    let last = suffix.rsplit('.').next().unwrap_or_default();
    if last == "ratio" || last == "max_rate" {
        // The unit of a ratio is in the table under its full name, if it has one.
        return table().get(format!("{base}.ratio").as_str()).copied().map(Cow::Borrowed);
    }
    let whole = name.get(..group.len() + base.len()).unwrap_or(name);
    let unit = *table().get(whole).or_else(|| table().get(base))?;
    let per_cycle = last.starts_with("per_cycle") || last.starts_with("peak_sustained");
    match unit {
        // ncu prints no unit for this one, though it does without the group.
        "" => None,
        "cycle" if last == "per_second" => Some(Cow::Borrowed("hz")),
        "cycle" if per_cycle => None,
        // Counted in every cycle: warps per cycle are the resident warps.
        _ if per_cycle && base.contains("__warps_") => Some(Cow::Borrowed(unit)),
        _ if per_cycle => Some(Cow::Owned(format!("{unit}/cycle"))),
        _ if last == "per_second" => Some(Cow::Owned(format!("{unit}/s"))),
        _ => Some(Cow::Borrowed(unit)),
    }
}

/// The group, the base and the rest. PM sampling puts a group of counters before the base, as in
/// `TPC.TriageCompute.sm__cycles_active.avg`.
fn split(name: &str) -> (&str, &str, &str) {
    let mark = name.find("__").unwrap_or(name.len());
    let start = name.get(..mark).and_then(|before| before.rfind('.')).map_or(0, |dot| dot + 1);
    let (group, rest) = name.split_at(start);
    let (base, suffix) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
    (group, base, suffix)
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
        assert_eq!(unit("sm__cycles_elapsed.avg.per_second"), "hz");
        assert_eq!(unit("sm__warps_active.avg.per_cycle_active"), "warp");
        assert_eq!(unit("launch__waves_per_multiprocessor"), "");
        assert_eq!(unit("nobody__knows.sum"), "");
    }
}
