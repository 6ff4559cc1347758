//! The history of a suite's times, for a terminal and as a page.

use std::path::Path;

use super::case_names::sizes_without_axes;
use super::plot::{HorizontalAxis, PlotPoint, PlotSeries, page, project_name, svg};
use crate::html::{escape, unbroken};
use crate::quantity::{duration, timestamp};
use crate::text::wrap;
use crate::{Style, TextTable, verdict_color};
use rgpu_model::comparison::TimeVerdict;
use rgpu_model::number_form::by_number;
use rgpu_model::suite_history::{ChangePoint, EarlierChange, History, MIN_POINTS, Series};

/// The maximum number of points of a series in a terminal.
const MAX_SHOWN_POINTS: usize = 30;

/// Says which times of a short kernel a series has.
const IN_GRAPHS: &str = "times in a CUDA graph";

/// The key in one line, with the clock of its times if that is not CUDA events.
fn series_title(series: &Series) -> String {
    let key = &series.key;
    let sizes = sizes_without_axes(&key.sizes, &key.case);
    let words = [
        key.case.as_str(),
        if key.side == "kernel" { "" } else { &key.side },
        &sizes,
        &key.gpu,
        &key.toolkit,
    ];
    let driver = format!("driver {}", key.driver);
    let timed = if series.in_graphs { IN_GRAPHS } else { "" };
    let clocks = match key.clocks.as_str() {
        "as_found" => "clocks not locked".to_owned(),
        "" => String::new(),
        policy => format!("clocks {policy}"),
    };
    let words = words.into_iter().chain([driver.as_str(), &clocks, timed]);
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" · ")
}

/// Says that a series is too short for a change to be found; `None` if it is not.
fn too_short_text(series: &Series) -> Option<String> {
    let count = series.earlier_points + series.points.len();
    (count < MIN_POINTS)
        .then(|| format!("no change can be found yet: {count} of at least {MIN_POINTS} runs"))
}

/// A change in words: `+5.0 %`.
fn change(before: f64, after: f64) -> String {
    format!("{:+.1} %", (after / before - 1.0) * 100.0)
}

/// The verdict on a change that was found.
fn verdict_of(before: f64, after: f64) -> TimeVerdict {
    if after > before { TimeVerdict::Slower } else { TimeVerdict::Faster }
}

/// A change as told below the points of a series.
struct ChangeLine {
    /// When it was, in words.
    lead: String,
    before: f64,
    after: f64,
    p: f64,
}

/// The changes of a series. If the newest level began before the first point, the change to it.
fn change_lines(series: &Series) -> Vec<ChangeLine> {
    let line = |change: &ChangePoint| {
        let run = series.points.get(change.at).map(|point| point.run.as_str());
        let lead = format!("changed at {}", run.unwrap_or_default());
        ChangeLine { lead, before: change.before, after: change.after, p: change.p }
    };
    let mut lines: Vec<ChangeLine> = series.changes.iter().map(line).collect();
    if let Some(earlier) = series.earlier_change.as_ref().filter(|_| lines.is_empty()) {
        let lead = format!("at this level since {} of {}", earlier.run, date(&earlier.started));
        let EarlierChange { before, after, p, .. } = *earlier;
        lines.push(ChangeLine { lead, before, after, p });
    }
    lines
}

/// The date of a time in RFC 3339.
fn date(rfc3339: &str) -> &str {
    rfc3339.get(..10).unwrap_or(rfc3339)
}

/// The hour and minute of a time in RFC 3339.
fn minute(rfc3339: &str) -> &str {
    rfc3339.get(11..16).unwrap_or(rfc3339)
}

/// Where each point of a series stands on the axis: seconds since the first. If a time cannot be
/// read, they stand one after the other.
fn axis_places(series: &Series) -> Vec<f64> {
    let seconds = |started: &str| {
        let moment: jiff::Timestamp = started.parse().ok()?;
        Some(moment.as_second() as f64)
    };
    let read: Option<Vec<f64>> = series.points.iter().map(|p| seconds(&p.started)).collect();
    match read {
        Some(read) => read.iter().map(|at| at - read[0]).collect(),
        None => (0..series.points.len()).map(|at| at as f64).collect(),
    }
}

