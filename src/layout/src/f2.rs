//! Layouts as linear maps over F2, the form of Triton's linear layouts (arXiv:2505.23819).

use schemars::JsonSchema;
use serde::Serialize;

use crate::layout::Mode;
use crate::proof::{Condition, Method, Proof, Rejection};
use crate::swizzle::SwizzledLayout;

/// A layout as a matrix over F2: the offset of an index is the XOR of the columns of its set bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct F2Matrix {
    /// The offset of each bit of the index, lowest bit first.
    pub columns: Vec<i64>,
    /// The rows as text of `0` and `1`, lowest bit of the offset first.
    pub rows: Vec<String>,
    /// The rank; the layout is injective if it is the number of columns.
    pub rank: usize,
    /// Why the matrix is the layout.
    pub proof: Proof,
}

/// The matrix of a layout with an optional swizzle.
///
/// # Errors
/// [`Condition::PowerOfTwo`] if an extent is no power of two, or offsets of index bits share bits,
/// so that their sum is not their XOR.
pub fn f2_matrix(layout: &SwizzledLayout) -> Result<F2Matrix, Box<Rejection>> {
    let columns = columns(layout)?;
    let height = columns.iter().map(|c| 64 - c.leading_zeros()).max().unwrap_or(0);
    let rows = (0..height)
        .map(|bit| columns.iter().map(|c| if c >> bit & 1 == 1 { '1' } else { '0' }).collect())
        .collect();
    let claim = "L(i) is the XOR of the columns of i's bits: no two share a bit before the swizzle";
    let rank = rank(&columns);
    Ok(F2Matrix { columns, rows, rank, proof: Proof::new(Method::Algebraic, 0, claim) })
}

/// The offsets of single index bits, if they determine the layout.
pub(crate) fn columns(layout: &SwizzledLayout) -> Result<Vec<i64>, Box<Rejection>> {
    let reject = |index: usize, mode: &Mode, reason: String| {
        Rejection::new(Condition::PowerOfTwo, reason).mode(index, *mode)
    };
    if layout.offset() != 0 {
        let reason = format!("the offset {} is not linear over F2", layout.offset());
        return Err(Rejection::new(Condition::PowerOfTwo, reason));
    }
    let mut columns = Vec::new();
    let mut used = 0_i64;
    for (index, mode) in layout.layout().modes().iter().enumerate() {
        if mode.extent.count_ones() != 1 {
            let reason = format!("the extent of mode {index} ({mode}) is not a power of two");
            return Err(reject(index, mode, reason));
        }
        for bit in 0..mode.extent.trailing_zeros() {
            // Within the reach of the layout.
            let column = mode.stride << bit;
            if column < 0 || used & column != 0 {
                let reason =
                    format!("mode {index} ({mode}) shares bits with itself or another mode");
                return Err(reject(index, mode, reason));
            }
            used |= column;
            columns.push(column);
        }
    }
    Ok(columns.into_iter().map(|column| layout.swizzle().apply(column)).collect())
}

fn rank(columns: &[i64]) -> usize {
    let mut basis: Vec<i64> = Vec::new();
    for &column in columns {
        let reduced = basis.iter().fold(column, |value, b| value.min(value ^ b));
        if reduced != 0 {
            basis.push(reduced);
            basis.sort_unstable_by(|a, b| b.cmp(a));
        }
    }
    basis.len()
}
