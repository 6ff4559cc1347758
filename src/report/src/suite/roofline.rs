//! The roofline of all cases of a suite: operations a second against operations a byte, on
//! logarithmic axes, with a roof for each GPU and unit, and a labelled point for each time.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::RangeInclusive;

use super::case_names::time_name;
use super::plot::COLORS;
use crate::html::escape;
use crate::quantity::{digits, duration, per_second};
use crate::text::cut_middle;
use rgpu_model::suite::{RooflinePoint, SuiteRun};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 44.0;

/// Approximate size of the letters of a label in pixels.
const LETTER_WIDTH: f64 = 6.8;
const LABEL_HEIGHT: f64 = 13.0;

/// The maximum length of a label.
const MAX_LABEL_CHARS: usize = 44;

/// Operations or bytes per second that a GPU can reach. Others are damaged, and would stretch the
/// axes without bound.
const POSSIBLE_RATES: RangeInclusive<f64> = 1.0..=1e21;

/// A time with its place.
struct Point<'a> {
    case: &'a str,
    target: &'a str,
    label: String,
    intensity: f64,
    flops_per_s: f64,
    title: String,
}

/// Decades from the one below the smallest value to the one above the largest.
struct Decades {
    low: i32,
    high: i32,
    from: f64,
    to: f64,
}

impl Decades {
    fn new(values: &[f64], from: f64, to: f64) -> Self {
        let logs = || values.iter().map(|x| x.log10());
        let low = logs().fold(f64::INFINITY, f64::min).floor() as i32;
        let high = logs().fold(f64::NEG_INFINITY, f64::max).ceil() as i32;
        Self { low, high: high.max(low + 1), from, to }
    }

    fn coordinate(&self, x: f64) -> f64 {
        let share = (x.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        (self.low..=self.high).map(|exponent| 10f64.powi(exponent))
    }
}

/// Draws the chart; `None` if no time has counted operations and bytes.
pub(super) fn chart(run: &SuiteRun) -> Option<String> {
    let is_drawn = |p: &RooflinePoint| {
        let rates = [p.flops_per_s, p.bytes_per_s, p.flops_peak, p.bytes_peak];
        rates.iter().all(|rate| POSSIBLE_RATES.contains(rate))
    };
    let mut points = Vec::new();
    // The roofs by GPU: DRAM's rate, and the peak of each unit.
    let mut roofs: BTreeMap<&str, (f64, BTreeMap<&str, f64>)> = BTreeMap::new();
    for (row, time) in run.times() {
        let Some(at) = time.roofline.as_ref().filter(|at| is_drawn(at)) else { continue };
        let roof = roofs.entry(&time.key.gpu).or_insert((at.bytes_peak, BTreeMap::new()));
        roof.0 = roof.0.max(at.bytes_peak);
        roof.1.insert(&at.label, at.flops_peak);
        let label = time_name(row, time);
        let intensity = at.flops_per_s / at.bytes_per_s;
        points.push(Point {
            title: format!(
                "{label}: {}, {} and {}, {} FLOP/byte",
                duration(time.median_ns),
                per_second(at.flops_per_s, "FLOP"),
                per_second(at.bytes_per_s, "B"),
                digits(intensity)
            ),
            case: &row.case,
            target: &row.target,
            label,
            intensity,
            flops_per_s: at.flops_per_s,
        });
    }
    if points.is_empty() {
        return None;
    }
    let ridges = || {
        let ridge = |(bytes, units): &(f64, BTreeMap<&str, f64>)| {
            units.values().map(|flops| flops / bytes).collect::<Vec<_>>()
        };
        roofs.values().flat_map(ridge)
    };
    let xs: Vec<f64> = points.iter().map(|p| p.intensity).chain(ridges()).collect();
    let peaks = roofs.values().flat_map(|(_, units)| units.values().copied());
    let ys: Vec<f64> = points.iter().map(|p| p.flops_per_s).chain(peaks).collect();
    let x = Decades::new(&xs, LEFT, WIDTH - RIGHT);
    let y = Decades::new(&ys, HEIGHT - BOTTOM, TOP);
    let mut out = format!(
        "<div class=\"scroll\"><svg class=\"roofline\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"roofline\">"
    );
    grid(&mut out, &x, &y);
    let mut taken = Vec::new();
    for (gpu, (bytes, units)) in &roofs {
        let gpu = if roofs.len() > 1 { *gpu } else { "" };
        roof(&mut out, (&x, &y), gpu, *bytes, units, &mut taken);
    }
    draw_points(&mut out, (&x, &y), &points, &mut taken);
    out += "</svg></div>\n";
    Some(out)
}

fn grid(out: &mut String, x: &Decades, y: &Decades) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in x.ticks() {
        let at = x.coordinate(tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            bottom + 16.0,
            if tick < 0.1 { tick.to_string() } else { digits(tick) }
        );
    }
    for tick in y.ticks() {
        let at = y.coordinate(tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            escape(&per_second(tick, "FLOP"))
        );
    }
    let _ = write!(
        out,
        "<text x=\"{right}\" y=\"{:.0}\" text-anchor=\"end\">FLOP/byte, from [work]</text>",
        HEIGHT - 6.0
    );
}

