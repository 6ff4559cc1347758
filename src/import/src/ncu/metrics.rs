//! The scalar metrics of a result, and the names of metrics without a value.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rgpu_format::ncu_rep::{self, MetricValue};

use super::launch::ReportContext;
use crate::Detail;
use rgpu_model::profile::Gap;
use rgpu_model::{Metric, SharedText, Value};

/// Metrics that the report lists without a usable number.
#[derive(Debug, Default)]
pub(super) struct AbsentMetrics {
    /// Metrics that are NaN or infinite.
    pub(super) not_finite: BTreeSet<String>,
    /// Metrics for which ncu has "no data".
    pub(super) no_value: BTreeSet<String>,
}

/// The units of the metrics read so far. Most launches of a report have the same metrics in the
/// same order, so the next one is mostly the one after the last.
#[derive(Debug, Default)]
pub(super) struct KnownUnits {
    /// Names with their units, in the order of the first launch.
    units: Vec<(SharedText, SharedText)>,
    by_name: HashMap<SharedText, usize>,
    next: usize,
}

impl KnownUnits {
    /// The name and the unit of a metric.
    fn name_and_unit(&mut self, metric: &ncu_rep::Metric<'_>) -> (SharedText, SharedText) {
        let name = metric.name();
        let at = if self.units.get(self.next).is_some_and(|(next, _)| *next == name) {
            self.next
        } else {
            self.by_name.get(name).copied().unwrap_or_else(|| {
                let name = SharedText::from(name);
                let unit = metric.unit().unwrap_or_default();
                self.by_name.insert(name.clone(), self.units.len());
                self.units.push((name, unit.as_ref().into()));
                self.units.len() - 1
            })
        };
        self.next = if at + 1 < self.units.len() { at + 1 } else { 0 };
        self.units[at].clone()
    }
}

/// The order by name of the last launch's metrics. Most launches of a report have the same metrics
/// in the same order, so that they are not sorted again.
#[derive(Debug, Default)]
pub(super) struct KnownOrder {
    /// The numbers of the names, in the order of the report.
    names: Vec<u32>,
    /// Places in `names`, by name. Of a name that occurs twice, the first.
    by_name: Vec<usize>,
}

impl KnownOrder {
    /// A map of the metrics, whose names have the numbers `names`.
    fn sort(
        &mut self,
        names: Vec<u32>,
        metrics: Vec<(SharedText, Metric)>,
    ) -> BTreeMap<SharedText, Metric> {
        if names != self.names {
            let name = |at: &usize| metrics.get(*at).map(|(name, _)| name);
            self.by_name = (0..metrics.len()).collect();
            self.by_name.sort_by(|a, b| name(a).cmp(&name(b)));
            self.by_name.dedup_by(|later, first| name(later) == name(first));
            self.names = names;
        }
        let mut metrics: Vec<_> = metrics.into_iter().map(Some).collect();
        // A map made of sorted names takes half the time of one that grows.
        self.by_name.iter().filter_map(|at| metrics.get_mut(*at)?.take()).collect()
    }
}

impl AbsentMetrics {
    /// Adds those of other results.
    pub(super) fn append(&mut self, mut other: AbsentMetrics) {
        self.not_finite.append(&mut other.not_finite);
        self.no_value.append(&mut other.no_value);
    }

    /// One gap for each kind of absence, with all the metrics' names. ncu's set `full` asks for two
    /// metrics that never have a value; they are no gap.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        const NEVER_THERE: &str = "sass__inst_executed_register_spilling_mem_";
        let kinds = [
            ("nan_metric", "without a finite value", &self.not_finite),
            ("no_data_metric", "without a value", &self.no_value),
        ];
        let told = kinds.into_iter().filter_map(|(code, what, names)| {
            let names = names.iter().filter(|name| !name.starts_with(NEVER_THERE));
            let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
            let subject = match names.len() {
                0 => return None,
                1 => "one metric of the report".to_owned(),
                several => format!("{several} metrics of the report"),
            };
            let text = format!("{subject} {what}: {}", names.join(", "));
            Some(Gap { code: code.to_owned(), text })
        });
        told.collect()
    }
}

