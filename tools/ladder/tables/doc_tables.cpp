#include "doc_tables.h"

#include <cmath>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "chapters.h"
#include "cost_model.h"
#include "diff.h"
#include "files.h"
#include "harness/configurations.h"
#include "harness/inputs.h"
#include "harness/stage.h"
#include "table.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;
struct Arguments : std::map<std::string, std::string> {
    std::string project;  // its folder
};

const std::string timings_file = "docs/results/ladder.json", counts_file = "docs/results/counts.json",
                  races_file = "docs/results/races.json", variants_file = "docs/results/variants.json",
                  compare_file = "docs/results/compare.json", template_file = "docs/results/template.json",
                  tune_file = "docs/results/tune.json",
                  tune_file_of_h200 = "docs/results/tune-h200.json",
                  compare_file_of_h200 = "docs/results/compare-h200.json";

nlohmann::json results(const std::string& file, const Arguments& arguments) {
    const std::string path = arguments.project + "/" + file;
    if (!fs::exists(path)) return {};
    nlohmann::json found = nlohmann::json::parse(read_file(path), nullptr, false);
    if (found.is_discarded()) throw std::runtime_error(fmt::format("{} is no JSON", file));
    return found;
}

std::string caption(const nlohmann::json& r, const std::string& what) {
    return fmt::format(
        "{}, driver {}, CUDA {}, commit {}, {}; SM clock {} of at most {} at the end. {}; medians of "
        "interleaved launches.\n",
        r.at("gpu").get<std::string>(), r.at("driver").get<std::string>(), r.at("cuda").get<std::string>(),
        r.at("commit").get<std::string>(), r.at("date").get<std::string>(), r.at("clocks").at("sm").get<std::string>(),
        r.at("clocks").at("sm_max").get<std::string>(), what);
}
/// The same for results of the tools in Python, which look at the clock while kernels run.
std::string caption_under_load(const nlohmann::json& r) {
    const auto text = [](const nlohmann::json& of, const char* key) { return of.value(key, "unknown"); };
    const nlohmann::json clocks = r.value("clocks", nlohmann::json::object());
    return fmt::format("{}, driver {}, CUDA {}, commit {}, {}; under load SM clock {} of at most {}.\n", text(r, "gpu"),
                       text(r, "driver"), text(r, "cuda"), text(r, "commit"), text(r, "date"), text(clocks, "sm"),
                       text(clocks, "sm_max"));
}
const std::string on_the_grid = "16384 tokens, heads = 2048 / d";

/// "f32", or "bf16, the rung below f32" where two rungs are compared that have not the same.
std::string dtypes(const std::string& own, const std::string& below) {
    return below.empty() || own == below ? own : fmt::format("{}, the rung below {}", own, below);
}

std::string no_rows(const std::string& file, const Arguments& arguments) {
    return fmt::format("({} has no rows of rung {} yet.)\n", file, arguments.at("rung"));
}

std::string counts_caption(const nlohmann::json& r, const std::string& what) {
    return fmt::format("{}; counted by the emulator, commit {}, {}.\n", what, r.at("commit").get<std::string>(),
                       r.at("date").get<std::string>());
}

/// True for the rows of one of the timed tables.
bool timed(const nlohmann::json& row, const std::string& set) { return row.contains("ms") && row.at("set") == set; }

