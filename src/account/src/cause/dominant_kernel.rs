//! One kernel of the user's own takes most of a step.
//!
//! A trace tells how long a kernel runs, not why. So this finding promises nothing: it names the
//! kernel and the measurement that tells, the kernel's counters. Kernels of libraries have causes
//! of their own.

use std::collections::BTreeMap;

use super::Found;
use super::picked::Picked;
use super::words::short_name;
use crate::class::KernelFamily;
use crate::view::View;

/// The part of a step that makes a kernel the first thing to look at.
const MIN_SHARE: f64 = 0.4;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    let own = view.work().filter(|(_, work)| {
        work.kind == rgpu_model::trace::TraceWorkKind::Kernel
            && view.family(work) == KernelFamily::Own
    });
    for (_, work) in own {
        let sum = sums.entry(work.name).or_default();
        *sum = sum.saturating_add(work.duration_ns);
    }
    let (name, _) = sums.into_iter().max_by_key(|(name, ns)| (*ns, std::cmp::Reverse(*name)))?;
    let kernel = Picked::find(view, |work| {
        work.name == name && work.kind == rgpu_model::trace::TraceWorkKind::Kernel
    });
    if kernel.share() < MIN_SHARE {
        return None;
    }
    let full = view.trace.names.get(name as usize).map_or("", String::as_str);
    Some(Found {
        change: format!("make `{}` faster", short_name(full)),
        text: format!("one kernel takes {}", kernel.words()),
        hint: "`rgpu profile --mode deep` reads its counters: what limits it (memory, its own \
               instructions, too few warps, divergence), and what the next change would give"
            .to_owned(),
        work: kernel.at.clone(),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn a_users_kernel_that_takes_most_of_a_step_is_named_without_a_promise() {
        let step = StepScript::new().kernel("grade(float *)", 80.0).kernel("blur(float *)", 30.0);
        let found = step.play(3).look(find).unwrap();
        assert!(found.text.contains("`grade`"), "{}", found.text);
        assert!(found.least.is_empty() && found.most.is_empty());
        let library = StepScript::new().kernel(names::PRODUCT, 80.0).kernel("blur(float *)", 9.0);
        assert!(library.play(3).look(find).is_none());
    }
}
