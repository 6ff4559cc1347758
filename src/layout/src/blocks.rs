//! Which tile a block computes: the mapping of a linear block index to the tiles of grouped
//! problems.
//!
//! The mapping is stated twice. [`Grid::tile_by_loop`] walks the groups, and
//! [`Grid::tile_by_search`] searches prefix sums, as kernels do. [`Grid::prove`] compares both at
//! every block, checks that each tile comes once, and looks beyond the last block.

mod emit;

use schemars::JsonSchema;
use serde::Serialize;

use crate::proof::{Limits, Method, Proof, Rejection};

pub use emit::{Language, emit};

/// One problem of a group: its rows and columns. Either may be 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem {
    /// Rows of C.
    pub m: i64,
    /// Columns of C.
    pub n: i64,
}

/// The order of tiles inside a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Raster {
    /// Tiles of one column of tiles follow one another.
    AlongM,
    /// Tiles of one row of tiles follow one another.
    AlongN,
    /// Bands of this many rows of tiles, each walked column by column. The last band may be lower.
    Swizzled {
        /// Rows of tiles in a band, at least 1.
        width: i64,
    },
}

/// A grid of blocks over grouped problems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Grid {
    problems: Vec<Problem>,
    tile_m: i64,
    tile_n: i64,
    raster: Raster,
    swap_operands: bool,
    /// The first block of each problem, and the number of blocks at the end.
    prefix: Vec<i64>,
}

/// The tile of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct BlockTile {
    /// The problem, from 0, in the order given.
    pub group: i64,
    /// The tile along M of the MMA: along N of C if the operands are swapped.
    pub tile_m: i64,
    /// The tile along N of the MMA.
    pub tile_n: i64,
    /// The first row of C.
    pub row: i64,
    /// The first column of C.
    pub column: i64,
}

/// The reason why numbers form no grid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GridError {
    /// A problem has a negative extent.
    #[error("group {group} is {m}x{n}: extents are 0 or more")]
    Problem {
        /// Position of the problem, from 0.
        group: usize,
        /// Rows of its C; `m` or `n` is below 0.
        m: i64,
        /// Columns of its C, as given.
        n: i64,
    },
    /// A tile or a band is empty.
    #[error("the {0} is at least 1")]
    Empty(&'static str),
    /// The blocks do not fit in 31 bits, the limit of a grid along x.
    #[error("the grid has more than 2^31 - 1 blocks")]
    TooLarge,
    /// A text between separators is empty.
    #[error("problem {0} is empty; write M,N for each problem, and `;` only between two")]
    EmptyText(usize),
    /// The text does not describe problems.
    #[error("`{text}` is not a problem; write M,N and put `;` between problems")]
    Text {
        /// The part between two `;` that is not two numbers.
        text: String,
    },
}

/// Reads problems: `80,4096;40,7168`.
///
/// # Errors
/// If a part is not two numbers.
pub fn parse_problems(text: &str) -> Result<Vec<Problem>, GridError> {
    let problem = |part: &str| {
        let (m, n) = part.split_once(',')?;
        Some(Problem { m: m.trim().parse().ok()?, n: n.trim().parse().ok()? })
    };
    text.split(';')
        .enumerate()
        .map(|(index, part)| match part.trim() {
            "" => Err(GridError::EmptyText(index)),
            part => problem(part).ok_or_else(|| GridError::Text { text: part.to_owned() }),
        })
        .collect()
}

impl Grid {
    /// The grid of tiles over problems. With swapped operands the MMA computes the transpose: its M
    /// runs along the columns of C.
    ///
    /// # Errors
    /// If an extent is negative, a tile is empty, or there are too many blocks.
    pub fn new(
        problems: &[Problem],
        (tile_m, tile_n): (i64, i64),
        raster: Raster,
        swap_operands: bool,
    ) -> Result<Self, GridError> {
        if tile_m < 1 || tile_n < 1 {
            return Err(GridError::Empty("tile"));
        }
        if matches!(raster, Raster::Swizzled { width } if width < 1) {
            return Err(GridError::Empty("width of a band"));
        }
        let mut grid = Self {
            problems: problems.to_vec(),
            tile_m,
            tile_n,
            raster,
            swap_operands,
            prefix: vec![0],
        };
        let mut total = 0_i64;
        for (group, Problem { m, n }) in problems.iter().copied().enumerate() {
            if m < 0 || n < 0 {
                return Err(GridError::Problem { group, m, n });
            }
            let (rows, columns) = grid.tiles(group);
            let blocks = rows.checked_mul(columns).and_then(|blocks| blocks.checked_add(total));
            total = blocks.filter(|n| *n <= i64::from(i32::MAX)).ok_or(GridError::TooLarge)?;
            grid.prefix.push(total);
        }
        Ok(grid)
    }

