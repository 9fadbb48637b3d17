// What every finished rung must do and no more: its counted work is what its lesson's arithmetic says. Not for
// chapters, where another way to the right result is as good.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>

#include "emulator/emulator.h"
#include "operations/attention/closed_forms.h"
#include "operations/attention/counts.h"
#include "attention_suite.h"

namespace flashladder::attention {
namespace {

struct Case {
    AttentionShape shape;
    std::size_t shared_kilobytes = 227;
    bool lse = false;
};

std::vector<Case> cases() {
    std::mt19937_64 random(test_seed());
    const auto draw = [&](int most) { return 1 + static_cast<int>(random() % static_cast<unsigned>(most)); };
    std::vector<Case> all = {{shape_of(1, 128, 128, 64)},     {shape_of(2, 256, 256, 64)},
                             {shape_of(1, 100, 257, 64)},     {shape_of(1, 33, 300, 128)},
                             {shape_of(1, 96, 520, 64), 160}, {shape_of(1, 64, 300, 128), 100},
                             {shape_of(3, 1, 1, 64)},         {shape_of(1, 200, 200, 64), 227, true},
                             {shape_of(2, 3, 1300, 64)}};
    for (int i = 0; i < 4; ++i) {
        Case random_case{shape_of(draw(3), draw(200), draw(400), i % 2 ? 128 : 64),
                         i < 2 ? std::size_t(227) : std::size_t(120)};
        random_case.shape.batch = draw(2);
        all.push_back(random_case);
    }
    for (const auto& [n_q, n_k] : {std::pair(200, 200), {100, 300}, {300, 100}, {512, 512}}) {
        Case causal{shape_of(1, n_q, n_k, 64)};
        causal.shape.causal = true;
        all.push_back(causal);
    }
    Case grouped{shape_of(6, 70, 150, 64)};
    grouped.shape.kv_heads = 2;
    all.push_back(grouped);
    grouped.shape.n_q = 5, grouped.shape.n_k = 1200, grouped.shape.causal = true;
    all.push_back(grouped);
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
    for (const auto& [shape, asked_kilobytes, lse] : cases()) {
        if (!why_unsupported(stage, shape, lse).empty()) continue;
        // What there is matters to rung 02 alone, whose tiles depend on it. From 10 on the kernels need most of it.
        const std::size_t kilobytes = stage.name() < "08" ? asked_kilobytes : 227;
        const WithSharedBytes shared_bytes(kilobytes * 1024);
        const auto form = closed_form(stage.name(), shape, kilobytes * 1024, lse);
        REQUIRE(form);
        const StageCounts counts = count_stage(stage, make_inputs(shape, Values::normal, test_seed()), lse);
        CAPTURE(to_string(shape));
        CAPTURE(kilobytes);
        CHECK(double(counts.requested_bytes()) == form->requested_bytes);
        CHECK(double(counts.distinct_bytes()) == form->distinct_bytes);
        CHECK(double(counts.work.total().exponentials) == form->exponentials);
        if (emulator::optimised_by_clang)  // divides ahead of conditions, and by constants
            CHECK(double(counts.work.total().divisions) >= form->divisions);
        else
            CHECK(double(counts.work.total().divisions) == form->divisions);
        ++compared;
    }
    CHECK(compared >= 10);
}

TEST_CASE("counted: from rung 02 on, Q, K, V and O move in whole sectors") {
    const Stage& stage = stage_under_test();
    if (stage.name() < "02" || emulator::optimised_by_clang) return;  // clang copies a float4 part by part
    for (const int head_dim : stage.supports.head_dims) {
        const StageCounts counts =
            count_stage(stage, make_inputs(shape_of(2, 100, 300, head_dim), Values::normal, test_seed()));
        for (const char* name : {"Q", "K", "V", "O"}) {
            CAPTURE(name);
            CHECK(counts.tensors.at(name).read.coalescing() == 1);
            CHECK(counts.tensors.at(name).written.coalescing() == 1);
        }
    }
}

TEST_CASE("counted: memory beyond inputs and outputs is what the stage asks for, and O(N) but for rung 00") {
    const Stage& stage = stage_under_test();
    const auto peak = [&](int n) {
        const AttentionShape shape = shape_of(2, n, n, 64);
        const StageCounts counts = count_stage(stage, make_inputs(shape, Values::normal, test_seed()));
        CHECK(counts.peak_scratch_bytes == stage.scratch_bytes(shape));
        return counts.peak_scratch_bytes;
    };
    const std::size_t once = peak(128), twice = peak(256);
    if (stage.name() < "01") CHECK(twice == 4 * once);
    else CHECK(twice <= 2 * once);  // some need a fixed amount, or none
}

}  // namespace
}  // namespace flashladder::attention
