// The warp-specialised attention of attention.cu against the reference.
#include <doctest/doctest.h>

#include <cmath>

#include "../test_seed.h"
#include "elements.h"
#include "operations/attention/reference.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder::attention {
namespace {

/// Q, K and V of normal numbers; the scores have a spread of `spread`.
struct Problem {
    Bits16 Q, K, V;
    Inputs inputs;

    Problem(Random& random, int batch, int heads, int N, float spread) {
        const std::size_t n = std::size_t(batch) * heads * N * attention_head_dim;
        Q = normal_elements(random, Element::bf16, n);
        K = normal_elements(random, Element::bf16, n);
        V = normal_elements(random, Element::bf16, n);
        inputs.shape = {batch, heads, heads, N, N, attention_head_dim, false, DType::bf16};
        inputs.scale = spread / std::sqrt(float(attention_head_dim));
        for (const auto& [bits, floats] :
             {std::pair(&Q, &inputs.Q), std::pair(&K, &inputs.K), std::pair(&V, &inputs.V)})
            for (const std::uint16_t x : *bits) floats->push_back(from_bits(Element::bf16, x));
    }
};

double relative_error(const AttentionRows& found, const AttentionRows& expected) {
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < expected.O.size(); ++i) {
        error += (found.O[i] - expected.O[i]) * (found.O[i] - expected.O[i]);
        norm += expected.O[i] * expected.O[i];
    }
    return std::sqrt(error / norm);
}

void check_attention(int batch, int heads, int N, float spread) {
    INFO("batch ", batch, ", heads ", heads, ", N ", N, ", spread ", spread);
    Random random(test_seed());
    const Problem problem(random, batch, heads, N, spread);
    const Bits16 O = attend(problem.Q, problem.K, problem.V, batch, heads, N, problem.inputs.scale);
    const AttentionRows expected =
        reference_attention(problem.inputs, rows_to_check(problem.inputs.shape, test_seed()));
    AttentionRows found = expected;
    for (std::size_t i = 0; i < expected.rows.size(); ++i)
        for (int j = 0; j < attention_head_dim; ++j)
            found.O[i * attention_head_dim + j] =
                from_bits(Element::bf16, O[expected.rows[i] * attention_head_dim + j]);
    const double error = relative_error(found, expected);
    INFO("relative error ", error);
    CHECK(!(error > 5e-3));
}

TEST_CASE("attention: warp-specialised, TMA and wgmma") {
    if (device_architecture() != 90) return;
    for (const int N : {1, 63, 64, 130, 256, 321}) check_attention(1, 2, N, 1);
    check_attention(2, 1, 257, 4);
}

#ifndef FLASHLADDER_GPU
TEST_CASE("attention: has no races") {
    Random random(test_seed());
    for (const auto& [heads, N] : {std::pair(2, 130), {1, 550}}) {  // of 550 keys, each stage holds four tiles and more
        const Problem problem(random, 1, heads, N, 1);
        const std::string report = emulator::find_race(
            [&] { attend(problem.Q, problem.K, problem.V, 1, heads, N, problem.inputs.scale); });
        CHECK_MESSAGE(report == "", report);
    }
}
#endif

}  // namespace
}  // namespace flashladder::attention
