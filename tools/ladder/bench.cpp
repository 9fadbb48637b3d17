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
#include "harness/inputs.h"
#include "harness/run.h"
#include "harness/timing.h"
#include "launch.h"
#include "mine.h"
#include "progress.h"
#include "results.h"
#include "table.h"

#ifdef FLASHLADDER_GPU
#include "harness/gemm.h"
#else
#include "emulator/emulator.h"
#endif

namespace flashladder {
namespace {

DType dtype_of(const Stage& stage, const BenchOptions& options) {
    return options.dtype.empty() ? stage.supports.dtypes.front() : parse_dtype(options.dtype);
}

AttentionShape in_dtype(AttentionShape shape, DType dtype) { return shape.dtype = dtype, shape; }

std::string why_not(const Stage& stage, const AttentionShape& problem, const BenchOptions& options) {
    return why_unsupported(stage.supports, in_dtype(problem, dtype_of(stage, options)));
}

bool is_named(const Stage& stage, const BenchOptions& options) {
    return std::ranges::find(options.rungs, stage.name()) != options.rungs.end();
}

/// Whether its work is done without tensor cores, a hundred times slower.
bool is_slow(const Stage& stage) { return stage.supports.dtypes.front() == DType::f32; }

/// Inputs, and what comes out.
struct Answer {
    Inputs inputs;
    AttentionRows reference, standard;

