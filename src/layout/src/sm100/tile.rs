//! Layouts of one tile of a block-scaled MMA with 4-bit operands: shared memory and tensor memory.

use schemars::JsonSchema;
use serde::Serialize;

use super::epilogue::EpilogueError;
use super::scale::{div_ceil, parsed};
use crate::layout::Layout;
use crate::proof::Rejection;
use crate::swizzle::Swizzle;

/// A tile of `mxf4nvf4` or `mxf4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MmaTile {
    m: i64,
    n: i64,
    k: i64,
    pair: bool,
    vector: i64,
}

/// The reason why extents form no tile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TileError {
    /// M is not allowed.
    #[error("M is {0}: 128 with one CTA, 128 or 256 with a pair")]
    M(i64),
    /// N is not allowed.
    #[error("N is {n}: from {step} to 256 in steps of {step}")]
    N {
        /// The rejected N, in elements.
        n: i64,
        /// The step that one CTA or a pair allows.
        step: i64,
    },
    /// K is not allowed.
    #[error("K is {0}: a tile of K has 64, 128, 256 or 512 elements")]
    K(i64),
    /// The vector is neither that of NVFP4 nor that of MXFP4.
    #[error("a scale factor belongs to 16 elements (NVFP4) or 32 (MXFP4), not to {0}")]
    Vector(i64),
    /// An operand has another number of rows.
    #[error("an operand of a tile has 1 to 256 rows, not {0}")]
    Rows(i64),
    /// The number of stages is not allowed.
    #[error("{0} stages: from 1 to 64")]
    Stages(i64),
    /// The layout of this tile is not known.
    #[error(
        "the layout of a tile with K of {k} and scales of {vector} elements is not known: 64, 128 and 256 of NVFP4 are"
    )]
    Unknown {
        /// The tile's K, in elements; allowed, but of an unknown layout.
        k: i64,
        /// The elements of a scale.
        vector: i64,
    },
    /// A layout does not fit.
    #[error("{0}")]
    Layout(String),
}

impl From<EpilogueError> for TileError {
    fn from(error: EpilogueError) -> Self {
        Self::Layout(error.to_string())
    }
}

impl From<Box<Rejection>> for TileError {
    fn from(rejection: Box<Rejection>) -> Self {
        Self::Layout(rejection.reason())
    }
}

impl MmaTile {
    /// A tile of `m` by `n` by `k` elements, by one CTA (`cta_group::1`) or a pair.
    ///
    /// # Errors
    /// If the tensor core has no such instruction.
    pub fn new(m: i64, n: i64, k: i64, pair: bool, vector: i64) -> Result<Self, TileError> {
        if !(m == 128 || (pair && m == 256)) {
            return Err(TileError::M(m));
        }
        let step = if pair { 16 } else { 8 };
        if n % step != 0 || !(step..=256).contains(&n) {
            return Err(TileError::N { n, step });
        }
        if ![64, 128, 256, 512].contains(&k) {
            return Err(TileError::K(k));
        }
        if vector != 16 && vector != 32 {
            return Err(TileError::Vector(vector));
        }
        Ok(Self { m, n, k, pair, vector })
    }

    /// Refuses the tile of a pair with M of 128. Its accumulator has 64 rows in each CTA, and how
    /// it lies in tensor memory is not known here.
    ///
    /// # Errors
    /// [`TileError::Layout`].
    pub(super) fn refuse_64_rows(self) -> Result<(), TileError> {
        if self.rows() == 128 {
            return Ok(());
        }
        let reason =
            "the layouts of a pair of CTAs with M of 128 are not known: dump them by the DSL";
        Err(TileError::Layout(reason.to_owned()))
    }

    /// Rows of A and of the accumulator in one CTA.
    pub fn rows(self) -> i64 {
        if self.pair { self.m / 2 } else { self.m }
    }

    /// N of the tile.
    pub fn n(self) -> i64 {
        self.n
    }

    /// K of the tile.
    pub fn k(self) -> i64 {
        self.k
    }

    /// Elements that share a scale.
    pub fn vector(self) -> i64 {
        self.vector
    }

    /// Whether two CTAs share it.
    pub fn is_pair(self) -> bool {
        self.pair
    }

    /// Columns of tensor memory of an f32 accumulator.
    pub fn accumulator_columns(self) -> i64 {
        self.n
    }

