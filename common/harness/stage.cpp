#include "harness/stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "launch.h"

namespace flashladder {
namespace {

using Registry = std::vector<std::unique_ptr<const Stage>>;

Registry& registry(bool of_variants) {
    static Registry stages, variants;
    return of_variants ? variants : stages;
}

Registry& registry_of_mine() {
    static Registry mine;
    return mine;
}

std::vector<StageRef> all_of(const Registry& registry) {
    std::vector<StageRef> all;
    for (const auto& stage : registry) all.emplace_back(*stage);
    return all;
}

#ifdef FLASHLADDER_GPU
/// Of the current device: 86 for 8.6.
int compute_capability() {
    thread_local std::map<int, int> known;  // a launch should not ask again
    int device = 0, major = 0, minor = 0;
    check_cuda(cudaGetDevice(&device), "device");
    if (const auto entry = known.find(device); entry != known.end()) return entry->second;
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
    check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "compute capability");
    return known[device] = 10 * major + minor;
}
#endif

}  // namespace

std::string why_not_on_this_gpu([[maybe_unused]] const Stage& stage) {
#ifdef FLASHLADDER_GPU
    const int least = stage.compute_capability();
    if (least > 0)
        if (const int have = compute_capability(); have < least)
            return fmt::format("{}: needs a GPU of compute capability {}.{} or newer; this one has {}.{}", stage.name(),
                               least / 10, least % 10, have / 10, have % 10);
#endif
    return "";
}

std::vector<StageRef> stages() { return all_of(registry(false)); }
std::vector<StageRef> variants() { return all_of(registry(true)); }
std::vector<StageRef> mine() { return all_of(registry_of_mine()); }

const Stage& find_stage(std::string_view name) {
    for (const auto& all : {stages(), variants()})
        for (const Stage& stage : all)
            if (stage.name() == name) return stage;
    throw std::invalid_argument(std::string(name) + " is not in this program");
}

void add_stage(std::unique_ptr<const Stage> stage) {
    Registry& all = registry(!stage->variant().empty());
    const auto after = [&](const std::unique_ptr<const Stage>& s) { return s->folder() > stage->folder(); };
    all.insert(std::ranges::find_if(all, after), std::move(stage));
}

void add_mine(std::unique_ptr<const Stage> stage) {
    if (stage->variant().empty()) registry_of_mine().push_back(std::move(stage));
}

}  // namespace flashladder
