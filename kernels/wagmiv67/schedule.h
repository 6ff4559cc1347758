// Who computes what: the plan that rgpu_prepare makes from the problem sizes alone. Plain C++, checked on the
// host for every benchmark shape (check.cpp).
#pragma once
#include <stdint.h>

#include <algorithm>
#include <vector>

#include "layout.h"
#include "pair.h"

namespace wagmi {

// One matrix product C[m, n] = A[m, k] B[n, k]^T: tokens A, weights B.
struct Shape {
    int m, n, k;
};

// Tokens that are multiplied at once. They lie on the tensor core's N, whose steps are small, so there is
// next to no padding however ragged m is.
struct TokenTile {
    int problem;
    int first;         // token
    int count;         // real tokens
    int n;             // rounded up to the instruction's step
    int slabs;         // K / 64
    int64_t workspace; // byte of its decoded form
};

// A piece of one output tile: a row block of weights x a token tile x a range of slabs.
//
// A tile that is split along K is finished by the piece that holds its last slab: it adds what the others
// left in their slots. `slot` is where an unfinished piece is left, -1 for a finishing one; the finishing
// piece takes the slots [first_slot, first_slot + slots).
struct Piece {
    int tile, row_block;
    int slab_begin, slab_end;
    int slot;
    int first_slot, slots;
};

struct Schedule {
    std::vector<TokenTile> tiles;
    std::vector<Piece> pieces;    // of worker 0, of worker 1, ...
    std::vector<int> first_piece; // one per worker, and the end
    int64_t workspace_bytes = 0;
    int64_t cycles = 0; // that the busiest worker is expected to take
};

// Costs in cycles of one slab, and of a piece besides its slabs. A slab keeps the tensor cores busy 4 cycles for
// each token, but what counts besides is decoding its weights, whatever the number of tokens: so few large tiles.
#if WAGMI_STEP < 1
inline int64_t slab_cost(int n) { return std::max(4 * n, 380) + 60; }
#else
inline int64_t slab_cost(int n) { return std::max(4 * n, 27 * n / 10 + 250); }
#endif
constexpr int64_t PIECE_COST = 1500; // until the first slab is there, and writing the outputs
constexpr int64_t LEAVE_COST = 1000; // writing the sums for another worker
constexpr int64_t TAKE_COST = 3000;  // waiting for and adding what another left

// Cuts each problem's tokens into tiles of the given sizes (multiples of 16, ascending), the cheapest way.
inline std::vector<TokenTile> token_tiles(const std::vector<Shape> &shapes, const std::vector<int> &sizes,
                                          int64_t *bytes) {
    std::vector<TokenTile> tiles;
    int64_t at = 0;
    for (int p = 0; p < (int)shapes.size(); p++) {
        int units = ceil_div(shapes[p].m, 16);
        // best[u]: the least cost of u units of 16 tokens, and the size of one tile of that cover.
        std::vector<int64_t> best(units + 1, 0);
        std::vector<int> size(units + 1, 0);
        for (int u = 1; u <= units; u++) {
            best[u] = INT64_MAX;
            for (int n : sizes) {
                int64_t cost = slab_cost(n) + best[n / 16 < u ? u - n / 16 : 0];
                if (cost < best[u]) best[u] = cost, size[u] = n;
            }
        }
        int first = 0;
        for (int u = units; u > 0;) {
            int n = size[u], left = shapes[p].m - first;
            TokenTile tile = {p, first, left < n ? left : n, n, ceil_div(shapes[p].k, SLAB), at};
            at += (int64_t)n * tile.slabs * 128;
            tiles.push_back(tile);
            first += n;
            u -= n / 16;
        }
    }
    *bytes = at;
    return tiles;
}

inline int64_t cycles_of(const Schedule &plan, const std::vector<Piece> &pieces) {
    int64_t cycles = 0;
    for (const Piece &piece : pieces) {
        cycles += (piece.slab_end - piece.slab_begin) * slab_cost(plan.tiles[piece.tile].n);
        cycles += (piece.slot < 0 ? PIECE_COST : LEAVE_COST) + piece.slots * TAKE_COST;
    }
    return cycles;
}

// Equal shares of all slabs for each worker (stream-K): worker w takes the slabs between two cuts, the last
// tile first. So a piece that waits for others waits only for workers with lower numbers, which do theirs
// first of all: no wait can last, and none can hang when not all workers run at once.
inline Schedule stream_k(const std::vector<Shape> &shapes, int row_block, const std::vector<int> &sizes, int workers) {
    Schedule plan;
    plan.tiles = token_tiles(shapes, sizes, &plan.workspace_bytes);
    struct Tile {
        int tile, row_block;
        int64_t begin, end; // in cost
    };
    std::vector<Tile> all;
    int64_t total = 0;
    for (int t = 0; t < (int)plan.tiles.size(); t++) {
        const TokenTile &tile = plan.tiles[t];
        int rows = ceil_div(shapes[tile.problem].n, row_block);
        for (int r = 0; r < rows; r++) {
            int64_t cost = tile.slabs * slab_cost(tile.n) + PIECE_COST;
            all.push_back({t, r, total, total + cost});
            total += cost;
        }
    }
    // A cut in slabs: how many slabs of the tile lie before `at`. Slabs are multiplied in pairs; no piece is
    // shorter than four.
    auto cut = [&](const Tile &tile, int64_t at) {
        const TokenTile &tokens = plan.tiles[tile.tile];
        int64_t slabs = (at - tile.begin) / slab_cost(tokens.n) / 2 * 2;
        if (slabs < 4) return 0;
        if (slabs > tokens.slabs - 4) return tokens.slabs;
        return (int)slabs;
    };
    size_t at = 0;
    int begin = 0; // first slab of all[at] that is not given away yet
    int open = 0;  // slots that hold parts of all[at]
    int slots = 0; // of all tiles; a worker leaves at most one
    for (int w = 0; w < workers; w++) {
        plan.first_piece.push_back((int)plan.pieces.size());
        int64_t until = total * (w + 1) / workers;
        std::vector<Piece> mine;
        while (at < all.size()) {
            const Tile &tile = all[at];
            int slabs = plan.tiles[tile.tile].slabs;
            int end = w + 1 == workers || tile.end <= until ? slabs : cut(tile, until);
            if (end > begin) {
                bool last = end == slabs;
                int first = slots - open;
                mine.push_back({tile.tile, tile.row_block, begin, end, last ? -1 : slots, first, last ? open : 0});
                open = last ? 0 : open + 1;
                slots += !last;
            }
            if (end < slabs) {
                begin = end > begin ? end : begin;
                break;
            }
            at++;
            begin = 0;
        }
        plan.pieces.insert(plan.pieces.end(), mine.rbegin(), mine.rend());
        plan.cycles = std::max(plan.cycles, cycles_of(plan, mine));
    }
    plan.first_piece.push_back((int)plan.pieces.size());
    return plan;
}

// Whole tiles, the dearest first, each to the worker that has the least to do: no sums change hands.
inline Schedule uncut(const std::vector<Shape> &shapes, int row_block, const std::vector<int> &sizes, int workers) {
    Schedule plan;
    plan.tiles = token_tiles(shapes, sizes, &plan.workspace_bytes);
    std::vector<Piece> all;
    for (int t = 0; t < (int)plan.tiles.size(); t++)
        for (int r = 0; r < ceil_div(shapes[plan.tiles[t].problem].n, row_block); r++)
            all.push_back({t, r, 0, plan.tiles[t].slabs, -1, 0, 0});
    auto cost = [&](const Piece &piece) { return cycles_of(plan, {piece}); };
    std::stable_sort(all.begin(), all.end(), [&](const Piece &a, const Piece &b) { return cost(a) > cost(b); });
    std::vector<std::vector<Piece>> hands(workers);
    std::vector<int64_t> cycles(workers, 0);
    for (const Piece &piece : all) {
        size_t least = std::min_element(cycles.begin(), cycles.end()) - cycles.begin();
        hands[least].push_back(piece);
        cycles[least] += cost(piece);
    }
    for (auto &hand : hands) {
        plan.first_piece.push_back((int)plan.pieces.size());
        plan.pieces.insert(plan.pieces.end(), hand.begin(), hand.end());
    }
    plan.first_piece.push_back((int)plan.pieces.size());
    plan.cycles = *std::max_element(cycles.begin(), cycles.end());
    return plan;
}

// The better of both, with any of the sizes left out from above: many small tiles can fill the workers evenly
// where few large ones cannot.
inline Schedule best_plan(const std::vector<Shape> &shapes, int row_block, const std::vector<int> &sizes, int workers) {
    Schedule best;
    for (size_t count = 1; count <= sizes.size(); count++) {
        std::vector<int> some(sizes.begin(), sizes.begin() + count);
        for (auto *make : {stream_k, uncut}) {
            Schedule plan = make(shapes, row_block, some, workers);
            if (best.pieces.empty() || plan.cycles < best.cycles) best = plan;
        }
    }
    return best;
}

// Whole tiles for the sm_100 path, the dearest first, dealt out like cards that go back and forth. Tokens
// are cut at multiples of 128, where their scales have a block boundary.
inline Schedule whole_tiles(const std::vector<Shape> &shapes, int workers, int rows = M_TILE) {
    Schedule plan;
    for (int p = 0; p < (int)shapes.size(); p++) {
        for (int first = 0; first < shapes[p].m;) {
            int left = shapes[p].m - first;
            int count = left <= N_MOST ? left : 128;
            plan.tiles.push_back({p, first, count, align_up(count, 16), ceil_div(shapes[p].k, SLAB), 0});
            first += count;
        }
    }
    struct Tile {
        int64_t cost;
        int tile, row_block;
    };
    std::vector<Tile> all;
    for (int t = 0; t < (int)plan.tiles.size(); t++) {
        const Shape &shape = shapes[plan.tiles[t].problem];
        // Bytes of a K = 256 step: what a tile costs is what it loads.
        int64_t cost = (int64_t)ceil_div(shape.k, K_TILE) * (rows + plan.tiles[t].n);
        for (int r = 0; r < ceil_div(shape.n, rows); r++) all.push_back({cost, t, r});
    }
    std::stable_sort(all.begin(), all.end(), [](const Tile &a, const Tile &b) { return a.cost > b.cost; });
    std::vector<std::vector<Piece>> hands(workers);
    for (size_t i = 0; i < all.size(); i++) {
        size_t round = i / workers, place = i % workers;
        size_t w = round % 2 ? workers - 1 - place : place;
        int slabs = plan.tiles[all[i].tile].slabs;
        hands[w].push_back({all[i].tile, all[i].row_block, 0, slabs, -1, 0, 0});
    }
    for (auto &hand : hands) {
        plan.first_piece.push_back((int)plan.pieces.size());
        plan.pieces.insert(plan.pieces.end(), hand.begin(), hand.end());
    }
    plan.first_piece.push_back((int)plan.pieces.size());
    return plan;
}

// The same for clusters of two blocks. Where there are at most half as many tiles as clusters, each is cut along K into
// equal parts of at least `SHORTEST_PART` stages. Part p of a tile belongs to the worker before that of part p + 1, so a
// piece that waits for others waits only for workers with lower numbers, and each has one piece: none can hang.
constexpr int SHORTEST_PART = 4;
inline Schedule split_tiles(const std::vector<Shape> &shapes, int workers, int rows) {
    Schedule whole = whole_tiles(shapes, workers, rows);
    int most = workers / (int)whole.pieces.size();
    if (most < 2) return whole;
    Schedule plan;
    plan.tiles = whole.tiles;
    int slots = 0;
    for (const Piece &piece : whole.pieces) {
        int stages = whole.tiles[piece.tile].slabs / STEPS;
        int parts = std::max(1, std::min(most, stages / SHORTEST_PART)), first_slot = slots;
        for (int p = 0; p < parts; p++) {
            bool last = p == parts - 1;
            plan.first_piece.push_back((int)plan.pieces.size());
            plan.pieces.push_back({piece.tile, piece.row_block, stages * p / parts * STEPS, stages * (p + 1) / parts * STEPS,
                                   last ? -1 : slots++, first_slot, last ? parts - 1 : 0});
        }
    }
    while ((int)plan.first_piece.size() <= workers) plan.first_piece.push_back((int)plan.pieces.size());
    return plan;
}

// The pieces of that plan, everything looked up.
inline std::vector<pair::Tile> pair_tiles(const std::vector<Shape> &shapes, const Schedule &plan) {
    std::vector<pair::Tile> tiles;
    for (const Piece &piece : plan.pieces) {
        const TokenTile &tokens = plan.tiles[piece.tile];
        tiles.push_back({tokens.problem, piece.row_block * pair::ROW_BLOCK, tokens.first, tokens.n,
                         piece.slab_begin / STEPS, piece.slab_end / STEPS, shapes[tokens.problem].k / SLAB, piece.slot,
                         piece.first_slot, piece.slots});
    }
    return tiles;
}

} // namespace wagmi
