// Host check of the sm_100a forms of two blocks: the roles of pair.h and aligned.h run on the emulator, on real data, and
// every output is compared. Build and run: c++ -std=c++17 -O3 -pthread check_pair.cpp -o check_pair && ./check_pair.
// `./check_pair fault N pair|aligned` puts fault N (emulator.h) into one form and must fail. A cargo test does both.
#include <string.h>

#include <set>
#include <string>

#include "emulator.h"
#include "schedule.h"

using namespace wagmi;
using namespace emulator;

struct Problem {
    const char *name;
    std::vector<Shape> shapes;
    int clusters; // fewer than tiles, or so many that tiles are cut along K
};

static std::vector<Problem> problems() {
    return {
        {"ragged-1", {{40, 256, 256}, {76, 256, 256}}, 1},
        {"ragged-2", {{72, 384, 512}, {1, 384, 512}, {200, 384, 512}}, 3},
        {"ragged-3", {{8, 128, 1024}, {260, 128, 1024}, {129, 128, 1024}, {7, 128, 1024}}, 4},
        {"ragged-4", {{96, 512, 768}, {33, 512, 768}}, 2},
        {"ragged-5", {{513, 640, 256}, {2, 640, 256}}, 3},
        {"ragged-6", {{16, 256, 1280}, {17, 256, 1280}, {15, 256, 1280}}, 1}, // three tiles, three rounds of the ring
        {"ragged-7", {{300, 128, 256}, {5, 1024, 512}, {77, 384, 2048}}, 5},
        {"ragged-8", {{148, 256, 512}, {164, 384, 256}}, 2},
        {"ragged-9", {{72, 128, 512}, {72, 128, 512}, {40, 256, 256}, {40, 256, 256}, {40, 256, 256}}, 2},
        {"ragged-10", {{248, 128, 512}, {1, 128, 256}, {64, 256, 512}, {196, 128, 256}}, 3},
        {"short", {{200, 1024, 256}}, 1},                     // sums wait for their epilogue
        {"split", {{72, 256, 3072}, {224, 256, 2048}}, 7}, // in three parts, and in two
    };
}

struct Data {
    std::vector<uint8_t> a, b, sfa, sfb;
    std::vector<uint16_t> c;
};

static Data draw_data(const Shape &shape, std::mt19937_64 &random) {
    Data data;
    auto fill = [&](std::vector<uint8_t> &to, size_t bytes, auto draw) {
        to.resize(bytes);
        for (auto &byte : to) byte = draw();
    };
    auto code = [&] { return (uint8_t)(random() & 0xbb); };
    auto scale = [&] { return (uint8_t)(random() & 1 ? 0x40 : 0x38); };
    fill(data.a, (size_t)shape.m * shape.k / 2, code);
    fill(data.b, (size_t)shape.n * shape.k / 2, code);
    fill(data.sfa, (size_t)ceil_div(shape.m, 128) * (shape.k / 64) * SCALE_ATOM, scale);
    fill(data.sfb, (size_t)ceil_div(shape.n, 128) * (shape.k / 64) * SCALE_ATOM, scale);
    data.c.assign((size_t)shape.m * shape.n, 0x7e00);
    return data;
}

// By the definition, in whole quarters.
static void compare(const char *name, size_t problem, const Shape &shape, const Data &data) {
    std::vector<int> tokens((size_t)shape.m * shape.k), row(shape.k);
    auto value = [&](const std::vector<uint8_t> &codes, const std::vector<uint8_t> &scales, int64_t r, int k) {
        int code = codes[(r * shape.k + k) / 2] >> k % 2 * 4 & 15;
        int64_t place = ((r / 128 * (shape.k / 64) + k / 64) * 32 + r % 32) * 16 + r % 128 / 32 * 4 + k / 16 % 4;
        return (int)(2 * e2m1(code)) * (scales[place] == 0x40 ? 2 : 1);
    };
    for (int m = 0; m < shape.m; m++)
        for (int k = 0; k < shape.k; k++) tokens[(size_t)m * shape.k + k] = value(data.a, data.sfa, m, k);
    for (int n = 0; n < shape.n; n++) {
        for (int k = 0; k < shape.k; k++) row[k] = value(data.b, data.sfb, n, k);
        for (int m = 0; m < shape.m; m++) {
            int sum = 0;
            for (int k = 0; k < shape.k; k++) sum += tokens[(size_t)m * shape.k + k] * row[k];
            uint16_t got = data.c[(size_t)m * shape.n + n], want = f16_of(sum / 4.0f);
            if (got == want || ((got | want) & 0x7fff) == 0) continue;
            printf("%s, problem %zu: C[%d, %d] is %04x, not %04x\n", name, problem, m, n, got, want);
            exit(1);
        }
    }
}

