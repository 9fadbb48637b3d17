// Counted work, beside what closed forms say of it, and what it costs.
#include "families.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "chapters.h"
#include "cost_model.h"
#include "harness/dtype.h"
#include "harness/operation.h"
#include "shared.h"
#include "table.h"

namespace flashladder::tables {

std::string counted_ladder_table(const nlohmann::json& r, const Arguments&) {
    Table table({"rung", "dtype", "d", "requested", "distinct", "moved", "coalesced", "shared wavefronts",
                 "of them conflicts", "exp a score", "divisions a score"});
    for (const auto& row : r.at("rows")) {
        if (!counted(row)) continue;
        const auto& counts = row.at("counts");
        const Totals t(counts.at("total"));
        constexpr double scores = 1024.0 * 1024.0;
        table.add({row.at("stage"), row.at("dtype"), row.at("shape").at("head_dim").dump(), readable_bytes(t.requested),
                   readable_bytes(counts.at("distinct_bytes")), readable_bytes(t.moved), percent(t.used, t.moved),
                   fmt::format("{:.2f} M", t.wavefronts / 1e6), percent(t.conflicts, t.wavefronts),
                   fmt::format("{:.2f}", t.exponentials / scores), fmt::format("{:.2f}", t.divisions / scores)});
    }
    return fmt::format("{}\n{}", table.markdown(), counts_caption(r, counted_problem));
}

/// A lesson's table: what its arithmetic says beside what was counted.
std::string rung_counts_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"", "d = 64: closed form", "counted", "d = 128: closed form", "counted"});
    std::vector<nlohmann::json> rows;
    for (const auto& row : r.at("rows"))
        if (counted(row) && is_rung(row, arguments.at("rung"))) rows.push_back(row);
    if (rows.empty()) return no_rows(counts_file, arguments);
    const auto add = [&](const char* name, const char* closed_form, auto count) {
        std::vector<std::string> cells = {name};
        for (const auto& row : rows) {
            cells.push_back(*closed_form
                                ? fmt::format("{:.0f}", row.at("closed_form").at(closed_form).template get<double>())
                                : "");
            cells.push_back(count(row.at("counts"), Totals(row.at("counts").at("total"))));
        }
        table.add(cells);
    };
    const auto whole = [](double x) { return fmt::format("{:.0f}", x); };
    add("requested bytes", "requested_bytes",
        [&](const auto& c, const Totals&) { return whole(c.at("requested_bytes")); });
    add("distinct bytes", "distinct_bytes",
        [&](const auto& c, const Totals&) { return whole(c.at("distinct_bytes")); });
    add("exponentials", "exponentials", [&](const auto&, const Totals& t) { return whole(t.exponentials); });
    add("divisions", "divisions", [&](const auto&, const Totals& t) { return whole(t.divisions); });
    add("bytes in the sectors moved", "", [&](const auto&, const Totals& t) { return whole(t.moved); });
    add("of them used", "", [&](const auto&, const Totals& t) { return percent(t.used, t.moved); });
    add("shared-memory wavefronts", "", [&](const auto&, const Totals& t) { return whole(t.wavefronts); });
    add("of them conflicts", "", [&](const auto&, const Totals& t) { return percent(t.conflicts, t.wavefronts); });
    add("barriers", "", [&](const auto&, const Totals& t) { return whole(t.barriers); });
    if (Totals(rows.front().at("counts").at("total")).matrix_instructions > 0)
        add("matrix instructions", "", [&](const auto&, const Totals& t) { return whole(t.matrix_instructions); });
    const std::string dtype = rows.front().at("dtype");
    return fmt::format("{}\n{}", table.markdown(), counts_caption(r, counted_problem + ", " + dtype));
}