    Answer(const AttentionShape& shape, std::uint64_t seed, std::size_t most_rows)
        : inputs(make_inputs(shape, Values::normal, seed)) {
        const auto all = rows_to_check(shape, seed);
        std::vector<std::size_t> rows;
        for (std::size_t i = 0; i < all.size(); i += std::max<std::size_t>(1, all.size() / most_rows))
            rows.push_back(all[i]);
        reference = reference_attention(inputs, rows), standard = standard_attention(inputs, rows);
    }
    Comparison compare(const Outputs& outputs) const {
        return flashladder::compare(outputs, inputs.shape, reference, standard);
    }
};

/// For each dtype one, made when it is needed.
class Answers {
public:
    Answers(AttentionShape shape, std::uint64_t seed, std::size_t most_rows)
        : shape_(shape), seed_(seed), most_rows_(most_rows) {}
    const Answer& in(DType dtype) {
        auto& answer = made_[dtype];
        if (!answer) answer = std::make_unique<Answer>(in_dtype(shape_, dtype), seed_, most_rows_);
        return *answer;
    }

private:
    AttentionShape shape_;
    std::uint64_t seed_;
    std::size_t most_rows_;
    std::map<DType, std::unique_ptr<Answer>> made_;
};

/// The problem without its dtype, which is each stage's own.
std::string title(const AttentionShape& shape) {
    const std::string text = to_string(shape);
    return text.substr(0, text.rfind(' '));
}

/// What is wrong with somebody, as it is found.
using Complaints = std::vector<std::string>;

nlohmann::json named(nlohmann::json row, const Entrant& entrant) {
    row["origin"] = entrant.mine ? "chapter" : "solution";
    return row;
}

#ifdef FLASHLADDER_GPU

constexpr int matmul_size = 8192;
constexpr double matmul_flops = 2.0 * matmul_size * matmul_size * matmul_size;

/// Rung 14's matrix product, which stands for what this card can reach.
class Matmul {
public:
    Matmul() {
        AttentionShape some;  // random numbers
        some.n_q = some.n_k = matmul_size;
        some.dtype = DType::bf16;
        const Inputs inputs = make_inputs(some, Values::normal, 1);
        for (const auto& [buffer, values] : {std::pair(&A_, &inputs.Q), {&B_, &inputs.K}}) {
            buffer->upload(*values, DType::bf16);
            repeat_start(*buffer, values->size() * bytes_per_element(DType::bf16));
        }
    }
    void launch(cudaStream_t stream) const {
        gemm({matmul_size, matmul_size, matmul_size, A_.data(), B_.data(), C_.data(), nullptr, stream});
    }
    /// It is compiled for sm_90a alone.
    static bool runs_here() {
        return device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
               device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
    }

private:
    static constexpr std::size_t bytes = std::size_t(matmul_size) * matmul_size * 2;
    DeviceBuffer A_{bytes}, B_{bytes}, C_{bytes};
};

/// Calls `work`, which launches the entrant and compares. False, and a complaint, if it was wrong or failed. Throws where
/// no kernel can run after it.
template <class Work>
bool is_right(const Entrant& entrant, const AttentionShape& shape, Complaints& complaints, Work work) {
    try {
        const Comparison c = work();
        if (!c.passed) complaints.push_back(fmt::format("{} is wrong, not timed: {}", entrant.name(), c.describe(shape)));
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
        if (dtypes.insert(e.shape.dtype).second) inputs += InputSets::bytes(e.shape);
    std::vector<Entrant> fit;
    for (const Entrant& e : all) {
        const std::size_t bytes = inputs + e.stage->scratch_bytes(e.shape);
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
    const AttentionShape problem = wanted.front().shape;
    progress(fmt::format("timing {}", title(problem)));
    Complaints left_out;
    const std::vector<Entrant> all = that_fit(wanted, left_out);
    Answers small(cut_down(problem, 2, 2, 256), options.seed, 1 << 20);
    AttentionShape one_batch = problem;
    one_batch.batch = 1;
    Answers large(one_batch, options.seed, 256);
    std::size_t scratch_bytes = 0;
    std::map<DType, std::unique_ptr<InputSets>> inputs;
    int most_sets = 0;
    for (const Entrant& e : all) {
        scratch_bytes = std::max(scratch_bytes, e.stage->scratch_bytes(e.shape));
        auto& sets = inputs[e.shape.dtype];
        if (!sets) sets = std::make_unique<InputSets>(large.in(e.shape.dtype).inputs, e.shape);
        most_sets = std::max(most_sets, sets->count());
    }
    DeviceBuffer scratch(scratch_bytes);

    struct Timed {
        TimedStage stage;
        Comparison comparison;
        Samples samples;
    };
    std::map<std::size_t, Timed> timed;  // by the entrant's index
    std::vector<std::size_t> taking_part;
    std::vector<Launch> launches;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Entrant& e = all[i];
        const Answer& small_answer = small.in(e.shape.dtype);
        if (!is_right(e, small_answer.inputs.shape, complaints,
                      [&] { return small_answer.compare(run(*e.stage, small_answer.inputs)); }))
            continue;
        InputSets& sets = *inputs.at(e.shape.dtype);
        const Answer& answer = large.in(e.shape.dtype);
        Timed t;
        if (!is_right(e, answer.inputs.shape, complaints, [&] {
                t.stage = first_launch(*e.stage, sets, scratch, answer.inputs.shape.q_elements());
                return t.comparison = answer.compare(t.stage.outputs);
            }))
            continue;
        taking_part.push_back(i);
        launches.push_back([&e, &sets, &scratch](std::size_t launch, cudaStream_t stream) {
            e.stage->launch(sets.args(launch, scratch.data(), stream));
        });
        timed.emplace(i, std::move(t));
    }
    if (matmul) launches.push_back([&](std::size_t, cudaStream_t stream) { matmul->launch(stream); });
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
                     of_matmul = matmul ? speed_ratio(t.samples.ms, samples.back().ms) * e.shape.flops() / matmul_flops
                                        : 0;
        const Timing& ms = t.stage.timing;
        table.add({e.name(), to_string(e.shape.dtype), fmt::format("{:.4f}", ms.ms), fmt::format("{:.4f}", ms.ms_q1),
                   fmt::format("{:.4f}", ms.ms_q3), fmt::format("{}", ms.samples),
                   fmt::format("{:.1f}", e.shape.flops() / ms.ms / 1e9),
                   ratio > 0 ? all[below->first].stage->name().substr(0, 2) : "",
                   ratio > 0 ? fmt::format("{:.2f}x", ratio) : "",
                   of_matmul > 0 ? fmt::format("{:.0f}%", 100 * of_matmul) : ""});
        nlohmann::json row = named(result_row(*e.stage, e.shape, t.comparison, &t.stage), e);
        if (ratio > 0) row["below"] = all[below->first].stage->name(), row["ratio_below"] = ratio;
        if (of_matmul > 0) row["of_matmul"] = of_matmul;
        row["in_a_graph"] = t.samples.in_a_graph;
        results["rows"].push_back(std::move(row));
    }
    progress("");
    fmt::print("{}", title(problem));
    if (matmul) {
        const double tflops = matmul_flops / quantile(samples.back().ms, 0.5) / 1e9;
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
    fmt::print("Counts, not times, because there is no GPU: one head of K and V, N at most 256.\n\n");
    Complaints complaints;
    std::vector<std::string> done;  // problems that are the same when cut down
    for (const auto& wanted : all) {
        const AttentionShape shape = cut_down(wanted.front().shape, 1, 1, 256);
        if (std::ranges::find(done, title(shape)) != done.end()) continue;
        done.push_back(title(shape));
        Answers answers(shape, options.seed, 1 << 20);
        Table table = counts_table();
        for (const Entrant& e : wanted) {
            progress(fmt::format("{}: {}", e.name(), title(shape)));
            const Answer& answer = answers.in(e.shape.dtype);
            try {
                const CountedRow counted = count_for_table(*e.stage, answer.inputs);
                const Comparison c = answer.compare(counted.outputs);
                if (!c.passed) {
                    complaints.push_back(
                        fmt::format("{} is wrong, not counted: {}", e.name(), c.describe(answer.inputs.shape)));
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
        fmt::print("{}\n{}\n", title(shape), table.plain());
        std::fflush(stdout);
    }
    return complaints;
}

#endif

}  // namespace

std::vector<AttentionShape> bench_problems(const BenchOptions& options) {
    const std::pair<const char*, std::optional<int>> sizes[] = {{"d", options.head_dim},
                                                                {"n", options.n},
                                                                {"batch", options.batch},
                                                                {"heads", options.heads},
                                                                {"kv-heads", options.kv_heads}};
    for (const auto& [name, value] : sizes)
        if (value && *value < 1)
            throw std::invalid_argument(fmt::format("--{} is {}, but must be at least 1", name, *value));
    constexpr int tokens = 16384, model_width = 2048;
    std::vector<AttentionShape> problems;
    for (const int head_dim : options.head_dim ? std::vector{*options.head_dim} : std::vector{64, 128})
        for (const bool causal : options.causal ? std::vector{true} : std::vector{false, true})
            for (const int n : options.n ? std::vector{*options.n} : std::vector{small_n, 4096}) {
                AttentionShape s;
                s.batch = options.batch.value_or(std::max(1, tokens / n));
                s.heads = options.heads.value_or(std::max(1, model_width / head_dim));
                s.kv_heads = options.kv_heads.value_or(s.heads);
                s.n_q = s.n_k = n;
                s.head_dim = head_dim;
                s.causal = causal;
                if (s.heads % s.kv_heads != 0)
                    throw std::invalid_argument(
                        fmt::format("heads {} is not a multiple of kv-heads {}", s.heads, s.kv_heads));
                problems.push_back(s);
            }
    return problems;
}

std::vector<Entrant> entrants(std::span<const Stage> all, const AttentionShape& problem, const BenchOptions& options) {
    std::vector<const Stage*> able;
    for (const Stage& stage : all)
        if (why_not(stage, problem, options).empty()) able.push_back(&stage);
    const auto lowest =
        std::ranges::find_if(able, [&](const Stage* s) { return options.rungs.empty() || is_named(*s, options); });
    const bool slow_too = problem.n_q <= small_n || (options.n && !options.rungs.empty());
    std::vector<Entrant> chosen;
    for (auto s = able.begin(); s != able.end(); ++s) {
        const bool below_lowest = lowest != able.end() && s + 1 == lowest;
        if (!options.rungs.empty() && !is_named(**s, options) && !below_lowest) continue;
        if (is_slow(**s) && !slow_too) continue;
        chosen.push_back({*s, in_dtype(problem, dtype_of(**s, options)), static_cast<int>(chosen.size()) - 1});
    }
    return chosen;
}

std::string why_no_bench(std::span<const Stage> all, const std::vector<AttentionShape>& problems,
                         const BenchOptions& options) {
    const auto takes_part = [&](const Stage& stage) {
        return std::ranges::any_of(problems, [&](const AttentionShape& p) { return why_not(stage, p, options).empty(); });
    };
    if (std::ranges::any_of(all, takes_part)) {
        for (const Stage& stage : all)
            if (is_named(stage, options) && !takes_part(stage)) return why_not(stage, problems.front(), options);
        if (std::ranges::all_of(problems, [&](const AttentionShape& p) { return entrants(all, p, options).empty(); }))
            return fmt::format("rungs without tensor cores take part above N = {} only if they are named: "
                               "./ladder bench 03 --n {}",
                               small_n, problems.front().n_q);
        return "";
    }
    std::set<int> head_dims;
    for (const Stage& stage : all)
        head_dims.insert(stage.supports.head_dims.begin(), stage.supports.head_dims.end());
    if (!head_dims.contains(problems.front().head_dim))
        return fmt::format("head_dim {} is supported by no rung (only {})", problems.front().head_dim,
                           fmt::join(head_dims, ", "));
    return all.empty() ? "there are no rungs" : why_not(all.back(), problems.front(), options);
}

AttentionShape cut_down(AttentionShape s, int batch, int kv_heads, int n) {
    const int group = s.heads / s.kv_heads;
    s.batch = std::min(s.batch, batch);
    s.kv_heads = std::min(s.kv_heads, kv_heads);
    s.heads = group * s.kv_heads;
    s.n_q = std::min(s.n_q, n), s.n_k = std::min(s.n_k, n);
    return s;
}

int bench(BenchOptions options, const std::vector<std::string>& arguments) {
    // What is wrong with the question is said before any work.
    for (std::string& rung : options.rungs) rung = find_chapter(rung).name;
    if (!options.dtype.empty()) parse_dtype(options.dtype);
    const std::vector<AttentionShape> problems = bench_problems(options);
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
    for (const AttentionShape& problem : problems) {
        auto chosen = entrants(stages(), problem, options);
        for (std::size_t i = 0; i < chosen.size(); ++i)
            if (options.mine && !chosen[i].mine && is_named(*chosen[i].stage, options))
                chosen.push_back({&mine().front(), chosen[i].shape, chosen[i].below, true});
        if (!chosen.empty()) all.push_back(chosen);
    }
    nlohmann::json results = new_results();
    const Complaints complaints = bench_all(all, options, results);
    for (const Stage& stage : stages())
        if (const std::string why = why_not_on_this_gpu(stage.supports); !why.empty()) fmt::print("{}\n", why);
    for (const std::string& line : complaints) fmt::print("{}\n", line);
    if (!options.json.empty()) write_file(options.json, results.dump(1) + "\n");
    return complaints.empty() ? 0 : 1;
}

}  // namespace flashladder
