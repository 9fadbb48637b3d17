#include "timeline.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "files.h"
#include "harness/inputs.h"
#include "harness/run.h"
#include "launch.h"
#include "programs.h"
#include "results.h"
#include "spans.h"

#ifndef FLASHLADDER_GPU
#include "emulator/activity.h"
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

namespace fs = std::filesystem;

/// From this rung on products are those of a warpgroup.
constexpr const char* first_with_warpgroups = "09";

[[noreturn]] void refuse_block(int block, const std::vector<TimelineKernel>& kernels) {
    std::string grids;
    for (const TimelineKernel& k : kernels)
        grids += fmt::format("{}{} has {} (0 to {})", grids.empty() ? "" : ", ", k.name, k.blocks, k.blocks - 1);
    throw std::invalid_argument(fmt::format("there is no block {}: {}", block, grids));
}

#ifndef FLASHLADDER_GPU

Timeline record(const Chapter& chapter, const Stage& stage, const TimelineOptions& options) {
    constexpr const char* names[] = {"load", "store", "copy", "wait", "arrive", "barrier", "product", "exponential"};
    static_assert(std::size(names) == emulator::kinds_of_doing);
    emulator::reseed(options.seed);
    const DeviceProblem problem(stage, make_inputs(options.shape, Values::normal, options.seed), false);
    const auto launches = emulator::record_activity(std::uint64_t(options.block), [&] {
        stage.launch(problem.args());
        check_cuda(cudaDeviceSynchronize(), stage.name().c_str());
    });
    Timeline timeline;
    for (const auto& launch : launches) {
        for (const auto& a : launch.activities)
            timeline.spans.push_back({int(timeline.kernels.size()), int(a.warp), names[int(a.what)], a.line,
                                      double(a.begin), double(a.end), double(a.happened), a.counts ? 1 : 0});
        timeline.kernels.push_back({launch.kernel, int(launch.grid.x * launch.grid.y * launch.grid.z),
                                    chapter.number() >= first_with_warpgroups});
    }
    timeline.spans = collapse(timeline.spans);
    number_moments(timeline.spans);
    timeline.about["unit"] = "moments: the order on the emulator, not time";
    return timeline;
}

#else

Timeline record(const Chapter&, const Stage&, const TimelineOptions&) { throw std::runtime_error("not yet"); }

#endif

}  // namespace

int show_timeline(const Chapter& chapter, const TimelineOptions& options) {
    for (const std::string& file : {options.trace, options.svg})
        if (!file.empty()) check_can_be_written(file);
    const Stage& stage = find_stage(chapter.name);
    TimelineOptions in_dtype = options;
    in_dtype.shape.dtype = stage.supports.dtypes.front();
    const AttentionShape& shape = in_dtype.shape;
    if (const std::string why = why_unsupported(stage.supports, shape); !why.empty()) throw std::invalid_argument(why);

    Timeline timeline = record(chapter, stage, in_dtype);
    timeline.block = options.block;
    if (std::ranges::none_of(timeline.kernels, [&](const TimelineKernel& k) { return options.block < k.blocks; }))
        refuse_block(options.block, timeline.kernels);
    nlohmann::json about = new_results();
    about.erase("rows");
    about.update({{"rung", stage.name()}, {"dtype", to_string(shape.dtype)}, {"shape", to_json(shape)},
                  {"block", options.block}, {"seed", options.seed}});
    timeline.about.update(about);

    const std::string unit = timeline.about.at("unit");
    fmt::print("{}, {}: block {} on {}. From, to and in all are {}.\n\n{}", stage.name(), to_string(shape), options.block,
               about.at("gpu").get<std::string>(), unit, summary(timeline));
    if (options.trace.empty() && options.svg.empty()) {
        fmt::print("\n--svg FILE draws it; --trace FILE writes it for https://ui.perfetto.dev\n");
        return 0;
    }
    const fs::path passing = fs::temp_directory_path() / fmt::format("ladder-timeline-{}.json", getpid());
    const fs::path file = options.trace.empty() ? passing : fs::path(options.trace);
    write_file(file.string(), chrome_trace(timeline).dump() + "\n");
    if (!options.trace.empty()) fmt::print("\nThe trace is in {}: open it at https://ui.perfetto.dev\n", options.trace);
    if (!options.svg.empty()) run_python_tool("draw_timeline.py", {file.string(), options.svg});
    if (options.trace.empty()) fs::remove(file);
    return 0;
}

}  // namespace flashladder
