//! Values that the host reads from the GPU: a small copy to the host, and the wait for it.

use std::collections::{HashMap, HashSet};

use super::common::{Direction, direction, is_small_copy};
use crate::host_calls::{CallKind, HostCall};
use crate::view::View;

/// Kernels before a read among which one of a compaction is looked for.
const KERNELS_BEFORE: usize = 8;
/// Kernels after a read of a size that may select by it.
const KERNELS_AFTER: usize = 2;

/// A read of the host.
pub(super) struct ValueRead<'v> {
    /// The calls that wait, the copy itself among them if it does.
    pub waits: Vec<&'v HostCall>,
    /// The copies, as indexes into the trace's work.
    pub copies: Vec<u32>,
    /// Whether the thread launched no kernel since its previous read.
    pub is_in_row: bool,
    /// The kernels right before it that compact or count, and those right after it that select, as
    /// indexes into the trace's work; empty if what is read is no size.
    pub compaction: Vec<u32>,
}

impl ValueRead<'_> {
    /// Nanoseconds of the path that the read cost: from the end of the copy to the next work.
    pub(super) fn path_ns(&self) -> u64 {
        self.waits.iter().map(|wait| wait.after_wait_ns).fold(0, u64::saturating_add)
    }

    /// The step, within the window.
    pub(super) fn step(&self) -> u32 {
        self.waits.first().map_or(0, |wait| wait.step)
    }
}

/// What a thread did since its last read.
#[derive(Default)]
struct ThreadState<'v> {
    copies: Vec<u32>,
    kernels: Vec<u32>,
    /// Position of the last read, if no kernel was launched since.
    last_read: Option<usize>,
    /// Position of the last read.
    previous_read: Option<usize>,
    /// Copy calls that waited themselves.
    waited: Vec<&'v HostCall>,
}

/// All reads of small values in the window, in order of their waits.
///
/// torch's `item()` is a `cudaMemcpyAsync` to pageable memory and a `cudaStreamSynchronize`; where
/// the copy itself waits, the synchronisation right after it belongs to the same read.
pub(super) fn value_reads<'v>(view: &'v View<'_>) -> Vec<ValueRead<'v>> {
    let mut reads: Vec<ValueRead<'v>> = Vec::new();
    let mut threads: HashMap<u64, ThreadState<'v>> = HashMap::new();
    for call in &view.host().all {
        let state = threads.entry(call.thread).or_default();
        let work = call.work.and_then(|at| Some((at, view.trace.work.get(at as usize)?)));
        if call.kind == CallKind::Wait {
            if !state.copies.is_empty() {
                state.waited.push(call);
                let read = finish_read(view, state);
                state.last_read = Some(reads.len());
                state.previous_read = state.last_read;
                reads.push(read);
            } else if let Some(read) = state.last_read.and_then(|at| reads.get_mut(at)) {
                read.waits.push(call);
            }
            continue;
        }
        let Some((at, work)) = work else { continue };
        if direction(view, work) == Some(Direction::ToHost) {
            if is_small_copy(work) {
                state.copies.push(at);
                if call.waits {
                    state.waited.push(call);
                    let read = finish_read(view, state);
                    state.last_read = Some(reads.len());
                    state.previous_read = state.last_read;
                    reads.push(read);
                }
            }
        } else if call.kind != CallKind::Copy && call.kind != CallKind::Fill {
            let selects = state.kernels.len() < KERNELS_AFTER && is_compaction(view.name(work));
            if let Some(read) = state.previous_read.and_then(|at| reads.get_mut(at))
                && selects
                && !read.compaction.is_empty()
            {
                read.compaction.push(at);
            }
            state.kernels.push(at);
            state.last_read = None;
        }
    }
    // The step after the window may begin with a read, which is not the window's.
    let window: HashSet<u32> = view.work().map(|(at, _)| at).collect();
    reads.retain(|read| read.copies.iter().all(|at| window.contains(at)));
    reads
}

fn finish_read<'v>(view: &View<'_>, state: &mut ThreadState<'v>) -> ValueRead<'v> {
    let from = state.kernels.len().saturating_sub(KERNELS_BEFORE);
    let compaction = state.kernels.iter().skip(from).copied();
    let compaction = compaction.filter(|at| {
        view.trace.work.get(*at as usize).is_some_and(|work| is_compaction(view.name(work)))
    });
    let compaction: Vec<u32> = compaction.collect();
    let is_in_row = state.kernels.is_empty() && state.last_read.is_some();
    state.kernels.clear();
    ValueRead {
        waits: std::mem::take(&mut state.waited),
        copies: std::mem::take(&mut state.copies),
        is_in_row,
        compaction,
    }
}

/// Kernels that select elements or count them: CUB's select and scan, torch's `nonzero` and
/// `unique`, CuPy's scan of a mask.
fn is_compaction(name: &str) -> bool {
    const PARTS: [&str; 8] = [
        "deviceselect",
        "devicecompact",
        "devicescan",
        "nonzero",
        "cupy_scan",
        "cupy_bsum",
        "unique",
        "masked_select",
    ];
    let name = name.to_ascii_lowercase();
    PARTS.iter().any(|part| name.contains(part))
}
