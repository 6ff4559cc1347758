//! `index.html` of a suite: one page without network access, with a table to filter, plots against
//! the axes, and the history of each case.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use super::case_names::{SharedAxes, sizes_without_axes, time_name};
use super::pair::{PairCell, at_size, over_sizes};
use super::plot::{HorizontalAxis, PlotPoint, PlotSeries, page, project_name, svg};
use super::table::{
    clock_policy, counts, devices_text, missing_text, speedup_text, time_text, without_gpu_text,
};
use crate::html::{escape, marked_up, unbroken};
use crate::phrase::graph_text;
use crate::quantity::{duration, timestamp};
use rgpu_model::suite::{RowState, SuiteRow, SuiteRun, SuiteTime, SuiteVerdict};
use rgpu_model::suite_history::{History, Series};

/// Hides the rows that the two filters leave out, and their points in the roofline.
const SCRIPT: &str = "\
(()=>{const text=document.getElementById('filter'),state=document.getElementById('state');\
const rows=[...document.querySelectorAll('#cases tbody tr')];\
const points=[...document.querySelectorAll('[data-point]')];\
const apply=()=>{const word=text.value.toLowerCase(),shown=new Set();\
for(const row of rows){row.hidden=!(row.textContent.toLowerCase().includes(word)&&\
(state.value===''||row.dataset.state===state.value));if(!row.hidden)shown.add(row.dataset.case);}\
for(const point of points)point.style.display=shown.has(point.dataset.point)?'':'none';};\
text.addEventListener('input',apply);state.addEventListener('change',apply);})();";

/// Renders the page of a suite of a project. `history` is what is known of the cases' earlier
/// times.
pub fn html(run: &SuiteRun, history: &History, project: &Path) -> String {
    let project = escape(&project_name(project));
    let mut body = format!("<h1>{}</h1>\n<p>{project} · {}", escape(&run.id), escape(&counts(run)));
    let started = escape(&timestamp(&run.started));
    let took = unbroken(&format!("{:.0} s · {}", run.seconds, clock_policy(run)));
    let _ = write!(body, " · {started} · {took}");
    if let Some(devices) = devices_text(run) {
        let _ = write!(body, " · {}", escape(&devices));
    }
    if let Some(commit) = &run.commit {
        let dirty = if run.dirty { ", with changes" } else { "" };
        let _ =
            write!(body, " · <code>{}</code>{dirty}", escape(commit.get(..12).unwrap_or(commit)));
    }
    body += "</p>\n";
    if let Some(text) = without_gpu_text(run) {
        let _ = writeln!(body, "<p class=\"warn\">{}</p>", marked_up(text));
    }
    table(&mut body, run, history);
    failures(&mut body, run);
    axes(&mut body, run);
    if let Some(chart) = super::roofline::chart(run) {
        body += "<h2>Roofline</h2>\n";
        body += &chart;
    }
    light(&mut body, run);
    page(&format!("{} · rgpu bench", run.id), &body, SCRIPT)
}

/// The columns of the table of cases, with their classes.
const COLUMNS: [(&str, &str); 11] = [
    ("case", ""),
    ("state", ""),
    ("size", ""),
    ("side", ""),
    ("time", "n"),
    ("samples", ""),
    ("in a graph", "n"),
    ("of the roofline", "n"),
    ("pair", ""),
    ("expected", ""),
    ("history", ""),
];

/// A row of the table of cases.
struct TableRow<'a> {
    case: &'a str,
    /// The state that the filter looks at.
    state: &'static str,
    /// The markup of each cell.
    cells: [String; COLUMNS.len()],
    /// The class of the cell with the state.
    state_class: &'static str,
}

