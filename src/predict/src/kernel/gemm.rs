//! Matrix products: one, several of one size, or a group of different sizes in one launch.

use super::{Context, KernelTime, KernelWork, OpKind, math_of};
use crate::Dtype;
use crate::calibration::Efficiency;
use crate::hw::Gpu;

/// A matrix product `C[m,n] = A[m,k] · B[n,k]`, or several of these sizes in one launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemm {
    /// Rows of A and C.
    pub m: f64,
    /// Rows of B, columns of C.
    pub n: f64,
    /// Columns of A and B.
    pub k: f64,
    /// Number of such products.
    pub batch: f64,
    /// The number format of A.
    pub a: Dtype,
    /// The number format of B.
    pub b: Dtype,
    /// The number format of C.
    pub c: Dtype,
}

/// A tile of the result. Where its sides are powers of two, their inverses are exact.
#[derive(Clone, Copy)]
struct Tile {
    rows: f64,
    columns: f64,
    /// Tiles for one row, and for one column.
    inverse: [f64; 2],
}

impl Tile {
    const fn new(rows: f64, columns: f64) -> Self {
        Self { rows, columns, inverse: [1.0 / rows, 1.0 / columns] }
    }
}

/// The tiles that a library may choose from: an instruction's 64 or 128 rows and 8 to 256 columns
/// (PTX ISA: wgmma m64nNk16, tcgen05.mma with M of 64 or 128), and the same with A and B swapped.
const TILES: &[Tile] = &[
    Tile::new(128.0, 256.0),
    Tile::new(256.0, 128.0),
    Tile::new(128.0, 128.0),
    Tile::new(128.0, 64.0),
    Tile::new(64.0, 128.0),
    Tile::new(64.0, 64.0),
    Tile::new(128.0, 32.0),
    Tile::new(32.0, 128.0),
    Tile::new(64.0, 32.0),
    Tile::new(32.0, 64.0),
    Tile::new(128.0, 16.0),
    Tile::new(16.0, 128.0),
    Tile::new(64.0, 16.0),
    Tile::new(16.0, 64.0),
];

/// The tiles of fitted predictions: also those of libraries that are no power of two.
const FITTED_TILES: &[Tile] = &[
    Tile::new(128.0, 256.0),
    Tile::new(256.0, 128.0),
    Tile::new(128.0, 192.0),
    Tile::new(192.0, 128.0),
    Tile::new(128.0, 128.0),
    Tile::new(64.0, 256.0),
    Tile::new(256.0, 64.0),
    Tile::new(128.0, 64.0),
    Tile::new(64.0, 128.0),
    Tile::new(64.0, 64.0),
    Tile::new(128.0, 32.0),
    Tile::new(32.0, 128.0),
    Tile::new(64.0, 32.0),
    Tile::new(32.0, 64.0),
    Tile::new(128.0, 16.0),
    Tile::new(16.0, 128.0),
    Tile::new(64.0, 16.0),
    Tile::new(16.0, 64.0),
];
/// Columns of A and B that a tile multiplies at once.
const TILE_DEPTH: f64 = 64.0;
const FITTED_SPLITS: &[f64] = &[2.0, 4.0, 8.0, 16.0, 32.0];
/// Into how many parts the columns of A and B may be split.
const SPLITS: &[f64] = &[2.0, 4.0, 8.0];
/// The minimum number of columns of a part of a split product.
const MIN_SPLIT_COLUMNS: f64 = 256.0;
/// Bytes of an element of a partial result (FP32).
const PARTIAL_BYTES: f64 = 4.0;

impl Gemm {
    /// A product of `dtype` matrices with a 16-bit or wider result.
    #[must_use]
    pub fn new(m: f64, n: f64, k: f64, dtype: Dtype) -> Self {
        let c = match dtype {
            Dtype::Fp32 | Dtype::Tf32 => Dtype::Fp32,
            Dtype::Fp16 | Dtype::Bf16 => dtype,
            _ => Dtype::Fp16,
        };
        Self { m, n, k, batch: 1.0, a: dtype, b: dtype, c }
    }

    /// Number of FLOPs: 2mnk for each product.
    #[must_use]
    pub fn flops(&self) -> f64 {
        2.0 * self.m * self.n * self.k * self.batch
    }

    /// Bytes of each matrix once, with its scales.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        let one = self.a.bytes(self.m, self.k)
            + self.b.bytes(self.n, self.k)
            + self.c.bytes(self.m, self.n);
        one * self.batch
    }

    /// The work of this product, with the best tile.
    #[must_use]
    pub fn work(&self, context: &Context<'_>) -> KernelWork {
        group_work(std::slice::from_ref(self), 1.0, context, OpKind::Gemm)
    }

    /// The bound and the time of this product.
    #[must_use]
    pub fn time(&self, context: &Context<'_>) -> KernelTime {
        self.work(context).time(context)
    }
}

