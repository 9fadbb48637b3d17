#include "bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>

#include "chapters.h"
#include "count.h"
#include "files.h"
#include "harness/dtype.h"
#include "harness/run.h"
#include "harness/timing.h"
#include "launch.h"
#include "mine.h"
#include "progress.h"
#include "results.h"
#include "table.h"

#ifndef FLASHLADDER_GPU
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

DType dtype_of(const Stage& stage, const BenchOptions& options) {
    return options.dtype.empty() ? stage.dtypes().front() : parse_dtype(options.dtype);
}

std::string why_not(const Stage& stage, const Problem& problem, const BenchOptions& options) {
    if (&stage.operation() != problem.operation)
        return fmt::format("{}: does not compute {}", stage.name(), problem.operation->name());
    return stage.why_unsupported(problem.in(dtype_of(stage, options)));
}

bool is_named(const Stage& stage, const BenchOptions& options) {
    return std::ranges::find(options.rungs, stage.name()) != options.rungs.end();
}

/// Inputs, and what comes out.
struct Answer {
    Data inputs;
    Reference reference;

    Answer(const Problem& problem, std::uint64_t seed, std::size_t most)
        : inputs(problem.operation->inputs(problem, seed)), reference(problem.operation->reference(inputs, seed, most)) {}
};

/// For each dtype one, made when it is needed.
class Answers {
public:
    Answers(Problem problem, std::uint64_t seed, std::size_t most)
        : problem_(std::move(problem)), seed_(seed), most_(most) {}
    const Answer& in(DType dtype) {
        auto& answer = made_[dtype];
        if (!answer) answer = std::make_unique<Answer>(problem_.in(dtype), seed_, most_);
        return *answer;
    }

private:
    Problem problem_;
    std::uint64_t seed_;
    std::size_t most_;  // rows, for example, that are compared
    std::map<DType, std::unique_ptr<Answer>> made_;
};

/// What is wrong with somebody, as it is found.
using Complaints = std::vector<std::string>;

nlohmann::json named(nlohmann::json row, const Entrant& entrant) {
    row["origin"] = entrant.mine ? "chapter" : "solution";
    return row;
}

#ifdef FLASHLADDER_GPU

constexpr int matmul_size = 8192;

/// Rung 14's matrix product, which stands for what this card can reach.
class Matmul {
public:
    Matmul() : stage_(find_stage(name)), problem_(problem_of(stage_)), sets_(inputs_of(problem_), problem_) {}
    void launch(std::size_t i, cudaStream_t stream) const { stage_.launch(sets_.data(i, nullptr, stream)); }
    double flops() const { return problem_.operation->flops(problem_); }
    /// It is compiled for sm_90a alone.
    static bool runs_here() {
        return device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
               device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
    }

private:
    static constexpr const char* name = "14b-gemm";
    static Problem problem_of(const Stage& stage) {
        return stage.operation().problem({{"M", matmul_size}, {"N", matmul_size}, {"K", matmul_size}},
                                         stage.dtypes().front());
    }
    /// Random numbers.
    static Data inputs_of(const Problem& problem) { return problem.operation->inputs(problem, 1); }

    const Stage& stage_;
    Problem problem_;
    InputSets sets_;
};

/// Calls `work`, which launches the entrant and compares. False, and a complaint, if it was wrong or failed. Throws where
/// no kernel can run after it.
template <class Work>
bool is_right(const Entrant& entrant, Complaints& complaints, Work work) {
    try {
        const Judgement c = work();
        if (!c.passed) complaints.push_back(fmt::format("{} is wrong, not timed: {}", entrant.name(), c.description));
        return c.passed;
    } catch (const CudaError& error) {
        const std::string line = fmt::format("{} failed, not timed: {}", entrant.name(), error.what());
        if (cudaDeviceSynchronize() != cudaSuccess) throw std::runtime_error(line);
        complaints.push_back(line);
        return false;
    }
}

/// Those whose memory there is.
std::vector<Entrant> that_fit(const std::vector<Entrant>& all, Complaints& left_out) {
    std::size_t free = 0, total = 0, inputs = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
    std::set<DType> dtypes;
    for (const Entrant& e : all)
        if (dtypes.insert(e.problem.dtype).second) inputs += InputSets::bytes(e.problem);
    std::vector<Entrant> fit;
    for (const Entrant& e : all) {
        const std::size_t bytes = inputs + e.stage->scratch_bytes(e.problem);
        if (bytes < free)
            fit.push_back(e);
        else
            left_out.push_back(fmt::format("{} left out: {} of device memory are needed, {} are free", e.name(),
                                           readable_bytes(double(bytes)), readable_bytes(double(free))));
    }
    return fit;
}