/// Traffic by tensor, for as much shared memory as each row says.
std::string shared_memory_table(const nlohmann::json& r, const Arguments& arguments) {
    using Columns = std::vector<std::pair<std::string, std::vector<const char*>>>;
    const Columns of_forward = {{"K and V", {"K", "V"}}, {"Q", {"Q"}}, {"O", {"O"}}, {"l and m", {"scratch"}}},
                  of_backward = {{"K, V, dK, dV", {"K", "V", "dK", "dV"}}, {"Q, O, dO", {"Q", "O", "dO"}}, {"dQ", {"dQ"}},
                                 {"LSE", {"lse"}}};
    Columns columns = of_forward;
    std::map<int, std::vector<std::string>> by_memory;
    for (const auto& row : r.at("rows")) {
        if (!is_rung(row, arguments.at("rung")) || row.at("shape").at("n_q") != 1024 ||
            row.at("shape").at("head_dim") != 64 || row.at("shape").at("causal"))
            continue;
        if (row.at("operation") == "attention_backward") columns = of_backward;
        const auto& tensors = row.at("counts").at("tensors");
        const int kilobytes = row.at("shared_bytes").get<int>() / 1024;
        std::vector<std::string>& cells = by_memory[kilobytes] = {fmt::format("{} KB", kilobytes)};
        for (const auto& [heading, names] : columns) {
            double bytes = 0;
            for (const char* name : names)
                for (const char* way : {"read", "written"}) bytes += tensors.at(name).at(way).at("requested_bytes").get<double>();
            cells.push_back(fmt::format("{:.0f}", bytes));
        }
        cells.push_back(row.at("counts").at("requested_bytes").dump());
        cells.push_back(fmt::format("{:.0f}", row.at("closed_form").at("requested_bytes").get<double>()));
    }
    std::vector<std::string> header = {"M, shared memory of a block"};
    for (const auto& [heading, names] : columns) header.push_back(heading);
    header.insert(header.end(), {"requested in all", "closed form"});
    Table table(header);
    for (const auto& [kilobytes, cells] : by_memory) table.add(cells);
    return fmt::format("{}\n{}", table.markdown(), counts_caption(r, "Bytes. One head, N = 1024, d = 64"));
}

/// Causal against not: how often K and V are requested.
std::string causal_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"", "K and V requested", "Q", "O", "exponentials"});
    for (const auto& row : r.at("rows")) {
        const auto& s = row.at("shape");
        if (!is_rung(row, arguments.at("rung")) || s.at("n_q") != 1024 || s.at("head_dim") != 64) continue;
        const auto& tensors = row.at("counts").at("tensors");
        const double kv = tensors.at("K").at("read").at("requested_bytes").get<double>() +
                          tensors.at("V").at("read").at("requested_bytes").get<double>();
        table.add({s.at("causal") ? "causal" : "not causal", readable_bytes(kv),
                   readable_bytes(tensors.at("Q").at("read").at("requested_bytes")),
                   readable_bytes(tensors.at("O").at("written").at("requested_bytes")),
                   row.at("counts").at("total").at("exponentials").dump()});
    }
    return fmt::format("{}\n{}", table.markdown(), counts_caption(r, "One head, N = 1024, d = 64"));
}

/// Forward and backward together on the problem of FlashAttention's figure 2, beside its numbers.
std::string paper_bytes_table(const nlohmann::json& r, const Arguments& arguments) {
    Arguments of_backward = arguments;
    of_backward["operation"] = "attention_backward";
    const nlohmann::json backward = results(counts_file, of_backward);
    constexpr double heads = 64 * 16;  // of the figure: a batch of 64, 16 heads, N = 1024, d = 64
    const auto of_one_head = [](const nlohmann::json& rows, const std::string& number, const char* bytes) {
        for (const auto& row : rows)
            if (counted(row) && is_rung(row, number) && row.at("shape").at("head_dim") == 64)
                return row.at("counts").at(bytes).get<double>();
        throw std::runtime_error(fmt::format("{} has no row of rung {} with d = 64", counts_file, number));
    };
    Table table({"GB", "the paper: read and written", "rungs", "ours: distinct", "ours: requested"});
    const auto add = [&](const char* what, const char* paper, const std::string& there, const std::string& back) {
        const auto gigabytes = [&](const char* bytes) {
            const double both = of_one_head(r.at("rows"), there, bytes) + of_one_head(backward.at("rows"), back, bytes);
            return fmt::format("{:.1f}", both * heads / 1e9);
        };
        table.add({what, paper, there + " and " + back, gigabytes("distinct_bytes"), gigabytes("requested_bytes")});
    };
    add("standard", "40.3", "00", "15");
    add("FlashAttention", "4.4", "01", "16");
    return fmt::format("{}\n{}", table.markdown(), counts_caption(r, "Batch 64, 16 heads, N = 1024, d = 64, not causal; one head was counted"));
}

/// Device memory beyond inputs and output, by N.
std::string memory_table(const nlohmann::json& r, const Arguments&) {
    std::map<std::string, std::map<int, double>> by_stage;
    for (const auto& row : r.at("rows")) {
        const auto& s = row.at("shape");
        if (s.at("head_dim") != 64 || s.at("heads") != 1 || s.at("causal") || row.at("shared_bytes") != 227 * 1024)
            continue;
        by_stage[row.at("stage")][s.at("n_q")] = row.at("counts").at("peak_scratch_bytes");
    }
    std::vector<std::string> header = {"N"};
    for (const auto& [stage, peaks] : by_stage) header.push_back(stage);
    Table table(header);
    for (const auto& [n, ignored] : by_stage.begin()->second) {
        std::vector<std::string> cells = {fmt::format("{}", n)};
        for (const auto& [stage, peaks] : by_stage) cells.push_back(fmt::format("{:.0f}", peaks.at(n)));
        table.add(cells);
    }
    return fmt::format("{}\n{}", table.markdown(),
                       counts_caption(r, "Bytes at most, beyond inputs and output. One head, d = 64"));
}

