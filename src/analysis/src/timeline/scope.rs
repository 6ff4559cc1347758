//! Selects the work that is analysed.
//!
//! A program is analysed as a whole. If rgpu's own runner ran a kernel, only the work that it marks
//! as timed is analysed: set-up, warm-up and the checks between cases belong to the runner.

use std::collections::BTreeMap;

use super::{ancestry, computes};
use rgpu_model::Trace;
use rgpu_model::timeline::TimelineScope;
use rgpu_model::trace::TraceWork;

/// The range that the runner puts around measured work; each case is a range inside it.
const TIMED: &str = "rgpu@timed";

/// A rank, which one process does not have, and the number of its GPU.
pub(super) type RankDevice = (Option<u32>, u32);

/// Work that is analysed together, in order of start.
pub(super) type WorkPart<'a> = Vec<&'a TraceWork>;

pub(super) enum Scope {
    Program,
    Timed,
}

impl Scope {
    pub(super) fn find(trace: &Trace) -> Scope {
        let timed = |region: &rgpu_model::trace::TraceRegion| region.path == [TIMED];
        if trace.regions.iter().any(timed) { Scope::Timed } else { Scope::Program }
    }

    pub(super) fn name(&self) -> TimelineScope {
        match self {
            Scope::Program => TimelineScope::Program,
            Scope::Timed => TimelineScope::Timed,
        }
    }

    /// The work of each rank on each GPU from its first kernel to its last: one part for a program,
    /// else one per case.
    pub(super) fn parts<'a>(&self, trace: &'a Trace) -> BTreeMap<RankDevice, Vec<WorkPart<'a>>> {
        let mut parts: BTreeMap<(RankDevice, u32), WorkPart<'_>> = BTreeMap::new();
        for work in &trace.work {
            let part = match self {
                Scope::Program => Some(0),
                Scope::Timed => case_of(trace, work),
            };
            if let Some(part) = part {
                parts.entry(((work.rank, work.device), part)).or_default().push(work);
            }
        }
        let mut by_device: BTreeMap<RankDevice, Vec<WorkPart<'_>>> = BTreeMap::new();
        for ((device, _), work) in parts {
            if let Some(work) = between_kernels(work) {
                by_device.entry(device).or_default().push(work);
            }
        }
        by_device
    }
}

/// The region directly inside the runner's range, or that range itself.
fn case_of(trace: &Trace, work: &TraceWork) -> Option<u32> {
    let inside = ancestry(trace, work).into_iter();
    let timed = inside.filter_map(|index| {
        let region = trace.regions.get(index as usize)?;
        let first = region.path.first().is_some_and(|part| part == TIMED);
        (first && region.path.len() <= 2).then_some((region.path.len(), index))
    });
    timed.max().map(|(_, index)| index)
}

/// The work without copies before the first kernel and after the last; `None` without a kernel.
fn between_kernels(work: Vec<&TraceWork>) -> Option<Vec<&TraceWork>> {
    let kernels = work.iter().filter(|work| computes(work));
    let first = kernels.clone().map(|work| work.start_ns).min()?;
    let last = kernels.map(|work| work.end_ns()).max()?;
    let inside =
        |work: &&TraceWork| work.end_ns() > first && work.start_ns < last || computes(work);
    Some(work.into_iter().filter(inside).collect())
}
