// What every finished rung of the way back must do and no more: its counted work is what its lesson's arithmetic says. Not
// for chapters, where another way to the right result is as good.
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "attention_backward_suite.h"
#include "operations/attention_backward/closed_forms.h"
#include "operations/attention_backward/counts.h"

namespace flashladder::attention_backward {
namespace {

std::vector<AttentionShape> shapes() {
    std::mt19937_64 random(test_seed());
    const auto draw = [&](int most) { return 1 + static_cast<int>(random() % static_cast<unsigned>(most)); };
    std::vector<AttentionShape> all = {shape_of(1, 128, 128, 64), shape_of(2, 256, 128, 64), shape_of(1, 100, 257, 64),
                                       shape_of(1, 33, 200, 128), shape_of(3, 1, 1, 64)};
    for (int i = 0; i < 4; ++i) {
        all.push_back(shape_of(draw(3), draw(150), draw(250), i % 2 ? 128 : 64));
        all.back().batch = draw(2);
    }
    for (const auto& [n_q, n_k] : {std::pair(200, 200), {100, 200}, {200, 100}, {256, 256}}) {
        all.push_back(shape_of(1, n_q, n_k, 64));
        all.back().causal = true;
    }
    all.push_back(shape_of(6, 70, 150, 64));
    all.back().kv_heads = 2;
    return all;
}

struct WithSharedBytes {
    explicit WithSharedBytes(std::size_t bytes) { emulator::settings().shared_bytes_per_block = bytes; }
    ~WithSharedBytes() { emulator::settings().shared_bytes_per_block = before; }
    const std::size_t before = emulator::settings().shared_bytes_per_block;
};

TEST_CASE("counted: bytes, exponentials and divisions are those of the lesson's closed forms") {
    const Stage& stage = stage_under_test();
    int compared = 0;
    for (const AttentionShape& shape : shapes()) {
        if (!why_unsupported(stage, shape).empty()) continue;
        // How large blocks are depends on it in rung 16 alone; the others need what they need.
        const std::size_t kilobytes = stage.name().starts_with("16") && shape.n_q % 2 == 0 ? 60 : 227;
        const WithSharedBytes shared_bytes(kilobytes * 1024);
        const auto form = closed_form(stage.name(), shape, kilobytes * 1024);
        REQUIRE(form);
        const StageCounts counts = count_stage(stage, backward_inputs(shape, Values::normal, test_seed()));
        CAPTURE(attention::to_string(shape));
        CAPTURE(kilobytes);
        CHECK(double(counts.requested_bytes()) == form->requested_bytes);
        CHECK(double(counts.distinct_bytes()) == form->distinct_bytes);
        CHECK(double(counts.work.total().exponentials) == form->exponentials);
        CHECK(double(counts.work.total().divisions) == form->divisions);
        ++compared;
    }
    CHECK(compared >= 9);
}

TEST_CASE("counted: Q, K, V, O, dO and the gradients move in whole sectors") {
    if (emulator::optimised_by_clang) return;  // clang copies a float4 part by part
    const Stage& stage = stage_under_test();
    for (const int head_dim : stage.supports.head_dims) {
        const StageCounts counts = count_stage(stage, backward_inputs(shape_of(2, 100, 200, head_dim), Values::normal, test_seed()));
        for (const char* name : {"Q", "K", "V", "O", "dO", "dQ", "dK", "dV"}) {
            CAPTURE(name);
            CHECK(counts.tensors.at(name).read.coalescing() == 1);
            CHECK(counts.tensors.at(name).written.coalescing() == 1);
        }
    }
}

TEST_CASE("counted: memory beyond inputs and outputs is what the stage asks for, and O(N) but for rung 15") {
    const Stage& stage = stage_under_test();
    const auto peak = [&](int n) {
        const AttentionShape shape = shape_of(2, n, n, 64);
        const StageCounts counts = count_stage(stage, backward_inputs(shape, Values::normal, test_seed()));
        CHECK(counts.peak_scratch_bytes == stage.scratch_bytes(shape));
        return counts.peak_scratch_bytes;
    };
    const std::size_t once = peak(128), twice = peak(256);
    if (stage.name() < "16") CHECK(twice == 4 * once);
    else CHECK(twice <= 2 * once);
}

}  // namespace
}  // namespace flashladder::attention_backward
