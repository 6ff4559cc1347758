//! The history of cases: their times over the suites of a project.

use super::change_points::change_points;
use crate::model::suite::MeasurementKey;
use crate::model::suite_history::{History, HistoryPoint, SCHEMA, Series};

/// Groups points, oldest first, by key, and finds where the times changed by at least the fraction
/// `threshold`.
pub fn history(points: Vec<HistoryPoint>, threshold: f64) -> History {
    let mut by_key: std::collections::BTreeMap<MeasurementKey, Vec<HistoryPoint>> =
        Default::default();
    for point in points {
        by_key.entry(point.key.clone()).or_default().push(point);
    }
    let series = by_key.into_iter().map(|(key, points)| {
        let medians: Vec<f64> = points.iter().map(|point| point.median_ns).collect();
        Series { key, changes: change_points(&medians, threshold), points }
    });
    History { schema: SCHEMA.to_owned(), threshold, series: series.collect() }
}
