// What every finished rung of paged attention must do and no more: it loads what sequences have. Not for chapters,
// where another way to the right result is as good.
#include <doctest/doctest.h>

#include "paged_attention_suite.h"

namespace flashladder::paged_attention {
namespace {

TEST_CASE("counted: of K and V the rows of pages that sequences have, once for each tile of queries; an entry a box") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.head_dims)
        for (const int page_size : {16, 64, 256}) {
            const Case c = case_of(random, {int(random() % 700), 0, int(random() % 300)}, page_size, head_dim,
                                   1 + int(random() % 9), random() % 2, 12, 2);
            StageCounts counts = count_stage(stage_under_test(), inputs_of_case(c, Values::normal, random()));
            const std::uint64_t row = std::uint64_t(head_dim) * 2, keys = loaded_rows(c),
                                queries = c.shape.lse_elements();
            check_count("bytes of K that are read", counts.tensors["K"].read.requested_bytes, keys * row, c.words());
            check_count("bytes of V that are read", counts.tensors["V"].read.requested_bytes, keys * row, c.words());
            check_count("bytes of the block table that are read", counts.tensors["block_table"].read.requested_bytes,
                        2 * 4 * boxes_with_keys(c), c.words());
            check_count("bytes of O that are written", counts.tensors["O"].written.requested_bytes, queries * row,
                        c.words());
            check_count("bytes of LSE that are written", counts.tensors["lse"].written.requested_bytes, queries * 4,
                        c.words());
            check_count("bytes beyond inputs and outputs", counts.peak_scratch_bytes,
                        stage_under_test().scratch_bytes(c.shape), c.words());
        }
}

}  // namespace
}  // namespace flashladder::paged_attention
