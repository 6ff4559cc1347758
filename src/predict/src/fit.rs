//! Efficiencies from measured rows: bounded, regularised, judged on rows that were held out.
//!
//! Time is max(C/η_c, Q/η_m, shared) + n·τ, where C and Q are the times at the peaks. If
//! activations are quantized first, Q_q/η_q and the time of the blocks are added; in attention of
//! prompts a share of the softmax's time is added to C/η_c. The fit
//! minimises the mean of squared relative errors, plus a small pull towards η = 1 and the stated
//! τ, so that parameters that the rows do not determine stay where they are without data.

mod kernels;
mod steps;

use std::collections::BTreeMap;

pub use steps::fit_steps;

pub use kernels::MIN_ROWS_WITH_TILES;

use crate::calibration::{Calibration, CollectiveFit, Errors, Regime, SCHEMA};
use crate::collective::Topology;
use crate::hw::Gpu;
use crate::kernel::OpKind;
use crate::measurement::{Measurement, MeasurementKind, Prediction, Repeat, context};
use crate::{Dtype, measurement};
use kernels::{KernelRow, fit_kernel};

/// The minimum number of rows for a fit.
pub const MIN_ROWS: usize = 8;
/// A collective's regime needs at least this many rows.
const MIN_REGIME_ROWS: usize = 6;
/// Configurations are in so many folds by their hash.
const FOLDS: u64 = 4;
/// The fold that is not fitted, but judged by.
const HELD_OUT_FOLD: u64 = 0;
/// The weight of the pull, against a mean of squared relative errors.
const PULL_WEIGHT: f64 = 1e-4;
const EFFICIENCY_BOUNDS: (f64, f64) = (0.02, 1.0);
const LAUNCH_BOUNDS_NS: (f64, f64) = (1.0, 100_000.0);
const ALPHA_BOUNDS_NS: (f64, f64) = (100.0, 10_000_000.0);
/// The rate of large messages without their latency is above the best that was measured.
const LINK_OVER_BEST: f64 = 1.25;
/// A parameter this close to its bound, as a ratio, lies on it.
const MAX_RATIO_ON_BOUND: f64 = 1.001;
const DESCENT_SWEEPS: usize = 24;
/// Sweeps of a search that starts near its end.
const WARM_SWEEPS: usize = 3;
const GOLDEN_STEPS: usize = 22;
/// A sweep that lowers the loss by less than this share is the last.
const LEAST_DESCENT: f64 = 1e-5;

/// A fit, and the rows that were left out of it.
#[derive(Clone, Debug, PartialEq)]
pub struct FitOutcome {
    /// The fitted calibration.
    pub calibration: Calibration,
    /// Rows faster than their bound (the measurement is faulty or data was in a cache), each with
    /// its bound and its time, in ns.
    pub too_fast: Vec<(Measurement, f64, f64)>,
    /// Kinds with too few rows: name and number of rows.
    pub too_few: Vec<(String, usize)>,
    /// Rows of servers, and those without a size, which no fit can use.
    pub unused: usize,
}

/// A parameter: its name, its bounds, where it starts and is pulled to.
struct Parameter {
    name: &'static str,
    bounds: (f64, f64),
    start: f64,
}

