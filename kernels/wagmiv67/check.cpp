// Host check of everything about this kernel that is arithmetic: places, descriptors, plans, and an emulation of
// the sm_100 data path. Build and run: c++ -std=c++17 -O2 check.cpp -o check && ./check. A cargo test does.
#include <stdio.h>
#include <stdlib.h>

#include <map>
#include <set>
#include <string>

#include "layout.h"
#include "schedule.h"

using namespace wagmi;

#define CHECK(what)                                                                                                \
    do {                                                                                                           \
        if (!(what)) {                                                                                             \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #what);                                                      \
            exit(1);                                                                                               \
        }                                                                                                          \
    } while (0)

static uint32_t draw(uint64_t a, uint64_t b) {
    uint64_t z = a * 0x9e3779b97f4a7c15ull + b;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)(z ^ z >> 31);
}

struct Problem {
    std::string name;
    std::vector<Shape> shapes;
};

static std::vector<Problem> problems() {
    auto group = [](std::string name, std::vector<int> ms, int n, int k) {
        Problem problem = {name, {}};
        for (int m : ms) problem.shapes.push_back({m, n, k});
        return problem;
    };
    return {group("bench-1", {80, 176, 128, 72, 64, 248, 96, 160}, 4096, 7168),
            group("bench-2", {40, 76, 168, 72, 164, 148, 196, 160}, 7168, 2048),
            group("bench-3", {192, 320}, 3072, 4096),
            group("bench-4", {128, 384}, 4096, 1536),
            {"pair", {{80, 4096, 7168}, {40, 7168, 2048}}},
            group("ragged-1", {40, 76}, 256, 256),
            group("ragged-2", {72, 1, 200}, 384, 512),
            group("ragged-3", {8, 260, 129, 7}, 128, 1024),
            group("ragged-5", {513, 2}, 640, 256),
            {"ragged-7", {{300, 128, 256}, {5, 1024, 512}, {77, 384, 2048}}}};
}

// The blocked scales are [rows / 128][k / 64][32][4][4], the second-last 4 being rows 32 apart.
static void scales_lie_where_the_blocked_layout_has_them() {
    for (int k : {256, 1536, 7168}) {
        for (int row = 0; row < 300; row++) {
            for (int block = 0; block < k / 16; block++) {
                int index[5] = {row / 128, block / 4, row % 32, row % 128 / 32, block % 4};
                int64_t flat = (((int64_t)(index[0] * (k / 64) + index[1]) * 32 + index[2]) * 4 + index[3]) * 4 + index[4];
                CHECK(scale_offset(row, block * 16, k) == flat);
                CHECK(flat % SCALE_ATOM == scale_in_atom(row % 128, block % 4));
            }
        }
    }
}

// Each position of a permuted slab has one element, a thread's are all in its block, and a pair of halves comes
// from nibbles i and i + 4 of one word.
static void the_permutation_of_k_is_one_and_gives_each_thread_one_scale() {
    std::set<int> seen;
    for (int s = 0; s < 4; s++)
        for (int h = 0; h < 2; h++)
            for (int t = 0; t < 4; t++)
                for (int high = 0; high < 2; high++) {
                    int element = element_at(16 * s + 8 * h + 2 * t + high);
                    seen.insert(element);
                    CHECK(element / 16 == t);
                    CHECK(element % 16 / 8 == s / 2); // the word
                    CHECK(element % 8 == 2 * (s % 2) + h + 4 * high);
                }
    CHECK(seen.size() == 64);
    // Paired: each of the 128 once, and a thread's of both slabs in 16 bytes of their row.
    seen.clear();
    for (int half = 0; half < 2; half++)
        for (int p = 0; p < 64; p++) {
            int element = element_at_paired(half, p), t = p % 8 / 2;
            seen.insert(element);
            CHECK(element / 16 == 2 * t + half && element % 16 == element_at(p) % 16);
        }
    CHECK(seen.size() == 128);
}

