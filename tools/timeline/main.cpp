// Prints when the warps of a block of a rung do what, as JSON: for `ladder timeline` and tools/pictures/plots.py.
//
//   timeline-10 batch=4 heads=16 n_q=4096 head_dim=128 > docs/results/timeline-10.json
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/run.h"
#include "harness/whole_number.h"
#include "launch.h"
#include "record.h"
#include "results.h"

namespace flashladder {
namespace {

/// How many blocks the stage launches. The launch is captured, not done.
unsigned blocks_of(const Stage& stage, DeviceData data) {
    check_cuda(cudaStreamCreate(&data.stream), "making a stream");
    check_cuda(cudaStreamBeginCapture(data.stream, cudaStreamCaptureModeRelaxed), "capturing a launch");
    stage.launch(data);
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(data.stream, &graph), "capturing a launch");
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
    cudaStreamDestroy(data.stream);
    return blocks;
}

}  // namespace
}  // namespace flashladder

int main(int argc, char** argv) {
    using namespace flashladder;
    std::vector<std::string> said;
    unsigned block = 0;
    std::uint64_t seed = 1;
    CLI::App app("Prints when the warps of a block of a rung do what, as JSON.");
    app.add_option("sizes", said, "of the problem: n_q=4096");
    app.add_option("--block", block, "of the grid, x fastest");
    app.add_option("--seed", seed, "of the inputs");
    CLI11_PARSE(app, argc, argv);
    try {
        GivenSizes sizes;
        for (const std::string& size : said) {
            const std::size_t equals = std::min(size.find('='), size.size() - 1);
            sizes[size.substr(0, equals)] = static_cast<std::int64_t>(whole_number(size, size.substr(equals + 1)));
        }
        const Stage& stage = stages().front();
        const Problem asked = stage.operation().problem(sizes, stage.dtypes().front());
        if (const std::string why = stage.why_unsupported(asked); !why.empty()) throw std::invalid_argument(why);
        const DeviceProblem problem(stage, asked.operation->inputs(asked, seed));
        for (int warm_up = 0; warm_up < 3; ++warm_up) {
            forget_timeline(block);
            stage.launch(problem.data());
        }
        nlohmann::json json = new_results();
        note_gpu_state(json);
        json.erase("rows");
        json["stage"] = stage.name();
        json["shape"] = to_json(asked);
        json["block"] = block;
        const NotedTimeline noted = noted_timeline();
        json["blocks"] = blocks_of(stage, problem.data());
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
