// What the profiler and the machine code say of kernels.
#include "families.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "cost_model.h"
#include "shared.h"
#include "table.h"

namespace flashladder::tables {
namespace {

std::string profiler_caption(const nlohmann::json& r) {
    return fmt::format("{}, driver {}, {}, commit {}, {}.\n", r.at("gpu").get<std::string>(),
                       r.at("driver").get<std::string>(), r.at("profiler").get<std::string>(),
                       r.at("commit").get<std::string>(), r.at("date").get<std::string>());
}

/// The clocks of the rungs, and those that their work takes by itself at the rates of sm_90.
std::string clocks_table(const nlohmann::json& r) {
    const double multiprocessors = r.at("multiprocessors");
    const Card& card = find_card("H100");  // an H200 has the same multiprocessors
    Table table({"problem", "", "measured", "products", "of the measured", "exponentials", "instructions"});
    for (const auto& row : r.at("rows")) {
        const std::string stage = row.at("stage");
        if (stage.find('/') != std::string::npos) continue;
        const auto& s = row.at("shape");
        const double scores = s.at("batch").get<double>() * s.at("heads").get<double>() * s.at("n_q").get<double>() *
                              s.at("n_k").get<double>() / (s.at("causal").get<bool>() ? 2 : 1);
        const double products = 4 * scores * s.at("head_dim").get<double>() / card.tensor_flops / multiprocessors;
        const double measured = row.at("busy").at("cycles"), instructions = row.at("busy").at("instructions");
        const auto thousands = [](double clocks) { return fmt::format("{:.0f}", clocks / 1e3); };
        table.add({problem_words(s), column_of(stage), thousands(measured), thousands(products),
                   percent(products, measured), thousands(scores / card.xu / multiprocessors),
                   thousands(instructions / 4 / multiprocessors)});
    }
    return fmt::format("{}\nThousands of clocks; under the mask the least that is to be done. {}", table.markdown(),
                       profiler_caption(r));
}

}  // namespace

/// Instructions of a warp in the unmasked loop of rung 13, by variant, and of rung 14.
std::string loops_table(const nlohmann::json& r, const Arguments&) {
    std::vector<std::string> header = {"d", "", "a step", "for each element of S"};
    for (const auto& [kind, n] : r.at("rows").at(0).at("kinds").items()) header.push_back(kind);
    header.push_back("others");
    Table table(header);
    for (const auto& row : r.at("rows")) {
        const std::string variant = row.at("variant");
        const int all = row.at("instructions"), elements = row.at("B_c").get<int>() / 2;  // of a lane
        std::vector<std::string> cells = {row.at("d").dump(), variant.empty() ? "rung 13" : variant,
                                          fmt::format("{}", all), fmt::format("{:.2f}", double(all) / elements)};
        int others = all;
        for (const auto& [kind, n] : row.at("kinds").items()) {
            cells.push_back(n.dump());
            others -= n.get<int>();
        }
        cells.push_back(fmt::format("{}", others));
        table.add(cells);
    }
    return fmt::format(
        "{}\nInstructions of a warp, bf16, not causal; counted in the machine code of nvcc {} for {}, the shortest way "
        "around the loop.\n",
        table.markdown(), r.at("nvcc").get<std::string>(), r.at("architecture").get<std::string>());
}

/// What a rung and its variants, or without a rung all of them, keep busy and what their warps wait for.
std::string pipes_table(const nlohmann::json& r, const Arguments& arguments) {
    if (arguments.contains("clocks")) return clocks_table(r);
    const bool one = arguments.contains("rung");
    Table table({"problem", "", "tensor cores", "issue slots", "FMA", "ALU", "XU", "HBM, GB/s", "HBM, L2, mbarriers",
                 "shared memory, XU", "barriers"});
    for (const auto& row : r.at("rows")) {
        const std::string stage = row.at("stage");
        const bool is_variant = stage.find('/') != std::string::npos;
        if (one ? !stage.starts_with(arguments.at("rung")) : is_variant) continue;
        const auto& shape = row.at("shape");
        const auto& busy = row.at("busy");
        const auto number = [&](const char* what, const char* unit, int digits) {
            return busy.contains(what) ? fmt::format("{:.{}f}{}", busy.at(what).get<double>(), digits, unit) : "";
        };
        const bool timed_bytes = busy.contains("HBM bytes") && busy.contains("microseconds");
        table.add({problem_words(shape),
                   is_variant ? stage.substr(stage.find('/') + 1) : column_of(stage), number("tensor %", "%", 1),
                   number("issue slots %", "%", 1), number("FMA %", "%", 1), number("ALU %", "%", 1),
                   number("XU %", "%", 1),
                   timed_bytes ? fmt::format("{:.0f}", busy.at("HBM bytes").get<double>() / 1e3 /
                                                           busy.at("microseconds").get<double>())
                               : "",
                   number("warps that wait for device memory or mbarriers", "", 2),
                   number("warps that wait for shared memory or exponentials", "", 2),
                   number("warps that wait at barriers", "", 2)});
    }
    return fmt::format("{}\nBusy parts of the active cycles: FMA multiplies and adds, ALU compares and converts, XU has the "
                       "exponentials. Last three: warps of a quarter of a multiprocessor that wait for it when one "
                       "issues. {}",
                       table.markdown(), profiler_caption(r));
}

/// Kernel by kernel: what the profiler said and what the emulator counted, which is in the file named.
std::string profiler_table(const nlohmann::json& gpu, const Arguments& arguments) {
    const nlohmann::json emulated = results(arguments.at("emulator"), arguments);
    Table table({"program", "kernel", "", "profiler", "emulator", "difference"});
    for (const auto& [program, launches] : gpu.at("programs").items()) {
        const auto& counted_launches = emulated.at("programs").at(program);
        if (launches.size() != counted_launches.size())
            throw std::runtime_error(fmt::format("{}: {} launches on the GPU, {} on the emulator", program,
                                                 launches.size(), counted_launches.size()));
        for (std::size_t i = 0; i < launches.size(); ++i)
            for (const auto& [what, count] : launches[i].at("counts").items()) {
                const double profiled = count, counted = counted_launches[i].at("counts").at(what);
                if (profiled == 0 && counted == 0) continue;
                std::string words = what;
                std::replace(words.begin(), words.end(), '_', ' ');
                table.add({program, fmt::format("`{}`", launches[i].at("kernel").get<std::string>()), words,
                           fmt::format("{:.0f}", profiled), fmt::format("{:.0f}", counted),
                           profiled == 0 ? "" : fmt::format("{:+.1f}%", 100 * (counted - profiled) / profiled)});
            }
    }
    return fmt::format("{}\n{}, driver {}, {}, commit {}, {}; emulator at commit {}.\n", table.markdown(),
                       gpu.at("gpu").get<std::string>(), gpu.at("driver").get<std::string>(),
                       gpu.at("profiler").get<std::string>(), gpu.at("commit").get<std::string>(),
                       gpu.at("date").get<std::string>(), emulated.at("commit").get<std::string>());
}

}  // namespace flashladder::tables
