#include "count.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>

#ifdef FLASHLADDER_GPU

namespace flashladder {

void print_counted_work(nlohmann::json&) {}
int count_rungs(const CountOptions&) { throw std::runtime_error("work is counted by the emulator: --backend cpu"); }

}  // namespace flashladder

#else

#include <nlohmann/json.hpp>

#include "chapters.h"
#include "emulator/emulator.h"
#include "files.h"
#include "harness/counts.h"
#include "harness/dtype.h"
#include "results.h"
#include "table.h"

namespace flashladder {
namespace {

using emulator::Work;

bool wanted(const Stage& stage, const CountedProblem& counted) {
    return counted.problem.operation == &stage.operation() && stage.why_unsupported(counted.problem).empty() &&
           stage.name().starts_with(counted.stage) && stage.operation().takes_part(stage.name(), counted.problem);
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
    for (const Operation* operation : operations()) {
        for (const Problem& problem : operation->counted_of_variants())
            for (const Stage& variant : variants())  // some are of one head_dim alone
                if (const CountedProblem counted = for_stage(variant, {problem}); wanted(variant, counted))
                    all.push_back({"variants", of_variants++, &variant, counted});
        for (const CountedProblem& any_dtype : operation->counted())
            for (const Stage& stage : stages())
                if (const CountedProblem counted = for_stage(stage, any_dtype); wanted(stage, counted))
                    all.push_back({"rows", of_rungs++, &stage, counted});
    }
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
            return stale(fmt::format("{} on {}", stage->name(), to_string(problem.problem)));
    fmt::print("{} is what is counted now, by {} of its rows\n", options.check, all.size());
    return 0;
}

std::vector<std::string> counts_cells(const Stage& stage, const Problem& problem, const StageCounts& counts) {
    const Work total = counts.work.total();
    const auto global = total.all_global();
    const auto shared = total.all_shared();
    const double units = problem.operation->units(problem);
    return {stage.name(),
            to_string(problem.dtype),
            title(problem),
            readable_bytes(double(global.requested_bytes)),
            readable_bytes(double(counts.distinct_bytes())),
            readable_bytes(double(global.sectors * emulator::sector_bytes)),
            percent(global.coalescing()),
            fmt::format("{}", shared.wavefronts),
            percent(conflict_share(shared)),
            total.matrix_flops == 0 ? "" : fmt::format("{:.1f} M", double(total.matrix_flops) / 1e6),
            quotient(double(total.exponentials), units),
            quotient(double(total.divisions), units)};
}

}  // namespace

CountedProblem for_stage(const Stage& stage, CountedProblem counted) {
    counted.problem.dtype = stage.dtypes().front();
    if (counted.shared_bytes == 0) counted.shared_bytes = emulator::settings().shared_bytes_per_block;
    return counted;
}

StageCounts count(const Stage& stage, const CountedProblem& counted, std::uint64_t seed) {
    // Before there are inputs, which need sizes that make sense:
    if (const std::string why = stage.why_unsupported(counted.problem); !why.empty()) throw std::invalid_argument(why);
    struct WithSharedBytes {
        const std::size_t before = emulator::settings().shared_bytes_per_block;
        ~WithSharedBytes() { emulator::settings().shared_bytes_per_block = before; }
    } restore;
    emulator::settings().shared_bytes_per_block = counted.shared_bytes;
    emulator::reseed(seed);  // what is under way at a time depends on the order of things
    return count_stage(stage, stage.operation().inputs(counted.problem, seed));
}

nlohmann::json row_of(const Stage& stage, const CountedProblem& counted, const StageCounts& counts) {
    const Problem& problem = counted.problem;
    nlohmann::json row = {{"stage", stage.name()},
                          {"operation", stage.operation().name()},
                          {"dtype", to_string(problem.dtype)},
                          {"shape", to_json(problem)},
                          {"shared_bytes", counted.shared_bytes},
                          {"counts", to_json(counts)}};
    for (const Tensor& tensor : problem.operation->all_tensors(problem))
        if (tensor.is_extra) row[tensor.name] = problem.extras.contains(tensor.name);
    if (const auto form = problem.operation->closed_form(stage.name(), counted))
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

Table counts_table(const Operation& operation) {
    return Table({"rung", "dtype", "problem", "requested", "distinct", "moved", "coalesced", "shared wavefronts",
                  "conflicts", "matrix FLOP", fmt::format("exp a {}", operation.unit()),
                  fmt::format("divisions a {}", operation.unit())});
}

CountedRow count_for_table(const Stage& stage, const Data& inputs) {
    const StageCounts counts = count_stage(stage, inputs);
    const CountedProblem counted = for_stage(stage, {inputs.problem});
    return {counts_cells(stage, inputs.problem, counts), row_of(stage, counted, counts), counts.outputs};
}

void print_counted_work(nlohmann::json& results) {
    for (const Operation* operation : operations()) {
        Table table = counts_table(*operation);
        const Problem problem = operation->problem({});
        for (const Stage& stage : stages()) {
            const CountedProblem counted = for_stage(stage, {problem});
            if (!wanted(stage, counted)) continue;
            const StageCounts counts = count(stage, counted, 1);
            results["rows"].push_back(row_of(stage, counted, counts));
            table.add(counts_cells(stage, counted.problem, counts));
        }
        if (!table.empty()) fmt::print("\nCounted work (more: ./ladder profile 01):\n\n{}", table.plain());
    }
}

int count_rungs(const CountOptions& options) {
    if (!options.rungs.empty() && !(options.check + options.json).empty())
        throw std::invalid_argument("a result file has the counts of all rungs: --json and --check take no rung");
    if (!options.check.empty()) return check_rows(options);
    std::vector<std::string> names;
    for (const std::string& rung : options.rungs) names.push_back(find_chapter(rung).name);
    if (!options.json.empty()) check_can_be_written(options.json);  // before the work, which takes minutes
    nlohmann::json results = new_results();
    std::map<const Operation*, Table> tables;
    for (const Row& row : rows()) {
        if (!names.empty() && (row.section != "rows" || !std::ranges::count(names, row.stage->name()))) continue;
        const StageCounts counts = count(*row.stage, row.problem, 1);
        results[row.section].push_back(row_of(*row.stage, row.problem, counts));
        const Operation& operation = row.stage->operation();
        if (row.section == "rows" && row.problem.shared_bytes == emulator::settings().shared_bytes_per_block)
            tables.try_emplace(&operation, counts_table(operation))
                .first->second.add(counts_cells(*row.stage, row.problem.problem, counts));
    }
    if (!options.json.empty()) write_file(options.json, results.dump(1) + "\n");
    if (tables.empty())
        fmt::print("docs/results/counts.json has no rows of {}: ./ladder profile counts any problem of them\n",
                   fmt::join(names, ", "));
    for (const Operation* operation : operations())
        if (const auto table = tables.find(operation); table != tables.end())
            fmt::print("Counted work, {}.\n\n{}\n", operation->name(), table->second.plain());
    return 0;
}

}  // namespace flashladder

#endif
