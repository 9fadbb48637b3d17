#include "harness/counts.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "launch.h"

namespace flashladder {
namespace {

std::string name_of(const void* begin, const DeviceData& data) {
    for (const auto& [name, memory] : data.tensors)
        if (begin == memory) return name;
    return begin == data.scratch ? "scratch" : "other";
}

}  // namespace

std::uint64_t StageCounts::distinct_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& launch : work.launches) sum += launch.distinct_read_bytes + launch.distinct_written_bytes;
    return sum;
}

StageCounts count_stage(const Stage& stage, const Data& inputs) {
    if (const std::string why = stage.why_unsupported(inputs.problem); !why.empty()) throw std::invalid_argument(why);
    const std::size_t before = emulator::count_work([] {}).peak_memory_bytes;
    const DeviceProblem problem(stage, inputs);
    const DeviceData data = problem.data();
    StageCounts counts;
    counts.work = emulator::count_work([&] { stage.launch(data); });
    for (const auto& launch : counts.work.launches)
        for (const auto& [begin, work] : launch.allocations) {
            TensorWork& tensor = counts.tensors[name_of(begin, data)];
            using emulator::Access;
            for (const Access kind : {Access::read, Access::cp_async, Access::tma_load})
                tensor.read += work[static_cast<std::size_t>(kind)];
            for (const Access kind : {Access::write, Access::tma_store, Access::tma_reduce})
                tensor.written += work[static_cast<std::size_t>(kind)];
        }
    counts.peak_scratch_bytes = counts.work.peak_memory_bytes - before;
    for (const Tensor& tensor : problem.tensors()) counts.peak_scratch_bytes -= tensor.bytes();
    counts.outputs = problem.outputs();
    return counts;
}

nlohmann::json to_json(const StageCounts& counts) {
    nlohmann::json json = {{"requested_bytes", counts.requested_bytes()},
                           {"distinct_bytes", counts.distinct_bytes()},
                           {"peak_scratch_bytes", counts.peak_scratch_bytes},
                           {"total", emulator::to_json(counts.work.total())},
                           {"launches", emulator::to_json(counts.work, false).at("launches")}};
    for (const auto& [name, work] : counts.tensors)
        json["tensors"][name] = {{"read", to_json(work.read)}, {"written", to_json(work.written)}};
    return json;
}

}  // namespace flashladder
