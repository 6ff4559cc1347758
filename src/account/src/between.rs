//! What the host does outside of the steps, where that is more than the steps: code that is compiled
//! or loaded again and again while the GPU waits, and one long piece of the host's own work.
//!
//! A step that is found may be a part of what the program repeats (the sweeps of a solver, of which a
//! request needs many), and what happens between its groups is in no step. So the whole program is
//! looked at: from the first launch to the end of the last work for what comes again, and from the
//! first call to the last for one long piece.

use rgpu_model::finding::{GainScope, PotentialGain};
use rgpu_model::{Finding, Trace};

use crate::cause::words;
use crate::code::OwnCode;
use crate::gains::process_of;
use crate::host_calls::CallKind;
use crate::steps::Step;

/// A pause of the GPU in which a compiler may have run, in nanoseconds.
const LEAST_PAUSE_NS: u64 = 3_000_000;
/// Such pauses, in all and in the later half of the program's work: what is loaded once is start-up.
const LEAST_PAUSES: usize = 4;
const LEAST_LATE_PAUSES: usize = 2;
/// The part of the program's time that they take.
const LEAST_SHARE: f64 = 0.03;
/// The part of the program's calls that one piece of host work covers, and how long it is at least.
const LEAST_HOST_SHARE: f64 = 0.4;
const LEAST_HOST_NS: u64 = 100_000_000;
/// The piece as a multiple of all else from the first launch to the end of the work.
const LEAST_HOST_MULTIPLE: u64 = 3;
/// The GPU may work for one part in this many of it.
const MOST_BUSY_PART: u64 = 10;

/// Code that is compiled or loaded again and again, with the GPU idle meanwhile. `order` is the
/// program's work. What happens before the first fifth of the steps is done is start-up.
pub(crate) fn compiled_again(trace: &Trace, order: &[u32], steps: &[Step]) -> Option<Finding> {
    let begin_ns = steps.get(steps.len() / 5)?.start_ns;
    let middle_ns = steps.get(steps.len() / 2)?.start_ns;
    let end_ns = steps.last()?.end_ns;
    let mut spans: Vec<(u64, u64)> = order
        .iter()
        .filter_map(|at| trace.work.get(*at as usize))
        .map(|work| (work.start_ns, work.end_ns()))
        .filter(|(start_ns, work_end_ns)| *work_end_ns >= begin_ns && *start_ns <= end_ns)
        .collect();
    spans.sort_unstable();
    let mut busy_until_ns = spans.first()?.1;
    let process = process_of(launching_thread(trace, order)?);
    let kinds: Vec<CallKind> = trace.names.iter().map(|name| CallKind::of(name)).collect();
    let loads = trace.calls.iter().zip(0_u32..).filter(|(call, _)| {
        kinds.get(call.name as usize) == Some(&CallKind::Load) && process_of(call.thread) == process
    });
    let loads: Vec<(u64, u32)> = loads.map(|(call, at)| (call.start_ns, at)).collect();
    let (mut pauses, mut late, mut lost_ns) = (0_usize, 0_usize, 0_u64);
    let mut lost_before = Vec::new();
    for (start_ns, work_end_ns) in spans {
        let pause_ns = start_ns.saturating_sub(busy_until_ns);
        if pause_ns >= LEAST_PAUSE_NS {
            let next = loads.partition_point(|(load_ns, _)| *load_ns < busy_until_ns);
            if let Some((_, load)) = loads.get(next).filter(|(load_ns, _)| *load_ns < start_ns) {
                lost_before.push((*load, pause_ns as f64));
                pauses += 1;
                late += usize::from(busy_until_ns > middle_ns);
                lost_ns = lost_ns.saturating_add(pause_ns);
            }
        }
        busy_until_ns = busy_until_ns.max(work_end_ns);
    }
    let program_ns = end_ns.saturating_sub(begin_ns);
    let share = lost_ns as f64 / program_ns.max(1) as f64;
    if pauses < LEAST_PAUSES || late < LEAST_LATE_PAUSES || share < LEAST_SHARE {
        return None;
    }
    let text = format!(
        "code is compiled or loaded {pauses} times until the program's end, long after its first \
         steps, and the GPU waits {} for it, {} each: this is no start-up",
        words::time(lost_ns as f64),
        words::time(lost_ns as f64 / pauses as f64),
    );
    let hint = "something that a compiled function takes as fixed changes: a shape, a Python number \
                or flag that is a static argument, a function made anew. Pass numbers as arrays \
                (JAX: no `static_argnums`; `lax.fori_loop` takes a traced bound), pad shapes, keep \
                the compiled function; `JAX_LOG_COMPILES=1` or `TORCH_LOGS=recompiles` names it";
    let found = finding("compiled_again", "compile once", lost_ns, share.min(1.0), text, hint);
    Some(Finding { code: OwnCode::new(trace).places(lost_before), ..found })
}

