// Rungs beside their variants.
#include "families.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shared.h"
#include "table.h"

namespace flashladder::tables {
namespace {

std::string variant_name(const std::string& stage) {
    return stage.find('/') == stage.npos ? "rung " + stage.substr(0, 2) : stage.substr(stage.find('/') + 1);
}

}  // namespace

/// A stage beside its variants: counted work from the emulator, times and resources from the GPU. Where the table of
/// all rungs has no times, those that tools/measure/variant_times.py has measured.
std::string variants_table(const nlohmann::json& r, const Arguments& arguments) {
    const nlohmann::json counts = results(counts_file, arguments), others = results(variants_file, arguments);
    const auto find_timing = [](const nlohmann::json& of, const std::string& name, int d, bool is_table_of_all) {
        for (const auto& row : of.value("rows", nlohmann::json::array())) {
            const auto& shape = row.at("shape");
            if (row.at("stage") == name && shape.at("head_dim") == d &&
                (is_table_of_all ? timed(row, "variants") : shape.at("n_q") == 4096 && !shape.at("causal").get<bool>()))
                return row;
        }
        return nlohmann::json();
    };
    struct Line {
        std::string name;
        int d;
        Totals totals;
        nlohmann::json timing;
    };
    std::vector<Line> lines;
    for (const int d : {64, 128})
        for (const char* set : {"rows", "variants"})
            for (const auto& row : counts.value(set, nlohmann::json::array()))
                if (counted(row) && is_rung(row, arguments.at("rung")) && row.at("shape").at("head_dim") == d)
                    lines.push_back({row.at("stage"), d, Totals(row.at("counts").at("total")),
                                     find_timing(r, row.at("stage"), d, true)});
    const bool has_resources = std::ranges::any_of(lines, [](const Line& line) { return !line.timing.is_null(); });
    if (!has_resources && !others.is_null())
        for (Line& line : lines) line.timing = find_timing(others, line.name, line.d, false);
    const bool has_times = std::ranges::any_of(lines, [](const Line& line) { return !line.timing.is_null(); });

    std::vector<std::string> header = {"d", ""};
    if (has_times) header.insert(header.end(), {"ms", "TFLOP/s"});
    if (has_resources)
        header.insert(header.end(), {"registers", "spilled bytes", "shared memory", "blocks a multiprocessor"});
    header.insert(header.end(), {"shared wavefronts", "of them conflicts", "barriers"});
    Table table(header);
    for (const auto& [name, d, t, timing] : lines) {
        std::vector<std::string> cells = {fmt::format("{}", d),
                                          name.find('/') == name.npos ? "the stage" : name.substr(name.find('/') + 1)};
        const bool known = !timing.is_null();
        if (has_times) {
            cells.push_back(known ? milliseconds(timing) : "");
            cells.push_back(known ? tflops(timing) : "");
        }
        if (has_resources)
            for (const char* key : {"registers", "local_bytes", "shared_bytes", "blocks_per_sm"})
                cells.push_back(!known                               ? ""
                                : std::string(key) == "shared_bytes"
                                    ? fmt::format("{} KB", timing.at(key).get<int>() / 1024)
                                    : timing.at(key).dump());
        for (const std::string& cell : {fmt::format("{:.0f}", t.wavefronts), percent(t.conflicts, t.wavefronts),
                                        fmt::format("{:.0f}", t.barriers)})
            cells.push_back(cell);
        table.add(cells);
    }
    const std::string times =
        has_resources ? "Times: N = 4096, bf16, not causal. " + caption(r, on_the_grid)
        : has_times   ? fmt::format("Times: N = 4096, bf16, not causal, {}; medians of interleaved launches. {}",
                                    on_the_grid, caption_under_load(others))
                      : fmt::format("There are no times of this rung in {} or {} yet.\n", timings_file, variants_file);
    return fmt::format("{}\n{}{}", table.markdown(), times, counts_caption(counts, counted_problem));
}

/// The variants of a rung and the rung below rung 12 on every problem.
std::string variant_times_table(const nlohmann::json& r, const Arguments& arguments) {
    Pivot table{{"d", "causal", "N"}};
    for (const auto& row : r.at("rows"))
        if (is_rung(row, arguments.at("rung")) || is_rung(row, "11"))
            table.add(d_mask_and_N(row.at("shape")), variant_name(row.at("stage")),
                      fmt::format("{:.0f}", row.at("tflops").get<double>()));
    return fmt::format("{}\nTFLOP/s, bf16, {}; medians of interleaved launches. {}", table.markdown(), on_the_grid,
                       caption_under_load(r));
}

/// Rung 27's merge by a second kernel and by the last block to have a part, where keys are many; the mean is of all problems.
std::string last_block_table(const nlohmann::json& r, const Arguments&) {
    Pivot table{{"queries", "causal", "sequences", "heads", "of K and V", "keys"}};
    double by_kernel = 0, logarithms = 0, problems = 0;
    for (const auto& row : r.at("rows")) {  // of each problem first the kernel's
        const auto& shape = row.at("shape");
        const double ms = row.at("ms");
        const bool by_last = row.at("stage") == "27-merge/last_block";
        if (by_last)
            logarithms += std::log(by_kernel / ms), ++problems;
        else
            by_kernel = ms;
        if (shape.at("head_dim") != 128 || shape.at("n_k") < 8192) continue;
        std::vector<std::string> problem;
        for (const char* size : {"n_q", "causal", "batch", "heads", "kv_heads", "n_k"})
            problem.push_back(shape.at(size).is_boolean() ? shape.at(size) ? "yes" : "no" : shape.at(size).dump());
        table.add(problem, by_last ? "last block" : "merge kernel", fmt::format("{:.1f}", 1000 * ms));
        if (by_last) table.add(problem, "of the kernel's speed", fmt::format("{:.2f}", by_kernel / ms));
    }
    return fmt::format("{}\nMicroseconds, d = 128, problems of at least 8192 keys. Geometric mean of all {:.0f} in the result file: "
                       "{:.3f}. {}",
                       table.markdown(), problems, std::exp(logarithms / problems), caption_under_load(r));
}

/// The orders of tasks of rung 11, and the rungs below: speed, and bytes read from device memory.
std::string orders_table(const nlohmann::json& r, const Arguments&) {
    Pivot table{{"d", "causal", "N"}};
    for (const auto& row : r.at("rows"))
        table.add(d_mask_and_N(row.at("shape")), variant_name(row.at("stage")),
                  fmt::format("{:.0f}, {:.0f} MB", row.at("tflops").get<double>(),
                              row.at("device_bytes").get<double>() / 1e6));
    return fmt::format(
        "{}\nTFLOP/s, and what one launch reads from device memory. 16384 tokens, heads = 2048 / d, bf16. {}, driver "
        "{}, "
        "CUDA {}, commit {}, {}.\n",
        table.markdown(), r.at("gpu").get<std::string>(), r.at("driver").get<std::string>(),
        r.at("cuda").get<std::string>(), r.at("commit").get<std::string>(), r.at("date").get<std::string>());
}

}  // namespace flashladder::tables
