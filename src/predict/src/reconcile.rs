//! Compares predictions with measurements: the errors by the values of each axis (such as `tp`),
//! and by month.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::calibration::Errors;
use crate::fit::errors;
use crate::measurement::Measurement;

/// A measured number and its prediction.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Pair {
    /// The measurement.
    pub row: Measurement,
    /// The compared quantity: `time` of a kernel or collective, `ttft` or `tpot` of a server,
    /// `prefill` or `decode` of a step in a CUDA graph, `eager_prefill` or `eager_decode` of a step
    /// without one.
    pub quantity: &'static str,
    /// The measured time, in ns.
    pub measured_ns: f64,
    /// The speed-of-light bound, in ns.
    pub bound_ns: f64,
    /// The predicted time, in ns.
    pub predicted_ns: f64,
    /// The range in which 80 % of the measured times should be, in ns. Absent without a
    /// calibration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub likely_ns: Option<[f64; 2]>,
    /// Whether it used measured efficiencies.
    pub is_calibrated: bool,
    /// The predicted number of launches of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launches: Option<f64>,
}

impl Pair {
    /// The share of the speed of light that was reached.
    #[must_use]
    pub fn share_of_bound(&self) -> f64 {
        self.bound_ns / self.measured_ns
    }

    /// The relative error: (predicted − measured) / measured.
    #[must_use]
    pub fn error(&self) -> f64 {
        (self.predicted_ns - self.measured_ns) / self.measured_ns
    }
}

/// Errors of the rows with one value on one axis.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Pattern {
    /// The axis, for example `tp`.
    pub axis: &'static str,
    /// The value on the axis.
    pub value: String,
    /// The errors of its rows.
    pub errors: Errors,
}

/// How the likely ranges of predictions hold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Coverage {
    /// Number of rows whose prediction has a range.
    pub rows: usize,
    /// The share of these rows whose measured time is in it; 0.8 is wanted.
    pub inside: f64,
    /// The median of half the range's width over the prediction.
    pub half_width: f64,
}

/// The coverage of the pairs that have a range. `None` if none has.
fn coverage(pairs: &[&Pair]) -> Option<Coverage> {
    let with_range = pairs.iter().filter_map(|pair| Some((pair, pair.likely_ns?)));
    let (mut widths, mut inside) = (Vec::new(), 0_usize);
    for (pair, [fast, slow]) in with_range {
        widths.push((slow - fast) / 2.0 / pair.predicted_ns);
        inside += usize::from((fast..=slow).contains(&pair.measured_ns));
    }
    widths.sort_by(f64::total_cmp);
    let half_width = *widths.get(widths.len() / 2)?;
    Some(Coverage { rows: widths.len(), inside: inside as f64 / widths.len() as f64, half_width })
}

/// The result of comparing predictions with measurements.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReconcileSummary {
    /// By quantity, as in the pairs.
    pub by_quantity: BTreeMap<&'static str, Errors>,
    /// By axis and value, worst first. Axes with one value are left out.
    pub patterns: Vec<Pattern>,
    /// By month, oldest first; empty if no row has a date.
    pub trend: Vec<Pattern>,
    /// The median share of the bound, by quantity.
    pub share_of_bound: BTreeMap<&'static str, f64>,
    /// How likely ranges hold, by quantity.
    pub coverage: BTreeMap<&'static str, Coverage>,
    /// Number of rows faster than their speed-of-light bound, which are in no error above.
    pub too_fast: usize,
}

