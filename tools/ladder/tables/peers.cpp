// The rungs beside the kernels of others: what tools/measure/compare_torch.py has measured.
#include "families.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shared.h"
#include "table.h"

namespace flashladder::tables {
namespace {

std::string heads_words(const nlohmann::json& shape) {
    const int heads = shape.at("heads"), kv_heads = shape.at("kv_heads");
    return heads == kv_heads ? fmt::format("{}", heads) : fmt::format("{}, of K and V {}", heads, kv_heads);
}

/// The row of the same stage and problem but for the length, which here is a multiple of 64; null if there is none.
nlohmann::json neighbour_of(const nlohmann::json& rows, const nlohmann::json& row) {
    const auto without_length = [](const nlohmann::json& of) {
        nlohmann::json shape = of.at("shape");
        shape["n_q"] = shape["n_k"] = 0;
        return std::pair(of.at("stage"), shape);
    };
    if (row.at("shape").at("n_q").get<int>() % 64 == 0) return {};
    for (const auto& other : rows)
        if (other.at("shape").at("n_q").get<int>() % 64 == 0 && without_length(other) == without_length(row))
            return other;
    return {};
}

/// The highest stage of a result file beside the fastest peer of each problem.
struct BesidePeers {
    struct Fastest {
        double stage = 0, peer = 0;  // TFLOP/s
        std::string stages_name, peers_name;
        double ratio() const { return stage / peer; }
    };
    std::vector<std::pair<nlohmann::json, Fastest>> problems;  // by shape

    explicit BesidePeers(const nlohmann::json& rows) {
        for (const auto& row : rows) {
            if (problems.empty() || problems.back().first != row.at("shape")) problems.push_back({row.at("shape"), {}});
            Fastest& of = problems.back().second;
            const std::string stage = row.at("stage");
            const double tflops = row.value("tflops", 0.0);
            if (!stage.starts_with("peer:")) {
                of.stage = tflops;  // by name: the highest comes last
                of.stages_name = column_of(stage);
            } else if (tflops > of.peer) {
                of.peer = tflops;
                of.peers_name = column_of(stage);
            }
        }
    }
    double mean() const {
        double logarithms = 0;
        for (const auto& [shape, of] : problems) logarithms += std::log(of.ratio());
        return std::exp(logarithms / static_cast<double>(problems.size()));
    }
    double lowest() const {
        double lowest = INFINITY;
        for (const auto& [shape, of] : problems) lowest = std::min(lowest, of.ratio());
        return lowest;
    }
    std::string mean_and_lowest() const {
        return fmt::format("geometric mean {:.3f}, lowest {:.2f}", mean(), lowest());
    }
};

/// Rows of all problems of a result file: behind the others those that were run by themselves (--only), instead of what the
/// others have of the same problems.
struct WithMore {
    nlohmann::json rows = nlohmann::json::array();
    std::string caption;  // of the card; of that of the others too

