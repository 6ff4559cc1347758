//! The search for thread layouts that store a tile with the least traffic.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Access, Space, check_access};
use crate::element::ElementSize;
use crate::layout::{Layout, Mode};
use crate::proof::Limits;
use crate::swizzle::Swizzle;

/// A tile of a row-major matrix in global memory that threads store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StoreTile {
    /// Rows of the tile.
    pub rows: i64,
    /// Columns of the tile.
    pub columns: i64,
    /// The size of an element.
    pub element_bytes: ElementSize,
    /// Elements from one row of the matrix to the next.
    pub leading: i64,
    /// Threads, a multiple of 32.
    pub threads: i64,
    /// Elements that one instruction may store.
    pub vectors: Vec<i64>,
}

/// A thread layout with what it costs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StoreCandidate {
    /// Thread and value to offset in the matrix: the layout that was judged.
    pub layout: Layout,
    /// Threads along a row.
    pub row_threads: i64,
    /// Elements of one store.
    pub vector: i64,
    /// Sectors of all stores.
    pub sectors: i64,
    /// The fewest sectors for these bytes.
    pub ideal_sectors: i64,
    /// Bytes stored, of all bytes in the sectors.
    pub efficiency: f64,
    /// Store instructions of all warps.
    pub requests: i64,
    /// Whether threads hold what `tcgen05.ld.32x32b` gives the 128 threads of a warpgroup, one row
    /// of 128 each. Otherwise the values go through shared memory first.
    pub direct: bool,
}

/// The reason why there is nothing to search.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// A number is out of range.
    #[error("{field} is {value}: from {low} to {high}")]
    Range {
        /// The number's name, as the message begins with it: `rows`, `leading dimension`.
        field: &'static str,
        /// The rejected number.
        value: i64,
        /// The smallest accepted number.
        low: i64,
        /// The largest accepted number, included.
        high: i64,
    },
    /// The threads are no whole warps.
    #[error("{0} threads are not a multiple of the warp size, 32")]
    Warps(i64),
    /// No arrangement of the threads fills the tile.
    #[error(
        "no arrangement of {threads} threads with these vectors fills a tile of {rows}x{columns}"
    )]
    NoneFits {
        /// Threads of the tile, a multiple of 32.
        threads: i64,
        /// Rows of the tile, 1 to 512.
        rows: i64,
        /// Columns of the tile, 1 to 512.
        columns: i64,
    },
}

impl StoreTile {
    /// Checks that the numbers are in range.
    ///
    /// # Errors
    /// If one is not, or the threads are no whole warps.
    pub fn check(&self) -> Result<(), SearchError> {
        let range = |field, value, low, high| match value {
            value if (low..=high).contains(&value) => Ok(()),
            value => Err(SearchError::Range { field, value, low, high }),
        };
        range("rows", self.rows, 1, 512)?;
        range("columns", self.columns, 1, 512)?;
        range("leading dimension", self.leading, self.columns, 1 << 40)?;
        range("threads", self.threads, 32, 1024)?;
        range("vector widths", self.vectors.len() as i64, 1, 16)?;
        if self.threads % 32 != 0 {
            return Err(SearchError::Warps(self.threads));
        }
        Ok(())
    }
}

/// All arrangements of the threads over the tile, those with the least traffic first: by sectors,
/// then by store instructions, then direct ones before those through shared memory.
///
/// # Errors
/// If a number is out of range, or nothing fits.
pub fn search_stores(tile: &StoreTile, limits: Limits) -> Result<Vec<StoreCandidate>, SearchError> {
    tile.check()?;
    let mut candidates = Vec::new();
    for &vector in &tile.vectors {
        for row_threads in (1..=tile.threads).filter(|n| tile.threads % n == 0) {
            candidates.extend(candidate(tile, vector, row_threads, limits));
        }
    }
    if candidates.is_empty() {
        let StoreTile { rows, columns, threads, .. } = *tile;
        return Err(SearchError::NoneFits { threads, rows, columns });
    }
    candidates.sort_by_key(|c| (c.sectors, c.requests, !c.direct, c.row_threads));
    Ok(candidates)
}

fn candidate(
    tile: &StoreTile,
    vector: i64,
    row_threads: i64,
    limits: Limits,
) -> Option<StoreCandidate> {
    let access = Access {
        space: Space::Global,
        element_bytes: tile.element_bytes,
        lanes: 32,
        vector,
        swizzle: Swizzle::default(),
    };
    // No instruction has this width.
    access.lane_bytes()?;
    let width = vector * row_threads;
    let column_threads = tile.threads / row_threads;
    if tile.columns % width != 0 || tile.rows % column_threads != 0 {
        return None;
    }
    let pair = |modes: [Mode; 2]| Layout::flat(&modes).ok();
    let threads = pair([Mode::new(row_threads, vector), Mode::new(column_threads, tile.leading)])?;
    let values = Layout::flat(&[
        Mode::new(vector, 1),
        Mode::new(tile.columns / width, width),
        Mode::new(tile.rows / column_threads, column_threads * tile.leading),
    ])
    .ok()?;
    let layout = Layout::tuple([threads, values]).ok()?;
    let report =
        check_access(&layout, access, limits).ok().filter(|report| report.misaligned.is_none())?;
    let sectors = report.sectors?;
    Some(StoreCandidate {
        layout,
        row_threads,
        vector,
        sectors: sectors.total,
        ideal_sectors: sectors.ideal,
        efficiency: report.efficiency?,
        requests: report.requests,
        direct: row_threads == 1 && tile.rows == 128 && tile.threads == 128,
    })
}