type Axis = (&'static str, fn(&Pair) -> Option<String>);

fn shown<T: ToString>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// The axes along which rows may differ.
const AXES: &[Axis] = &[
    ("gpu", |pair| Some(pair.row.gpu.clone())),
    ("gpus", |pair| shown(pair.row.gpus)),
    ("framework", |pair| pair.row.framework.clone()),
    ("model", |pair| pair.row.model.clone()),
    ("op", |pair| pair.row.op.clone()),
    ("dtype", |pair| shown(pair.row.dtype)),
    ("tp", |pair| shown(pair.row.tp)),
    ("ep", |pair| shown(pair.row.ep)),
    ("dp_attention", |pair| shown(pair.row.dp_attention)),
    ("concurrency", |pair| shown(pair.row.concurrency)),
    ("input", |pair| shown(pair.row.input)),
    ("output", |pair| shown(pair.row.output)),
    ("batch", |pair| shown(pair.row.batch)),
    ("keys", |pair| shown(pair.row.keys)),
    ("m", |pair| pair.row.m.map(decade)),
    ("bytes", |pair| pair.row.bytes.map(decade)),
];

/// A size rounded down to a power of ten.
fn decade(size: f64) -> String {
    format!("1e{}", size.max(1.0).log10().floor())
}

/// Summarizes the errors of all pairs.
#[must_use]
pub fn reconcile(pairs: &[Pair]) -> ReconcileSummary {
    let is_too_fast = |pair: &&Pair| pair.measured_ns < pair.bound_ns || pair.measured_ns <= 0.0;
    let (too_fast, kept): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(is_too_fast);
    let of = |rows: &[&Pair]| errors(rows.iter().map(|p| (p.predicted_ns, p.measured_ns)));
    let group = |key: &dyn Fn(&Pair) -> Option<String>| {
        let mut groups: BTreeMap<String, Vec<&Pair>> = BTreeMap::new();
        for pair in &kept {
            if let Some(value) = key(pair) {
                groups.entry(value).or_default().push(pair);
            }
        }
        groups
    };
    let mut quantities: BTreeMap<&'static str, Vec<&Pair>> = BTreeMap::new();
    for pair in &kept {
        quantities.entry(pair.quantity).or_default().push(pair);
    }
    let by_quantity = quantities.iter().map(|(name, rows)| (*name, of(rows))).collect();
    let share_of_bound = quantities
        .iter()
        .map(|(name, rows)| {
            let mut shares: Vec<f64> = rows.iter().map(|pair| pair.share_of_bound()).collect();
            shares.sort_by(f64::total_cmp);
            (*name, shares[shares.len() / 2])
        })
        .collect();
    let mut patterns = Vec::new();
    for (axis, value_of) in AXES {
        let groups = group(value_of);
        if groups.len() < 2 {
            continue;
        }
        let rows = groups.into_iter();
        patterns.extend(rows.map(|(value, rows)| Pattern { axis, value, errors: of(&rows) }));
    }
    patterns.sort_by(|a, b| b.errors.mape.total_cmp(&a.errors.mape));
    let month = |pair: &Pair| pair.row.date.as_deref().and_then(|d| d.get(..7)).map(str::to_owned);
    let trend = group(&month)
        .into_iter()
        .map(|(value, rows)| Pattern { axis: "month", value, errors: of(&rows) })
        .collect();
    let coverage =
        quantities.iter().filter_map(|(name, rows)| Some((*name, coverage(rows)?))).collect();
    let too_fast = too_fast.len();
    ReconcileSummary { by_quantity, patterns, trend, share_of_bound, coverage, too_fast }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::MeasurementKind;

    fn pair(tp: u32, date: &str, measured: f64, predicted: f64) -> Pair {
        let mut row = Measurement::new(MeasurementKind::Serving, "a", "h200");
        row.tp = Some(tp);
        row.date = Some(date.to_owned());
        Pair {
            row,
            quantity: "tpot",
            measured_ns: measured,
            bound_ns: 50.0,
            predicted_ns: predicted,
            likely_ns: None,
            is_calibrated: false,
            launches: None,
        }
    }

    #[test]
    fn the_coverage_counts_the_measured_times_inside_their_ranges() {
        let mut pairs = [80.0, 100.0, 130.0].map(|measured| pair(1, "2026-02-01", measured, 100.0));
        assert!(reconcile(&pairs).coverage.is_empty());
        for pair in &mut pairs {
            pair.likely_ns = Some([90.0, 130.0]);
        }
        let coverage = reconcile(&pairs).coverage["tpot"];
        assert_eq!((coverage.rows, coverage.half_width), (3, 0.2));
        assert!((coverage.inside - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn the_worst_axis_comes_first_and_months_are_in_order() {
        let pairs = [
            pair(1, "2026-02-01", 100.0, 90.0),
            pair(1, "2026-01-09", 100.0, 95.0),
            pair(8, "2026-02-03", 100.0, 50.0),
            pair(8, "2026-02-04", 10.0, 50.0),
        ];
        let result = reconcile(&pairs);
        assert_eq!(result.too_fast, 1);
        assert_eq!((result.patterns[0].axis, result.patterns[0].value.as_str()), ("tp", "8"));
        assert_eq!(result.patterns[0].errors.bias, -0.5);
        let months: Vec<&str> = result.trend.iter().map(|month| month.value.as_str()).collect();
        assert_eq!(months, ["2026-01", "2026-02"]);
        assert_eq!(result.by_quantity["tpot"].n, 3);
        assert_eq!(result.share_of_bound["tpot"], 0.5);
    }

    #[test]
    fn nothing_gives_nothing() {
        let result = reconcile(&[]);
        assert!(result.by_quantity.is_empty() && result.patterns.is_empty());
    }
}
