//! Plots of numbers against an axis: SVG for pages, and characters for terminals.

use std::fmt::Write;
use std::path::Path;

use crate::html::{escape, hash};
use crate::quantity::digits;

/// A series of a plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlotSeries {
    /// Its name in the legend.
    pub name: String,
    /// The points, by `x`.
    pub points: Vec<PlotPoint>,
}

/// A point of a plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlotPoint {
    /// Where it stands on the axis.
    pub x: f64,
    /// The number that the other axis shows.
    pub y: f64,
    /// The interval of the number.
    pub interval: Option<[f64; 2]>,
    /// The point's label, shown when it is pointed at.
    pub title: String,
    /// Whether a line marks it.
    pub marked: bool,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 84.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 16.0;
const RIGHT: f64 = 14.0;

/// The width of a digit of a label.
const DIGIT_WIDTH: f64 = 7.0;

/// How much larger labels are on a narrow screen, where the whole plot is smaller. Those below the
/// plot that have no room there are left out.
const NARROW_LABEL_GROWTH: f64 = 1.6;

/// The number of places on the horizontal axis up to which each has a label if there is room.
const MAX_UNTHINNED_LABELS: usize = 8;

/// The least distance of two labels where there are more places.
const LABEL_DISTANCE: f64 = 70.0;

/// The number of colours of the style sheet.
pub(super) const COLORS: usize = 6;

/// The style of plots and of the pages with them, light and dark.
pub(super) const CSS: &str = "\
:root{color-scheme:light dark;--ink:#161b24;--faint:#5a6474;--line:#d6dae1;--back:#fff;--row:#f5f6f8;\
--c0:#2b5bd7;--c1:#c2410c;--c2:#15803d;--c3:#7e22ce;--c4:#0e7490;--c5:#be185d;--bad:#b91c1c;--good:#15803d;--warn:#8f5a00}\
@media(prefers-color-scheme:dark){:root{--ink:#e7eaf0;--faint:#9aa5b5;--line:#303845;--back:#0e1117;--row:#161b23;\
--c0:#8fb0ff;--c1:#fdba74;--c2:#86efac;--c3:#d8b4fe;--c4:#67e8f9;--c5:#f9a8d4;--bad:#fca5a5;--good:#86efac;--warn:#f0be62}}\
body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:0 auto;max-width:1180px;padding:16px}\
h1,h2,p{overflow-wrap:anywhere}h1{font-size:20px}h2{font-size:16px;margin-top:28px}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:3px 10px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.n{white-space:nowrap}th{color:var(--faint);font-weight:600}\
tbody tr:hover{background:var(--row)}.bad{color:var(--bad);font-weight:600}.good{color:var(--good)}.warn{color:var(--warn)}.faint{color:var(--faint)}\
code{font-family:ui-monospace,monospace;font-size:12px}input,select{font:inherit;padding:3px 6px;margin:0 10px 8px 0;\
color:inherit;background:var(--row);border:1px solid var(--line)}.scroll{overflow-x:auto}\
svg{max-width:100%;height:auto;display:block}td svg{max-width:none}svg.spread,svg.line{width:5.5rem;height:18px}.scroll>svg.roofline{min-width:44rem}svg text{fill:var(--faint);font:11px system-ui,sans-serif}\
svg .grid{stroke:var(--line)}svg .band{fill:var(--faint);opacity:.35}svg .median{stroke:var(--bad);stroke-width:1.2}svg.spread .s0{stroke:none}svg .mark{stroke:var(--bad);stroke-dasharray:4 3}.s0{stroke:var(--c0);fill:var(--c0)}.s1{stroke:var(--c1);fill:var(--c1)}.s2{stroke:var(--c2);fill:var(--c2)}\
.s3{stroke:var(--c3);fill:var(--c3)}.s4{stroke:var(--c4);fill:var(--c4)}.s5{stroke:var(--c5);fill:var(--c5)}\
.legend span{margin-right:1rem}.k0{color:var(--c0)}.k1{color:var(--c1)}.k2{color:var(--c2)}.k3{color:var(--c3)}.k4{color:var(--c4)}.k5{color:var(--c5)}\
#cases td:first-child,.light td:first-child{min-width:14rem;overflow-wrap:anywhere}#cases td:nth-child(2){min-width:4.5rem}#cases th{vertical-align:bottom}.light{width:auto}\
svg text.k0{fill:var(--c0)}svg text.k1{fill:var(--c1)}svg text.k2{fill:var(--c2)}svg text.k3{fill:var(--c3)}\
svg text.k4{fill:var(--c4)}svg text.k5{fill:var(--c5)}\
svg polyline[class]{fill:none;stroke-width:1.6}svg .roof{stroke:var(--ink);stroke-width:1.4}\
@media(max-width:560px){svg.plot text{font-size:17.6px}svg.plot .wide{display:none}}";

