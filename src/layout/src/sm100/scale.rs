//! Scale factors in global memory: blocks of 128 rows by four scales, 512 bytes each.

use schemars::JsonSchema;
use serde::Serialize;

use crate::coalesce::{equal, filter_zeros};
use crate::divide::{Grouping, Tiler, product};
use crate::layout::Layout;
use crate::proof::{Condition, Limits, Proof, Rejection};
use crate::properties::properties;

/// Rows of the 128x4 block in which the hardware reads scales.
pub(super) const BLOCK_ROWS: i64 = 128;
/// Scales of a row in a block.
pub(super) const BLOCK_SCALES: i64 = 4;
/// Bytes of a block; a scale is one byte.
pub(super) const BLOCK_BYTES: i64 = 512;

/// The scales of one operand: `rows` (M or N) by `k` elements, `batches` times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScaleTensor {
    rows: i64,
    k: i64,
    batches: i64,
    vector: i64,
}

/// The reason why numbers describe no scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// An extent is below 1.
    #[error("rows, k and batches of scale factors begin at 1")]
    Empty,
    /// The vector is neither that of NVFP4 nor that of MXFP4.
    #[error("a scale factor belongs to 16 elements (NVFP4) or 32 (MXFP4), not to {0}")]
    Vector(i64),
    /// The bytes do not fit.
    #[error("the scale factors take more than 2^62 bytes")]
    TooLarge,
}

/// The proof that the layout built from the block equals the explicit form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ScaleProof {
    /// The block, repeated over the tensor by the layout algebra.
    pub helper: Layout,
    /// The formula of the byte offset as a layout.
    pub explicit: Layout,
    /// Whether they are equal at every coordinate.
    pub equal: bool,
    /// Elements that share a scale.
    pub broadcast: i64,
    /// Whether modes of stride 0 must be filtered before the layout can be copied or inverted.
    pub filter_zeros_needed: bool,
    /// The layout without modes of stride 0: one coordinate for each byte.
    pub filtered: Layout,
    /// How equality was proved.
    pub proof: Proof,
}

impl ScaleTensor {
    /// Scales of `rows` by `k` elements, `batches` times, one for each `vector` elements of a row:
    /// 16 in NVFP4 (UE4M3), 32 in MXFP4 (UE8M0).
    ///
    /// # Errors
    /// If an extent is below 1, the vector is another one, or the bytes do not fit.
    pub fn new(rows: i64, k: i64, batches: i64, vector: i64) -> Result<Self, ScaleError> {
        if rows < 1 || k < 1 || batches < 1 {
            return Err(ScaleError::Empty);
        }
        if vector != 16 && vector != 32 {
            return Err(ScaleError::Vector(vector));
        }
        let tensor = Self { rows, k, batches, vector };
        let bytes = [tensor.row_blocks(), tensor.k_blocks(), batches, BLOCK_BYTES * vector]
            .into_iter()
            .fold(1_i128, |product, n| product.saturating_mul(i128::from(n)));
        if bytes > 1 << 62 {
            return Err(ScaleError::TooLarge);
        }
        Ok(tensor)
    }

    /// Rows (M or N).
    pub fn rows(self) -> i64 {
        self.rows
    }

    /// Elements of a row.
    pub fn k(self) -> i64 {
        self.k
    }

    /// Number of batches (L), 1 or more.
    pub fn batches(self) -> i64 {
        self.batches
    }

    /// Elements that share a scale.
    pub fn vector(self) -> i64 {
        self.vector
    }

    /// Scales that one row needs: one for each `vector` elements along K.
    pub fn scales_in_row(self) -> i64 {
        div_ceil(self.k, self.vector)
    }

    /// Blocks of 128 rows that cover all rows.
    pub fn row_blocks(self) -> i64 {
        div_ceil(self.rows, BLOCK_ROWS)
    }

    /// Blocks of four scales that cover K.
    pub fn k_blocks(self) -> i64 {
        div_ceil(self.k, BLOCK_SCALES * self.vector)
    }

    /// Bytes, with the padding to whole blocks.
    pub fn bytes(self) -> i64 {
        self.row_blocks() * self.k_blocks() * self.batches * BLOCK_BYTES
    }

    /// The byte of the scale of element (`row`, `k`) of a batch. `None` outside the tensor.
    pub fn offset(self, row: i64, k: i64, batch: i64) -> Option<i64> {
        let inside = (0..self.rows).contains(&row)
            && (0..self.k).contains(&k)
            && (0..self.batches).contains(&batch);
        inside.then(|| self.padded_offset(row, k / self.vector, batch))
    }

