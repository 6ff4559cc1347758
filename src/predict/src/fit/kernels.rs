//! The fit of one kind of kernel: shares of the peaks, costs of tiles, and a trend over the sizes.

use std::collections::BTreeMap;

use super::{
    EFFICIENCY_BOUNDS, FOLDS, HELD_OUT_FOLD, LAUNCH_BOUNDS_NS, Parameter, WARM_SWEEPS,
    active_bounds, descend, errors, hash, least_and_most, minimise, quantile, split,
};
use crate::Dtype;
use crate::calibration::{
    Calibration, Efficiency, Errors, FEATURES, KernelFit, LikelyRange, RowEfficiency, SCHEMA,
    SustainedFit, TileEfficiency, Trend,
};
use crate::hw::Gpu;
use crate::kernel::{KernelTime, LaunchMode, OpKind};
use crate::measurement::{Measurement, Prediction, context};

/// Products need at least this many rows for the costs of their tiles.
pub const MIN_ROWS_WITH_TILES: usize = 60;
/// A trend needs at least this many rows.
const MIN_ROWS_WITH_TREND: usize = 40;
/// The search for parameters sees at most this many rows.
const MAX_SEARCH_ROWS: usize = 500;
/// Errors below this share count as their square, larger ones as they are.
const SMALL_ERROR: f64 = 0.05;
/// The weight of the pull of a trend towards none, in rows.
const TREND_PULL: f64 = 2.0;
const TREND_ROUNDS: usize = 12;
/// The weight of the pull of the errors' size towards one size for all, in rows.
const SPREAD_PULL: f64 = 20.0;
/// An error below this share says little of the errors' size.
const LEAST_ERROR: f64 = 0.01;
/// Shares of the peak under the power limit that are tried.
const SUSTAINED_STEPS: u32 = 200;
const SHARE_BOUNDS: (f64, f64) = (0.02, 2.0);
const WAVE_BOUNDS_NS: (f64, f64) = (1.0, 20_000.0);
const ROW_BOUNDS_NS: (f64, f64) = (0.1, 10_000.0);
const ELEMENT_BOUNDS_NS: (f64, f64) = (1e-4, 10.0);
const AT_ONCE_BOUNDS: (f64, f64) = (1.0, 32.0);
const OVERLAP_BOUNDS: (f64, f64) = (1.0, 16.0);

/// A measured kernel.
pub(super) struct KernelRow<'a> {
    /// The row.
    pub(super) row: &'a Measurement,
    /// Its prediction without efficiencies.
    pub(super) bare: KernelTime,
    /// Its measured time, in ns.
    pub(super) time_ns: f64,
    /// The fold of its configuration.
    pub(super) fold: u64,
}

/// A fit of one kind of kernel that is used at all sizes.
fn calibration_of(op: OpKind, dtype: Dtype, efficiency: Efficiency) -> Calibration {
    let fit = KernelFit {
        op,
        dtype,
        efficiency,
        active_bounds: Vec::new(),
        flops: [0.0, f64::INFINITY],
        bytes: [0.0, f64::INFINITY],
        likely: None,
        train: Errors::default(),
        test: Errors::default(),
    };
    Calibration {
        schema: SCHEMA.to_owned(),
        gpu: String::new(),
        source: None,
        kernel: vec![fit],
        collective: Vec::new(),
        sustained: Vec::new(),
        end: None,
    }
}

/// The time of a row of a kernel with these efficiencies, in ns.
#[cfg(test)]
pub(super) fn time_ns(row: &Measurement, efficiency: &Efficiency, gpu: &Gpu) -> Option<f64> {
    let op = row.op.as_deref()?.parse().ok()?;
    let calibration = calibration_of(op, row.dtype?, *efficiency);
    Some(row.predict(&context(gpu, Some(&calibration)), None)?.time_ns())
}

