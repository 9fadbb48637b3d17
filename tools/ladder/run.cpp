#include "run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "count.h"
#include "files.h"
#include "harness/dtype.h"
#include "harness/run.h"
#include "launch.h"
#include "progress.h"
#include "results.h"
#include "table.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

std::string seconds_since(std::chrono::steady_clock::time_point start) {
    return fmt::format("{:.2f} s", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

/// The dtype that a stage is shown with: the first that it supports.
DType dtype_of(const Stage& stage) { return stage.dtypes().front(); }

bool is_asked(const Operation& operation, const RunOptions& options) {
    return options.operation.empty() || operation.name() == options.operation;
}

/// The stages that agree with the reference everywhere, and the table of how well.
int check_all(const RunOptions& options, nlohmann::json& results) {
    Table table({"rung", "dtype", "input", "error", "worst row", "allowed", "", "time"});
    std::string complaints, skipped;
    for (const Stage& stage : stages()) {
        if (!is_asked(stage.operation(), options)) continue;
        const std::string dtype = to_string(dtype_of(stage));
        if (const std::string why = why_not_on_this_gpu(stage); !why.empty()) skipped += why + "\n";
        for (const auto& [name, inputs] : stage.operation().checks(dtype_of(stage), options.seed)) {
            if (!stage.why_unsupported(inputs.problem).empty()) continue;
            progress(fmt::format("{}: {}", stage.name(), name));
            const auto start = std::chrono::steady_clock::now();
            try {
                const Judgement c = check(stage, inputs);
                table.add({stage.name(), dtype, name, fmt::format("{:.1e}", c.error),
                           fmt::format("{:.1e}", c.worst_row), fmt::format("{:.1e}", c.allowed_worst_row),
                           c.passed ? "ok" : "WRONG", seconds_since(start)});
                results["rows"].push_back(result_row(stage, inputs.problem, c, nullptr));
                if (!c.passed) complaints += fmt::format("{}: {}\n", stage.name(), c.description);
            } catch (const CudaError& error) {
                table.add({stage.name(), dtype, name, "", "", "", "FAILED", seconds_since(start)});
                complaints += fmt::format("{}: {}\n", stage.name(), error.what());
            }
        }
    }
    progress("");
    fmt::print("{}", table.plain());
    for (const std::string& lines : {complaints, skipped})
        if (!lines.empty()) fmt::print("\n{}", lines);
    return complaints.empty() ? 0 : 1;
}

/// The stages, and for the set "variants" those that have variants, with these, whose dtype is that of the shape.
std::vector<const Stage*> taking_part(const TimedProblem& problem, DType dtype) {
    std::vector<const Stage*> able;
    const auto add = [&](const Stage& stage) {
        if (&stage.operation() == problem.problem.operation && stage.name() >= problem.lowest_stage &&
            stage.operation().takes_part(stage.name(), problem.problem) &&
            dtype_of(stage) == dtype && stage.why_unsupported(problem.problem.in(dtype)).empty())
            able.push_back(&stage);
    };
    const auto is_of = [](const Stage& stage) {
        return [&stage](const Stage& variant) { return variant.folder() == stage.folder(); };
    };
    for (const Stage& stage : stages()) {
        if (problem.set != "variants") add(stage);
        if (const auto all = variants(); problem.set != "variants" || std::ranges::none_of(all, is_of(stage))) continue;
        add(stage);
        for (const Stage& variant : variants())
            if (is_of(stage)(variant)) add(variant);
    }
    return able;
}

/// The worst that the reference of a part says of outputs that have the part's numbers, one part after another.
Judgement judge_parts(const Data& outputs, const Problem& part, const Reference& reference) {
    Judgement worst;
    const auto& [name, values] = *outputs.tensors.begin();
    std::vector<Tensor> of_part = part.operation->tensors(part);
    const auto elements_of = [&](const std::string& tensor) {
        return std::ranges::find(of_part, tensor, &Tensor::name)->elements();
    };
    const std::size_t parts = values.size() / elements_of(name);
    for (std::size_t i = 0; i < parts; ++i) {
        Data one{part};
        for (const auto& [tensor, all] : outputs.tensors) {
            const auto n = static_cast<std::ptrdiff_t>(elements_of(tensor)), first = static_cast<std::ptrdiff_t>(i) * n;
            one.tensors[tensor].assign(all.begin() + first, all.begin() + first + n);
        }
        Judgement judgement = reference(one);
        if (i == 0 || !judgement.passed || judgement.worst_row > worst.worst_row) worst = std::move(judgement);
        if (!worst.passed) break;
    }
    return worst;
}

/// Times the stages that take part, and checks what they computed. `ms_below` is the time of the rung below, 0 if there
/// is none.
void time_in_one_dtype(const TimedProblem& problem, DType dtype, double& ms_below, Table& table,
                       nlohmann::json& results) {
    const std::vector<const Stage*> able = taking_part(problem, dtype);
    if (able.empty()) return;
    const Problem asked = problem.problem.in(dtype);
    const Operation& operation = *asked.operation;
    progress(fmt::format("timing {}", to_string(asked)));
    // Of a part, whose numbers are repeated, and of some rows of it: more would take the reference minutes.
    const Problem part = operation.part_of(asked);
    const Data inputs = operation.inputs(part, 1);
    const std::vector<TimedStage> timed = time_stages(able, inputs, asked);
    const Reference reference = operation.reference(inputs, 1, 256);
    for (std::size_t s = 0; s < able.size(); ++s) {
        const Judgement c = judge_parts(timed[s].outputs, part, reference);
        if (!c.passed) throw std::runtime_error(fmt::format("{}: {}", able[s]->name(), c.description));
        const Timing& t = timed[s].timing;
        table.add({problem.set, title(asked), able[s]->name(), to_string(asked.dtype), fmt::format("{:.3f}", t.ms),
                   fmt::format("{:.3f}", t.ms_min), fmt::format("{:.3f}", t.ms_max),
                   fmt::format("{:.2f}", operation.flops(asked) / t.ms / 1e9),
                   ms_below > 0 && problem.set != "variants" ? fmt::format("{:.2f}x", ms_below / t.ms) : ""});
        results["rows"].push_back(result_row(*able[s], asked, c, &timed[s]));
        results["rows"].back()["set"] = problem.set;
        ms_below = t.ms;
    }
}

/// Calls `keep` after each problem: all take minutes, and whoever stops them has what was timed.
[[maybe_unused]] void time_all(const RunOptions& options, nlohmann::json& results, const std::function<void()>& keep) {
    Table table({"table", "problem", "rung", "dtype", "ms", "min", "max", "TFLOP/s", "vs the rung below"});
    for (const Operation* operation : operations())
        for (const TimedProblem& problem : operation->timed()) {
            if (!is_asked(*operation, options)) continue;
            double ms_below = 0;
            for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
                time_in_one_dtype(problem, dtype, ms_below, table, results);
            keep();
        }
    note_gpu_state(results);
    progress("");
    fmt::print("\nmedians, the rungs of a dtype taking turns\n\n{}", table.plain());
}

}  // namespace

int run_ladder(const RunOptions& options) {
    if (!options.operation.empty()) find_operation(options.operation);  // or throws
    if (!options.json.empty()) check_can_be_written(options.json);
    nlohmann::json results = new_results();
    const auto write = [&] {
        if (!options.json.empty()) write_file(options.json, results.dump(1) + "\n");
    };
#ifndef FLASHLADDER_GPU
    emulator::reseed(options.seed);
#endif
    fmt::print("Every rung against the reference (double precision), on {}, seed {}.\n\n",
               results["gpu"].get<std::string>(), options.seed);
    int status = 1;
    try {
        status = check_all(options, results);
#ifdef FLASHLADDER_GPU
        if (options.timing && status == 0) time_all(options, results, write);
#else
        print_counted_work(results);
        fmt::print("\nThe times are the emulator's. Speed is measured where there is a GPU.\n");
#endif
    } catch (...) {
        write();  // what there is by now has taken minutes
        throw;
    }
    write();
    return status;
}

}  // namespace flashladder
