// The `ladder` program. The script of the same name at the root sets everything up and calls it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <optional>
#include <random>

#include "bench.h"
#include "chapters.h"
#include "count.h"
#include "diff.h"
#include "docs.h"
#include "harness/whole_number.h"
#include "profile.h"
#include "run.h"
#include "timeline.h"

namespace {

/// --seed, else LADDER_SEED, else a fresh one.
std::uint64_t chosen_seed(const std::optional<std::uint64_t>& given) {
    if (given) return *given;
    constexpr const char* name = "LADDER_SEED";
    if (const char* text = std::getenv(name); text && *text) return flashladder::whole_number(name, text);
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
    CountOptions count;
    ProfileOptions profile;
    TimelineOptions timeline;
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
    auto* diff_verb = app.add_subcommand("diff", "what a rung changes in the one below (./ladder diff 03)");
    diff_verb->add_option("chapter", chapter, "01, or 01-minimal-flash")->required();
    auto* profile_verb = app.add_subcommand(
        "profile",
        "what a rung asks of memory and arithmetic, by kernel, tensor and source line; what that costs by a model");
    profile_verb->add_option("chapter", chapter, "01, or 01-minimal-flash")->required();
    AttentionShape shape;
    std::optional<int> kv_heads, n_k;
    shape.n_q = 256;
    const auto add_shape = [&](CLI::App* verb) {
        verb->add_option("--batch", shape.batch, "B")->capture_default_str();
        verb->add_option("--heads", shape.heads, "H")->capture_default_str();
        verb->add_option("--kv-heads", kv_heads, "fewer than heads: grouped queries");
        verb->add_option("--n", shape.n_q, "N, the number of queries")->capture_default_str();
        verb->add_option("--n-k", n_k, "the number of keys, if it is another");
        verb->add_option("--d", shape.head_dim, "the head dimension")->capture_default_str();
        verb->add_flag("--causal", shape.causal, "queries see only the keys before them");
    };
    add_shape(profile_verb);
    profile_verb->add_flag("--lse", profile.lse, "ask for LSE too");
    profile_verb->add_option("--shared", profile.shared_bytes,
                             "bytes of shared memory that a block of the virtual GPU may have");
    profile_verb->add_option("--lines", profile.lines, "so many source lines")->capture_default_str();
    profile_verb->add_option("--card", profile.card, "that the model is of")->capture_default_str();
    profile_verb
        ->add_option("--copies", profile.copies, "for the model: so many such problems; without it, as fill the card")
        ->check(CLI::PositiveNumber);
    profile_verb->add_option("--roofline", profile.roofline, "draw the roofline, and where this is under it, as SVG");
    profile_verb->add_option("--json", profile.json, "write the counts and costs to this file");
    profile_verb->add_option("--seed", seed, "of the random inputs and of the emulator's order");
    auto* timeline_verb = app.add_subcommand(
        "timeline", "who does what when in one block of a rung: its order on the emulator, nanoseconds on a GPU");
    timeline_verb->add_option("chapter", chapter, "01, or 01-minimal-flash")->required();
    add_shape(timeline_verb);
    timeline_verb->add_option("--block", timeline.block, "of the grid, x fastest")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    timeline_verb->add_option("--trace", timeline.trace, "write it to this file, which Chrome and Perfetto open");
    timeline_verb->add_option("--svg", timeline.svg, "draw it");
    timeline_verb->add_option("--seed", seed, "of the random inputs and of the emulator's order");
    auto* launch_verb =
        app.add_subcommand("launch", "run a rung once and check it: something for a profiler to look at");
    launch_verb->add_option("chapter", chapter, "01, or 01-minimal-flash")->required();
    add_shape(launch_verb);
    launch_verb->add_option("--seed", seed, "of the random inputs and of the emulator's order");
    BenchOptions bench_options;
    auto* bench_verb = app.add_subcommand(
        "bench", "time rungs beside each other (./ladder bench 11 13 --d 128); without a GPU, their counted work");
    bench_verb->add_option("rungs", bench_options.rungs, "01, or 01-minimal-flash; without any: all");
    bench_verb->add_option("--d", bench_options.head_dim, "the head dimension; without it 64 and 128");
    bench_verb->add_option("--n", bench_options.n, "N, of queries and keys; without it 1024 and 4096");
    bench_verb->add_flag("--causal", bench_options.causal, "causal alone; without it both");
    bench_verb->add_option("--heads", bench_options.heads, "H; without it 2048 / d");
    bench_verb->add_option("--kv-heads", bench_options.kv_heads, "fewer than heads: grouped queries");
    bench_verb->add_option("--batch", bench_options.batch, "B; without it 16384 / N");
    bench_verb->add_option("--dtype", bench_options.dtype, "f32, bf16 or f16; without it each rung's own");
    bench_verb->add_option("--json", bench_options.json, "write the results to this file");
    bench_verb->add_flag("--mine", bench_options.mine, "your chapter beside the solution, of one rung");
    bench_verb->add_option("--seed", seed, "of the random inputs and of the emulator's order");
    auto* count_verb = app.add_subcommand("count", "the counted work of every rung, for docs/results/counts.json");
    count_verb->add_option("--json", count.json, "write the counts to this file");
    count_verb->add_option("--check", count.check, "fail if this file is not what is counted now");
    auto* docs_verb = app.add_subcommand("docs", "make the tables in README and lessons anew from docs/results");
    docs_verb->add_flag("--check", check, "change nothing; fail if a table or a starter is stale");
    CLI11_PARSE(app, argc, argv);

    try {
        run.seed = test.seed = bench_options.seed = chosen_seed(seed);
        run.timing = !no_timing;
        if (*list_verb) return list_chapters();
        if (*test_verb) return test_chapter(find_chapter(chapter), test);
        if (*hint_verb) return show_hint(exercise);
        if (*solve_verb) return solve_chapter(find_chapter(chapter));
        if (*reset_verb) return reset_chapter(find_chapter(chapter));
        if (*diff_verb) return show_diff(find_chapter(chapter));
        shape.kv_heads = kv_heads.value_or(shape.heads);
        shape.n_k = n_k.value_or(shape.n_q);
        if (*launch_verb) return launch_rung(find_chapter(chapter), shape, run.seed);
        if (*profile_verb) {
            profile.seed = run.seed;
            profile.shape = shape;
            return profile_rung(find_chapter(chapter), profile);
        }
        if (*timeline_verb) {
            timeline.seed = run.seed;
            timeline.shape = shape;
            return show_timeline(find_chapter(chapter), timeline);
        }
        if (*bench_verb) return bench(bench_options, {argv + 1, argv + argc});
        if (*count_verb) return count_rungs(count);
        if (*docs_verb) return check ? check_docs() : write_docs();
        return run_ladder(run);
    } catch (const std::exception& error) {
        fmt::print(stderr, "ladder: {}\n", error.what());
        return 1;
    }
}
