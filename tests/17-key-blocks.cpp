// Rung 17. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention_backward_suite.h"
#include "launch.h"

#ifndef FLASHLADDER_GPU
#include "operations/attention_backward/counts.h"
#endif

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

constexpr int tile = 64;  // queries of a step, keys of a block

/// D as the kernels leave it, at the start of the scratch.
std::vector<float> D_of(const Inputs& in) {
    const DeviceProblem problem(stage_under_test(), in);
    stage_under_test().launch(problem.args());
    check_cuda(cudaDeviceSynchronize(), "launch");
    return problem.scratch.download(in.shape().lse_elements(), DType::f32);
}

#ifndef FLASHLADDER_GPU
using emulator::Access;

/// Queries that a head's blocks of keys load, all blocks together, by blocks of queries: one is loaded if one of its queries
/// sees one of the keys.
struct Visited {
    std::uint64_t queries = 0, scores = 0;  // the latter for keys that exist
};
Visited visited_by_blocks(const AttentionShape& s) {
    Visited all;
    for (int j = 0; j < s.n_k; j += tile)
        for (int i = 0; i < s.n_q; i += tile) {
            const int last = std::min(i + tile, s.n_q) - 1;
            if (s.causal && j > last + s.n_k - s.n_q) continue;
            const auto queries = static_cast<std::uint64_t>(last - i + 1);
            all.queries += queries;
            all.scores += queries * static_cast<std::uint64_t>(std::min(tile, s.n_k - j));
        }
    return all;
}
#endif

TEST_CASE("EXERCISE 17.1: D of every query") {
    for (const int d : {64, 128}) {
        AttentionShape shape = shape_of(3, drawn_length(8, 20, 70, static_cast<std::uint64_t>(d)), 40, d);
        shape.batch = 2;
        const Inputs in = backward_inputs(shape, Values::normal, test_seed());
        try {
            const std::vector<float> D = D_of(in);
            for (std::size_t i = 0; i < D.size(); ++i) {
                double expected = 0, sizes = 0;
                for (std::size_t x = i * std::size_t(d); x < (i + 1) * std::size_t(d); ++x) {
                    expected += double(in.dO[x]) * in.O[x];
                    sizes += std::abs(double(in.dO[x]) * in.O[x]);
                }
                if (std::abs(D[i] - expected) <= 1e-5 * sizes) continue;
                FAIL_CHECK(fmt::format("D of query {} of {} is {:.6g}, expected {:.6g}: the sum of dO O over its {} elements", i,
                                       D.size(), D[i], expected, d));
                break;
            }
        } catch (const CudaError& error) {
            FAIL_CHECK(std::string(error.what()));
        }
    }
#ifndef FLASHLADDER_GPU
    constexpr std::uint64_t N = 70, d = 128;
    const auto counted = count_stage(stage_under_test(), backward_inputs(shape_of(1, N, 40, d), Values::normal, 1));
    const emulator::Work& work = work_of(counted, "row_sums");
    check_count("bytes that D asks device memory for: O and dO once", work.global_of(Access::read).requested_bytes, 0, 2 * N * d * 4);
    check_count("bytes of the sectors that this takes", work.global_of(Access::read).sectors * 32, 0, 2 * N * d * 4);
    check_count("bytes of D that are written: a float a query", work.global_of(Access::write).requested_bytes, N * 4, N * 4);
#endif
}

TEST_CASE("EXERCISE 17.2: dQ, to which all blocks of keys add") {
    for (const AttentionShape& shape : shapes_of_several_blocks(64, 0)) {
        const Inputs in = backward_inputs(shape, Values::normal, test_seed());
        if (shape.causal) check_no_race(in);
        check_gradient("dQ", in, "several blocks of keys");
    }
}