fn table(body: &mut String, run: &SuiteRun, history: &History) {
    let mut rows = Vec::new();
    for row in &run.rows {
        let times: Vec<Option<&SuiteTime>> =
            if row.times.is_empty() { vec![None] } else { row.times.iter().map(Some).collect() };
        rows.extend(times.into_iter().map(|time| table_row(row, time, history)));
        rows.extend(over_sizes(row).map(|(mean_of, pair)| mean_row(row, mean_of, &pair)));
    }
    let states: BTreeSet<&str> = rows.iter().map(|row| row.state).collect();
    let options: String = states.iter().map(|state| format!("<option>{state}</option>")).collect();
    let _ = writeln!(
        body,
        "<p><input id=\"filter\" placeholder=\"filter\" aria-label=\"filter\">\
         <select id=\"state\" aria-label=\"state\"><option value=\"\">all</option>{options}</select></p>"
    );
    *body += "<div class=\"scroll\"><table id=\"cases\"><thead><tr>";
    let has_cells = |at: &usize| rows.iter().any(|row| !row.cells[*at].is_empty());
    let shown: Vec<usize> = (0..COLUMNS.len()).filter(has_cells).collect();
    let cell = |tag: &str, class: &str, text: &str| match class {
        "" => format!("<{tag}>{text}</{tag}>"),
        class => format!("<{tag} class=\"{class}\">{text}</{tag}>"),
    };
    for (name, class) in shown.iter().map(|at| COLUMNS[*at]) {
        *body += &cell("th", class, name);
    }
    *body += "</tr></thead>\n<tbody>\n";
    for row in &rows {
        let _ =
            write!(body, "<tr data-state=\"{}\" data-case=\"{}\">", row.state, escape(row.case));
        for at in &shown {
            let (name, class) = COLUMNS[*at];
            let class = if name == "state" { row.state_class } else { class };
            *body += &cell("td", class, &row.cells[*at]);
        }
        *body += "</tr>\n";
    }
    *body += "</tbody></table></div>\n";
}

fn table_row<'a>(row: &'a SuiteRow, time: Option<&SuiteTime>, history: &History) -> TableRow<'a> {
    let judged = time.and_then(|time| time.against.as_ref());
    let slower = judged.is_some_and(|judged| judged.verdict == SuiteVerdict::Slower);
    let state = if slower { "slower" } else { row.state.as_str() };
    let pair = time.and_then(|time| at_size(row, time));
    let expected = judged.map(|judged| {
        let speedup = speedup_text(judged.speedup);
        format!(
            "<span title=\"{}\">{} {speedup}</span>",
            escape(&judged.why.replace('`', "")),
            judged.verdict.as_str()
        )
    });
    let sparkline = time.and_then(|time| history.series.iter().find(|s| s.key == time.key));
    let missing = missing_text(row);
    let missing = (!missing.is_empty()).then_some(missing.as_str());
    let reason = row.reason.as_deref().or(missing).map(|reason| format!(": {}", marked_up(reason)));
    let side = time.map(|time| time.key.side.as_str()).filter(|side| *side != "kernel");
    TableRow {
        case: &row.case,
        state,
        cells: [
            escape(&row.case),
            format!("{state}{}", reason.unwrap_or_default()),
            time.map(|t| escape(&sizes_without_axes(&t.size, &row.case))).unwrap_or_default(),
            escape(side.unwrap_or_default()),
            time.map(time_text).unwrap_or_default(),
            time.map(draw_samples).unwrap_or_default(),
            time.and_then(|t| t.graph.as_ref()).map(graph_text).unwrap_or_default(),
            time.and_then(|t| t.sol_percent).map(|x| format!("{x:.0} %")).unwrap_or_default(),
            pair.map(|pair| pair_text(&pair)).unwrap_or_default(),
            expected.unwrap_or_default(),
            sparkline.map(draw_sparkline).unwrap_or_default(),
        ],
        state_class: match (row.state, slower) {
            (RowState::Failed, _) | (_, true) => "bad",
            (RowState::NoGpu, _) => "warn",
            (RowState::Ok, _) if !row.missing.is_empty() => "warn",
            (RowState::Ok, _) => "good",
            _ => "faint",
        },
    }
}

/// The row of the mean of a pair's sizes.
fn mean_row<'a>(row: &'a SuiteRow, mean_of: String, pair: &PairCell) -> TableRow<'a> {
    let mut cells = <[String; COLUMNS.len()]>::default();
    cells[0] = escape(&row.case);
    cells[2] = mean_of;
    cells[8] = pair_text(pair);
    TableRow { case: &row.case, state: row.state.as_str(), cells, state_class: "" }
}

/// The speedup of a pair, and the verdict.
fn pair_text(pair: &PairCell) -> String {
    format!("{} {}", speedup_text(pair.speedup), pair.verdict_text()).trim().to_owned()
}

