#include "docs.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "chapters.h"
#include "files.h"
#include "harness/inputs.h"
#include "table.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;
using Arguments = std::map<std::string, std::string>;

const std::string results_file = "docs/results/ladder.json";
const std::string begin_mark = "<!-- generated: ", end_mark = "<!-- end generated -->";

nlohmann::json results() {
    const std::string path = project_root() + "/" + results_file;
    return fs::exists(path) ? nlohmann::json::parse(read_file(path)) : nlohmann::json();
}

std::string caption(const nlohmann::json& r) {
    return fmt::format(
        "{}, driver {}, CUDA {}, commit {}, {}; SM clock {} of at most {} at the end. "
        "16384 tokens, heads = 2048 / d, f32, not causal; medians of interleaved launches.\n",
        r.at("gpu").get<std::string>(), r.at("driver").get<std::string>(), r.at("cuda").get<std::string>(),
        r.at("commit").get<std::string>(), r.at("date").get<std::string>(), r.at("clocks").at("sm").get<std::string>(),
        r.at("clocks").at("sm_max").get<std::string>());
}

std::string gigabytes(double bytes) {
    return bytes < 1e6   ? fmt::format("{:.0f} KB", bytes / 1e3)
           : bytes < 1e9 ? fmt::format("{:.1f} MB", bytes / 1e6)
                         : fmt::format("{:.2f} GB", bytes / 1e9);
}

bool timed(const nlohmann::json& row) { return row.contains("ms"); }

/// README's table: each rung at N = 4096, and how much faster it is than the rung below.
std::string ladder_table(const nlohmann::json& r, const Arguments&) {
    Table table({"rung", "d", "ms", "TFLOP/s", "vs the rung below", "memory beyond inputs and output"});
    for (const int d : {64, 128}) {
        double below = 0;
        for (const auto& row : r.at("rows")) {
            if (!timed(row) || row.at("shape").at("n_q") != 4096 || row.at("shape").at("head_dim") != d) continue;
            const double ms = row.at("ms");
            table.add({row.at("stage"), fmt::format("{}", d), fmt::format("{:.2f}", ms),
                       fmt::format("{:.2f}", row.at("tflops").get<double>()),
                       below > 0 ? fmt::format("{:.2f}x", below / ms) : "", gigabytes(row.at("scratch_bytes"))});
            below = ms;
        }
    }
    return fmt::format("{}\nN = 4096. {}", table.markdown(), caption(r));
}

/// A lesson's table: one rung at every size, beside the rung below.
std::string rung_table(const nlohmann::json& r, const Arguments& arguments) {
    Table table(
        {"d", "N", "ms", "min to max", "TFLOP/s", "vs the rung below", "error", "memory beyond inputs and output"});
    std::map<std::string, double> below;  // by shape
    for (const auto& row : r.at("rows")) {
        if (!timed(row)) continue;
        const double ms = row.at("ms");
        const std::string shape = row.at("shape").dump();
        if (row.at("stage").get<std::string>().starts_with(arguments.at("rung")))
            table.add({row.at("shape").at("head_dim").dump(), row.at("shape").at("n_q").dump(),
                       fmt::format("{:.3f}", ms),
                       fmt::format("{:.3f} to {:.3f}", row.at("ms_min").get<double>(), row.at("ms_max").get<double>()),
                       fmt::format("{:.2f}", row.at("tflops").get<double>()),
                       below.contains(shape) ? fmt::format("{:.2f}x", below[shape] / ms) : "",
                       fmt::format("{:.1e}", row.at("error").get<double>()), gigabytes(row.at("scratch_bytes"))});
        below[shape] = ms;
    }
    return fmt::format("{}\n{}", table.markdown(), caption(r));
}

const std::map<std::string, std::function<std::string(const nlohmann::json&, const Arguments&)>> generators = {
    {"ladder", ladder_table},
    {"results", rung_table},
};

/// One generated block: "results rung=01" and so on.
std::string generate(const std::string& request) {
    std::istringstream words(request);
    std::string name, word;
    words >> name;
    Arguments arguments;
    while (words >> word)
        arguments[word.substr(0, word.find('='))] = word.substr(std::min(word.find('=') + 1, word.size()));
    if (!generators.contains(name)) throw std::runtime_error(fmt::format("there is no generated table '{}'", name));
    const nlohmann::json r = results();
    return r.is_null() ? fmt::format("({} is not there yet.)\n", results_file) : generators.at(name)(r, arguments);
}

std::string regenerate(const std::string& text) {
    std::string out;
    for (std::size_t at = 0;;) {
        const std::size_t begin = text.find(begin_mark, at);
        if (begin == std::string::npos) return out + text.substr(at);
        const std::size_t line_end = text.find('\n', begin), end = text.find(end_mark, begin);
        if (end == std::string::npos) throw std::runtime_error(fmt::format("no '{}'", end_mark));
        const std::size_t request = begin + begin_mark.size();
        out +=
            text.substr(at, line_end + 1 - at) + generate(text.substr(request, text.find(" -->", request) - request));
        at = end;
    }
}

/// Calls visit(path from the root, what the file should hold).
void for_each_document(const std::function<void(const std::string&, const std::string&)>& visit) {
    std::vector<std::string> paths = {"README.md"};
    for (const Chapter& chapter : chapters()) paths.push_back("chapters/" + chapter.name + "/README.md");
    for (const std::string& path : paths) try {
            visit(path, regenerate(read_file(project_root() + "/" + path)));
        } catch (const std::exception& error) {
            throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
        }
}

}  // namespace

int write_docs() {
    for_each_document(
        [](const std::string& path, const std::string& text) { write_file(project_root() + "/" + path, text); });
    return 0;
}

int check_docs() {
    int stale = 0;
    const auto compare = [&](const std::string& path, const std::string& text, const std::string& remedy) {
        if (read_file(project_root() + "/" + path) == text) return;
        fmt::print("{} is stale: {}\n", path, remedy);
        ++stale;
    };
    for_each_document([&](const std::string& path, const std::string& text) { compare(path, text, "./ladder docs"); });
    for (const Chapter& chapter : chapters())
        compare(chapter.file(), starter_of(chapter), "./ladder reset " + chapter.number());
    return stale == 0 ? 0 : 1;
}

}  // namespace flashladder
