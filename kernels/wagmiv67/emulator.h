// The machine of pair.h on the host: shared memory, tensor memory, mbarriers, copies and the tensor cores of some
// clusters, by the rules of the PTX ISA. What runs beside the threads on a GPU (copies, tensor core work, stores) happens
// here at a time drawn at random, so a wait that is missing shows as wrong data, and one too many as a stop of all.
//
// Descriptors are taken apart bit by bit, not by the formulas that made them. What the kernels do before and after their
// roles (allocating tensor memory, starting barriers, meeting at the end) is not here.
#pragma once
#include <stdio.h>
#include <stdlib.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "aligned.h"
#include "pair.h"

namespace emulator {

using namespace wagmi;

#define REQUIRE(what)                                                                                              \
    do {                                                                                                           \
        if (!(what)) {                                                                                             \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #what);                                                      \
            fflush(stdout);                                                                                        \
            _Exit(1);                                                                                              \
        }                                                                                                          \
    } while (0)

// Faults that the check puts in on purpose, one at a time, to see that it notices them.
enum Fault {
    NO_FAULT,
    WRONG_STRIDE,        // of the operand descriptor
    WRONG_SWIZZLE,       // of the operand descriptor
    WRONG_SCALE_STRIDE,  // of the scale descriptor
    WRONG_ROWS,          // M = 128 in the instruction descriptor
    ONE_BLOCK_COMMIT,    // the second block is not told
    ONE_BLOCK_SCALES,    // the second block does not get the multicast
    FEWER_BYTES,         // a stage counts as full too early
    MORE_BYTES,          // a stage is never full
    NO_WAIT_FOR_STAGE,   // stages are filled before they are empty
    NO_WAIT_FOR_BYTES,   // stages are multiplied before they are full
    NO_WAIT_FOR_SUMS,    // sums are overwritten before they are read
    EARLY_SUMS,          // sums are read before they are ready
    NO_WAIT_FOR_STORES,  // output buffers are written before they are read
    NO_PROXY_FENCE,      // a store does not see what threads wrote
    WRONG_STORE_SWIZZLE, // of the output's tensor map
    SHARED_COLUMNS,      // the second sums lie over the scales
    NO_FENCE_AFTER,      // tensor memory is used after a wait, without a fence
    NO_FENCE_BEFORE,     // sums are given back after loads, without a fence
    NO_WAIT_FOR_PARTS,   // sums of other clusters are added before they are there
    FAULTS
};

// One runs at a time; which goes on is drawn at random.
class Scheduler {
  public:
    explicit Scheduler(uint64_t seed) : random(seed) {}

    void add(std::function<void()> role) { roles.push_back(std::move(role)); }
    // Something that happens later, at any time, in any order.
    void later(std::function<void()> event) { events.push_back(std::move(event)); }
    bool draw(int one_in) { return random() % one_in == 0; }

    void run() {
        waits.resize(roles.size());
        done.assign(roles.size(), false);
        wakes = std::vector<std::condition_variable>(roles.size());
        std::vector<std::thread> threads;
        for (size_t i = 0; i < roles.size(); i++)
            threads.emplace_back([this, i] {
                std::unique_lock<std::mutex> lock(mutex);
                wakes[i].wait(lock, [&] { return turn == (int)i; });
                roles[i]();
                done[i] = true;
                pass(lock, (int)i);
            });
        {
            std::unique_lock<std::mutex> lock(mutex);
            pass(lock, -1);
            finished.wait(lock, [&] { return turn == ALL_DONE; });
        }
        for (auto &thread : threads) thread.join();
        while (!events.empty()) happen();
    }

    // Lets others go on, until `until` holds.
    void yield(std::function<bool()> until) {
        int me = turn;
        waits[me] = std::move(until);
        std::unique_lock<std::mutex> lock(mutex, std::adopt_lock);
        pass(lock, me);
        lock.release();
        waits[me] = nullptr;
    }

