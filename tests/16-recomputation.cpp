// Rung 16. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "attention_backward_suite.h"

#ifndef FLASHLADDER_GPU
#include "operations/attention_backward/counts.h"
#endif

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

/// So much shared memory may a block have, on the emulator: rows of its blocks depend on it.
struct WithSharedMemory {
#ifndef FLASHLADDER_GPU
    explicit WithSharedMemory(std::size_t kilobytes) { emulator::settings().shared_bytes_per_block = kilobytes * 1024; }
    ~WithSharedMemory() { emulator::settings().shared_bytes_per_block = before; }
    const std::size_t before = emulator::settings().shared_bytes_per_block;
#else
    explicit WithSharedMemory(std::size_t) {}
    ~WithSharedMemory() {}
#endif
};

TEST_CASE("EXERCISE 16.1: the keys that a query sees") {
    const int more = drawn_length(64, 30, 100, 0);
    for (const auto& [n_q, n_k, what] :
         {std::tuple(40 + more, 40, fmt::format("causal, and {} queries see no key", more)),
          {70, 70, std::string("causal, as many keys as queries")},
          {40, 40 + more, fmt::format("causal, and the first query sees {} keys", more + 1)}})
        for (const char* gradient : {"dV", "dK"})
            check_gradient(gradient, backward_inputs(causal(shape_of(2, n_q, n_k, 64)), Values::normal, test_seed()), what);
    for (const char* gradient : {"dV", "dK"})
        check_gradient(gradient, backward_inputs(shape_of(2, 70, 70, 64), Values::normal, test_seed()), "without a mask");
    Inputs in = backward_inputs(causal(shape_of(1, 90, 30, 64)), Values::normal, test_seed());
    std::fill_n(in.dO.begin(), 60 * 64, std::numeric_limits<float>::quiet_NaN());
    check_gradient("dV", in, "queries 0 to 59 see no key, and have NaN in dO");
}

TEST_CASE("EXERCISE 16.2: dQ, to which all blocks of keys add") {
    for (const bool causal : {false, true}) {
        AttentionShape shape = shape_of(2, drawn_length(64, 65, 130, 0), drawn_length(64, 129, 200, 1), 64);
        shape.causal = causal;
        check_gradient("dQ", backward_inputs(shape, Values::normal, test_seed()), "several blocks of keys");
    }
#ifndef FLASHLADDER_GPU
    constexpr std::uint64_t N_q = 70, N_k = 192, d = 64, tile = 64;
    const auto counted = count_stage(stage_under_test(), backward_inputs(shape_of(1, N_q, N_k, d), Values::normal, 1));
    const TensorWork& dQ = counted.tensors.at("dQ");
    check_count("bytes of dQ that are read, in 3 blocks of keys", dQ.read.requested_bytes, 0, N_k / tile * N_q * d * 4);
    check_count("bytes of dQ that are written, at first and in 3 blocks of keys", dQ.written.requested_bytes, 0,
                (N_k / tile + 1) * N_q * d * 4);
#endif
}

TEST_CASE("EXERCISE 16.3: the step of a block of keys") {
    std::uint64_t turn = 0;
    for (const std::size_t kilobytes : {227, 60, 30})  // 64, 32 and 16 rows at d 64
        for (const bool causal : {false, true}) {
            const WithSharedMemory memory(kilobytes);
            turn += 2;
            AttentionShape shape = shape_of(1, drawn_length(32, 33, 150, turn), drawn_length(32, 33, 150, turn + 1), 64);
            shape.causal = causal;
            const Inputs in = backward_inputs(shape, Values::normal, test_seed());
            for (const char* gradient : {"dV", "dK", "dQ"})
                check_gradient(gradient, in, fmt::format("blocks of {} rows", kilobytes > 200 ? 64 : kilobytes > 50 ? 32 : 16));
        }
    const std::string wrong = fault(backward_inputs(shape_of(1, 70, 100, 128), Values::normal, test_seed()));
    CHECK_MESSAGE(wrong.empty(), wrong);
#ifndef FLASHLADDER_GPU
    for (const std::size_t kilobytes : {227, 60, 30}) {
        const WithSharedMemory memory(kilobytes);
        constexpr std::uint64_t N = 128, d = 64;
        const auto counted = count_stage(stage_under_test(), backward_inputs(shape_of(1, N, N, d), Values::normal, 1));
        const emulator::Work work = counted.work.total();
        const std::uint64_t rows = kilobytes > 200 ? 64 : kilobytes > 50 ? 32 : 16, T_c = N / rows;
        const emulator::SharedWork shared = work.all_shared();
        check_count(fmt::format("conflicts in each 100 wavefronts of shared memory, blocks of {} rows", rows),
                    100 * shared.conflicts / std::max<std::uint64_t>(shared.wavefronts, 1), 0, 5);
        check_count(fmt::format("exponentials for {} scores", N * N), work.exponentials, 0, N * N);
        check_count("bytes that are read: Q, O, dO, LSE and dQ once a block of keys, K and V once",
                    work.global_of(emulator::Access::read).requested_bytes, 0, 4 * (T_c * N * (4 * d + 1) + 2 * N * d));
        const std::uint64_t needed = 6 * T_c * T_c;
        WARN_MESSAGE((work.barriers <= needed), fmt::format("barriers: found {}, needed {}", work.barriers, needed));
    }
#endif
}

TEST_CASE("NaN in keys and values that a query does not see does not reach its dQ") {
    const int n_q = drawn_length(64, 65, 150, 0), n_k = drawn_length(64, 65, 150, 1),
              seen = 1 + static_cast<int>(test_seed() % unsigned(n_k - 1));
    check_hidden_keys_reach_nobody(shape_of(1, n_q, n_k, 64), seen, std::clamp(seen - (n_k - n_q), 0, n_q));
}

TEST_CASE("needs no memory beyond inputs and outputs") { CHECK(stage_under_test().scratch_bytes(shape_of(1, 9999, 9999, 64)) == 0); }

}  // namespace
}  // namespace flashladder::attention_backward
