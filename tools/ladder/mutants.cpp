#include "mutants.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "exercises.h"
#include "files.h"
#include "harness/project_root.h"

namespace flashladder {

std::vector<std::string> mutant_names(std::string_view mutants) {
    std::vector<std::string> names;
    for (const auto& mutant : nlohmann::json::parse(mutants)) names.push_back(mutant.at("name"));
    return names;
}

std::string make_mutant(std::string_view solution, std::string_view variants, std::string_view mutants,
                        std::string_view name) {
    for (const auto& mutant : nlohmann::json::parse(mutants)) {
        if (mutant.at("name") != name) continue;
        const auto broken = [&](std::string_view text) {
            return replace_once(text, mutant.at("replace").get<std::string>(), mutant.at("with").get<std::string>());
        };
        if (!mutant.contains("of")) return broken(solution);
        if (mutant.at("of") == "variants.cu") return replace_once(broken(variants), "#include FLASHLADDER_RUNG\n", solution);
        const std::string header = mutant.at("of"), text = read_file(project_root() + "/common/" + header);
        return replace_once(solution, fmt::format("#include \"{}\"\n", header),
                            replace_once(broken(text), "#pragma once\n", ""));
    }
    throw std::runtime_error(fmt::format("there is no mutant {}", name));
}

}  // namespace flashladder