  private:
    enum { ALL_DONE = -2 };
    void happen() {
        size_t which = random() % events.size();
        auto event = std::move(events[which]);
        events[which] = std::move(events.back());
        events.pop_back();
        event();
    }
    bool can_go_on(int role) { return !done[role] && (!waits[role] || waits[role]()); }
    int pick() {
        for (;;) {
            if (!events.empty() && random() % 3 == 0) happen();
            int count = (int)roles.size(), first = random() % count;
            bool all = true;
            for (int i = 0; i < count; i++) {
                int role = (first + i) % count;
                all &= done[role];
                if (can_go_on(role)) return role;
            }
            if (all) return ALL_DONE;
            REQUIRE(!events.empty() && "every role waits for another one");
            happen();
        }
    }
    void pass(std::unique_lock<std::mutex> &lock, int me) {
        int next = pick();
        if (next == me) return;
        turn = next;
        if (next == ALL_DONE) finished.notify_one();
        else wakes[next].notify_one();
        if (me >= 0 && !done[me]) wakes[me].wait(lock, [&] { return turn == me; });
    }

    std::mt19937_64 random;
    std::vector<std::function<void()>> roles, events;
    std::vector<std::function<bool()>> waits;
    std::vector<bool> done;
    std::mutex mutex;
    std::vector<std::condition_variable> wakes;
    std::condition_variable finished;
    int turn = -1;
};

struct Mbarrier {
    int count = 0, pending = 0;
    int64_t bytes = 0; // still to come; below zero where they came first
    uint32_t phase = 0;
    void arrive() {
        REQUIRE(pending > 0 && "more arrivals than the phase has");
        pending--;
        settle();
    }
    void complete(int64_t of) {
        bytes -= of;
        REQUIRE(bytes > -(1 << 20));
        settle();
    }
    void settle() {
        if (pending || bytes) return;
        phase ^= 1;
        pending = count;
    }
    // Whether the phase of this parity has ended.
    bool ended(uint32_t parity) const { return phase != parity; }
};

struct TensorMap {
    uint8_t *data = nullptr;
    pair::MapShape shape{};
};

constexpr uint32_t BASE = 0x2400, PEER = 1u << 24; // an address in block 1 as seen from the cluster

struct Block {
    std::vector<uint8_t> shared = std::vector<uint8_t>(227 * 1024, 0xee);
    std::vector<uint32_t> memory = std::vector<uint32_t>(128 * 512, 0x7fc0dead); // lane * 512 + column
    std::vector<Mbarrier> barriers;
    int barriers_at = 0;
    int epilogue_here = 0, epilogue_round = 0; // of the four warps' own barrier
    uint8_t &byte(uint32_t address) {
        REQUIRE(address >= BASE && address - BASE < shared.size());
        return shared[address - BASE];
    }
    Mbarrier &barrier(uint32_t address) {
        int64_t at = (int64_t)address - BASE - barriers_at;
        REQUIRE(at >= 0 && at % 8 == 0 && at / 8 < (int64_t)barriers.size());
        return barriers[at / 8];
    }
};

// A cluster: its two blocks, and the tensor cores' queue, which runs in order.
struct Cluster {
    Block blocks[2];
    std::vector<std::function<void()>> queue;
    size_t queue_at = 0;
};

// What all clusters share.
struct Device {
    std::vector<std::vector<TensorMap>> maps; // of each problem
    std::vector<float> slots;
    std::vector<uint32_t> flags;
    std::vector<std::unique_ptr<Cluster>> clusters;
    Scheduler scheduler;
    Fault fault;
    Device(uint64_t seed, Fault fault) : scheduler(seed), fault(fault) {}
};

inline float e2m1(int code) {
    static const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8 ? -values[code & 7] : values[code & 7];
}
inline float e4m3(int code) {
    REQUIRE(code < 0x7f && "scales are finite and not negative");
    int exponent = code >> 3, mantissa = code & 7;
    return exponent ? (8 + mantissa) * (float)(1 << exponent) / 1024 : mantissa / 512.0f;
}
inline uint16_t f16_of(float value) {
    _Float16 half = (_Float16)value;
    uint16_t bits;
    __builtin_memcpy(&bits, &half, 2);
    return bits;
}

class Machine {
  public:
    struct Fragment {
        float of[32][2][8];
    };
    struct Row {
        float of[32][64];
    };

