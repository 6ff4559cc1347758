//! The history of cases: their times over the suites of a project.

use super::change_points::change_points;
use super::index::PointsByKey;
use rgpu_model::suite::MeasurementKey;
use rgpu_model::suite_history::{EarlierChange, History, HistoryPoint, SCHEMA, Series};

/// Finds where the times of each key changed by at least the fraction `threshold`. Only points and
/// changes from the time `since` (RFC 3339) on are kept, and the newest change before it. Changes
/// are looked for in all points: the first ones of a new level may stand before `since`.
pub fn history(points: PointsByKey, threshold: f64, since: Option<&str>) -> History {
    let series = points.into_iter().map(|(key, points)| series(key, points, threshold, since));
    let series = series.filter(|series| !series.points.is_empty()).collect();
    History { schema: SCHEMA.to_owned(), threshold, series }
}

fn series(
    key: MeasurementKey,
    mut points: Vec<HistoryPoint>,
    threshold: f64,
    since: Option<&str>,
) -> Series {
    // As `compare` does: a time between events has a part that is not the kernel's.
    let in_graphs: Option<Vec<f64>> = points.iter().map(|point| point.graph_ns).collect();
    let is_in_graphs = in_graphs.is_some();
    let events = || points.iter().map(|point| point.median_ns).collect();
    let mut changes = change_points(&in_graphs.unwrap_or_else(events), threshold);
    let is_earlier =
        |point: &HistoryPoint| since.is_some_and(|since| point.started.as_str() < since);
    let first = points.partition_point(is_earlier);
    let first_change = changes.partition_point(|change| change.at < first);
    let earlier_change = changes.drain(..first_change).next_back().map(|change| EarlierChange {
        run: points[change.at].run.clone(),
        started: points[change.at].started.clone(),
        before: change.before,
        after: change.after,
        p: change.p,
    });
    changes.iter_mut().for_each(|change| change.at -= first);
    Series {
        key,
        points: points.split_off(first),
        in_graphs: is_in_graphs,
        changes,
        earlier_points: first,
        earlier_change,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 suites of one level, then 12 of another, one each day.
    fn points() -> PointsByKey {
        let point = |n: u32| HistoryPoint {
            run: format!("night-{n}"),
            started: format!("2026-{:02}-{:02}T18:00:00Z", 1 + n / 28, 1 + n % 28),
            median_ns: if n < 20 { 100.0 } else { 110.0 } + f64::from(n % 3) * 0.1,
            ..HistoryPoint::default()
        };
        PointsByKey::from([(MeasurementKey::default(), (0..32).map(point).collect())])
    }

    fn since(started: &str) -> Option<Series> {
        history(points(), 0.01, Some(started)).series.pop()
    }

    #[test]
    fn a_change_at_the_edge_of_the_window_is_found() {
        let all = history(points(), 0.01, None).series.pop().unwrap();
        assert_eq!((all.points.len(), all.earlier_points, all.earlier_change), (32, 0, None));
        assert_eq!(all.changes.iter().map(|change| change.at).collect::<Vec<_>>(), [20]);
        // The first point of the window is the first of the new level.
        let shown = since("2026-01-21").unwrap();
        assert_eq!((shown.points.len(), shown.earlier_points), (12, 20));
        assert_eq!((shown.changes[0].at, shown.points[0].run.as_str()), (0, "night-20"));
        assert_eq!((shown.changes[0].before, shown.changes[0].after), (100.1, 110.1));
        assert_eq!(shown.earlier_change, None);
    }

    #[test]
    fn short_kernels_are_judged_by_their_times_in_graphs_if_all_suites_have_them() {
        let mut of_graphs = points();
        for point in of_graphs.values_mut().flatten() {
            point.graph_ns = Some(50.0);
        }
        let series = history(of_graphs.clone(), 0.01, None).series.pop().unwrap();
        assert!(series.in_graphs && series.changes.is_empty(), "{series:?}");
        assert_eq!(series.judged_ns(&series.points[0]), 50.0);
        of_graphs.values_mut().for_each(|points| points[3].graph_ns = None);
        let series = history(of_graphs, 0.01, None).series.pop().unwrap();
        assert_eq!((series.in_graphs, series.changes.len()), (false, 1));
        assert_eq!(series.judged_ns(&series.points[0]), 100.0);
    }

    #[test]
    fn a_change_before_the_window_tells_since_when_the_level_is() {
        let shown = since("2026-01-22").unwrap();
        assert_eq!((shown.points.len(), shown.changes.len()), (11, 0));
        let change = shown.earlier_change.unwrap();
        assert_eq!((change.run.as_str(), change.after), ("night-20", 110.1));
        assert!(since("2026-03-01").is_none(), "no point is so new");
    }
}
