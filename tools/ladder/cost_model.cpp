#include "cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace flashladder {
namespace {

using Json = nlohmann::json;

// What the model takes for granted, in the range of what is published: an empty kernel that follows another one, and
// a barrier that all threads reach at once.
constexpr double launch_microseconds = 2, barrier_clocks = 30;
constexpr double sector_bytes = 32;
/// Of the rate of wgmma, where there is wgmma: measured (docs/results/rates.json).
constexpr double rate_of_mma = 2.0 / 3;

/// The sum of a count over kinds of access, of device or of shared memory.
double sum(const Json& work, const char* memory, const char* count, const std::vector<std::string>& kinds = {}) {
    double all = 0;
    const Json of = work.value(memory, Json::object());
    for (const auto& [kind, counted] : of.items())
        if (kinds.empty() || std::find(kinds.begin(), kinds.end(), kind) != kinds.end())
            all += counted.at(count).get<double>();
    return all;
}

std::vector<Cost> costs_of(const Card& card, const Json& launch, double matrix_fma, DType dtype) {
    const Json& work = launch.at("work");
    const double multiprocessors = card.multiprocessors, exponentials = work.value("exponentials", 0.0);
    const double flops = work.value("matrix_flops", 0.0);
    const bool by_mma = card.has_wgmma && sum(work, "shared", "wavefronts", {"wgmma_operand"}) == 0;
    // L1 is where loads, stores and cp.async pass; TMA goes around it, and writes to shared memory in whole wavefronts.
    const double through_l1 =
        sum(work, "global", "sectors", {"read", "write", "atomic", "cp_async"}) * sector_bytes;
    const double by_tma = sum(work, "global", "requested_bytes", {"tma_load", "tma_store", "tma_reduce"});
    const double distinct =
        launch.at("distinct_read_bytes").get<double>() + launch.at("distinct_written_bytes").get<double>();
    return {{"HBM", distinct / (card.memory_gb_s / card.clock_ghz)},
            {"L2", sum(work, "global", "sectors") * sector_bytes / card.l2_bytes},
            {"L1", through_l1 / (multiprocessors * card.l1_bytes)},
            {"shared memory",
             (sum(work, "shared", "wavefronts") * 128 + by_tma) / (multiprocessors * card.shared_bytes)},
            {"tensor cores", flops / (multiprocessors * card.tensor_flops * (by_mma ? rate_of_mma : 1))},
            {"FMA", (2 * exponentials + matrix_fma) / (multiprocessors * card.fma)},
            {"ALU", exponentials * (dtype == DType::f32 ? 1 : 1.5) / (multiprocessors * card.alu)},
            {"XU", (exponentials + work.value("divisions", 0.0)) / (multiprocessors * card.xu)}};
}

/// Of a multiprocessor, as far as threads and dynamic shared memory go: while one waits at a barrier, others compute.
double blocks_beside_each_other(const Card& card, const Json& launch) {
    double threads = 1;
    for (const auto& n : launch.at("block")) threads *= n.get<double>();
    const double shared = launch.value("dynamic_shared_bytes", 0.0) + 1024;  // each block costs that much more
    return std::max(1.0, std::floor(std::min({32.0, 2048 / threads, card.shared_memory / shared})));
}

}  // namespace

const std::vector<Card>& cards() {
    static const std::vector<Card> all = {
        {.name = "H100", .multiprocessors = 132, .clock_ghz = 1.83, .memory_gb_s = 3350, .l2_bytes = 5120,
         .tensor_flops = 4096, .fma = 128, .shared_memory = 228 << 10, .has_wgmma = true},
        {.name = "H200", .multiprocessors = 132, .clock_ghz = 1.83, .memory_gb_s = 4800, .l2_bytes = 5120,
         .tensor_flops = 4096, .fma = 128, .shared_memory = 228 << 10, .has_wgmma = true},
        {.name = "A100", .multiprocessors = 108, .clock_ghz = 1.41, .memory_gb_s = 2039, .l2_bytes = 5120,
         .tensor_flops = 2048, .fma = 64, .shared_memory = 164 << 10},
    };
    return all;
}

const Card& find_card(std::string_view name) {
    std::string names;
    for (const Card& card : cards()) {
        if (card.name == name) return card;
        names += (names.empty() ? "" : ", ") + card.name;
    }
    throw std::invalid_argument(fmt::format("no card '{}'; there are {}", name, names));
}

const Cost& ModelledCosts::bound() const {
    return *std::max_element(units.begin(), units.end(), [](auto& a, auto& b) { return a.clocks < b.clocks; });
}

ModelledCosts model_costs(const Card& card, double flops, DType dtype, const Json& counts, double copies) {
    const Json& launches = counts.at("launches");
    // Without tensor cores the products are those of all launches that have no exponentials, or of the only one.
    const auto has_products = [&](const Json& launch) {
        return launches.size() == 1 || launch.at("work").value("exponentials", 0.0) == 0;
    };
    const double with_products = double(std::count_if(launches.begin(), launches.end(), has_products));
    const bool tensor_cores = std::any_of(launches.begin(), launches.end(), [](const Json& launch) {
        return launch.at("work").value("matrix_flops", 0.0) > 0;
    });
    ModelledCosts all;
    for (const Json& launch : launches) {
        const double matrix_fma = tensor_cores || !has_products(launch) ? 0 : flops / 2 / with_products;
        auto costs = costs_of(card, launch, matrix_fma, dtype);
        double busiest = 0;
        for (std::size_t i = 0; i < costs.size(); ++i) {
            costs[i].clocks *= copies;
            busiest = std::max(busiest, costs[i].clocks);
            if (all.units.size() < costs.size()) all.units.push_back({costs[i].unit, 0});
            all.units[i].clocks += costs[i].clocks;
        }
        all.busiest += busiest;
        all.setup += launch_microseconds * 1e3 * card.clock_ghz;
        all.sync += copies * barrier_clocks * launch.at("work").value("barriers", 0.0) / card.multiprocessors /
                    blocks_beside_each_other(card, launch);
    }
    return all;
}

double copies_that_fill(const Card& card, const Json& counts) {
    double blocks = 1;
    for (const Json& launch : counts.at("launches")) {
        double grid = 1;
        for (const auto& n : launch.at("grid")) grid *= n.get<double>();
        blocks = std::max(blocks, grid);
    }
    return std::ceil(10 * card.multiprocessors / blocks);
}

}  // namespace flashladder
