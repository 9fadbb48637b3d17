// Prints when the warps of a rung's first block do what, as JSON: for tools/plots.py.
//
//   timeline-10 --d 128 --n 4096 > docs/results/timeline-10.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "harness/inputs.h"
#include "harness/run.h"
#include "record.h"
#include "results.h"

int main(int argc, char** argv) {
    using namespace flashladder;
    AttentionShape shape{.batch = 4, .heads = 16, .n_q = 4096, .n_k = 4096, .head_dim = 128, .dtype = DType::bf16};
    CLI::App app("Prints when the warps of a rung's first block do what, as JSON.");
    app.add_option("--d", shape.head_dim, "head dimension");
    app.add_option("--n", shape.n_q, "queries, and keys");
    app.add_option("--batch", shape.batch, "batch");
    app.add_option("--heads", shape.heads, "heads");
    app.add_flag("--causal", shape.causal);
    CLI11_PARSE(app, argc, argv);
    try {
        shape.n_k = shape.n_q, shape.kv_heads = shape.heads;
        const Stage& stage = stages().front();
        const DeviceProblem problem(stage, make_inputs(shape, Values::normal, 1), false);
        for (int warm_up = 0; warm_up < 3; ++warm_up) {
            forget_timeline();
            stage.launch(problem.args());
        }
        nlohmann::json json = new_results();
        note_gpu_state(json);
        json.erase("rows");
        json["stage"] = stage.name();
        json["shape"] = to_json(shape);
        json["events"] = nlohmann::json::array();
        const auto noted = noted_timeline();
        long long first = noted.empty() ? 0 : noted.front().clock;
        for (const Noted& n : noted) first = std::min(first, n.clock);
        for (const Noted& n : noted) json["events"].push_back({n.warp, n.clock - first, n.what, n.line});
        fmt::print("{}\n", json.dump());
    } catch (const std::exception& error) {
        fmt::print(stderr, "timeline: {}\n", error.what());
        return 1;
    }
}
