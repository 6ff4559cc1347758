// The sm_100a form of two blocks: what each warp does, as templates over a machine. `pair_machine.cuh` has the one that
// issues PTX, `emulator.h` one that emulates the same instructions on the host, so the check runs this very code.
//
// Two blocks of a cluster share one MMA (cta_group::2) of 256 rows x N. Each block has 128 rows of the M side, half of
// the rows of the N side, all scales of the N side, and in its tensor memory the sums of its 128 rows. The first block
// issues all tensor core work. Both fetch; all bytes of a stage are counted by the first block's barrier.
#pragma once
#include "layout.h"

namespace wagmi {
namespace pair {

constexpr int BLOCKS = 2, ROWS = 128, ROW_BLOCK = ROWS * BLOCKS;
constexpr int EPILOGUE_WARPS = 4;
constexpr int CODE_ROW = K_TILE / 2;           // bytes of a row in a stage: one swizzle row
constexpr int M_BYTES = ROWS * CODE_ROW;
constexpr int SCALE_BYTES = SCALE_ATOM * STEPS; // of 128 rows and a stage
constexpr int STORE_BUFFERS = 2;

// What tensor maps there are for a problem.
enum Operand { M_CODES, N_CODES, M_SCALES, N_SCALES, OUTPUT, OPERANDS };

// A two-dimensional tensor map: element (x, y) lies at y * stride + x * element bytes.
struct MapShape {
    int element;                    // bytes
    int64_t width, height, stride;  // elements, rows, bytes
    int box_width, box_height;
    int swizzle;                    // bytes; 0 for none
};

WAGMI_HD MapShape code_map(int rows, int k, int box) { return {1, k / 2, rows, k / 2, CODE_ROW, box, 128}; }
// Atoms of 512 bytes, one below the other: those of 128 rows and all of K, then those of the next 128 rows.
WAGMI_HD MapShape scale_map(int rows, int k) {
    return {8, SCALE_ATOM / 8, (int64_t)ceil_div(rows, 128) * (k / SLAB), SCALE_ATOM, SCALE_ATOM / 8, STEPS, 0};
}

// A piece of an output tile, everything looked up. Rows of the M side and of the N side.
struct Tile {
    int problem, m_row, n_row, n;
    int k_begin, k_end; // in stages
    int atoms;          // of scales along K
    int slot, first_slot, slots; // as in schedule.h
};

struct Ring {
    int stage = 0, stages;
    uint32_t parity = 0;
    WAGMI_HD explicit Ring(int stages) : stages(stages) {}
    WAGMI_HD void next() {
        if (++stage == stages) stage = 0, parity ^= 1;
    }
};

// Weights on M, tokens on N: next to no padding, however ragged m is.
struct Swapped {
    static constexpr int N_LARGEST = N_MOST, N_BOX = 16, STAGES = 5, SUM_BARRIERS = 2;
    static constexpr int STORE_TOKENS = 32, STORE_BYTES = STORE_TOKENS * 64 * EPILOGUE_WARPS; // a buffer of all warps
    static constexpr int WARPS = 6, TILE_STAGES = 0;
    WAGMI_HD static int sum_column(int number) { return accumulator_column(number % 2); }
    WAGMI_HD static int m_scale_column(int step) { return weight_scale_column(step); }
    WAGMI_HD static int n_scale_column(int step) { return token_scale_column(step, 0); }
};

// Where things lie in a block's shared memory, from a multiple of 1024 on.
template <class Form> struct Places {
    static constexpr int N_BYTES = Form::N_LARGEST / BLOCKS * CODE_ROW;
    static constexpr int N_AT = Form::STAGES * M_BYTES, M_SCALES_AT = N_AT + Form::STAGES * N_BYTES;
    static constexpr int N_SCALES_AT = M_SCALES_AT + Form::STAGES * SCALE_BYTES;
    static constexpr int STORE_AT = N_SCALES_AT + Form::STAGES * SCALE_BYTES * 2;
    static constexpr int TILES_AT = STORE_AT + STORE_BUFFERS * Form::STORE_BYTES;
    static constexpr int BARRIERS_AT = TILES_AT + 16 * Form::TILE_STAGES;
    static constexpr int FULL = 0, EMPTY = Form::STAGES, SUM_FULL = 2 * Form::STAGES;
    static constexpr int SUM_EMPTY = SUM_FULL + Form::SUM_BARRIERS, TILE_FULL = SUM_EMPTY + Form::SUM_BARRIERS;
    static constexpr int TILE_EMPTY = TILE_FULL + Form::TILE_STAGES, BARRIERS = TILE_EMPTY + Form::TILE_STAGES;
    static constexpr int MEMORY_AT = BARRIERS_AT + 8 * BARRIERS; // where tcgen05.alloc writes
    static constexpr int BYTES = MEMORY_AT + 16;
    static_assert(N_BYTES % 1024 == 0 && STORE_AT % 1024 == 0, "swizzled tiles start at 1024 bytes");
    static_assert(BYTES + 1024 <= 227 * 1024, "a block has 227 KiB at most");
    WAGMI_HD static int barrier(int first, int stage) { return BARRIERS_AT + 8 * (first + stage); }
    // Arrivals that end a phase: one thread or commit, or the epilogues of both blocks, or all that read a tile, of which
    // the second block has one less.
    WAGMI_HD static int arrivals(int barrier, int rank) {
        if (barrier >= TILE_EMPTY) return 2 - rank + EPILOGUE_WARPS;
        return barrier >= SUM_EMPTY && barrier < TILE_FULL ? BLOCKS * EPILOGUE_WARPS : 1;
    }
};

// The pieces of one cluster, one after the other.
struct TileList {
    const Tile *at, *end;
    template <class Machine> WAGMI_HD bool next(Machine &, Tile &tile) {
        if (at == end) return false;
        tile = *at++;
        return true;
    }
};

// One thread of each block.
template <class Form, class Machine, class Tiles> WAGMI_HD void fetch(Machine &machine, Tiles tiles) {
    using Place = Places<Form>;
    Ring ring(Form::STAGES);
    const uint32_t base = machine.base();
    const int rank = machine.rank();
    for (Tile tile; tiles.next(machine, tile);) {
        int n_rows = tile.n / BLOCKS, m_row = tile.m_row + rank * ROWS, n_row = tile.n_row + rank * n_rows;
        int boxes = ceil_div(n_rows, Form::N_BOX), halves = ceil_div(tile.n, 128);
        // Each block fetches the N side's scales of 128 rows for both. Rows that do not exist are zero.
        int m_atom = m_row / 128 * tile.atoms, n_atom = (tile.n_row / 128 + rank) * tile.atoms;
        uint32_t bytes = BLOCKS * (M_BYTES + boxes * Form::N_BOX * CODE_ROW + SCALE_BYTES + halves * SCALE_BYTES);
        WAGMI_NO_UNROLL
        for (int k = tile.k_begin; k < tile.k_end; k++) {
            uint32_t mine = base + Place::barrier(Place::FULL, ring.stage), full = machine.in_first_block(mine);
            machine.wait(base + Place::barrier(Place::EMPTY, ring.stage), ring.parity ^ 1);
            // The other block's bytes may come before this: then the count is below zero for a while.
            if (rank == 0) machine.expect(mine, bytes);
            machine.copy(base + ring.stage * M_BYTES, M_CODES, tile.problem, k * CODE_ROW, m_row, full);
            WAGMI_NO_UNROLL
            for (int i = 0; i < boxes; i++)
                machine.copy(base + Place::N_AT + ring.stage * Place::N_BYTES + i * Form::N_BOX * CODE_ROW, N_CODES,
                             tile.problem, k * CODE_ROW, n_row + i * Form::N_BOX, full);
            machine.copy(base + Place::M_SCALES_AT + ring.stage * SCALE_BYTES, M_SCALES, tile.problem, 0,
                         m_atom + k * STEPS, full);
            if (rank < halves)
                machine.copy_to_both(base + Place::N_SCALES_AT + (2 * ring.stage + rank) * SCALE_BYTES, N_SCALES,
                                     tile.problem, 0, n_atom + k * STEPS, full);
            ring.next();
        }
    }
    // Until the last commits have arrived, the block must not end.
    for (int i = 0; i < Form::STAGES; i++, ring.next())
        machine.wait(base + Place::barrier(Place::EMPTY, ring.stage), ring.parity ^ 1);
}

// One thread of the first block: everything it issues runs in order.
template <class Form, class Machine, class Tiles> WAGMI_HD void multiply(Machine &machine, Tiles tiles, uint32_t memory) {
    using Place = Places<Form>;
    Ring ring(Form::STAGES), sums(Form::SUM_BARRIERS);
    const uint32_t base = machine.base();
    int number = 0;
    for (Tile tile; tiles.next(machine, tile); number++) {
        int halves = ceil_div(tile.n, 128);
        uint32_t instruction = instruction_descriptor(tile.n, ROW_BLOCK), sum = memory + Form::sum_column(number);
        machine.wait(base + Place::barrier(Place::SUM_EMPTY, sums.stage), sums.parity ^ 1);
        machine.fence_after();
        for (int k = tile.k_begin; k < tile.k_end; k++) {
            machine.wait(base + Place::barrier(Place::FULL, ring.stage), ring.parity);
            machine.fence_after();
            uint64_t m = operand_descriptor(base + ring.stage * M_BYTES);
            uint64_t n = operand_descriptor(base + Place::N_AT + ring.stage * Place::N_BYTES);
            uint32_t m_scales = base + Place::M_SCALES_AT + ring.stage * SCALE_BYTES;
            uint32_t n_scales = base + Place::N_SCALES_AT + 2 * ring.stage * SCALE_BYTES;
            WAGMI_UNROLL
            for (int step = 0; step < STEPS; step++) {
                machine.copy_scales(memory + Form::m_scale_column(step), scale_descriptor(m_scales + step * SCALE_ATOM));
                for (int i = 0; i < halves; i++)
                    machine.copy_scales(memory + Form::n_scale_column(step) + i * ATOM_COLUMNS,
                                        scale_descriptor(n_scales + i * SCALE_BYTES + step * SCALE_ATOM));
            }
            WAGMI_UNROLL
            for (int step = 0; step < STEPS; step++)
                machine.multiply(sum, m + step * OPERAND_STEP, n + step * OPERAND_STEP, instruction,
                                 memory + Form::m_scale_column(step), memory + Form::n_scale_column(step),
                                 k > tile.k_begin || step > 0);
            machine.commit(base + Place::barrier(Place::EMPTY, ring.stage));
            ring.next();
        }
        machine.commit(base + Place::barrier(Place::SUM_FULL, sums.stage));
        sums.next();
    }
}

// ---- epilogue of `Swapped` -----------------------------------------------------------------------------------------
//
// A warp has 32 rows of weights. It takes 16 tokens at a time as two fragments of 16 rows (tcgen05.ld 16x256b), turns
// them with stmatrix so that a token's 32 outputs are 64 contiguous bytes, and stores 32 tokens by TMA. The box has a
// 64-byte swizzle, so eight tokens of a matrix are in different banks.

// Byte of the 16-byte chunk (0..3: eight rows of weights) of a token in a warp's buffer.
WAGMI_HD int staged_output(int token, int chunk) { return token * 64 + (chunk ^ (token >> 1 & 3)) * 16; }
// Where lane `lane` points stmatrix.x4.trans for rows 16 * half and 16 tokens from `token` on. Matrices: eight tokens
// with rows 0..7, with rows 8..15, then the next eight tokens.
WAGMI_HD int staged_matrix(int lane, int half, int token) {
    return staged_output(token + lane / 16 * 8 + lane % 8, 2 * half + lane / 8 % 2);
}
constexpr int64_t SLOT_FLOATS = (int64_t)ROW_BLOCK * N_MOST;
constexpr int FLAGS_PER_SLOT = BLOCKS * EPILOGUE_WARPS;

WAGMI_HD MapShape swapped_output(int m, int n) { return {2, n, m, (int64_t)n * 2, 32, Swapped::STORE_TOKENS, 64}; }

// One of four warps in each block.
template <class Machine, class Tiles> WAGMI_HD void store_swapped(Machine &machine, Tiles tiles, uint32_t memory, int warp) {
    using Place = Places<Swapped>;
    const uint32_t base = machine.base();
    const int rank = machine.rank(), part = rank * EPILOGUE_WARPS + warp;
    const uint32_t buffers = base + Place::STORE_AT + warp * STORE_BUFFERS * Swapped::STORE_TOKENS * 64;
    Ring sums(2), buffer(STORE_BUFFERS);
    int number = 0;
    for (Tile tile; tiles.next(machine, tile); number++) {
        machine.wait(base + Place::barrier(Place::SUM_FULL, sums.stage), sums.parity);
        machine.fence_after();
        for (int i = 0; i < tile.slots; i++) machine.wait_for_part((tile.first_slot + i) * FLAGS_PER_SLOT + part);
        uint32_t from = memory + ((uint32_t)warp * 32 << 16) + Swapped::sum_column(number);
        for (int token = 0; token < tile.n; token += 16) {
            typename Machine::Fragment sum;
            machine.load(from + token, sum);
            int64_t place = part * 32 * N_MOST + token * 32; // the floats of 16 tokens x 32 rows in a slot
            if (tile.slot >= 0) {
                machine.leave(tile.slot * SLOT_FLOATS + place, sum);
                continue;
            }
            WAGMI_NO_UNROLL
            for (int i = 0; i < tile.slots; i++) machine.take((tile.first_slot + i) * SLOT_FLOATS + place, sum);
            uint32_t to = buffers + buffer.stage * Swapped::STORE_TOKENS * 64;
            int in_box = token % Swapped::STORE_TOKENS;
            if (in_box == 0) machine.wait_for_stores();
            machine.stage_turned(to, in_box, sum);
            // Tokens past the last are not in the map, so rows of a box that nothing was put into are not written.
            if (in_box + 16 == Swapped::STORE_TOKENS || token + 16 == tile.n) {
                machine.store(to, OUTPUT, tile.problem, tile.m_row + rank * ROWS + warp * 32, tile.n_row + token - in_box);
                buffer.next();
            }
        }
        machine.fence_before();
        machine.arrive_at_first_block(base + Place::barrier(Place::SUM_EMPTY, sums.stage));
        if (tile.slot >= 0) machine.tell_part(tile.slot * FLAGS_PER_SLOT + part);
        sums.next();
    }
    machine.wait_for_all_stores();
}

} // namespace pair
} // namespace wagmi