/// The bound and the time of a group in one launch.
#[must_use]
pub fn grouped(groups: &[Gemm], context: &Context<'_>) -> KernelTime {
    group_work(groups, 1.0, context, OpKind::GroupedGemm).time(context)
}

/// The work of `times` copies of all products of `groups` in one launch, with the tile and split
/// that take least. Empty products cost nothing.
#[must_use]
pub(crate) fn group_work(
    groups: &[Gemm],
    times: f64,
    context: &Context<'_>,
    op: OpKind,
) -> KernelWork {
    let Some(first) = groups.first() else {
        return KernelWork::ideal(op, crate::dtype::MathKind::Half, 0.0, 0.0);
    };
    let math = math_of(context.gpu, first.a, first.b);
    let fitted = context.fit_of(op, math).filter(|fit| fit.tiles.is_some());
    if let Some(efficiency) = fitted {
        return fitted_tile(groups, times, context.gpu, op, &efficiency);
    }
    // A library adds the parts of a split product in a second kernel.
    let splits = Splits {
        parts: SPLITS,
        launches: if op == OpKind::Gemm { 2.0 } else { 1.0 },
        launch_ns: context.launch_ns_of_choice(),
    };
    best_tile(groups, first, times, context.gpu, op, TILES, &splits)
}

/// The work of one product with a given tile, k in one part.
pub(crate) fn tiled_work(gemm: &Gemm, tile: (f64, f64), gpu: &Gpu) -> KernelWork {
    let whole = Splits { parts: &[], launches: 1.0, launch_ns: 0.0 };
    let tiles = [Tile::new(tile.0, tile.1)];
    best_tile(std::slice::from_ref(gemm), gemm, 1.0, gpu, OpKind::Gemm, &tiles, &whole)
}

/// How far rows of `columns` elements are from an alignment of 16 bytes, in halvings.
pub(super) fn halvings_from_16(columns: f64, dtype: Dtype) -> f64 {
    let bytes = (columns * f64::from(dtype.bits()) / 8.0) as u64;
    4.0 - f64::from(bytes.trailing_zeros().min(4))
}

/// [`KernelWork::misalignment`] of operands and result.
fn misalignment(gemm: &Gemm) -> f64 {
    let of = halvings_from_16;
    of(gemm.k, gemm.a).max(of(gemm.k, gemm.b)).max(of(gemm.n, gemm.c))
}

/// The tile and split that take least at the fitted rates. Waves and loads count, so small tiles
/// are not free.
fn fitted_tile(
    groups: &[Gemm],
    times: f64,
    gpu: &Gpu,
    op: OpKind,
    efficiency: &Efficiency,
) -> KernelWork {
    let Some(first) = groups.first() else {
        return KernelWork::ideal(op, crate::dtype::MathKind::Half, 0.0, 0.0);
    };
    let Some(cost) = efficiency.tiles else {
        return KernelWork::ideal(op, math_of(gpu, first.a, first.b), 0.0, 0.0);
    };
    let math = math_of(gpu, first.a, first.b);
    let sum = |value: fn(&Gemm) -> f64| times * groups.iter().map(value).sum::<f64>();
    let (flops, bytes) = (sum(Gemm::flops), sum(Gemm::bytes));
    let results = sum(|group| group.m * group.n * group.batch);
    let element = f64::from(first.a.bits().max(first.b.bits())) / 8.0;
    let misalignment = groups.iter().map(misalignment).fold(0.0, f64::max);
    let aligned = if misalignment > 0.0 { cost.misaligned } else { 1.0 };
    let flop_ns = 1e9 / (gpu.peaks[math.index()] * efficiency.compute * aligned);
    let hbm_ns = 1e9 / (gpu.hbm * efficiency.memory);
    let shared_ns = gpu.shared.map_or(0.0, |rate| 1e9 / (rate * cost.load * aligned));
    let mut work = KernelWork::ideal(op, math, flops, bytes);
    (work.rows, work.columns) = (results / first.n.max(1.0), first.n);
    work.misalignment = misalignment;
    let mut least = f64::INFINITY;
    for tile in FITTED_TILES {
        let (mut tiles, mut depth) = (0.0, 0.0);
        for group in groups {
            let [for_row, for_column] = tile.inverse;
            let of_group =
                whole(group.m * for_row) * whole(group.n * for_column) * times * group.batch;
            tiles += of_group;
            depth += of_group * whole(group.k / TILE_DEPTH) * TILE_DEPTH;
        }
        if tiles == 0.0 {
            continue;
        }
        let padded_flops = 2.0 * depth * tile.rows * tile.columns;
        let shared_bytes = depth * (tile.rows + tile.columns) * element;
        let longest = (padded_flops * flop_ns).max(shared_bytes * shared_ns);
        for split in std::iter::once(1.0).chain(FITTED_SPLITS.iter().copied()) {
            let is_split = split > 1.0;
            if is_split && (tiles >= gpu.processors || depth < MIN_SPLIT_COLUMNS * split * tiles) {
                break;
            }
            let exact = tiles * split / gpu.processors;
            let waves = whole(exact);
            let added = if is_split { split * 2.0 * results * PARTIAL_BYTES } else { 0.0 };
            let on_chip = longest * waves / exact + waves * cost.wave_ns;
            let memory = (bytes + added) * hbm_ns;
            let ns = super::overlapped(on_chip, memory, efficiency.overlap)
                + if is_split { cost.split_ns } else { 0.0 };
            if ns < least {
                least = ns;
                work.padded_flops = padded_flops;
                work.wave_factor = waves / exact;
                work.waves = waves;
                work.shared_bytes = shared_bytes;
                work.added_bytes = added;
                work.is_split = is_split;
                work.launches = if is_split { 2.0 } else { 1.0 };
                work.tile = [tile.rows, tile.columns, split];
            }
        }
    }
    work
}

