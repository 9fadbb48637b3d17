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
#include <set>

#include "cost_model.h"
#include "count.h"
#include "files.h"
#include "harness/project_root.h"
#include "launch.h"
#include "merged_accesses.h"
#include "mine.h"
#include "page.h"
#include "profile_page.h"
#include "programs.h"
#include "results.h"
#include "table.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;
using emulator::Work;

/// What was counted of one kernel; `whose` is put behind names, and "" where there is one alone.
struct Counted {
    StageCounts counts;
    std::string whose;
};

/// Prints a table, which a page will have, too.
void show(const Table& table, const char* title, nlohmann::json& page) {
    fmt::print("{}\n", table.plain());
    page["tables"].push_back(to_json(table, title));
}

void print_kernels(const std::vector<Counted>& all, nlohmann::json& page) {
    Table table({"kernel", "blocks", "requested", "distinct", "moved", "coalesced", "shared wavefronts", "conflicts",
                 "exp", "divisions", "barriers"});
    const auto add = [&](const emulator::LaunchWork& launch, const std::string& whose) {
        const auto global = launch.total.all_global();
        const auto shared = launch.total.all_shared();
        table.add({launch.kernel + whose, fmt::format("{}", launch.grid.x * launch.grid.y * launch.grid.z),
                   readable_bytes(double(global.requested_bytes)),
                   readable_bytes(double(launch.distinct_read_bytes + launch.distinct_written_bytes)),
                   readable_bytes(double(global.sectors * emulator::sector_bytes)), percent(global.coalescing()),
                   fmt::format("{}", shared.wavefronts), percent(conflict_share(shared)),
                   fmt::format("{}", launch.total.exponentials), fmt::format("{}", launch.total.divisions),
                   fmt::format("{}", launch.total.barriers)});
    };
    for (const Counted& one : all)
        for (const emulator::LaunchWork& launch : one.counts.work.launches) add(launch, one.whose);
    show(table, "By kernel", page);
    if (all.size() > 1) return;  // print_beside() has the rest
    const Work total = all.front().counts.work.total();
    if (total.overlapped_exponentials > 0)
        fmt::print("{} of the exponentials overlap with products of the same warpgroup\n",
                   percent(double(total.overlapped_exponentials) / double(total.exponentials)));
    if (total.named_barriers > 0) fmt::print("{} named barriers\n", total.named_barriers);
    if (total.overlapped_exponentials + total.named_barriers > 0) fmt::print("\n");
}

