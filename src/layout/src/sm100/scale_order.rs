//! Finds the order that the scales of a wrong buffer are in, if it is one of digits: the rows, the
//! scales of a row and the batches, each in powers of two and blocks, one after another in any
//! order.

use super::scale::{BLOCK_ROWS, BLOCK_SCALES, ScaleTensor};
use crate::coalesce::coalesce_by_mode;
use crate::layout::{Layout, Mode};

/// Comparisons beyond those that one right order takes. Few different values make many orders look
/// right at first.
const MAX_EXTRA_COMPARISONS: i64 = 1 << 24;

/// Whether the buffer has every value at least as often as the plain scales: padding may add some.
pub(super) fn is_permutation(buffer: &[u8], plain: &[u8]) -> bool {
    let mut counts = [0_i64; 256];
    buffer.iter().for_each(|value| counts[usize::from(*value)] += 1);
    plain.iter().for_each(|value| counts[usize::from(*value)] -= 1);
    counts.iter().all(|count| *count >= 0)
}

/// The layout from (row, k, batch) to bytes at which the buffer has every scale. `None` if no order
/// of digits is right, or the search takes too long.
pub(super) fn order(tensor: ScaleTensor, buffer: &[u8], plain: &[u8]) -> Option<Layout> {
    let bits =
        |axis, bits: u32| (0..bits).map(move |bit| Digit { axis, extent: 2, step: 1 << bit });
    let blocks = |axis, extent, step| Digit { axis, extent, step };
    let whole_rows = vec![blocks(Axis::Row, tensor.rows(), 1)];
    let whole_scales = vec![blocks(Axis::Scale, tensor.scales_in_row(), 1)];
    let mut block_rows: Vec<Digit> = bits(Axis::Row, BLOCK_ROWS.trailing_zeros()).collect();
    block_rows.push(blocks(Axis::Row, tensor.row_blocks(), BLOCK_ROWS));
    let mut block_scales: Vec<Digit> = bits(Axis::Scale, BLOCK_SCALES.trailing_zeros()).collect();
    block_scales.push(blocks(Axis::Scale, tensor.k_blocks(), BLOCK_SCALES));
    if buffer.first() != plain.first() {
        return None;
    }
    // With the padding to blocks, and without it.
    for (rows, scales) in [
        (&block_rows, &block_scales),
        (&whole_rows, &block_scales),
        (&block_rows, &whole_scales),
        (&whole_rows, &whole_scales),
    ] {
        let mut digits: Vec<Digit> = rows.iter().chain(scales).copied().collect();
        digits.push(blocks(Axis::Batch, tensor.batches(), 1));
        digits.retain(|digit| digit.extent > 1);
        let budget = MAX_EXTRA_COMPARISONS.saturating_add(4 * buffer.len() as i64);
        let mut search = Search { tensor, buffer, plain, budget, taken: Vec::new() };
        if search.extend(&mut digits, 1) {
            return search.layout();
        }
    }
    None
}

/// The coordinate that a digit is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Axis {
    Row,
    Scale,
    Batch,
}

/// A part of a coordinate: `extent` values, `step` apart.
#[derive(Debug, Clone, Copy)]
struct Digit {
    axis: Axis,
    extent: i64,
    step: i64,
}

/// The order of digits so far, the fastest first, with the bytes between neighbours.
struct Search<'a> {
    tensor: ScaleTensor,
    buffer: &'a [u8],
    plain: &'a [u8],
    /// Comparisons left before the search gives up: orders multiply with each digit.
    budget: i64,
    taken: Vec<(Digit, i64)>,
}

impl Search<'_> {
    /// Takes the remaining digits in an order that the buffer has. Returns whether there is one.
    fn extend(&mut self, remaining: &mut Vec<Digit>, stride: i64) -> bool {
        if remaining.is_empty() {
            return true;
        }
        for at in 0..remaining.len() {
            let digit = remaining.remove(at);
            if self.fits(digit, stride) {
                self.taken.push((digit, stride));
                // The product of all digits is the size of the buffer's blocks, which fits.
                if self.extend(remaining, stride * digit.extent) {
                    return true;
                }
                self.taken.pop();
            }
            remaining.insert(at, digit);
        }
        false
    }

    /// Whether the buffer has the scales that differ from those already compared in this digit.
    fn fits(&mut self, digit: Digit, stride: i64) -> bool {
        let inner: i64 = self.taken.iter().map(|(digit, _)| digit.extent).product();
        for value in 1..digit.extent {
            for index in 0..inner {
                self.budget -= 1;
                if self.budget < 0 {
                    return false;
                }
                // (row, scale, batch)
                let mut place = [0; 3];
                place[digit.axis as usize] += value * digit.step;
                let mut rest = index;
                for (digit, _) in &self.taken {
                    place[digit.axis as usize] += rest % digit.extent * digit.step;
                    rest /= digit.extent;
                }
                let Some(expected) = self.plain_scale(place) else { continue };
                let offset = usize::try_from(value * stride + index);
                if offset.ok().and_then(|at| self.buffer.get(at)) != Some(&expected) {
                    return false;
                }
            }
        }
        true
    }

    /// The plain scale at a place. `None` in the padding.
    fn plain_scale(&self, [row, scale, batch]: [i64; 3]) -> Option<u8> {
        let (rows, scales) = (self.tensor.rows(), self.tensor.scales_in_row());
        if row >= rows || scale >= scales || batch >= self.tensor.batches() {
            return None;
        }
        let index = (batch * rows + row) * scales + scale;
        usize::try_from(index).ok().and_then(|at| self.plain.get(at)).copied()
    }

    fn layout(mut self) -> Option<Layout> {
        self.taken.sort_by_key(|(digit, _)| digit.step);
        let modes = |axis: Axis| -> Vec<Mode> {
            let own = self.taken.iter().filter(|(digit, _)| digit.axis == axis);
            own.map(|(digit, stride)| Mode::new(digit.extent, *stride)).collect()
        };
        let mut along_k = vec![Mode::new(self.tensor.vector(), 0)];
        along_k.extend(modes(Axis::Scale));
        let axes = [modes(Axis::Row), along_k, modes(Axis::Batch)];
        let axes: Result<Vec<Layout>, _> = axes.iter().map(|modes| Layout::flat(modes)).collect();
        let whole = Layout::tuple(axes.ok()?).ok()?;
        Some(coalesce_by_mode(&whole).layout)
    }
}
