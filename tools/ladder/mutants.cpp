#include "mutants.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "exercises.h"
#include "files.h"
#include "harness/project_root.h"

namespace flashladder {

namespace {

std::string include_of(std::string_view header) { return fmt::format("#include \"{}\"\n", header); }
/// Of a header in common/, to be pasted.
std::string text_of(const std::string& header) {
    return replace_once(read_file(project_root() + "/common/" + header), "#pragma once\n", "");
}
/// Those in common/ that a text includes.
std::vector<std::string> headers_of(std::string_view text) {
    std::vector<std::string> headers;
    const std::string begin = "#include \"";
    for (std::size_t at = text.find(begin); at != std::string_view::npos; at = text.find(begin, at + 1)) {
        const std::size_t from = at + begin.size();
        headers.emplace_back(text.substr(from, text.find('"', from) - from));
    }
    return headers;
}

}  // namespace

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
        const std::string header = mutant.at("of"), line = include_of(header);
        std::string text = replace_once(solution, line, broken(text_of(header)));
        for (const std::string& other : headers_of(solution))  // those that include it too would have it as it is
            if (const std::string theirs = text_of(other); other != header && theirs.find(line) != std::string::npos)
                text = replace_once(text, include_of(other), replace_once(theirs, line, ""));
        return text;
    }
    throw std::runtime_error(fmt::format("there is no mutant {}", name));
}

}  // namespace flashladder
