//! Whether a launch multiplies matrices at all.
//!
//! A busy tensor pipe does not say so: on Hopper the compiler moves constants with `HFMA2.MMA`,
//! which goes through the pipe of 16-bit matrix instructions and counts as one there. Counted
//! operations tell the two apart.

use crate::analysis::concept::{MATRIX_ONLY, TENSOR_ACTIVE, TENSOR_OPERATIONS};
use crate::analysis::threshold::{Limits, TENSOR_UNCOUNTED};
use crate::model::Launch;

/// Whether matrix products ran: by their counted operations, else by how busy the pipe is.
pub(super) fn multiplies(launch: &Launch, limits: &Limits<'_>) -> bool {
    if MATRIX_ONLY.iter().filter_map(|id| launch.number(id)).any(|used| used > 0.0) {
        return true;
    }
    // `.peak_sustained` is what the device could do.
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
            .is_some_and(|(_, busy)| busy >= limits.of(&TENSOR_UNCOUNTED).value),
    }
}
