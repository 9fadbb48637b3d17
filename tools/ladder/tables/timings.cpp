// How fast the rungs are: what `./ladder run` has measured.
#include "families.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "chapters.h"
#include "shared.h"
#include "table.h"

namespace flashladder::tables {
namespace {

/// "f32", or "bf16, the rung below f32" where two rungs are compared that have not the same.
std::string dtypes(const std::string& own, const std::string& below) {
    return below.empty() || own == below ? own : fmt::format("{}, the rung below {}", own, below);
}

}  // namespace

/// README's table: each rung at N = 4096, and how much faster it is than the rung below.
std::string ladder_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"rung", "dtype", "d", "ms", "TFLOP/s", "vs the rung below", "memory beyond inputs and output"});
    std::set<std::string> all_dtypes;
    for (const int d : {64, 128}) {
        double below = 0;
        for (const auto& row : r.at("rows")) {
            if (!timed(row, "grid") || row.at("shape").at("n_q") != 4096 || row.at("shape").at("head_dim") != d)
                continue;
            const double ms = row.at("ms");
            all_dtypes.insert(row.at("dtype"));
            table.add({row.at("stage"), row.at("dtype"), fmt::format("{}", d), fmt::format("{:.2f}", ms),
                       fmt::format("{:.2f}", row.at("tflops").get<double>()),
                       below > 0 ? fmt::format("{:.2f}x", below / ms) : "", readable_bytes(row.at("scratch_bytes"))});
            below = ms;
        }
    }
    if (table.empty())
        return fmt::format("({} has no rows of {} yet.)\n", timings_file, arguments.contains("operation") ? arguments.at("operation") : "N 4096");
    const char* compared = all_dtypes.size() > 1 ? "; rungs are compared across dtypes too" : "";
    return fmt::format("{}\nN = 4096. {}", table.markdown(), caption(r, on_the_grid + ", not causal" + compared));
}

/// A lesson's table: one rung at every size, beside the rung below.
std::string rung_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table(
        {"d", "N", "ms", "min to max", "TFLOP/s", "vs the rung below", "error", "memory beyond inputs and output"});
    std::map<std::string, nlohmann::json> below;  // by shape
    std::string dtype;
    for (const auto& row : r.at("rows")) {
        if (!timed(row, "grid")) continue;
        const double ms = row.at("ms");
        const std::string shape = row.at("shape").dump();
        if (row.at("stage").get<std::string>().starts_with(arguments.at("rung"))) {
            const bool lowest = !below.contains(shape);
            dtype = dtypes(row.at("dtype"), lowest ? "" : below[shape].at("dtype").get<std::string>());
            table.add({row.at("shape").at("head_dim").dump(), row.at("shape").at("n_q").dump(),
                       fmt::format("{:.3f}", ms),
                       fmt::format("{:.3f} to {:.3f}", row.at("ms_min").get<double>(), row.at("ms_max").get<double>()),
                       fmt::format("{:.2f}", row.at("tflops").get<double>()),
                       lowest ? "" : fmt::format("{:.2f}x", below[shape].at("ms").get<double>() / ms),
                       fmt::format("{:.1e}", row.at("error").get<double>()), readable_bytes(row.at("scratch_bytes"))});
        }
        below[shape] = row;
    }
    if (dtype.empty()) return no_rows(timings_file, arguments);
    return fmt::format("{}\n{}", table.markdown(), caption(r, fmt::format("{}, {}, not causal", on_the_grid, dtype)));
}

/// How a rung and the one below it use a card that has few heads to work on.
std::string heads_table(const nlohmann::json& r, const Arguments& arguments) {
    const std::string rung = arguments.at("rung"), below = flashladder::below(find_chapter(rung)).value().number();
    Table table({"d", "heads", "rung " + below + ", ms", "TFLOP/s", "rung " + rung + ", ms", "TFLOP/s", "faster"});
    nlohmann::json slow;
    std::string dtype;
    for (const auto& row : r.at("rows")) {
        if (!timed(row, "heads")) continue;
        if (is_rung(row, below)) slow = row;
        if (!is_rung(row, rung)) continue;
        const auto& shape = row.at("shape");
        dtype = dtypes(row.at("dtype"), slow.at("dtype"));
        table.add({shape.at("head_dim").dump(), shape.at("heads").dump(), milliseconds(slow), tflops(slow),
                   milliseconds(row), tflops(row),
                   fmt::format("{:.2f}x", slow.at("ms").get<double>() / row.at("ms").get<double>())});
    }
    if (dtype.empty()) return no_rows(timings_file, arguments);
    return fmt::format("{}\n{}", table.markdown(), caption(r, fmt::format("B = 1, N = 4096, {}, not causal", dtype)));
}

/// Causal and grouped queries against the plain problem.
std::string features_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"d", "heads", "K and V heads", "causal", "ms", "TFLOP/s", "time against the plain one"});
    double plain = 0;
    std::string dtype;
    for (const auto& row : r.at("rows")) {
        if (!timed(row, "features") || !is_rung(row, arguments.at("rung"))) continue;
        const auto& shape = row.at("shape");
        const double ms = row.at("ms");
        dtype = row.at("dtype");
        if (!shape.at("causal") && shape.at("heads") == shape.at("kv_heads")) plain = ms;
        table.add({shape.at("head_dim").dump(), shape.at("heads").dump(), shape.at("kv_heads").dump(),
                   shape.at("causal") ? "yes" : "no", milliseconds(row), tflops(row),
                   fmt::format("{:.2f}x", ms / plain)});
    }
    if (dtype.empty()) return no_rows(timings_file, arguments);
    return fmt::format("{}\n{}", table.markdown(),
                       caption(r, fmt::format("B = 4, N = 4096, {}; causal counts half the operations", dtype)));
}

