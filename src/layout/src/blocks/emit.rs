//! Prints the mapping from a block to its tile as a function in CUDA, C++ or Python.

use super::{Grid, Raster};

/// The language of a snippet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    /// CUDA C++, for the device.
    Cuda,
    /// C++, for the host.
    Cpp,
    /// Python, for the host.
    Python,
}

/// Source code of a function `rgpu_block_tile` that maps a block to its group, tile and origin in
/// C.
pub fn emit(grid: &Grid, language: Language) -> String {
    match language {
        Language::Cuda => cpp(grid, "__device__ __constant__ const", "__device__ inline"),
        Language::Cpp => cpp(grid, "constexpr", "inline"),
        Language::Python => python(grid),
    }
}

fn list(values: impl IntoIterator<Item = i64>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(", ")
}

/// Tiles along M and N of each group. An empty list gets one entry, for C++ has no empty arrays.
fn tiles(grid: &Grid) -> (String, String) {
    let tiles: Vec<(i64, i64)> = (0..grid.problems.len()).map(|group| grid.tiles(group)).collect();
    let tiles = if tiles.is_empty() { vec![(0, 0)] } else { tiles };
    (list(tiles.iter().map(|(m, _)| *m)), list(tiles.iter().map(|(_, n)| *n)))
}

fn cpp(grid: &Grid, constant: &str, function: &str) -> String {
    let (tiles_m, tiles_n) = tiles(grid);
    let prefix = list(grid.prefix.iter().copied());
    let order = match grid.raster {
        Raster::AlongM => {
            "    tile.tile_m = index % tiles_m;\n    tile.tile_n = index / tiles_m;\n".to_owned()
        }
        Raster::AlongN => {
            "    tile.tile_m = index / tiles_n;\n    tile.tile_n = index % tiles_n;\n".to_owned()
        }
        Raster::Swizzled { width } => {
            let width = width.min(i64::from(i32::MAX));
            format!(
                "    const int width = tiles_m < {width} ? tiles_m : {width};\n    \
                 const int band = index / (width * tiles_n);\n    \
                 const int below = tiles_m - band * width;\n    \
                 const int height = below < width ? below : width;\n    \
                 const int inside = index - band * width * tiles_n;\n    \
                 tile.tile_m = band * width + inside % height;\n    \
                 tile.tile_n = inside / height;\n"
            )
        }
    };
    let (m, n) = (grid.tile_m, grid.tile_n);
    let (row, column) = if grid.swap_operands {
        (format!("(long long)tile.tile_n * {n}"), format!("(long long)tile.tile_m * {m}"))
    } else {
        (format!("(long long)tile.tile_m * {m}"), format!("(long long)tile.tile_n * {n}"))
    };
    let groups = grid.problems.len();
    format!(
        "struct RgpuBlockTile {{ int group, tile_m, tile_n; long long row, column; }};\n\
         {constant} int rgpu_prefix[] = {{{prefix}}};\n\
         {constant} int rgpu_tiles_m[] = {{{tiles_m}}};\n\
         {constant} int rgpu_tiles_n[] = {{{tiles_n}}};\n\
         // Returns false for blocks out of range.\n\
         {function} bool rgpu_block_tile(int block, RgpuBlockTile& tile) {{\n    \
         if (block < 0 || block >= rgpu_prefix[{groups}]) return false;\n    \
         int low = 0, high = {groups};\n    \
         while (high - low > 1) {{\n        \
         const int middle = low + (high - low) / 2;\n        \
         if (rgpu_prefix[middle] <= block) low = middle; else high = middle;\n    \
         }}\n    \
         const int index = block - rgpu_prefix[low];\n    \
         const int tiles_m = rgpu_tiles_m[low], tiles_n = rgpu_tiles_n[low];\n    \
         (void)tiles_m;\n    \
         (void)tiles_n;\n    \
         tile.group = low;\n\
         {order}    \
         tile.row = {row};\n    \
         tile.column = {column};\n    \
         return true;\n\
         }}\n"
    )
}

fn python(grid: &Grid) -> String {
    let (tiles_m, tiles_n) = tiles(grid);
    let prefix = list(grid.prefix.iter().copied());
    let order = match grid.raster {
        Raster::AlongM => "    tile_m, tile_n = index % tiles_m, index // tiles_m\n".to_owned(),
        Raster::AlongN => "    tile_m, tile_n = index // tiles_n, index % tiles_n\n".to_owned(),
        Raster::Swizzled { width } => format!(
            "    width = min(tiles_m, {width})\n    \
             band, inside = divmod(index, width * tiles_n)\n    \
             height = min(width, tiles_m - band * width)\n    \
             tile_m, tile_n = band * width + inside % height, inside // height\n"
        ),
    };
    let (m, n) = (grid.tile_m, grid.tile_n);
    let origin = if grid.swap_operands {
        format!("tile_n * {n}, tile_m * {m}")
    } else {
        format!("tile_m * {m}, tile_n * {n}")
    };
    format!(
        "import bisect\n\n\
         RGPU_PREFIX = [{prefix}]\n\
         RGPU_TILES_M = [{tiles_m}]\n\
         RGPU_TILES_N = [{tiles_n}]\n\n\n\
         def rgpu_block_tile(block):\n    \
         \"\"\"The group, tile_m, tile_n, row and column of a block; None out of range.\"\"\"\n    \
         if block < 0 or block >= RGPU_PREFIX[-1]:\n        \
         return None\n    \
         group = bisect.bisect_right(RGPU_PREFIX, block) - 1\n    \
         index = block - RGPU_PREFIX[group]\n    \
         tiles_m, tiles_n = RGPU_TILES_M[group], RGPU_TILES_N[group]\n\
         {order}    \
         return group, tile_m, tile_n, {origin}\n"
    )
}
