//! Decides whether a launch computes matrix products, and how much it uses the tensor cores.
//!
//! A busy tensor pipe is not enough: on Hopper the compiler moves constants with `HFMA2.MMA`, which
//! the pipe of 16-bit matrix instructions executes and counts. The counters of tensor operations
//! do not include it.

use crate::concept::{
    MATRIX_ONLY, SM_CYCLES, SMS, TENSOR_ACTIVE, TENSOR_ELAPSED, TENSOR_OPERATIONS,
};
use crate::known_kernel::{MatrixUnit, matrix_unit};
use crate::threshold::{Limits, TENSOR_UNCOUNTED, TENSOR_USED};
use rgpu_model::launch::EXECUTED;
use rgpu_model::{Launch, SharedText};

/// Dense 16-bit operations of an SM of Hopper in one cycle.
const HOPPER_OPERATIONS: f64 = 4096.0;

/// Below this share of the time, in percent, a verdict leaves out the rate of the tensor cores. The
/// counted operations include those on the padding of tiles, which are most of them where a product
/// is small.
const MIN_RATED_PERCENT: f64 = 10.0;

/// Whether matrix products ran, decided by tensor operation counters or, without them, by how busy
/// the pipe is.
pub(super) fn has_matrix_products(launch: &Launch, limits: &Limits<'_>) -> bool {
    if MATRIX_ONLY.iter().filter_map(|id| launch.number(id)).any(|used| used > 0.0) {
        return true;
    }
    match operations(launch, "") {
        Some(most) => most > 0.0,
        None => launch
            .first_number(TENSOR_ACTIVE)
            .is_some_and(|(_, busy)| busy >= limits.threshold(&TENSOR_UNCOUNTED).value),
    }
}

/// The largest value of the counters of tensor operations, one for each type, whose names end so.
fn operations(launch: &Launch, suffix: &str) -> Option<f64> {
    // `.peak_sustained` is the device's peak rate, not a measurement.
    let counted = launch
        .metrics
        .range(SharedText::from(TENSOR_OPERATIONS)..)
        .take_while(|(id, _)| id.starts_with(TENSOR_OPERATIONS))
        .filter(|(id, _)| !id.contains(".peak_sustained") && id.ends_with(suffix))
        .filter_map(|(_, metric)| metric.value.as_f64());
    counted.reduce(f64::max)
}

/// Whether a launch computes matrix products on the tensor cores: its name says so, or its
/// counters.
pub(super) fn computes_products(launch: &Launch, limits: &Limits<'_>) -> bool {
    let named = is_named_product(launch);
    let used = limits.threshold(&TENSOR_USED).value;
    let busy = launch.first_number(TENSOR_ACTIVE).is_some_and(|(_, busy)| busy >= used);
    busy && (named || has_matrix_products(launch, limits))
}

/// Whether a kernel is for the tensor cores by its name.
pub(super) fn is_named_product(launch: &Launch) -> bool {
    matrix_unit(&launch.kernel).is_some_and(|unit| unit != MatrixUnit::Fp32)
}

/// How busy the tensor cores are, and the rate if it can be told.
pub(super) struct TensorUse<'a> {
    pub(super) metric: &'static str,
    pub(super) percent: f64,
    /// The same as a share of all cycles, if `percent` is of the active ones and this was measured.
    pub(super) elapsed: Option<(&'static str, f64)>,
    launch: &'a Launch,
    major: Option<u32>,
}

impl TensorUse<'_> {
    /// The share of the peak that the whole launch reaches, in percent.
    pub(super) fn peak_percent(&self) -> f64 {
        self.elapsed.map_or(self.percent, |(_, elapsed)| elapsed.min(self.percent))
    }

    /// The use as a clause. Of the whole time, because only some reports count active cycles.
    pub(super) fn text(&self) -> String {
        let share = match self.peak_percent() {
            share if share > 0.0 && share < 0.5 => "less than 1".to_owned(),
            share => format!("{share:.0}"),
        };
        let is_rated = self.peak_percent() >= MIN_RATED_PERCENT;
        let rate = if is_rated { self.rate() } else { String::new() };
        format!("the tensor cores are busy for {share} % of the time{rate}")
    }

    /// The use of a launch that is near the peak, as a sentence.
    pub(super) fn text_at_peak(&self) -> String {
        format!(
            "at {:.0} % of the tensor peak at its clock{}; little is left",
            self.peak_percent(),
            self.rate()
        )
    }

    /// `, about 784 TFLOP/s executed, padding included`; empty if unknown.
    fn rate(&self) -> String {
        let rate = flops_per_s(self.launch, self.major)
            .map(|rate| format!(", about {:.0} TFLOP/s {EXECUTED}", rate / 1e12));
        rate.unwrap_or_default()
    }
}

/// The use of the tensor cores; `None` without its counter.
pub(super) fn tensor_use<'a>(launch: &'a Launch, limits: &Limits<'_>) -> Option<TensorUse<'a>> {
    let (metric, percent) = launch.first_number(TENSOR_ACTIVE)?;
    let elapsed = launch.first_number(TENSOR_ELAPSED).filter(|(id, _)| *id != metric);
    Some(TensorUse { metric, percent, elapsed, launch, major: limits.major() })
}

/// Floating-point operations a second on the tensor cores of a GPU of major compute capability
/// `major`.
///
/// Without counters of operations, the rate follows from the share of cycles in which the pipe is
/// busy. That is known for 16-bit operands on Hopper: 8192³ in BF16 gives 1.12e12 operations of
/// 1.10e12.
fn flops_per_s(launch: &Launch, major: Option<u32>) -> Option<f64> {
    let seconds = launch.duration_ns.filter(|ns| *ns > 0.0).map(|ns| ns / 1e9);
    let estimated = || {
        let half = matrix_unit(&launch.kernel) == Some(MatrixUnit::Tensor16);
        let (_, share) = launch.first_number(TENSOR_ELAPSED).filter(|_| half)?;
        let (_, sms) = launch.first_number(SMS).filter(|_| major == Some(9))?;
        let (_, cycles) = launch.first_number(SM_CYCLES)?;
        Some(share / 100.0 * cycles * sms * HOPPER_OPERATIONS)
    };
    let counted = operations(launch, ".sum.per_second").filter(|rate| *rate > 0.0);
    let count = operations(launch, ".sum").filter(|count| *count > 0.0).or_else(estimated);
    counted.or_else(|| Some(count? / seconds?))
}

/// A clause about the tensor cores for a launch that computes matrix products; empty for others.
pub(super) fn tensor_clause(launch: &Launch, limits: &Limits<'_>) -> String {
    match tensor_use(launch, limits).filter(|_| computes_products(launch, limits)) {
        Some(tensor) => format!("; {}", tensor.text()),
        None => String::new(),
    }
}
