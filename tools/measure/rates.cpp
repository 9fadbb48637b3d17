// Prints what an instruction, or a way to add to device memory, does in a clock or in a second, as JSON.
//
//   rates > docs/results/rates.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/device_buffer.h"
#include "harness/timing.h"
#include "launch.h"
#include "rates_kernels.h"
#include "results.h"

namespace flashladder {
namespace {

/// Into targets that fit the L2 cache, and into larger ones.
std::vector<Rate> add_rates() {
    struct Adds {
        Rate rate;
        Way way;
        int blocks, places;
    };
    constexpr int pieces = 1024, largest = 256;  // of a block; MB
    const int blocks = device_attribute(cudaDevAttrMultiProcessorCount);
    std::vector<Adds> all;
    for (const auto& [way, what] :
         {std::pair(Way::bulk_add, "bulk add"), std::pair(Way::atomics, "atomicAdd of float4"),
          std::pair(Way::bulk_store, "bulk store")}) {
        for (const int megabytes : {8, 24, 64, largest})
            all.push_back({{what, fmt::format("{} MB", megabytes), 0, "TB/s"},
                           way,
                           blocks,
                           megabytes * (1 << 20) / piece});
        all.push_back({{what, "8 MB, one block alone", 0, "TB/s"}, way, 1, 8 * (1 << 20) / piece});
    }
    DeviceBuffer target(std::size_t(largest) << 20);
    target.fill(0);
    std::vector<Launch> launches;
    for (const Adds& adds : all)
        launches.push_back([&adds, &target](std::size_t, cudaStream_t stream) {
            launch_adds(adds.way, static_cast<float*>(target.data()), adds.places, adds.blocks, pieces, stream);
        });
    const std::vector<Samples> samples = take_turns(launches, 1);
    std::vector<Rate> rates;
    for (std::size_t i = 0; i < all.size(); ++i) {
        rates.push_back(all[i].rate);
        rates.back().rate = double(piece) * all[i].blocks * pieces / timing_of(samples[i].ms).ms / 1e9;
    }
    return rates;
}

}  // namespace
}  // namespace flashladder

int main(int argc, char** argv) {
    using namespace flashladder;
    CLI::App app("Prints how fast instructions, and adds to device memory, are at best, as JSON.");
    CLI11_PARSE(app, argc, argv);
    try {
        nlohmann::json results = new_results();
        for (const auto& rates : {instruction_rates(), add_rates()})
            for (const Rate& r : rates)
                results["rows"].push_back({{"what", r.what}, {"how", r.how}, {"rate", r.rate}, {"unit", r.unit}});
        note_gpu_state(results);
        fmt::print("{}\n", results.dump(1));
    } catch (const std::exception& error) {
        fmt::print(stderr, "rates: {}\n", error.what());
        return 1;
    }
}
