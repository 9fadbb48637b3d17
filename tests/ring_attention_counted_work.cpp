// What every finished rung of ring attention must do and no more. Not for chapters, where another way to the right
// result is as good.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "ring_attention_suite.h"

namespace flashladder::ring_attention {
namespace {

TEST_CASE("counted: K and V are sent to each other rank once; a zigzag's rounds cost all ranks the same") {
    std::mt19937_64 random(test_seed());
    for (const int head_dim : stage_under_test().supports.head_dims)
        for (const bool causal : {false, true})
            for (const int ranks : {1, 2, 3}) {
                // Chunks of as many rows as all tiles have room for: no tile is used in part.
                const Case c = case_of(ranks, causal ? 768 : 384, head_dim, causal);
                if (ranks == 3 && !takes_combination(random(), 2)) continue;
                const Data data = data_of(attention::make_inputs(c.shape, Values::normal, random()), ranks, true);
                double sent = 0;
                StageCounts counts;
                const emulator::StreamLog log =
                    emulator::log_streams([&] { counts = count_stage(stage_under_test(), data); });
                for (const emulator::StreamWork& work : log.works)
                    if (work.name == "cudaMemcpyPeerAsync") sent += double(work.bytes);
                check_count("bytes of K and V that go from rank to rank", std::uint64_t(sent),
                            std::uint64_t(sent_bytes(c.shape, ranks)), c.words());
                const std::uint64_t rows = c.shape.lse_elements(), d = std::uint64_t(head_dim);
                check_count("bytes of O that are written, some of them twice where a tile has rows of both halves",
                            counts.tensors["O"].written.requested_bytes, rows * d * 2, c.words());
                check_count("bytes of LSE that are written", counts.tensors["lse"].written.requested_bytes, rows * 4,
                            c.words());
                check_count("bytes beyond inputs and outputs", counts.peak_scratch_bytes,
                            stage_under_test().scratch_bytes(data.problem), c.words());
            }
}

}  // namespace
}  // namespace flashladder::ring_attention
