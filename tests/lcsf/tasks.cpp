// The tasks of common/lcsf/tasks.h: every one has a number and is done once, in the order that was asked for.
#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>

#include "../test_seed.h"
#include "task_cases.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

TEST_CASE("order of tasks: section by section, in it the heads in turn, their blocks first to last or last to first; late ones last") {
    for (const auto& [T_r, heads, batches] : {std::tuple(1, 1, 1), {4, 1, 1}, {1, 5, 1}, {3, 4, 2}, {5, 3, 3}})
        for (const int section : {1, 2, 3, 5, 8, 100})
            for (const bool last_block_first : {false, true}) {
                for (const int late : {0, 1, T_r / 2, T_r}) {
                    INFO(T_r, " blocks of ", heads, " heads in ", batches, " batches, ", section, " heads together, ",
                         last_block_first ? "last" : "first", " block first, the first ", late, " behind all others");
                    const Places found = places(T_r, heads, batches, section, last_block_first, late);
                    std::size_t n = 0;
                    const auto check_next = [&](int block, int head) {
                        CHECK(found.blocks[n] == block);
                        CHECK(found.heads[n] == head % heads);
                        CHECK(found.batches[n] == head / heads);
                        ++n;
                    };
                    for (int first = 0; first < heads * batches; first += section)
                        for (int turn = late; turn < T_r; ++turn)
                            for (int head = first; head < std::min(first + section, heads * batches); ++head)
                                check_next(last_block_first ? T_r - 1 - (turn - late) : turn, head);
                    for (int block = late - 1; block >= 0; --block)
                        for (int head = 0; head < heads * batches; ++head) check_next(block, head);
                    CHECK(n == found.blocks.size());
                }
            }
}

/// Heads of 4096 keys of 128 bf16: K and V of each are 2 MB.
attention::AttentionShape long_heads(int kv_heads, bool causal) {
    attention::AttentionShape s;
    s.batch = 2, s.heads = 12, s.kv_heads = kv_heads, s.n_q = 4097, s.n_k = 4096, s.head_dim = 128;
    s.dtype = DType::bf16, s.causal = causal;
    return s;
}

TEST_CASE("order of an attention problem: without a mask head after head; the last block of queries may be ragged") {
    CHECK(order_of(long_heads(12, false), 128) == Order{33, 12, 2, 1});
    CHECK(order_of(long_heads(3, false), 192) == Order{22, 12, 2, 1});
    const Order causal = order_of(long_heads(12, true), 4097);
    CHECK(causal.T_r == 1);
    CHECK(causal.section >= 1);
    CHECK(causal.section <= 24);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("order of an attention problem: causal, no more heads take turns than have room in a part of L2, in equal sections") {
    const struct Restore {
        ~Restore() { emulator::settings() = before; }
        const emulator::Settings before = emulator::settings();
    } restore;
    for (const auto& [megabytes, kv_heads, section] :
         {std::tuple(50, 12, 12), {30, 12, 8}, {22, 12, 6}, {4, 12, 1}, {1, 12, 1}, {71, 12, 12}, {72, 12, 24},
          {500, 12, 24}, {12, 3, 12}, {3, 6, 2}}) {  // heads that share a K and V need a part of it each
        INFO("L2 of ", megabytes, " MB, ", kv_heads, " heads of K and V");
        emulator::settings().l2_bytes = std::size_t(megabytes) << 20;
        for (const int multiprocessors : {1, 7, 132}) {  // not their business
            emulator::settings().multiprocessors = multiprocessors;
            CHECK(order_of(long_heads(kv_heads, true), 128) == Order{33, 12, 2, section});
        }
    }
}
#endif

constexpr int grids[] = {1, 2, 3, 7, 20};

TEST_CASE("dynamic schedule: every task is done once, by all warps of a block, whatever the number of blocks") {
    for (const int blocks : grids)
        for (const int tasks : {1, 2, 7, 8, 40}) {
            INFO(tasks, " tasks, ", blocks, " blocks");
            const Taken taken = take_tasks(tasks, blocks);
            CHECK(std::ranges::all_of(taken.done, [](int lanes) { return lanes == 32; }));
            for (int block = 0; block < blocks; ++block) {
                const auto first = taken.order.begin() + block * task_warps * tasks;
                CHECK(*first == (block < tasks ? block : -1));
                for (int warp = 1; warp < task_warps; ++warp)
                    CHECK(std::equal(first, first + tasks, first + warp * tasks));
                const auto end = std::find(first, first + tasks, -1);
                CHECK(std::is_sorted(first, end));  // so a block's longest tasks come first, too
            }
        }
}

#ifndef FLASHLADDER_GPU
TEST_CASE("dynamic schedule: no races, by any of several seeds") {
    for (int i = 0; i < 5; ++i)
        for (const int blocks : {1, 3}) {
            emulator::reseed(test_seed() + std::uint64_t(i));
            const std::string report = emulator::find_race([&] { take_tasks(20, blocks); });
            CHECK_MESSAGE(report.empty(), report);
        }
}
#endif

}  // namespace
}  // namespace flashladder
