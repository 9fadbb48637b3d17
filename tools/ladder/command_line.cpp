#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <random>
#include <string_view>

#include "given_sizes.h"
#include "harness/whole_number.h"

namespace flashladder {
namespace {

std::uint64_t chosen_seed(const std::optional<std::uint64_t>& given) {
    if (given) return *given;
    constexpr const char* name = "LADDER_SEED";
    if (const char* text = std::getenv(name); text && *text) return whole_number(name, text);
    return std::random_device()() % 1000000;
}

}  // namespace

CommandLine parse(int argc, char** argv) {
    CLI::App app("FlashLadder: from a 100-line flash attention kernel to the fastest, rung by rung.");
    app.name("./ladder");
    app.require_subcommand(0, 1);
    app.footer(
        "./ladder install installs what is missing, and no more. ./ladder site builds the web site and serves it, with\n"
        "--build it only builds. --backend cpu or gpu stands anywhere.");
    CommandLine line;
    std::optional<std::uint64_t> seed;
    bool no_timing = false;

    const auto add_seed = [&](CLI::App* verb) {
        verb->add_option("--seed", seed, "of the random inputs and of the emulator's order");
    };
    const auto add_chapter = [&](CLI::App* verb) {
        verb->add_option("chapter", line.chapter, "01, or 01-minimal-flash")->required();
    };
    auto* run =
        app.add_subcommand("run", "check every rung against the reference and, on a GPU, time it (the default)");
    add_seed(run);
    run->add_option("--json", line.run.json, "write the results to this file");
    run->add_flag("--no-timing", no_timing, "check only");
    run->add_option("--operation", line.run.operation, "the rungs of this one alone: attention, gemm, ...");
    app.add_subcommand("list", "the rungs, how far you are by exercise, and what is next");
    auto* test =
        app.add_subcommand("test", "test your chapter (./ladder test 01); without a number: everything but chapters");
    add_chapter(test);
    test->add_flag("--solution", line.test.solution, "test the finished rung instead of yours");
    add_seed(test);
    test->add_option("--seeds", line.test.seeds, "repeat with so many seeds")->check(CLI::PositiveNumber);
    test->add_flag("--verbose", line.test.verbose, "show the test program's whole output");
    auto* watch = app.add_subcommand("watch", "test your chapter after every save (./ladder watch 01); Ctrl-C ends it");
    add_chapter(watch);
    add_seed(watch);
    auto* hint = app.add_subcommand("hint", "a hint for an exercise (./ladder hint 1.2)");
    hint->add_option("exercise", line.exercise, "1.2")->required();
    add_chapter(app.add_subcommand("solve", "put the solution into your chapter; your version is kept"));
    add_chapter(app.add_subcommand("reset", "put the starter into your chapter; your version is kept"));
    auto* diff = app.add_subcommand("diff", "what a rung changes in the one below (./ladder diff 03)");
    add_chapter(diff);
    diff->add_flag("--answers", line.answers, "with the answers of its exercises, also before your chapter is green");
    auto* check = app.add_subcommand(
        "check", "your own CUDA program, with its main(), on the emulator: races, bad accesses, counts by source line");
    check->add_option("files", line.check_program.files, "FILE.cu, and others that belong to it")->required();
    check->add_option("-I", line.check_program.include_folders, "a folder with headers")->allow_extra_args(false);
    check->add_option("-D", line.check_program.definitions, "a macro: NAME or NAME=value")->allow_extra_args(false);
    check->add_option("--seeds", line.check_program.seeds, "run with so many seeds, up to the first that fails")
        ->check(CLI::PositiveNumber);
    check->add_flag("!--no-races", line.check_program.races, "do not look for races");
    check->add_flag("!--no-counts", line.check_program.counts, "do not count");
    check->add_option("--lines", line.check_program.lines, "so many source lines")->capture_default_str();
    check->footer("Behind -- come the arguments of the program itself.");
    add_seed(check);
    auto* profile = app.add_subcommand(
        "profile",
        "what a rung asks of memory and arithmetic, by kernel, tensor and source line; what that costs by a model");
    add_chapter(profile);
    // Sizes of problems, of all operations: --n is what the chapter's operation calls so.
    GivenOptions given;
    const auto add_sizes = [&](CLI::App* verb) { given.add_to(verb); };
    add_sizes(profile);
    profile->add_flag("--lse,--extras", line.profile.extras, "ask for what a stage need not give, too: LSE");
    profile->add_option("--shared", line.profile.shared_bytes,
                        "bytes of shared memory that a block of the virtual GPU may have");
    profile->add_option("--lines", line.profile.lines, "so many source lines")->capture_default_str();
    profile->add_option("--card", line.profile.card, "that the model is of")->capture_default_str();
    profile
        ->add_option("--copies", line.profile.copies,
                     "for the model: so many such problems; without it, as fill the card")
        ->check(CLI::PositiveNumber);
    profile->add_option("--roofline", line.profile.roofline, "draw the roofline, and where this is under it, as SVG");
    profile->add_option("--page", line.profile.page,
                        "write a page of HTML to this file: the source, its lines coloured by what they ask for");
    profile->add_option("--json", line.profile.json, "write the counts and costs to this file");
    profile->add_flag("--mine", line.profile.mine, "your chapter beside the solution");
    add_seed(profile);
    auto* timeline = app.add_subcommand(
        "timeline", "who does what when in one block of a rung: its order on the emulator, nanoseconds on a GPU");
    add_chapter(timeline);
    add_sizes(timeline);
    timeline->add_option("--block", line.timeline.block, "of the grid, x fastest")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    timeline->add_option("--trace", line.timeline.trace, "write it to this file, which Chrome and Perfetto open");
    timeline->add_option("--svg", line.timeline.svg, "draw it");
    timeline->add_option("--page", line.timeline.page, "write a page of HTML to this file: the timeline, to zoom in");
    timeline->add_flag("--mine", line.timeline.mine, "of your chapter, not of the solution");
    add_seed(timeline);
    auto* launch =
        app.add_subcommand("launch", "run a rung once, on one problem, and check it; with --mine your chapter");
    add_chapter(launch);
    add_sizes(launch);
    launch->add_flag("--mine", line.launch.mine, "your chapter, not the solution");
    add_seed(launch);
    auto* bench = app.add_subcommand(
        "bench", "time rungs beside each other (./ladder bench 11 13 --d 128); without a GPU, their counted work");
    bench->add_option("rungs", line.bench.rungs, "01, or 01-minimal-flash; without any: all");
    add_sizes(bench);
    bench->add_option("--dtype", line.bench.dtype, "f32, bf16 or f16; without it each rung's own");
    bench->add_option("--json", line.bench.json, "write the results to this file");
    bench->add_flag("--mine", line.bench.mine, "your chapter beside the solution, of one rung");
    add_seed(bench);
    auto* count = app.add_subcommand("count", "the counted work of every rung, for docs/results/counts.json");
    count->add_option("rungs", line.rungs, "01, or 01-minimal-flash; without any: all");
    count->add_option("--json", line.json, "write the counts to this file");
    count->add_option("--check", line.check_json, "fail if this file is not what is counted now");
    count->add_option("--sample", line.check_sample, "of --check: so many rows alone, drawn")->check(CLI::PositiveNumber);
    auto* docs = app.add_subcommand("docs", "make the tables in README and lessons anew from docs/results");
    docs->add_flag("--check", line.check, "change nothing; fail if a table or a starter is stale");

    // What stands behind -- is the checked program's own.
    char** const own = argc > 1 && argv[1] == std::string_view("check") ? std::find(argv, argv + argc, std::string_view("--"))
                                                                        : argv + argc;
    if (own != argv + argc) line.check_program.arguments.assign(own + 1, argv + argc);
    try {
        app.parse(static_cast<int>(own - argv), argv);
    } catch (const CLI::ParseError& error) {
        line.exit_status = app.exit(error);
        return line;
    }
    if (const auto verbs = app.get_subcommands(); !verbs.empty()) line.verb = verbs.front()->get_name();
    if (!line.chapter.empty() && !given.empty())
        line.launch.sizes = given.of(find_operation(find_chapter(line.chapter).operation));
    line.profile.sizes = line.timeline.sizes = line.launch.sizes;
    line.bench.given = given;
    line.run.timing = !no_timing;
    if (line.verb == "check" && !seed && !std::getenv("LADDER_SEED")) seed = 1;  // the same again without being asked
    line.seed = chosen_seed(seed);
    line.check_program.seed = line.seed;
    line.run.seed = line.test.seed = line.bench.seed = line.profile.seed = line.timeline.seed = line.launch.seed = line.seed;
    return line;
}

}  // namespace flashladder
