// Writes a variant of a solution: the learner's starter, the solution with one exercise open, or a mutant.
// The build uses it to prove that every exercise and every mutant makes its test fail.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "exercises.h"
#include "files.h"
#include "mutants.h"

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
        const std::filesystem::path variants = std::filesystem::path(solution).replace_filename("variants.cu");
        write_file(output, !open.empty() ? make_starter(text, open)
                                         : make_mutant(text, exists(variants) ? read_file(variants.string()) : "",
                                                       read_file(mutants), mutant));
    } catch (const std::exception& error) {
        fmt::print(stderr, "variant: {}: {}\n", solution, error.what());
        return 1;
    }
}