/// Into how many parts k may be split, and what that costs.
struct Splits {
    parts: &'static [f64],
    /// Launches of a split product.
    launches: f64,
    /// The time of a launch, in ns.
    launch_ns: f64,
}

fn best_tile(
    groups: &[Gemm],
    first: &Gemm,
    times: f64,
    gpu: &Gpu,
    op: OpKind,
    tiles: &[Tile],
    splits: &Splits,
) -> KernelWork {
    let math = math_of(gpu, first.a, first.b);
    let flops = times * groups.iter().map(Gemm::flops).sum::<f64>();
    let bytes = times * groups.iter().map(Gemm::bytes).sum::<f64>();
    let results = times * groups.iter().map(|group| group.m * group.n * group.batch).sum::<f64>();
    let element = f64::from(first.a.bits().max(first.b.bits())) / 8.0;
    // Times of one FLOP and of one byte: products are cheaper than quotients in the loop.
    let flop = 1.0 / gpu.peaks[math.index()];
    let (hbm_byte, shared_byte) = (1.0 / gpu.hbm, gpu.shared.map_or(0.0, |rate| 1.0 / rate));
    let processor = 1.0 / gpu.processors;
    let memory = bytes * hbm_byte;
    let more_launches = (splits.launches - 1.0) * splits.launch_ns / 1e9;
    let partial_result = 2.0 * results * PARTIAL_BYTES;
    // FLOPs and shared-memory bytes of a tile grow with k, so tiles are counted by k.
    let count = |tile: &Tile| {
        let (mut tiles, mut depth) = (0.0, 0.0);
        for group in groups {
            let [for_row, for_column] = tile.inverse;
            let of_group =
                whole(group.m * for_row) * whole(group.n * for_column) * times * group.batch;
            tiles += of_group;
            depth += of_group * group.k;
        }
        (tiles, depth)
    };
    let longest = |tile: &Tile, depth: f64| {
        let padded_flops = 2.0 * depth * tile.rows * tile.columns;
        let shared_bytes = depth * (tile.rows + tile.columns) * element;
        (padded_flops * flop).max(shared_bytes * shared_byte)
    };
    let mut best: Option<(&Tile, f64)> = None;
    let mut least = f64::INFINITY;
    for tile in tiles {
        let (tiles, depth) = count(tile);
        let longest = longest(tile, depth);
        // Waves only add to this.
        if tiles == 0.0 || longest >= least {
            continue;
        }
        let waves = tiles * processor;
        let time = (longest * whole(waves) / waves).max(memory);
        if time < least {
            (least, best) = (time, Some((tile, 1.0)));
            // No tile moves fewer bytes.
            if time <= memory {
                break;
            }
        }
    }
    // More parts only add bytes, so most products need no look at them.
    let memory_of = |split: f64| (bytes + split * partial_result) * hbm_byte + more_launches;
    if splits.parts.first().is_some_and(|split| memory_of(*split) < least) {
        for tile in tiles {
            let (tiles, depth) = count(tile);
            if tiles == 0.0 || tiles >= gpu.processors {
                continue;
            }
            let longest = longest(tile, depth);
            for &split in splits.parts {
                let is_too_thin = depth < MIN_SPLIT_COLUMNS * split * tiles;
                if is_too_thin || memory_of(split).max(longest + more_launches) >= least {
                    break;
                }
                let waves = tiles * split * processor;
                let time = (longest * whole(waves) / waves + more_launches).max(memory_of(split));
                if time < least {
                    (least, best) = (time, Some((tile, split)));
                }
            }
        }
    }
    let ideal = KernelWork::ideal(op, math, flops, bytes);
    best.map_or(ideal, |(tile, split)| {
        let (tiles, depth) = count(tile);
        let waves = tiles * split * processor;
        let is_split = split > 1.0;
        KernelWork {
            padded_flops: 2.0 * depth * tile.rows * tile.columns,
            wave_factor: whole(waves) / waves,
            shared_bytes: depth * (tile.rows + tile.columns) * element,
            added_bytes: if is_split { split * partial_result } else { 0.0 },
            launches: if is_split { splits.launches } else { 1.0 },
            tile: [tile.rows, tile.columns, split],
            ..ideal
        }
    })
}

