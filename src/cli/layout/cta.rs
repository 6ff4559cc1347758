//! `layout cta`: which output tile each block of a grouped GEMM computes.
//!
//! The arguments give the problems, the tile and the order of tiles. `rgpu_layout::blocks` proves
//! that every tile has exactly one block. The command prints the proof, the tiles of chosen blocks,
//! or a function in C++, CUDA or Python that maps a block to its tile.

use clap::{Args, ValueEnum};
use rgpu_layout::Proof;
use rgpu_layout::blocks::{BlockTile, Grid, Language, Problem, Raster, emit, parse_problems};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print, proof_line, rejection_text};
use super::input::{LimitArgs, numbers, usage};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};

/// Number of block indices after the last block for which the proof checks that they have no tile.
const BLOCKS_BEYOND_LAST: i64 = 64;

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CtaArgs {
    /// The problems: M,N of each group, `;` between groups; either may be 0
    #[arg(long, value_name = "M,N;…")]
    pub groups: String,

    /// The tile of a block
    #[arg(long, value_name = "MxN")]
    pub tile: String,

    /// The MMA computes the transpose: its M runs along the columns of C
    #[arg(long)]
    pub swap_ab: bool,

    /// The order of tiles: `m` or `n` runs fastest, or bands of W rows of tiles as `swizzle:W`
    #[arg(long, value_name = "m|n|swizzle:W", default_value = "m")]
    pub raster: String,

    /// Print the tile of this block
    #[arg(long, value_name = "BLOCK", allow_hyphen_values = true)]
    pub block: Vec<i64>,

    /// Print a function that maps a block to its tile
    #[arg(long, value_enum)]
    pub emit: Option<EmitLanguage>,

    #[command(flatten)]
    pub limit: LimitArgs,
}

/// The language of the function that `--emit` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum EmitLanguage {
    /// CUDA C++, for the device
    Cuda,
    /// C++, for the host
    Cpp,
    /// Python
    Python,
}

/// The result of `layout cta`.
#[derive(Serialize, JsonSchema)]
pub(super) struct BlockMapping {
    /// Number of blocks that have a tile.
    blocks: i64,
    /// The problems of the group, in order.
    problems: Vec<Problem>,
    /// The order of tiles.
    raster: Raster,
    /// Whether the MMA computes the transpose.
    swap_operands: bool,
    /// How the mapping is proved.
    proof: Proof,
    /// The tiles of `--block`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tiles: Vec<MappedBlock>,
    /// The function of `--emit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

/// A block of `--block` with its tile.
#[derive(Serialize, JsonSchema)]
struct MappedBlock {
    /// The index of the block, from `--block`.
    block: i64,
    /// Its tile. Absent if the block is out of range.
    #[serde(skip_serializing_if = "Option::is_none")]
    tile: Option<BlockTile>,
}

pub(super) fn run(app: &App, args: &CtaArgs) -> Result<Status> {
    let problems = parse_problems(&args.groups).map_err(usage)?;
    let [tile_m, tile_n] = numbers(&args.tile, 'x', "128x128")?;
    let raster = raster(&args.raster)?;
    let grid = Grid::new(&problems, (tile_m, tile_n), raster, args.swap_ab).map_err(usage)?;
    let proof = grid.prove(BLOCKS_BEYOND_LAST, args.limit.limits()).map_err(|rejection| {
        Failure::new(Exit::Findings, "unproved", "the mapping is not proved")
            .cause(rejection_text(&rejection).trim())
            .hint("`--max-points N` raises the number of points that may be checked")
    })?;
    let code = args.emit.map(|language| {
        let language = match language {
            EmitLanguage::Cuda => Language::Cuda,
            EmitLanguage::Cpp => Language::Cpp,
            EmitLanguage::Python => Language::Python,
        };
        emit(&grid, language)
    });
    let tiles = args.block.iter();
    let tiles: Vec<MappedBlock> =
        tiles.map(|&block| MappedBlock { block, tile: grid.tile_by_search(block) }).collect();
    let mut text = format!("{} blocks for {} problems\n", grid.blocks(), problems.len());
    text += &proof_line(&proof);
    for MappedBlock { block, tile } in &tiles {
        text += &line(
            &format!("block {block}"),
            match tile {
                None => "out of range".to_owned(),
                Some(tile) => format!(
                    "group {}, tile ({},{}), from row {} and column {} of C",
                    tile.group, tile.tile_m, tile.tile_n, tile.row, tile.column
                ),
            },
        );
    }
    // Code goes to a file or a compiler, so nothing else is on stdout.
    if let (Some(code), false) = (&code, app.global.json) {
        app.print_note(text.trim_end());
        text.clone_from(code);
    }
    let swap_operands = args.swap_ab;
    let blocks = grid.blocks();
    let mapping = BlockMapping { blocks, problems, raster, swap_operands, proof, tiles, code };
    print(app, LayoutResult::Cta(mapping), &text)?;
    Ok(0)
}

fn raster(text: &str) -> Result<Raster> {
    match text {
        "m" => Ok(Raster::AlongM),
        "n" => Ok(Raster::AlongN),
        other => {
            let width = other.strip_prefix("swizzle:").and_then(|width| width.parse().ok());
            let width = width.ok_or_else(|| {
                usage(format!("`{other}` is not an order of tiles")).hint("m, n, or swizzle:8")
            })?;
            Ok(Raster::Swizzled { width })
        }
    }
}
