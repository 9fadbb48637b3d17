#include "results.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "harness/inputs.h"
#include "launch.h"

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

std::string smi(const std::string& field) {
    return first_line_of(fmt::format("nvidia-smi --query-gpu={} --format=csv,noheader", field));
}

}  // namespace

std::string first_line_of(const std::string& command) {
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"), pclose);
    std::array<char, 1024> buffer{};
    if (!pipe || !fgets(buffer.data(), buffer.size(), pipe.get())) return "";
    std::string line = buffer.data();
    while (!line.empty() && line.back() == '\n') line.pop_back();
    return line;
}

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

void note_gpu_state(nlohmann::json& results) {
    results["driver"] = smi("driver_version");
    results["clocks"] = {{"sm", smi("clocks.sm")},
                         {"sm_max", smi("clocks.max.sm")},
                         {"memory", smi("clocks.mem")},
                         {"power", smi("power.draw")},
                         {"power_limit", smi("power.limit")}};
}

nlohmann::json to_json(const AttentionShape& s) {
    return {{"batch", s.batch}, {"heads", s.heads},       {"kv_heads", s.kv_heads}, {"n_q", s.n_q},
            {"n_k", s.n_k},     {"head_dim", s.head_dim}, {"causal", s.causal}};
}

nlohmann::json result_row(const Stage& stage, const AttentionShape& s, const Comparison& comparison,
                          const TimedStage* timed) {
    nlohmann::json row = {{"stage", stage.name()},
                          {"origin", "solution"},
                          {"dtype", to_string(s.dtype)},
                          {"shape", to_json(s)},
                          {"error", comparison.error},
                          {"worst_row", comparison.worst_row},
                          {"scratch_bytes", stage.scratch_bytes(s)}};
    if (timed) {
        row["ms"] = timed->timing.ms;
        row["ms_min"] = timed->timing.ms_min;
        row["ms_max"] = timed->timing.ms_max;
        row["samples"] = timed->timing.samples;
        row["tflops"] = s.flops() / timed->timing.ms / 1e9;
        row["registers"] = timed->resources.registers;
        row["local_bytes"] = timed->resources.local_bytes;
        row["shared_bytes"] = timed->resources.shared_bytes;
        row["blocks_per_sm"] = timed->resources.blocks_per_sm;
    }
    return row;
}

}  // namespace flashladder
