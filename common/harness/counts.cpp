#include "harness/counts.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "launch.h"

namespace flashladder {
namespace {

std::string name_of(const void* begin, const ForwardArgs& args) {
    if (begin == args.Q) return "Q";
    if (begin == args.K) return "K";
    if (begin == args.V) return "V";
    if (begin == args.O) return "O";
    if (begin == args.lse) return "lse";
    return begin == args.scratch ? "scratch" : "other";
}

}  // namespace

std::uint64_t StageCounts::distinct_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& launch : work.launches) sum += launch.distinct_read_bytes + launch.distinct_written_bytes;
    return sum;
}

StageCounts count_stage(const Stage& stage, const Inputs& inputs, bool wants_lse) {
    if (const std::string why = why_unsupported(stage.supports, inputs.shape, wants_lse); !why.empty())
        throw std::invalid_argument(why);
    const std::size_t before = emulator::count_work([] {}).peak_memory_bytes;
    const DeviceProblem problem(stage, inputs, wants_lse);
    const ForwardArgs args = problem.args();
    StageCounts counts;
    counts.work = emulator::count_work([&] { stage.launch(args); });
    for (const auto& launch : counts.work.launches)
        for (const auto& [begin, work] : launch.allocations) {
            TensorWork& tensor = counts.tensors[name_of(begin, args)];
            using emulator::Access;
            for (const Access kind : {Access::read, Access::cp_async, Access::tma_load})
                tensor.read += work[static_cast<std::size_t>(kind)];
            for (const Access kind : {Access::write, Access::tma_store, Access::tma_reduce})
                tensor.written += work[static_cast<std::size_t>(kind)];
        }
    const DeviceBuffer* given[] = {&problem.Q, &problem.K, &problem.V, &problem.O, &problem.lse};
    counts.peak_scratch_bytes = counts.work.peak_memory_bytes - before;
    for (const DeviceBuffer* buffer : given) counts.peak_scratch_bytes -= buffer->bytes();
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
