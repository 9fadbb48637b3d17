#include "results.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <ctime>
#include <utility>
#include <vector>

#include "harness/dtype.h"
#include "harness/project_root.h"
#include "operations/attention/inputs.h"
#include "launch.h"
#include "programs.h"

namespace flashladder {
namespace {

std::string commit() {
    if (const char* given = std::getenv("LADDER_COMMIT"))
        return given;  // where a copy of the tree has no or another history
    const std::string git = fmt::format("git -C '{}' ", project_root());
    const std::string hash = first_line_of(git + "rev-parse --short=12 HEAD");
    // Files that results and documents are written to do not count.
    const bool changed =
        !first_line_of(git + "status --porcelain --untracked-files=no cmake common solutions tools").empty();
    return hash.empty() ? "unknown" : hash + (changed ? "-dirty" : "");
}

/// What nvidia-smi says of these fields; each "unknown" if it is not there or does not know one of them.
std::vector<std::string> smi(const std::vector<std::string>& fields) {
    const std::string line = first_line_of(
        fmt::format("nvidia-smi --query-gpu={} --format=csv,noheader", fmt::join(fields, ",")));
    std::vector<std::string> values;
    const std::string comma = ", ";
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + comma.size()) {
        end = line.find(comma, begin);
        values.push_back(line.substr(begin, end - begin));
    }
    if (line.empty() || values.size() != fields.size()) values.assign(fields.size(), "unknown");
    return values;
}

/// Names of the bits of nvidia-smi's reasons for a lower clock; {"unknown"} if it does not tell them.
std::vector<std::string> slowed_by() {
    for (const char* field : {"clocks_event_reasons.active", "clocks_throttle_reasons.active"}) {  // the older name
        const std::string bits = smi({field}).front();
        if (!bits.starts_with("0x")) continue;
        const unsigned long long active = std::stoull(bits, nullptr, 16);
        std::vector<std::string> names;
        for (const auto& [bit, name] : std::initializer_list<std::pair<unsigned long long, const char*>>{
                 {0x2, "application clocks"},
                 {0x4, "power cap"},
                 {0x8, "hardware slowdown"},
                 {0x10, "sync boost"},
                 {0x20, "temperature (software)"},
                 {0x40, "temperature (hardware)"},
                 {0x80, "power brake"},
                 {0x100, "display clocks"}})
            if (active & bit) names.emplace_back(name);
        return names;
    }
    return {"unknown"};
}

}  // namespace

nlohmann::json new_results() {
    cudaDeviceProp device;
    check_cuda(cudaGetDeviceProperties(&device, 0), "device");
    int cuda = 0;
    check_cuda(cudaRuntimeGetVersion(&cuda), "runtime version");
    nlohmann::json results = {{"gpu", device.name},  // the emulator has a name too
                              {"multiprocessors", device.multiProcessorCount},
                              {"cuda", fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10)},
                              {"commit", commit()},
                              {"date", fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)))},
                              {"rows", nlohmann::json::array()}};
    return results;
}

nlohmann::json gpu_state() {
    const auto values = smi({"clocks.sm", "clocks.max.sm", "clocks.mem", "power.draw", "power.limit"});
    return {{"sm", values[0]},    {"sm_max", values[1]},      {"memory", values[2]},
            {"power", values[3]}, {"power_limit", values[4]}, {"slowed_by", slowed_by()}};
}

void note_gpu_state(nlohmann::json& results) {
    results["clocks"] = gpu_state();
    results["driver"] = smi({"driver_version"}).front();
}

nlohmann::json to_json(const Problem& problem) {
    nlohmann::json json;
    for (const Size& size : problem.operation->sizes())
        if (size.is_flag)
            json[size.name] = problem.at(size.name) != 0;
        else
            json[size.name] = problem.at(size.name);
    return json;
}

nlohmann::json result_row(const Stage& stage, const Problem& problem, const Judgement& judgement,
                          const TimedStage* timed) {
    nlohmann::json row = {{"stage", stage.name()},
                          {"operation", stage.operation().name()},
                          {"origin", "solution"},
                          {"dtype", to_string(problem.dtype)},
                          {"shape", to_json(problem)},
                          {"error", judgement.error},
                          {"worst_row", judgement.worst_row},
                          {"scratch_bytes", stage.scratch_bytes(problem)}};
    if (timed) {
        row["ms"] = timed->timing.ms;
        row["ms_q1"] = timed->timing.ms_q1;
        row["ms_q3"] = timed->timing.ms_q3;
        row["ms_min"] = timed->timing.ms_min;
        row["ms_max"] = timed->timing.ms_max;
        row["samples"] = timed->timing.samples;
        row["tflops"] = problem.operation->flops(problem) / timed->timing.ms / 1e9;
        row["registers"] = timed->resources.registers;
        row["local_bytes"] = timed->resources.local_bytes;
        row["shared_bytes"] = timed->resources.shared_bytes;
        row["blocks_per_sm"] = timed->resources.blocks_per_sm;
    }
    return row;
}

}  // namespace flashladder
