#include "count.h"

#include <fmt/format.h>

#include <algorithm>
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
    // Before the work, which takes minutes:
    if (!options.json.empty()) check_can_be_written(options.json);
    nlohmann::json committed;
    if (!options.check.empty()) {
        committed = nlohmann::json::parse(read_file(options.check), nullptr, false);
        if (!committed.is_object() || !committed.contains("rows"))
            throw std::runtime_error(fmt::format("{} is no result file of ladder count", options.check));
    }
    nlohmann::json results = new_results();
    Table table = counts_table();
    for (const int head_dim : {64, 128})
        for (const Stage& variant : variants()) {
            const CountedProblem problem = in_dtype_of(variant, {square(1024, head_dim)});
            if (!why_unsupported(variant.supports, problem.shape).empty()) continue;  // of one head_dim alone
            results["variants"].push_back(row_of(variant, problem, count(variant, problem, 1)));
        }
    for (const CountedProblem& in_f32 : problems())
        for (const Stage& stage : stages()) {
            const CountedProblem problem = in_dtype_of(stage, in_f32);
            if (!wanted(stage, problem)) continue;
            const StageCounts counts = count(stage, problem, 1);
            results["rows"].push_back(row_of(stage, problem, counts));
            const bool shown = in_f32.shape == square(1024, problem.shape.head_dim) &&
                               problem.shared_bytes == emulator::settings().shared_bytes_per_block;
            if (shown) table.add(counts_cells(stage, problem.shape, counts));
        }
    if (!options.json.empty()) write_file(options.json, results.dump(1) + "\n");
    if (!options.check.empty()) {
        const bool fresh = committed.at("rows") == results.at("rows") &&
                           committed.value("variants", nlohmann::json()) == results.value("variants", nlohmann::json());
        fmt::print("{} {}\n", options.check,
                   fresh ? "is what is counted now" : "is stale: ./ladder count --json " + options.check);
        return fresh ? 0 : 1;
    }
    fmt::print("Counted work of one head, N = 1024, not causal.\n\n{}", table.plain());
    return 0;
}

}  // namespace flashladder

#endif