/// All scalars by name, for a summary as numbers alone. For a name that occurs twice the first
/// value is used, as on ncu's own pages.
pub(super) fn import(
    listed: &[ncu_rep::Metric<'_>],
    from: &str,
    known: &mut ReportContext<'_>,
    detail: Detail,
) -> BTreeMap<SharedText, Metric> {
    let (from, nothing) = (SharedText::from(from), SharedText::default());
    let mut metrics = Vec::with_capacity(listed.len());
    let mut names = Vec::with_capacity(listed.len());
    for metric in listed.iter().filter(|metric| !is_list(metric.name())) {
        if is_sum_of_shares(metric.name()) {
            continue;
        }
        let name = metric.name();
        let value = match metric.value() {
            MetricValue::Missing => {
                // A series over time has several values and no scalar; see `series`.
                if metric.instances().next().is_none() {
                    known.absent.no_value.insert(name.to_owned());
                }
                continue;
            }
            MetricValue::Text(text) => Value::Text(text.clone().into_owned()),
            MetricValue::Uint32(value) => Value::Int(u64::from(*value)),
            MetricValue::Uint64(value) => Value::Int(*value),
            MetricValue::Float(_) | MetricValue::Double(_) => match metric.value().finite() {
                Some(value) => Value::Float(value),
                None => {
                    // A step of ncu's own arithmetic without a number is no missing measurement.
                    if !name.starts_with("derived_tempMetric") {
                        known.absent.not_finite.insert(name.to_owned());
                    }
                    continue;
                }
            },
        };
        let (name, unit) = known.units.name_and_unit(metric);
        let (unit, from) = match detail {
            Detail::Full => (unit, from.clone()),
            Detail::Summary => (nothing.clone(), nothing.clone()),
        };
        names.push(metric.name_number());
        metrics.push((name, Metric { value, unit, from }));
    }
    known.order.sort(names, metrics)
}

/// Whether a metric is a curve of ncu's occupancy calculator, a share for each block size or number
/// of registers. Its scalar is their sum, thousands of percent.
fn is_sum_of_shares(name: &str) -> bool {
    name.starts_with("derived__pct_occupancy_per_")
}

/// Whether a metric is a list of parts (`breakdown:…`, `group:…`).
fn is_list(name: &str) -> bool {
    name.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_sorted_by_name_and_the_first_of_one_name_is_kept() {
        let mut order = KnownOrder::default();
        let names = ["b", "a", "b", "c"];
        let mut sorted = |numbers: &[u32], first: u64| {
            let metrics = numbers
                .iter()
                .zip(first..)
                .map(|(number, value)| (names[*number as usize].into(), Value::Int(value).into()));
            let map = order.sort(numbers.to_vec(), metrics.collect());
            let values = map.into_iter().map(|(name, metric)| (name, metric.value.as_f64()));
            values.map(|(name, value)| format!("{name} {}", value.unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(sorted(&[0, 1, 2], 0), ["a 1", "b 0"]);
        assert_eq!(sorted(&[0, 1, 2], 10), ["a 11", "b 10"]);
        assert_eq!(sorted(&[3, 1, 2], 20), ["a 21", "b 22", "c 20"]);
        assert_eq!(sorted(&[0, 1], 30), ["a 31", "b 30"]);
    }

    #[test]
    fn absent_metrics_are_counted_without_those_that_are_never_there() {
        let mut absent = AbsentMetrics::default();
        let spilling = "sass__inst_executed_register_spilling_mem_local";
        absent.no_value.insert(spilling.to_owned());
        assert!(absent.gaps().is_empty());
        absent.no_value.insert("lts__ltcfabric2lts_cycles_active.sum".to_owned());
        let texts: Vec<String> = absent.gaps().into_iter().map(|gap| gap.text).collect();
        let expected =
            "one metric of the report without a value: `lts__ltcfabric2lts_cycles_active.sum`";
        assert_eq!(texts, [expected]);
        absent.no_value.insert("a".to_owned());
        assert!(absent.gaps()[0].text.starts_with("2 metrics of the report without a value: `a`"));
    }
}
