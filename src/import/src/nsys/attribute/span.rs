//! Spans of GPU work: from the start of the first piece launched in a range to the end of the last.
//! nsys calls this the range projected onto the GPU (`nvtx_gpu_proj_sum`).

use crate::nsys::pieces::PieceTime;
use crate::region_tree::Tree;

/// The span of each push/pop range, by the range's index; `None` without GPU work.
pub(super) struct RangeSpans(Vec<Option<(i64, i64)>>);

impl RangeSpans {
    pub(super) fn new(ranges: usize) -> Self {
        Self(vec![None; ranges])
    }

    /// Adds a piece of work that was launched directly in a range.
    pub(super) fn add(&mut self, range: usize, piece: PieceTime) {
        let end_ns = piece.start_ns.saturating_add_unsigned(piece.ns);
        self.widen(range, (piece.start_ns, end_ns));
    }

    fn widen(&mut self, range: usize, (start_ns, end_ns): (i64, i64)) {
        let Some(span) = self.0.get_mut(range) else { return };
        let (start, end) = span.unwrap_or((start_ns, end_ns));
        *span = Some((start.min(start_ns), end.max(end_ns)));
    }

    /// The sum over the ranges of each region, with the work of inner ranges.
    pub(super) fn by_region(mut self, tree: &Tree) -> Vec<u64> {
        let mut sums = vec![0_u64; tree.len()];
        for (range, outer) in tree.nesting().iter().rev() {
            let Some(span) = self.0.get(*range).copied().flatten() else { continue };
            let sum = &mut sums[tree.region_of_range(*range)];
            *sum = sum.saturating_add(u64::try_from(span.1.saturating_sub(span.0)).unwrap_or(0));
            if let Some(outer) = outer {
                self.widen(*outer, span);
            }
        }
        sums
    }
}