/// How the samples of a time are spread, with its median and interval, in 120 by 18 units.
fn draw_samples(time: &SuiteTime) -> String {
    let Some(spread) = time.histogram.as_ref().filter(|h| h.high_ns > h.low_ns) else {
        return String::new();
    };
    let most = spread.counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let width = 116.0 / spread.counts.len().max(1) as f64;
    let place = |ns: f64| {
        2.0 + 116.0 * ((ns - spread.low_ns) / (spread.high_ns - spread.low_ns)).clamp(0.0, 1.0)
    };
    let mut out =
        "<svg class=\"spread\" viewBox=\"0 0 120 18\" preserveAspectRatio=\"none\" role=\"img\">"
            .to_owned();
    let [low, high] = time.ci95_ns.map(place);
    let _ = write!(
        out,
        "<rect class=\"band\" x=\"{low:.1}\" y=\"0\" width=\"{:.1}\" height=\"18\"/>",
        (high - low).max(0.5)
    );
    for (n, count) in spread.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = (15.0 * *count as f64 / most).max(0.7);
        let _ = write!(
            out,
            "<rect class=\"s0\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/>",
            2.0 + width * n as f64,
            17.0 - height,
            (width - 0.4).max(0.4)
        );
    }
    let median = place(time.median_ns);
    let outside = match spread.below + spread.above {
        0 => String::new(),
        n => format!(", {n} outside"),
    };
    let _ = write!(
        out,
        "<line class=\"median\" x1=\"{median:.1}\" x2=\"{median:.1}\" y1=\"0\" y2=\"18\"/>\
         <title>{} samples from {} to {}{outside}; the line is the median, the band its 95 % interval</title></svg>",
        time.samples,
        duration(spread.low_ns),
        duration(spread.high_ns),
    );
    out
}

/// The times of a key in a line of 120 by 18 units.
fn draw_sparkline(series: &Series) -> String {
    const NEWEST: usize = 60;
    let skipped = series.points.len().saturating_sub(NEWEST);
    let times: Vec<f64> =
        series.points[skipped..].iter().map(|point| series.judged_ns(point)).collect();
    let (low, high) =
        times.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(*x), high.max(*x)));
    if times.len() < 2 {
        return String::new();
    }
    let room = (high - low).max(high * 0.02);
    let place = |(n, x): (usize, &f64)| {
        let across = 2.0 + 116.0 * n as f64 / (times.len() - 1) as f64;
        format!("{across:.1},{:.1}", 16.0 - 14.0 * (x - low) / room)
    };
    let line: Vec<String> = times.iter().enumerate().map(place).collect();
    format!(
        "<svg class=\"line\" viewBox=\"0 0 120 18\" preserveAspectRatio=\"none\"><polyline class=\"s0\" points=\"{}\"/>\
         <title>{} to {}, {} suites{}</title></svg>",
        line.join(" "),
        duration(low),
        duration(high),
        series.points.len(),
        if series.in_graphs { ", in a CUDA graph" } else { "" }
    )
}

fn failures(body: &mut String, run: &SuiteRun) {
    let failed: Vec<&SuiteRow> =
        run.rows.iter().filter(|row| row.state == RowState::Failed).collect();
    if failed.is_empty() {
        return;
    }
    *body += "<h2>Failures</h2>\n";
    for row in failed {
        let _ = writeln!(
            body,
            "<p><b>{}</b><br>{}<br><code>{}</code></p>",
            escape(&row.case),
            marked_up(row.failure.as_deref().unwrap_or_default()).replace('\n', "<br>"),
            escape(&row.again)
        );
    }
}

/// A plot for each target with an axis of numbers: the time, a line for each side and for each
/// combination of the other axes.
fn axes(body: &mut String, run: &SuiteRun) {
    let mut plots: BTreeMap<(&str, &str), BTreeMap<String, Vec<PlotPoint>>> = BTreeMap::new();
    let shared = SharedAxes::from_cases(run.rows.iter().map(|row| row.case.as_str()));
    for (row, time) in run.times() {
        let numbers =
            row.axes.iter().filter_map(|(name, value)| Some((name, value.parse::<f64>().ok()?)));
        for (axis, x) in numbers {
            let others = row.axes.iter().filter(|(name, _)| *name != axis);
            let mut words: Vec<String> = others.map(|(name, v)| format!("{name}={v}")).collect();
            words.retain(|word| !shared.has(&row.target, word));
            if row.case_of_any_remote() != row.case {
                words.push(format!("@{}", row.remote));
            }
            if time.key.side != "kernel" {
                words.insert(0, time.key.side.clone());
            }
            let point = PlotPoint {
                x,
                y: time.median_ns,
                interval: Some(time.ci95_ns),
                title: format!("{}: {}", row.case, time_text(time)),
                marked: false,
            };
            plots
                .entry((&row.target, axis))
                .or_default()
                .entry(words.join(" "))
                .or_default()
                .push(point);
        }
    }
    for ((target, axis), lines) in plots {
        let series: Vec<PlotSeries> = lines
            .into_iter()
            .map(|(name, mut points)| {
                points.sort_by(|a, b| a.x.total_cmp(&b.x));
                PlotSeries { name, points }
            })
            .collect();
        if series.iter().all(|one| one.points.len() < 2) {
            continue;
        }
        let _ = writeln!(
            body,
            "<h2>{} against {}</h2>\n{}",
            escape(target),
            escape(axis),
            svg(&series, &HorizontalAxis::for_numbers(axis), duration)
        );
    }
}