    // One of the four warps of the epilogue, or -1 for a thread.
    Machine(Device &device, int cluster, int rank, int warp)
        : device(device), here(*device.clusters[cluster]), block(here.blocks[rank]), number(cluster), my_rank(rank), warp(warp) {}

    uint32_t base() { return BASE; }
    int rank() { return my_rank; }
    int cluster() { return number; }
    int clusters() { return (int)device.clusters.size(); }
    uint32_t in_first_block(uint32_t address) { return address & ~PEER; }

    void wait(uint32_t barrier, uint32_t parity) {
        const Mbarrier &it = block.barrier(barrier);
        fenced_after = false;
        int which = (int)(barrier - BASE - block.barriers_at) / 8;
        if (skips(which)) return pause();
        device.scheduler.yield([&it, parity] { return it.ended(parity); });
    }
    void expect(uint32_t barrier, uint32_t bytes) {
        if (device.fault == FEWER_BYTES) bytes -= pair::SCALE_BYTES;
        if (device.fault == MORE_BYTES) bytes += 16;
        block.barrier(barrier).bytes += bytes;
        block.barrier(barrier).arrive();
        pause();
    }
    void arrive(uint32_t barrier) { block.barrier(barrier).arrive(), pause(); }
    void arrive_at_first_block(uint32_t barrier) {
        REQUIRE(fenced_before);
        here.blocks[0].barrier(barrier).arrive();
        pause();
    }
    void fence_after() { fenced_after = device.fault != NO_FENCE_AFTER; }
    void fence_before() { fenced_before = device.fault != NO_FENCE_BEFORE; }

    void copy(uint32_t to, pair::Operand operand, int problem, int x, int y, uint32_t barrier) {
        start_copy(to, operand, problem, x, y, barrier, 1 << my_rank);
    }
    void copy_to_both(uint32_t to, pair::Operand operand, int problem, int x, int y, uint32_t barrier) {
        start_copy(to, operand, problem, x, y, barrier, device.fault == ONE_BLOCK_SCALES ? 1 << my_rank : 3);
    }

    void copy_scales(uint32_t column, uint64_t from) {
        if (device.fault == WRONG_SCALE_STRIDE) from ^= (uint64_t)(8 ^ 16) << 32;
        Cluster &cluster = here;
        enqueue([=, &cluster] {
            // No swizzle: groups of eight rows of 16 bytes, a group `stride` after the last.
            REQUIRE(from >> 61 == 0 && (from >> 46 & 3) == 1 && (from >> 49 & 7) == 0);
            uint32_t start = (from & 0x3fff) << 4, stride = (from >> 32 & 0x3fff) << 4;
            REQUIRE(column < 512 && column + 4 <= 512);
            for (Block &block : cluster.blocks)
                for (int lane = 0; lane < 128; lane++)
                    for (int i = 0; i < 16; i++) {
                        int row = lane % 32;
                        uint32_t *word = &block.memory[lane * 512 + column + i / 4];
                        uint32_t shift = i % 4 * 8;
                        uint32_t byte = block.byte(start + row / 8 * stride + row % 8 * 16 + i);
                        *word = (*word & ~(0xffu << shift)) | byte << shift;
                    }
        });
    }

    void multiply(uint32_t sum, uint64_t a, uint64_t b, uint32_t instruction, uint32_t a_scales, uint32_t b_scales,
                  uint32_t accumulate) {
        if (device.fault == WRONG_STRIDE) a ^= (uint64_t)(64 ^ 32) << 32;
        if (device.fault == WRONG_SWIZZLE) b ^= (uint64_t)(2 ^ 4) << 61;
        if (device.fault == WRONG_ROWS) instruction ^= 3u << 27;
        if (device.fault == SHARED_COLUMNS) sum += sum ? 16 : 0;
        Cluster &cluster = here;
        enqueue([=, &cluster] { block_scaled(cluster, sum, a, b, instruction, a_scales, b_scales, accumulate); });
    }

