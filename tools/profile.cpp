#include "profile.h"

#include <fmt/format.h>

#include <stdexcept>

#ifdef FLASHLADDER_GPU

namespace flashladder {

int profile_rung(const Chapter&, const ProfileOptions&) {
    throw std::runtime_error("work is counted by the emulator: --backend cpu");
}

}  // namespace flashladder

#else

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cost_model.h"
#include "count.h"
#include "files.h"
#include "harness/closed_forms.h"
#include "harness/inputs.h"
#include "programs.h"
#include "results.h"
#include "table.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;
using emulator::Work;

void print_kernels(const StageCounts& counts) {
    Table table({"kernel", "blocks", "requested", "distinct", "moved", "coalesced", "shared wavefronts", "conflicts",
                 "exp", "divisions", "barriers"});
    for (const auto& launch : counts.work.launches) {
        const auto global = launch.total.all_global();
        const auto shared = launch.total.all_shared();
        table.add({launch.kernel, fmt::format("{}", launch.grid.x * launch.grid.y * launch.grid.z),
                   readable_bytes(double(global.requested_bytes)),
                   readable_bytes(double(launch.distinct_read_bytes + launch.distinct_written_bytes)),
                   readable_bytes(double(global.sectors * emulator::sector_bytes)), percent(global.coalescing()),
                   fmt::format("{}", shared.wavefronts), percent(conflict_share(shared)),
                   fmt::format("{}", launch.total.exponentials), fmt::format("{}", launch.total.divisions),
                   fmt::format("{}", launch.total.barriers)});
    }
    fmt::print("{}\n", table.plain());
    const Work total = counts.work.total();
    if (total.overlapped_exponentials > 0)
        fmt::print("{} of the exponentials overlap with products of the same warpgroup\n",
                   percent(double(total.overlapped_exponentials) / double(total.exponentials)));
    if (total.named_barriers > 0) fmt::print("{} named barriers\n", total.named_barriers);
    if (total.overlapped_exponentials + total.named_barriers > 0) fmt::print("\n");
}

void print_tensors(const StageCounts& counts, const AttentionShape& s) {
    const double element = double(bytes_per_element(s.dtype));
    const std::map<std::string, double> sizes = {
        {"Q", element * double(s.q_elements())},  {"K", element * double(s.kv_elements())},
        {"V", element * double(s.kv_elements())}, {"O", element * double(s.q_elements())},
        {"lse", 4.0 * double(s.lse_elements())},  {"scratch", double(counts.peak_scratch_bytes)}};
    Table table({"tensor", "bytes", "read", "times", "coalesced", "written", "times", "coalesced"});
    for (const auto& [name, work] : counts.tensors) {
        const double bytes = sizes.contains(name) ? sizes.at(name) : 0;
        std::vector<std::string> cells = {name, readable_bytes(bytes)};
        for (const emulator::GlobalWork* w : {&work.read, &work.written}) {
            const bool none = w->accesses == 0;
            cells.push_back(none ? "" : readable_bytes(double(w->requested_bytes)));
            cells.push_back(none ? "" : quotient(double(w->requested_bytes), bytes));
            cells.push_back(none ? "" : percent(w->coalescing()));
        }
        table.add(cells);
    }
    fmt::print("{}\n", table.plain());
}

/// Bytes that the memories have to move for a line: sectors of device memory, wavefronts of 128 bytes of shared memory.
std::uint64_t moved(const Work& work) {
    return work.all_global().sectors * emulator::sector_bytes + work.all_shared().wavefronts * 128;
}

void print_lines(const StageCounts& counts, int most) {
    std::map<std::string, Work> by_line;
    for (const auto& launch : counts.work.launches)
        for (const auto& [line, work] : launch.lines) by_line[line] += work;
    std::vector<std::pair<std::string, Work>> lines(by_line.begin(), by_line.end());
    std::stable_sort(lines.begin(), lines.end(), [](auto& a, auto& b) { return moved(a.second) > moved(b.second); });
    Table table({"line", "requested", "moved", "coalesced", "wavefronts", "conflicts", "exp", "divisions", "barriers",
                 "source"});
    for (std::size_t i = 0; i < std::min(lines.size(), std::size_t(most)); ++i) {
        const auto& [line, work] = lines[i];
        const auto global = work.all_global();
        const auto shared = work.all_shared();
        const auto number = [](std::uint64_t n) { return n == 0 ? "" : fmt::format("{}", n); };
        table.add({line.substr(line.rfind('/') + 1),
                   global.accesses == 0 ? "" : readable_bytes(double(global.requested_bytes)),
                   global.accesses == 0 ? "" : readable_bytes(double(global.sectors * emulator::sector_bytes)),
                   global.accesses == 0 ? "" : percent(global.coalescing()), number(shared.wavefronts),
                   shared.accesses == 0 ? "" : percent(conflict_share(shared)), number(work.exponentials),
                   number(work.divisions), number(work.barriers), source_line(line)});
    }
    fmt::print("{}\n", table.plain());
    if (lines.size() > std::size_t(most))
        fmt::print("{} more lines: --lines {}\n\n", lines.size() - std::size_t(most), lines.size());
}