/// Shares of the roofline, as bars.
fn light(body: &mut String, run: &SuiteRun) {
    let known: Vec<(String, f64)> = run
        .times()
        .filter_map(|(row, time)| Some((time_name(row, time), time.sol_percent?)))
        .collect();
    if known.is_empty() {
        return;
    }
    *body +=
        "<h2>Share of the roofline</h2>\n<div class=\"scroll\"><table class=\"light\"><tbody>\n";
    for (name, percent) in known {
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td class=\"n\">{percent:.0} %</td><td><svg viewBox=\"0 0 120 14\" \
             width=\"120\" height=\"14\"><rect class=\"s0\" y=\"2\" width=\"{:.1}\" height=\"10\"/></svg></td></tr>",
            escape(&name),
            percent.clamp(0.0, 120.0),
        );
    }
    *body += "</tbody></table></div>\n";
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::suite::MeasurementKey;

    fn page_of(rows: Vec<SuiteRow>) -> String {
        let run = SuiteRun { id: "night".into(), rows, ..SuiteRun::default() };
        html(&run, &History::default(), Path::new("/home/me/my kernels"))
    }

    fn row(case: &str, sides: &[&str]) -> SuiteRow {
        let time = |side: &&str| SuiteTime {
            key: MeasurementKey { side: (*side).to_owned(), ..MeasurementKey::default() },
            size: "n=1024".into(),
            median_ns: 1000.0,
            ci95_ns: [990.0, 1010.0],
            ..SuiteTime::default()
        };
        SuiteRow {
            case: case.to_owned(),
            state: RowState::Ok,
            times: sides.iter().map(time).collect(),
            ..SuiteRow::default()
        }
    }

    /// The heads of the table's columns. Each row has as many cells.
    fn heads(page: &str) -> Vec<&str> {
        let (_, row) = page.split_once("<thead><tr>").unwrap();
        let (row, _) = row.split_once("</th></tr>").unwrap();
        let heads: Vec<&str> =
            row.split("</th>").map(|cell| cell.rsplit_once('>').unwrap().1).collect();
        for line in page.lines().filter(|line| line.starts_with("<tr data-state")) {
            assert_eq!(line.matches("</td>").count(), heads.len(), "{line}");
        }
        heads
    }

    #[test]
    fn lines_are_named_after_what_differs_and_remotes_have_their_own() {
        let row = |n: u32, mode: &str, remote: &str| {
            let case = format!("gemm:a[n={n},TYPE=bf16,MODE={mode}]@{remote}");
            let axes = [("n", n.to_string()), ("TYPE", "bf16".into()), ("MODE", mode.into())];
            SuiteRow {
                target: "gemm:a".into(),
                remote: remote.into(),
                axes: axes.into_iter().map(|(axis, value)| (axis.to_owned(), value)).collect(),
                ..row(&case, &["kernel"])
            }
        };
        let rows = [("x", "h200"), ("x", "b200"), ("y", "h200"), ("y", "b200")]
            .into_iter()
            .flat_map(|(mode, remote)| [row(16, mode, remote), row(32, mode, remote)]);
        let page = page_of(rows.collect());
        let (_, names) = page.split_once("<p class=\"legend\">").unwrap();
        let (names, _) = names.split_once("</p>").unwrap();
        for name in ["MODE=x @h200", "MODE=x @b200", "MODE=y @h200", "MODE=y @b200"] {
            assert_eq!(names.matches(&format!(">{name}</span>")).count(), 1, "{names}");
        }
        assert!(!names.contains("TYPE"), "{names}");
        // The states that the filter offers are those of the rows.
        assert!(page.contains("<option value=\"\">all</option><option>ok</option></select>"));
    }

    #[test]
    fn the_table_has_no_column_that_is_empty_in_every_row() {
        let failed =
            SuiteRow { case: "s:b".into(), state: RowState::Failed, ..SuiteRow::default() };
        assert_eq!(heads(&page_of(vec![failed.clone()])), ["case", "state"]);
        let kernel = row("s:a", &["kernel"]);
        let page = page_of(vec![kernel.clone(), failed.clone()]);
        assert_eq!(heads(&page), ["case", "state", "size", "time"]);
        let pair = row("s:c", &["baseline", "optimised"]);
        let page = page_of(vec![kernel, failed, pair]);
        assert_eq!(heads(&page), ["case", "state", "size", "side", "time"]);
    }
}