/// A scale from numbers to places, linear or logarithmic.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// The scale of these values, which is logarithmic if they are positive and far apart.
    fn new(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let finite = values.filter(|x| x.is_finite());
        let low = finite.clone().fold(f64::INFINITY, f64::min);
        let high = finite.fold(f64::NEG_INFINITY, f64::max);
        let log = low > 0.0 && high / low > 8.0;
        let (low, high) = match (low.is_finite(), log) {
            (false, _) => (0.0, 1.0),
            (true, true) => (low / 1.1, high * 1.1),
            (true, false) => {
                let margin = ((high - low) * 0.08).max(high.abs() * 0.01).max(1e-12);
                (low - margin, high + margin)
            }
        };
        Self { low, high, log, from, to }
    }

    fn coordinate(&self, x: f64) -> f64 {
        let share = if self.log {
            (x / self.low).ln() / (self.high / self.low).ln()
        } else {
            (x - self.low) / (self.high - self.low)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round values to label: multiples of 1, 2 or 5 times a power of ten.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let values = |steps: &[f64]| -> Vec<f64> {
                let all =
                    decades.clone().flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e)));
                all.filter(|x| (self.low..=self.high).contains(x)).collect()
            };
            let fine = values(&[1.0, 2.0, 5.0]);
            return if fine.len() > 7 { values(&[1.0]) } else { fine };
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * power);
        let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
        let (first, last) = ((self.low / step).ceil() as i64, (self.high / step).floor() as i64);
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// The horizontal axis of a plot.
pub(super) struct HorizontalAxis<'a> {
    pub(super) name: &'a str,
    /// Writes a number of the axis.
    pub(super) label: &'a dyn Fn(f64) -> String,
}

impl<'a> HorizontalAxis<'a> {
    /// An axis of plain numbers.
    pub(super) fn for_numbers(name: &'a str) -> Self {
        Self { name, label: &digits_of }
    }
}

/// A plot as SVG, below the names of its lines. `label` writes a number of the vertical axis.
pub(super) fn svg(
    series: &[PlotSeries],
    horizontal: &HorizontalAxis<'_>,
    label: fn(f64) -> String,
) -> String {
    let points = || series.iter().flat_map(|s| &s.points);
    let x = Scale::new(points().map(|p| p.x), LEFT, WIDTH - RIGHT);
    let ys = points().flat_map(|p| {
        let [low, high] = p.interval.unwrap_or([p.y, p.y]);
        [low, p.y, high]
    });
    let y = Scale::new(ys, HEIGHT - BOTTOM, TOP);
    let mut out = legend(series);
    let _ = write!(
        out,
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">"
    );
    for tick in y.ticks() {
        let at = y.coordinate(tick);
        let text = escape(&label(tick));
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
    }
    let mut xs: Vec<f64> = points().map(|p| p.x).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let least_distance = if xs.len() > MAX_UNTHINNED_LABELS { LABEL_DISTANCE } else { 0.0 };
    let (mut free_from, mut next_from) = (0.0, 0.0);
    let mut free_on_narrow_from = 0.0;
    let mut drawn = String::new();
    for tick in &xs {
        let label = (horizontal.label)(*tick);
        let half_width = DIGIT_WIDTH * label.chars().count() as f64 / 2.0;
        // A label of many digits at the right edge stays inside.
        let at = x.coordinate(*tick).min(WIDTH - NARROW_LABEL_GROWTH * half_width);
        // One that would cover a part of the label before, or repeat it, is left out.
        if at - half_width < free_from || at < next_from || label == drawn {
            continue;
        }
        let has_room = at - NARROW_LABEL_GROWTH * half_width >= free_on_narrow_from;
        if has_room {
            free_on_narrow_from = at + NARROW_LABEL_GROWTH * half_width + DIGIT_WIDTH;
        }
        free_from = at + half_width + DIGIT_WIDTH;
        next_from = at + least_distance;
        drawn.clone_from(&label);
        let _ = write!(
            out,
            "<text{} x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            if has_room { "" } else { " class=\"wide\"" },
            HEIGHT - BOTTOM + 18.0,
            escape(&label)
        );
    }
    let _ = write!(
        out,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
        WIDTH - RIGHT,
        HEIGHT - 4.0,
        escape(horizontal.name)
    );
    for (n, one) in series.iter().enumerate() {
        let color = n % COLORS;
        let line: Vec<String> = one
            .points
            .iter()
            .map(|p| format!("{:.1},{:.1}", x.coordinate(p.x), y.coordinate(p.y)))
            .collect();
        let _ = write!(out, "<polyline class=\"s{color}\" points=\"{}\"/>", line.join(" "));
        for point in &one.points {
            let (px, py) = (x.coordinate(point.x), y.coordinate(point.y));
            if let Some([low, high]) = point.interval {
                let (low, high) = (y.coordinate(low), y.coordinate(high));
                let _ = write!(
                    out,
                    "<line class=\"s{color}\" x1=\"{px:.1}\" x2=\"{px:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>"
                );
            }
            if point.marked {
                let _ = write!(
                    out,
                    "<line class=\"mark\" x1=\"{px:.1}\" x2=\"{px:.1}\" y1=\"{TOP}\" y2=\"{:.0}\"/>",
                    HEIGHT - BOTTOM
                );
            }
            let _ = write!(
                out,
                "<circle class=\"s{color}\" cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"2.6\"><title>{}</title></circle>",
                escape(&point.title)
            );
        }
    }
    out += "</svg>";
    out
}

