// Prints how fast rungs 09 to 14 and their variants are with how many blocks on a multiprocessor, as JSON: for the picture
// in lesson 14. Of those that could have several blocks also with fewer. All take turns.
//
//   occupancy > docs/results/occupancy.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "harness/timing.h"
#include "launch.h"
#include "results.h"

namespace flashladder {
namespace {

struct Entrant {
    const Stage* stage;
    int most_blocks;
    int blocks, threads;  // of a multiprocessor, of a block
};

/// Sets the limit while it lives.
struct Limit {
    explicit Limit(int blocks) { most_blocks = blocks; }
    ~Limit() { most_blocks = 0; }
};

/// Each stage from rung 09 on with one block, with two, and so on, as many as have room; checked on a small problem.
std::vector<Entrant> entrants(InputSets& sets, DeviceBuffer& scratch) {
    const Problem& problem = sets.problem();
    const Data inputs = problem.operation->inputs(
        Operation::with(problem, {{"batch", 1}, {"heads", 2}, {"kv_heads", 2}, {"n_q", 300}, {"n_k", 300}}), 1);
    std::vector<Entrant> all;
    const auto add = [&](const Stage& stage) {
        if (&stage.operation() != problem.operation || stage.name() < "09" || !stage.why_unsupported(problem).empty()) return;
        for (int limit = 1, blocks = 0; limit == blocks + 1; ++limit) {
            const Limit limited(limit);
            const Judgement result = check(stage, inputs);
            if (!result.passed) throw std::runtime_error(stage.name() + ": " + result.description);
            blocks = first_launch(stage, sets, scratch, problem.operation->part_of(problem)).resources.blocks_per_sm;
            if (blocks == limit) all.push_back({&stage, limit, blocks, last_launch.threads});
        }
    };
    for (const Stage& stage : stages()) add(stage);
    for (const Stage& stage : variants()) add(stage);
    return all;
}

nlohmann::json measure(const Problem& problem) {
    InputSets sets(problem.operation->inputs(problem.operation->part_of(problem), 1), problem);
    DeviceBuffer scratch(1 << 20);
    const auto all = entrants(sets, scratch);
    std::vector<Launch> launches;
    for (const Entrant& e : all)
        launches.push_back([&e, &sets, &scratch](std::size_t i, cudaStream_t stream) {
            const Limit limited(e.most_blocks);
            e.stage->launch(sets.data(i, scratch.data(), stream));
        });
    const auto samples = take_turns(launches, sets.count());
    nlohmann::json rows = nlohmann::json::array();
    for (std::size_t i = 0; i < all.size(); ++i) {
        const double ms = timing_of(samples[i].ms).ms;
        rows.push_back({{"stage", all[i].stage->name()}, {"shape", to_json(problem)}, {"blocks", all[i].blocks},
                        {"warps", all[i].blocks * all[i].threads / 32}, {"ms", ms},
                        {"tflops", problem.operation->flops(problem) / ms / 1e9}});
    }
    return rows;
}

}  // namespace
}  // namespace flashladder

int main(int argc, char** argv) {
    using namespace flashladder;
    CLI::App app("Prints how fast rungs are with how many blocks on a multiprocessor, as JSON.");
    CLI11_PARSE(app, argc, argv);
    try {
        nlohmann::json results = new_results();
        for (const int d : {64, 128}) {
            const Problem problem = find_operation("attention").problem(
                {{"batch", 4}, {"heads", 2048 / d}, {"n_q", 4096}, {"head_dim", d}}, DType::bf16);
            for (auto& row : measure(problem)) results["rows"].push_back(row);
        }
        note_gpu_state(results);
        fmt::print("{}\n", results.dump(1));
    } catch (const std::exception& error) {
        fmt::print(stderr, "occupancy: {}\n", error.what());
        return 1;
    }
}