/// A block-sparse rung on lists of several kinds, beside itself on lists of all blocks.
std::string lists_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"d", "causal", "lists", "of all scores", "ms", "TFLOP/s", "time against all blocks"});
    const auto rows = [&] {
        std::vector<nlohmann::json> all;
        for (const auto& row : r.at("rows"))
            if (timed(row, "grid") && is_rung(row, arguments.at("rung"))) all.push_back(row);
        return all;
    }();
    if (rows.empty()) return no_rows(timings_file, arguments);
    for (const auto& row : rows) {
        const auto& shape = row.at("shape");
        nlohmann::json with_all = shape;
        with_all["density"] = 100;
        const auto all = std::ranges::find_if(rows, [&](const auto& other) { return other.at("shape") == with_all; });
        const ListsInWords words(shape);
        const double ms = row.at("ms"), ms_of_all = all == rows.end() ? 0 : all->at("ms").get<double>();
        table.add({shape.at("head_dim").dump(), shape.at("causal") ? "yes" : "no", words.lists, words.share,
                   milliseconds(row), tflops(row), ms_of_all > 0 ? fmt::format("{:.2f}x", ms / ms_of_all) : ""});
    }
    const auto& shape = rows.front().at("shape");
    const std::string what = fmt::format(
        "B = {}, {} heads, N = {}, {}; operations are those of listed blocks, if causal half of those on the diagonal",
        shape.at("batch").dump(), shape.at("heads").dump(), shape.at("n_q").dump(),
        rows.front().at("dtype").get<std::string>());
    return fmt::format("{}\n{}", table.markdown(), caption(r, what));
}

/// A rung whose keys lie in pages, by their size: how fast K and V come.
std::string pages_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"d", "sequences", "heads", "of K and V", "keys", "keys of a page", "ms", "K and V, GB/s"});
    std::string dtype;
    for (const auto& row : r.at("rows")) {
        if (!timed(row, "pages") || !is_rung(row, arguments.at("rung"))) continue;
        const auto& s = row.at("shape");
        const auto number = [&](const char* name) { return s.at(name).get<double>(); };
        const Problem problem = problem_of("paged_attention", s);
        const double keys = problem.operation->units(problem) / (number("heads") * number("n_q"));  // of all sequences
        const double bytes = 2 * keys * number("kv_heads") * number("head_dim") * 2;
        dtype = row.at("dtype");
        table.add({s.at("head_dim").dump(), s.at("batch").dump(), s.at("heads").dump(), s.at("kv_heads").dump(),
                   s.at("ragged").get<bool>() ? fmt::format("{:.0f} in all", keys) : s.at("n_k").dump(),
                   s.at("page_size").dump(), milliseconds(row),
                   fmt::format("{:.0f}", bytes / row.at("ms").get<double>() / 1e6)});
    }
    if (table.empty()) return no_rows(timings_file, arguments);
    return fmt::format("{}\n{}", table.markdown(), caption(r, fmt::format("One query a head, {}, not causal", dtype)));
}

/// A rung of packed sequences, by their lengths.
std::string sequences_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"d", "causal", "sequences", "queries in all", "of padded scores", "ms", "TFLOP/s"});
    std::string words;
    for (const auto& row : r.at("rows")) {
        if (!timed(row, "sequences") || !is_rung(row, arguments.at("rung"))) continue;
        const auto& s = row.at("shape");
        const SequencesInWords sequences(s);
        words = fmt::format("{} heads, {}; operations are those of scores that are seen", s.at("heads").dump(),
                            row.at("dtype").get<std::string>());
        table.add({sequences.d, s.at("causal").get<bool>() ? "yes" : "no", sequences.lengths,
                   sequences.queries, sequences.share, milliseconds(row), tflops(row)});
    }
    if (table.empty()) return no_rows(timings_file, arguments);
    return fmt::format("{}\n{}", table.markdown(), caption(r, words));
}

/// A sequence that is spread over several GPUs, beside one of them alone.
std::string ring_table(const nlohmann::json& r, const Arguments&) {
    Table table({"", "GPUs", "N", "one GPU alone, rung 14, ms", "TFLOP/s", "all of them, ms", "TFLOP/s",
                 "of as many times one", "kernels alone, ms", "a round's copies alone, ms"});
    for (const auto& row : r.at("rows")) {
        const auto number = [&](const char* name) { return row.at(name).template get<double>(); };
        table.add({row.at("shape").at("causal").get<bool>() ? "causal" : "not causal", row.at("gpus").dump(),
                   row.at("shape").at("n").dump(), fmt::format("{:.2f}", number("one_gpu_ms")),
                   fmt::format("{:.0f}", number("one_gpu_tflops")), fmt::format("{:.2f}", number("ms")),
                   fmt::format("{:.0f}", number("tflops")), fmt::format("{:.0f}%", number("percent_of_ideal")),
                   fmt::format("{:.2f}", number("kernels_alone_ms")), fmt::format("{:.2f}", number("copies_of_a_round_ms"))});
    }
    const auto& row = r.at("rows").front();
    return fmt::format("{}\n{}", table.markdown(),
                       caption(r, fmt::format("B = {}, {} heads, d = {}, {}; by the host's clock, as a launch has no stream of "
                                              "its own",
                                              row.at("shape").at("batch").dump(), row.at("shape").at("heads").dump(),
                                              row.at("shape").at("head_dim").dump(), row.at("dtype").get<std::string>())));
}

}  // namespace flashladder::tables
