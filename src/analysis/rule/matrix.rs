//! Decides whether a launch computes matrix products.
//!
//! A busy tensor pipe is not enough: on Hopper the compiler moves constants with `HFMA2.MMA`, which
//! the pipe of 16-bit matrix instructions executes and counts. The counters of tensor operations
//! do not include it.

use crate::analysis::concept::{MATRIX_ONLY, TENSOR_ACTIVE, TENSOR_OPERATIONS};
use crate::analysis::threshold::{Limits, TENSOR_UNCOUNTED};
use crate::model::Launch;

/// Whether matrix products ran, decided by tensor operation counters or, without them, by how busy
/// the pipe is.
pub(super) fn multiplies(launch: &Launch, limits: &Limits<'_>) -> bool {
    if MATRIX_ONLY.iter().filter_map(|id| launch.number(id)).any(|used| used > 0.0) {
        return true;
    }
    // `.peak_sustained` is the device's peak rate, not a measurement.
    let counted = launch
        .metrics
        .range(TENSOR_OPERATIONS.to_owned()..)
        .take_while(|(id, _)| id.starts_with(TENSOR_OPERATIONS))
        .filter(|(id, _)| !id.contains(".peak_sustained"))
        .filter_map(|(_, metric)| metric.value.as_f64());
    match counted.reduce(f64::max) {
        Some(most) => most > 0.0,
        None => launch
            .first_number(TENSOR_ACTIVE)
            .is_some_and(|(_, busy)| busy >= limits.threshold(&TENSOR_UNCOUNTED).value),
    }
}
