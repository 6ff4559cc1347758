//! All layouts of a block-scaled kernel with 4-bit operands by the formulas, under the names that
//! kernels give them.

use super::epilogue::{EpilogueTile, LoadLanes, TmemLoad};
use super::scale::{ScaleTensor, parsed};
use super::tile::{
    MmaTile, TileError, accumulator_layout, operand_smem, scale_smem, scale_tmem, smem_swizzle,
};
use crate::layout::Layout;
use crate::swizzle::{Swizzle, SwizzledLayout};

/// The problem sizes of a kernel: C of `m` by `n` from `k`, `l` times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemShape {
    /// Rows of A and C.
    pub m: i64,
    /// Columns of C, rows of B.
    pub n: i64,
    /// The extent that is summed over.
    pub k: i64,
    /// Number of batches; each has its own A, B and C.
    pub l: i64,
}

/// The layouts of one CTA with scales of 16 elements: operands and scales in shared and tensor
/// memory, and the epilogue by loads of `load_columns`. With a shape, also the scales in global
/// memory and the tile of C.
///
/// # Errors
/// If the layout of this tile is not known, or the shape is none.
pub fn bundle(
    tile: MmaTile,
    stages: i64,
    load_columns: i64,
    shape: Option<ProblemShape>,
) -> Result<Vec<(&'static str, SwizzledLayout)>, TileError> {
    tile.refuse_64_rows()?;
    let swizzled = |swizzle: Swizzle, layout: Layout| {
        SwizzledLayout::new(swizzle, 0, layout)
            .map_err(|error| TileError::Layout(error.to_string()))
    };
    let plain = |layout: Layout| swizzled(Swizzle::default(), layout);
    let swizzle = smem_swizzle(tile.k())?;
    let (m, n) = (tile.rows(), tile.n());
    // Each CTA of a pair has half of B, and all of its scales.
    let b_rows = if tile.is_pair() { n / 2 } else { n };
    let epilogue = EpilogueTile::new(m, n, false, TmemLoad::new(LoadLanes::All, load_columns)?)?;
    let mut layouts = vec![
        ("a_smem", swizzled(swizzle, operand_smem(tile, m, stages)?)?),
        ("b_smem", swizzled(swizzle, operand_smem(tile, b_rows, stages)?)?),
        ("sfa_smem", plain(scale_smem(tile, m, stages)?)?),
        ("sfb_smem", plain(scale_smem(tile, n, stages)?)?),
        ("tCtSFA", plain(scale_tmem(tile, m)?)?),
        ("tCtSFB", plain(scale_tmem(tile, n)?)?),
        ("tCtAcc", plain(accumulator_layout(tile)?)?),
        ("tDtAcc", plain(epilogue.accumulator)?),
        ("tDgC", plain(epilogue.output)?),
    ];
    if let Some(ProblemShape { m: rows, n: columns, k, l }) = shape {
        let scales = |mn: i64| {
            let tensor = ScaleTensor::new(mn, k, l, tile.vector());
            tensor.map_err(|error| TileError::Layout(error.to_string()))
        };
        layouts.push(("sfa_gmem", plain(scales(rows)?.layout()?)?));
        layouts.push(("sfb_gmem", plain(scales(columns)?.layout()?)?));
        layouts.push(("gC", plain(parsed(&format!("({m},{n}):({columns},1)"))?)?));
    }
    Ok(layouts)
}
