//! The budget of tensor memory: 512 columns an SM, allocated in powers of two.

use schemars::JsonSchema;
use serde::Serialize;

use super::tile::{MmaTile, TileError};

/// Columns of the tensor memory of an SM.
pub const TMEM_COLUMNS: i64 = 512;
/// The smallest allocation of tensor memory, in columns.
const SMALLEST_ALLOCATION: i64 = 32;

/// The content of a segment of tensor memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SegmentKind {
    /// One stage of the accumulator.
    Accumulator,
    /// The scales of A.
    Sfa,
    /// The scales of B.
    Sfb,
}

/// A segment with its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Segment {
    /// The content of the segment.
    pub kind: SegmentKind,
    /// Which of its kind, from 0.
    pub stage: i64,
    /// Its first column of tensor memory, from 0.
    pub column: i64,
    /// How many columns it takes.
    pub columns: i64,
}

/// The tensor memory that a kernel needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TmemRequest {
    /// Columns of one stage of the accumulator.
    pub accumulator: i64,
    /// Columns of the scales of A.
    pub sfa: i64,
    /// Columns of the scales of B.
    pub sfb: i64,
    /// Stages of the accumulator.
    pub accumulator_stages: i64,
    /// Stages of the scales.
    pub scale_stages: i64,
    /// The multiple at which accumulators begin.
    pub accumulator_alignment: i64,
    /// The multiple at which scales begin; a block of 512 bytes takes 4 columns.
    pub scale_alignment: i64,
}

impl TmemRequest {
    /// The request of a tile with one stage of scales.
    ///
    /// # Errors
    /// [`TileError::Layout`] for a pair of CTAs with M of 128.
    pub fn for_tile(tile: MmaTile, accumulator_stages: i64) -> Result<Self, TileError> {
        tile.refuse_64_rows()?;
        Ok(Self {
            accumulator: tile.accumulator_columns(),
            sfa: tile.sfa_columns(),
            sfb: tile.sfb_columns(),
            accumulator_stages,
            scale_stages: 1,
            accumulator_alignment: 1,
            scale_alignment: 4,
        })
    }
}

/// Something that would make the budget better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Advice {
    /// At most this many stages of the accumulator fit.
    FewerStages {
        /// The most stages of the accumulator that fit.
        stages: i64,
    },
    /// With the same stages, an accumulator of this many columns fits (the scales of B not counted
    /// smaller).
    NarrowerTile {
        /// Columns of an accumulator, a multiple of 8.
        columns: i64,
    },
    /// Two stages fit if they share these columns: the epilogue must free them first.
    OverlapStages {
        /// Number of columns that both stages use.
        columns: i64,
    },
    /// If this many columns are saved, two blocks fit on an SM.
    TwoBlocks {
        /// Number of columns to save.
        save: i64,
    },
    /// Another stage of the accumulator fits into the same allocation.
    AnotherStage {
        /// Stages of the accumulator with the new one.
        stages: i64,
    },
}

/// A plan for tensor memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TmemBudget {
    /// Columns in use, without gaps of alignment.
    pub used: i64,
    /// The segments in the best order: the fewest columns to the end of the last one.
    pub segments: Vec<Segment>,
    /// Columns to the end of the last segment.
    pub extent: i64,
    /// The columns to allocate, a power of two. `None` if more than 512 would be needed.
    pub allocation: Option<i64>,
    /// Columns of the allocation that stay unused.
    pub slack: Option<i64>,
    /// Blocks that can be resident on an SM at once, as far as tensor memory goes; 0 if none fits.
    pub blocks_per_sm: i64,
    /// Advice on the request.
    pub advice: Vec<Advice>,
    /// All orders of the kinds of segments by their extent, best first.
    pub orders: Vec<Order>,
}

/// An order of the kinds of segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Order {
    /// The kinds in order.
    pub kinds: [SegmentKind; 3],
    /// Columns to the end of the last segment.
    pub extent: i64,
}

/// The reason why a request has no budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: from {low} to {high}")]
pub struct RequestError {
    /// The field's name in a sentence: `accumulator columns`.
    pub field: &'static str,
    /// The rejected number.
    pub value: i64,
    /// The smallest accepted number.
    pub low: i64,
    /// The largest accepted number, included.
    pub high: i64,
}

/// The most columns of one segment that a request may name.
const MAX_REQUEST_COLUMNS: i64 = 1 << 16;