static void run(const Problem &problem, bool aligned, uint64_t seed, Fault fault) {
    std::mt19937_64 random(seed);
    std::vector<Data> data;
    for (const Shape &shape : problem.shapes) data.push_back(draw_data(shape, random));
    Device device(seed, fault);
    std::vector<pair::Extent> extents;
    for (size_t i = 0; i < data.size(); i++) {
        const Shape &shape = problem.shapes[i];
        Data &d = data[i];
        pair::MapShape shapes[pair::OPERANDS];
        pair::map_shapes(aligned, shape.m, shape.n, shape.k, shapes);
        if (fault == WRONG_STORE_SWIZZLE) shapes[pair::OUTPUT].swizzle ^= 64 ^ 128;
        std::vector<TensorMap> maps(pair::OPERANDS);
        maps[pair::M_CODES] = {aligned ? d.a.data() : d.b.data(), shapes[pair::M_CODES]};
        maps[pair::N_CODES] = {aligned ? d.b.data() : d.a.data(), shapes[pair::N_CODES]};
        maps[pair::M_SCALES] = {aligned ? d.sfa.data() : d.sfb.data(), shapes[pair::M_SCALES]};
        maps[pair::N_SCALES] = {aligned ? d.sfb.data() : d.sfa.data(), shapes[pair::N_SCALES]};
        maps[pair::OUTPUT] = {(uint8_t *)d.c.data(), shapes[pair::OUTPUT]};
        // The tensors that maps describe are those that exist.
        REQUIRE(shapes[pair::M_CODES].stride * shapes[pair::M_CODES].height == (int64_t)(aligned ? d.a : d.b).size());
        REQUIRE(shapes[pair::N_CODES].stride * shapes[pair::N_CODES].height == (int64_t)(aligned ? d.b : d.a).size());
        REQUIRE(shapes[pair::M_SCALES].stride * shapes[pair::M_SCALES].height == (int64_t)(aligned ? d.sfa : d.sfb).size());
        REQUIRE(shapes[pair::N_SCALES].stride * shapes[pair::N_SCALES].height == (int64_t)(aligned ? d.sfb : d.sfa).size());
        REQUIRE(shapes[pair::OUTPUT].stride * shapes[pair::OUTPUT].height == 2 * (int64_t)d.c.size());
        device.maps.push_back(maps);
        extents.push_back({shape.m, shape.n, shape.k});
    }
    if (aligned) {
        run_aligned(device, extents, problem.clusters);
    } else {
        Schedule plan = split_tiles(problem.shapes, problem.clusters, pair::ROW_BLOCK);
        device.slots.assign((size_t)problem.clusters * pair::SLOT_FLOATS, 1e30f);
        device.flags.assign((size_t)problem.clusters * pair::FLAGS_PER_SLOT, 0);
        run_swapped(device, pair_tiles(problem.shapes, plan), plan.first_piece, problem.clusters);
        for (uint32_t flag : device.flags) REQUIRE(flag == 0); // ready for the next launch
    }
    for (auto &cluster : device.clusters)
        for (Block &block : cluster->blocks)
            for (Mbarrier &barrier : block.barriers) REQUIRE(barrier.pending == barrier.count && barrier.bytes == 0);
    for (size_t i = 0; i < data.size(); i++) compare(problem.name, i, problem.shapes[i], data[i]);
}

// ---- plans and places -------------------------------------------------------------------------------------------------

// Every output and every stage of K once; who waits has a higher number than those it waits for; slots are taken once.
static void the_plan_covers_everything_once(const std::vector<Shape> &shapes, int clusters) {
    Schedule plan = split_tiles(shapes, clusters, pair::ROW_BLOCK);
    std::vector<pair::Tile> tiles = pair_tiles(shapes, plan);
    REQUIRE((int)plan.first_piece.size() == clusters + 1 && plan.first_piece[clusters] == (int)tiles.size());
    std::vector<std::vector<std::vector<int>>> done; // [problem][row block][token] stages
    for (const Shape &shape : shapes)
        done.push_back(std::vector<std::vector<int>>(ceil_div(shape.n, pair::ROW_BLOCK), std::vector<int>(shape.m, 0)));
    std::vector<int> owner(clusters, -1), taken(clusters, 0);
    for (int w = 0; w < clusters; w++)
        for (int i = plan.first_piece[w]; i < plan.first_piece[w + 1]; i++) {
            if (tiles[i].slot < 0) continue;
            REQUIRE(tiles[i].slot < clusters && owner[tiles[i].slot] < 0);
            owner[tiles[i].slot] = i;
        }
    for (int w = 0; w < clusters; w++)
        for (int i = plan.first_piece[w]; i < plan.first_piece[w + 1]; i++) {
            const pair::Tile &tile = tiles[i];
            const Shape &shape = shapes[tile.problem];
            REQUIRE(tile.k_begin < tile.k_end && tile.n % 16 == 0 && tile.n <= N_MOST && tile.n_row % 128 == 0);
            REQUIRE((tile.slot < 0) == (tile.k_end == shape.k / K_TILE));
            for (int token = tile.n_row; token < tile.n_row + tile.n && token < shape.m; token++)
                done[tile.problem][tile.m_row / pair::ROW_BLOCK][token] += tile.k_end - tile.k_begin;
            int covered = 0;
            for (int s = tile.first_slot; s < tile.first_slot + tile.slots; s++) {
                const pair::Tile &part = tiles[owner.at(s)];
                REQUIRE(owner[s] < plan.first_piece[w] && taken[s]++ == 0 && part.m_row == tile.m_row);
                REQUIRE(part.problem == tile.problem && part.n_row == tile.n_row && part.k_begin == covered);
                covered = part.k_end;
            }
            if (tile.slot < 0) REQUIRE(covered == tile.k_begin);
        }
    for (int s = 0; s < clusters; s++) REQUIRE((owner[s] >= 0) == (taken[s] == 1));
    for (size_t p = 0; p < shapes.size(); p++)
        for (auto &of_block : done[p])
            for (int stages : of_block) REQUIRE(stages == shapes[p].k / K_TILE);
}

