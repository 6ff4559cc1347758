//! The layouts with which the threads of an epilogue read an accumulator from tensor memory.
//!
//! In: the accumulator's rows and columns, and the shape of the load (`tcgen05.ld`). Out: an
//! [`EpilogueTile`] of two layouts, those that CuTe DSL 4.4.0 prints for `kind::f16`.
//!
//! Tensor memory has 128 lanes; each of the four warps reads 32 of them. An accumulator of 128 rows
//! fills the lanes. One of 64 rows lies in the first 16 of each warp's 32 lanes. If a pair of CTAs
//! shares an MMA with M of 128, the 64 rows of a CTA take 64 lanes for each half of the columns.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;

use super::scale::parsed;
use crate::layout::{Layout, LayoutError, Mode};
use crate::proof::Rejection;

/// Rows that fill the lanes of tensor memory.
const ALL_ROWS: i64 = 128;

/// The reason why an accumulator cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EpilogueError {
    /// The load gives a thread something else than columns of one row.
    #[error("`{0}` is not a load whose threads have a row each")]
    Load(String),
    /// A CTA has no accumulator of this many rows.
    #[error(
        "{0} rows: a CTA has 64 or 128 rows of an accumulator; of an MMA with M of 256, each CTA of the pair has 128"
    )]
    Rows(i64),
    /// No accumulator has this many columns.
    #[error("{n} columns: an accumulator has {step} to 512 in steps of {step}")]
    Columns {
        /// The rejected number of columns.
        n: i64,
        /// The step that one CTA or a pair allows.
        step: i64,
    },
    /// 32 lanes are read where 16 hold rows.
    #[error(
        "32x32b.x{0} reads 32 lanes, but 64 rows of one CTA lie in the first 16 of each warp's 32 lanes; 16x32bx2.x{0} reads those"
    )]
    HalfOfLanes(i64),
    /// 16 lanes are read where 32 hold rows.
    #[error("16x32bx2.x{0} reads 16 lanes, but each warp has rows in 32; 32x32b.x{0} reads those")]
    AllLanes(i64),
    /// The columns that a warp reads are not a multiple of the columns of the load.
    #[error("a load of {columns} columns does not divide the {n} columns that a warp reads")]
    NotAMultipleOfLoad {
        /// Columns of the load.
        columns: i64,
        /// Columns that a warp reads.
        n: i64,
    },
    /// A layout cannot be built, for example because an offset overflows.
    #[error("{0}")]
    Layout(String),
}

impl From<Box<Rejection>> for EpilogueError {
    fn from(rejection: Box<Rejection>) -> Self {
        Self::Layout(rejection.reason())
    }
}

/// The lanes that a load reads at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadLanes {
    /// `32x32b`: a row in each of 32 lanes, one for each thread.
    All,
    /// `16x32bx2`: a row in each of 16 lanes, for two threads that have columns beside each other.
    Half,
}

/// A load from tensor memory (`tcgen05.ld`) that gives each thread columns of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TmemLoad {
    lanes: LoadLanes,
    columns: i64,
}

impl TmemLoad {
    /// A load that gives each thread this many columns: 1 to 128, a power of two.
    ///
    /// # Errors
    /// If there is no such load.
    pub fn new(lanes: LoadLanes, columns: i64) -> Result<Self, EpilogueError> {
        let load = Self { lanes, columns };
        if (1..=128).contains(&columns) && columns.count_ones() == 1 {
            Ok(load)
        } else {
            Err(EpilogueError::Load(load.to_string()))
        }
    }

    /// Columns that a thread gets.
    pub fn columns(self) -> i64 {
        self.columns
    }

    /// What one load gives the threads of a warp: a layout from (lane, value) to elements of C,
    /// whose rows are `leading` elements apart.
    ///
    /// # Errors
    /// If an offset overflows.
    pub fn warp_layout(self, leading: i64) -> Result<Layout, LayoutError> {
        let lanes = match self.lanes {
            LoadLanes::All => Layout::flat(&[Mode::new(32, leading)]),
            LoadLanes::Half => Layout::flat(&[Mode::new(16, leading), Mode::new(2, self.columns)]),
        };
        Layout::tuple([lanes?, Layout::flat(&[Mode::new(self.columns, 1)])?])
    }
}

impl std::fmt::Display for TmemLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shape = match self.lanes {
            LoadLanes::All => "32x32b",
            LoadLanes::Half => "16x32bx2",
        };
        write!(f, "{shape}.x{}", self.columns)
    }
}

impl FromStr for TmemLoad {
    type Err = EpilogueError;

    fn from_str(text: &str) -> Result<Self, EpilogueError> {
        let unknown = || EpilogueError::Load(text.to_owned());
        let (shape, columns) = text.split_once(".x").ok_or_else(unknown)?;
        let lanes = match shape {
            "32x32b" => LoadLanes::All,
            "16x32bx2" => LoadLanes::Half,
            _ => return Err(unknown()),
        };
        Self::new(lanes, columns.parse().map_err(|_| unknown())?)
    }
}

/// How an epilogue reads the accumulator of one CTA: each thread gets columns of one row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EpilogueTile {
    /// The elements that one warp reads: a layout from `((columns, lanes), …)` to addresses in
    /// tensor memory.
    pub accumulator: Layout,
    /// The elements that one thread writes: a layout from its columns to elements of its row.
    pub output: Layout,
}

impl EpilogueTile {
    /// Partitions an accumulator of `rows` by `n` elements in one CTA. `pair`: two CTAs share the
    /// MMA.
    ///
    /// # Errors
    /// If a CTA has no such accumulator, or the load does not read or divide it.
    pub fn new(rows: i64, n: i64, pair: bool, load: TmemLoad) -> Result<Self, EpilogueError> {
        let TmemLoad { lanes, columns } = load;
        if rows != ALL_ROWS && rows != ALL_ROWS / 2 {
            return Err(EpilogueError::Rows(rows));
        }
        let step = if pair { 16 } else { 8 };
        if n % step != 0 || !(step..=512).contains(&n) {
            return Err(EpilogueError::Columns { n, step });
        }
        let (count, width) = match (lanes, rows == ALL_ROWS || pair) {
            (LoadLanes::All, true) => (32, columns),
            (LoadLanes::Half, false) => (16, 2 * columns),
            (LoadLanes::All, false) => return Err(EpilogueError::HalfOfLanes(columns)),
            (LoadLanes::Half, true) => return Err(EpilogueError::AllLanes(columns)),
        };
        // The other two warps have the other half of the columns in their lanes.
        let warp_columns = if rows < ALL_ROWS && pair { n / 2 } else { n };
        if warp_columns % width != 0 {
            return Err(EpilogueError::NotAMultipleOfLoad { columns: width, n: warp_columns });
        }
        let loads = warp_columns / width;
        let step = if loads == 1 { 0 } else { width };
        Ok(Self {
            accumulator: parsed(&format!(
                "((({width},{count}),1),({loads})):(((1,65536),0),({step}))"
            ))?,
            output: parsed(&format!("(({columns},1),({loads})):((1,0),({step}))"))?,
        })
    }
}
