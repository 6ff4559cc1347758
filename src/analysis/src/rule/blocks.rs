//! The number of blocks of a launch, compared with the number of SMs.

use crate::concept::SMS;
use rgpu_model::Launch;

/// The number of blocks in the grid; `None` for a range result, which has no grid.
pub(super) fn blocks(launch: &Launch) -> Option<u64> {
    let blocks = launch.grid.iter().map(|size| u64::from(*size)).product();
    (blocks > 0).then_some(blocks)
}

/// Whether there are fewer blocks than SMs. Rules about balance and occupancy do not apply then.
pub(super) fn leave_sms_empty(launch: &Launch) -> bool {
    let sms = launch.first_number(SMS);
    blocks(launch).zip(sms).is_some_and(|(blocks, (_, sms))| (blocks as f64) < sms)
}
