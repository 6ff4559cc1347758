//! cuDNN tries its algorithms again in each step.
//!
//! With `torch.backends.cudnn.benchmark` each new shape of input starts a search: all algorithms for
//! a convolution run one after the other, with events, waits and workspaces allocated between. The
//! signature is a run of at least five convolution kernels of at least four names with calls that
//! wait or record events between them, where a network has one kernel for each convolution. The
//! last kernel of a run is the convolution itself. Its trials go, with what the host does from the
//! launch before the run to the convolution (it builds, loads and unloads the trials' code, and
//! allocates their workspaces); at the lower end a quarter of the host's time stays.

use std::collections::BTreeSet;

use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::picked::{Changes, Framework, Picked, lanes};
use super::{Found, words};
use crate::view::View;

/// Kernels and names of a search.
const MIN_TRIALS: usize = 5;
const MIN_NAMES: usize = 4;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let (mut trials, mut calls) = (Vec::new(), BTreeSet::new());
    for lane in &lanes(view) {
        let mut before: Option<u32> = None;
        for run in lane.chunk_by(|(_, a), (_, b)| is_part(view, a) == is_part(view, b)) {
            let launch_before = before;
            before = run.iter().filter_map(|(_, work)| work.call).max().or(before);
            if !run.first().is_some_and(|(_, work)| is_part(view, work)) {
                continue;
            }
            let Some(own) = search_calls(view, run, launch_before) else { continue };
            let last = run.iter().rposition(|(_, work)| is_convolution(view, work)).unwrap_or(0);
            trials.extend(run.iter().take(last).map(|(at, _)| *at));
            calls.extend(own);
        }
    }
    let kernels = Picked::new(view, trials);
    let changes = Changes::new(view);
    let host_ns = calls.iter().fold(0_u64, |sum, at| {
        let ns = view.trace.calls.get(*at as usize).map_or(0, |call| call.duration_ns);
        sum.saturating_add(ns).saturating_add(changes.host_before_ns(*at))
    });
    let host_ns = host_ns as f64 / view.step_count();
    if kernels.at.is_empty() || !kernels.matters() && host_ns < 0.01 * view.step_ns() {
        return None;
    }
    let mut most = changes.without(&kernels.at, 1.0);
    let mut least = most.clone();
    for at in &calls {
        let ns = view.trace.calls.get(*at as usize).map_or(0, |call| call.duration_ns);
        most.call_ns.insert(*at, 0);
        most.no_wait.insert(*at);
        most.host_before_ns.insert(*at, 0);
        least.call_ns.entry(*at).or_insert(ns / 4);
        least.host_before_ns.insert(*at, changes.host_before_ns(*at) / 4);
    }
    let hint = if Framework::of(view) == Framework::Jax {
        "give the step inputs of few shapes (pad to a multiple), so that XLA compiles and tunes once"
    } else {
        "`torch.backends.cudnn.benchmark = False`, or pad inputs to a few lengths so that each is \
         searched once"
    };
    Some(Found {
        change: "search no algorithms in the loop".to_owned(),
        text: format!(
            "cuDNN tries algorithms for convolutions in each step: the host spends {} of a step on it, \
             and the trials take {}",
            words::time(host_ns),
            kernels.words()
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: kernels.at.clone(),
        calls: calls.into_iter().collect(),
        ..Found::default()
    })
}

fn is_convolution(view: &View<'_>, work: &TraceWork) -> bool {
    work.kind == TraceWorkKind::Kernel && view.class(work) == AccountCause::Convolution
}

/// Whether work can be a part of a search: convolutions, and what prepares them.
fn is_part(view: &View<'_>, work: &TraceWork) -> bool {
    is_convolution(view, work)
        || matches!(view.class(work), AccountCause::Fill | AccountCause::Fft)
        || view.class(work) == AccountCause::Layout
            && view.family(work) == crate::class::KernelFamily::Nvidia
}

/// The calls from the launch before a run to its last kernel, without that kernel's launch, if the
/// run is a search.
fn search_calls(
    view: &View<'_>,
    run: &[(u32, &TraceWork)],
    launch_before: Option<u32>,
) -> Option<Vec<u32>> {
    let convolutions = run.iter().filter(|(_, work)| is_convolution(view, work));
    let names: BTreeSet<u32> = convolutions.clone().map(|(_, work)| work.name).collect();
    if convolutions.count() < MIN_TRIALS || names.len() < MIN_NAMES {
        return None;
    }
    let launches = run.iter().filter_map(|(_, work)| work.call);
    let (first, last) = launches.fold((u32::MAX, 0), |(a, b), at| (a.min(at), b.max(at)));
    let thread = view.trace.calls.get(last as usize)?.thread;
    let start = launch_before.filter(|before| *before < first).map_or(first, |at| at + 1);
    let own = (start..last)
        .filter(|at| view.trace.calls.get(*at as usize).is_some_and(|call| call.thread == thread));
    let own: Vec<u32> = own.collect();
    let searches = own.iter().filter_map(|at| view.trace.calls.get(*at as usize)).filter(|call| {
        let name = view.call_name(call);
        call.waits || name.contains("EventRecord") || name.contains("EventElapsed")
    });
    (searches.count() >= names.len()).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    fn search(step: StepScript) -> StepScript {
        (0..6).fold(step, |step, number| {
            let name = names::CONVOLUTION.replace("128x128x64", &format!("{}x64", 32 + number));
            step.call("cudaEventRecord", 2.0).kernel(&name, 100.0).wait("cudaEventSynchronize")
        })
    }

    #[test]
    fn a_search_in_each_step_is_found() {
        let fault = search(StepScript::new()).kernel(names::ADD, 50.0).play(3);
        let found = fault.look(find).unwrap();
        assert_eq!(found.work.len(), 2 * 5);
        assert!((fault.removed_ns(&found.most) - 500_000.0).abs() < 10.0);
        assert!(!found.calls.is_empty());
    }

    #[test]
    fn a_network_of_convolutions_is_silent() {
        let layers = (0..6).fold(StepScript::new(), |step, number| {
            let name = names::CONVOLUTION.replace("128x128x64", &format!("{}x64", 32 + number));
            step.kernel(&name, 100.0)
        });
        assert!(layers.play(3).look(find).is_none());
    }
}