/// Checks and times all on one problem, and prints the table.
void bench_problem(const std::vector<Entrant>& wanted, const BenchOptions& options, const Matmul* matmul,
                   Complaints& complaints, nlohmann::json& results) {
    const Problem problem = wanted.front().problem;
    const Operation& operation = *problem.operation;
    progress(fmt::format("timing {}", title(problem)));
    Complaints left_out;
    const std::vector<Entrant> all = that_fit(wanted, left_out);
    Answers small(operation.cut_down(problem), options.seed, 1 << 20);
    Answers large(operation.part_of(problem), options.seed, 256);
    std::size_t scratch_bytes = 0;
    std::map<DType, std::unique_ptr<InputSets>> inputs;
    int most_sets = 0;
    for (const Entrant& e : all) {
        scratch_bytes = std::max(scratch_bytes, e.stage->scratch_bytes(e.problem));
        auto& sets = inputs[e.problem.dtype];
        if (!sets) sets = std::make_unique<InputSets>(large.in(e.problem.dtype).inputs, e.problem);
        most_sets = std::max(most_sets, sets->count());
    }
    DeviceBuffer scratch(scratch_bytes);

    struct Timed {
        TimedStage stage;
        Judgement judgement;
        Samples samples;
    };
    std::map<std::size_t, Timed> timed;  // by the entrant's index
    std::vector<std::size_t> taking_part;
    std::vector<Launch> launches;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Entrant& e = all[i];
        const Answer& small_answer = small.in(e.problem.dtype);
        if (!is_right(e, complaints, [&] { return small_answer.reference(run(*e.stage, small_answer.inputs)); }))
            continue;
        InputSets& sets = *inputs.at(e.problem.dtype);
        const Answer& answer = large.in(e.problem.dtype);
        Timed t;
        if (!is_right(e, complaints, [&] {
                t.stage = first_launch(*e.stage, sets, scratch, answer.inputs.problem);
                return t.judgement = answer.reference(t.stage.outputs);
            }))
            continue;
        taking_part.push_back(i);
        launches.push_back([&e, &sets, &scratch](std::size_t launch, cudaStream_t stream) {
            e.stage->launch(sets.data(launch, scratch.data(), stream));
        });
        timed.emplace(i, std::move(t));
    }
    if (matmul) launches.push_back([&](std::size_t i, cudaStream_t stream) { matmul->launch(i, stream); });
    const std::vector<Samples> samples = take_turns(launches, most_sets);
    for (std::size_t k = 0; k < taking_part.size(); ++k) {
        Timed& t = timed.at(taking_part[k]);
        t.samples = samples[k];
        t.stage.timing = timing_of(samples[k].ms);
    }

    Table table({"rung", "dtype", "ms", "quartiles", "", "samples", "TFLOP/s", "below", "times as fast", "of matmul"});
    const std::vector<double> none;
    for (auto& [i, t] : timed) {
        const Entrant& e = all[i];
        // By its name, because some may have been left out.
        const auto below = std::ranges::find_if(timed, [&](const auto& other) {
            return e.below >= 0 && all[other.first].name() == wanted[std::size_t(e.below)].name();
        });
        const double ratio = below == timed.end() ? 0 : speed_ratio(t.samples.ms, below->second.samples.ms),
                     of_matmul = matmul ? speed_ratio(t.samples.ms, samples.back().ms) * operation.flops(e.problem) / matmul->flops()
                                        : 0;
        const Timing& ms = t.stage.timing;
        table.add({e.name(), to_string(e.problem.dtype), fmt::format("{:.4f}", ms.ms), fmt::format("{:.4f}", ms.ms_q1),
                   fmt::format("{:.4f}", ms.ms_q3), fmt::format("{}", ms.samples),
                   fmt::format("{:.1f}", operation.flops(e.problem) / ms.ms / 1e9),
                   ratio > 0 ? number_of(all[below->first].stage->folder()) : "",
                   ratio > 0 ? fmt::format("{:.2f}x", ratio) : "",
                   of_matmul > 0 ? fmt::format("{:.0f}%", 100 * of_matmul) : ""});
        nlohmann::json row = named(result_row(*e.stage, e.problem, t.judgement, &t.stage), e);
        if (ratio > 0) row["below"] = all[below->first].stage->name(), row["ratio_below"] = ratio;
        if (of_matmul > 0) row["of_matmul"] = of_matmul;
        row["in_a_graph"] = t.samples.in_a_graph;
        results["rows"].push_back(std::move(row));
    }
    progress("");
    fmt::print("{}", title(problem));
    if (matmul) {
        const double tflops = matmul->flops() / quantile(samples.back().ms, 0.5) / 1e9;
        results["matmul_tflops"] = tflops;  // of the last problem: the card is warm
        fmt::print("; matrix product {:.0f} TFLOP/s", tflops);
    }
    fmt::print("\n{}{}\n", table.plain(), left_out.empty() ? "" : fmt::format("{}\n", fmt::join(left_out, "\n")));
    std::fflush(stdout);
}