/// One long piece of the host's own work, beside which the GPU's work is short. `program_ns` is the
/// time from the first launch to the end of the last work.
pub(crate) fn host_alone(trace: &Trace, order: &[u32], program_ns: u64) -> Option<Finding> {
    let thread = launching_thread(trace, order)?;
    let (mut longest_ns, mut next) = (0, None);
    let (mut first_ns, mut last_ns) = (u64::MAX, 0_u64);
    let mut is_begun = false;
    for (call, at) in trace.calls.iter().zip(0_u32..).filter(|(call, _)| call.thread == thread) {
        first_ns = first_ns.min(call.start_ns);
        let pause_ns = call.start_ns.saturating_sub(last_ns.max(first_ns));
        if pause_ns > longest_ns && is_begun {
            (longest_ns, next) = (pause_ns, Some((call, at, last_ns)));
        }
        // Before the first call that needs it, the driver makes its context.
        let name = trace.names.get(call.name as usize).map_or("", String::as_str);
        is_begun |= CallKind::of(name) != CallKind::Other;
        last_ns = last_ns.max(call.start_ns.saturating_add(call.duration_ns));
    }
    let (call, call_at, from_ns) = next?;
    if leads_to_loading(trace, order, thread, call.start_ns) {
        return None;
    }
    let mut work = order.iter().filter_map(|at| trace.work.get(*at as usize));
    // What runs on from before is no reason to be silent.
    let beside = work
        .clone()
        .map(|work| work.end_ns().min(call.start_ns).saturating_sub(work.start_ns.max(from_ns)));
    let is_busy = beside.fold(0_u64, u64::saturating_add) > longest_ns / MOST_BUSY_PART;
    let first_work_ns = work.clone().map(|work| work.start_ns).min()?;
    let is_inside = from_ns > first_work_ns;
    let rest_ns = if is_inside { program_ns.saturating_sub(longest_ns) } else { program_ns };
    let share = longest_ns as f64 / last_ns.saturating_sub(first_ns).max(1) as f64;
    if is_busy
        || longest_ns < LEAST_HOST_NS.max(rest_ns.saturating_mul(LEAST_HOST_MULTIPLE))
        || share < LEAST_HOST_SHARE
    {
        return None;
    }
    let place = work
        .find(|work| work.start_ns >= call.start_ns)
        .map_or("after the last work of the GPU", |_| "before the next work of the GPU");
    let name = trace.names.get(call.name as usize).map_or("", String::as_str);
    let text = format!(
        "the host's own work is most of the program: {} without a call into CUDA before `{}` \
         ({place}), where all else from the first launch to the end of the work takes {}",
        words::time(longest_ns as f64),
        words::call_name(name),
        words::time(rest_ns as f64),
    );
    let hint = "make or check this data on the GPU, with several threads, or while the GPU works; \
                `perf record -g` (Python: `py-spy record`) names the function";
    let change = "shorten the host's own work";
    let found = finding("host_alone", change, longest_ns, share.min(1.0), text, hint);
    // The call that ends the pause comes from what the host works for.
    Some(Finding { code: OwnCode::new(trace).places([(call_at, longest_ns as f64)]), ..found })
}