/// Plans tensor memory for one block. A request that does not fit has no allocation, and advice.
///
/// # Errors
/// If a number is out of range.
pub fn budget(request: TmemRequest) -> Result<TmemBudget, RequestError> {
    let in_range = |field, value, low, high| match value {
        value if (low..=high).contains(&value) => Ok(()),
        value => Err(RequestError { field, value, low, high }),
    };
    // More than there is gets an answer: it does not fit.
    in_range("accumulator columns", request.accumulator, 1, MAX_REQUEST_COLUMNS)?;
    in_range("SFA columns", request.sfa, 0, MAX_REQUEST_COLUMNS)?;
    in_range("SFB columns", request.sfb, 0, MAX_REQUEST_COLUMNS)?;
    in_range("accumulator stages", request.accumulator_stages, 1, 64)?;
    in_range("scale stages", request.scale_stages, 1, 64)?;
    in_range("accumulator alignment", request.accumulator_alignment, 1, TMEM_COLUMNS)?;
    in_range("scale alignment", request.scale_alignment, 1, TMEM_COLUMNS)?;
    use SegmentKind::{Accumulator, Sfa, Sfb};
    let permutations = [
        [Accumulator, Sfa, Sfb],
        [Accumulator, Sfb, Sfa],
        [Sfa, Accumulator, Sfb],
        [Sfb, Accumulator, Sfa],
        [Sfa, Sfb, Accumulator],
        [Sfb, Sfa, Accumulator],
    ];
    let mut orders: Vec<Order> = permutations
        .map(|kinds| Order { kinds, extent: end(&place_segments(request, kinds)) })
        .to_vec();
    // Stable: accumulators first where the extents are equal.
    orders.sort_by_key(|order| order.extent);
    let best = orders.first().map_or(permutations[0], |order| order.kinds);
    let segments = place_segments(request, best);
    let extent = end(&segments);
    let allocation = allocation(extent);
    Ok(TmemBudget {
        used: segments.iter().map(|segment| segment.columns).sum(),
        segments,
        extent,
        allocation,
        slack: allocation.map(|columns| columns - extent),
        blocks_per_sm: allocation.map_or(0, |columns| TMEM_COLUMNS / columns),
        advice: advice(request, best, extent),
        orders,
    })
}

/// The power of two that holds these columns. `None` beyond 512: rounding down would report columns
/// that do not exist.
fn allocation(extent: i64) -> Option<i64> {
    let columns = extent.max(SMALLEST_ALLOCATION).unsigned_abs().next_power_of_two();
    i64::try_from(columns).ok().filter(|columns| *columns <= TMEM_COLUMNS)
}

fn end(segments: &[Segment]) -> i64 {
    segments.iter().map(|segment| segment.column + segment.columns).max().unwrap_or(0)
}

fn place_segments(request: TmemRequest, kinds: [SegmentKind; 3]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut next = 0_i64;
    for kind in kinds {
        let (columns, stages, alignment) = match kind {
            SegmentKind::Accumulator => {
                (request.accumulator, request.accumulator_stages, request.accumulator_alignment)
            }
            SegmentKind::Sfa => (request.sfa, request.scale_stages, request.scale_alignment),
            SegmentKind::Sfb => (request.sfb, request.scale_stages, request.scale_alignment),
        };
        for stage in (0..stages).filter(|_| columns > 0) {
            let column = (next + alignment - 1) / alignment * alignment;
            segments.push(Segment { kind, stage, column, columns });
            next = column + columns;
        }
    }
    segments
}

fn advice(request: TmemRequest, kinds: [SegmentKind; 3], extent: i64) -> Vec<Advice> {
    let extent_of = |request| end(&place_segments(request, kinds));
    let with_stages = |stages| extent_of(TmemRequest { accumulator_stages: stages, ..request });
    let mut advice = Vec::new();
    let Some(columns) = allocation(extent) else {
        let stages = request.accumulator_stages;
        if let Some(stages) = (1..stages).rev().find(|s| with_stages(*s) <= TMEM_COLUMNS) {
            advice.push(Advice::FewerStages { stages });
        }
        let narrower = (1..=request.accumulator / 8).rev().map(|n| 8 * n).find(|columns| {
            extent_of(TmemRequest { accumulator: *columns, ..request }) <= TMEM_COLUMNS
        });
        if let Some(columns) = narrower {
            advice.push(Advice::NarrowerTile { columns });
        }
        let over = extent - TMEM_COLUMNS;
        if stages == 2 && over < request.accumulator {
            advice.push(Advice::OverlapStages { columns: over });
        }
        return advice;
    };
    if columns == TMEM_COLUMNS {
        advice.push(Advice::TwoBlocks { save: extent - TMEM_COLUMNS / 2 });
    }
    let stages = request.accumulator_stages + 1;
    if with_stages(stages) <= columns {
        advice.push(Advice::AnotherStage { stages });
    }
    advice
}