TEST_CASE("EXERCISE 17.3: the loop of a block of keys") {
    for (const int d : {64, 128})
        for (const AttentionShape& shape : shapes_of_several_blocks(d, static_cast<std::uint64_t>(d))) {
            const Inputs in = backward_inputs(shape, Values::normal, test_seed());
            if (d == 64 && shape.causal) check_no_race(in);
            check_gradients(in, shape.causal ? "a causal mask" : "two heads that share K and V");
        }
    AttentionShape pairs = shape_of(4, 33, 40, 64);
    pairs.kv_heads = 2;
    check_gradients(backward_inputs(pairs, Values::normal, test_seed()), "four heads, of which two share K and V each");
    for (const auto& [n_q, n_k] : {std::pair(150, 40), {40, 150}}) {
        AttentionShape shape = shape_of(1, n_q, n_k, 64);
        shape.causal = true;
        check_gradients(backward_inputs(shape, Values::normal, test_seed()),
                        n_q > n_k ? "causal, and queries that see no key" : "causal, and more keys than queries");
    }
    constexpr std::size_t query = 3, keys = 40, width = 64;
    AttentionShape square = shape_of(1, keys, keys, width);
    square.causal = true;
    Inputs with_nan = backward_inputs(square, Values::normal, test_seed());
    std::fill_n(with_nan.dO.begin() + query * width, width, std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> dK = run(stage_under_test(), with_nan).dK;
    const auto reached = std::find_if(dK.begin() + (query + 1) * width, dK.end(), [](float x) { return std::isnan(x); });
    CHECK_MESSAGE(reached == dK.end(),
                  fmt::format("dS of a pair behind the mask is 0, whatever dP is: query {} alone has NaN in dO and sees "
                              "keys 0 to {}, but it has reached dK of key {}",
                              query, query, std::size_t(reached - dK.begin()) / width));
#ifndef FLASHLADDER_GPU
    for (const bool causal : {false, true}) {
        constexpr std::uint64_t N_q = 200, N_k = 250, blocks = (N_k + tile - 1) / tile, d = 64;
        AttentionShape shape = shape_of(1, N_q, N_k, d);
        shape.causal = causal;
        const auto counted = count_stage(stage_under_test(), backward_inputs(shape, Values::normal, 1));
        const emulator::Work& work = work_of(counted, "key_blocks");
        const auto [queries, scores] = visited_by_blocks(shape);
        const std::string those = causal ? "blocks of queries that see one of its keys" : "queries";
        check_count(fmt::format("bytes that the blocks ask for: K and V once, and each block Q, dO, LSE and D of all {}", those),
                    work.global_of(Access::read).requested_bytes, 0, 4 * (2 * N_k * d + queries * (2 * d + 2)));
        check_count(fmt::format("additions to dQ: for each block of keys one an element of all {}", those),
                    work.global_of(Access::atomic).requested_bytes / 4, 0, queries * d);
        check_count("exponentials: one a score of what is visited; scores of no query or key count as too many", work.exponentials,
                    0, scores);
        const emulator::SharedWork shared = work.all_shared();
        if (!emulator::optimised_by_clang)  // a learner's kernel is not
            check_count("conflicts in each 100 wavefronts of shared memory",
                        100 * shared.conflicts / std::max<std::uint64_t>(shared.wavefronts, 1), 0, 5);
        const std::uint64_t steps = (queries + tile - 1) / tile + blocks;
        WARN_MESSAGE((work.barriers <= 3 * steps), fmt::format("barriers: found {}, needed {} at most", work.barriers, 3 * steps));
    }
#endif
}

#ifndef FLASHLADDER_GPU
TEST_CASE("in whatever order blocks run, dK and dV have the same bits, and dQ is within the rule") { check_whatever_order(); }

TEST_CASE("O is read once, for D, and dQ is everybody's: it is only added to") {
    constexpr std::uint64_t N_q = 130, N_k = 200, d = 64;
    const auto counted = count_stage(stage_under_test(), backward_inputs(shape_of(1, N_q, N_k, d), Values::normal, test_seed()));
    check_count("bytes of O that are read, by all kernels", counted.tensors.at("O").read.requested_bytes, N_q * d * 4, N_q * d * 4);
    check_count("bytes of dQ that are read", counted.tensors.at("dQ").read.requested_bytes, 0, 0);
    check_count("bytes of dQ that are stored by a kernel", counted.tensors.at("dQ").written.requested_bytes, 0, 0);
    const std::uint64_t adds = counted.work.total().global_of(Access::atomic).requested_bytes / 4, blocks = (N_k + tile - 1) / tile;
    check_count("additions: one for each element of dQ and block of keys", adds, N_q * d * blocks, N_q * d * blocks);
}
#endif

TEST_CASE("needs a float a query beyond inputs and outputs") {
    AttentionShape shape = shape_of(6, 999, 1, 64);
    shape.batch = 2;
    CHECK(stage_under_test().scratch_bytes(shape) == 4 * 2 * 6 * 999);
}

}  // namespace
}  // namespace flashladder::attention_backward