/// The parameters of a kind of kernel, in the order of [`efficiency`].
fn parameters(op: OpKind, rows: usize) -> Vec<Parameter> {
    let mut parameters = vec![
        Parameter { name: "compute", bounds: EFFICIENCY_BOUNDS, start: 1.0 },
        Parameter { name: "memory", bounds: EFFICIENCY_BOUNDS, start: 1.0 },
        Parameter { name: "launch_ns", bounds: LAUNCH_BOUNDS_NS, start: LaunchMode::Stream.ns() },
    ];
    if op == OpKind::QuantizedGemm {
        parameters.push(Parameter { name: "quantize", bounds: EFFICIENCY_BOUNDS, start: 1.0 });
        parameters.push(Parameter {
            name: "block_ns",
            bounds: LAUNCH_BOUNDS_NS,
            start: LaunchMode::Stream.ns(),
        });
    }
    if op == OpKind::AttentionPrefill {
        parameters.push(Parameter { name: "softmax", bounds: EFFICIENCY_BOUNDS, start: 1.0 });
    }
    if op == OpKind::Gemm && rows >= MIN_ROWS_WITH_TILES {
        let launch = LaunchMode::Stream.ns();
        parameters.extend([
            Parameter { name: "load", bounds: SHARE_BOUNDS, start: 0.7 },
            Parameter { name: "wave_ns", bounds: WAVE_BOUNDS_NS, start: 200.0 },
            Parameter { name: "split_ns", bounds: LAUNCH_BOUNDS_NS, start: launch },
            Parameter { name: "misaligned", bounds: EFFICIENCY_BOUNDS, start: 0.8 },
            Parameter { name: "overlap", bounds: OVERLAP_BOUNDS, start: 6.0 },
        ]);
    } else if rows >= MIN_ROWS_WITH_TREND {
        if !op.has_products() {
            parameters.extend([
                Parameter { name: "row_ns", bounds: ROW_BOUNDS_NS, start: 150.0 },
                Parameter { name: "element_ns", bounds: ELEMENT_BOUNDS_NS, start: 0.1 },
                Parameter { name: "at_once", bounds: AT_ONCE_BOUNDS, start: 8.0 },
                Parameter { name: "misaligned", bounds: EFFICIENCY_BOUNDS, start: 0.8 },
            ]);
        }
        parameters.push(Parameter { name: "overlap", bounds: OVERLAP_BOUNDS, start: 2.0 });
    }
    parameters
}

fn efficiency(parameters: &[Parameter], values: &[f64]) -> Efficiency {
    let of = |name| {
        let mut pairs = parameters.iter().zip(values);
        pairs.find(|(parameter, _)| parameter.name == name).map(|(_, value)| *value)
    };
    let tiles = || {
        Some(TileEfficiency {
            load: of("load")?,
            wave_ns: of("wave_ns")?,
            split_ns: of("split_ns")?,
            misaligned: of("misaligned")?,
        })
    };
    let rows = || {
        Some(RowEfficiency {
            row_ns: of("row_ns")?,
            element_ns: of("element_ns")?,
            at_once: of("at_once")?,
            misaligned: of("misaligned")?,
        })
    };
    Efficiency {
        compute: of("compute").unwrap_or(1.0),
        memory: of("memory").unwrap_or(1.0),
        launch_ns: of("launch_ns"),
        quantize: of("quantize"),
        block_ns: of("block_ns"),
        softmax: of("softmax"),
        rows: rows(),
        tiles: tiles(),
        overlap: of("overlap"),
        trend: None,
    }
}

/// The fit of one kind of kernel. Its errors are those of a fit without the rows that are held
/// out, its likely range has the errors of each fold by the fit of the others; its efficiencies are
/// those of all rows.
pub(super) fn fit_kernel(
    op: OpKind,
    dtype: Dtype,
    rows: &[KernelRow<'_>],
    gpu: &Gpu,
) -> Option<KernelFit> {
    let (train, test) = split(rows, |row| row.fold == HELD_OUT_FOLD)?;
    let search = Search { op, dtype, gpu, parameters: parameters(op, rows.len()) };
    let all: Vec<&KernelRow<'_>> = rows.iter().collect();
    let (values, fitted) = search.fit(&all, None);
    let (_, of_train) = search.fit(&train, Some(&values));
    let errors = |rows: &[&KernelRow<'_>]| {
        let predicted = search.predicted(&of_train, rows);
        errors(predicted.iter().map(|time| time.time_ns()).zip(rows.iter().map(|r| r.time_ns)))
    };
    let range =
        |value: fn(&KernelTime) -> f64| least_and_most(rows.iter().map(|row| value(&row.bare)));
    Some(KernelFit {
        op,
        dtype,
        efficiency: fitted,
        active_bounds: active_bounds(&search.parameters, &values),
        flops: range(|kernel| kernel.work.flops),
        bytes: range(|kernel| kernel.work.bytes),
        likely: (rows.len() >= MIN_ROWS_WITH_TREND)
            .then(|| search.likely(&all, &values, &of_train)),
        train: errors(&train),
        test: errors(&test),
    })
}

struct Search<'a> {
    op: OpKind,
    dtype: Dtype,
    gpu: &'a Gpu,
    parameters: Vec<Parameter>,
}

