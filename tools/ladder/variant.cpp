// Writes a variant of a solution: the learner's starter, the solution with one exercise open, or a mutant.
// The build uses it to prove that every exercise and every mutant makes its test fail.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "exercises.h"
#include "files.h"
#include "harness/project_root.h"

namespace flashladder {
namespace {

/// Mutants are an array of {name, replace, with, caught_by, variants, of}: text that occurs once in the solution, the
/// test that fails, and whether it needs the rung's variants. Where the text is that of a header of common/, `of` names
/// it, and the mutant has the header instead of its #include.
std::string make_mutant(std::string_view solution, const std::string& mutants, const std::string& name) {
    for (const auto& mutant : nlohmann::json::parse(read_file(mutants))) {
        if (mutant.at("name") != name) continue;
        const auto broken = [&](std::string_view text) {
            return replace_once(text, mutant.at("replace").get<std::string>(), mutant.at("with").get<std::string>());
        };
        if (!mutant.contains("of")) return broken(solution);
        const std::string header = mutant.at("of"), text = read_file(project_root() + "/common/" + header);
        return replace_once(solution, fmt::format("#include \"{}\"\n", header),
                            replace_once(broken(text), "#pragma once\n", ""));
    }
    throw std::runtime_error(fmt::format("{} has no mutant {}", mutants, name));
}

}  // namespace
}  // namespace flashladder

int main(int argc, char** argv) {
    using namespace flashladder;
    CLI::App app("Writes a starter, a solution with one open exercise, or a mutant of a solution.");
    std::string solution, output, open, mutants, mutant;
    app.add_option("solution", solution, "the finished attention.cu")->required();
    app.add_option("--output", output, "the file to write")->required();
    auto* what = app.add_option_group("what")->require_option(1);
    what->add_option("--open", open, "the exercise to leave open (5.1), or all");
    what->add_option("--mutant", mutant, "the mutant's name");
    app.add_option("--mutants", mutants, "the JSON file that describes it");
    CLI11_PARSE(app, argc, argv);
    try {
        const std::string text = read_file(solution);
        write_file(output, open.empty() ? make_mutant(text, mutants, mutant) : make_starter(text, open));
    } catch (const std::exception& error) {
        fmt::print(stderr, "variant: {}: {}\n", solution, error.what());
        return 1;
    }
}
