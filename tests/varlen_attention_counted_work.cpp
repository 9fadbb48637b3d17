// What every finished rung of packed sequences must do and no more. Not for chapters, where another way to the right
// result is as good.
#include <doctest/doctest.h>

#include "varlen_attention_suite.h"

namespace flashladder::varlen_attention {
namespace {

TEST_CASE(
    "counted: of K and V the rows of blocks that a task sees, once; of Q and O each row once; matrix instructions") {
    std::mt19937_64 random(test_seed());
    std::vector<std::pair<int, int>> columns{{192, 128}};  // of Q and K, and of V and O
    for (const int d : drawn_head_dims(random))
        columns.emplace_back(d, random() % 2 ? d : drawn_head_dims(random)[random() % 5]);
    for (const auto& [head_dim, value_dim] : columns)
        for (const bool causal : {false, true}) {
            const int n = int(random() % 300), m = int(random() % 300);
            Case c = case_of({n, 0, 130, m, 1}, {n, 50, m, 200, 0}, head_dim, causal, 4, 2);
            c.shape.value_dim = value_dim;
            StageCounts counts = count_stage(stage_under_test(), inputs_of_case(c, Values::normal, random()));
            const Configuration& tiles = tiles_of(c.shape);
            const std::uint64_t row = std::uint64_t(head_dim) * 2, row_of_V = std::uint64_t(value_dim) * 2,
                                keys = loaded_rows(c, tiles), queries = c.shape.lse_elements();
            check_count("bytes of K that are read", counts.tensors["K"].read.requested_bytes, keys * row, c.words());
            check_count("bytes of V that are read", counts.tensors["V"].read.requested_bytes, keys * row_of_V,
                        c.words());
            check_count("bytes of Q that are read", counts.tensors["Q"].read.requested_bytes, queries * row, c.words());
            check_count("bytes of O that are written", counts.tensors["O"].written.requested_bytes, queries * row_of_V,
                        c.words());
            check_count("bytes of LSE that are written", counts.tensors["lse"].written.requested_bytes, queries * 4,
                        c.words());
            check_count("matrix instructions", counts.work.total().matrix_instructions, products(c, tiles), c.words());
            check_count("bytes beyond inputs and outputs", counts.peak_scratch_bytes,
                        stage_under_test().scratch_bytes(c.shape, c.sequences.count()), c.words());
        }
}

}  // namespace
}  // namespace flashladder::varlen_attention