/// The roof of one GPU: DRAM's slope up to the highest unit, and a line for each unit.
fn roof(
    out: &mut String,
    (x, y): (&Decades, &Decades),
    gpu: &str,
    bytes: f64,
    units: &BTreeMap<&str, f64>,
    taken: &mut Vec<[f64; 4]>,
) {
    let lowest = 10f64.powi(y.low);
    let left = 10f64.powi(x.low);
    // The slope begins where it enters the chart.
    let start = left.max(lowest / bytes);
    let highest = units.values().copied().fold(0.0, f64::max);
    let _ = write!(
        out,
        "<line class=\"roof\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"><title>{}</title></line>",
        x.coordinate(start),
        y.coordinate(start * bytes),
        x.coordinate(highest / bytes),
        y.coordinate(highest),
        escape(format!("{gpu} DRAM {}", per_second(bytes, "B")).trim()),
    );
    for (label, peak) in units {
        let at = y.coordinate(*peak);
        let text = format!("{gpu} {label} {}", per_second(*peak, "FLOP"));
        let text = text.trim();
        let right = WIDTH - RIGHT;
        let wide = LETTER_WIDTH * text.chars().count() as f64;
        taken.push([right - wide, at - LABEL_HEIGHT, right, at]);
        let _ = write!(
            out,
            "<line class=\"roof\" x1=\"{:.1}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
             <text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            x.coordinate(peak / bytes),
            at - 4.0,
            escape(text)
        );
    }
}

/// The points in the colours of their targets, each with its label where there is room: beside it,
/// else above or below. A label without room is in the title.
fn draw_points(
    out: &mut String,
    (x, y): (&Decades, &Decades),
    points: &[Point<'_>],
    taken: &mut Vec<[f64; 4]>,
) {
    let mut targets: Vec<&str> = Vec::new();
    for point in points {
        let (px, py) = (x.coordinate(point.intensity), y.coordinate(point.flops_per_s));
        taken.push([px - 5.0, py - 5.0, px + 5.0, py + 5.0]);
    }
    for point in points {
        let color = targets.iter().position(|t| *t == point.target).unwrap_or_else(|| {
            targets.push(point.target);
            targets.len() - 1
        }) % COLORS;
        let (px, py) = (x.coordinate(point.intensity), y.coordinate(point.flops_per_s));
        let _ = write!(
            out,
            "<g data-point=\"{}\"><circle class=\"s{color}\" cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"4\"><title>{}</title></circle>",
            escape(point.case),
            escape(&point.title)
        );
        let label = cut_middle(&point.label, MAX_LABEL_CHARS);
        let wide = LETTER_WIDTH * label.chars().count() as f64;
        let sides = [8.0, -8.0 - wide].map(|dx| px + dx);
        let rows = [4.0, -8.0, 16.0, -21.0, 29.0].map(|dy| py + dy);
        let places = rows.iter().flat_map(|row| sides.map(|left| (left, *row)));
        let fits = |&(left, base): &(f64, f64)| {
            let area = [left, base - LABEL_HEIGHT + 3.0, left + wide, base + 2.0];
            let own = [px - 5.0, py - 5.0, px + 5.0, py + 5.0];
            area[0] >= LEFT
                && area[2] <= WIDTH - RIGHT
                && area[1] >= TOP
                && area[3] <= HEIGHT - BOTTOM
                && taken.iter().filter(|other| **other != own).all(|other| !overlap(&area, other))
        };
        if let Some((left, base)) = places.clone().find(fits) {
            taken.push([left, base - LABEL_HEIGHT + 3.0, left + wide, base + 2.0]);
            let _ = write!(
                out,
                "<text class=\"k{color}\" x=\"{left:.1}\" y=\"{base:.1}\">{}</text>",
                escape(&label)
            );
        }
        *out += "</g>";
    }
}

/// Whether two areas (left, top, right, bottom) overlap.
fn overlap(a: &[f64; 4], b: &[f64; 4]) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::suite::{MeasurementKey, SuiteRow, SuiteTime};

    fn row(case: &str, flops_per_s: f64, bytes_per_s: f64) -> SuiteRow {
        let point = RooflinePoint {
            flops_per_s,
            bytes_per_s,
            flops_peak: 60e12,
            bytes_peak: 4.8e12,
            label: "FP32".into(),
        };
        let key = MeasurementKey {
            side: "kernel".into(),
            gpu: "NVIDIA H200".into(),
            ..Default::default()
        };
        SuiteRow {
            case: case.into(),
            target: case.into(),
            times: vec![SuiteTime {
                key,
                median_ns: 1e4,
                roofline: Some(point),
                ..Default::default()
            }],
            ..SuiteRow::default()
        }
    }

    #[test]
    fn points_of_one_place_keep_the_labels_that_have_room_and_all_titles() {
        let rows = (0..30).map(|n| row(&format!("memory:case-{n}"), 1e12, 2e12)).collect();
        let svg = chart(&SuiteRun { rows, ..SuiteRun::default() }).unwrap();
        assert_eq!(svg.matches("<circle").count(), 30);
        let labels = svg.matches("<text class=\"k").count();
        assert!((2..30).contains(&labels), "{labels}");
        assert!(
            svg.contains("memory:case-29: 10.0 µs, 1.00 TFLOP/s and 2.00 TB/s, 0.50 FLOP/byte")
        );
    }

    #[test]
    fn hostile_names_and_numbers_leave_the_chart_whole() {
        let rows = vec![
            row("<script>", 1e12, 2e12),
            row("nan", f64::NAN, 1.0),
            row("zero", 0.0, 1.0),
            row("tiny", 1e-300, 1e300),
            row("infinite", f64::INFINITY, 1e12),
        ];
        let svg = chart(&SuiteRun { rows, ..SuiteRun::default() }).unwrap();
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(!svg.contains("<script>") && !svg.contains("NaN"), "{svg}");
        assert!(chart(&SuiteRun::default()).is_none());
    }
}