    /// The byte of scale number `scale` of a row, in the padding too.
    pub(super) fn padded_offset(self, row: i64, scale: i64, batch: i64) -> i64 {
        let block =
            (batch * self.row_blocks() + row / BLOCK_ROWS) * self.k_blocks() + scale / BLOCK_SCALES;
        block * BLOCK_BYTES + row % 32 * 16 + row % BLOCK_ROWS / 32 * 4 + scale % BLOCK_SCALES
    }

    /// The row, the first element of K and the batch whose scale is at a byte. Those of padding lie
    /// beyond the tensor. `None` beyond the last block.
    pub fn coordinate(self, offset: i64) -> Option<(i64, i64, i64)> {
        if !(0..self.bytes()).contains(&offset) {
            return None;
        }
        let (block, byte) = (offset / BLOCK_BYTES, offset % BLOCK_BYTES);
        let (row_block, k_block) = (block / self.k_blocks(), block % self.k_blocks());
        let (batch, row_block) = (row_block / self.row_blocks(), row_block % self.row_blocks());
        let row = row_block * BLOCK_ROWS + byte / 16 + byte % 16 / 4 * 32;
        Some((row, (k_block * BLOCK_SCALES + byte % 4) * self.vector, batch))
    }

    /// The layout of (row, k, batch), as CuTe prints it.
    ///
    /// # Errors
    /// If it does not fit, which [`ScaleTensor::new`] excludes.
    pub fn layout(self) -> Result<Layout, Box<Rejection>> {
        let (rows, ks, batches) = (self.row_blocks(), self.k_blocks(), self.batches);
        // CuTe writes 0 as the stride of an extent of 1.
        let stride = |extent: i64, stride: i64| if extent == 1 { 0 } else { stride };
        parsed(&format!(
            "(((32,4),{rows}),(({},4),{ks}),(1,{batches})):(((16,4),{}),((0,1),{}),(0,{}))",
            self.vector,
            stride(rows, BLOCK_BYTES * ks),
            stride(ks, BLOCK_BYTES),
            stride(batches, BLOCK_BYTES * ks * rows),
        ))
    }

    /// Proves that the block repeated over the tensor, K first, is the explicit form, for any size.
    ///
    /// # Errors
    /// If a layout does not fit, which [`ScaleTensor::new`] excludes.
    pub fn prove(self, limits: Limits) -> Result<ScaleProof, Box<Rejection>> {
        let (rows, ks, batches) = (self.row_blocks(), self.k_blocks(), self.batches);
        let atom = parsed(&format!("((32,4),({},4)):((16,4),(0,1))", self.vector))?;
        let bytes = filter_zeros(&atom);
        let blocks = parsed(&format!("({rows},{ks},{batches}):({ks},1,{})", ks * rows))?;
        // The product counts in bytes, so the broadcast is left out and comes back with the atom.
        let repeated = product(&bytes, &Tiler::Layout(blocks), Grouping::Logical, limits)?;
        let repeats = repeated.layout.parts();
        let [_, repeats] = repeats.as_slice() else {
            return Err(Rejection::new(Condition::Rank, "a product has two modes"));
        };
        let (atom, repeats) = (atom.parts(), repeats.parts());
        let (Some(row_atom), Some(k_atom)) = (atom.first(), atom.get(1)) else {
            return Err(Rejection::new(Condition::Rank, "a block has two modes"));
        };
        let [row_rest, k_rest, batch_rest] = repeats.as_slice() else {
            return Err(Rejection::new(Condition::Rank, "blocks are counted in three modes"));
        };
        let helper = Layout::tuple([
            Layout::tuple([row_atom.clone(), row_rest.clone()])?,
            Layout::tuple([k_atom.clone(), k_rest.clone()])?,
            batch_rest.clone(),
        ])?;
        let explicit = self.layout()?;
        let equality = equal(&helper, &explicit);
        let facts = properties(&explicit, limits);
        let filtered = filter_zeros(&explicit);
        let claim = format!(
            "the repeated block and the explicit form are equal at all {} coordinates",
            explicit.size()
        );
        let proof = Proof::all([&repeated.proof, &equality.proof], claim);
        Ok(ScaleProof {
            equal: equality.equal,
            broadcast: facts.duplication.unwrap_or(1),
            filter_zeros_needed: facts.injective == Some(false),
            filtered,
            proof,
            helper,
            explicit,
        })
    }
}

pub(super) fn div_ceil(value: i64, by: i64) -> i64 {
    value / by + i64::from(value % by > 0)
}

/// A layout from text that this crate wrote.
pub(super) fn parsed(text: &str) -> Result<Layout, Box<Rejection>> {
    text.parse()
        .map_err(|error: crate::ParseError| Rejection::new(Condition::TooLarge, error.to_string()))
}
