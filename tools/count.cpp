#include "count.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#ifdef FLASHLADDER_GPU

namespace flashladder {

void print_counted_work(nlohmann::json&) {}
int count_rungs(const CountOptions&) { throw std::runtime_error("work is counted by the emulator: --backend cpu"); }
int profile_rung(const Chapter&, const ProfileOptions&) { return count_rungs({}); }

}  // namespace flashladder

#else

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "emulator/emulator.h"
#include "files.h"
#include "harness/closed_forms.h"
#include "harness/counts.h"
#include "harness/inputs.h"
#include "results.h"
#include "table.h"

namespace flashladder {
namespace {

using emulator::Access, emulator::Work;

/// One problem on one rung.
struct Problem {
    AttentionShape shape;
    bool lse = false;
    std::size_t shared_bytes = emulator::settings().shared_bytes_per_block;
};

StageCounts count(const Stage& stage, const Problem& problem, std::uint64_t seed) {
    struct WithSharedBytes {
        const std::size_t before = emulator::settings().shared_bytes_per_block;
        ~WithSharedBytes() { emulator::settings().shared_bytes_per_block = before; }
    } restore;
    emulator::settings().shared_bytes_per_block = problem.shared_bytes;
    return count_stage(stage, make_inputs(problem.shape, Values::normal, seed), problem.lse);
}

nlohmann::json row_of(const Stage& stage, const Problem& problem, const StageCounts& counts) {
    const AttentionShape& s = problem.shape;
    nlohmann::json row = {{"stage", stage.name()}, {"dtype", to_string(s.dtype)},          {"shape", to_json(s)},
                          {"lse", problem.lse},    {"shared_bytes", problem.shared_bytes}, {"counts", to_json(counts)}};
    if (const auto form = closed_form(stage.name(), s, problem.shared_bytes, problem.lse))
        row["closed_form"] = {{"requested_bytes", form->requested_bytes},
                              {"distinct_bytes", form->distinct_bytes},
                              {"exponentials", form->exponentials},
                              {"divisions", form->divisions}};
    return row;
}

AttentionShape square(int n, int head_dim) {
    AttentionShape s;
    s.n_q = s.n_k = n;
    s.head_dim = head_dim;
    return s;
}

/// The same problem in the first dtype that the stage supports.
Problem in_dtype_of(const Stage& stage, Problem problem) {
    problem.shape.dtype = stage.supports.dtypes.front();
    return problem;
}

/// What docs/results/counts.json holds, but for the dtype.
std::vector<Problem> problems() {
    std::vector<Problem> all;
    for (const int head_dim : {64, 128}) all.push_back({square(1024, head_dim)});
    for (const int n : {64, 128, 256, 512}) all.push_back({square(n, 64)});
    for (const std::size_t kilobytes : {66, 132, 115, 230}) all.push_back({square(1024, 64), false, kilobytes * 1024});
    Problem causal{square(1024, 64)}, grouped{square(256, 64)};
    causal.shape.causal = true;
    grouped.shape.heads = 4;
    return all.push_back(causal), all.push_back(grouped), all;
}

/// Only rung 02 looks at how much shared memory there is.
bool wanted(const Stage& stage, const Problem& problem) {
    const bool other_memory = problem.shared_bytes != emulator::settings().shared_bytes_per_block;
    return why_unsupported(stage.supports, problem.shape, problem.lse).empty() &&
           (!other_memory || stage.name().starts_with("02"));
}

double conflict_share(const emulator::SharedWork& w) {
    return w.wavefronts == 0 ? 0 : double(w.conflicts) / double(w.wavefronts);
}

std::string percent(double part) { return fmt::format("{:.0f}%", 100 * part); }

std::string quotient(double a, double b) { return b == 0 ? "" : fmt::format("{:.2f}", a / b); }

/// The line of a source file that "file:17" names, without its indentation; "" if it cannot be read.
std::string source_line(const std::string& place) {
    const std::size_t colon = place.rfind(':');
    if (colon == std::string::npos) return "";
    std::ifstream file(project_root() + "/" + place.substr(0, colon));
    std::string text;
    for (int n = std::stoi(place.substr(colon + 1)); n > 0 && std::getline(file, text);) --n;
    text.erase(0, text.find_first_not_of(' '));
    constexpr std::size_t width = 60;
    return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

std::vector<std::string> counts_cells(const Stage& stage, const AttentionShape& shape, const StageCounts& counts) {
    const Work total = counts.work.total();
    const auto global = total.all_global();
    const auto shared = total.all_shared();
    const double scores = double(shape.batch) * shape.heads * shape.n_q * shape.n_k;
    return {stage.name(),
            to_string(shape.dtype),
            fmt::format("{}", shape.head_dim),
            readable_bytes(double(global.requested_bytes)),
            readable_bytes(double(counts.distinct_bytes())),
            readable_bytes(double(global.sectors * emulator::sector_bytes)),
            percent(global.coalescing()),
            fmt::format("{}", shared.wavefronts),
            percent(conflict_share(shared)),
            total.matrix_flops == 0 ? "" : fmt::format("{:.1f} M", double(total.matrix_flops) / 1e6),
            quotient(double(total.exponentials), scores),
            quotient(double(total.divisions), scores)};
}

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

}  // namespace

Table counts_table() {
    return Table({"rung", "dtype", "d", "requested", "distinct", "moved", "coalesced", "shared wavefronts", "conflicts",
                  "matrix FLOP", "exp a score", "divisions a score"});
}

CountedRow count_for_table(const Stage& stage, const Inputs& inputs) {
    const StageCounts counts = count_stage(stage, inputs);
    return {counts_cells(stage, inputs.shape, counts), row_of(stage, {inputs.shape}, counts), counts.outputs};
}

void print_counted_work(nlohmann::json& results) {
    Table table = counts_table();
    for (const Stage& stage : stages()) {
        const Problem problem = in_dtype_of(stage, {square(256, 64)});
        const StageCounts counts = count(stage, problem, 1);
        results["rows"].push_back(row_of(stage, problem, counts));
        table.add(counts_cells(stage, problem.shape, counts));
    }
    fmt::print("\nCounted work of one head, N = 256, d = 64 (more: ./ladder profile 01):\n\n{}", table.plain());
}

int count_rungs(const CountOptions& options) {
    nlohmann::json results = new_results();
    Table table = counts_table();
    for (const int head_dim : {64, 128})
        for (const Stage& variant : variants()) {
            const Problem problem = in_dtype_of(variant, {square(1024, head_dim)});
            if (!why_unsupported(variant.supports, problem.shape).empty()) continue;  // of one head_dim alone
            results["variants"].push_back(row_of(variant, problem, count(variant, problem, 1)));
        }
    for (const Problem& in_f32 : problems())
        for (const Stage& stage : stages()) {
            const Problem problem = in_dtype_of(stage, in_f32);
            if (!wanted(stage, problem)) continue;
            const StageCounts counts = count(stage, problem, 1);
            results["rows"].push_back(row_of(stage, problem, counts));
            const bool shown = in_f32.shape == square(1024, problem.shape.head_dim) &&
                               problem.shared_bytes == emulator::settings().shared_bytes_per_block;
            if (shown) table.add(counts_cells(stage, problem.shape, counts));
        }
    if (!options.json.empty()) write_file(options.json, results.dump(1) + "\n");
    if (!options.check.empty()) {
        const auto committed = nlohmann::json::parse(read_file(options.check));
        const bool fresh = committed.at("rows") == results.at("rows") &&
                           committed.value("variants", nlohmann::json()) == results.value("variants", nlohmann::json());
        fmt::print("{} {}\n", options.check,
                   fresh ? "is what is counted now" : "is stale: ./ladder count --json " + options.check);
        return fresh ? 0 : 1;
    }
    fmt::print("Counted work of one head, N = 1024, not causal.\n\n{}", table.plain());
    return 0;
}

int profile_rung(const Chapter& chapter, const ProfileOptions& options) {
    const Stage& stage = find_stage(chapter.name);
    Problem problem = in_dtype_of(stage, {options.shape, options.lse});
    if (options.shared_bytes > 0) problem.shared_bytes = options.shared_bytes;
    emulator::reseed(options.seed);
    const StageCounts counts = count(stage, problem, options.seed);
    fmt::print("{}, {}, on the emulator: what its kernels ask for. No times.\n\n", stage.name(),
               to_string(problem.shape));
    print_kernels(counts);
    print_tensors(counts, problem.shape);
    print_lines(counts, options.lines);
    if (const auto form = closed_form(stage.name(), problem.shape, problem.shared_bytes, problem.lse))
        print_closed_form(counts, *form);
    if (!options.json.empty()) {
        nlohmann::json results = new_results();
        results["rows"].push_back(row_of(stage, problem, counts));
        results["rows"].back()["launches"] = emulator::to_json(counts.work).at("launches");
        write_file(options.json, results.dump(1) + "\n");
    }
    return 0;
}

}  // namespace flashladder

#endif
