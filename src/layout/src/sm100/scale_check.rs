//! Compares a dumped buffer of scale factors with the plain scales, and names the likely mistake.

use schemars::JsonSchema;
use serde::Serialize;

use super::scale::{BLOCK_BYTES, BLOCK_ROWS, BLOCK_SCALES, ScaleTensor, div_ceil};
use super::scale_order;
use crate::layout::Layout;

/// A mistake that explains every byte of a wrong buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScaleLayoutError {
    /// The scales are in plain row-major order: no swizzle at all.
    NotSwizzled,
    /// The scales are in plain column-major order.
    Transposed,
    /// The blocks are right, and rows follow one another inside: the interleave of 32 rows is
    /// missing.
    RowsNotInterleaved,
    /// The four scales of a row and the four groups of 32 rows are exchanged.
    ScalesAndGroupsExchanged,
    /// The blocks run along rows first, not along K: the order of the other major.
    BlocksRowMajor,
    /// Each tile of this many rows begins a new block: `block_M` in place of `block_N`.
    PaddedTiles {
        /// Rows of a tile.
        rows: i64,
    },
    /// K is padded to this many blocks in place of the fewest.
    PaddedK {
        /// Blocks along K.
        blocks: i64,
    },
    /// The buffer holds the scales of the other operand: SFA in place of SFB, or the reverse.
    OtherOperand,
}

impl std::fmt::Display for ScaleLayoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotSwizzled => f.write_str("the scales are row-major: they were not swizzled"),
            Self::Transposed => f.write_str("the scales are column-major: they were not swizzled"),
            Self::RowsNotInterleaved => {
                f.write_str("inside the blocks, rows are not interleaved by 32")
            }
            Self::ScalesAndGroupsExchanged => {
                f.write_str("inside the blocks, scales along K and groups of 32 rows are exchanged")
            }
            Self::BlocksRowMajor => f.write_str("the blocks run along the rows first, not along K"),
            Self::PaddedTiles { rows } => {
                write!(f, "each tile of {rows} rows begins a new block (block_M for block_N?)")
            }
            Self::PaddedK { blocks } => write!(f, "K is padded to {blocks} blocks"),
            Self::OtherOperand => {
                f.write_str("these are the scales of the other operand (SFA for SFB?)")
            }
        }
    }
}

/// A scale that is not where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WrongScale {
    /// The row, from 0, along M or N.
    pub row: i64,
    /// The first element of K of the scale.
    pub k: i64,
    /// The batch, counted from 0.
    pub batch: i64,
    /// The byte of the buffer.
    pub offset: i64,
    /// The scale that belongs there.
    pub expected: u8,
    /// The byte that is there. `None` if the buffer ends before it.
    pub found: Option<u8>,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BufferCheck {
    /// Whether every scale is in its place.
    pub equal: bool,
    /// How many scales there are.
    pub scales: i64,
    /// How many are not in their place.
    pub wrong: i64,
    /// The first of these, by batch, row and K.
    pub first_wrong: Option<WrongScale>,
    /// Mistakes that explain every scale of a wrong buffer; more than one if the values repeat.
    pub mistakes: Vec<ScaleLayoutError>,
    /// Whether a wrong buffer has every value at least as often as the plain scales: then they are
    /// all there, in another order.
    pub permutation: bool,
    /// The layout from (row, k, batch) to the bytes at which a wrong buffer has every scale, if no
    /// known mistake explains it and such a layout was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found_layout: Option<Layout>,
}

/// The reason why buffers cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BufferError {
    /// The plain scales are of another tensor.
    #[error(
        "{rows} rows of {scales} scales take {expected} bytes, and the plain buffer has {found}"
    )]
    PlainSize {
        /// Rows of all batches.
        rows: i64,
        /// Scales of a row.
        scales: i64,
        /// The bytes that this takes.
        expected: i64,
        /// The bytes that are there.
        found: usize,
    },
}

/// Compares a buffer in blocked order with plain scales (`[batch][row][k / vector]`, one byte
/// each). `other` are the plain scales of the other operand, to find out whether the buffer holds
/// them.
///
/// # Errors
/// If the plain buffer does not have one byte for each scale.
pub fn check_buffer(
    tensor: ScaleTensor,
    buffer: &[u8],
    plain: &[u8],
    other: Option<(ScaleTensor, &[u8])>,
) -> Result<BufferCheck, BufferError> {
    size_fits(tensor, plain)?;
    if let Some((tensor, plain)) = other {
        size_fits(tensor, plain)?;
    }
    let offset = |row, scale, batch| tensor.padded_offset(row, scale, batch);
    let (wrong, first_wrong) = compare(tensor, buffer, plain, &offset, i64::MAX);
    let mut mistakes = Vec::new();
    if wrong > 0 {
        mistakes = explanations(tensor)
            .into_iter()
            .filter(|(_, offset)| compare(tensor, buffer, plain, offset, 1).0 == 0)
            .map(|(mistake, _)| mistake)
            .collect();
        if let Some((tensor, plain)) = other {
            let offset = |row, scale, batch| tensor.padded_offset(row, scale, batch);
            if compare(tensor, buffer, plain, &offset, 1).0 == 0 {
                mistakes.push(ScaleLayoutError::OtherOperand);
            }
        }
    }
    let permutation = wrong > 0 && scale_order::is_permutation(buffer, plain);
    let search = permutation && mistakes.is_empty();
    let found_layout = search.then(|| scale_order::order(tensor, buffer, plain)).flatten();
    let scales = tensor.rows() * tensor.batches() * tensor.scales_in_row();
    let equal = wrong == 0;
    Ok(BufferCheck { equal, scales, wrong, first_wrong, mistakes, permutation, found_layout })
}