/// Fits all kernels and collectives for which `rows` of one GPU suffice.
#[must_use]
pub fn fit(
    gpu_name: &str,
    gpu: &Gpu,
    topology: Option<&Topology>,
    rows: &[Measurement],
) -> FitOutcome {
    let context = context(gpu, None);
    let mut kernels: BTreeMap<(OpKind, Dtype), Vec<KernelRow<'_>>> = BTreeMap::new();
    let mut collectives: BTreeMap<(String, u32), Vec<CollectiveRow>> = BTreeMap::new();
    let (mut too_fast, mut unused, mut sustained) = (Vec::new(), 0, Vec::new());
    for row in rows {
        let (Some(predicted), Some(time_ns)) = (row.predict(&context, topology), row.time_ns)
        else {
            unused += 1;
            continue;
        };
        if row.repeat == Some(Repeat::Sustained) {
            sustained.push((row, time_ns));
            continue;
        }
        if time_ns < predicted.bound_ns() || time_ns <= 0.0 {
            too_fast.push((row.clone(), predicted.bound_ns(), time_ns));
            continue;
        }
        let fold = fold(&row.configuration());
        match (predicted, row.kind) {
            (Prediction::Kernel(kernel), MeasurementKind::Kernel) => {
                let dtype = row.dtype.unwrap_or(Dtype::Bf16);
                let rows = kernels.entry((kernel.work.op, fitted_dtype(kernel.work.op, dtype)));
                rows.or_default().push(KernelRow { row, bare: kernel, time_ns, fold });
            }
            (Prediction::Collective(time), _) => {
                let key = (time.op.name().to_owned(), time.ranks as u32);
                let rows = collectives.entry(key).or_default();
                rows.push((time.bytes, time.bound_ns, time_ns, fold == HELD_OUT_FOLD));
            }
            _ => unused += 1,
        }
    }
    let mut too_few = Vec::new();
    let mut calibration = Calibration {
        schema: SCHEMA.to_owned(),
        gpu: gpu_name.to_owned(),
        source: None,
        kernel: Vec::new(),
        collective: Vec::new(),
        sustained: Vec::new(),
        end: None,
    };
    for ((op, dtype), rows) in kernels {
        match fit_kernel(op, dtype, &rows, gpu) {
            Some(fit) => calibration.kernel.push(fit),
            None => too_few.push((format!("{} {dtype}", op.name()), rows.len())),
        }
    }
    for ((op, gpus), rows) in collectives {
        match fit_collective(&op, gpus, &rows) {
            Some(fit) => calibration.collective.push(fit),
            None => too_few.push((format!("{op} on {gpus} GPUs"), rows.len())),
        }
    }
    calibration.sustained = kernels::fit_sustained(gpu, &calibration, &sustained);
    FitOutcome { calibration, too_fast, too_few, unused }
}

/// The format by which a kind of kernel is fitted: kernels without products are all alike.
fn fitted_dtype(op: OpKind, dtype: Dtype) -> Dtype {
    if op.has_products() { dtype } else { Dtype::Bf16 }
}

/// The fit of the times of one collective, in pairs of bytes and ns, where no link is known: the
/// share is that of 1.25 times the best rate. Also returns the time of one byte at
/// that rate, in ns. `None` if the times are too few.
#[must_use]
pub fn fit_times(op: &str, gpus: u32, times: &[(f64, f64)]) -> Option<(CollectiveFit, f64)> {
    let best = times.iter().map(|(bytes, ns)| bytes / ns).fold(0.0, f64::max);
    let ns_of_byte = 1.0 / (best * LINK_OVER_BEST);
    let row = |(bytes, ns): &(f64, f64)| {
        let is_held_out = fold(&format!("{op} {gpus} {bytes}")) == HELD_OUT_FOLD;
        (*bytes, bytes * ns_of_byte, *ns, is_held_out)
    };
    let rows: Vec<CollectiveRow> = times.iter().map(row).collect();
    Some((fit_collective(op, gpus, &rows)?, ns_of_byte))
}

/// A row of a collective: its size, its bound, its time, and whether it is held out.
type CollectiveRow = (f64, f64, f64, bool);

fn fit_collective(op: &str, gpus: u32, rows: &[CollectiveRow]) -> Option<CollectiveFit> {
    let parameters = [
        Parameter { name: "alpha_ns", bounds: ALPHA_BOUNDS_NS, start: 10_000.0 },
        Parameter { name: "bandwidth", bounds: EFFICIENCY_BOUNDS, start: 1.0 },
    ];
    let time = |bound: f64, values: &[f64]| values[0] + bound / values[1];
    let (mut train, test) = split(rows, |row| row.3)?;
    train.sort_by(|a, b| a.0.total_cmp(&b.0));
    let fit_part = |part: &[&CollectiveRow]| {
        let loss = |values: &[f64]| mean_square(part, |row| time(row.1, values), |row| row.2);
        let values = minimise(&parameters, loss);
        let sum = loss(&values) * part.len() as f64;
        (values, sum)
    };
    let (all, mut least) = fit_part(&train);
    let mut parts = vec![(train.len(), all)];
    for at in MIN_REGIME_ROWS..train.len().saturating_sub(MIN_REGIME_ROWS) {
        let (below, above) = (train[at - 1], train[at]);
        if below.0 == above.0 {
            continue;
        }
        let ((small, loss_small), (large, loss_large)) =
            (fit_part(&train[..at]), fit_part(&train[at..]));
        // A larger message is never faster.
        let is_rising = time(above.1, &large) >= time(below.1, &small);
        if is_rising && loss_small + loss_large < least {
            least = loss_small + loss_large;
            parts = vec![(at, small), (train.len(), large)];
        }
    }
    let [smallest, largest] = least_and_most(rows.iter().map(|row| row.0));
    let mut regimes: Vec<Regime> = Vec::new();
    let mut start = smallest;
    for (end, values) in &parts {
        let last = if *end == train.len() { largest } else { train[end - 1].0 };
        let bytes = [start, last];
        regimes.push(Regime { bytes, alpha_ns: values[0], bandwidth: values[1] });
        start = train.get(*end).map_or(largest, |row| row.0);
    }
    let predicted = |row: &CollectiveRow| {
        let regime = regimes.iter().find(|regime| row.0 <= regime.bytes[1]);
        regime.map_or(row.1, |regime| time(row.1, &[regime.alpha_ns, regime.bandwidth]))
    };
    let errors = |rows: &[&CollectiveRow]| errors(rows.iter().map(|row| (predicted(row), row.2)));
    Some(CollectiveFit {
        op: op.to_owned(),
        gpus,
        active_bounds: parts.iter().flat_map(|part| active_bounds(&parameters, &part.1)).collect(),
        train: errors(&train),
        test: errors(&test),
        regimes,
    })
}

