// What instructions, and ways to add to device memory, do at best: tools/measure/rates.
#include "families.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cost_model.h"
#include "shared.h"
#include "table.h"

namespace flashladder::tables {
namespace {

std::string rates_caption(const nlohmann::json& r, const char* what) {
    return fmt::format("{}; {}, driver {}, CUDA {}, commit {}, {}.\n", what, r.at("gpu").get<std::string>(),
                       r.at("driver").get<std::string>(), r.at("cuda").get<std::string>(),
                       r.at("commit").get<std::string>(), r.at("date").get<std::string>());
}

}  // namespace

/// Instructions, beside the rate that the model takes for their unit.
std::string rates_table(const nlohmann::json& r, const Arguments&) {
    const Card& card = find_card("H100");  // an H200 has the same multiprocessors
    Table table({"instruction", "", "operations a clock", "of the unit's rate"});
    for (const auto& row : r.at("rows")) {
        if (row.at("unit") != "operations/clock") continue;
        const std::string what = row.at("what");
        const double rate = row.at("rate");
        table.add({"`" + what + "`", row.at("how"), fmt::format("{:.{}f}", rate, rate < 100 ? 1 : 0),
                   percent(rate, what == "ex2" ? card.xu : card.tensor_flops)});
    }
    return table.markdown() + "\n" + rates_caption(r, "All multiprocessors at work, numbers for one of them, the median");
}

/// Adds and stores, a line for each size of what they go to.
std::string adds_table(const nlohmann::json& r, const Arguments&) {
    Pivot pivot{{"into"}};
    for (const auto& row : r.at("rows"))
        if (row.at("unit") == "TB/s") {
            const double rate = row.at("rate");
            pivot.add({row.at("how")}, row.at("what"), fmt::format("{:.{}f}", rate, rate < 1 ? 3 : 2));
        }
    return pivot.markdown() + "\n" + rates_caption(r, "TB/s of float, in pieces of 16 KB, a block of 128 threads on each multiprocessor");
}

}  // namespace flashladder::tables