void print_closed_form(const StageCounts& counts, const ClosedForm& form) {
    const Work total = counts.work.total();
    Table table({"", "closed form", "counted"});
    const auto add = [&](const char* what, double expected, double counted) {
        table.add({what, fmt::format("{:.0f}", expected), fmt::format("{:.0f}", counted)});
    };
    add("requested bytes", form.requested_bytes, double(counts.requested_bytes()));
    add("distinct bytes", form.distinct_bytes, double(counts.distinct_bytes()));
    add("exponentials", form.exponentials, double(total.exponentials));
    add("divisions", form.divisions, double(total.divisions));
    fmt::print("{}", table.plain());
}


/// Which work of the counted one a unit does.
const std::map<std::string, std::string> work_of_unit = {
    {"HBM", "distinct bytes"},
    {"L2", "sectors"},
    {"L1", "sectors of loads, stores and cp.async"},
    {"shared memory", "wavefronts, and what TMA brings and takes"},
    {"tensor cores", "matrix instructions"},
    {"FMA", "at least: scale, sum, and products where no tensor cores are used"},
    {"ALU", "at least: maximum, conversion to 16 bits"},
    {"XU", "exponentials, divisions"}};

nlohmann::json print_costs(const Card& card, const AttentionShape& shape, const nlohmann::json& counts, double copies) {
    const ModelledCosts costs = model_costs(card, shape, counts, copies);
    const auto microseconds = [&](double clocks) { return clocks / card.clock_ghz / 1e3; };
    Table table({"unit", "microseconds", "of all", "has to do"});
    const auto add = [&](const std::string& unit, double clocks, const std::string& work) {
        table.add({unit, fmt::format("{:.1f}", microseconds(clocks)), percent(clocks / costs.clocks()), work});
    };
    for (const Cost& cost : costs.units) add(cost.unit, cost.clocks, work_of_unit.at(cost.unit));
    add("set-up", costs.setup, counts.at("launches").size() == 1 ? "a launch" : "launches");
    add("sync", costs.sync, "__syncthreads while no other block computes");
    const double tflops = copies * shape.flops() / microseconds(costs.clocks()) / 1e6;
    fmt::print("What this costs on an {} by a model (docs/counting.md), for {:.0f} such problems at once:\n\n{}\n",
               card.name, copies, table.plain());
    fmt::print("Bound by {}. By the model {:.0f} microseconds, {:.1f} TFLOP/s, {} of the tensor cores' {:.0f}.\n",
               costs.bound().unit, microseconds(costs.clocks()), tflops, percent(tflops / card.peak_tflops()),
               card.peak_tflops());
    nlohmann::json json = {{"card", card.name},   {"copies", copies},
                           {"setup", microseconds(costs.setup)}, {"sync", microseconds(costs.sync)},
                           {"bound", costs.bound().unit}, {"microseconds", microseconds(costs.clocks())},
                           {"flops", shape.flops()}, {"tflops", tflops}, {"peak_tflops", card.peak_tflops()},
                           {"memory_gb_s", card.memory_gb_s}, {"l2_gb_s", card.l2_bytes * card.clock_ghz}};
    for (const Cost& cost : costs.units) json["units"][cost.unit] = microseconds(cost.clocks);
    return json;
}

}  // namespace

int profile_rung(const Chapter& chapter, const ProfileOptions& options) {
    const Card& card = find_card(options.card);
    for (const std::string& file : {options.json, options.roofline})
        if (!file.empty()) check_can_be_written(file);
    const Stage& stage = find_stage(chapter.name);
    CountedProblem problem = in_dtype_of(stage, {options.shape, options.lse});
    if (options.shared_bytes > 0) problem.shared_bytes = options.shared_bytes;
    emulator::reseed(options.seed);
    const StageCounts counts = count(stage, problem, options.seed);
    fmt::print("{}, {}, on the emulator: what its kernels ask for.\n\n", stage.name(), to_string(problem.shape));
    print_kernels(counts);
    print_tensors(counts, problem.shape);
    print_lines(counts, options.lines);
    if (const auto form = closed_form(stage.name(), problem.shape, problem.shared_bytes, problem.lse))
        print_closed_form(counts, *form);
    nlohmann::json results = new_results();
    results["rows"].push_back(row_of(stage, problem, counts));
    nlohmann::json& row = results["rows"].back();
    row["launches"] = emulator::to_json(counts.work).at("launches");
    fmt::print("\n");
    row["costs"] = print_costs(card, problem.shape, row.at("counts"),
                               options.copies > 0 ? options.copies : copies_that_fill(card, row.at("counts")));

    // Not in options.json, which need not be a file that can be read.
    const fs::path file = fs::temp_directory_path() / fmt::format("ladder-profile-{}.json", getpid());
    write_file(file.string(), results.dump(1) + "\n");
    if (has_python())
        run_python_tool("ncu.py", {"beside", file.string(), "--build", (build_folder().parent_path() / "gpu").string()});
    else
        fmt::print("\nNot beside the profiler's counts: no python3 here.\n");
    const int drawn = options.roofline.empty() ? 0 : run_python_tool("roofline.py", {file.string(), options.roofline});
    const std::string text = read_file(file.string());  // what the profiler counted is in there now
    fs::remove(file);
    if (!options.json.empty()) write_file(options.json, text);
    return drawn;
}

}  // namespace flashladder

#endif