static void descriptors_have_the_known_values() {
    CHECK(instruction_descriptor(128) == 0x08200480u);
    CHECK(operand_descriptor(0x400) == (0x4000404000010000ull | 0x40));
    CHECK(scale_descriptor(0x800) == (0x0000400800010000ull | 0x80));
    uint64_t wgmma = wgmma_descriptor(0x2400);
    CHECK((wgmma & 0x3fff) == 0x240 && (wgmma >> 32 & 0x3fff) == 64 && wgmma >> 62 == 1);
    for (int row = 0; row < 16; row++)
        for (int byte = 0; byte < 128; byte++) {
            // The hardware's rule: address bits 4..6 are exchanged with an exclusive or of bits 7..9.
            int address = row * 128 + byte;
            CHECK(swizzled_byte(row, byte) == (address ^ (address >> 7 & 7) << 4));
            CHECK(swizzled_chunk(row, byte / 16) == swizzled_byte(row, byte) % 128 / 16);
        }
}

static void tensor_memory_is_not_taken_twice() {
    std::set<int> columns;
    auto take = [&](int first, int count) {
        for (int c = first; c < first + count; c++) CHECK(c < TMEM_COLUMNS && columns.insert(c).second);
    };
    take(accumulator_column(0), N_MOST);
    take(accumulator_column(1), N_MOST);
    for (int step = 0; step < STEPS; step++) {
        take(weight_scale_column(step), ATOM_COLUMNS);
        take(token_scale_column(step, 0), ATOM_COLUMNS);
        take(token_scale_column(step, 1), ATOM_COLUMNS);
        // The MMA finds the scales of tokens 128.. right behind those of the first 128.
        CHECK(token_scale_column(step, 1) == token_scale_column(step, 0) + ATOM_COLUMNS);
    }
}

// Every slab of every output tile is computed once, unfinished pieces come first of their workers and are taken
// by a worker with a higher number, and workers have about equal shares.
static void the_plan_covers_everything_once(const Problem &problem, const Schedule &plan, const std::vector<int> &sizes,
                                            int row_block, int workers, bool shared_out) {
    CHECK((int)plan.first_piece.size() == workers + 1);
    std::vector<std::vector<int>> tokens;
    for (const Shape &shape : problem.shapes) tokens.push_back(std::vector<int>(shape.m, 0));
    int64_t end = 0;
    for (const TokenTile &tile : plan.tiles) {
        CHECK(tile.workspace == end && tile.count >= 1 && tile.count <= tile.n && tile.n % 16 == 0);
        end += (int64_t)tile.n * tile.slabs * 128;
        for (int i = 0; i < tile.count; i++) CHECK(tokens[tile.problem][tile.first + i]++ == 0);
    }
    CHECK(end == plan.workspace_bytes);
    for (auto &of_problem : tokens)
        for (int count : of_problem) CHECK(count == 1);
    std::map<std::pair<int, int>, std::vector<int>> done;
    std::map<int, std::pair<int, const Piece *>> left; // slot -> worker and piece
    int64_t most = 0, all = 0;
    for (int w = 0; w < workers; w++) {
        int64_t cost = 0;
        for (int p = plan.first_piece[w]; p < plan.first_piece[w + 1]; p++) {
            const Piece &piece = plan.pieces[p];
            const TokenTile &tile = plan.tiles[piece.tile];
            auto &slabs = done[{piece.tile, piece.row_block}];
            slabs.resize(tile.slabs, 0);
            CHECK(piece.slab_begin < piece.slab_end && piece.slab_begin % 2 == 0 && piece.slab_end % 2 == 0);
            for (int s = piece.slab_begin; s < piece.slab_end; s++) CHECK(slabs[s]++ == 0);
            CHECK((piece.slot >= 0) == (piece.slab_end < tile.slabs));
            if (piece.slot >= 0) {
                CHECK(p == plan.first_piece[w] && piece.slot < workers);
                CHECK(left.insert({piece.slot, {w, &piece}}).second);
            }
            cost += (piece.slab_end - piece.slab_begin) * slab_cost(tile.n) + (piece.slot < 0 ? PIECE_COST : 0);
        }
        most = cost > most ? cost : most;
        all += cost;
    }
    size_t taken = 0;
    for (int w = 0; w < workers; w++)
        for (int p = plan.first_piece[w]; p < plan.first_piece[w + 1]; p++) {
            const Piece &piece = plan.pieces[p];
            int covered = 0;
            for (int i = 0; i < piece.slots; i++, taken++) {
                auto &part = left.at(piece.first_slot + i);
                CHECK(part.first < w && part.second->tile == piece.tile && part.second->row_block == piece.row_block);
                CHECK(part.second->slab_begin == covered); // added in the order of K
                covered = part.second->slab_end;
            }
            if (piece.slot < 0) CHECK(covered == piece.slab_begin);
        }
    CHECK(taken == left.size());
    size_t tiles = 0;
    for (const TokenTile &tile : plan.tiles) tiles += ceil_div(problem.shapes[tile.problem].n, row_block);
    CHECK(done.size() == tiles);
    for (auto &tile : done)
        for (int count : tile.second) CHECK(count == 1);
    // Cuts move by up to 5 slabs, and costs of pieces do not spread.
    if (shared_out) CHECK(most <= all / workers + 10 * slab_cost(sizes.back()) + 2 * PIECE_COST);
}

