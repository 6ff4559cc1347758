//! Puts it together: steps, account, and the findings with their replayed gains.

use rgpu_model::{Account, Finding, Trace};

use crate::facts::GpuFacts;

/// See [`crate::account`].
pub(crate) fn account(_trace: &Trace, _facts: &GpuFacts) -> Option<(Account, Vec<Finding>)> {
    None
}