Complaints bench_all(const std::vector<std::vector<Entrant>>& all, const BenchOptions& options,
                     nlohmann::json& results) {
    fmt::print("Medians of rounds in which all take turns, on {}.\n", results["gpu"].get<std::string>());
    if (Matmul::runs_here())
        fmt::print("of matmul: of what rung 14's matrix product, {0} x {0} x {0} in bf16, reaches in the same rounds.\n",
                   matmul_size);
    results["before"] = gpu_state();
    const auto matmul = Matmul::runs_here() ? std::make_unique<Matmul>() : nullptr;
    Complaints complaints;
    fmt::print("\n");
    for (const auto& wanted : all) bench_problem(wanted, options, matmul.get(), complaints, results);
    note_gpu_state(results);
    const auto state = [](const nlohmann::json& s) {
        return fmt::format("SM clock {} of {}, {}, slowed by {}", s["sm"].get<std::string>(),
                           s["sm_max"].get<std::string>(), s["power"].get<std::string>(),
                           s["slowed_by"].empty()
                               ? "nothing"
                               : fmt::format("{}", fmt::join(s["slowed_by"].get<std::vector<std::string>>(), ", ")));
    };
    fmt::print("before: {}\nafter:  {}\n", state(results["before"]), state(results["clocks"]));
    return complaints;
}

#else

Complaints bench_all(const std::vector<std::vector<Entrant>>& all, const BenchOptions& options,
                     nlohmann::json& results) {
    emulator::reseed(options.seed);
    fmt::print("Counts, not times, because there is no GPU, and of smaller problems: others take too long to count.\n\n");
    Complaints complaints;
    std::vector<std::string> done;  // problems that are the same when cut down
    for (const auto& wanted : all) {
        const Operation& operation = *wanted.front().problem.operation;
        const Problem problem = operation.cut_down_more(wanted.front().problem);
        if (std::ranges::find(done, title(problem)) != done.end()) continue;
        done.push_back(title(problem));
        Answers answers(problem, options.seed, 1 << 20);
        Table table = counts_table(operation);
        for (const Entrant& e : wanted) {
            progress(fmt::format("{}: {}", e.name(), title(problem)));
            const Answer& answer = answers.in(e.problem.dtype);
            try {
                const CountedRow counted = count_for_table(*e.stage, answer.inputs);
                const Judgement c = answer.reference(counted.outputs);
                if (!c.passed) {
                    complaints.push_back(fmt::format("{} is wrong, not counted: {}", e.name(), c.description));
                    continue;
                }
                auto cells = counted.cells;
                cells[0] = e.name();
                table.add(cells);
                results["rows"].push_back(named(counted.json, e));
                results["rows"].back()["error"] = c.error;
            } catch (const CudaError& error) {
                complaints.push_back(fmt::format("{} failed, not counted: {}", e.name(), error.what()));
            }
        }
        progress("");
        const std::string asked = title(wanted.front().problem);
        fmt::print("{}{}\n{}\n", title(problem), asked == title(problem) ? "" : fmt::format(" (cut down from {})", asked),
                   table.plain());
        std::fflush(stdout);
    }
    return complaints;
}

#endif

}  // namespace

std::vector<Problem> bench_problems(const BenchOptions& options) {
    std::vector<Problem> problems;
    for (const Operation* operation : operations()) {
        const auto computes_it = [&](const std::string& rung) { return find_chapter(rung).operation == operation->name(); };
        if (!options.rungs.empty() && std::ranges::none_of(options.rungs, computes_it)) continue;
        if (options.rungs.empty() && !options.given.fit(*operation)) continue;
        for (Problem& problem : operation->benched(options.given.of(*operation))) problems.push_back(std::move(problem));
    }
    if (problems.empty()) throw std::invalid_argument("no operation has all of these sizes: ./ladder bench --help");
    return problems;
}