/// Whether code is loaded between a pause of a thread and its next launch: the pause was a
/// compiler's, or an import's, which is start-up.
fn leads_to_loading(trace: &Trace, order: &[u32], thread: u64, end_ns: u64) -> bool {
    let launched = order.iter().filter_map(|at| {
        let call = trace.calls.get(trace.work.get(*at as usize)?.call? as usize)?;
        (call.thread == thread && call.start_ns >= end_ns).then_some(call.start_ns)
    });
    let Some(launch_ns) = launched.min() else { return false };
    trace.calls.iter().any(|call| {
        let name = trace.names.get(call.name as usize).map_or("", String::as_str);
        call.thread == thread
            && (end_ns..=launch_ns).contains(&call.start_ns)
            && CallKind::of(name) == CallKind::Load
    })
}

fn finding(id: &str, change: &str, ns: u64, share: f64, text: String, hint: &str) -> Finding {
    let stake = PotentialGain {
        change: Some(change.to_owned()),
        ..PotentialGain::bound(ns, GainScope::Program, share)
    };
    Finding {
        stake: Some(stake),
        id: id.to_owned(),
        category: "program".to_owned(),
        text,
        hint: hint.to_owned(),
        ..Finding::default()
    }
}

/// The thread that launches the first work whose call is known.
fn launching_thread(trace: &Trace, order: &[u32]) -> Option<u64> {
    let mut calls = order.iter().filter_map(|at| trace.work.get(*at as usize)?.call);
    calls.find_map(|call| Some(trace.calls.get(call as usize)?.thread))
}

#[cfg(test)]
mod tests {
    use crate::cause::test_view::{StepScript, play};

    /// Groups of sweeps, with a compiler between them.
    fn sweeps(groups: usize, compiles: usize) -> crate::cause::test_view::TestWindow {
        let sweep = StepScript::new().kernel("sweep(float *)", 80.0).kernel("swap(float *)", 20.0);
        let compile =
            StepScript::new().host(60_000.0).call("cuModuleLoadData", 300.0).then(sweep.clone());
        let mut scripts = vec![sweep.clone(); 50];
        for group in 0..groups {
            scripts.push(if group < compiles { compile.clone() } else { sweep.clone() });
            scripts.extend(vec![sweep.clone(); 150 + 37 * group]);
        }
        play(&scripts)
    }

    #[test]
    fn code_that_is_compiled_again_and_again_is_no_start_up() {
        let mut window = sweeps(8, 8);
        window.call_from("cuModuleLoadData", 7);
        let (account, findings) = crate::account(&window.trace, &window.facts).unwrap();
        assert!(account.step.is_some());
        assert_eq!(findings[0].id, "compiled_again");
        let place = findings[0].code.first().and_then(|place| place.line);
        assert_eq!(place, Some(7));
        assert!(findings[0].text.contains("5 times"), "{}", findings[0].text);
        // Without that of the first steps, and of the queue that the GPU works off meanwhile.
        let ns = findings[0].stake.as_ref().map_or(0, |stake| stake.ns);
        assert!((150_000_000..300_000_000).contains(&ns), "{ns}");
        let once = sweeps(8, 2);
        let (_, findings) = crate::account(&once.trace, &once.facts).unwrap();
        assert!(findings.iter().all(|finding| finding.id != "compiled_again"));
    }

    #[test]
    fn a_program_that_is_mostly_host_work_is_told_so() {
        let chunk = || StepScript::new().kernel("price(float *)", 50.0);
        let first = StepScript::new().call("cudaMalloc", 200.0).host(900_000.0).then(chunk());
        let mut window = play(&[vec![first], vec![chunk(); 60]].concat());
        window.call_from("cudaLaunchKernel", 9);
        let (_, findings) = crate::account(&window.trace, &window.facts).unwrap();
        let found = findings.iter().find(|finding| finding.id == "host_alone").unwrap();
        assert_eq!(found.code.first().and_then(|place| place.line), Some(9));
        assert!(found.text.contains("900 ms"), "{}", found.text);
        let window = play(&[vec![chunk()], vec![chunk(); 60]].concat());
        let (_, findings) = crate::account(&window.trace, &window.facts).unwrap();
        assert!(findings.iter().all(|finding| finding.id != "host_alone"));
    }
}
