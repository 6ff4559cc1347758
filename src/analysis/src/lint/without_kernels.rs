//! Ranges in which no kernel was launched: they have host time only.

use super::{Lint, LintInput, is_ours, ranges, some_of};

pub(super) const LINT: Lint = Lint {
    id: "range_without_kernels",
    hint: "put the range around the launches; work that another thread launches belongs to that \
           thread's ranges, or to a start/end range",
    apply,
};

fn apply(linted: &LintInput<'_>) -> Vec<String> {
    if !linted.sees_gpu() {
        return Vec::new();
    }
    let regions = linted.profile.regions.iter().filter(|region| {
        // A CUDA graph that was traced as a whole has time but no kernels.
        region.gpu_ns == Some(0) && region.kernels.is_empty() && !is_ours(&region.path)
    });
    let names: Vec<String> = regions.map(rgpu_model::Region::display).collect();
    (!names.is_empty())
        .then(|| format!("{} without a kernel: {}", ranges(names.len() as u64), some_of(&names)))
        .into_iter()
        .collect()
}
