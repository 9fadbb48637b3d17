// Rung 26 with lists of all blocks is rung 14, to the bit, in the configuration of 14 that has the same tiles.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "harness/run.h"
#include "operations/attention/configurations.h"
#include "operations/attention/operation.h"
#include "operations/attention/stage.h"
#include "operations/block_sparse_attention/operation.h"
#include "operations/block_sparse_attention/plan.h"
#include "operations/block_sparse_attention/stage.h"
#include "suite.h"
#include "test_seed.h"

namespace flashladder::block_sparse_attention {
namespace {

using attention::Configuration;
using attention::Values;

/// As many consumers in a block, and keys in a tile.
const flashladder::Stage& same_tiles(int d) {
    const auto same = std::ranges::find_if(attention::configurations, [d](const Configuration& c) {
        return c.d == d && c.consumers == (d == 64 ? 4 : 2) && c.B_c == (d == 64 ? keys_of_step<64> : keys_of_step<128>) &&
               c.turns && c.schedule == lcsf::Schedule::dynamic;
    });
    REQUIRE(same != attention::configurations.end());
    return attention::find_stage("14-lcsf/" + to_string(*same));
}

TEST_CASE("with all blocks listed, O and LSE have the bits of rung 14") {
    const Stage& sparse = find_stage("26-block-lists");
    std::uint64_t turn = test_seed();
    for (const int d : {64, 128})
        for (const bool causal : {false, true})
            for (int times = 0; times < 3; ++times, ++turn) {
                AttentionShape s{.batch = 2,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .n_q = drawn_length(64, 1, 400, turn),
                                 .n_k = drawn_length(64, 1, 600, turn / 4),
                                 .head_dim = d,
                                 .causal = causal,
                                 .dtype = DType::bf16};
                if (times == 0) s.n_q = 300, s.n_k = 200 + int(turn % 200);  // queries without keys, if causal
                const Data lists = make_inputs(s, make_lists(s, {}), Values::normal, turn, true);
                const Data dense = attention::data_of(attention::make_inputs(s, Values::normal, turn), true);
                const Data found = run(sparse, lists), expected = run(same_tiles(d), dense);
                for (const char* name : {"O", "lse"}) {
                    const auto &a = found.tensors.at(name), &b = expected.tensors.at(name);
                    const auto [wrong, right] = std::ranges::mismatch(a, b);
                    CHECK_MESSAGE((wrong == a.end()), fmt::format("{}[{}] is {}, and rung 14 has {} ({})", name,
                                                                  wrong - a.begin(), *wrong, *right, to_string(s)));
                }
            }
}

}  // namespace
}  // namespace flashladder::block_sparse_attention