    /// Columns of the scales of A: 4 for each 128 rows and four scales along K.
    pub fn sfa_columns(self) -> i64 {
        self.scale_columns(self.rows())
    }

    /// Columns of the scales of B.
    pub fn sfb_columns(self) -> i64 {
        self.scale_columns(self.n)
    }

    fn scale_columns(self, rows: i64) -> i64 {
        4 * div_ceil(rows, 128) * div_ceil(self.k, 4 * self.vector)
    }

    /// Scales along K that one of the four steps of the tile takes.
    fn scales_of_step(self) -> Result<i64, TileError> {
        match (self.vector, self.k) {
            (16, 64 | 128 | 256) => Ok(self.k / 64),
            (vector, k) => Err(TileError::Unknown { k, vector }),
        }
    }
}

/// The swizzle of packed 4-bit operands whose tile has `k` elements along K.
///
/// # Errors
/// If the tile has another K.
pub fn smem_swizzle(k: i64) -> Result<Swizzle, TileError> {
    let bits = match k {
        64 => 1,
        128 => 2,
        256 | 512 => 3,
        k => return Err(TileError::K(k)),
    };
    Swizzle::new(bits, 4, 3).map_err(|error| TileError::Layout(error.to_string()))
}

fn in_range(rows: i64, stages: i64) -> Result<(), TileError> {
    match () {
        () if !(1..=256).contains(&rows) => Err(TileError::Rows(rows)),
        () if !(1..=64).contains(&stages) => Err(TileError::Stages(stages)),
        () => Ok(()),
    }
}

/// The layout of an operand of `rows` rows in shared memory, in elements, below the swizzle.
///
/// # Errors
/// If the layout of this tile is not known.
pub fn operand_smem(tile: MmaTile, rows: i64, stages: i64) -> Result<Layout, TileError> {
    in_range(rows, stages)?;
    tile.scales_of_step()?;
    let k = tile.k;
    let steps = k / 64;
    let step = if steps == 1 { 0 } else { 64 };
    let stage = if stages == 1 { 0 } else { rows * k };
    Ok(parsed(&format!("(({rows},64),1,{steps},{stages}):(({k},1),0,{step},{stage})"))?)
}

/// The layout of the scales of `rows` rows in shared memory, in bytes.
///
/// # Errors
/// If the layout of this tile is not known.
pub fn scale_smem(tile: MmaTile, rows: i64, stages: i64) -> Result<Layout, TileError> {
    in_range(rows, stages)?;
    let scales = tile.scales_of_step()?;
    let blocks = div_ceil(rows, 128);
    let block = if blocks == 1 { 0 } else { 512 * scales };
    let scale = i64::from(scales > 1);
    let (rest, rest_stride) = match scales {
        1 => ("4", "1"),
        2 => ("(2,2)", "(2,512)"),
        _ => ("4", "512"),
    };
    let stage = 512 * scales * blocks;
    Ok(parsed(&format!(
        "((((32,4),{blocks}),(16,{scales})),1,{rest},{stages}):\
         ((((16,4),{block}),(0,{scale})),0,{rest_stride},{stage})"
    ))?)
}

/// The layout of the scales of `rows` rows in tensor memory. Addresses count bytes in the units of
/// 8-bit elements: 262144 is one lane, 8388608 are 32.
///
/// # Errors
/// If the layout of this tile is not known.
pub fn scale_tmem(tile: MmaTile, rows: i64) -> Result<Layout, TileError> {
    in_range(rows, 1)?;
    let scales = tile.scales_of_step()?;
    let groups = 4 * div_ceil(rows, 128);
    let scale = i64::from(scales > 1);
    let block = 4 * groups;
    let (rest, rest_stride) = match scales {
        1 => ("4".to_owned(), "1".to_owned()),
        2 => ("(2,2)".to_owned(), format!("(2,{block})")),
        _ => ("4".to_owned(), block.to_string()),
    };
    Ok(parsed(&format!(
        "((((32,{groups}),4),(16,{scales})),1,{rest}):\
         ((((262144,4),8388608),(0,{scale})),0,{rest_stride})"
    ))?)
}

/// The layout of an f32 accumulator in tensor memory: 65536 is one lane, 1 is one column.
///
/// # Errors
/// Never for a tile that exists.
pub fn accumulator_layout(tile: MmaTile) -> Result<Layout, TileError> {
    Ok(parsed(&format!("(({},{}),1,1):((65536,1),0,0)", tile.rows(), tile.n))?)
}