/// Rows to fit and rows to judge by. `None` if either are too few.
fn split<T>(rows: &[T], is_held_out: impl Fn(&T) -> bool) -> Option<(Vec<&T>, Vec<&T>)> {
    let (test, train): (Vec<&T>, Vec<&T>) = rows.iter().partition(|row| is_held_out(row));
    (train.len() >= MIN_ROWS && !test.is_empty()).then_some((train, test))
}

fn mean_square<T>(rows: &[&T], time: impl Fn(&T) -> f64, measured: impl Fn(&T) -> f64) -> f64 {
    let square = |row: &&T| ((time(row) - measured(row)) / measured(row)).powi(2);
    rows.iter().map(square).sum::<f64>() / rows.len() as f64
}

/// The values that make `loss` and the pull least.
fn minimise(parameters: &[Parameter], loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let start = parameters.iter().map(|parameter| parameter.start).collect();
    descend(parameters, start, DESCENT_SWEEPS, loss)
}

/// From `values` down to the least of `loss` and the pull: in each sweep one parameter after the
/// other, on a log scale.
fn descend(
    parameters: &[Parameter],
    mut values: Vec<f64>,
    sweeps: usize,
    loss: impl Fn(&[f64]) -> f64,
) -> Vec<f64> {
    let whole = |values: &[f64]| {
        let pairs = values.iter().zip(parameters);
        let pull: f64 = pairs.map(|(value, p)| (value / p.start).ln().powi(2)).sum();
        loss(values) + pull * PULL_WEIGHT
    };
    let mut best = whole(&values);
    for _ in 0..sweeps {
        let before = best;
        for (i, parameter) in parameters.iter().enumerate() {
            let (mut low, mut high) = (parameter.bounds.0.ln(), parameter.bounds.1.ln());
            let now = values.clone();
            let at = |x: f64| {
                let mut changed = now.clone();
                changed[i] = x.exp();
                whole(&changed)
            };
            let ratio = (5.0_f64.sqrt() - 1.0) / 2.0;
            let left_of = |low: f64, high: f64| high - ratio * (high - low);
            let right_of = |low: f64, high: f64| low + ratio * (high - low);
            let (mut left, mut right) = (left_of(low, high), right_of(low, high));
            let (mut at_left, mut at_right) = (at(left), at(right));
            for _ in 0..GOLDEN_STEPS {
                if at_left < at_right {
                    (high, right, at_right) = (right, left, at_left);
                    left = left_of(low, high);
                    at_left = at(left);
                } else {
                    (low, left, at_left) = (left, right, at_right);
                    right = right_of(low, high);
                    at_right = at(right);
                }
            }
            // The ends too: a minimum on a bound is one.
            let ends = [parameter.bounds.0.ln(), parameter.bounds.1.ln(), (low + high) / 2.0];
            for x in ends {
                let loss = at(x);
                if loss < best {
                    best = loss;
                    values[i] = x.exp().clamp(parameter.bounds.0, parameter.bounds.1);
                }
            }
        }
        if before - best < before * LEAST_DESCENT {
            break;
        }
    }
    values
}

