//! The history of cases: their times over the suites of a project.

use super::change_points::change_points;
use super::index::PointsByKey;
use crate::model::suite_history::{History, SCHEMA, Series};

/// Finds where the times of each key changed by at least the fraction `threshold`.
pub fn history(points: PointsByKey, threshold: f64) -> History {
    let series = points.into_iter().map(|(key, points)| {
        let medians: Vec<f64> = points.iter().map(|point| point.median_ns).collect();
        Series { key, changes: change_points(&medians, threshold), points }
    });
    History { schema: SCHEMA.to_owned(), threshold, series: series.collect() }
}
