#include "run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "count.h"
#include "files.h"
#include "harness/inputs.h"
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

struct Check {
    std::string name;
    Inputs inputs;
    Judge judge = Judge::both_rules;
};

/// The dtype that a stage is shown with: the first that it supports.
DType dtype_of(const Stage& stage) { return stage.supports.dtypes.front(); }

std::vector<Check> checks(std::uint64_t seed, DType dtype) {
    AttentionShape square, ragged;
    square.dtype = ragged.dtype = dtype;
    square.heads = square.kv_heads = 2;
    square.n_q = square.n_k = 256;
    ragged.batch = 3;
    ragged.n_q = 33;
    ragged.n_k = 257;
    return {{"real text, N 137, d 32", real_inputs(32, dtype)},
            {"real text, padded to d 64", real_inputs(64, dtype)},
            {"random, N 256, d 64", make_inputs(square, Values::normal, seed)},
            {"peaky, N 33 x 257, d 64", make_inputs(ragged, Values::peaky, seed)}};
}

/// The stages that agree with the reference everywhere, and the table of how well.
int check_all(const RunOptions& options, nlohmann::json& results) {
    Table table({"rung", "dtype", "input", "error", "worst row", "allowed", "", "time"});
    std::string complaints, skipped;
    for (const Stage& stage : stages()) {
        const std::string dtype = to_string(dtype_of(stage));
        if (const std::string why = why_not_on_this_gpu(stage.supports); !why.empty()) skipped += why + "\n";
        for (const Check& check : checks(options.seed, dtype_of(stage))) {
            if (!why_unsupported(stage.supports, check.inputs.shape).empty()) continue;
            progress(fmt::format("{}: {}", stage.name(), check.name));
            const auto start = std::chrono::steady_clock::now();
            try {
                const Comparison c = flashladder::check(stage, check.inputs, check.judge);
                table.add({stage.name(), dtype, check.name, fmt::format("{:.1e}", c.error),
                           fmt::format("{:.1e}", c.worst_row), fmt::format("{:.1e}", c.allowed_worst_row),
                           c.passed ? "ok" : "WRONG", seconds_since(start)});
                results["rows"].push_back(result_row(stage, check.inputs.shape, c, nullptr));
                if (!c.passed) complaints += fmt::format("{}: {}\n", stage.name(), c.describe(check.inputs.shape));
            } catch (const CudaError& error) {
                table.add({stage.name(), dtype, check.name, "", "", "", "FAILED", seconds_since(start)});
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

/// Some stages on one problem, each in the first dtype that it supports. `set` names the table that the rows are for.
struct TimedProblem {
    std::string set;
    AttentionShape shape;      // but for its dtype
    std::string lowest_stage;  // of those that take part

    AttentionShape shape_in(DType dtype) const {
        AttentionShape s = shape;
        s.dtype = dtype;
        return s;
    }
};

/// 16384 tokens and a model width of 2048, as the papers have it.
AttentionShape timed_shape(int head_dim, int n) {
    AttentionShape s;
    s.batch = 16384 / n;
    s.heads = s.kv_heads = 2048 / head_dim;
    s.n_q = s.n_k = n;
    s.head_dim = head_dim;
    return s;
}

std::vector<TimedProblem> timed_problems() {
    std::vector<TimedProblem> all;
    for (const int head_dim : {64, 128}) {
        for (const int n : {512, 1024, 2048, 4096, 8192}) all.push_back({"grid", timed_shape(head_dim, n), ""});
        for (const int heads : {1, 4, 16, 64}) {
            AttentionShape s = timed_shape(head_dim, 4096);
            s.batch = 1;
            s.heads = s.kv_heads = heads;
            all.push_back({"heads", s, "02"});
        }
        AttentionShape plain = timed_shape(head_dim, 4096), causal = plain, grouped = plain;
        causal.causal = true;
        grouped.kv_heads = grouped.heads / 8;
        AttentionShape both = grouped;
        both.causal = true;
        for (const AttentionShape& s : {plain, causal, grouped, both}) all.push_back({"features", s, "03"});
        all.push_back({"variants", plain, ""});
    }
    return all;
}

/// The stages, and for the set "variants" those that have variants, with these, whose dtype is that of the shape.
std::vector<const Stage*> taking_part(const TimedProblem& problem, DType dtype) {
    std::vector<const Stage*> able;
    const auto add = [&](const Stage& stage) {
        if (stage.name() >= problem.lowest_stage && dtype_of(stage) == dtype &&
            why_unsupported(stage.supports, problem.shape_in(dtype)).empty())
            able.push_back(&stage);
    };
    const auto is_of = [](const Stage& stage) {
        return [&stage](const Stage& variant) { return variant.supports.stage == stage.supports.stage; };
    };
    for (const Stage& stage : stages()) {
        if (problem.set != "variants") add(stage);
        if (problem.set != "variants" || std::ranges::none_of(variants(), is_of(stage))) continue;
        add(stage);
        for (const Stage& variant : variants())
            if (is_of(stage)(variant)) add(variant);
    }
    return able;
}

/// Times the stages that take part, and checks what they computed. `ms_below` is the time of the rung below, 0 if there
/// is none.
void time_in_one_dtype(const TimedProblem& problem, DType dtype, double& ms_below, Table& table,
                       nlohmann::json& results) {
    const std::vector<const Stage*> able = taking_part(problem, dtype);
    if (able.empty()) return;
    const AttentionShape shape = problem.shape_in(dtype);
    progress(fmt::format("timing {}", to_string(shape)));
    const Inputs inputs = make_inputs(shape, Values::normal, 1);
    const std::vector<TimedStage> timed = time_stages(able, inputs);
    // Few rows suffice: the shapes were all checked above, here the point is that the timed one is right too.
    auto rows = rows_to_check(shape, 1);
    std::vector<std::size_t> sampled;
    for (std::size_t i = 0; i < rows.size(); i += std::max<std::size_t>(1, rows.size() / 256))
        sampled.push_back(rows[i]);
    const AttentionRows reference = reference_attention(inputs, sampled),
                        standard = standard_attention(inputs, sampled);
    for (std::size_t s = 0; s < able.size(); ++s) {
        const Comparison c = compare(timed[s].outputs, shape, reference, standard);
        if (!c.passed) throw std::runtime_error(fmt::format("{}: {}", able[s]->name(), c.describe(shape)));
        const Timing& t = timed[s].timing;
        const auto number = [](int n) { return fmt::format("{}", n); };
        table.add({problem.set, number(shape.batch), number(shape.heads), number(shape.n_q), number(shape.head_dim),
                   fmt::format("{}{}", shape.causal ? "causal " : "",
                               shape.kv_heads < shape.heads ? fmt::format("{} kv heads", shape.kv_heads) : ""),
                   able[s]->name(), to_string(shape.dtype), fmt::format("{:.3f}", t.ms),
                   fmt::format("{:.3f}", t.ms_min), fmt::format("{:.3f}", t.ms_max),
                   fmt::format("{:.2f}", shape.flops() / t.ms / 1e9),
                   ms_below > 0 && problem.set != "variants" ? fmt::format("{:.2f}x", ms_below / t.ms) : ""});
        results["rows"].push_back(result_row(*able[s], shape, c, &timed[s]));
        results["rows"].back()["set"] = problem.set;
        ms_below = t.ms;
    }
}

[[maybe_unused]] void time_all(nlohmann::json& results) {
    Table table({"table", "B", "H", "N", "d", "", "rung", "dtype", "ms", "min", "max", "TFLOP/s", "vs the rung below"});
    for (const TimedProblem& problem : timed_problems()) {
        double ms_below = 0;
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
            time_in_one_dtype(problem, dtype, ms_below, table, results);
    }
    note_gpu_state(results);
    progress("");
    fmt::print("\nmedians, the rungs of a dtype taking turns\n\n{}", table.plain());
}

}  // namespace

int run_ladder(const RunOptions& options) {
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
        if (options.timing && status == 0) time_all(results);
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

int launch_rung(const Chapter& chapter, AttentionShape shape, std::uint64_t seed) {
    const Stage& stage = find_stage(chapter.name);
    shape.dtype = dtype_of(stage);
    if (const std::string why = why_unsupported(stage.supports, shape); !why.empty()) throw std::invalid_argument(why);
#ifndef FLASHLADDER_GPU
    emulator::reseed(seed);
#endif
    const Comparison result = check(stage, make_inputs(shape, Values::normal, seed));
    fmt::print("{}, {}: error {:.1e}\n", chapter.name, to_string(shape), result.error);
    if (!result.passed) fmt::print("{}\n", result.describe(shape));
    return result.passed ? 0 : 1;
}

}  // namespace flashladder