    void commit(uint32_t barrier) {
        Cluster &cluster = here;
        int blocks = device.fault == ONE_BLOCK_COMMIT ? 1 : 2;
        Scheduler &scheduler = device.scheduler;
        enqueue([=, &cluster, &scheduler] {
            for (int i = 0; i < blocks; i++)
                scheduler.later([=, &cluster] { cluster.blocks[i].barrier(barrier).arrive(); });
        });
    }

    // tcgen05.ld 16x256b.x2 of lanes 0..15, then of lanes 16..31 of this warp's 32.
    void load(uint32_t from, Fragment &sum) {
        start_load(from);
        for (int lane = 0; lane < 32; lane++)
            for (int half = 0; half < 2; half++)
                for (int r = 0; r < 8; r++)
                    sum.of[lane][half][r] = cell(from + (half * 16 << 16), lane / 4 + r / 2 % 2 * 8, lane % 4 * 2 + r % 2 + r / 4 * 8);
        pause();
    }
    void load_row(uint32_t from, Row &sum) {
        start_load(from);
        for (int lane = 0; lane < 32; lane++)
            for (int column = 0; column < 64; column++) sum.of[lane][column] = cell(from, lane, column);
        pause();
    }

    void stage_turned(uint32_t buffer, int token, const Fragment &sum) {
        for (int half = 0; half < 2; half++) {
            // stmatrix.x4.trans: matrix i from register i; lanes 8 i to 8 i + 7 have the addresses of its rows. A lane's
            // register has elements (2 (lane % 4), lane / 4) and the one below it.
            for (int i = 0; i < 4; i++)
                for (int lane = 0; lane < 32; lane++)
                    for (int high = 0; high < 2; high++) {
                        int row = lane % 4 * 2 + high, column = lane / 4;
                        uint32_t address = buffer + pair::staged_matrix(8 * i + row, half, token);
                        REQUIRE(address % 16 == 0);
                        put16(address + 2 * column, f16_of(sum.of[lane][half][2 * i + high]));
                    }
        }
        fence_for_copies();
        pause();
    }
    void stage_row(uint32_t buffer, int first_row, const Row &sum) {
        for (int lane = 0; lane < 32; lane++)
            for (int column = 0; column < 64; column++)
                put16(buffer + pair::staged_row(first_row + lane, column / 8) + column % 8 * 2, f16_of(sum.of[lane][column]));
        fence_for_copies();
        pause();
    }
    void store(uint32_t from, pair::Operand operand, int problem, int x, int y) {
        const TensorMap *map = &device.maps[problem][operand];
        Block *block = &this->block;
        auto pending = stores;
        int me = (int)pending->size();
        pending->push_back(false);
        device.scheduler.later([=] {
            each_byte(map->shape, x, y, from, [&](uint32_t address, int64_t offset) {
                if (offset >= 0) map->data[offset] = block->byte(address);
            });
            (*pending)[me] = true;
        });
        pause();
    }
    void wait_for_stores() {
        if (device.fault == NO_WAIT_FOR_STORES) return;
        wait_for_stores_before((int)stores->size() - (pair::STORE_BUFFERS - 1));
    }
    void wait_for_all_stores() { wait_for_stores_before((int)stores->size()); }
    void sync_epilogue() {
        Block &it = block;
        int round = it.epilogue_round;
        if (++it.epilogue_here == pair::EPILOGUE_WARPS) it.epilogue_here = 0, it.epilogue_round++;
        device.scheduler.yield([&it, round] { return it.epilogue_round != round; });
    }

    // Four values of a lane at a time.
    void leave(int64_t place, const Fragment &sum) {
        for_slot(place, [&](float &slot, int lane, int half, int r) { slot = sum.of[lane][half][r]; });
    }
    void take(int64_t place, Fragment &sum) {
        for_slot(place, [&](float &slot, int lane, int half, int r) { sum.of[lane][half][r] += slot; });
    }
    void tell_part(int flag) {
        REQUIRE(device.flags.at(flag) == 0);
        device.flags[flag] = 1;
        pause();
    }
    void wait_for_part(int flag) {
        uint32_t &it = device.flags.at(flag);
        if (device.fault != NO_WAIT_FOR_PARTS) device.scheduler.yield([&it] { return it == 1; });
        it = 0;
    }