static void whole_tiles_cover_everything_once(const Problem &problem, int workers) {
    Schedule plan = whole_tiles(problem.shapes, workers);
    std::map<std::pair<int, int>, int> done; // (problem, row block) -> tokens
    for (const Piece &piece : plan.pieces) {
        const TokenTile &tile = plan.tiles[piece.tile];
        CHECK(tile.first % 128 == 0 && tile.n <= N_MOST && tile.n % 16 == 0 && tile.count <= tile.n);
        CHECK(tile.n > 128 ? tile.count > 128 : tile.count <= 128); // so both blocks of scales exist
        done[{tile.problem, piece.row_block}] += tile.count;
    }
    size_t blocks = 0;
    for (const Shape &shape : problem.shapes) blocks += ceil_div(shape.n, M_TILE);
    CHECK(done.size() == blocks);
    for (auto &of_block : done) CHECK(of_block.second == problem.shapes[of_block.first.first].m);
    CHECK(plan.first_piece.back() == (int)plan.pieces.size() && (int)plan.first_piece.size() == workers + 1);
}

// ---- the sm_100 data path, byte by byte -------------------------------------------------------------------------

// Global memory: contents are a function of the address.
static int code_byte(int matrix, int problem, int64_t at) { return draw(matrix * 64 + problem + 1, at) & 0xbb; }
static int scale_byte(int matrix, int problem, int64_t at) { return 0x38 + 8 * (draw(matrix * 64 + problem + 7001, at) & 1); }