void print_tensors(const std::vector<Counted>& all, const Problem& problem, nlohmann::json& page) {
    std::map<std::string, double> sizes;
    for (const Tensor& tensor : problem.operation->all_tensors(problem)) sizes[tensor.name] = double(tensor.bytes());
    Table table({"tensor", "bytes", "read", "times", "coalesced", "written", "times", "coalesced"});
    const auto add = [&](const std::string& name, const TensorWork& work, const std::string& whose) {
        const double bytes = sizes.contains(name) ? sizes.at(name) : 0;
        std::vector<std::string> cells = {name + whose, readable_bytes(bytes)};
        for (const emulator::GlobalWork* w : {&work.read, &work.written}) {
            const bool none = w->accesses == 0;
            cells.push_back(none ? "" : readable_bytes(double(w->requested_bytes)));
            cells.push_back(none ? "" : quotient(double(w->requested_bytes), bytes));
            cells.push_back(none ? "" : percent(w->coalescing()));
        }
        table.add(cells);
    };
    std::set<std::string> names;
    for (const Counted& one : all)
        for (const auto& [name, work] : one.counts.tensors) names.insert(name);
    for (const std::string& name : names)
        for (const Counted& one : all) {
            sizes["scratch"] = double(one.counts.peak_scratch_bytes);
            if (const auto work = one.counts.tensors.find(name); work != one.counts.tensors.end())
                add(name, work->second, one.whose);
        }
    show(table, "By tensor", page);
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

void print_closed_form(const StageCounts& counts, const ClosedForm& form, nlohmann::json& page) {
    const Work total = counts.work.total();
    Table table({"", "closed form", "counted"});
    const auto add = [&](const char* what, double expected, double counted) {
        table.add({what, fmt::format("{:.0f}", expected), fmt::format("{:.0f}", counted)});
    };
    add("requested bytes", form.requested_bytes, double(counts.requested_bytes()));
    add("distinct bytes", form.distinct_bytes, double(counts.distinct_bytes()));
    add("exponentials", form.exponentials, double(total.exponentials));
    add("divisions", form.divisions, double(total.divisions));
    show(table, "Beside the closed form", page);
}

/// Sums over the launches of two kernels, and how many times as much the first asks for; what neither does is left out.
void print_beside(const StageCounts& yours, const StageCounts& solutions, nlohmann::json& page) {
    Table table({"", "yours", "the solution's", "times"});
    const auto add = [&](const char* what, auto of) {
        const double a = double(of(yours)), b = double(of(solutions));
        const std::string times = quotient(a, b);
        if (a != 0 || b != 0)
            table.add({what, fmt::format("{:.0f}", a), fmt::format("{:.0f}", b), times == "1.00" ? "" : times});
    };
    const auto global = [](const StageCounts& c) { return c.work.total().all_global(); };
    const auto shared = [](const StageCounts& c) { return c.work.total().all_shared(); };
    const auto of = [&](const char* what, auto member) {
        add(what, [&](const StageCounts& c) { return c.work.total().*member; });
    };
    const auto most = [&](const char* what, auto member) {
        add(what, [&](const StageCounts& c) {
            std::size_t bytes = 0;
            for (const auto& launch : c.work.launches) bytes = std::max<std::size_t>(bytes, launch.*member);
            return bytes;
        });
    };
    add("requested bytes", [&](const StageCounts& c) { return global(c).requested_bytes; });
    add("distinct bytes", [&](const StageCounts& c) { return c.distinct_bytes(); });
    add("accesses of warps to device memory", [&](const StageCounts& c) { return global(c).accesses; });
    add("sectors of 32 bytes", [&](const StageCounts& c) { return global(c).sectors; });
    add("accesses of warps to shared memory", [&](const StageCounts& c) { return shared(c).accesses; });
    add("shared wavefronts", [&](const StageCounts& c) { return shared(c).wavefronts; });
    add("of them bank conflicts", [&](const StageCounts& c) { return shared(c).conflicts; });
    of("exponentials", &Work::exponentials);
    of("of them beside products", &Work::overlapped_exponentials);
    of("divisions", &Work::divisions);
    of("barriers of blocks", &Work::barriers);
    of("named barriers", &Work::named_barriers);
    of("matrix instructions", &Work::matrix_instructions);
    of("FLOP of matrix instructions", &Work::matrix_flops);
    add("kernels launched", [](const StageCounts& c) { return c.work.launches.size(); });
    most("dynamic shared memory of a block", &emulator::LaunchWork::dynamic_shared_bytes);
    most("bytes on their way to a block, at most", &emulator::LaunchWork::most_bytes_in_flight);
    add("device memory beyond inputs and output", [](const StageCounts& c) { return c.peak_scratch_bytes; });
    show(table, "Yours beside the solution", page);
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

nlohmann::json print_costs(const Card& card, const Problem& problem, const nlohmann::json& counts, double copies,
                           nlohmann::json& page) {
    const double flops = problem.operation->flops(problem);
    const ModelledCosts costs = model_costs(card, flops, problem.dtype, counts, copies);
    const auto microseconds = [&](double clocks) { return clocks / card.clock_ghz / 1e3; };
    Table table({"unit", "microseconds", "of all", "has to do"});
    const auto add = [&](const std::string& unit, double clocks, const std::string& work) {
        table.add({unit, fmt::format("{:.1f}", microseconds(clocks)), percent(clocks / costs.clocks()), work});
    };
    for (const Cost& cost : costs.units) add(cost.unit, cost.clocks, work_of_unit.at(cost.unit));
    add("set-up", costs.setup, counts.at("launches").size() == 1 ? "a launch" : "launches");
    add("sync", costs.sync, "__syncthreads while no other block computes");
    const double tflops = copies * flops / microseconds(costs.clocks()) / 1e6;
    const std::string title =
        fmt::format("What this costs on an {} by a model (docs/counting.md), for {:.0f} such problems at once",
                    card.name, copies);
    fmt::print("{}:\n\n", title);
    show(table, title.c_str(), page);
    fmt::print("Bound by {}. By the model {:.0f} microseconds, {:.1f} TFLOP/s, {} of the tensor cores' {:.0f}.\n",
               costs.bound().unit, microseconds(costs.clocks()), tflops, percent(tflops / card.peak_tflops()),
               card.peak_tflops());
    nlohmann::json json = {{"card", card.name},   {"copies", copies},
                           {"setup", microseconds(costs.setup)}, {"sync", microseconds(costs.sync)},
                           {"bound", costs.bound().unit}, {"microseconds", microseconds(costs.clocks())},
                           {"flops", flops}, {"tflops", tflops}, {"peak_tflops", card.peak_tflops()},
                           {"memory_gb_s", card.memory_gb_s}, {"l2_gb_s", card.l2_bytes * card.clock_ghz}};
    for (const Cost& cost : costs.units) json["units"][cost.unit] = microseconds(cost.clocks);
    return json;
}

/// What nvcc may merge, by the machine code of a file.
void print_mergeable(const nlohmann::json& launches, const std::string& file, int lines, nlohmann::json& page) {
    const fs::path root = project_root();
    const std::string text = describe_mergeable(launches, root, std::size_t(lines), [&] {
        return machine_code({(root / file).string()},
                            fmt::format("-std=c++20 -DFLASHLADDER_GPU -I{}", quoted((root / "common").string())));
    });
    if (text.empty()) return;
    fmt::print("{}\n", text);
    page["notes"].push_back(text);
}

nlohmann::json row_with_launches(const Stage& stage, const CountedProblem& problem, const StageCounts& counts) {
    nlohmann::json row = row_of(stage, problem, counts);
    row["launches"] = emulator::to_json(counts.work).at("launches");
    return row;
}

/// The learner's kernel beside the solution. Fills results["rows"], the learner's first.
void print_with_mine(const Chapter& chapter, const CountedProblem& problem, const Card& card,
                     const ProfileOptions& options, nlohmann::json& results, nlohmann::json& page) {
    const Stage &mine = learners_stage(chapter), &solution = find_stage(chapter.name);
    const auto counted = [&](const Stage& stage, const char* whose) {
        emulator::reseed(options.seed);  // in the same order
        return Counted{count(stage, problem, options.seed), whose};
    };
    const Counted yours = counted(mine, " (yours)"), theirs = counted(solution, "");
    if (yours.counts.work.launches.empty())
        throw std::invalid_argument(fmt::format("{} launches no kernel yet: there is nothing to count", chapter.file()));
    const Problem& asked = problem.problem;
    const Operation& operation = *asked.operation;
    fmt::print("{}, {}, on the emulator: what your kernels ask for, and the solution's.\n\n", solution.name(),
               to_string(asked));
    const Judgement c = operation.reference(operation.inputs(asked, options.seed), options.seed,
                                            std::size_t(1) << 20)(yours.counts.outputs);
    if (!c.passed) {
        const std::string report =
            fmt::format("Yours is wrong: {}\n./ladder test {} says more. This is what it asks for in any case:",
                        c.description, chapter.number());
        fmt::print("{}\n\n", report);
        page["report"] = report;
    }
    page.update(profile_page(yours.counts.work, chapter.file(), &theirs.counts.work));
    print_beside(yours.counts, theirs.counts, page);
    print_kernels({yours, theirs}, page);
    print_tensors({yours, theirs}, asked, page);
    print_lines(yours.counts, options.lines);
    results["rows"] = {row_with_launches(mine, problem, yours.counts),
                       row_with_launches(solution, problem, theirs.counts)};
    nlohmann::json &row = results["rows"][0], &beside = results["rows"][1];
    row["origin"] = "chapter", beside["origin"] = "solution", row["right"] = c.passed;
    print_mergeable(row.at("launches"), chapter.file(), options.lines, page);
    const double copies = options.copies > 0 ? options.copies : copies_that_fill(card, beside.at("counts"));
    row["costs"] = print_costs(card, asked, row.at("counts"), copies, page);
    const ModelledCosts costs =
        model_costs(card, operation.flops(asked), asked.dtype, beside.at("counts"), copies);
    fmt::print("The solution: bound by {}, {:.0f} microseconds.\n", costs.bound().unit,
               costs.clocks() / card.clock_ghz / 1e3);
}

}  // namespace

int profile_rung(const Chapter& chapter, const ProfileOptions& options) {
    const Card& card = find_card(options.card);
    for (const std::string& file : {options.json, options.roofline, options.page})
        if (!file.empty()) check_can_be_written(file);
    const Stage& stage = options.mine ? learners_stage(chapter) : find_stage(chapter.name);
    CountedProblem problem = for_stage(stage, {stage.operation().problem(options.sizes), options.shared_bytes});
    if (options.extras)
        for (const Tensor& tensor : stage.operation().all_tensors(problem.problem))
            if (tensor.is_extra) problem.problem.extras.insert(tensor.name);
    emulator::reseed(options.seed);
    nlohmann::json results = new_results();
    nlohmann::json page = {
        {"title", fmt::format("{}{}, {}", chapter.name, options.mine ? " (yours)" : "", to_string(problem.problem))},
        {"about", fmt::format("What {} for, by source line, on the emulator. Commit {}, {}, seed {}.",
                              options.mine ? "your kernels ask" : "its kernels ask",
                              results.at("commit").get<std::string>(), results.at("date").get<std::string>(),
                              options.seed)},
        {"tables", nlohmann::json::array()}};
    if (options.mine) {
        try {
            print_with_mine(chapter, problem, card, options, results, page);
        } catch (const CudaError& error) {
            return tell_failure(chapter, error.what(), options.page);
        }
    } else {
        const StageCounts counts = count(stage, problem, options.seed);
        fmt::print("{}, {}, on the emulator: what its kernels ask for.\n\n", stage.name(), to_string(problem.problem));
        page.update(profile_page(counts.work, chapter.solution()));
        print_kernels({{counts, ""}}, page);
        print_tensors({{counts, ""}}, problem.problem, page);
        print_lines(counts, options.lines);
        nlohmann::json row = row_with_launches(stage, problem, counts);
        print_mergeable(row.at("launches"), chapter.solution(), options.lines, page);
        if (const auto form = stage.operation().closed_form(stage.name(), problem))
            print_closed_form(counts, *form, page);
        else
            fmt::print("\n");
        row["costs"] = print_costs(card, problem.problem, row.at("counts"),
                                   options.copies > 0 ? options.copies : copies_that_fill(card, row.at("counts")), page);
        results["rows"].push_back(row);
    }

    // Not in options.json, which need not be a file that can be read.
    const fs::path file = fs::temp_directory_path() / fmt::format("ladder-profile-{}.json", getpid());
    write_file(file.string(), results.dump(1) + "\n");
    if (!options.mine) {  // what the profiler runs has no learner's kernel
        if (has_python())
            run_python_tool("measure/ncu.py",
                            {"beside", file.string(), "--build", (build_folder().parent_path() / "gpu").string()});
        else
            fmt::print("\nNot beside the profiler's counts: no python3 here.\n");
    }
    const int drawn =
        options.roofline.empty() ? 0 : run_python_tool("pictures/roofline.py", {file.string(), options.roofline});
    const std::string text = read_file(file.string());  // what the profiler counted is in there now
    fs::remove(file);
    if (!options.json.empty()) write_file(options.json, text);
    if (!options.page.empty()) write_page(options.page, "profile", page);
    return drawn;
}

}  // namespace flashladder

#endif
