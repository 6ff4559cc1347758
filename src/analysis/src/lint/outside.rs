//! Kernels that were launched outside any range.

use super::{Lint, LintInput, distinct, some_of};
use rgpu_model::number_form::by_number;
use rgpu_model::trace::TraceWorkKind;

pub(super) const LINT: Lint = Lint {
    id: "kernels_outside_ranges",
    hint: "put a range around them; push/pop ranges hold for their own thread only, so work that a \
           library launches from a thread of its own (autograd) needs a start/end range",
    apply,
};

fn apply(linted: &LintInput<'_>) -> Vec<String> {
    let (outside, all) = match linted.trace.filter(|trace| !trace.work.is_empty()) {
        Some(trace) => {
            let kernels = trace.work.iter().filter(|work| work.kind == TraceWorkKind::Kernel);
            // Without its API call, we do not know in which range a kernel was launched.
            let outside = kernels.clone().filter(|w| w.regions.is_empty() && w.call.is_some());
            let names = outside.map(|work| linted.name(work.name).to_owned());
            (names.collect::<Vec<_>>(), kernels.count())
        }
        None => {
            // If no launch has a range, the tool was not asked to record ranges.
            let launches = &linted.profile.launches;
            let asked = launches.iter().any(|launch| !launch.region.is_empty());
            let outside = launches.iter().filter(|launch| asked && launch.region.is_empty());
            (outside.map(|launch| launch.kernel.clone()).collect(), launches.len())
        }
    };
    if outside.is_empty() {
        return Vec::new();
    }
    let names = some_of(&distinct(outside.iter().cloned()));
    let (n, were) = (outside.len(), by_number(outside.len(), "was", "were"));
    vec![format!("{n} of {all} kernels {were} launched outside any range: {names}")]
}
