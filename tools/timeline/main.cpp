// Prints when the warps of a block of a rung do what, as JSON: for `ladder timeline` and tools/pictures/plots.py.
//
//   timeline-10 --d 128 --n 4096 > docs/results/timeline-10.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/inputs.h"
#include "harness/run.h"
#include "launch.h"
#include "record.h"
#include "results.h"

namespace flashladder {
namespace {

/// How many blocks the stage launches. The launch is captured, not done.
unsigned blocks_of(const Stage& stage, ForwardArgs args) {
    check_cuda(cudaStreamCreate(&args.stream), "making a stream");
    check_cuda(cudaStreamBeginCapture(args.stream, cudaStreamCaptureModeRelaxed), "capturing a launch");
    stage.launch(args);
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(args.stream, &graph), "capturing a launch");
    std::size_t n = 0;
    check_cuda(cudaGraphGetNodes(graph, nullptr, &n), "counting what was launched");
    std::vector<cudaGraphNode_t> nodes(n);
    check_cuda(cudaGraphGetNodes(graph, nodes.data(), &n), "asking what was launched");
    unsigned blocks = 0;
    for (const cudaGraphNode_t node : nodes) {
        cudaGraphNodeType type{};
        check_cuda(cudaGraphNodeGetType(node, &type), "asking what was launched");
        if (type != cudaGraphNodeTypeKernel) continue;
        cudaKernelNodeParams kernel{};
        check_cuda(cudaGraphKernelNodeGetParams(node, &kernel), "asking for a grid");
        blocks = std::max(blocks, kernel.gridDim.x * kernel.gridDim.y * kernel.gridDim.z);
    }
    cudaGraphDestroy(graph);
    cudaStreamDestroy(args.stream);
    return blocks;
}

}  // namespace
}  // namespace flashladder

int main(int argc, char** argv) {
    using namespace flashladder;
    AttentionShape shape{.batch = 4, .heads = 16, .n_q = 4096, .n_k = 4096, .head_dim = 128, .dtype = DType::bf16};
    int n_k = 0, kv_heads = 0;
    unsigned block = 0;
    std::uint64_t seed = 1;
    CLI::App app("Prints when the warps of a block of a rung do what, as JSON.");
    app.add_option("--d", shape.head_dim, "head dimension");
    app.add_option("--n", shape.n_q, "queries, and keys");
    app.add_option("--n-k", n_k, "keys, if it is another number");
    app.add_option("--batch", shape.batch, "batch");
    app.add_option("--heads", shape.heads, "heads");
    app.add_option("--kv-heads", kv_heads, "fewer than heads: grouped queries");
    app.add_flag("--causal", shape.causal);
    app.add_option("--block", block, "of the grid, x fastest");
    app.add_option("--seed", seed, "of the inputs");
    CLI11_PARSE(app, argc, argv);
    try {
        shape.n_k = n_k > 0 ? n_k : shape.n_q;
        shape.kv_heads = kv_heads > 0 ? kv_heads : shape.heads;
        const Stage& stage = stages().front();
        const DeviceProblem problem(stage, make_inputs(shape, Values::normal, seed), false);
        for (int warm_up = 0; warm_up < 3; ++warm_up) {
            forget_timeline(block);
            stage.launch(problem.args());
        }
        nlohmann::json json = new_results();
        note_gpu_state(json);
        json.erase("rows");
        json["stage"] = stage.name();
        json["shape"] = to_json(shape);
        json["block"] = block;
        const NotedTimeline noted = noted_timeline();
        json["blocks"] = blocks_of(stage, problem.args());
        json["nanoseconds_per_clock"] = noted.nanoseconds_per_clock;
        json["events"] = nlohmann::json::array();  // warp, clock, what, line, file: a number
        std::vector<std::string> files;
        long long first = noted.moments.empty() ? 0 : noted.moments.front().clock;
        for (const Noted& n : noted.moments) first = std::min(first, n.clock);
        for (const Noted& n : noted.moments) {
            const auto at = std::ranges::find(files, n.file);
            json["events"].push_back({n.warp, n.clock - first, n.what, n.line, at - files.begin()});
            if (at == files.end()) files.push_back(n.file);
        }
        json["files"] = files;
        fmt::print("{}\n", json.dump());
    } catch (const std::exception& error) {
        fmt::print(stderr, "timeline: {}\n", error.what());
        return 1;
    }
}