/// Renders the history for a terminal.
pub fn history_table(history: &History, style: &Style) -> String {
    let mut out = String::new();
    for series in &history.series {
        let title = wrap(&series_title(series), style.table_width);
        title.iter().for_each(|line| out += &format!("{line}\n"));
        let mut table =
            TextTable::new("started | time: | interval | device | commit | change | run");
        let skipped = series.points.len().saturating_sub(MAX_SHOWN_POINTS);
        for (at, point) in series.points.iter().enumerate().skip(skipped) {
            let changed = series.changes.iter().find(|change| change.at == at);
            let interval = series.judged_interval(point);
            let interval =
                interval.map(|[low, high]| format!("{} – {}", duration(low), duration(high)));
            table.add_row([
                timestamp(&point.started),
                duration(series.judged_ns(point)),
                interval.unwrap_or_default(),
                point.device.get(..12).unwrap_or(&point.device).to_owned(),
                point.commit.get(..9).unwrap_or(&point.commit).to_owned()
                    + if point.dirty { "+" } else { "" },
                changed.map(|c| change(c.before, c.after)).unwrap_or_default(),
                point.run.clone(),
            ]);
        }
        let width = style.table_width;
        let spare = ["device", "interval", "commit"];
        let table = table.without_empty_columns();
        out += &table.with_room(width.saturating_sub(2), usize::MAX, &spare).fitted(width, 2);
        if skipped > 0 {
            let are = by_number(skipped, "older one is", "older ones are");
            out += &format!("  {skipped} {are} in `--format json` and `html`\n");
        }
        if let Some(text) = too_short_text(series) {
            out += &format!("  {text}\n");
        }
        for ChangeLine { lead, before, after, p } in change_lines(series) {
            let color = verdict_color(verdict_of(before, after).as_str());
            let text = format!(
                "{lead}: {} to {} ({}), p = {p:.1e}",
                duration(before),
                duration(after),
                style.paint(color.unwrap_or_default(), &change(before, after)),
            );
            let lines = wrap(&text, style.table_width.saturating_sub(4));
            out += &format!("  {}\n", lines.join("\n    "));
        }
        out.push('\n');
    }
    out
}