/// `value` rounded up. `f64::ceil` is a call where the compiler may not assume SSE 4.1, and this is
/// the inner loop of a prediction.
fn whole(value: f64) -> f64 {
    let down = value as i64 as f64;
    if down < value { down + 1.0 } else { down }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::find;
    use crate::kernel::LaunchMode;

    fn gpu(name: &str) -> Gpu {
        find(name).unwrap().gpu().unwrap()
    }

    /// On an H200 the same sizes are limited by bf16 products: 60.8, 30.4, 13.0 and 6.5 us.
    #[test]
    fn fp4_on_hopper_is_computed_in_bf16() {
        let gpu = gpu("h200");
        let groups = [192., 320.].map(|m| Gemm::new(m, 3072., 4096., Dtype::Nvfp4));
        let time = grouped(&groups, &Context::new(&gpu));
        assert!((time.bound_ns() / 1000.0 - 13.0).abs() < 0.05, "{}", time.bound_ns());
        assert_eq!(time.bound_ns(), time.bound_compute_ns);
    }

    #[test]
    fn a_square_product_is_worked_by_hand() {
        // 8192³: 1.0995e12 FLOP / 989.4e12 = 1111.3 us; 3·8192²·2 B / 4.8e12 = 83.9 us.
        let gpu = gpu("h200");
        let time = Gemm::new(8192., 8192., 8192., Dtype::Bf16).time(&Context::new(&gpu));
        assert!((time.bound_compute_ns / 1e3 - 1111.29).abs() < 0.01);
        assert!((time.bound_memory_ns / 1e3 - 83.886).abs() < 0.01);
        // 128·128 tiles of 64x64 on 132 SMs: 124.1 waves take the time of 125. Larger tiles leave
        // more of their last wave empty: 16 waves for 15.52 with 128x256.
        assert_eq!(time.work.tile, [64.0, 64.0, 1.0]);
        assert!((time.compute_ns / time.bound_compute_ns - 125.0 * 132.0 / 16384.0).abs() < 1e-9);
    }

    #[test]
    fn a_row_of_tokens_is_padded_little() {
        let gpu = gpu("h200");
        let time = Gemm::new(1., 4096., 4096., Dtype::Bf16).time(&Context::new(&gpu));
        assert_eq!(time.limited_by(), super::super::LimitedBy::Memory);
    }

    #[test]
    fn a_split_product_is_two_launches() {
        let gpu = gpu("h200");
        let launches = |m, n, k| {
            let time = Gemm::new(m, n, k, Dtype::Bf16).time(&Context::new(&gpu));
            (time.work.tile[2] > 1.0, time.work.launches)
        };
        assert_eq!(launches(256., 1024., 8192.), (true, 2.0));
        assert_eq!(launches(256., 8192., 1024.), (false, 1.0));
    }

    #[test]
    fn a_product_is_split_only_if_that_saves_more_than_a_launch() {
        let gpu = gpu("h200");
        let product = Gemm::new(16., 1024., 8192., Dtype::Bf16);
        let in_mode = |launch| Context { launch, ..Context::new(&gpu) };
        let split = |launch| product.work(&in_mode(launch)).tile[2];
        assert_eq!(split(LaunchMode::Graph), 2.0);
        assert_eq!(split(LaunchMode::Synchronous), 1.0);
        for launch in [LaunchMode::Graph, LaunchMode::Stream, LaunchMode::Synchronous] {
            let context = in_mode(launch);
            let best = product.time(&context).time_ns();
            for tile in TILES {
                let whole = tiled_work(&product, (tile.rows, tile.columns), &gpu).time(&context);
                assert!(best <= whole.time_ns(), "{launch:?}");
            }
        }
    }

    #[test]
    fn an_empty_group_takes_no_work() {
        let gpu = gpu("h200");
        let time = grouped(&[], &Context::new(&gpu));
        assert_eq!(time.bound_ns(), 0.0);
        assert_eq!(time.time_ns(), time.launch_ns);
    }
}