static void the_walk_meets_every_tile_once(const std::vector<Shape> &shapes, int clusters) {
    std::vector<pair::Extent> extents;
    size_t tiles = 0;
    for (const Shape &shape : shapes) {
        extents.push_back({shape.m, shape.n, shape.k});
        tiles += ceil_div(shape.m, pair::ROW_BLOCK) * ceil_div(shape.n, 256);
    }
    std::set<std::vector<int>> met;
    for (int c = 0; c < clusters; c++) {
        int group = 0, before = 0;
        for (int index = c;; index += clusters) {
            pair::NextTile tile = pair::walk_groups(extents.data(), (int)extents.size(), index, group, before);
            if (tile.problem < 0) break;
            REQUIRE(tile.m_row < shapes[tile.problem].m && tile.n_row < shapes[tile.problem].n);
            REQUIRE(met.insert({tile.problem, tile.m_row, tile.n_row}).second);
        }
    }
    REQUIRE(met.size() == tiles);
}

template <class Form> static void tensor_memory_is_not_taken_twice(int overlap) {
    std::vector<int> columns(TMEM_COLUMNS, 0);
    auto take = [&](int first, int count) {
        for (int c = first; c < first + count; c++) columns.at(c)++;
    };
    take(Form::sum_column(0), Form::N_LARGEST), take(Form::sum_column(1), Form::N_LARGEST);
    for (int step = 0; step < STEPS; step++) take(Form::m_scale_column(step), 4), take(Form::n_scale_column(step), 8);
    int twice = 0;
    for (int c = 0; c < TMEM_COLUMNS; c++) {
        REQUIRE(columns[c] <= 2);
        if (columns[c] < 2) continue;
        twice++;
        REQUIRE(c >= Form::sum_column(1) && c < Form::sum_column(0) + Form::N_LARGEST); // both are sums
    }
    REQUIRE(twice == overlap);
}

static std::vector<std::vector<Shape>> benchmark_shapes() {
    auto group = [](std::vector<int> ms, int n, int k) {
        std::vector<Shape> shapes;
        for (int m : ms) shapes.push_back({m, n, k});
        return shapes;
    };
    return {group({80, 176, 128, 72, 64, 248, 96, 160}, 4096, 7168), group({40, 76, 168, 72, 164, 148, 196, 160}, 7168, 2048),
            group({192, 320}, 3072, 4096), group({128, 384}, 4096, 1536), {{80, 4096, 7168}, {40, 7168, 2048}}};
}

int main(int arguments, char **argument) {
    if (arguments == 4 && !strcmp(argument[1], "fault")) {
        // Between them these use all that can go wrong. Every fault must be seen in one of them.
        for (uint64_t seed = 1; seed <= 2; seed++)
            for (const Problem &problem : problems())
                for (const char *name : {"ragged-6", "short", "split"})
                    if (!strcmp(problem.name, name)) run(problem, !strcmp(argument[3], "aligned"), seed, (Fault)atoi(argument[2]));
        return 0;
    }
    REQUIRE(instruction_descriptor(224, pair::ROW_BLOCK) == 0x10380480u);
    tensor_memory_is_not_taken_twice<pair::Swapped>(0);
    tensor_memory_is_not_taken_twice<pair::Aligned>(pair::Aligned::OVERLAP);
    std::vector<std::vector<Shape>> all = benchmark_shapes();
    for (const Problem &problem : problems()) all.push_back(problem.shapes);
    for (auto &shapes : all)
        for (int clusters : {1, 3, 74, 80}) {
            the_plan_covers_everything_once(shapes, clusters);
            the_walk_meets_every_tile_once(shapes, clusters);
        }
    for (const Problem &problem : problems())
        for (bool aligned : {false, true}) {
            for (uint64_t seed = 1; seed <= 2; seed++) run(problem, aligned, seed, NO_FAULT);
            printf("%s, %s: right\n", aligned ? "aligned" : "pair", problem.name);
        }
    printf("%d faults to try; aligned has no parts, so not the last\n", FAULTS - 1);
    return 0;
}
