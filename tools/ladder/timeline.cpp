#include "timeline.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "files.h"
#include "harness/dtype.h"
#include "harness/run.h"
#include "launch.h"
#include "mine.h"
#include "page.h"
#include "programs.h"
#include "results.h"
#include "spans.h"
#include "table.h"
#include "timeline_page.h"

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
    if (kernels.empty()) throw std::invalid_argument("launch() launches no kernel yet: there is nothing to record");
    std::string grids;
    for (const TimelineKernel& k : kernels)
        grids += fmt::format("{}{} has {} (0 to {})", grids.empty() ? "" : ", ", k.name, k.blocks, k.blocks - 1);
    throw std::invalid_argument(fmt::format("there is no block {}: {}", block, grids));
}

#ifndef FLASHLADDER_GPU

Timeline record(const Chapter& chapter, const Stage& stage, const Problem& asked, const TimelineOptions& options,
                bool late = false) {
    constexpr const char* names[] = {"load", "store", "copy", "wait", "arrive", "barrier", "product", "exponential"};
    static_assert(std::size(names) == emulator::kinds_of_doing);
    emulator::reseed(options.seed);
    const DeviceProblem problem(stage, asked.operation->inputs(asked, options.seed));
    const auto launches = emulator::record_activity(
        std::uint64_t(options.block),
        [&] {
            stage.launch(problem.data());
            check_cuda(cudaDeviceSynchronize(), stage.name().c_str());
        },
        late);
    Timeline timeline;
    for (const auto& launch : launches) {
        for (const auto& a : launch.activities)
            timeline.spans.push_back({int(timeline.kernels.size()), int(a.warp), names[int(a.what)], a.line,
                                      double(a.begin), double(a.end), double(a.happened), a.counts ? 1 : 0});
        timeline.kernels.push_back({launch.kernel, int(launch.grid.x * launch.grid.y * launch.grid.z),
                                    chapter.reached() >= first_with_warpgroups});
    }
    timeline.spans = collapse(timeline.spans);
    number_moments(timeline.spans);
    timeline.about["unit"] = "moments: an order, not time";
    return timeline;
}

/// When a copy arrives is drawn from the seed. So that this says something of the kernel, all arrive as late as it lets
/// them here: at the wait for them.
Table overlaps(const Chapter& chapter, const Problem& asked, const TimelineOptions& options) {
    const Overlap yours = overlap(record(chapter, learners_stage(chapter), asked, options, true).spans),
                  theirs = overlap(record(chapter, find_stage(chapter.name), asked, options, true).spans);
    Table table({"copies until they are waited for", "yours", "the solution's"});
    if (yours.copies + theirs.copies == 0) return table;
    const auto add = [&](const char* what, auto of) { table.add({what, of(yours), of(theirs)}); };
    add("asked for", [](const Overlap& o) { return fmt::format("{}", o.copies); });
    add("beside a product", [](const Overlap& o) { return fmt::format("{}", o.beside_products); });
    add("matrix instructions of a warp meanwhile, on average",
        [](const Overlap& o) { return fmt::format("{:.1f}", o.products); });
    return table;
}

#else

// On a GPU nobody notes when a copy arrives.
Table overlaps(const Chapter&, const Problem&, const TimelineOptions&) { return Table({}); }

constexpr const char* first_noted = "07";  // the rungs below have no instruction of common/ptx that notes anything

Timeline record(const Chapter& chapter, const Stage& stage, const Problem& asked, const TimelineOptions& options) {
    if (chapter.reached() < first_noted)
        throw std::invalid_argument(fmt::format(
            "{} is recorded on the emulator: --backend cpu; on a GPU, rungs from {} on", chapter.name, first_noted));
    if (const std::string why = why_not_on_this_gpu(stage); !why.empty()) throw std::runtime_error(why);
    const std::string program = "timeline-" + chapter.number();
    if (!build_target(program, chapter.solution())) throw std::runtime_error(program + " was not built");
    std::string sizes;
    for (const auto& [name, value] : asked.sizes) sizes += fmt::format(" {}={}", name, value);
    const fs::path file = fs::temp_directory_path() / fmt::format("ladder-moments-{}.json", getpid());
    const std::string command = fmt::format("{}{} --block {} --seed {} > {}",
                                            quoted((build_folder() / "bin" / program).string()), sizes, options.block,
                                            options.seed, quoted(file.string()));
    const int status = run_command(command);
    const std::string text = read_file(file.string());
    fs::remove(file);
    if (status != 0) throw std::runtime_error(program + " failed");
    const auto noted = nlohmann::json::parse(text);

    const double nanoseconds = noted.at("nanoseconds_per_clock");
    std::vector<Moment> moments;
    for (const auto& event : noted.at("events"))
        moments.push_back({event.at(0), nanoseconds * event.at(1).get<double>(), event.at(2),
                           fmt::format("{}:{}", noted.at("files").at(event.at(4).get<std::size_t>()).get<std::string>(),
                                       event.at(3).get<int>())});
    Timeline timeline;
    timeline.is_time = true;
    timeline.kernels.push_back({stage.name(), noted.at("blocks"), chapter.reached() >= first_with_warpgroups});
    timeline.spans = collapse(spans_of(moments));
    timeline.about["unit"] = "nanoseconds";
    timeline.about["nanoseconds_per_clock"] = nanoseconds;
    timeline.about["clocks"] = noted.at("clocks");
    return timeline;
}