fn active_bounds(parameters: &[Parameter], values: &[f64]) -> Vec<String> {
    let is_on = |value: f64, bound: f64| {
        value / bound < MAX_RATIO_ON_BOUND && bound / value < MAX_RATIO_ON_BOUND
    };
    let pairs = parameters.iter().zip(values);
    pairs
        .filter(|(parameter, value)| {
            is_on(**value, parameter.bounds.0) || is_on(**value, parameter.bounds.1)
        })
        .map(|(parameter, value)| format!("{} = {value}", parameter.name))
        .collect()
}

/// The errors of pairs of a predicted and a measured time.
#[must_use]
pub fn errors(pairs: impl Iterator<Item = (f64, f64)>) -> Errors {
    let signed: Vec<f64> = pairs.map(|(time, measured)| (time - measured) / measured).collect();
    if signed.is_empty() {
        return Errors::default();
    }
    let n = signed.len();
    let mut sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let mut ratios: Vec<f64> = signed.iter().map(|error| 1.0 / (1.0 + error)).collect();
    ratios.sort_by(f64::total_cmp);
    let range = [quantile(&ratios, 0.1), quantile(&ratios, 0.9)];
    Errors {
        n,
        mape: sizes.iter().sum::<f64>() / n as f64,
        median: quantile(&sizes, 0.5),
        p90: quantile(&sizes, 0.9),
        bias: signed.iter().sum::<f64>() / n as f64,
        measured_over_predicted: Some(range).filter(|range| range.iter().all(|r| r.is_finite())),
    }
}

/// A quantile of sorted values, between two of them where it falls so.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

fn least_and_most(values: impl Iterator<Item = f64>) -> [f64; 2] {
    values.fold([f64::INFINITY, 0.0], |[least, most], value| [least.min(value), most.max(value)])
}

/// The fold of a configuration.
fn fold(configuration: &str) -> u64 {
    hash(configuration) % FOLDS
}

