//! The scalars of a result, and the names of those that have none.

use std::collections::{BTreeMap, BTreeSet};

use rgpu_format::ncu_rep::{MetricValue, NcuResult};

use crate::model::profile::Gap;
use crate::model::{Metric, Value};

/// Metrics that the report names without a number that can be used.
#[derive(Debug, Default)]
pub(super) struct AbsentMetrics {
    /// Not a number, or infinite.
    pub(super) not_finite: BTreeSet<String>,
    /// ncu's "no data".
    pub(super) no_value: BTreeSet<String>,
}

impl AbsentMetrics {
    /// One gap for each kind, naming every metric.
    pub(super) fn gaps(&self) -> Vec<Gap> {
        let kinds = [
            ("nan_metric", "are not finite numbers in the report", &self.not_finite),
            ("no_data_metric", "have no value in the report", &self.no_value),
        ];
        let told = kinds.into_iter().filter(|(_, _, names)| !names.is_empty());
        told.map(|(code, what, names)| {
            let list = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            Gap { code: code.to_owned(), text: format!("{} metrics {what}: {list}", names.len()) }
        })
        .collect()
    }
}

/// All scalars by name. A name that occurs twice keeps its first value, which is the one that
/// ncu's own pages show.
pub(super) fn import(
    result: &NcuResult<'_>,
    from: &str,
    absent: &mut AbsentMetrics,
) -> BTreeMap<String, Metric> {
    let mut metrics = BTreeMap::new();
    for metric in result.metrics().filter(|metric| !is_internal(metric.name())) {
        let name = metric.name().to_owned();
        let value = match metric.value() {
            MetricValue::Missing => {
                // A series over time has values and no single one.
                if metric.instances().next().is_none() {
                    absent.no_value.insert(name);
                }
                continue;
            }
            MetricValue::Text(text) => Value::Text(text.clone().into_owned()),
            MetricValue::Uint32(value) => Value::Int(u64::from(*value)),
            MetricValue::Uint64(value) => Value::Int(*value),
            MetricValue::Float(_) | MetricValue::Double(_) => match metric.value().finite() {
                Some(value) => Value::Float(value),
                None => {
                    absent.not_finite.insert(name);
                    continue;
                }
            },
        };
        let unit = metric.unit().unwrap_or_default().into_owned();
        metrics.entry(name).or_insert(Metric { value, unit, from: from.to_owned() });
    }
    metrics
}

/// Lists of parts (`breakdown:…`, `group:…`) and the steps of ncu's own arithmetic.
fn is_internal(name: &str) -> bool {
    name.contains(':') || name.starts_with("derived_tempMetric")
}