#endif

}  // namespace

int show_timeline(const Chapter& chapter, const TimelineOptions& options) {
    for (const std::string& file : {options.trace, options.svg, options.page})
        if (!file.empty()) check_can_be_written(file);
    const Stage& stage = options.mine ? learners_stage(chapter) : find_stage(chapter.name);
    const Problem asked = stage.operation().problem(options.sizes, stage.dtypes().front());
    if (const std::string why = stage.why_unsupported(asked); !why.empty()) throw std::invalid_argument(why);

    Timeline timeline;
    try {
        timeline = record(chapter, stage, asked, options);
    } catch (const CudaError& error) {
        if (!options.mine) throw;
        return tell_failure(chapter, error.what(), options.page);
    }
    timeline.block = options.block;
    if (std::ranges::none_of(timeline.kernels, [&](const TimelineKernel& k) { return options.block < k.blocks; }))
        refuse_block(options.block, timeline.kernels);
    nlohmann::json about = new_results();
    about.erase("rows");
    about.update({{"rung", stage.name()},
                  {"origin", options.mine ? "chapter" : "solution"},
                  {"dtype", to_string(asked.dtype)},
                  {"operation", stage.operation().name()},
                  {"shape", to_json(asked)},
                  {"block", options.block},
                  {"seed", options.seed},
                  {"backend", timeline.is_time ? "gpu" : "cpu"}});
    timeline.about.update(about);

    const std::string what = fmt::format("{}{}, {}", stage.name(), options.mine ? " (yours)" : "", to_string(asked)),
                      where = fmt::format("block {} on {}, in {}", options.block, about.at("gpu").get<std::string>(),
                                          timeline.about.at("unit").get<std::string>());
    const Table did = summary(timeline), beside = options.mine ? overlaps(chapter, asked, options) : Table({});
    fmt::print("{}: {}.\n\n{}", what, where, did.plain());
    if (!beside.empty()) fmt::print("\n{}", beside.plain());
    if (options.trace.empty() && options.svg.empty() && options.page.empty()) {
        fmt::print(
            "\n--page FILE shows it in a browser, to zoom; --svg FILE draws it; --trace FILE writes it for\n"
            "https://ui.perfetto.dev\n");
        return 0;
    }
    const nlohmann::json events = chrome_trace(timeline);
    if (!options.page.empty()) {
        nlohmann::json shown = timeline_page(events);
        shown["title"] = what;
        shown["about"] = fmt::format("Who does what when: {}. Commit {}, {}, seed {}.", where,
                                     about.at("commit").get<std::string>(), about.at("date").get<std::string>(),
                                     options.seed);
        shown["tables"] = {to_json(did, "Who did what, of all warps")};
        if (!beside.empty()) shown["tables"].push_back(to_json(beside, "What copies have beside them"));
        write_page(options.page, "timeline", shown);
    }
    const std::string trace = events.dump() + "\n";
    if (!options.trace.empty()) {
        write_file(options.trace, trace);
        fmt::print("\nThe trace is in {}: open it at https://ui.perfetto.dev\n", options.trace);
    }
    if (options.svg.empty()) return 0;
    const fs::path passing = fs::temp_directory_path() / fmt::format("ladder-timeline-{}.json", getpid());
    write_file(passing.string(), trace);
    const int drawn = run_python_tool("pictures/draw_timeline.py", {passing.string(), options.svg});
    fs::remove(passing);
    return drawn;
}

}  // namespace flashladder
