//! Communication between GPUs on the critical path.
//!
//! Signature: kernels of NCCL and its like (class communication) on the critical path, with no
//! kernel beside them. Three causes are told apart: many collectives of less than 50 µs, which one
//! of all bytes replaces (the reference's cause 63); collectives that take much longer than the
//! same one in another step, since they wait for a rank that comes late (65); and collectives that
//! stand where they could run beside kernels that do not need them (62).

use std::collections::HashMap;

use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::common::{is_small, part, per_step, remove_work};
use super::{Found, words};
use crate::host_calls::median;
use crate::view::View;

/// A collective up to this time is small: its latency counts, in nanoseconds.
const SMALL_NS: u64 = 50_000;

fn collectives<'t>(view: &View<'t>) -> Vec<(u32, &'t TraceWork)> {
    let is_one = |(_, work): &(u32, &TraceWork)| {
        work.kind == TraceWorkKind::Kernel && view.class(work) == AccountCause::Communication
    };
    view.work().filter(is_one).collect()
}

fn path_ns(view: &View<'_>, works: &[(u32, &TraceWork)]) -> f64 {
    let ns = works.iter().map(|(at, _)| view.host().work_path(*at).run_ns);
    per_step(view, ns.fold(0, u64::saturating_add))
}

fn found(works: &[(u32, &TraceWork)], change: &str, text: String, hint: &str) -> Found {
    Found {
        change: change.to_owned(),
        text,
        hint: hint.to_owned(),
        work: works.iter().map(|(at, _)| *at).collect(),
        calls: works.iter().filter_map(|(_, work)| work.call).collect(),
        ..Found::default()
    }
}

/// Many small collectives. See [`super::CAUSES`].
pub(super) fn find_small(view: &View<'_>) -> Option<Found> {
    let all = collectives(view);
    let small: Vec<(u32, &TraceWork)> =
        all.into_iter().filter(|(_, work)| work.duration_ns < SMALL_NS).collect();
    let lost = path_ns(view, &small);
    if (small.len() as f64) < 8.0 * view.step_count() || is_small(view, lost) {
        return None;
    }
    let text = format!(
        "{} collectives a step take less than 50 µs each, {} of a step: their latency counts, not \
         their bytes",
        words::count(small.len(), view),
        words::time(lost),
    );
    let mut found = found(
        &small,
        "pack the small collectives into one",
        text,
        "`torch.distributed.all_reduce_coalesced`, larger buckets (`DistributedDataParallel(..., \
         bucket_cap_mb=100)`), or `ncclGroupStart`/`ncclGroupEnd` around them",
    );
    for (number, (at, work)) in small.iter().enumerate() {
        if number % 8 != 0 {
            remove_work(&mut found.most, *at, work);
        }
        if number % 2 != 0 {
            remove_work(&mut found.least, *at, work);
        }
    }
    Some(found)
}

/// Collectives that wait for another rank. See [`super::CAUSES`].
pub(super) fn find_waiting(view: &View<'_>) -> Option<Found> {
    let excess = excess_over_fastest(view);
    let on_path = excess.iter().map(|(at, work, fastest_ns)| {
        work.duration_ns.saturating_sub(*fastest_ns).min(view.host().work_path(*at).run_ns)
    });
    let lost = per_step(view, on_path.fold(0, u64::saturating_add));
    if is_small(view, lost) {
        return None;
    }
    let works: Vec<(u32, &TraceWork)> = excess.iter().map(|(at, work, _)| (*at, *work)).collect();
    let text = format!(
        "collectives take longer than the same ones of other steps, {} of a step: they wait for a \
         rank that comes late",
        words::time(lost),
    );
    let mut found = found(
        &works,
        "let all ranks arrive at the same time",
        text,
        "balance the data over the ranks (equal tokens, not equal samples) and look for the slow \
         rank: its own collectives are the short ones",
    );
    for (at, work, fastest_ns) in &excess {
        found.most.work_ns.insert(*at, *fastest_ns);
        let half = (work.duration_ns - fastest_ns) / 2;
        found.least.work_ns.insert(*at, fastest_ns.saturating_add(half));
    }
    found.decides = Some(
        "whether a rank is late or the link is slow: record all ranks and compare when they begin"
            .to_owned(),
    );
    Some(found)
}

/// Collectives that nothing hides. See [`super::CAUSES`].
pub(super) fn find_exposed(view: &View<'_>) -> Option<Found> {
    let all = collectives(view);
    let lost = path_ns(view, &all);
    if is_small(view, lost) {
        return None;
    }
    // Ideally one collective is exposed: the last, whose data are ready last.
    let last_ns = median(all.iter().map(|(_, work)| work.duration_ns).collect()) as f64;
    let share = (1.0 - last_ns / lost).clamp(0.0, 1.0);
    if is_small(view, lost * share) {
        return None;
    }
    let text = format!(
        "communication takes {} of a step in which no kernel runs beside it ({} collectives)",
        words::time(lost),
        words::count(all.len(), view),
    );
    let mut found = found(
        &all,
        "communicate beside the kernels",
        text,
        "start each collective when its data are ready, on a stream of its own: \
         `DistributedDataParallel` with smaller buckets, FSDP's `forward_prefetch` and \
         `backward_prefetch`, `no_sync()` in all but the last micro-batch",
    );
    for (at, work) in &all {
        found.most.work_ns.insert(*at, part(work.duration_ns, 1.0 - share));
        found.least.work_ns.insert(*at, part(work.duration_ns, 1.0 - share / 2.0));
    }
    found.is_bound = true;
    Some(found)
}

/// Collectives that take at least half longer than the fastest at the same place of a step, with
/// that one's time.
fn excess_over_fastest<'t>(view: &View<'t>) -> Vec<(u32, &'t TraceWork, u64)> {
    let mut places: HashMap<(u32, usize), Vec<(u32, &TraceWork)>> = HashMap::new();
    for step in view.window() {
        let mut count: HashMap<u32, usize> = HashMap::new();
        for at in &step.work {
            let Some(work) = view.trace.work.get(*at as usize) else { continue };
            if view.class(work) == AccountCause::Communication {
                let number = count.entry(work.name).or_default();
                places.entry((work.name, *number)).or_default().push((*at, work));
                *number += 1;
            }
        }
    }
    let mut excess = Vec::new();
    for works in places.values().filter(|works| works.len() >= 3) {
        let fastest_ns = works.iter().map(|(_, work)| work.duration_ns).min().unwrap_or(0);
        let slow = works.iter().filter(|(_, work)| work.duration_ns / 3 * 2 > fastest_ns);
        excess.extend(slow.map(|(at, work)| (*at, *work, fastest_ns)));
    }
    excess.sort_unstable_by_key(|(at, _, _)| *at);
    excess
}

#[cfg(test)]
mod tests;