/// What the counted work of N = 1024 costs on the card that the timings are of, beside the times of as many heads.
std::string cost_model_table(const nlohmann::json& r, const Arguments& arguments) {
    const int d = std::stoi(arguments.at("d"));
    const nlohmann::json timings = results(timings_file, arguments);
    const Card& card = find_card(arguments.at("card"));
    Table table({"rung", "HBM", "L2", "L1", "shared memory", "tensor cores", "FMA", "ALU", "XU", "set-up and sync",
                 "bound by", "model", "measured", "model / measured"});
    for (const auto& row : r.at("rows")) {
        const auto& s = row.at("shape");
        if (s.at("n_q") != 1024 || s.at("head_dim") != d || s.at("causal") != false ||
            row.at("shared_bytes") != r.at("rows").at(0).at("shared_bytes"))
            continue;
        const int heads = 16384 / 1024 * 2048 / d;  // of the timed grid
        const Operation& operation = find_operation("attention");
        const double flops = operation.flops(operation.problem({{"n_q", s.at("n_q")}, {"n_k", s.at("n_k")}, {"head_dim", d}}));
        const ModelledCosts costs = model_costs(card, flops, parse_dtype(row.at("dtype")), row.at("counts"), heads);
        const auto milliseconds = [&](double clocks) { return clocks / card.clock_ghz / 1e6; };
        std::vector<std::string> cells = {row.at("stage")};
        for (const Cost& cost : costs.units) cells.push_back(fmt::format("{:.3f}", milliseconds(cost.clocks)));
        cells.push_back(fmt::format("{:.3f}", milliseconds(costs.setup + costs.sync)));
        cells.push_back(costs.bound().unit);
        const double model = milliseconds(costs.clocks());
        cells.push_back(fmt::format("{:.3f}", model));
        std::string measured, part;
        for (const auto& timed_row : timings.is_null() ? nlohmann::json::array() : timings.at("rows"))
            if (timed(timed_row, "grid") && timed_row.at("stage") == row.at("stage") &&
                timed_row.at("shape").at("n_q") == 1024 && timed_row.at("shape").at("head_dim") == d &&
                timed_row.at("shape").at("causal") == false) {
                const double ms = timed_row.at("ms");
                measured = fmt::format("{:.3f}", ms), part = fmt::format("{:.2f}", model / ms);
            }
        cells.push_back(measured), cells.push_back(part);
        table.add(cells);
    }
    const std::string card_of_times =
        timings.is_null() ? "" : fmt::format("; times: {}, commit {}", timings.at("gpu").get<std::string>(),
                                             timings.at("commit").get<std::string>());
    return fmt::format("{}\nMilliseconds; N = 1024, d = {}, {}, not causal. Model: {}; {}", table.markdown(), d,
                       on_the_grid, card.name, counts_caption(r, fmt::format("one head was counted{}", card_of_times)));
}

/// What a block-sparse rung asks for and multiplies, by its lists.
std::string counted_lists_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"d", "heads", "causal", "lists", "of all scores", "K and V, read", "Q and O", "matrix instructions"});
    for (const auto& row : r.at("rows")) {
        if (!is_rung(row, arguments.at("rung"))) continue;
        const auto& shape = row.at("shape");
        const auto bytes = [&](const char* tensor, const char* way) {
            return row.at("counts").at("tensors").at(tensor).at(way).at("requested_bytes").template get<double>();
        };
        const ListsInWords words(shape);
        table.add({shape.at("head_dim").dump(), shape.at("heads").dump(), shape.at("causal") ? "yes" : "no",
                   words.lists, words.share, readable_bytes(bytes("K", "read") + bytes("V", "read")),
                   readable_bytes(bytes("Q", "read") + bytes("O", "written")),
                   fmt::format("{:.0f}", Totals(row.at("counts").at("total")).matrix_instructions)});
    }
    if (table.empty()) return no_rows(counts_file, arguments);
    return fmt::format("{}\n{}", table.markdown(), counts_caption(r, "N = 1024"));
}