std::vector<Entrant> entrants(const std::vector<StageRef>& all, const Problem& problem, const BenchOptions& options) {
    std::vector<const Stage*> able;
    for (const Stage& stage : all)
        if (why_not(stage, problem, options).empty() &&
            (!options.given.empty() || problem.operation->takes_part(stage.name(), problem)))
            able.push_back(&stage);
    const auto lowest =
        std::ranges::find_if(able, [&](const Stage* s) { return options.rungs.empty() || is_named(*s, options); });
    const bool slow_too = !options.given.empty() && !options.rungs.empty();
    std::vector<Entrant> chosen;
    for (auto s = able.begin(); s != able.end(); ++s) {
        const bool below_lowest = lowest != able.end() && s + 1 == lowest && !is_capstone((*s)->folder());
        if (!options.rungs.empty() && !is_named(**s, options) && !below_lowest) continue;
        if (problem.operation->takes_long(problem, (*s)->dtypes().front()) && !slow_too) continue;
        chosen.push_back({*s, problem.in(dtype_of(**s, options)),
                          is_capstone((*s)->folder()) ? -1 : static_cast<int>(chosen.size()) - 1});
    }
    return chosen;
}

std::string why_no_bench(const std::vector<StageRef>& all, const std::vector<Problem>& problems,
                         const BenchOptions& options) {
    const auto takes_part = [&](const Stage& stage) {
        return std::ranges::any_of(problems, [&](const Problem& p) { return why_not(stage, p, options).empty(); });
    };
    if (std::ranges::any_of(all, takes_part)) {
        for (const Stage& stage : all)
            if (is_named(stage, options) && !takes_part(stage)) return why_not(stage, problems.front(), options);
        if (std::ranges::all_of(problems, [&](const Problem& p) { return entrants(all, p, options).empty(); }))
            return fmt::format("rungs that take so long on {} take part only if they are named, with its sizes: "
                               "./ladder bench 03 --n 4096",
                               title(problems.front()));
        return "";
    }
    // The highest that computes it knows most.
    for (auto stage = all.rbegin(); stage != all.rend(); ++stage)
        if (&stage->get().operation() == problems.front().operation)
            return fmt::format("{}{}", why_not(*stage, problems.front(), options),
                               options.rungs.size() == 1 ? "" : ", nor is another rung able to");
    return "there are no rungs";
}

int bench(BenchOptions options, const std::vector<std::string>& arguments) {
    // What is wrong with the question is said before any work.
    for (std::string& rung : options.rungs) rung = find_chapter(rung).name;
    if (!options.dtype.empty()) parse_dtype(options.dtype);
    const std::vector<Problem> problems = bench_problems(options);
    if (const std::string why = why_no_bench(stages(), problems, options); !why.empty())
        throw std::invalid_argument(why);
    if (options.mine && options.rungs.size() != 1)
        throw std::invalid_argument(
            fmt::format("--mine takes one rung, not {}: ./ladder bench 03 --mine", options.rungs.size()));
    if (!options.json.empty()) check_can_be_written(options.json);
    if (options.mine && mine().empty()) {
        const Chapter chapter = find_chapter(options.rungs.front());
        constexpr const char* within = "LADDER_WITH_CHAPTER";
        if (std::getenv(within)) learners_stage(chapter);  // which is missing
        setenv(within, "1", 1);
        return run_with_chapter(chapter, "mine-" + chapter.number(), arguments);
    }

    std::vector<std::vector<Entrant>> all;
    std::set<std::string> skipped;
    for (const Problem& problem : problems) {
        auto chosen = entrants(stages(), problem, options);
        for (std::size_t i = 0; i < chosen.size(); ++i)
            if (options.mine && !chosen[i].mine && is_named(*chosen[i].stage, options))
                chosen.push_back({&mine().front().get(), chosen[i].problem, chosen[i].below, true});
        if (!chosen.empty()) all.push_back(chosen);
    }
    nlohmann::json results = new_results();
    const Complaints complaints = bench_all(all, options, results);
    for (const Stage& stage : stages())
        if (const std::string why = why_not_on_this_gpu(stage); !why.empty()) fmt::print("{}\n", why);
    for (const std::string& line : complaints) fmt::print("{}\n", line);
    if (!options.json.empty()) write_file(options.json, results.dump(1) + "\n");
    return complaints.empty() ? 0 : 1;
}

}  // namespace flashladder
