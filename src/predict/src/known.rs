//! Published results, to compare predictions and contributed hardware with.

use crate::Dtype;
use crate::hw::find;
use crate::kernel::gemm::grouped;
use crate::kernel::{Context, Gemm};

/// A number that is known from elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownResult {
    /// The name of the number.
    pub name: &'static str,
    /// The publication that states it.
    pub source: &'static str,
    /// The published value.
    pub known: f64,
    /// The value that rgpu computes; NaN if it cannot.
    pub computed: f64,
    /// The accepted difference: half the last published digit.
    pub tolerance: f64,
}

impl KnownResult {
    /// Whether both values agree within the tolerance.
    #[must_use]
    pub fn agrees(&self) -> bool {
        (self.computed - self.known).abs() <= self.tolerance
    }
}

/// The rows of A, then n and k, and the published bound in us, of NVFP4 grouped products on B200.
const NVFP4_GROUPS: &[(&str, &[f64], f64, f64, f64)] = &[
    (
        "nvfp4_group_gemm on b200, 8 groups of n 4096, k 7168: bound in us",
        &[80., 176., 128., 72., 64., 248., 96., 160.],
        4096.,
        7168.,
        18.833,
    ),
    (
        "nvfp4_group_gemm on b200, 8 groups of n 7168, k 2048: bound in us",
        &[40., 76., 168., 72., 164., 148., 196., 160.],
        7168.,
        2048.,
        10.667,
    ),
    (
        "nvfp4_group_gemm on b200, 2 groups of n 3072, k 4096: bound in us",
        &[192., 320.],
        3072.,
        4096.,
        2.406,
    ),
    (
        "nvfp4_group_gemm on b200, 2 groups of n 4096, k 1536: bound in us",
        &[128., 384.],
        4096.,
        1536.,
        1.525,
    ),
];

/// All known results with what is computed now.
#[must_use]
pub fn results() -> Vec<KnownResult> {
    let gpu = find("b200").ok().and_then(|hardware| hardware.gpu().ok());
    NVFP4_GROUPS
        .iter()
        .map(|(name, rows, n, k, known)| {
            let groups: Vec<Gemm> =
                rows.iter().map(|m| Gemm::new(*m, *n, *k, Dtype::Nvfp4)).collect();
            let computed = gpu
                .as_ref()
                .map_or(f64::NAN, |gpu| grouped(&groups, &Context::new(gpu)).bound_ns() / 1000.0);
            KnownResult {
                name,
                source: "GPU MODE, nvfp4_group_gemm",
                known: *known,
                computed,
                tolerance: 0.0005,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_result_holds_and_a_wrong_one_does_not() {
        for result in results() {
            assert!(result.agrees(), "{result:?}");
            assert!(!KnownResult { computed: result.computed * 1.001, ..result }.agrees());
        }
    }
}