fn size_fits(tensor: ScaleTensor, plain: &[u8]) -> Result<(), BufferError> {
    let (rows, scales) = (tensor.rows() * tensor.batches(), tensor.scales_in_row());
    // Not more than the blocked bytes, which fit.
    let expected = rows * scales;
    if usize::try_from(expected) == Ok(plain.len()) {
        return Ok(());
    }
    Err(BufferError::PlainSize { rows, scales, expected, found: plain.len() })
}

/// The byte offset of a scale, from its row, its number in the row, and its batch.
type ScaleOffsetFn<'a> = dyn Fn(i64, i64, i64) -> i64 + 'a;

/// Counts scales that are not at the offsets of `offset_of`, up to `enough`, and returns the first.
fn compare(
    tensor: ScaleTensor,
    buffer: &[u8],
    plain: &[u8],
    offset_of: &ScaleOffsetFn<'_>,
    enough: i64,
) -> (i64, Option<WrongScale>) {
    let (mut wrong, mut first) = (0, None);
    let scales = tensor.scales_in_row();
    for (index, &expected) in (0_i64..).zip(plain) {
        let (row, scale) = (index / scales, index % scales);
        let (batch, row) = (row / tensor.rows(), row % tensor.rows());
        let offset = offset_of(row, scale, batch);
        let found = usize::try_from(offset).ok().and_then(|at| buffer.get(at)).copied();
        if found != Some(expected) {
            wrong += 1;
            let k = scale * tensor.vector();
            first.get_or_insert(WrongScale { row, k, batch, offset, expected, found });
            if wrong == enough {
                break;
            }
        }
    }
    (wrong, first)
}

/// Orders that mistakes lead to.
fn explanations(tensor: ScaleTensor) -> Vec<(ScaleLayoutError, Box<ScaleOffsetFn<'static>>)> {
    let (rows, scales) = (tensor.rows(), tensor.scales_in_row());
    let (row_blocks, k_blocks) = (tensor.row_blocks(), tensor.k_blocks());
    // The block of a scale in the right order, and what a mistake makes of the place inside.
    let inside = move |place: fn(i64, i64) -> i64| -> Box<ScaleOffsetFn<'static>> {
        Box::new(move |row, scale, batch| {
            let block = (batch * row_blocks + row / BLOCK_ROWS) * k_blocks + scale / BLOCK_SCALES;
            block * BLOCK_BYTES + place(row % BLOCK_ROWS, scale % BLOCK_SCALES)
        })
    };
    let interleaved = |row: i64, scale: i64| row % 32 * 16 + row / 32 * 4 + scale;
    let mut explanations: Vec<(ScaleLayoutError, Box<ScaleOffsetFn<'static>>)> = vec![
        (
            ScaleLayoutError::NotSwizzled,
            Box::new(move |row, scale, batch| (batch * rows + row) * scales + scale),
        ),
        (
            ScaleLayoutError::Transposed,
            Box::new(move |row, scale, batch| (batch * scales + scale) * rows + row),
        ),
        (ScaleLayoutError::RowsNotInterleaved, inside(|row, scale| row * BLOCK_SCALES + scale)),
        (
            ScaleLayoutError::ScalesAndGroupsExchanged,
            inside(|row, scale| row % 32 * 16 + scale * 4 + row / 32),
        ),
        (
            ScaleLayoutError::BlocksRowMajor,
            Box::new(move |row, scale, batch| {
                let block =
                    (batch * k_blocks + scale / BLOCK_SCALES) * row_blocks + row / BLOCK_ROWS;
                block * BLOCK_BYTES + interleaved(row % BLOCK_ROWS, scale % BLOCK_SCALES)
            }),
        ),
    ];
    for tile in [32, 64, 96, 160, 192, 224].into_iter().filter(|tile| *tile < rows) {
        let place = move |row: i64, scale: i64, batch: i64| {
            let blocks = div_ceil(tile, BLOCK_ROWS);
            let block_row = row / tile * blocks + row % tile / BLOCK_ROWS;
            let all = div_ceil(rows, tile) * blocks;
            let block = (batch * all + block_row) * k_blocks + scale / BLOCK_SCALES;
            block * BLOCK_BYTES + interleaved(row % tile % BLOCK_ROWS, scale % BLOCK_SCALES)
        };
        explanations.push((ScaleLayoutError::PaddedTiles { rows: tile }, Box::new(place)));
    }
    // Tiles of K have 128, 256 or 512 elements, and a kernel may pad to them.
    let padded = [2, 4, 8].map(|tile| div_ceil(k_blocks, tile) * tile);
    let mut counts: Vec<i64> = padded.into_iter().filter(|count| *count != k_blocks).collect();
    counts.dedup();
    for blocks in counts {
        let place = move |row: i64, scale: i64, batch: i64| {
            let block = (batch * row_blocks + row / BLOCK_ROWS) * blocks + scale / BLOCK_SCALES;
            block * BLOCK_BYTES + interleaved(row % BLOCK_ROWS, scale % BLOCK_SCALES)
        };
        explanations.push((ScaleLayoutError::PaddedK { blocks }, Box::new(place)));
    }
    explanations
}