/// What a rung for few queries asks for, beside the one below it.
std::string counted_decoding_table(const nlohmann::json& r, const Arguments& arguments) {
    const std::string rung = arguments.at("rung"), below = flashladder::below(find_chapter(rung)).value().number();
    Table table({"d", "rung", "K and V, read", "Q", "between the kernels, written and read", "matrix instructions",
                 "exponentials"});
    for (const auto& row : r.at("rows")) {
        if (row.at("shape").value("n_q", 0) != 1 || !(is_rung(row, rung) || is_rung(row, below))) continue;
        const auto& tensors = row.at("counts").at("tensors");
        const auto bytes = [&](const char* tensor, const char* way) {
            return tensors.contains(tensor) ? tensors.at(tensor).at(way).at("requested_bytes").template get<double>() : 0.0;
        };
        const Totals totals(row.at("counts").at("total"));
        table.add({row.at("shape").at("head_dim").dump(), row.at("stage"),
                   readable_bytes(bytes("K", "read") + bytes("V", "read")), readable_bytes(bytes("Q", "read")),
                   readable_bytes(bytes("scratch", "written") + bytes("scratch", "read")),
                   fmt::format("{:.0f}", totals.matrix_instructions), fmt::format("{:.0f}", totals.exponentials)});
    }
    if (table.empty()) return no_rows(counts_file, arguments);
    return fmt::format("{}\n{}", table.markdown(),
                       counts_caption(r, "One query, 16 heads, 2 of K and V, 4096 keys"));
}

/// What a rung whose keys lie in pages asks for, by their size.
std::string counted_pages_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"d", "keys of a page", "keys of sequences", "K and V, read", "numbers of the table, read",
                 "matrix instructions"});
    for (const auto& row : r.at("rows")) {
        if (!is_rung(row, arguments.at("rung"))) continue;
        const auto& shape = row.at("shape");
        const auto bytes = [&](const char* tensor, const char* way) {
            return row.at("counts").at("tensors").at(tensor).at(way).at("requested_bytes").template get<double>();
        };
        table.add({shape.at("head_dim").dump(), shape.at("page_size").dump(),
                   shape.at("ragged").get<bool>() ? "drawn" : shape.at("n_k").dump() + " each",
                   readable_bytes(bytes("K", "read") + bytes("V", "read")),
                   fmt::format("{:.0f}", bytes("block_table", "read") / sizeof(int)),
                   fmt::format("{:.0f}", Totals(row.at("counts").at("total")).matrix_instructions)});
    }
    if (table.empty()) return no_rows(counts_file, arguments);
    return fmt::format("{}\n{}", table.markdown(),
                       counts_caption(r, "Two sequences of at most 2048 keys, one query each, 16 heads, 2 of K and V"));
}

/// What a rung of packed sequences asks for, by their lengths.
std::string counted_sequences_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"d", "causal", "sequences", "queries in all", "of padded scores", "K and V, read", "Q, read",
                 "matrix instructions"});
    std::string heads;
    for (const auto& row : r.at("rows")) {
        if (!is_rung(row, arguments.at("rung"))) continue;
        const auto& shape = row.at("shape");
        const auto read = [&](const char* tensor) {
            return row.at("counts").at("tensors").at(tensor).at("read").at("requested_bytes").template get<double>();
        };
        const SequencesInWords sequences(shape);
        heads = shape.at("heads").dump();
        table.add({sequences.d, shape.at("causal").get<bool>() ? "yes" : "no", sequences.lengths,
                   sequences.queries, sequences.share, readable_bytes(read("K") + read("V")), readable_bytes(read("Q")),
                   fmt::format("{:.0f}", Totals(row.at("counts").at("total")).matrix_instructions)});
    }
    if (table.empty()) return no_rows(counts_file, arguments);
    return fmt::format("{}\n{}", table.markdown(), counts_caption(r, fmt::format("{} heads, lengths are drawn", heads)));
}

/// What a rung whose sequence is spread over ranks sends and computes, by their number.
std::string counted_ring_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"d", "", "ranks", "K and V, sent", "in between: O, LSE, K and V, read", "written", "matrix instructions"});
    for (const auto& row : r.at("rows")) {
        if (!is_rung(row, arguments.at("rung"))) continue;
        const auto& shape = row.at("shape");
        const auto number = [&](const char* name) { return shape.at(name).template get<double>(); };
        const auto scratch = [&](const char* way) {
            return row.at("counts").at("tensors").at("scratch").at(way).at("requested_bytes").template get<double>();
        };
        const double of_all = 2 * 2 * number("batch") * number("kv_heads") * number("n_q") * number("head_dim");
        table.add({shape.at("head_dim").dump(), shape.at("causal").get<bool>() ? "causal" : "not causal",
                   shape.at("ranks").dump(), readable_bytes(of_all * (number("ranks") - 1)), readable_bytes(scratch("read")),
                   readable_bytes(scratch("written")),
                   fmt::format("{:.0f}", Totals(row.at("counts").at("total")).matrix_instructions)});
    }
    if (table.empty()) return no_rows(counts_file, arguments);
    return fmt::format("{}\n{}", table.markdown(),
                       counts_caption(r, "A sequence of 1024, two heads that share a K and V; of all ranks together"));
}

}  // namespace flashladder::tables