/// README's table: each rung at N = 4096, and how much faster it is than the rung below.
std::string ladder_table(const nlohmann::json& r, const Arguments&) {
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

bool is_rung(const nlohmann::json& row, const std::string& number) {
    return row.at("stage").get<std::string>().starts_with(number);
}

std::string milliseconds(const nlohmann::json& row) { return fmt::format("{:.3f}", row.at("ms").get<double>()); }
std::string tflops(const nlohmann::json& row) { return fmt::format("{:.2f}", row.at("tflops").get<double>()); }

/// How a rung and the one below it use a card that has few heads to work on.
std::string heads_table(const nlohmann::json& r, const Arguments& arguments) {
    const std::string rung = arguments.at("rung"), below = fmt::format("{:02}", std::stoi(rung) - 1);
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

// ---- beside PyTorch

std::string column_of(const std::string& stage) {
    if (stage == "peer:torch-flash") return "FA2";
    if (stage == "peer:torch-cudnn") return "cuDNN";
    if (stage == "peer:flash_attn_interface") return "FA3";
    return stage.starts_with("peer:") ? stage.substr(5) : stage.substr(0, 2);
}

/// A line for each problem, a column for each kind of kernel, both in the order of the rows.
struct Pivot {
    std::vector<std::string> header;  // of the cells that say which problem it is; then the columns

    std::vector<std::vector<std::string>> lines = {};
    std::size_t names = header.size();

    void add(const std::vector<std::string>& problem, const std::string& column, const std::string& cell) {
        const auto place = std::find(header.begin() + static_cast<std::ptrdiff_t>(names), header.end(), column);
        const auto index = static_cast<std::size_t>(place - header.begin());
        if (place == header.end()) header.push_back(column);
        auto line = std::ranges::find_if(lines, [&](const std::vector<std::string>& cells) {
            return std::equal(problem.begin(), problem.end(), cells.begin());
        });
        if (line == lines.end()) line = lines.insert(line, problem);
        line->resize(std::max(line->size(), index + 1));
        (*line)[index] = cell;
    }
    std::string markdown() const {
        Table table(header);
        for (std::vector<std::string> cells : lines) {
            cells.resize(header.size());
            table.add(cells);
        }
        return table.markdown();
    }
};

std::vector<std::string> d_mask_and_N(const nlohmann::json& shape) {
    return {shape.at("head_dim").dump(), shape.at("causal").get<bool>() ? "yes" : "no", shape.at("n_q").dump()};
}

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
    struct Fastest {
        double stage = 0, peer = 0;
    };
    std::vector<std::pair<std::vector<std::string>, Fastest>> ratios;
    Pivot problems{{"d", "causal", "B", "heads", "N"}};
    for (const auto& row : r.at("rows")) {
        const auto& s = row.at("shape");
        const std::vector<std::string> problem = {s.at("head_dim").dump(), s.at("causal").get<bool>() ? "yes" : "no",
                                                  s.at("batch").dump(), heads_words(s), s.at("n_q").dump()};
        const std::string stage = row.at("stage");
        const double tflops = row.value("tflops", 0.0);
        problems.add(problem, column_of(stage), tflops > 0 ? fmt::format("{:.0f}", tflops) : "wrong");
        if (ratios.empty() || ratios.back().first != problem) ratios.push_back({problem, {}});
        Fastest& fastest = ratios.back().second;
        if (stage.starts_with("peer:"))
            fastest.peer = std::max(fastest.peer, tflops);
        else
            fastest.stage = tflops;  // by name: the highest comes last
    }
    double logarithms = 0, lowest = INFINITY;
    for (const auto& [problem, of] : ratios) {
        const double ratio = of.stage / of.peer;
        problems.add(problem, "of the fastest peer", fmt::format("{:.2f}", ratio));
        logarithms += std::log(ratio);
        lowest = std::min(lowest, ratio);
    }
    return fmt::format(
        "{}\nTFLOP/s, bf16. Last column: the highest rung and the fastest of the others; geometric mean {:.3f}, lowest "
        "{:.2f}. PyTorch {}, cuDNN {}. {}",
        problems.markdown(), std::exp(logarithms / static_cast<double>(ratios.size())), lowest,
        r.value("torch", "unknown"), r.value("cudnn", "unknown"), caption_under_load(r));
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
    std::string highest;
    for (const std::string& stage : stages) {
        header.push_back(column_of(stage));
        if (!stage.starts_with("peer:")) highest = stage;
    }
    for (const char* peer : {"FA2", "cuDNN"}) header.push_back(fmt::format("{} / {}", column_of(highest), peer));

    Table table(header);
    for (const auto& [shape, rows] : problems) {
        const auto cell = [&rows](const std::string& stage, const char* key, int digits) -> std::string {
            const auto row = rows.find(stage);
            if (row == rows.end()) return "";
            if (row->second.contains("wrong")) return "wrong";
            const auto& value = row->second.at(key);
            return value.is_null() ? "" : fmt::format("{:.{}f}", value.get<double>(), digits);
        };
        std::vector<std::string> cells = {shape.at("head_dim").dump(), shape.at("causal") ? "yes" : "no",
                                          shape.at("n_q").dump()};
        for (const std::string& stage : stages) cells.push_back(cell(stage, "tflops", 0));
        for (const char* ratio : {"ratio_flash", "ratio_cudnn"}) cells.push_back(cell(highest, ratio, 2));
        table.add(cells);
    }
    const auto text = [](const nlohmann::json& of, const char* key) { return of.value(key, "unknown"); };
    const auto& clocks = r.at("clocks");
    return fmt::format(
        "{}\nTFLOP/s, {}, {}. {}, driver {}, CUDA {}, PyTorch {}, cuDNN {}, commit {}, {}; under load SM clock {} of "
        "at most {}, power {} of {}; an 8192^3 matrix product in the same run: {:.0f} TFLOP/s.\n",
        table.markdown(), text(r.at("rows").at(0), "dtype"), on_the_grid, text(r, "gpu"), text(r, "driver"),
        text(r, "cuda"), text(r, "torch"), text(r, "cudnn"), text(r, "commit"), text(r, "date"), text(clocks, "sm"),
        text(clocks, "sm_max"), text(clocks, "power"), text(clocks, "power_limit"),
        r.at("matmul_tflops").get<double>());
}

// ---- counted work

/// The rows of the counted problems that tables are about: one head of N = 1024 on the virtual GPU as it is.
bool counted(const nlohmann::json& row) {
    const auto& s = row.at("shape");
    return s.at("n_q") == 1024 && s.at("n_k") == 1024 && s.at("heads") == 1 && !s.at("causal").get<bool>() &&
           row.at("shared_bytes") == 227 * 1024;
}
const std::string counted_problem = "One head, N = 1024, not causal";

double sum_of(const nlohmann::json& kinds, const char* what) {
    double sum = 0;
    for (const auto& kind : kinds) sum += kind.at(what).get<double>();
    return sum;
}

struct Totals {
    double requested, used, moved, wavefronts, conflicts, exponentials, divisions, barriers, matrix_instructions;

    explicit Totals(const nlohmann::json& total) {
        const auto global = total.value("global", nlohmann::json::object()),
                   shared = total.value("shared", nlohmann::json::object());
        requested = sum_of(global, "requested_bytes");
        used = sum_of(global, "used_bytes");
        moved = 32 * sum_of(global, "sectors");
        wavefronts = sum_of(shared, "wavefronts");
        conflicts = sum_of(shared, "conflicts");
        exponentials = total.value("exponentials", 0.0);
        divisions = total.value("divisions", 0.0);
        barriers = total.value("barriers", 0.0);
        matrix_instructions = total.value("matrix_instructions", 0.0);
    }
};

std::string percent(double part, double whole) { return fmt::format("{:.0f}%", whole > 0 ? 100 * part / whole : 0); }

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
    Table table({"M, shared memory of a block", "K and V", "Q", "O", "l and m", "requested in all", "closed form"});
    std::map<int, std::vector<std::string>> by_memory;
    for (const auto& row : r.at("rows")) {
        if (!is_rung(row, arguments.at("rung")) || row.at("shape").at("n_q") != 1024 ||
            row.at("shape").at("head_dim") != 64)
            continue;
        const auto& tensors = row.at("counts").at("tensors");
        const auto of = [&](const char* name) {
            const auto& tensor = tensors.at(name);
            return tensor.at("read").at("requested_bytes").template get<double>() +
                   tensor.at("written").at("requested_bytes").template get<double>();
        };
        const int kilobytes = row.at("shared_bytes").get<int>() / 1024;
        by_memory[kilobytes] = {fmt::format("{} KB", kilobytes),
                                fmt::format("{:.0f}", of("K") + of("V")),
                                fmt::format("{:.0f}", of("Q")),
                                fmt::format("{:.0f}", of("O")),
                                fmt::format("{:.0f}", of("scratch")),
                                row.at("counts").at("requested_bytes").dump(),
                                fmt::format("{:.0f}", row.at("closed_form").at("requested_bytes").get<double>())};
    }
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

std::string variant_name(const std::string& stage) {
    return stage.find('/') == stage.npos ? "rung " + stage.substr(0, 2) : stage.substr(stage.find('/') + 1);
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

// ---- the template of rung 14

/// "d 128, N 4096, causal", or "8192 x 8192 x 8192" of a matrix product.
std::string problem_words(const nlohmann::json& shape) {
    if (shape.contains("k"))
        return fmt::format("{} x {} x {}", shape.at("m").get<int>(), shape.at("n").get<int>(),
                           shape.at("k").get<int>());
    return fmt::format("d {}, N {}{}", shape.at("head_dim").get<int>(), shape.at("n_q").get<int>(),
                       shape.at("causal").get<bool>() ? ", causal" : "");
}
std::string whole_tflops(const nlohmann::json& row) { return fmt::format("{:.0f}", row.at("tflops").get<double>()); }

const std::string of_templates =
    "bf16; attention of 16384 tokens, 16 heads, matrix products (M x N) = (M x K) (K x N), "
    "the problem says M x N x K; medians of interleaved launches";

/// Slots of the rings, and how blocks come by their tasks.
std::string template_pivot(const nlohmann::json& rows, const nlohmann::json& r, const std::string& unit) {
    Pivot table{{"", "problem"}};
    for (const auto& row : rows) {
        const std::string what = row.at("what");
        table.add({row.at("kernel"), problem_words(row.at("shape"))},
                  what + (what == "1" || unit.empty() ? unit : unit + "s"), whole_tflops(row));
    }
    return fmt::format("{}\nTFLOP/s, {}. {}", table.markdown(), of_templates, caption_under_load(r));
}
std::string template_stages(const nlohmann::json& rows, const nlohmann::json& r) {
    return template_pivot(rows, r, " slot");
}
std::string template_schedules(const nlohmann::json& rows, const nlohmann::json& r) {
    return template_pivot(rows, r, "");
}

/// The order of the tasks of a matrix product: speed, and bytes read from device memory.
std::string template_orders(const nlohmann::json& rows, const nlohmann::json& r) {
    Pivot table{{"M x N x K", "A and B once"}};
    const auto megabytes = [](double bytes) { return fmt::format("{:.0f} MB", bytes / 1e6); };
    for (const auto& row : rows) {
        const auto& s = row.at("shape");
        const double m = s.at("m"), n = s.at("n"), k = s.at("k");
        table.add({problem_words(s), megabytes(2 * (m * k + k * n))}, row.at("what"),
                  fmt::format("{}, {}", whole_tflops(row), megabytes(row.at("device_bytes"))));
    }
    return fmt::format(
        "{}\nTFLOP/s, and what one launch reads from device memory; bf16, medians of interleaved launches. {}",
        table.markdown(), caption_under_load(r));
}

/// Our matrix product beside cuBLAS.
std::string template_gemm(const nlohmann::json& rows, const nlohmann::json& r) {
    Table table({"M x N x K", "ours, ms", "TFLOP/s", "cuBLAS, ms", "TFLOP/s", "ours / cuBLAS", "error", "of cuBLAS"});
    const auto error = [](const nlohmann::json& row) { return fmt::format("{:.1e}", row.at("error").get<double>()); };
    for (const auto& ours : rows)
        for (const auto& cublas : rows)
            if (ours.at("what") == "ours" && cublas.at("what") == "cuBLAS" && ours.at("shape") == cublas.at("shape"))
                table.add({problem_words(ours.at("shape")), milliseconds(ours), whole_tflops(ours),
                           milliseconds(cublas), whole_tflops(cublas),
                           fmt::format("{:.2f}", cublas.at("ms").get<double>() / ours.at("ms").get<double>()),
                           error(ours), error(cublas)});
    return fmt::format(
        "{}\nbf16; errors relative to a product in float64. The ratio is of speeds: more than 1 is faster than cuBLAS. "
        "PyTorch {}; medians of interleaved launches. {}",
        table.markdown(), r.value("torch", "unknown"), caption_under_load(r));
}

/// Lines of code and bytes of machine code.
std::string template_sizes(const nlohmann::json& sizes, const nlohmann::json&) {
    Table table({"file", "lines", "machine code, bytes"});
    for (const auto& file : sizes.at("files"))
        table.add({fmt::format("`{}`", file.at("file").get<std::string>()), file.at("lines").dump(),
                   file.contains("bytes") ? file.at("bytes").dump() : ""});
    const std::string library =
        sizes.at("library_bytes").is_null()
            ? ""
            : fmt::format(" libflashladder.so, all stages: {}.", readable_bytes(sizes.at("library_bytes")));
    return fmt::format(
        "{}\nLines without comments and blank ones. Machine code of one kernel: bf16, d = 128, not causal (rung 01: "
        "f32), "
        "for {} by nvcc {}.{} Commit {}, {}.\n",
        table.markdown(), sizes.at("architecture").get<std::string>(), sizes.at("nvcc").get<std::string>(), library,
        sizes.at("commit").get<std::string>(), sizes.at("date").get<std::string>());
}

/// One of the tables above: "template stages" and so on.
std::string template_table(const nlohmann::json& r, const Arguments& arguments) {
    using Make = std::string (*)(const nlohmann::json&, const nlohmann::json&);
    const std::map<std::string, Make> tables = {{"stages", template_stages},
                                                {"schedules", template_schedules},
                                                {"orders", template_orders},
                                                {"gemm", template_gemm},
                                                {"sizes", template_sizes}};
    for (const auto& [name, make] : tables)
        if (arguments.contains(name))
            return r.contains(name) ? make(r.at(name), r) : fmt::format("({} has no {} yet.)\n", template_file, name);
    throw std::runtime_error("'template' needs one of: stages, schedules, orders, gemm, sizes");
}

/// What the configurations of rung 14 cost, as it was compiled.
std::string costs_table(const nlohmann::json&, const Arguments& arguments) {
    Table table({"d", "causal", "configuration", "a launch", "a task", "a step"});
    for (const ConfigurationCost& cost : configuration_costs) {
        const Configuration& config = configurations[static_cast<std::size_t>(cost.configuration)];
        table.add({fmt::format("{}", config.d), cost.causal ? "yes" : "no", to_string(config),
                   fmt::format("{:.2f}", cost.launch), fmt::format("{:.2f}", cost.task), fmt::format("{:.3f}", cost.step)});
    }
    const nlohmann::json tuned = results(tune_file, arguments), other = results(tune_file_of_h200, arguments);
    if (tuned.is_null()) return fmt::format("{}\n({} is not there yet.)\n", table.markdown(), tune_file);
    return fmt::format("{}\nMicroseconds, fitted to times in bf16{}. {}{}", table.markdown(),
                       other.is_null() ? "" : " of both cards together", caption_under_load(tuned),
                       other.is_null() ? "" : caption_under_load(other));
}

/// Which configuration of rung 14 is taken for which problem on a GPU of 132 multiprocessors, as it was compiled.
std::string choices_table(const nlohmann::json&, const Arguments&) {
    const std::vector<int> lengths = {512, 1024, 2048, 4096, 8192, 16384};
    std::vector<std::string> header = {"d", "causal", "heads in all"};
    for (const int n : lengths) header.push_back(fmt::format("N = {}", n));
    Table table(header);
    for (const int d : {64, 128})
        for (const bool causal : {false, true})
            for (const int heads : {4, 8, 32, 0}) {
                std::vector<std::string> cells = {fmt::format("{}", d), causal ? "yes" : "no",
                                                  heads ? fmt::format("{}", heads) : fmt::format("{} / N", 16384 * 2048 / d)};
                for (const int n : lengths) {
                    AttentionShape s;
                    s.heads = heads ? heads : 16384 / n * 2048 / d;
                    s.n_q = s.n_k = n, s.head_dim = d, s.causal = causal;
                    const Configuration& c = configurations[static_cast<std::size_t>(configuration_for(s, 132))];
                    cells.push_back(fmt::format("{} x {}", c.consumers, c.B_c));
                }
                table.add(cells);
            }
    return table.markdown() + "\nConsumers x keys of a block, on 132 multiprocessors.\n";
}

/// Instructions of a warp in the unmasked loop of rung 13, by variant, and of rung 14.
std::string loops_table(const nlohmann::json& r, const Arguments&) {
    std::vector<std::string> header = {"d", "", "a step", "for each element of S"};
    for (const auto& [kind, n] : r.at("rows").at(0).at("kinds").items()) header.push_back(kind);
    header.push_back("others");
    Table table(header);
    for (const auto& row : r.at("rows")) {
        const std::string variant = row.at("variant");
        const int all = row.at("instructions"), elements = row.at("B_c").get<int>() / 2;  // of a lane
        std::vector<std::string> cells = {row.at("d").dump(), variant.empty() ? "rung 13" : variant,
                                          fmt::format("{}", all), fmt::format("{:.2f}", double(all) / elements)};
        int others = all;
        for (const auto& [kind, n] : row.at("kinds").items()) {
            cells.push_back(n.dump());
            others -= n.get<int>();
        }
        cells.push_back(fmt::format("{}", others));
        table.add(cells);
    }
    return fmt::format(
        "{}\nInstructions of a warp, bf16, not causal; counted in the machine code of nvcc {} for {}, the shortest way "
        "around the loop.\n",
        table.markdown(), r.at("nvcc").get<std::string>(), r.at("architecture").get<std::string>());
}

std::string profiler_caption(const nlohmann::json& r) {
    return fmt::format("{}, driver {}, {}, commit {}, {}.\n", r.at("gpu").get<std::string>(),
                       r.at("driver").get<std::string>(), r.at("profiler").get<std::string>(),
                       r.at("commit").get<std::string>(), r.at("date").get<std::string>());
}

/// The clocks of the rungs, and those that their work takes by itself at the rates of sm_90.
std::string clocks_table(const nlohmann::json& r) {
    const double multiprocessors = r.at("multiprocessors");
    const Card& card = find_card("H100");  // an H200 has the same multiprocessors
    Table table({"problem", "", "measured", "products", "of the measured", "exponentials", "instructions"});
    for (const auto& row : r.at("rows")) {
        const std::string stage = row.at("stage");
        if (stage.find('/') != std::string::npos) continue;
        const auto& s = row.at("shape");
        const double scores = s.at("batch").get<double>() * s.at("heads").get<double>() * s.at("n_q").get<double>() *
                              s.at("n_k").get<double>() / (s.at("causal").get<bool>() ? 2 : 1);
        const double products = 4 * scores * s.at("head_dim").get<double>() / card.tensor_flops / multiprocessors;
        const double measured = row.at("busy").at("cycles"), instructions = row.at("busy").at("instructions");
        const auto thousands = [](double clocks) { return fmt::format("{:.0f}", clocks / 1e3); };
        table.add({problem_words(s), column_of(stage), thousands(measured), thousands(products),
                   percent(products, measured), thousands(scores / card.xu / multiprocessors),
                   thousands(instructions / 4 / multiprocessors)});
    }
    return fmt::format("{}\nThousands of clocks; under the mask the least that is to be done. {}", table.markdown(),
                       profiler_caption(r));
}

/// What a rung and its variants, or without a rung all of them, keep busy and what their warps wait for.
std::string pipes_table(const nlohmann::json& r, const Arguments& arguments) {
    if (arguments.contains("clocks")) return clocks_table(r);
    const bool one = arguments.contains("rung");
    Table table({"problem", "", "tensor cores", "issue slots", "FMA", "ALU", "XU", "HBM, GB/s", "HBM, L2, mbarriers",
                 "shared memory, XU", "barriers"});
    for (const auto& row : r.at("rows")) {
        const std::string stage = row.at("stage");
        const bool is_variant = stage.find('/') != std::string::npos;
        if (one ? !stage.starts_with(arguments.at("rung")) : is_variant) continue;
        const auto& shape = row.at("shape");
        const auto& busy = row.at("busy");
        const auto number = [&](const char* what, const char* unit, int digits) {
            return busy.contains(what) ? fmt::format("{:.{}f}{}", busy.at(what).get<double>(), digits, unit) : "";
        };
        const bool timed_bytes = busy.contains("HBM bytes") && busy.contains("microseconds");
        table.add({problem_words(shape),
                   is_variant ? stage.substr(stage.find('/') + 1) : column_of(stage), number("tensor %", "%", 1),
                   number("issue slots %", "%", 1), number("FMA %", "%", 1), number("ALU %", "%", 1),
                   number("XU %", "%", 1),
                   timed_bytes ? fmt::format("{:.0f}", busy.at("HBM bytes").get<double>() / 1e3 /
                                                           busy.at("microseconds").get<double>())
                               : "",
                   number("warps that wait for device memory or mbarriers", "", 2),
                   number("warps that wait for shared memory or exponentials", "", 2),
                   number("warps that wait at barriers", "", 2)});
    }
    return fmt::format("{}\nBusy parts of the active cycles: FMA multiplies and adds, ALU compares and converts, XU has the "
                       "exponentials. Last three: warps of a quarter of a multiprocessor that wait for it when one "
                       "issues. {}",
                       table.markdown(), profiler_caption(r));
}

/// Kernel by kernel: what the profiler said and what the emulator counted, which is in the file named.
std::string profiler_table(const nlohmann::json& gpu, const Arguments& arguments) {
    const nlohmann::json emulated = results(arguments.at("emulator"), arguments);
    Table table({"program", "kernel", "", "profiler", "emulator", "difference"});
    for (const auto& [program, launches] : gpu.at("programs").items()) {
        const auto& counted_launches = emulated.at("programs").at(program);
        if (launches.size() != counted_launches.size())
            throw std::runtime_error(fmt::format("{}: {} launches on the GPU, {} on the emulator", program,
                                                 launches.size(), counted_launches.size()));
        for (std::size_t i = 0; i < launches.size(); ++i)
            for (const auto& [what, count] : launches[i].at("counts").items()) {
                const double profiled = count, counted = counted_launches[i].at("counts").at(what);
                if (profiled == 0 && counted == 0) continue;
                std::string words = what;
                std::replace(words.begin(), words.end(), '_', ' ');
                table.add({program, fmt::format("`{}`", launches[i].at("kernel").get<std::string>()), words,
                           fmt::format("{:.0f}", profiled), fmt::format("{:.0f}", counted),
                           profiled == 0 ? "" : fmt::format("{:+.1f}%", 100 * (counted - profiled) / profiled)});
            }
    }
    return fmt::format("{}\n{}, driver {}, {}, commit {}, {}; emulator at commit {}.\n", table.markdown(),
                       gpu.at("gpu").get<std::string>(), gpu.at("driver").get<std::string>(),
                       gpu.at("profiler").get<std::string>(), gpu.at("commit").get<std::string>(),
                       gpu.at("date").get<std::string>(), emulated.at("commit").get<std::string>());
}

// ---- races

/// "race 6, deadlock 4": how many seeds have given which report.
std::string kinds_of_report(const nlohmann::json& row) {
    std::string words;
    for (const auto& [kind, seeds] : row.at("kinds").items())
        words += fmt::format("{}{} {}", words.empty() ? "" : ", ", kind, seeds.get<int>());
    return words.empty() ? "nothing" : words;
}

/// What a tool of compute-sanitizer has found.
std::string sanitizer_words(const nlohmann::json& verdict) {
    if (verdict.contains("stopped")) return "hangs";
    const int errors = verdict.at("errors"), warnings = verdict.at("warnings");
    std::string words = errors > 0 ? fmt::format("{} error{}", errors, errors == 1 ? "" : "s") : "";
    if (warnings > 0)
        words += fmt::format("{}{} warning{}", words.empty() ? "" : ", ", warnings, warnings == 1 ? "" : "s");
    return words.empty() ? "nothing" : words;
}

/// Each mutant: what the emulator says, and, once a GPU has been asked, what compute-sanitizer says.
std::string mutants_table(const nlohmann::json& r, const Arguments& arguments) {
    const std::string file = "docs/results/racecheck.json";
    const nlohmann::json gpu = results(file, arguments);
    std::vector<std::string> header = {"kernel", "without, or with", "emulator: reports by seeds"};
    for (const char* column : {"racecheck", "synccheck", "memcheck", "result on the GPU"})
        if (!gpu.is_null()) header.push_back(column);
    Table table(header);
    for (const auto& row : r.at("rows")) {
        const std::string name = row.at("name"), equivalent = row.at("equivalent");
        const auto dot = name.find('.');
        std::string mutant = dot == std::string::npos ? "(correct)" : name.substr(dot + 1);
        std::replace(mutant.begin(), mutant.end(), '_', ' ');
        std::vector<std::string> cells = {name.substr(0, dot), mutant, kinds_of_report(row)};
        if (!equivalent.empty()) cells.back() += ": " + equivalent;
        for (const auto& measured : gpu.is_null() ? nlohmann::json::array() : gpu.at("rows")) {
            if (measured.at("name") != name) continue;
            for (const char* tool : {"racecheck", "synccheck", "memcheck"})
                cells.push_back(sanitizer_words(measured.at(tool)));
            std::string results;
            for (const auto& result : measured.at("results"))
                results += (results.empty() ? "" : ", ") + result.get<std::string>();
            cells.push_back(results);
        }
        cells.resize(header.size());
        table.add(cells);
    }
    const std::string measured =
        gpu.is_null()
            ? fmt::format("({} is not there yet.)\n", file)
            : fmt::format("compute-sanitizer {} on {}, driver {}, CUDA {}, commit {}, {}; {} runs without it.\n",
                          gpu.at("sanitizer").get<std::string>(), gpu.at("gpu").get<std::string>(),
                          gpu.at("driver").get<std::string>(), gpu.at("cuda").get<std::string>(),
                          gpu.at("commit").get<std::string>(), gpu.at("date").get<std::string>(),
                          gpu.at("runs").get<int>());
    return fmt::format("{}\nThe emulator at commit {}, {}; {} seeds. {}", table.markdown(),
                       r.at("commit").get<std::string>(), r.at("date").get<std::string>(), r.at("seeds").get<int>(),
                       measured);
}

/// The first report that a mutant has given, as it was.
std::string report_block(const nlohmann::json& r, const Arguments& arguments) {
    for (const auto& row : r.at("rows"))
        if (row.at("name") == arguments.at("mutant"))
            return fmt::format("```text\n{}\n```\n", row.at("report").get<std::string>());
    throw std::runtime_error(fmt::format("there is no report of '{}'", arguments.at("mutant")));
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
        AttentionShape shape;
        shape.n_q = s.at("n_q"), shape.n_k = s.at("n_k"), shape.head_dim = d;
        shape.dtype = parse_dtype(row.at("dtype"));
        const int heads = 16384 / 1024 * 2048 / d;  // of the timed grid
        const ModelledCosts costs = model_costs(card, shape, row.at("counts"), heads);
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

std::string diff_block(const nlohmann::json&, const Arguments& arguments) {
    const Chapter chapter = find_chapter(arguments.at("rung"));
    return fmt::format(
        "<details><summary>The whole difference: ./ladder diff {}</summary>\n\n```diff\n{}```\n</details>\n",
        chapter.number(), diff_from_below(chapter));
}

/// The functions that a header of the emulator declares under names of CUDA's, of which `pattern` finds each in turn.
std::string functions_of(const std::string& header, const std::string& pattern, const std::string& prefix = "") {
    std::string text = read_file(project_root() + "/common/emulator/" + header);
    static const std::regex named(R"(FLASHLADDER_NAMED(2?)\((\w*), (\w*)\))");  // half_functions.h; one may hold another
    for (int i = 0; i < 2; ++i) text = std::regex_replace(text, named, "$2half$1$3");
    std::set<std::string> names;
    const std::regex expression(pattern);
    for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match) {
        std::string name;
        for (std::size_t group = 1; group < match->size(); ++group)
            if ((*match)[group].matched) name = (*match)[group].str();
        if (name != "__attribute__" && name != "name") names.insert("`" + prefix + name + "`");
    }
    return fmt::format("{}", fmt::join(names, ", "));
}

/// What programs of users may call. Names that macros put together are given by hand.
std::string emulator_functions(const nlohmann::json&, const Arguments&) {
    const std::string runtime = functions_of("runtime_api.h", R"(cudaError_t (cuda\w+)\()");
    const std::string device =
        functions_of("device_functions.h", R"((?:inline|__forceinline__) \w+(?: \w+)? (__\w+|atomic[A-Z]\w*|clock64)\()"
                                           R"(|FLASHLADDER_REDUCE\((__\w+))");
    const std::string arithmetic =
        functions_of("intrinsics.h", R"(inline (?:unsigned |long )*\w+ (\w+)\(|FLASHLADDER_(?:LOAD|STORE)\((__\w+))");
    const std::string vectors = functions_of("vector_types.h", R"(FLASHLADDER_VECTORS\((\w+), )");
    const auto half = [](const std::string& macro, const std::string& prefix) {
        return functions_of("half_functions.h", fmt::format(R"(FLASHLADDER_{}\((\w+), )", macro), prefix);
    };
    const std::string half_functions =
        functions_of("half_functions.h", R"(__forceinline__ \w+(?: \w+)? (__\w+|make_\w+)\()");
    const std::string random =
        functions_of("curand_kernel.h", R"(__forceinline__ \w+(?: \w+)? (curand\w*|skipahead\w*)\()");
    const std::string pipelines = functions_of("cuda/pipeline", R"(\w+ ((?:producer|consumer)_\w+|quit)\()");
    const std::string primitives = functions_of("cuda_pipeline_primitives.h", R"(inline \w+ (__\w+)\()") + ", " +
                                   functions_of("cuda_awbarrier_primitives.h", R"(inline \w+ (__\w+)\()");
    return fmt::format(
        "- The runtime API: {}.\n"
        "- Device code: {}; atomics also with `_block` and `_system`; `printf`, `assert`.\n"
        "- Arithmetic: {}; conversions of `float` and `double` to `int`, `uint`, `ll` and `ull` such as `__float2int_rn`, "
        "also `_rz`, `_ru`, `_rd`; what `<cmath>` has.\n"
        "- Vectors of 1 to 4 elements and their `make_`: {}; `dim3`.\n"
        "- `cooperative_groups.h` with `reduce.h`, `scan.h`, `memcpy_async.h`: blocks, tiles, coalesced groups, the grid; "
        "`cuda.h`: tensor maps.\n"
        "- `<cuda/barrier>` and `<cuda/pipeline>` with `cuda::memcpy_async` and `cuda::aligned_size_t`: barriers of a block, "
        "pipelines of a block or a thread: `make_pipeline`, {}, `pipeline_consumer_wait_prior`, `pipeline_producer_commit`. "
        "`cuda_pipeline.h`, `cuda_awbarrier_primitives.h`: {}.\n"
        "- `cuda_fp16.h`: `__half` and `__half2` with their operators and conversions; {}; {}, also with `_rn`, "
        "`_sat` and `2`; {}, also with `_nan` and `2`; {}, of pairs with `h2`; comparisons {}, also with `2`, `2_mask` "
        "and, of both of a pair, `__hb`; conversions to and from `short`, `ushort`, `int`, `uint`, `ll`, `ull` "
        "such as `__half2int_rn`, also `_rz`, `_ru`, `_rd`; atomics and shuffles. `cuda_bf16.h`: the same, with "
        "`bfloat16` for `half`.\n"
        "- `curand_kernel.h`: `curandStatePhilox4_32_10_t` with {}; `curand_Philox4x32_10`.\n",
        runtime, device, arithmetic, vectors, pipelines, primitives, half_functions, half("OPERATION", "__h"),
        half("EXTREME", "__h"),
        half("FUNCTION", "h"), half("COMPARISON", "__h"), random);
}

struct Generator {
    std::string file;  // that it reads; "" for none
    std::function<std::string(const nlohmann::json&, const Arguments&)> generate;
};
const std::map<std::string, Generator> generators = {
    {"emulator-functions", {"", emulator_functions}},
    {"ladder", {timings_file, ladder_table}},
    {"results", {timings_file, rung_table}},
    {"heads", {timings_file, heads_table}},
    {"features", {timings_file, features_table}},
    {"counted-ladder", {counts_file, counted_ladder_table}},
    {"counts", {counts_file, rung_counts_table}},
    {"shared-memory", {counts_file, shared_memory_table}},
    {"causal", {counts_file, causal_table}},
    {"memory", {counts_file, memory_table}},
    {"variants", {timings_file, variants_table}},
    {"variant-times", {variants_file, variant_times_table}},
    {"compare", {compare_file, compare_table}},
    {"compare-h200", {compare_file_of_h200, compare_table}},
    {"comparison", {compare_file, more_table}},
    {"few", {"docs/results/few.json", peers_table}},
    {"drawn", {"docs/results/drawn.json", peers_table}},
    {"template", {template_file, template_table}},
    {"choices", {"", choices_table}},
    {"costs", {"", costs_table}},
    {"orders", {"docs/results/orders.json", orders_table}},
    {"loops", {"docs/results/loops.json", loops_table}},
    {"pipes", {"docs/results/pipes.json", pipes_table}},
    {"cost-model", {counts_file, cost_model_table}},
    {"diff", {"", diff_block}},
    {"ncu", {"docs/results/ncu.json", profiler_table}},
    {"operands", {"docs/results/operands.json", profiler_table}},
    {"mutants", {races_file, mutants_table}},
    {"race-report", {races_file, report_block}},
};

}  // namespace

std::string generated_table(const std::string& request, const std::string& project) {
    std::istringstream words(request);
    std::string name, word;
    words >> name;
    Arguments arguments{{}, project.empty() ? project_root() : project};
    while (words >> word)
        arguments[word.substr(0, word.find('='))] = word.substr(std::min(word.find('=') + 1, word.size()));
    const auto generator = generators.find(name);
    if (generator == generators.end()) throw std::runtime_error(fmt::format("there is no generated table '{}'", name));
    const auto& [file, make] = generator->second;
    if (file.empty()) return make({}, arguments);
    const nlohmann::json r = results(file, arguments);
    return r.is_null() ? fmt::format("({} is not there yet.)\n", file) : make(r, arguments);
}

}  // namespace flashladder
