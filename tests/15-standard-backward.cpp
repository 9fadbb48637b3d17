// Rung 15. Each exercise is judged on inputs where the later ones, still open, do not matter.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "attention_backward_suite.h"

#ifndef FLASHLADDER_GPU
#include "operations/attention_backward/counts.h"
#endif

namespace flashladder::attention_backward {
namespace {

[[maybe_unused]] const StrictBarriers strict_barriers;

/// All keys are equally good, as queries have numbers where keys have 0, and O is 0, as for each value there is its
/// negative: then P is 1 / N_k, D is 0, and dS is P dP.
Inputs with_equal_keys(AttentionShape shape) {
    attention::Inputs forward = attention::make_inputs(shape, Values::normal, test_seed());
    const std::size_t d = static_cast<std::size_t>(shape.head_dim), n_k = static_cast<std::size_t>(shape.n_k);
    for (std::size_t x = 0; x < forward.Q.size(); ++x)
        if (x % d >= d / 2) forward.Q[x] = 0;
    for (std::size_t x = 0; x < forward.K.size(); ++x)
        if (x % d < d / 2) forward.K[x] = 0;
    for (std::size_t x = 0; x < forward.V.size(); ++x)
        if (x / d % n_k % 2 == 1) forward.V[x] = -forward.V[x - d];
    return with_forward_pass(std::move(forward), backward_inputs(shape, Values::normal, test_seed() + 1).dO);
}

TEST_CASE("EXERCISE 15.1: the products that take dO back") {
    for (const auto& [n_q, n_k] : {std::pair(33, 32), {drawn_length(64, 60, 130, 0), 2 * drawn_length(32, 30, 65, 1)}}) {
        const Inputs in = with_equal_keys(shape_of(2, n_q, n_k, 64));
        check_gradient("dV", in, "dV = P^T dO, where all keys are equally good");
        check_gradient("dQ", in, "dQ = scale dS K, where all keys are equally good and O is 0");
        check_gradient("dK", in, "dK = scale dS^T Q, where all keys are equally good and O is 0");
    }
}

TEST_CASE("EXERCISE 15.2: P of the scores and of LSE") {
    AttentionShape shape = shape_of(2, drawn_length(64, 33, 130, 0), drawn_length(64, 33, 130, 1), 64);
    check_gradient("dV", backward_inputs(shape, Values::normal, test_seed()), "dV, which takes P and dO alone");
    check_gradient("dV", backward_inputs(shape, Values::large_offset, test_seed()), "dV, scores near 200 and -200",
                   attention::Judge::worst_row_only);
#ifndef FLASHLADDER_GPU
    const emulator::Work work = count_stage(stage_under_test(), backward_inputs(shape, Values::normal, 1)).work.total();
    const auto scores = static_cast<std::uint64_t>(shape.heads * shape.n_q * shape.n_k);
    check_count(fmt::format("exponentials, for {} scores", scores), work.exponentials, 0, scores);
    check_count("divisions", work.divisions, 0, 0);
#endif
}

TEST_CASE("EXERCISE 15.3: the gradient of the scores") {
    const auto check_both = [](const Inputs& in, const std::string& what) {
        check_gradient("dQ", in, what);
        check_gradient("dK", in, what);
    };
    check_both(backward_inputs(shape_of(32, 5, 1, 64), Values::normal, test_seed()),
               "one key: its weight is 1 whatever its score, so dS is 0");
    for (const int d : {64, 128})
        check_both(backward_inputs(shape_of(1, drawn_length(64, 33, 150, 0), drawn_length(64, 33, 150, 1), d), Values::normal,
                                   test_seed()),
                   "dS of random numbers");
#ifndef FLASHLADDER_GPU
    using emulator::Access;
    constexpr std::uint64_t N_q = 128, N_k = 192, d = 64, tile = 64, T_q = N_q / tile, T_k = N_k / tile, step = 16;
    const auto counted = count_stage(stage_under_test(), backward_inputs(shape_of(1, N_q, N_k, d), Values::normal, 1));
    for (const auto& launch : counted.work.launches) {
        if (launch.kernel.find("score_gradients") == std::string::npos) continue;
        const emulator::Work& work = launch.total;
        const std::uint64_t dP = T_k * N_q * d + T_q * N_k * d, D = 2 * T_k * N_q * d, P = N_q * N_k;
        check_count("bytes that dS asks device memory for: dO and V for dP, dO and O once a block of keys for D, P once",
                    work.global_of(Access::read).requested_bytes, 0, 4 * (dP + D + P));
        check_count("bytes of the sectors that this takes", work.global_of(Access::read).sectors * 32, 0, 4 * (dP + D + P));
        check_count("bytes that dS writes", work.global_of(Access::write).requested_bytes, 4 * P, 4 * P);
        const emulator::SharedWork shared = work.all_shared();
        check_count("conflicts in each 100 wavefronts of shared memory",
                    100 * shared.conflicts / std::max<std::uint64_t>(shared.wavefronts, 1), 0, 5);
        const std::uint64_t needed = T_q * T_k * (2 * (d / step) + 1);  // two a step of the product, and one for D
        WARN_MESSAGE((work.barriers <= needed), fmt::format("barriers: found {}, needed {}", work.barriers, needed));
        return;
    }
    FAIL_CHECK("no kernel score_gradients was launched");
#endif
}

}  // namespace
}  // namespace flashladder::attention_backward