static int twice(int code) {
    static const int values[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    return code & 8 ? -values[code & 7] : values[code & 7];
}
static int scale_value(int byte) { return byte == 0x40 ? 2 : 1; }

static int64_t dot_by_definition(int problem, int64_t token, int64_t row, int k) {
    int64_t sum = 0;
    for (int i = 0; i < k; i++) {
        int a = code_byte(0, problem, token * (k / 2) + i / 2) >> i % 2 * 4 & 15;
        int b = code_byte(1, problem, row * (k / 2) + i / 2) >> i % 2 * 4 & 15;
        int sfa = scale_value(scale_byte(0, problem, scale_offset(token, i, k)));
        int sfb = scale_value(scale_byte(1, problem, scale_offset(row, i, k)));
        sum += twice(a) * twice(b) * sfa * sfb;
    }
    return sum;
}

// Shared memory as the 128-byte swizzle of TMA fills it, then as an MMA step at a descriptor's start address
// reads it: linear address, exclusive or of bits 7..9 into 4..6.
static int staged_code(int matrix, int problem, int64_t first_row, int r, int k_tile, int step, int i, int k) {
    int address = r * 128 + step * (int)(OPERAND_STEP << 4) + i / 2;
    int physical = address ^ (address >> 7 & 7) << 4;
    int row = physical / 128, byte = -1;
    for (int chunk = 0; chunk < 8; chunk++) // what TMA put at that place
        if (swizzled_byte(row, chunk * 16) == physical / 16 * 16) byte = chunk * 16 + physical % 16;
    CHECK(row == r && byte >= 0);
    return code_byte(matrix, problem, (first_row + row) * (k / 2) + k_tile * (K_TILE / 2) + byte) >> i % 2 * 4 & 15;
}

// Tensor memory after tcgen05.cp 32x128b.warpx4: lane x takes 16 bytes at x * 16 into four columns. The MMA takes
// the scale of row r from lane r % 32, column r / 32 of the step's columns, byte = block of 16.
static int staged_scale(int matrix, int problem, int64_t first_row, int r, int k_tile, int step, int block, int k) {
    int base = matrix ? weight_scale_column(step) : token_scale_column(step, 0);
    int column = base + r / 32, lane = r % 32;
    int half = (column - base) / ATOM_COLUMNS;
    if (!matrix) CHECK(column - half * ATOM_COLUMNS - token_scale_column(step, half) + half * ATOM_COLUMNS == r / 32 - half * ATOM_COLUMNS);
    int64_t bulk = scale_offset(first_row + 128 * half, 0, k) + (int64_t)k_tile * SCALE_ATOM * STEPS;
    int64_t at = bulk + step * SCALE_ATOM + lane * 16 + (column - base) % ATOM_COLUMNS * 4 + block;
    return scale_value(scale_byte(matrix, problem, at));
}

static void the_emulated_sm_100_path_gives_the_right_sums(const Problem &problem) {
    Schedule plan = whole_tiles(problem.shapes, 148);
    int number = 0;
    for (const Piece &piece : plan.pieces) {
        const TokenTile &tile = plan.tiles[piece.tile];
        int k = problem.shapes[tile.problem].k;
        for (int sample = 0; sample < 3; sample++, number++) {
            int row = draw(number, 1) % M_TILE, token = draw(number, 2) % tile.count;
            if (sample == 0) token = tile.count - 1;
            int64_t first_row = (int64_t)piece.row_block * M_TILE, sum = 0;
            for (int k_tile = 0; k_tile < k / K_TILE; k_tile++)
                for (int step = 0; step < STEPS; step++)
                    for (int i = 0; i < K_STEP; i++)
                        sum += twice(staged_code(0, tile.problem, tile.first, token, k_tile, step, i, k)) *
                               twice(staged_code(1, tile.problem, first_row, row, k_tile, step, i, k)) *
                               staged_scale(0, tile.problem, tile.first, token, k_tile, step, i / 16, k) *
                               staged_scale(1, tile.problem, first_row, row, k_tile, step, i / 16, k);
            CHECK(sum == dot_by_definition(tile.problem, tile.first + token, first_row + row, k));
        }
    }
}

int main() {
    scales_lie_where_the_blocked_layout_has_them();
    the_permutation_of_k_is_one_and_gives_each_thread_one_scale();
    descriptors_have_the_known_values();
    tensor_memory_is_not_taken_twice();
    const std::vector<std::vector<int>> families = {{80, 96, 128, 176}, {80, 112, 160, 176}, {128, 192}, {96, 112}};
    for (const Problem &problem : problems()) {
        for (auto &sizes : families)
            for (int workers : {1, 57, 66}) {
                const int rows = 256;
                the_plan_covers_everything_once(problem, stream_k(problem.shapes, rows, sizes, workers), sizes, rows, workers, true);
                the_plan_covers_everything_once(problem, uncut(problem.shapes, rows, sizes, workers), sizes, rows, workers, false);
                Schedule best = best_plan(problem.shapes, rows, sizes, workers);
                the_plan_covers_everything_once(problem, best, sizes, rows, workers, false);
                CHECK(best.cycles <= stream_k(problem.shapes, rows, sizes, workers).cycles);
            }
        for (int workers : {1, 148, 160}) whole_tiles_cover_everything_once(problem, workers);
        the_emulated_sm_100_path_gives_the_right_sums(problem);
        printf("%s: right\n", problem.name.c_str());
    }
    return 0;
}