/// The names of the lines in their colours; empty if none has a name.
fn legend(series: &[PlotSeries]) -> String {
    if series.iter().all(|one| one.name.is_empty()) {
        return String::new();
    }
    let name = |(n, one): (usize, &PlotSeries)| {
        format!("<span class=\"k{}\">{}</span>", n % COLORS, escape(&one.name))
    };
    let names: Vec<String> = series.iter().enumerate().map(name).collect();
    format!("<p class=\"legend\">{}</p>\n", names.join(" "))
}

/// A number of the horizontal axis: whole ones as they are.
fn digits_of(x: f64) -> String {
    if x.fract() == 0.0 && x.abs() < 1e15 { format!("{x:.0}") } else { digits(x) }
}

/// The name of a project for a page: that of its folder.
pub(super) fn project_name(project: &Path) -> String {
    project.file_name().unwrap_or(project.as_os_str()).to_string_lossy().into_owned()
}

/// A page with a policy that allows only its own style and script.
pub(super) fn page(title: &str, body: &str, script: &str) -> String {
    let script_source = match script {
        "" => String::new(),
        script => format!("script-src '{}'; ", hash(script)),
    };
    let script =
        if script.is_empty() { String::new() } else { format!("<script>{script}</script>\n") };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; {script_source}style-src '{}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"rgpu {}\">\n<title>{title}</title>\n<style>{CSS}</style>\n</head>\n\
         <body>\n{body}{script}</body>\n</html>\n",
        hash(CSS),
        env!("CARGO_PKG_VERSION"),
        title = escape(title)
    )
}

/// A page with one plot for each name of a number.
pub fn plot_page(title: &str, x_name: &str, plots: &[(String, Vec<PlotSeries>)]) -> String {
    let mut body = format!("<h1>{}</h1>\n", escape(title));
    for (name, series) in plots {
        body += &format!(
            "<h2>{}</h2>\n{}\n",
            escape(name),
            svg(series, &HorizontalAxis::for_numbers(x_name), digits_of)
        );
    }
    page(title, &body, "")
}

/// The numbers of one series as bars of characters, for a terminal of `width` columns.
pub fn text_plot(series: &PlotSeries, width: usize) -> String {
    let highest = series.points.iter().map(|p| p.y).fold(0.0, f64::max);
    let names: Vec<String> = series.points.iter().map(|p| digits_of(p.x)).collect();
    let room = names.iter().map(String::len).max().unwrap_or(0);
    let mut out = format!("  {}\n", series.name);
    for (name, point) in names.iter().zip(&series.points) {
        let share = if highest > 0.0 { (point.y / highest).clamp(0.0, 1.0) } else { 0.0 };
        let bar = "█".repeat((share * width.saturating_sub(room + 16) as f64).round() as usize);
        out += &format!("  {name:>room$}  {bar} {}\n", digits(point.y));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of the labels below a plot of so many points, each as long as `label`.
    fn label_places(points: u32, label: &str) -> Vec<f64> {
        let point = |n: u32| PlotPoint { x: f64::from(n), y: 1.0, ..PlotPoint::default() };
        let series = PlotSeries { points: (0..points).map(point).collect(), ..Default::default() };
        let label = |x: f64| format!("{x:0>width$}", width = label.len());
        let axis = HorizontalAxis { name: "started", label: &label };
        let drawn = svg(&[series], &axis, digits);
        let labels = drawn.split("<text").filter(|text| text.contains("\"middle\""));
        let place =
            |text: &str| text.split_once(" x=\"").unwrap().1.split('"').next().unwrap().parse();
        labels.map(|text| place(text).unwrap()).collect()
    }

    #[test]
    fn ticks_are_round() {
        let ticks = |values: &[f64]| Scale::new(values.iter().copied(), 0.0, 1.0).ticks();
        assert_eq!(ticks(&[62.6, 67.2, 70.5]), [62.0, 64.0, 66.0, 68.0, 70.0]);
        assert_eq!(ticks(&[72_672.0, 254_048.0]), [100_000.0, 150_000.0, 200_000.0, 250_000.0]);
        assert_eq!(ticks(&[1.5, 90.0]), [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(ticks(&[1.0, 1e6]), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        // Equal values, and none at all.
        assert!(ticks(&[5.0]).len() > 1 && ticks(&[]).len() > 1);
    }

    #[test]
    fn labels_below_a_plot_do_not_overlap_and_stay_inside() {
        let label = "2026-11-27 18:05";
        let width = DIGIT_WIDTH * label.len() as f64;
        for points in [1, 2, 7, 8, 9, 50, 1000] {
            let places = label_places(points, label);
            assert!(places.len() >= points.min(3) as usize, "{points}: {places:?}");
            assert!(places.windows(2).all(|two| two[1] - two[0] > width), "{points}: {places:?}");
            assert!(places.iter().all(|at| at + width / 2.0 <= WIDTH), "{points}: {places:?}");
        }
        assert_eq!(label_places(8, "1000").len(), 8);
    }
}