/// FNV-1a, so that a configuration is held out on every machine and version alike.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The rows of one GPU: its name is that of the catalogue, or contains it, as in `NVIDIA H200`.
pub fn gpu_rows<'a>(
    rows: &'a [Measurement],
    id: &'a str,
) -> impl Iterator<Item = &'a measurement::Measurement> {
    rows.iter().filter(move |row| {
        let name = row.gpu.to_lowercase();
        name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::{Efficiency, LikelyEnd};
    use crate::hw::find;

    /// Rows of products that run at `compute` and `memory` of the peaks, with `launch` ns each.
    fn made(compute: f64, memory: f64, launch: f64) -> (Gpu, Vec<Measurement>) {
        let gpu = find("h200").unwrap().gpu().unwrap();
        let context = context(&gpu, None);
        let mut rows = Vec::new();
        for m in [1, 8, 64, 256, 1024, 4096, 16384] {
            for (n, k) in [(4096, 4096), (7168, 2048), (14336, 4096), (2048, 8192)] {
                let mut row = Measurement::new(MeasurementKind::Kernel, "made", "h200");
                row.op = Some("gemm".into());
                row.dtype = Some(Dtype::Bf16);
                (row.m, row.n, row.k) =
                    (Some(f64::from(m)), Some(f64::from(n)), Some(f64::from(k)));
                let Some(Prediction::Kernel(time)) = row.predict(&context, None) else { panic!() };
                let work = (time.compute_ns / compute).max(time.memory_ns / memory);
                row.time_ns = Some(work.max(time.shared_ns) + launch * time.work.launches);
                rows.push(row);
            }
        }
        (gpu, rows)
    }

    #[test]
    fn known_efficiencies_are_found_again() {
        let (gpu, rows) = made(0.75, 0.6, 3000.0);
        let fitted = fit("h200", &gpu, None, &rows);
        let [kernel] = &fitted.calibration.kernel[..] else { panic!("{fitted:?}") };
        assert!((kernel.efficiency.compute - 0.75).abs() < 0.02, "{:?}", kernel.efficiency);
        assert!((kernel.efficiency.memory - 0.6).abs() < 0.02, "{:?}", kernel.efficiency);
        assert!((kernel.efficiency.launch_ns.unwrap() - 3000.0).abs() < 200.0);
        assert!(kernel.test.mape < 0.02 && kernel.test.n > 0 && kernel.active_bounds.is_empty());
        let text = toml::to_string(&fitted.calibration).unwrap();
        assert_eq!(Calibration::parse(&text).unwrap(), fitted.calibration);
    }

    #[test]
    fn the_quantization_of_activations_has_its_own_efficiency() {
        let gpu = find("h200").unwrap().gpu().unwrap();
        let known = Efficiency {
            compute: 0.7,
            memory: 0.65,
            launch_ns: Some(2500.0),
            quantize: Some(0.4),
            block_ns: Some(500.0),
            ..Efficiency::PERFECT
        };
        let mut rows = Vec::new();
        for m in [1, 16, 64, 128, 512, 2048, 8192, 32768] {
            for n in [128, 1024, 4096, 16384] {
                for k in [128, 2048, 8192, 16384] {
                    let mut row = Measurement::new(MeasurementKind::Kernel, "made", "h200");
                    row.op = Some("quantized_gemm".into());
                    row.dtype = Some(Dtype::Fp8);
                    (row.m, row.n, row.k) =
                        (Some(f64::from(m)), Some(f64::from(n)), Some(f64::from(k)));
                    row.time_ns = kernels::time_ns(&row, &known, &gpu);
                    rows.push(row);
                }
            }
        }
        let fitted = fit("h200", &gpu, None, &rows).calibration;
        let [kernel] = &fitted.kernel[..] else { panic!("{fitted:?}") };
        let found = kernel.efficiency;
        assert!((found.quantize.unwrap() - 0.4).abs() < 0.02, "{found:?}");
        assert!((found.block_ns.unwrap() - 500.0).abs() < 25.0, "{found:?}");
        assert!((found.compute - 0.7).abs() < 0.02 && kernel.test.mape < 0.02, "{kernel:?}");
        assert_eq!(Calibration::parse(&toml::to_string(&fitted).unwrap()).unwrap(), fitted);
        // A calibrated prediction is the time that the fit computed.
        let row = rows.iter().find(|row| row.k == Some(8192.0)).unwrap();
        let calibrated = row.predict(&super::context(&gpu, Some(&fitted)), None).unwrap();
        let of_fit = kernels::time_ns(row, &found, &gpu).unwrap();
        assert!((calibrated.time_ns() / of_fit - 1.0).abs() < 1e-9);
    }

    #[test]
    fn no_efficiency_is_above_one_and_rows_faster_than_light_are_left_out() {
        let (gpu, mut rows) = made(1.0, 1.0, 500.0);
        let slow = rows.len();
        let mut fast = rows[20].clone();
        fast.time_ns = Some(10.0);
        rows.push(fast);
        let fitted = fit("h200", &gpu, None, &rows);
        assert_eq!(fitted.too_fast.len(), 1);
        let kernel = &fitted.calibration.kernel[0];
        assert!(kernel.efficiency.compute <= 1.0 && kernel.efficiency.memory <= 1.0);
        assert!(!kernel.active_bounds.is_empty());
        assert_eq!(kernel.train.n + kernel.test.n, slow);
    }

    #[test]
    fn most_held_out_rows_lie_in_the_likely_range() {
        let (gpu, made) = made(0.75, 0.6, 3000.0);
        let mut rows = Vec::new();
        for (row, copy) in made.iter().flat_map(|row| (0..4).map(move |copy| (row, copy))) {
            let mut row = row.clone();
            row.k = row.k.map(|k| k + 64.0 * f64::from(copy));
            // From 0.8 to 1.2 times, without order.
            let factor = 0.8 + 0.004 * ((rows.len() * 37) % 101) as f64;
            row.time_ns = row.time_ns.map(|ns| ns * factor);
            rows.push(row);
        }
        let calibration = fit("h200", &gpu, None, &rows).calibration;
        let predicted = |calibration: &Calibration, row: &Measurement| {
            row.predict(&context(&gpu, Some(calibration)), None).unwrap().time_ns()
        };
        let (fast, slow) = (calibration.at(LikelyEnd::Fast), calibration.at(LikelyEnd::Slow));
        let is_inside = |row: &&Measurement| {
            let measured = row.time_ns.unwrap();
            (predicted(&fast, row)..=predicted(&slow, row)).contains(&measured)
        };
        let inside = rows.iter().filter(is_inside).count();
        assert!((0.7..0.92).contains(&(inside as f64 / rows.len() as f64)), "{inside}");
        assert!(calibration.kernel[0].likely.is_some());
    }

    /// Of kernels whose small sizes vary more, small sizes have the wider range.
    #[test]
    fn the_likely_range_is_wider_where_errors_are_larger() {
        let (gpu, made) = made(0.75, 0.6, 3000.0);
        let mut rows = Vec::new();
        for (row, copy) in made.iter().flat_map(|row| (0..4).map(move |copy| (row, copy))) {
            let mut row = row.clone();
            row.k = row.k.map(|k| k + 64.0 * f64::from(copy));
            let size = if row.m.unwrap() < 100.0 { 0.3 } else { 0.02 };
            let unit = ((rows.len() * 37) % 101) as f64 / 50.0 - 1.0;
            row.time_ns = row.time_ns.map(|ns| ns * (1.0 + size * unit));
            rows.push(row);
        }
        let calibration = fit("h200", &gpu, None, &rows).calibration;
        let width = |m: f64| {
            let time = |calibration: &Calibration| {
                let context = context(&gpu, Some(calibration));
                crate::kernel::Gemm::new(m, 4096.0, 4096.0, Dtype::Bf16).time(&context).time_ns()
            };
            time(&calibration.at(LikelyEnd::Slow)) / time(&calibration.at(LikelyEnd::Fast))
        };
        assert!(width(8.0) > 1.3 && width(8192.0) < 1.15, "{} {}", width(8.0), width(8192.0));
    }

    #[test]
    fn a_fit_is_not_used_outside_its_rows() {
        let (gpu, rows) = made(0.5, 0.5, 1000.0);
        let calibration = fit("h200", &gpu, None, &rows).calibration;
        let context = context(&gpu, Some(&calibration));
        let inside = crate::kernel::Gemm::new(64.0, 4096.0, 4096.0, Dtype::Bf16);
        assert!(inside.time(&context).is_calibrated);
        let outside = crate::kernel::Gemm::new(1e6, 65536.0, 65536.0, Dtype::Bf16);
        assert!(!outside.time(&context).is_calibrated);
        let other = crate::kernel::Gemm::new(64.0, 4096.0, 4096.0, Dtype::Fp8);
        assert!(!other.time(&context).is_calibrated);
    }

    #[test]
    fn two_regimes_of_a_collective_are_found_again() {
        let gpu = find("h200").unwrap().gpu().unwrap();
        let topology = Topology::for_gpu(&gpu).unwrap();
        let mut rows = Vec::new();
        for power in 8..29 {
            let bytes = f64::from(1_u32 << power);
            for part in [1.0, 1.25, 1.5] {
                let mut row = Measurement::new(MeasurementKind::Collective, "made", "h200");
                row.op = Some("all_reduce".into());
                (row.gpus, row.bytes) = (Some(8), Some(bytes * part));
                let bound = row.predict(&context(&gpu, None), Some(&topology)).unwrap().bound_ns();
                let is_small = bytes * part < 2e6;
                let (alpha, share) = if is_small { (10_000.0, 0.25) } else { (30_000.0, 0.8) };
                row.time_ns = Some(alpha + bound / share);
                rows.push(row);
            }
        }
        let calibration = fit("h200", &gpu, Some(&topology), &rows).calibration;
        let [collective] = &calibration.collective[..] else { panic!("{calibration:?}") };
        assert_eq!(collective.regimes.len(), 2);
        assert!(collective.test.mape < 0.02, "{collective:?}");
        assert!((collective.regimes[0].alpha_ns - 10_000.0).abs() < 300.0);
        assert!((collective.regimes[1].bandwidth - 0.8).abs() < 0.02);
        assert_eq!(calibration.collective("all_reduce", 8, 1.0), None);
        assert!(calibration.collective("all_reduce", 8, 5e6).is_some());
    }

    #[test]
    fn few_rows_are_not_fitted() {
        let (gpu, rows) = made(0.5, 0.5, 1000.0);
        let fitted = fit("h200", &gpu, None, &rows[..5]);
        assert!(fitted.calibration.kernel.is_empty());
        assert_eq!(fitted.too_few, [("gemm bf16".to_owned(), 5)]);
    }

    #[test]
    fn a_gpu_is_found_in_its_long_name() {
        let rows = [Measurement::new(MeasurementKind::Kernel, "a", "NVIDIA H200")];
        assert_eq!(gpu_rows(&rows, "h200").count(), 1);
        assert_eq!(gpu_rows(&rows, "h20").count(), 0);
    }
}
