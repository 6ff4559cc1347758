//! How many blocks a launch has, beside the SMs there are for them.

use crate::analysis::concept::SMS;
use crate::model::Launch;

/// Blocks of the grid; nothing for a range, which has none of its own.
pub(super) fn blocks(launch: &Launch) -> Option<u64> {
    let blocks = launch.grid.iter().map(|size| u64::from(*size)).product();
    (blocks > 0).then_some(blocks)
}

/// Whether some SM gets no block: then nothing is wrong with how blocks share the SMs, or with how
/// many would fit on one.
pub(super) fn leave_sms_empty(launch: &Launch) -> bool {
    let sms = launch.first_number(SMS);
    blocks(launch).zip(sms).is_some_and(|(blocks, (_, sms))| (blocks as f64) < sms)
}