    void write_tile(uint32_t to, const pair::NextTile &tile) {
        for (size_t i = 0; i < sizeof tile; i++) block.byte(to + i) = ((const uint8_t *)&tile)[i];
        pause();
    }
    pair::NextTile read_tile(uint32_t from) {
        pair::NextTile tile;
        for (size_t i = 0; i < sizeof tile; i++) ((uint8_t *)&tile)[i] = block.byte(from + i);
        return tile;
    }

    // Which barriers a role does not wait for, when such a fault is on.
    int stage_empty = -1, stage_full = -1, sum_empty = -1, sum_full = -1, stages = 0, sums = 0;

  private:
    bool skips(int barrier) {
        auto is = [&](int first, int count) { return first >= 0 && barrier >= first && barrier < first + count; };
        return (device.fault == NO_WAIT_FOR_STAGE && is(stage_empty, stages)) ||
               (device.fault == NO_WAIT_FOR_BYTES && is(stage_full, stages)) ||
               (device.fault == NO_WAIT_FOR_SUMS && is(sum_empty, sums)) || (device.fault == EARLY_SUMS && is(sum_full, sums));
    }
    void pause() {
        if (device.scheduler.draw(4)) device.scheduler.yield([] { return true; });
    }
    void wait_for_stores_before(int count) {
        auto pending = stores;
        device.scheduler.yield([pending, count] {
            for (int i = 0; i < count; i++)
                if (!(*pending)[i]) return false;
            return true;
        });
    }

    // What threads write is not seen by copies before a fence of the writing thread.
    void put16(uint32_t address, uint16_t value) { unseen.push_back({address, value}); }
    void fence_for_copies() {
        if (device.fault != NO_PROXY_FENCE)
            for (auto &write : unseen) block.byte(write.first) = write.second & 255, block.byte(write.first + 1) = write.second >> 8;
        unseen.clear();
    }

    // A warp reads the 32 lanes that its number allows.
    void start_load(uint32_t from) {
        REQUIRE(fenced_after && (int)(from >> 16) == 32 * warp);
        fenced_before = false;
    }
    float cell(uint32_t address, int lane, int column) {
        uint32_t first = address >> 16, at = (address & 0xffff) + column;
        REQUIRE(at < 512 && first + lane < 128);
        uint32_t bits = block.memory[(first + lane) * 512 + at];
        float value;
        __builtin_memcpy(&value, &bits, 4);
        return value;
    }

    template <class Do> void for_slot(int64_t place, Do with) {
        for (int i = 0; i < 4; i++)
            for (int lane = 0; lane < 32; lane++)
                for (int j = 0; j < 4; j++) with(device.slots.at(place + (i * 32 + lane) * 4 + j), lane, i / 2, i % 2 * 4 + j);
        pause();
    }

    // The bytes of a box: where each lies in shared memory, and in the tensor or -1.
    template <class Do> static void each_byte(const pair::MapShape &shape, int x, int y, uint32_t to, Do with) {
        int row_bytes = shape.box_width * shape.element;
        REQUIRE(shape.box_width <= 256 && shape.box_height <= 256 && row_bytes % 16 == 0 && shape.stride % 16 == 0);
        REQUIRE(to % 128 == 0 && (!shape.swizzle || row_bytes <= shape.swizzle));
        uint32_t mask = shape.swizzle / 16 ? shape.swizzle / 16 - 1 : 0;
        for (int row = 0; row < shape.box_height; row++)
            for (int i = 0; i < row_bytes; i++) {
                uint32_t address = to + row * row_bytes + i;
                address ^= (address >> 7 & mask) << 4;
                int64_t column = x + i / shape.element, line = (int64_t)y + row;
                bool inside = column >= 0 && column < shape.width && line >= 0 && line < shape.height;
                with(address, inside ? line * shape.stride + (int64_t)x * shape.element + i : -1);
            }
    }
    void start_copy(uint32_t to, pair::Operand operand, int problem, int x, int y, uint32_t barrier, int mask) {
        const TensorMap *map = &device.maps[problem][operand];
        // The byte count goes to the block of the pair that the barrier's address is in, from each block written to.
        REQUIRE(!(barrier & PEER));
        for (int rank = 0; rank < 2; rank++) {
            if (!(mask >> rank & 1)) continue;
            Block *into = &here.blocks[rank];
            Mbarrier *told = &here.blocks[0].barrier(barrier);
            device.scheduler.later([=] {
                each_byte(map->shape, x, y, to, [&](uint32_t address, int64_t offset) {
                    into->byte(address) = offset < 0 ? 0 : map->data[offset];
                });
                told->complete((int64_t)map->shape.box_width * map->shape.box_height * map->shape.element);
            });
        }
        pause();
    }

