// A form to compare with, built as CUTLASS builds its block-scaled grouped GEMM (example 75, two SMs): tokens on M,
// weights on N, tiles of 256 x 256 x 256 over two blocks; a static walk over the tiles of one group after the other,
// which a warp of its own writes into a ring of 8; sums of two tiles that overlap by 48 columns of tensor memory; an
// epilogue of 128 x 64 parts through two buffers and TMA. Written from these facts; no code of CUTLASS is here. It has
// no C, so the warp that would fetch it is idle, and its tensor maps are made on the host, not changed in the kernel.
#pragma once
#include "pair.h"

namespace wagmi {
namespace pair {

struct Aligned {
    static constexpr int N_LARGEST = 256, N_BOX = 128, STAGES = 5, SUM_BARRIERS = 1;
    static constexpr int STORE_COLUMNS = 64, STORE_BYTES = ROWS * STORE_COLUMNS * 2;
    static constexpr int WARPS = 8, TILE_STAGES = 8;
    static constexpr int SCALE_COLUMNS = ATOM_COLUMNS * STEPS * 3, OVERLAP = SCALE_COLUMNS;
    WAGMI_HD static int sum_column(int number) { return number % 2 * (N_LARGEST - OVERLAP); }
    WAGMI_HD static int m_scale_column(int step) { return TMEM_COLUMNS - SCALE_COLUMNS + ATOM_COLUMNS * step; }
    WAGMI_HD static int n_scale_column(int step) {
        return TMEM_COLUMNS - SCALE_COLUMNS + ATOM_COLUMNS * STEPS + 2 * ATOM_COLUMNS * step;
    }
};
static_assert(2 * Aligned::N_LARGEST - Aligned::OVERLAP + Aligned::SCALE_COLUMNS <= TMEM_COLUMNS, "of 512 columns");
static_assert(Aligned::OVERLAP <= Aligned::STORE_COLUMNS, "what overlaps is in the part that is read first");

WAGMI_HD MapShape aligned_output(int m, int n) { return {2, n, m, (int64_t)n * 2, Aligned::STORE_COLUMNS, ROWS, 128}; }

// The tensor maps of a product of m tokens and n weights, in the order of `Operand`.
WAGMI_HD void map_shapes(bool aligned, int m, int n, int k, MapShape maps[OPERANDS]) {
    maps[M_CODES] = code_map(aligned ? m : n, k, ROWS);
    maps[N_CODES] = code_map(aligned ? n : m, k, aligned ? Aligned::N_BOX : Swapped::N_BOX);
    maps[M_SCALES] = scale_map(aligned ? m : n, k);
    maps[N_SCALES] = scale_map(aligned ? n : m, k);
    maps[OUTPUT] = aligned ? aligned_output(m, n) : swapped_output(m, n);
}

// Tokens and weights of one product, and its K.
struct Extent {
    int m, n, k;
};

// What the scheduler's warp writes: a tile, or no more.
struct NextTile {
    int problem, m_row, n_row, k; // problem -1: none
};

// Tile `index` of all groups, M fastest. `group` and `before` (tiles of the groups before it) only grow.
WAGMI_HD NextTile walk_groups(const Extent *extents, int problems, int index, int &group, int &before) {
    for (; group < problems; group++) {
        int high = ceil_div(extents[group].m, ROW_BLOCK), wide = ceil_div(extents[group].n, Aligned::N_LARGEST);
        int place = index - before;
        if (place < high * wide)
            return {group, place % high * ROW_BLOCK, place / high * Aligned::N_LARGEST, extents[group].k};
        before += high * wide;
    }
    return {-1, 0, 0, 0};
}

// One thread of each block.
template <class Machine> WAGMI_HD void schedule(Machine &machine, const Extent *extents, int problems) {
    using Place = Places<Aligned>;
    Ring ring(Aligned::TILE_STAGES);
    const uint32_t base = machine.base();
    int group = 0, before = 0;
    for (int index = machine.cluster();; index += machine.clusters()) {
        NextTile tile = walk_groups(extents, problems, index, group, before);
        machine.wait(base + Place::barrier(Place::TILE_EMPTY, ring.stage), ring.parity ^ 1);
        machine.write_tile(base + Place::TILES_AT + 16 * ring.stage, tile);
        machine.arrive(base + Place::barrier(Place::TILE_FULL, ring.stage));
        ring.next();
        if (tile.problem < 0) break;
    }
}

// The tiles that the scheduler wrote.
struct TileRing {
    Ring ring{Aligned::TILE_STAGES};
    template <class Machine> WAGMI_HD bool next(Machine &machine, Tile &tile) {
        using Place = Places<Aligned>;
        const uint32_t base = machine.base();
        machine.wait(base + Place::barrier(Place::TILE_FULL, ring.stage), ring.parity);
        NextTile next = machine.read_tile(base + Place::TILES_AT + 16 * ring.stage);
        machine.arrive(base + Place::barrier(Place::TILE_EMPTY, ring.stage));
        ring.next();
        tile = {next.problem, next.m_row, next.n_row, Aligned::N_LARGEST, 0, next.k / K_TILE, next.k / SLAB, -1, 0, 0};
        return next.problem >= 0;
    }
};

// Byte of the 16-byte chunk (0..7: eight columns) of a row in a buffer: rows of 128 bytes with a 128-byte swizzle.
WAGMI_HD int staged_row(int row, int chunk) { return row * 128 + swizzled_chunk(row, chunk) * 16; }

// One of four warps in each block. A lane has a row of tokens.
template <class Machine> WAGMI_HD void store_aligned(Machine &machine, TileRing tiles, uint32_t memory, int warp) {
    using Place = Places<Aligned>;
    const uint32_t base = machine.base();
    const int rank = machine.rank();
    Ring sums(1), buffer(STORE_BUFFERS);
    int number = 0;
    for (Tile tile; tiles.next(machine, tile); number++) {
        machine.wait(base + Place::barrier(Place::SUM_FULL, 0), sums.parity);
        machine.fence_after();
        uint32_t from = memory + ((uint32_t)warp * 32 << 16) + Aligned::sum_column(number);
        constexpr int PARTS = Aligned::N_LARGEST / Aligned::STORE_COLUMNS;
        for (int i = 0; i < PARTS; i++) {
            // First the columns that the next tile's sums need: the last ones of an even tile, the first of an odd one.
            int column = (number % 2 ? i : PARTS - 1 - i) * Aligned::STORE_COLUMNS;
            typename Machine::Row sum;
            machine.load_row(from + column, sum);
            if (i == 0) {
                machine.fence_before();
                machine.arrive_at_first_block(base + Place::barrier(Place::SUM_EMPTY, 0));
            }
            uint32_t to = base + Place::STORE_AT + buffer.stage * Aligned::STORE_BYTES;
            if (warp == 0) machine.wait_for_stores();
            machine.sync_epilogue();
            machine.stage_row(to, warp * 32, sum);
            machine.sync_epilogue();
            if (warp == 0) machine.store(to, OUTPUT, tile.problem, tile.n_row + column, tile.m_row + rank * ROWS);
            buffer.next();
        }
        sums.next();
    }
    if (warp == 0) machine.wait_for_all_stores();
}

} // namespace pair
} // namespace wagmi