    /// The number of blocks.
    pub fn blocks(&self) -> i64 {
        self.prefix.last().copied().unwrap_or(0)
    }

    /// The problems, in the order of their groups.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Tiles along M and N of the MMA.
    fn tiles(&self, group: usize) -> (i64, i64) {
        let Problem { m, n } = self.problems[group];
        let (m, n) = if self.swap_operands { (n, m) } else { (m, n) };
        let count = |extent: i64, tile: i64| extent / tile + i64::from(extent % tile > 0);
        (count(m, self.tile_m), count(n, self.tile_n))
    }

    /// The tile of a block, by walking the groups. `None` out of range.
    pub fn tile_by_loop(&self, block: i64) -> Option<BlockTile> {
        if block < 0 {
            return None;
        }
        let mut rest = block;
        for group in 0..self.problems.len() {
            let (rows, columns) = self.tiles(group);
            if rest < rows * columns {
                return Some(self.tile(group, rest));
            }
            rest -= rows * columns;
        }
        None
    }

    /// The tile of a block, by bisecting the prefix sums. `None` out of range.
    pub fn tile_by_search(&self, block: i64) -> Option<BlockTile> {
        if block < 0 || block >= self.blocks() {
            return None;
        }
        let (mut low, mut high) = (0, self.problems.len());
        // The last group that begins at or before the block: empty groups before it begin there
        // too.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.prefix[middle] <= block {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(self.tile(low, block - self.prefix[low]))
    }

    fn tile(&self, group: usize, index: i64) -> BlockTile {
        let (rows, columns) = self.tiles(group);
        let (tile_m, tile_n) = match self.raster {
            Raster::AlongM => (index % rows, index / rows),
            Raster::AlongN => (index / columns, index % columns),
            Raster::Swizzled { width } => {
                // A band is at most as high as the problem, so the product fits.
                let width = width.min(rows);
                let band = index / (width * columns);
                let height = width.min(rows - band * width);
                let inside = index - band * width * columns;
                (band * width + inside % height, inside / height)
            }
        };
        let (m, n) = (tile_m * self.tile_m, tile_n * self.tile_n);
        let (row, column) = if self.swap_operands { (n, m) } else { (m, n) };
        BlockTile { group: group as i64, tile_m, tile_n, row, column }
    }

    /// Proves that both mappings are equal at every block and up to `beyond` blocks behind the
    /// last, and that each tile of each problem belongs to exactly one block.
    ///
    /// # Errors
    /// If there are more blocks than the limit, or a block is wrong.
    pub fn prove(&self, beyond: i64, limits: Limits) -> Result<Proof, Box<Rejection>> {
        let blocks = self.blocks();
        let points = blocks.saturating_add(beyond.max(0)).saturating_add(1) as u64;
        if points > limits.points {
            return Err(Rejection::undecided(limits, "the mapping of all blocks"));
        }
        let wrong = |reason: String| Err(Rejection::new(crate::Condition::NotInjective, reason));
        let mut seen = vec![false; blocks as usize];
        for block in -1..blocks.saturating_add(beyond.max(0)) {
            let (a, b) = (self.tile_by_loop(block), self.tile_by_search(block));
            if a != b {
                return wrong(format!("the mappings differ at block {block}: {a:?} and {b:?}"));
            }
            if a.is_some() != (0..blocks).contains(&block) {
                return wrong(format!("block {block} of {blocks} maps to {a:?}"));
            }
            let Some(tile) = a else { continue };
            let (rows, columns) = self.tiles(tile.group as usize);
            let inside = (0..rows).contains(&tile.tile_m) && (0..columns).contains(&tile.tile_n);
            let place = self.prefix[tile.group as usize] + tile.tile_n * rows + tile.tile_m;
            let slot = seen.get_mut(place as usize).filter(|_| inside);
            match slot {
                Some(slot) if !*slot => *slot = true,
                _ => {
                    return wrong(format!(
                        "block {block} maps to {tile:?}, which is taken or outside"
                    ));
                }
            }
        }
        let claim = format!(
            "the loop and the search agree at all {blocks} blocks and {} out of range, and each tile \
             belongs to one block",
            beyond.max(0) + 1
        );
        Ok(Proof::new(Method::Enumeration, points, claim))
    }
}