    void enqueue(std::function<void()> work) {
        REQUIRE(my_rank == 0 && fenced_after);
        Cluster &cluster = here;
        cluster.queue.push_back(std::move(work));
        device.scheduler.later([&cluster] { cluster.queue[cluster.queue_at]();
                                            cluster.queue[cluster.queue_at++] = nullptr; });
        pause();
    }

    // Row `row` of an operand at its descriptor: 64 codes.
    static void operand_row(Block &block, uint64_t descriptor, int row, float to[64]) {
        REQUIRE((descriptor >> 46 & 3) == 1 && (descriptor >> 49 & 7) == 0 && descriptor >> 61 == 2);
        uint32_t start = (descriptor & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
        for (int i = 0; i < 32; i++) {
            uint32_t address = start + row / 8 * stride + row % 8 * 128 + i;
            int byte = block.byte(address ^ (address >> 7 & 7) << 4);
            to[2 * i] = e2m1(byte & 15), to[2 * i + 1] = e2m1(byte >> 4);
        }
    }
    // The scale of a row and a block of 16: the same in all quarters of the lanes.
    static float scale(Block &block, uint32_t column, int row, int of_16) {
        uint32_t at = column + row / 128 * 4 + row % 128 / 32, word = block.memory[row % 32 * 512 + at];
        REQUIRE(column >> 30 == 0 && at < 512);
        for (int quarter = 1; quarter < 4; quarter++) REQUIRE(block.memory[(row % 32 + 32 * quarter) * 512 + at] == word);
        return e4m3(word >> 8 * of_16 & 255);
    }

    static void block_scaled(Cluster &cluster, uint32_t sum, uint64_t a, uint64_t b, uint32_t instruction, uint32_t a_scales,
                             uint32_t b_scales, uint32_t accumulate) {
        // Types E2M1, scales E4M3, dense, K = 64, both K-major, nothing negated, scale ids 0.
        REQUIRE((instruction >> 7 & 7) == 1 && (instruction >> 10 & 7) == 1 && (instruction & 0xe781e07fu) == 0);
        int n = (instruction >> 17 & 63) * 8, m = (instruction >> 27 & 3) * 128;
        REQUIRE(m == 256 && n >= 16 && n <= 256 && n % 16 == 0);
        REQUIRE(sum >> 16 == 0 && sum + n <= 512);
        for (int rank = 0; rank < 2; rank++) {
            Block &mine = cluster.blocks[rank];
            std::vector<float> by_k(64 * n); // K x N, scaled
            for (int column = 0; column < n; column++) {
                float codes[64];
                operand_row(cluster.blocks[column / (n / 2)], b, column % (n / 2), codes);
                for (int i = 0; i < 64; i++) by_k[i * n + column] = codes[i] * scale(mine, b_scales, column, i / 16);
            }
            std::vector<float> line(n);
            for (int row = 0; row < 128; row++) {
                uint32_t *to = &mine.memory[row * 512 + sum];
                if (accumulate) __builtin_memcpy(line.data(), to, n * 4);
                else std::fill(line.begin(), line.end(), 0.0f);
                float codes[64];
                operand_row(mine, a, row, codes);
                for (int i = 0; i < 64; i++) {
                    float value = codes[i] * scale(mine, a_scales, row, i / 16);
                    for (int column = 0; column < n; column++) line[column] += value * by_k[i * n + column];
                }
                __builtin_memcpy(to, line.data(), n * 4);
            }
        }
    }

    Device &device;
    Cluster &here;
    Block &block;
    int number, my_rank, warp;
    bool fenced_after = false, fenced_before = true;
    std::shared_ptr<std::vector<bool>> stores = std::make_shared<std::vector<bool>>();
    std::vector<std::pair<uint32_t, uint16_t>> unseen;
};

// Gives all roles of one kernel to the scheduler, and its blocks their barriers.
template <class Form> void set_up(Device &device, int clusters) {
    using Place = pair::Places<Form>;
    for (int c = 0; c < clusters; c++) {
        device.clusters.push_back(std::make_unique<Cluster>());
        for (int rank = 0; rank < 2; rank++) {
            Block &block = device.clusters[c]->blocks[rank];
            block.barriers_at = Place::BARRIERS_AT;
            block.barriers.resize(Place::BARRIERS);
            for (int i = 0; i < Place::BARRIERS; i++)
                block.barriers[i].count = block.barriers[i].pending = Place::arrivals(i, rank);
        }
    }
}

template <class Form> Machine machine(Device &device, int cluster, int rank, int warp) {
    using Place = pair::Places<Form>;
    Machine machine(device, cluster, rank, warp);
    machine.stage_full = Place::FULL, machine.stage_empty = Place::EMPTY, machine.stages = Form::STAGES;
    machine.sum_full = Place::SUM_FULL, machine.sum_empty = Place::SUM_EMPTY, machine.sums = Form::SUM_BARRIERS;
    return machine;
}

inline void run_swapped(Device &device, const std::vector<pair::Tile> &tiles, const std::vector<int> &first_tile, int clusters) {
    using pair::Swapped;
    set_up<Swapped>(device, clusters);
    for (int c = 0; c < clusters; c++) {
        pair::TileList list = {tiles.data() + first_tile[c], tiles.data() + first_tile[c + 1]};
        for (int rank = 0; rank < 2; rank++) {
            device.scheduler.add([=, &device] {
                Machine it = machine<Swapped>(device, c, rank, -1);
                pair::fetch<Swapped>(it, list);
            });
            if (rank == 0)
                device.scheduler.add([=, &device] {
                    Machine it = machine<Swapped>(device, c, rank, -1);
                    pair::multiply<Swapped>(it, list, 0);
                });
            for (int warp = 0; warp < pair::EPILOGUE_WARPS; warp++)
                device.scheduler.add([=, &device] {
                    Machine it = machine<Swapped>(device, c, rank, warp);
                    pair::store_swapped(it, list, 0, warp);
                });
        }
    }
    device.scheduler.run();
}

inline void run_aligned(Device &device, const std::vector<pair::Extent> &extents, int clusters) {
    using pair::Aligned;
    set_up<Aligned>(device, clusters);
    for (int c = 0; c < clusters; c++)
        for (int rank = 0; rank < 2; rank++) {
            device.scheduler.add([=, &device, &extents] {
                Machine it = machine<Aligned>(device, c, rank, -1);
                pair::schedule(it, extents.data(), (int)extents.size());
            });
            device.scheduler.add([=, &device] {
                Machine it = machine<Aligned>(device, c, rank, -1);
                pair::fetch<Aligned>(it, pair::TileRing());
            });
            if (rank == 0)
                device.scheduler.add([=, &device] {
                    Machine it = machine<Aligned>(device, c, rank, -1);
                    pair::multiply<Aligned>(it, pair::TileRing(), 0);
                });
            for (int warp = 0; warp < pair::EPILOGUE_WARPS; warp++)
                device.scheduler.add([=, &device] {
                    Machine it = machine<Aligned>(device, c, rank, warp);
                    pair::store_aligned(it, pair::TileRing(), 0, warp);
                });
        }
    device.scheduler.run();
}

} // namespace emulator
