// The `ladder` program. The script of the same name at the root sets everything up and calls it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <optional>
#include <random>

#include "chapters.h"
#include "docs.h"
#include "run.h"

namespace {

/// --seed, else LADDER_SEED, else a fresh one.
std::uint64_t chosen_seed(const std::optional<std::uint64_t>& given) {
    if (given) return *given;
    if (const char* text = std::getenv("LADDER_SEED")) return std::stoull(text);
    return std::random_device()() % 1000000;
}

}  // namespace

int main(int argc, char** argv) {
    using namespace flashladder;
    CLI::App app("FlashLadder: from a 100-line flash attention kernel to the fastest, rung by rung.");
    app.name("./ladder");
    app.require_subcommand(0, 1);
    std::string chapter, exercise;
    std::optional<std::uint64_t> seed;
    RunOptions run;
    TestOptions test;
    bool check = false, no_timing = false;

    auto* run_verb =
        app.add_subcommand("run", "check every rung against the reference and, on a GPU, time it (the default)");
    run_verb->add_option("--seed", seed, "of the random inputs and of the emulator's order");
    run_verb->add_option("--json", run.json, "write the results to this file");
    run_verb->add_flag("--no-timing", no_timing, "check only");
    auto* list_verb = app.add_subcommand("list", "the rungs, and how far you are");
    auto* test_verb =
        app.add_subcommand("test", "test your chapter (./ladder test 01); without a number: everything but chapters");
    test_verb->add_option("chapter", chapter, "01, or 01-minimal-flash")->required();
    test_verb->add_flag("--solution", test.solution, "test the finished rung instead of yours");
    test_verb->add_option("--seed", seed, "of the random inputs and of the emulator's order");
    test_verb->add_option("--seeds", test.seeds, "repeat with so many seeds")->check(CLI::PositiveNumber);
    test_verb->add_flag("--verbose", test.verbose, "show the test program's whole output");
    auto* hint_verb = app.add_subcommand("hint", "a hint for an exercise (./ladder hint 1.2)");
    hint_verb->add_option("exercise", exercise, "1.2")->required();
    auto* solve_verb = app.add_subcommand("solve", "put the solution into your chapter; your version is kept");
    solve_verb->add_option("chapter", chapter, "01, or 01-minimal-flash")->required();
    auto* reset_verb = app.add_subcommand("reset", "put the starter into your chapter; your version is kept");
    reset_verb->add_option("chapter", chapter, "01, or 01-minimal-flash")->required();
    auto* docs_verb = app.add_subcommand("docs", "make the tables in README and lessons anew from docs/results");
    docs_verb->add_flag("--check", check, "change nothing; fail if a table or a starter is stale");
    CLI11_PARSE(app, argc, argv);

    try {
        run.seed = test.seed = chosen_seed(seed);
        run.timing = !no_timing;
        if (*list_verb) return list_chapters();
        if (*test_verb) return test_chapter(find_chapter(chapter), test);
        if (*hint_verb) return show_hint(exercise);
        if (*solve_verb) return solve_chapter(find_chapter(chapter));
        if (*reset_verb) return reset_chapter(find_chapter(chapter));
        if (*docs_verb) return check ? check_docs() : write_docs();
        return run_ladder(run);
    } catch (const std::exception& error) {
        fmt::print(stderr, "ladder: {}\n", error.what());
        return 1;
    }
}
