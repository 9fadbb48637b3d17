#include "count.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#ifdef FLASHLADDER_GPU

namespace flashladder {

void print_counted_work(nlohmann::json&) {}
int count_rungs(const CountOptions&) { throw std::runtime_error("work is counted by the emulator: --backend cpu"); }

}  // namespace flashladder

#else

#include <nlohmann/json.hpp>

#include "emulator/emulator.h"
#include "files.h"
#include "harness/closed_forms.h"
#include "harness/counts.h"
#include "harness/inputs.h"
#include "results.h"
#include "table.h"

namespace flashladder {
namespace {

using emulator::Work;

AttentionShape square(int n, int head_dim) {
    AttentionShape s;
    s.n_q = s.n_k = n;
    s.head_dim = head_dim;
    return s;
}

/// What docs/results/counts.json holds, but for the dtype.
std::vector<CountedProblem> problems() {
    std::vector<CountedProblem> all;
    for (const int head_dim : {64, 128}) all.push_back({square(1024, head_dim)});
    for (const int n : {64, 128, 256, 512}) all.push_back({square(n, 64)});
    for (const std::size_t kilobytes : {66, 132, 115, 230}) all.push_back({square(1024, 64), false, kilobytes * 1024});
    CountedProblem causal{square(1024, 64)}, grouped{square(256, 64)};
    causal.shape.causal = true;
    grouped.shape.heads = 4;
    return all.push_back(causal), all.push_back(grouped), all;
}

/// Only rung 02 looks at how much shared memory there is.
bool wanted(const Stage& stage, const CountedProblem& problem) {
    const bool other_memory = problem.shared_bytes != emulator::settings().shared_bytes_per_block;
    return why_unsupported(stage.supports, problem.shape, problem.lse).empty() &&
           (!other_memory || stage.name().starts_with("02"));
}

/// What docs/results/counts.json has a row for, in its order.
struct Row {
    std::string section;
    std::size_t index;  // in its section
    const Stage* stage;
    CountedProblem problem;
};
std::vector<Row> rows() {
    std::vector<Row> all;
    std::size_t of_variants = 0, of_rungs = 0;
    for (const int head_dim : {64, 128})
        for (const Stage& variant : variants()) {
            const CountedProblem problem = in_dtype_of(variant, {square(1024, head_dim)});
            if (!why_unsupported(variant.supports, problem.shape).empty()) continue;  // of one head_dim alone
            all.push_back({"variants", of_variants++, &variant, problem});
        }
    for (const CountedProblem& in_f32 : problems())
        for (const Stage& stage : stages())
            if (const CountedProblem problem = in_dtype_of(stage, in_f32); wanted(stage, problem))
                all.push_back({"rows", of_rungs++, &stage, problem});
    return all;
}

/// Whether a result file has what is counted now: all of it, or as many rows as asked for, drawn.
int check_rows(const CountOptions& options) {
    const auto committed = nlohmann::json::parse(read_file(options.check), nullptr, false);
    if (!committed.is_object() || !committed.contains("rows"))
        throw std::runtime_error(fmt::format("{} is no result file of ladder count", options.check));
    std::vector<Row> all = rows();
    const auto stale = [&](const std::string& why) {
        fmt::print("{} is stale, {}: ./ladder count --json {}\n", options.check, why, options.check);
        return 1;
    };
    const auto of_section = [&](const std::string& section) {
        return committed.value(section, nlohmann::json::array());
    };
    for (const std::string section : {"rows", "variants"})
        if (of_section(section).size() != std::size_t(std::ranges::count(all, section, &Row::section)))
            return stale(fmt::format("the number of its {}", section));
    if (options.sample > 0 && options.sample < all.size()) {
        std::ranges::shuffle(all, std::mt19937_64(std::random_device()()));
        all.resize(options.sample);
    }
    for (const auto& [section, index, stage, problem] : all)
        if (of_section(section).at(index) != row_of(*stage, problem, count(*stage, problem, 1)))
            return stale(fmt::format("{} on {}", stage->name(), to_string(problem.shape)));
    fmt::print("{} is what is counted now, by {} of its rows\n", options.check, all.size());
    return 0;
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

}  // namespace

CountedProblem in_dtype_of(const Stage& stage, CountedProblem problem) {
    problem.shape.dtype = stage.supports.dtypes.front();
    return problem;
}

StageCounts count(const Stage& stage, const CountedProblem& problem, std::uint64_t seed) {
    // Before there are inputs, which need sizes that make sense:
    if (const std::string why = why_unsupported(stage.supports, problem.shape, problem.lse); !why.empty())
        throw std::invalid_argument(why);
    struct WithSharedBytes {
        const std::size_t before = emulator::settings().shared_bytes_per_block;
        ~WithSharedBytes() { emulator::settings().shared_bytes_per_block = before; }
    } restore;
    emulator::settings().shared_bytes_per_block = problem.shared_bytes;
    emulator::reseed(seed);  // what is under way at a time depends on the order of things
    return count_stage(stage, make_inputs(problem.shape, Values::normal, seed), problem.lse);
}

nlohmann::json row_of(const Stage& stage, const CountedProblem& problem, const StageCounts& counts) {
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

double conflict_share(const emulator::SharedWork& w) {
    return w.wavefronts == 0 ? 0 : double(w.conflicts) / double(w.wavefronts);
}

std::string percent(double part) { return fmt::format("{:.0f}%", 100 * part); }

std::string quotient(double a, double b) { return b == 0 ? "" : fmt::format("{:.2f}", a / b); }

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
        const CountedProblem problem = in_dtype_of(stage, {square(256, 64)});
        const StageCounts counts = count(stage, problem, 1);
        results["rows"].push_back(row_of(stage, problem, counts));
        table.add(counts_cells(stage, problem.shape, counts));
    }
    fmt::print("\nCounted work of one head, N = 256, d = 64 (more: ./ladder profile 01):\n\n{}", table.plain());
}

int count_rungs(const CountOptions& options) {
    if (!options.check.empty()) return check_rows(options);
    if (!options.json.empty()) check_can_be_written(options.json);  // before the work, which takes minutes
    nlohmann::json results = new_results();
    Table table = counts_table();
    for (const Row& row : rows()) {
        const StageCounts counts = count(*row.stage, row.problem, 1);
        results[row.section].push_back(row_of(*row.stage, row.problem, counts));
        const AttentionShape& shape = row.problem.shape;
        const bool shown = row.section == "rows" &&
                           shape == in_dtype_of(*row.stage, {square(1024, shape.head_dim)}).shape &&
                           row.problem.shared_bytes == emulator::settings().shared_bytes_per_block;
        if (shown) table.add(counts_cells(*row.stage, shape, counts));
    }
    if (!options.json.empty()) write_file(options.json, results.dump(1) + "\n");
    fmt::print("Counted work of one head, N = 1024, not causal.\n\n{}", table.plain());
    return 0;
}

}  // namespace flashladder

#endif
