// What every finished rung of block-sparse attention must do and no more: it loads what is listed. Not for chapters,
// where another way to the right result is as good.
#include <doctest/doctest.h>

#include "block_sparse_attention_suite.h"

namespace flashladder::block_sparse_attention {
namespace {

TEST_CASE("counted: of K and V the rows of listed blocks, once for each block of queries; of Q and O each row once") {
    std::mt19937_64 random(test_seed());
    std::uint64_t turn = test_seed();
    for (const int head_dim : stage_under_test().supports.head_dims)
        for (const bool causal : {false, true})
            for (int times = 0; times < 3; ++times, ++turn) {
                AttentionShape s = shape_of(1 + int(random() % 3), drawn_length(64, 1, 300, turn),
                                            drawn_length(64, 1, 600, turn / 4), head_dim, causal);
                s.batch = 1 + int(random() % 2);
                const Lists lists = drawn_lists(random, s, random() % 2);
                StageCounts counts = counts_of(s, lists);
                const std::string where = words(s, lists);
                const std::uint64_t row = std::uint64_t(head_dim) * 2, keys = listed_keys(s, lists),
                                    queries = s.lse_elements();
                check_count("bytes of K that are read", counts.tensors["K"].read.requested_bytes, keys * row, where);
                check_count("bytes of V that are read", counts.tensors["V"].read.requested_bytes, keys * row, where);
                check_count("bytes of Q that are read", counts.tensors["Q"].read.requested_bytes, queries * row, where);
                check_count("bytes of O that are written", counts.tensors["O"].written.requested_bytes, queries * row,
                            where);
                check_count("bytes of LSE that are written", counts.tensors["lse"].written.requested_bytes, queries * 4,
                            where);
                check_count("bytes beyond inputs and outputs", counts.peak_scratch_bytes,
                            stage_under_test().scratch_bytes(s), where);
            }
}

}  // namespace
}  // namespace flashladder::block_sparse_attention