    explicit WithMore(const nlohmann::json& r) : caption(caption_under_load(r)) {
        const nlohmann::json more = r.value("more", nlohmann::json());
        std::set<nlohmann::json> again;
        if (!more.is_null())
            for (const auto& row : more.at("rows")) again.insert(row.at("shape"));
        for (const auto& row : r.at("rows"))
            if (!again.contains(row.at("shape"))) rows.push_back(row);
        if (again.empty()) return;
        rows.insert(rows.end(), more.at("rows").begin(), more.at("rows").end());
        caption += fmt::format("The last {}, in another run: PyTorch {}, cuDNN {}. {}",
                               again.size() == 1 ? "line" : fmt::format("{} lines", again.size()),
                               more.value("torch", "unknown"), more.value("cudnn", "unknown"), caption_under_load(more));
    }
};

}  // namespace

/// What `compare_torch.py --more` has found: other problems, and the speed over a longer time.
std::string more_table(const nlohmann::json& file, const Arguments&) {
    if (!file.contains("more")) return fmt::format("({} has no rows of --more yet.)\n", compare_file);
    const nlohmann::json& r = file.at("more");
    Pivot problems{{"d", "causal", "N", "B", "heads"}};
    for (const auto& row : r.at("rows")) {
        std::vector<std::string> problem = d_mask_and_N(row.at("shape"));
        problem.push_back(row.at("shape").at("batch").dump());
        problem.push_back(heads_words(row.at("shape")));
        std::string cell = "wrong";
        if (row.contains("tflops")) {
            cell = fmt::format("{:.0f}", row.at("tflops").get<double>());
            const nlohmann::json neighbour = neighbour_of(r.at("rows"), row);
            if (neighbour.contains("tflops"))
                cell += fmt::format(" ({:.2f})", row.at("tflops").get<double>() / neighbour.at("tflops").get<double>());
        }
        problems.add(problem, column_of(row.at("stage")), cell);
    }
    Table sustained({"d", "N", "", "TFLOP/s", "after a rest", "SM clock", "power"});
    for (const auto& row : r.value("sustained", nlohmann::json::array())) {
        const auto measured = [&](const char* key, const char* unit) {
            return row.at(key).is_null() ? "unknown" : fmt::format("{:.0f} {}", row.at(key).get<double>(), unit);
        };
        sustained.add({row.at("shape").at("head_dim").dump(), row.at("shape").at("n_q").dump(),
                       column_of(row.at("stage")), fmt::format("{:.0f}", row.at("tflops").get<double>()),
                       fmt::format("{:.0f}", row.at("short_tflops").get<double>()), measured("sm_mhz", "MHz"),
                       measured("power_w", "W")});
    }
    return fmt::format(
        "{}\nTFLOP/s, bf16. In brackets: against the length beside it that is a multiple of 64.\n\n{}\nTFLOP/s of "
        "launches without a pause for 0.4 s, and of a few after a rest; clock and power in the second half. The clock "
        "at the end of this line is that of the few. {}",
        problems.markdown(), sustained.markdown(), caption_under_load(r));
}

/// A grid of problems of several sizes: the stages and peers, and the highest stage against the fastest peer.
std::string peers_table(const nlohmann::json& r, const Arguments&) {
    Pivot problems{{"d", "causal", "B", "heads", "N"}};
    const auto name_of = [](const nlohmann::json& s) -> std::vector<std::string> {
        return {s.at("head_dim").dump(), s.at("causal").get<bool>() ? "yes" : "no", s.at("batch").dump(),
                heads_words(s), s.at("n_q").dump()};
    };
    for (const auto& row : r.at("rows")) {
        const double tflops = row.value("tflops", 0.0);
        problems.add(name_of(row.at("shape")), column_of(row.at("stage")),
                     tflops > 0 ? fmt::format("{:.0f}", tflops) : "wrong");
    }
    const BesidePeers beside(r.at("rows"));
    for (const auto& [shape, of] : beside.problems)
        problems.add(name_of(shape), "of the fastest peer", fmt::format("{:.2f}", of.ratio()));
    return fmt::format(
        "{}\nTFLOP/s, bf16. Last column: the highest rung and the fastest of the others; {}. PyTorch {}, "
        "cuDNN {}. {}",
        problems.markdown(), beside.mean_and_lowest(), r.value("torch", "unknown"), r.value("cudnn", "unknown"),
        caption_under_load(r));
}

/// Every stage and every peer on every problem, in TFLOP/s; the highest rung also against the peers.
std::string compare_table(const nlohmann::json& r, const Arguments&) {
    // By name: the peers come last.
    std::set<std::string> stages;
    std::vector<std::pair<nlohmann::json, std::map<std::string, nlohmann::json>>> problems;  // shape; rows by stage
    for (const auto& row : r.at("rows")) {
        stages.insert(row.at("stage"));
        if (problems.empty() || problems.back().first != row.at("shape")) problems.push_back({row.at("shape"), {}});
        problems.back().second[row.at("stage")] = row;
    }
    std::vector<std::string> header = {"d", "causal", "N"};
    for (const std::string& stage : stages) header.push_back(column_of(stage));
    header.push_back("of the fastest peer");

    const BesidePeers beside(r.at("rows"));
    Table table(header);
    for (std::size_t i = 0; i < problems.size(); ++i) {
        const auto& [shape, rows] = problems[i];
        const auto cell = [&rows = rows](const std::string& stage) -> std::string {
            const auto row = rows.find(stage);
            if (row == rows.end()) return "";
            if (row->second.contains("wrong")) return "wrong";
            return fmt::format("{:.0f}", row->second.at("tflops").get<double>());
        };
        std::vector<std::string> cells = {shape.at("head_dim").dump(), shape.at("causal") ? "yes" : "no",
                                          shape.at("n_q").dump()};
        for (const std::string& stage : stages) cells.push_back(cell(stage));
        cells.push_back(fmt::format("{:.2f}", beside.problems[i].second.ratio()));
        table.add(cells);
    }
    const auto text = [](const nlohmann::json& of, const char* key) { return of.value(key, "unknown"); };
    const auto& clocks = r.at("clocks");
    return fmt::format(
        "{}\nTFLOP/s, {}, {}. Last column: the highest rung and the fastest of the others; {}. {}, driver {}, CUDA {}, "
        "PyTorch {}, cuDNN {}, commit {}, {}; under load SM clock {} of "
        "at most {}, power {} of {}; an 8192^3 matrix product in the same run: {:.0f} TFLOP/s.\n",
        table.markdown(), text(r.at("rows").at(0), "dtype"), on_the_grid, beside.mean_and_lowest(), text(r, "gpu"),
        text(r, "driver"), text(r, "cuda"), text(r, "torch"), text(r, "cudnn"), text(r, "commit"), text(r, "date"),
        text(clocks, "sm"), text(clocks, "sm_max"), text(clocks, "power"), text(clocks, "power_limit"),
        r.at("matmul_tflops").get<double>());
}

/// Problems with these sizes in front, in microseconds; then, of the highest rung, how much of a copy's bandwidth it has, if
/// asked, and how it stands beside the fastest peer.
Table microseconds_beside(const nlohmann::json& all, const BesidePeers& beside,
                          const std::vector<std::pair<std::string, std::string>>& sizes, bool of_a_copy) {
    std::set<std::string> stages;  // by name: the peers come last
    for (const auto& row : all) stages.insert(row.at("stage"));
    std::vector<std::string> header;
    for (const auto& [name, size] : sizes) header.push_back(name);
    for (const std::string& stage : stages) header.push_back(column_of(stage));
    if (of_a_copy) header.emplace_back("of a copy's bytes a second");
    header.emplace_back("of the fastest peer");

    Table table(header);
    for (const auto& [shape, of] : beside.problems) {
        std::vector<std::string> cells;
        for (const auto& [name, size] : sizes) {
            const nlohmann::json& value = shape.at(size);
            cells.push_back(value.is_string()    ? value.template get<std::string>()
                            : value.is_boolean() ? (value.template get<bool>() ? "yes" : "no")
                                                 : value.dump());
        }
        double of_copy = 0;
        for (const std::string& stage : stages) {
            const auto row = std::ranges::find_if(all, [&, &shape = shape](const auto& other) {
                return other.at("shape") == shape && other.at("stage") == stage;
            });
            cells.push_back(row == all.end() ? ""
                            : !row->contains("ms") ? "wrong"
                                                   : fmt::format("{:.1f}", 1000 * row->at("ms").template get<double>()));
            if (of_a_copy && column_of(stage) == of.stages_name) of_copy = row->at("percent_of_copy");
        }
        if (of_a_copy) cells.push_back(fmt::format("{:.0f}%", of_copy));
        cells.push_back(fmt::format("{:.2f}", of.ratio()));
        table.add(cells);
    }
    return table;
}

/// Steps of decoding: what bounds them is how fast K and V come.
std::string decoding_table(const nlohmann::json& r, const Arguments&) {
    const BesidePeers beside(r.at("rows"));
    const Table table = microseconds_beside(r.at("rows"), beside,
                                            {{"d", "head_dim"}, {"sequences", "batch"}, {"heads", "heads"},
                                             {"of K and V", "kv_heads"}, {"keys", "n_k"}}, true);
    return fmt::format(
        "{}\nMicroseconds, one query a head, not causal, bf16. A copy of 1 GB in the same run: {:.0f} GB/s, read and written. "
        "Last column: the highest rung and the fastest of the others; {}. PyTorch {}, cuDNN {}. {}",
        table.markdown(), r.at("copy_gb_per_s").get<double>(), beside.mean_and_lowest(), r.value("torch", "unknown"),
        r.value("cudnn", "unknown"), caption_under_load(r));
}

/// The same from pages, `keys` of all sequences.
std::string pages_beside_table(const nlohmann::json& r, const Arguments&) {
    const BesidePeers beside(r.at("rows"));
    const Table table = microseconds_beside(r.at("rows"), beside,
                                            {{"d", "head_dim"}, {"sequences", "batch"}, {"heads", "heads"},
                                             {"of K and V", "kv_heads"}, {"keys in all", "keys"},
                                             {"keys of a page", "page_size"}}, true);
    return fmt::format(
        "{}\nMicroseconds, one query a head, not causal, bf16, pages in any order. A copy of 1 GB in the same run: {:.0f} "
        "GB/s, read and written. Last column: {}. {}",
        table.markdown(), r.at("copy_gb_per_s").get<double>(), beside.mean_and_lowest(), caption_under_load(r));
}

/// Sequences of unlike length, packed.
std::string varlen_beside_table(const nlohmann::json& r, const Arguments&) {
    const WithMore all(r);
    const BesidePeers beside(all.rows);
    const Table table = microseconds_beside(all.rows, beside, {{"d", "head_dim"}, {"of V", "value_dim"}, {"causal", "causal"},
                                                                   {"heads", "heads"}, {"sequences", "sequences"}, {"rows in all", "rows"}}, false);
    return fmt::format("{}\nMicroseconds, bf16. Last column: the highest rung and the fastest of the others; {}. PyTorch {}, "
                       "cuDNN {}. {}",
                       table.markdown(), beside.mean_and_lowest(), r.value("torch", "unknown"), r.value("cudnn", "unknown"),
                       all.caption);
}

/// Lists of blocks: rung 26, flex_attention with the same blocks, and rung 14 with all of them; the latter also with the tiles
/// of rung 26, a variant, where that was timed.
std::string lists_beside_table(const nlohmann::json& r, const Arguments&) {
    const WithMore with_more(r);
    const nlohmann::json& all = with_more.rows;
    Table table({"d", "causal", "lists", "of all scores", "26", "flex_attention", "14, all blocks", "14, same tiles",
                 "time of 14's", "times as fast as flex_attention"});
    double logarithms = 0, lowest = INFINITY;
    int compared = 0;
    for (const auto& row : all) {
        if (!row.at("stage").get<std::string>().starts_with("26")) continue;
        const auto& shape = row.at("shape");
        const auto ms_of = [&](const char* name, bool variant = false) -> std::string {
            for (const auto& other : all) {
                const std::string stage = other.at("stage");
                if (other.at("shape") == shape && stage.starts_with(name) && (stage.find('/') != stage.npos) == variant)
                    return other.contains("ms") ? fmt::format("{:.3f}", other.at("ms").get<double>()) : "wrong";
            }
            return "";
        };
        std::string same_tiles = ms_of("14", true);
        if (row.contains("time_of_same_tiles"))
            same_tiles += fmt::format(" ({:.3f})", row.at("time_of_same_tiles").get<double>());
        const nlohmann::json ratio = row.value("ratio_flex", nlohmann::json());
        if (!ratio.is_null()) {
            logarithms += std::log(ratio.get<double>()), ++compared;
            lowest = std::min(lowest, ratio.get<double>());
        }
        table.add({shape.at("head_dim").dump(), shape.at("causal").get<bool>() ? "yes" : "no", shape.at("lists"),
                   fmt::format("{:.0f}%", 100 * row.at("share").get<double>()), ms_of("26"), ms_of("peer:flex"), ms_of("14"),
                   same_tiles, row.contains("time_of_dense") ? fmt::format("{:.2f}", row.at("time_of_dense").get<double>()) : "",
                   ratio.is_null() ? "" : fmt::format("{:.2f}", ratio.get<double>())});
    }
    return fmt::format("{}\nMilliseconds, bf16, {} heads, N = {}, each line in one run. In brackets: the time of "
                       "26, if that of 14 with the same tiles is 1. Last column: geometric mean {:.3f}, lowest {:.2f}. PyTorch {}. {}",
                       table.markdown(), all.at(0).at("shape").at("heads").dump(), all.at(0).at("shape").at("n_q").dump(),
                       compared ? std::exp(logarithms / compared) : 0, compared ? lowest : 0, r.value("torch", "unknown"),
                       with_more.caption);
}

/// Attention's part of a training step of some models: the forward pass, and both passes.
std::string training_step_table(const nlohmann::json& r, const Arguments&) {
    const auto& all = r.at("rows");
    const std::string forward_stage = r.at("forward_stage");
    // "14, 22/deterministic" of two stages; a peer, or the Python package, has one name for both passes.
    const auto name_of = [&](const std::string& stage) {
        const std::string variant = stage.substr(std::min(stage.find('/'), stage.size()));
        return std::isdigit(static_cast<unsigned char>(stage.front()))
                   ? fmt::format("{}, {}{}", column_of(forward_stage), column_of(stage), variant)
                   : column_of(stage);
    };
    std::set<std::string> stages;  // by name: the peers come last
    for (const auto& row : all) stages.insert(row.at("stage"));
    std::vector<std::string> header = {"attention of", "d", "causal", "N", "sequences", "heads", "passes"};
    for (const std::string& stage : stages) header.push_back(name_of(stage));
    header.emplace_back("of the fastest peer");

    Table table(header);
    for (const auto& [shape, of] : BesidePeers(all).problems)
        for (const auto& [passes, words] : {std::pair{"forward", "forward"}, std::pair{"step", "both"}}) {
            std::vector<std::string> cells = {shape.at("model")};
            for (const std::string& cell : d_mask_and_N(shape)) cells.push_back(cell);
            cells.insert(cells.end(), {shape.at("batch").dump(), heads_words(shape), words});
            std::string of_the_fastest;
            for (const std::string& stage : stages) {
                const auto row = std::ranges::find_if(all, [&, &shape = shape](const auto& other) {
                    return other.at("shape") == shape && other.at("stage") == stage;
                });
                const bool was_timed = row != all.end() && row->contains(passes);
                cells.push_back(was_timed ? milliseconds(row->at(passes)) : row == all.end() ? "" : "wrong");
                if (was_timed && stage == *stages.begin() && !row->at(passes).at("ratio_fastest").is_null())
                    of_the_fastest = fmt::format("{:.2f}", row->at(passes).at("ratio_fastest").template get<double>());
            }
            cells.push_back(of_the_fastest);
            table.add(cells);
        }
    return fmt::format(
        "{}\nMilliseconds, bf16, in one run ({}). Last column: how many times as fast as the fastest peer {} is. PyTorch {}, "
        "cuDNN {}. {}",
        table.markdown(), all.at(0).value("launched", "unknown"), name_of(*stages.begin()), r.value("torch", "unknown"),
        r.value("cudnn", "unknown"), caption_under_load(r));
}

/// The highest rung beside the fastest peer, a line for each grid of problems and each card. `r` is of one of them.
std::string fastest_peers_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table({"problems", "rung", "card", "of the fastest peer", "lowest", "rows", "the fastest peer is"});
    for (const auto& [problems, file] : {std::pair{"16384 tokens, width 2048", "compare"},
                                         {"one sequence, 4 to 32 heads", "few"},
                                         {"drawn, 500 to 20000 tokens a sequence", "drawn"},
                                         {"one query a head, up to a million keys", "decoding"},
                                         {"gradients, 16384 tokens", "compare-backward"},
                                         {"gradients, one sequence, 4 to 32 heads", "few-backward"},
                                         {"gradients, drawn", "drawn-backward"}})
        for (const char* suffix : {"", "-h200"}) {
            const nlohmann::json of_file = results(fmt::format("docs/results/{}{}.json", file, suffix), arguments);
            if (of_file.is_null()) continue;
            const BesidePeers beside(of_file.at("rows"));
            std::map<std::string, int> times;
            for (const auto& [shape, of] : beside.problems) ++times[of.peers_name];
            std::string fastest;
            for (const auto& [peer, rows] : times)
                fastest += fmt::format("{}{} in {}", fastest.empty() ? "" : ", ", peer, rows);
            const std::string card = of_file.value("gpu", "unknown");
            table.add({problems, beside.problems.back().second.stages_name, card.substr(card.find(' ') + 1),
                       fmt::format("{:.2f}", beside.mean()), fmt::format("{:.2f}", beside.lowest()),
                       fmt::format("{}", beside.problems.size()), fastest});
        }
    return fmt::format(
        "{}\nTFLOP/s of the rung by those of the peer that is the fastest at this problem, in the same run, "
        "bf16; geometric mean and lowest. PyTorch {}, cuDNN {}. {}",
        table.markdown(), r.value("torch", "unknown"), r.value("cudnn", "unknown"), caption_under_load(r));
}

}  // namespace flashladder::tables