impl Search<'_> {
    /// The values of the parameters, and the efficiencies with the trend. `near` are values that
    /// fit most of the rows.
    fn fit(&self, rows: &[&KernelRow<'_>], near: Option<&[f64]>) -> (Vec<f64>, Efficiency) {
        let step = rows.len().div_ceil(MAX_SEARCH_ROWS);
        let mut mixed: Vec<&KernelRow<'_>> = rows.to_vec();
        mixed.sort_by_key(|row| hash(&row.row.configuration()));
        let some: Vec<&KernelRow<'_>> = mixed.iter().step_by(step).copied().collect();
        let loss = |values: &[f64]| {
            let predicted = self.predicted(&efficiency(&self.parameters, values), &some);
            let cost = |(time, row): (&KernelTime, &&KernelRow<'_>)| {
                let error = (time.time_ns() / row.time_ns).ln();
                2.0 * SMALL_ERROR * (error.hypot(SMALL_ERROR) - SMALL_ERROR)
            };
            predicted.iter().zip(&some).map(cost).sum::<f64>() / some.len() as f64
        };
        let values = match near {
            Some(near) => descend(&self.parameters, near.to_vec(), WARM_SWEEPS, loss),
            None => minimise(&self.parameters, loss),
        };
        let mut fitted = efficiency(&self.parameters, &values);
        if rows.len() >= MIN_ROWS_WITH_TREND {
            fitted.trend = Some(self.trend(&fitted, rows));
        }
        (values, fitted)
    }

    fn predicted(&self, efficiency: &Efficiency, rows: &[&KernelRow<'_>]) -> Vec<KernelTime> {
        let calibration = calibration_of(self.op, self.dtype, *efficiency);
        let context = context(self.gpu, Some(&calibration));
        let of = |row: &&KernelRow<'_>| match row.row.predict(&context, None) {
            Some(Prediction::Kernel(time)) => time,
            _ => row.bare,
        };
        rows.iter().map(of).collect()
    }

    /// Least squares of what the terms leave, where large errors count less in each round.
    fn trend(&self, efficiency: &Efficiency, rows: &[&KernelRow<'_>]) -> Trend {
        let predicted = self.predicted(efficiency, rows);
        let samples: Vec<(Trend, f64)> = (predicted.iter().zip(rows))
            .map(|(time, row)| (time.work.features(), (row.time_ns / time.time_ns()).ln()))
            .collect();
        least_squares(&samples, TREND_PULL, SMALL_ERROR)
    }

    /// The range of the errors of each fold, predicted by a fit of the others; `near` are values
    /// that fit all rows, `of_train` is the fit without the fold that is held out. First the size
    /// of the errors is fitted to the sizes of the rows, then the percentiles are those of the
    /// errors in units of this size.
    fn likely(&self, rows: &[&KernelRow<'_>], near: &[f64], of_train: &Efficiency) -> LikelyRange {
        let mut errors: Vec<(Trend, f64)> = Vec::new();
        for fold in 0..FOLDS {
            let (out, others): (Vec<&KernelRow<'_>>, Vec<_>) =
                rows.iter().partition(|row| row.fold == fold);
            let efficiency =
                if fold == HELD_OUT_FOLD { *of_train } else { self.fit(&others, Some(near)).1 };
            let predicted = self.predicted(&efficiency, &out);
            errors.extend(
                predicted
                    .iter()
                    .zip(&out)
                    .map(|(time, row)| (time.work.features(), (row.time_ns / time.time_ns()).ln())),
            );
        }
        let sizes: Vec<(Trend, f64)> = (errors.iter())
            .map(|(features, error)| (*features, (error.abs() + LEAST_ERROR).ln()))
            .collect();
        let spread = least_squares(&sizes, SPREAD_PULL, 1.0);
        let mut scaled: Vec<f64> = (errors.iter())
            .map(|(features, error)| error / LikelyRange::spread_at(&spread, features))
            .collect();
        scaled.sort_by(f64::total_cmp);
        // One more row than there are: the next one.
        let n = scaled.len() as f64;
        let most = (0.9 * (n + 1.0) / n).min(1.0);
        let quantiles = [quantile(&scaled, 1.0 - most).min(0.0), quantile(&scaled, most).max(0.0)];
        LikelyRange { spread, quantiles, margin: 0.0 }
    }
}

/// Weights of features by least squares, each pulled to 0 as by `pull` rows. Errors above `small`
/// count as they are, not as their squares.
fn least_squares(samples: &[(Trend, f64)], pull: f64, small: f64) -> Trend {
    let mut trend = [0.0; FEATURES];
    for _ in 0..TREND_ROUNDS {
        let mut matrix = [[0.0; FEATURES + 1]; FEATURES];
        for (features, rest) in samples {
            let now: f64 = trend.iter().zip(features).map(|(w, x)| w * x).sum();
            let weight = small / (rest - now).hypot(small);
            for (line, x) in matrix.iter_mut().zip(features) {
                for (cell, y) in line.iter_mut().zip(features.iter().chain([rest])) {
                    *cell += weight * x * y;
                }
            }
        }
        for (at, line) in matrix.iter_mut().enumerate() {
            line[at] += pull;
        }
        trend = solve(matrix);
    }
    trend
}

/// The solution of a positive definite system; the last column is the right side.
fn solve(mut matrix: [[f64; FEATURES + 1]; FEATURES]) -> Trend {
    for at in 0..FEATURES {
        let pivot = matrix[at];
        for (below, line) in matrix.iter_mut().enumerate() {
            if below != at {
                let factor = line[at] / pivot[at];
                for (cell, of_pivot) in line.iter_mut().zip(pivot) {
                    *cell -= factor * of_pivot;
                }
            }
        }
    }
    std::array::from_fn(|at| matrix[at][FEATURES] / matrix[at][at])
}

/// The share of the peak that products reach under the power limit, by format: that of the least
/// mean error.
pub(super) fn fit_sustained(
    gpu: &Gpu,
    calibration: &Calibration,
    rows: &[(&Measurement, f64)],
) -> Vec<SustainedFit> {
    let context = context(gpu, Some(calibration));
    let mut by_dtype: BTreeMap<Dtype, Vec<SustainedRow>> = BTreeMap::new();
    for (row, measured_ns) in rows {
        let Some(Prediction::Kernel(time)) = row.predict(&context, None) else { continue };
        let dtype = row.dtype.unwrap_or(Dtype::Bf16);
        let row = SustainedRow { time, measured_ns: *measured_ns, clock_mhz: row.clock_mhz };
        by_dtype.entry(dtype).or_default().push(row);
    }
    let fits = by_dtype.into_iter().filter(|(_, rows)| rows.len() >= super::MIN_ROWS);
    fits.map(|(dtype, rows)| sustained_of(dtype, &rows)).collect()
}

/// A product that was repeated until the power limit acted.
struct SustainedRow {
    time: KernelTime,
    measured_ns: f64,
    clock_mhz: Option<f64>,
}

fn sustained_of(dtype: Dtype, rows: &[SustainedRow]) -> SustainedFit {
    let fit =
        |compute: f64| SustainedFit { dtype, compute, clock_mhz: None, errors: Errors::default() };
    let at = |share: f64| {
        let fit = fit(share);
        errors(rows.iter().map(|row| (row.time.repeated(&fit).time_ns(), row.measured_ns)))
    };
    let shares = (SUSTAINED_STEPS / 5..=SUSTAINED_STEPS)
        .map(|step| f64::from(step) / f64::from(SUSTAINED_STEPS));
    let mut best = (1.0, at(1.0));
    for share in shares {
        let errors = at(share);
        if errors.mape < best.1.mape {
            best = (share, errors);
        }
    }
    let best_fit = fit(best.0);
    let limited =
        rows.iter().filter(|row| row.time.repeated(&best_fit).time_ns() > row.time.time_ns());
    let mut clocks: Vec<f64> = limited.filter_map(|row| row.clock_mhz).collect();
    clocks.sort_by(f64::total_cmp);
    let clock_mhz = clocks.get(clocks.len() / 2).copied();
    SustainedFit { clock_mhz, errors: best.1, ..best_fit }
}
