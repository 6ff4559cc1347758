//! Operators between the kernels of a compiled function.
//!
//! torch's compiler fuses element-wise operators and reductions into kernels of its own (`triton_…`).
//! Where it meets what it cannot compile (`print`, `.item()`, a call into another library), it breaks
//! the graph: Python runs these lines with torch's own kernels, and the next compiled part begins (the
//! reference's cause 44). The signature is such kernels of torch, which the compiler would have fused,
//! between two kernels of the compiler on one stream, twice a step or more; those of an optimizer are
//! left out. Without the break they go into the kernels beside them, with the host's time for them. At
//! least half of their time stays.

use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::Found;
use super::picked::{Changes, Picked, lanes};
use crate::class::KernelFamily;
use crate::view::View;

/// Breaks of a step.
const LEAST_BREAKS: f64 = 2.0;
/// Kernels of a break: more are a part of the program that is not compiled at all.
const MOST_KERNELS: usize = 40;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let mut between: Vec<Vec<u32>> = Vec::new();
    for lane in &lanes(view) {
        let compiled = |(_, work): &(u32, &TraceWork)| view.family(work) == KernelFamily::Inductor;
        // What is before the first compiled kernel and behind the last is between none.
        let mut parts: Vec<&[(u32, &TraceWork)]> = lane.split(compiled).skip(1).collect();
        parts.pop();
        between.extend(parts.into_iter().filter_map(|part| {
            let is_one = |(_, work): &&(u32, &TraceWork)| is_fusible(view, work);
            let kernels: Vec<u32> = part.iter().filter(is_one).map(|(at, _)| *at).collect();
            (!kernels.is_empty() && kernels.len() <= MOST_KERNELS).then_some(kernels)
        }));
    }
    let breaks = between.len() as f64 / view.step_count();
    let kernels = Picked::new(view, between.concat());
    let host_ns: u64 = kernels
        .at
        .iter()
        .filter_map(|at| view.host().call(view.trace.work.get(*at as usize)?.call?))
        .map(|call| call.before_path_ns.saturating_add(call.path_ns))
        .fold(0, u64::saturating_add);
    let host_ns = host_ns as f64 / view.step_count();
    if breaks < LEAST_BREAKS || kernels.ns() + host_ns < MIN_SHARE * view.step_ns() {
        return None;
    }
    let changes = Changes::new(view);
    let mut least = changes.scaled(&kernels.at, 0.5);
    for part in &between {
        for at in part.iter().skip(1) {
            changes.remove(&mut least, *at, 0.5);
        }
    }
    Some(Found {
        change: "compile without breaks".to_owned(),
        text: format!(
            "between kernels of torch's compiler {breaks:.0} times a step torch's own kernels run that \
             it would have fused: {}, and {} of the host's time for them",
            kernels.words(),
            super::words::time(host_ns)
        ),
        hint: "`TORCH_LOGS=graph_breaks` names the lines, `torch.compile(fullgraph=True)` makes each an \
               error: take `print`, `.item()`, `.cpu()`, hooks and calls into NumPy out of the compiled \
               function, and call it once for the whole forward pass and loss"
            .to_owned(),
        least,
        most: changes.without(&kernels.at, 1.0),
        work: kernels.at.clone(),
        ..Found::default()
    })
}

/// The part of a step that breaks take.
const MIN_SHARE: f64 = 0.03;

/// Whether the compiler would have fused a kernel of torch.
fn is_fusible(view: &View<'_>, work: &TraceWork) -> bool {
    let fits = matches!(
        view.class(work),
        AccountCause::ElementWise
            | AccountCause::Cast
            | AccountCause::Reduction
            | AccountCause::Softmax
            | AccountCause::Normalisation
    );
    work.kind == TraceWorkKind::Kernel && view.family(work) == KernelFamily::Torch && fits
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn operators_between_compiled_kernels_are_found() {
        let fused = "triton_poi_fused_add_mul_3";
        let part = || StepScript::new().kernel(fused, 30.0).kernel(names::PRODUCT, 80.0);
        let broken = || part().kernel(names::MUL, 10.0).kernel(names::ADD, 10.0);
        let step = broken().then(broken()).then(part()).kernel(fused, 9.0);
        let window = step.play(4);
        let found = window.look(find).unwrap();
        assert!(found.text.contains("2 times a step"), "{}", found.text);
        assert!((window.removed_ns(&found.most) - 40_000.0).abs() < 1.0);
        assert!((window.removed_ns(&found.least) - 30_000.0).abs() < 1.0);
        // What is around a compiled function is no break.
        let around = part().then(part()).kernels(4, names::MUL, 30.0);
        assert!(around.play(4).look(find).is_none());
        let eager = StepScript::new().kernels(6, names::MUL, 30.0);
        assert!(eager.play(4).look(find).is_none());
    }
}