/// Renders the history of a project as a page.
pub fn history_page(history: &History, project: &Path) -> String {
    let title = format!("History of {}", project_name(project));
    let mut body = format!("<h1>{}</h1>\n", escape(&title));
    for series in &history.series {
        let places = axis_places(series);
        let point = |(at, point): (usize, &rgpu_model::suite_history::HistoryPoint)| PlotPoint {
            x: places[at],
            y: series.judged_ns(point),
            interval: series.judged_interval(point),
            title: format!(
                "{} · {} · {} · {} · {}",
                timestamp(&point.started),
                point.run,
                duration(series.judged_ns(point)),
                point.commit.get(..12).unwrap_or(&point.commit),
                point.device
            ),
            marked: series.changes.iter().any(|change| change.at == at),
        };
        let points = series.points.iter().enumerate().map(point).collect();
        let line = PlotSeries { name: String::new(), points };
        // Sessions of one day have the day once, in the name of the axis.
        let first = series.points.first().map(|point| date(&point.started)).unwrap_or_default();
        let is_one_day = series.points.iter().all(|point| date(&point.started) == first);
        let label = |x: f64| {
            let at = places.iter().position(|place| *place == x);
            let started = at.map(|at| series.points[at].started.as_str()).unwrap_or_default();
            if is_one_day { minute(started) } else { date(started) }.to_owned()
        };
        let name = if is_one_day {
            format!("start of the suite on {first}, UTC")
        } else {
            "start of the suite, UTC".to_owned()
        };
        let axis = HorizontalAxis { name: &name, label: &label };
        body += &format!(
            "<h2>{}</h2>\n{}\n",
            escape(&series_title(series)),
            svg(&[line], &axis, duration)
        );
        if let Some(text) = too_short_text(series) {
            body += &format!("<p>{}</p>\n", escape(&text));
        }
        for ChangeLine { lead, before, after, .. } in change_lines(series) {
            let class = match verdict_of(before, after) {
                TimeVerdict::Slower => "bad",
                _ => "good",
            };
            body += &format!(
                "<p class=\"{class}\">{}: {} to {} ({})</p>\n",
                escape(&lead),
                unbroken(&duration(before)),
                unbroken(&duration(after)),
                unbroken(&change(before, after))
            );
        }
    }
    page(&format!("{title} · rgpu bench"), &body, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::suite::MeasurementKey;
    use rgpu_model::suite_history::HistoryPoint;

    #[test]
    fn series_of_other_clocks_have_other_headings_and_short_ones_say_so() {
        let series = |clocks: &str, count: usize| Series {
            key: MeasurementKey { clocks: clocks.into(), ..MeasurementKey::default() },
            points: vec![HistoryPoint { median_ns: 1000.0, ..HistoryPoint::default() }; count],
            ..Series::default()
        };
        let series = vec![series("as_found", MIN_POINTS), series("locked 1500 MHz", 3)];
        let history = History { series, ..History::default() };
        for shown in [
            history_table(&history, &Style::default()),
            history_page(&history, Path::new("/home/me/kernels")),
        ] {
            for words in [
                "clocks not locked",
                "clocks locked 1500 MHz",
                "no change can be found yet: 3 of at least 16 runs",
            ] {
                assert_eq!(shown.matches(words).count(), 1, "{words}: {shown}");
            }
            assert_eq!(shown.matches("no change can be found").count(), 1, "{shown}");
        }
    }

    #[test]
    fn times_in_graphs_are_shown_where_they_are_judged() {
        let point = HistoryPoint {
            median_ns: 4_700.0,
            ci95_ns: [4_690.0, 4_710.0],
            graph_ns: Some(2_110.0),
            ..HistoryPoint::default()
        };
        let series = Series { points: vec![point], in_graphs: true, ..Series::default() };
        let history = History { series: vec![series], ..History::default() };
        for shown in [
            history_table(&history, &Style::default()),
            history_page(&history, Path::new("/home/me/kernels")),
        ] {
            let shown = shown.replace('\u{a0}', " ");
            assert!(shown.contains("2.11 µs") && shown.contains(IN_GRAPHS), "{shown}");
            assert!(!shown.contains("4.7"), "{shown}");
        }
    }

    #[test]
    fn a_narrow_terminal_has_the_times_and_runs_without_the_other_columns() {
        let point = HistoryPoint {
            run: "nightly_20261128_h200".into(),
            started: "2026-11-28T18:05:59Z".into(),
            device: "GPU-8c90ffbc-48e1-9bda-8cc6-fa35dfdb712f".into(),
            commit: "0123456789abcdef".into(),
            median_ns: 10_000.0,
            ci95_ns: [9_900.0, 10_100.0],
            ..HistoryPoint::default()
        };
        let key = MeasurementKey {
            case: "memory:transpose[cols=4096,rows=4096]".into(),
            gpu: "NVIDIA H200".into(),
            toolkit: "nvcc 12.9.86".into(),
            driver: "580".into(),
            clocks: "as_found".into(),
            ..MeasurementKey::default()
        };
        let series = vec![Series { key, points: vec![point], ..Series::default() }];
        let history = History { series, ..History::default() };
        let shown = history_table(&history, &Style { table_width: 80, ..Style::default() });
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert!(shown.contains("nightly_20261128_h200") && !shown.contains("device"), "{shown}");
        let shown = history_table(&history, &Style::default());
        assert!(shown.contains("device") && shown.contains("interval"), "{shown}");
    }

    #[test]
    fn a_change_has_the_colour_of_its_verdict() {
        let changed = |before, after| ChangePoint { at: 0, before, after, p: 0.001 };
        let series = |change| Series { changes: vec![change], ..Series::default() };
        let series = vec![series(changed(100.0, 200.0)), series(changed(200.0, 100.0))];
        let history = History { series, ..History::default() };
        let shown = history_table(&history, &Style { color: true, ..Style::default() });
        let shown = shown.replace(crate::own_mark(), "");
        for painted in ["(\u{1b}[1;31m+100.0 %\u{1b}[0m)", "(\u{1b}[1;32m-50.0 %\u{1b}[0m)"] {
            assert!(shown.contains(painted), "{shown:?}");
        }
        let page = history_page(&history, Path::new("/home/me/kernels"));
        assert_eq!(page.matches("<p class=\"bad\">changed").count(), 1, "{page}");
        assert_eq!(page.matches("<p class=\"good\">changed").count(), 1, "{page}");
        assert!(!history_table(&history, &Style::default()).contains('\u{1b}'));
    }

    #[test]
    fn a_level_that_began_before_the_first_point_says_since_when() {
        let earlier = EarlierChange {
            run: "night-20".into(),
            started: "2026-11-02T18:05:59Z".into(),
            before: 20_000.0,
            after: 21_000.0,
            p: 1e-5,
        };
        let mut series = Series {
            points: vec![HistoryPoint { median_ns: 21_000.0, ..HistoryPoint::default() }],
            earlier_points: 40,
            earlier_change: Some(earlier),
            ..Series::default()
        };
        let both = |series: &Series| {
            let history = History { series: vec![series.clone()], ..History::default() };
            [
                history_table(&history, &Style::default()),
                history_page(&history, Path::new("/home/me/kernels")),
            ]
        };
        for shown in both(&series) {
            let shown = shown.replace('\u{a0}', " ");
            let words = "at this level since night-20 of 2026-11-02: 20.0 µs to 21.0 µs (+5.0 %)";
            assert!(shown.contains(words), "{shown}");
            assert!(!shown.contains("no change can be found"), "{shown}");
        }
        // A change within the window is newer.
        series.changes.push(ChangePoint { at: 0, before: 1.0, after: 2.0, p: 0.001 });
        for shown in both(&series) {
            assert!(!shown.contains("at this level"), "{shown}");
        }
    }

    /// The page of one series with points at these times.
    fn page_of(times: &[&str]) -> String {
        let point = |(at, started): (usize, &&str)| HistoryPoint {
            run: format!("night-{}", at + 1),
            started: (*started).to_owned(),
            median_ns: 1000.0,
            ci95_ns: [990.0, 1010.0],
            ..HistoryPoint::default()
        };
        let points = times.iter().enumerate().map(point).collect();
        let history =
            History { series: vec![Series { points, ..Series::default() }], ..History::default() };
        history_page(&history, Path::new("/home/me/kernels"))
    }

    /// Where the points of a page stand.
    fn point_places(page: &str) -> Vec<f64> {
        let circles = page.split(" cx=\"").skip(1);
        circles.map(|text| text.split('"').next().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn points_stand_at_their_times_and_each_names_its_run() {
        let [first, second, last] = [1, 2, 9].map(|day| format!("2026-11-{day:02}T18:05:59.123Z"));
        let page = page_of(&[&first, &second, &last]);
        for (day, run) in [(1, 1), (9, 3)] {
            assert!(page.contains(&format!(">2026-11-0{day}</text>")), "{page}");
            let title = format!("<title>2026-11-0{day}T18:05:59Z · night-{run} · ");
            assert!(page.contains(&title), "{page}");
        }
        let [a, b, c] = point_places(&page)[..] else { panic!("{page}") };
        assert!(((c - a) / (b - a) - 8.0).abs() < 0.05, "{a} {b} {c}");
        // With a time that cannot be read, they stand one after the other.
        let page = page_of(&["x", &first, &last]);
        let [a, b, c] = point_places(&page)[..] else { panic!("{page}") };
        assert!((c - b - (b - a)).abs() < 0.25, "{a} {b} {c}");
    }

    #[test]
    fn the_axis_repeats_no_label() {
        let of_day = |day: u32| (0..20).map(move |n| format!("2026-11-{day:02}T{n:02}:05:00Z"));
        let times: Vec<String> = of_day(1).chain(of_day(20)).collect();
        let times: Vec<&str> = times.iter().map(String::as_str).collect();
        let page = page_of(&times);
        for day in ["01", "20"] {
            assert_eq!(page.matches(&format!(">2026-11-{day}</text>")).count(), 1, "{page}");
        }
        // Within one day the labels are the hours, and the axis has the day.
        let page = page_of(&times[..20]);
        assert!(page.contains(">start of the suite on 2026-11-01, UTC</text>"), "{page}");
        assert_eq!(page.matches(">00:05</text>").count(), 1, "{page}");
        assert!(!page.contains(">2026-11-01</text>"), "{page}");
        // Twice in one minute.
        let page = page_of(&["2026-11-01T08:05:01Z", "2026-11-01T08:05:40Z"]);
        assert_eq!(page.matches(">08:05</text>").count(), 1, "{page}");
    }
}
