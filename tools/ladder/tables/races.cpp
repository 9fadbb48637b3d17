// The mutants of synchronisation: what the emulator and compute-sanitizer say of them.
#include "families.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "shared.h"
#include "table.h"

namespace flashladder::tables {
namespace {

/// "race 6, deadlock 4": how many seeds have given which report.
std::string kinds_of_report(const nlohmann::json& row) {
    std::string words;
    for (const auto& [kind, seeds] : row.at("kinds").items())
        words += fmt::format("{}{} {}", words.empty() ? "" : ", ", kind, seeds.get<int>());
    return words.empty() ? "nothing" : words;
}

/// What a tool of compute-sanitizer has found.
std::string sanitizer_words(const nlohmann::json& verdict) {
    if (verdict.contains("stopped")) return "hangs";
    const int errors = verdict.at("errors"), warnings = verdict.at("warnings");
    std::string words = errors > 0 ? fmt::format("{} error{}", errors, errors == 1 ? "" : "s") : "";
    if (warnings > 0)
        words += fmt::format("{}{} warning{}", words.empty() ? "" : ", ", warnings, warnings == 1 ? "" : "s");
    return words.empty() ? "nothing" : words;
}

}  // namespace

/// Each mutant: what the emulator says, and, once a GPU has been asked, what compute-sanitizer says.
std::string mutants_table(const nlohmann::json& r, const Arguments& arguments) {
    const std::string file = "docs/results/racecheck.json";
    const nlohmann::json gpu = results(file, arguments);
    std::vector<std::string> header = {"kernel", "without, or with", "emulator: reports by seeds"};
    for (const char* column : {"racecheck", "synccheck", "memcheck", "result on the GPU"})
        if (!gpu.is_null()) header.push_back(column);
    Table table(header);
    for (const auto& row : r.at("rows")) {
        const std::string name = row.at("name"), equivalent = row.at("equivalent");
        const auto dot = name.find('.');
        std::string mutant = dot == std::string::npos ? "(correct)" : name.substr(dot + 1);
        std::replace(mutant.begin(), mutant.end(), '_', ' ');
        std::vector<std::string> cells = {name.substr(0, dot), mutant, kinds_of_report(row)};
        if (!equivalent.empty()) cells.back() += ": " + equivalent;
        for (const auto& measured : gpu.is_null() ? nlohmann::json::array() : gpu.at("rows")) {
            if (measured.at("name") != name) continue;
            for (const char* tool : {"racecheck", "synccheck", "memcheck"})
                cells.push_back(sanitizer_words(measured.at(tool)));
            std::string results;
            for (const auto& result : measured.at("results"))
                results += (results.empty() ? "" : ", ") + result.get<std::string>();
            cells.push_back(results);
        }
        cells.resize(header.size());
        table.add(cells);
    }
    const std::string measured =
        gpu.is_null()
            ? fmt::format("({} is not there yet.)\n", file)
            : fmt::format("compute-sanitizer {} on {}, driver {}, CUDA {}, commit {}, {}; {} runs without it.\n",
                          gpu.at("sanitizer").get<std::string>(), gpu.at("gpu").get<std::string>(),
                          gpu.at("driver").get<std::string>(), gpu.at("cuda").get<std::string>(),
                          gpu.at("commit").get<std::string>(), gpu.at("date").get<std::string>(),
                          gpu.at("runs").get<int>());
    return fmt::format("{}\nThe emulator at commit {}, {}; {} seeds. {}", table.markdown(),
                       r.at("commit").get<std::string>(), r.at("date").get<std::string>(), r.at("seeds").get<int>(),
                       measured);
}

/// The first report that a mutant has given, as it was.
std::string report_block(const nlohmann::json& r, const Arguments& arguments) {
    for (const auto& row : r.at("rows"))
        if (row.at("name") == arguments.at("mutant"))
            return fmt::format("```text\n{}\n```\n", row.at("report").get<std::string>());
    throw std::runtime_error(fmt::format("there is no report of '{}'", arguments.at("mutant")));
}

}  // namespace flashladder::tables
