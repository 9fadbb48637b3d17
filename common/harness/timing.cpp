#include "harness/timing.h"

#include <algorithm>
#include <memory>

#include "harness/inputs.h"
#include "launch.h"

namespace flashladder {
namespace {

struct Event {
    cudaEvent_t event = nullptr;
    Event() { check_cuda(cudaEventCreate(&event), "event"); }
    ~Event() { cudaEventDestroy(event); }
    Event(const Event&) = delete;
};

double milliseconds(const std::function<void()>& work) {
    const Event start, end;
    check_cuda(cudaEventRecord(start.event, nullptr), "event");
    work();
    check_cuda(cudaEventRecord(end.event, nullptr), "event");
    check_cuda(cudaEventSynchronize(end.event), "timed kernel");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, start.event, end.event), "event");
    return ms;
}

/// So many copies of the inputs that, by the time one is used again, the L2 cache has seen twice its size of others.
std::size_t copies_past_l2(const AttentionShape& shape) {
    cudaDeviceProp device;
    check_cuda(cudaGetDeviceProperties(&device, 0), "device");
    const std::size_t bytes = (2 * shape.q_elements() + 2 * shape.kv_elements()) * bytes_per_element(shape.dtype);
    return std::clamp<std::size_t>((2 * static_cast<std::size_t>(device.l2CacheSize) + bytes - 1) / bytes, 1, 64);
}

Resources resources_of_last_launch() {
    Resources r;
#ifdef FLASHLADDER_GPU
    cudaFuncAttributes attributes;
    check_cuda(cudaFuncGetAttributes(&attributes, last_launch.entry), "attributes of the kernel");
    r.registers = attributes.numRegs;
    r.local_bytes = static_cast<int>(attributes.localSizeBytes);
    r.shared_bytes = attributes.sharedSizeBytes + last_launch.shared_bytes;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&r.blocks_per_sm, last_launch.entry, last_launch.threads,
                                                             last_launch.shared_bytes),
               "occupancy");
#endif
    return r;
}

}  // namespace

std::vector<TimedStage> time_stages(const std::vector<const Stage*>& stages, const Inputs& inputs,
                                    const TimingOptions& options) {
    const AttentionShape& shape = inputs.shape;
    std::size_t scratch_bytes = 0;
    for (const Stage* stage : stages) scratch_bytes = std::max(scratch_bytes, stage->scratch_bytes(shape));
    const DeviceBuffer scratch(scratch_bytes);
    Stage without_scratch = *stages.front();
    without_scratch.scratch_bytes = [](const AttentionShape&) { return std::size_t(0); };
    std::vector<std::unique_ptr<DeviceProblem>> problems;
    for (std::size_t i = 0; i < copies_past_l2(shape); ++i)
        problems.push_back(std::make_unique<DeviceProblem>(without_scratch, inputs, false));

    const auto time_once = [&](const Stage& stage, std::size_t problem) {
        ForwardArgs args = problems[problem % problems.size()]->args();
        args.scratch = scratch.data();
        return milliseconds([&] { stage.launch(args); });
    };
    std::vector<TimedStage> results;
    std::vector<std::vector<double>> samples(stages.size());
    std::vector<int> wanted;
    for (const Stage* stage : stages) {  // warm-up; its last launch says how many the time allows
        problems[0]->O.fill(0xFF);
        double ms = time_once(*stage, 0);
        results.push_back(
            {{}, resources_of_last_launch(), {problems[0]->O.download(shape.q_elements(), shape.dtype), {}}});
        if (ms < 1000) ms = time_once(*stage, 1);
        wanted.push_back(
            std::clamp(static_cast<int>(1000 * options.seconds / ms), options.min_samples, options.max_samples));
    }
    std::size_t next = 0;
    for (int round = 0; round < options.max_samples; ++round)
        for (std::size_t s = 0; s < stages.size(); ++s)
            if (round < wanted[s]) samples[s].push_back(time_once(*stages[s], next++));

    for (std::size_t s = 0; s < stages.size(); ++s) {
        auto& ms = samples[s];
        std::sort(ms.begin(), ms.end());
        results[s].timing = {ms[ms.size() / 2], ms.front(), ms.back(), static_cast<int>(ms.size())};
    }
    return results;
}

}  // namespace flashladder
