// What the tables have in common: result files, the lines below a table, and how a row is put into words.
#include "shared.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "files.h"
#include "harness/operation.h"
#include "table.h"

namespace flashladder::tables {
namespace {

double sum_of(const nlohmann::json& kinds, const char* what) {
    double sum = 0;
    for (const auto& kind : kinds) sum += kind.at(what).get<double>();
    return sum;
}

/// The file; null if it is not there.
nlohmann::json parsed(const std::string& file, const Arguments& arguments) {
    const std::string path = arguments.project + "/" + file;
    if (!std::filesystem::exists(path)) return {};
    nlohmann::json found = nlohmann::json::parse(read_file(path), nullptr, false);
    if (found.is_discarded()) throw std::runtime_error(fmt::format("{} is no JSON", file));
    return found;
}

/// The operation that a table is about: the request's, or that of its rung. Most are about the tower, attention's forward pass;
/// what stands beside it has other sizes, and another rung below.
std::string operation_of(const nlohmann::json& rows, const Arguments& arguments) {
    if (const auto asked = arguments.find("operation"); asked != arguments.end()) return asked->second;
    if (const auto rung = arguments.find("rung"); rung != arguments.end())
        for (const auto& row : rows)
            if (row.contains("operation") && is_rung(row, rung->second)) return row.at("operation");
    return "attention";
}

}  // namespace

nlohmann::json results(const std::string& file, const Arguments& arguments) {
    for (const Operation* operation : operations()) {  // ladder-attention_backward.json, if the table is about that
        const std::string own = fmt::format("{}-{}.json", file.substr(0, file.rfind('.')), operation->name());
        const nlohmann::json found = parsed(own, arguments);
        if (!found.is_null() && found.contains("rows") && operation_of(found.at("rows"), arguments) == operation->name())
            return found;
    }
    nlohmann::json found = parsed(file, arguments);
    for (const char* section : {"rows", "variants"})
        if (found.is_object() && found.contains(section) && found.at(section).is_array()) {
            const std::string operation = operation_of(found.at(section), arguments);
            nlohmann::json of_operation = nlohmann::json::array();
            for (const auto& row : found.at(section))
                if (row.value("operation", "attention") == operation) of_operation.push_back(row);
            found[section] = of_operation;
        }
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

std::string caption_under_load(const nlohmann::json& r) {
    const auto text = [](const nlohmann::json& of, const char* key) { return of.value(key, "unknown"); };
    const nlohmann::json clocks = r.value("clocks", nlohmann::json::object());
    return fmt::format("{}, driver {}, CUDA {}, commit {}, {}; under load SM clock {} of at most {}.\n", text(r, "gpu"),
                       text(r, "driver"), text(r, "cuda"), text(r, "commit"), text(r, "date"), text(clocks, "sm"),
                       text(clocks, "sm_max"));
}

std::string no_rows(const std::string& file, const Arguments& arguments) {
    return fmt::format("({} has no rows of rung {} yet.)\n", file, arguments.at("rung"));
}

std::string counts_caption(const nlohmann::json& r, const std::string& what) {
    return fmt::format("{}; counted by the emulator, commit {}, {}.\n", what, r.at("commit").get<std::string>(),
                       r.at("date").get<std::string>());
}

bool timed(const nlohmann::json& row, const std::string& set) { return row.contains("ms") && row.at("set") == set; }

bool is_rung(const nlohmann::json& row, const std::string& number) {
    return row.at("stage").get<std::string>().starts_with(number + "-");  // 27 is not 27b
}

std::string milliseconds(const nlohmann::json& row) { return fmt::format("{:.3f}", row.at("ms").get<double>()); }
std::string tflops(const nlohmann::json& row) { return fmt::format("{:.2f}", row.at("tflops").get<double>()); }

std::string column_of(const std::string& stage) {
    if (stage == "peer:torch-flash") return "FA2";
    if (stage == "peer:torch-cudnn") return "cuDNN";
    if (stage == "peer:flash_attn_interface") return "FA3";
    if (stage == "peer:flash_attn.cute") return "FA4";
    return stage.starts_with("peer:") ? stage.substr(5) : stage.substr(0, stage.find('-'));
}

void Pivot::add(const std::vector<std::string>& problem, const std::string& column, const std::string& cell) {
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

std::string Pivot::markdown() const {
    Table table(header);
    for (std::vector<std::string> cells : lines) {
        cells.resize(header.size());
        table.add(cells);
    }
    return table.markdown();
}

std::vector<std::string> d_mask_and_N(const nlohmann::json& shape) {
    return {shape.at("head_dim").dump(), shape.at("causal").get<bool>() ? "yes" : "no", shape.at("n_q").dump()};
}

bool counted(const nlohmann::json& row) {
    const auto& s = row.at("shape");
    return s.at("n_q") == 1024 && s.at("n_k") == 1024 && s.at("heads") == 1 && !s.at("causal").get<bool>() &&
           row.at("shared_bytes") == 227 * 1024;
}

Totals::Totals(const nlohmann::json& total) {
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

std::string percent(double part, double whole) { return fmt::format("{:.0f}%", whole > 0 ? 100 * part / whole : 0); }

std::string problem_words(const nlohmann::json& shape) {
    if (shape.contains("k"))
        return fmt::format("{} x {} x {}", shape.at("m").get<int>(), shape.at("n").get<int>(),
                           shape.at("k").get<int>());
    return fmt::format("d {}, N {}{}", shape.at("head_dim").get<int>(), shape.at("n_q").get<int>(),
                       shape.at("causal").get<bool>() ? ", causal" : "");
}

Problem problem_of(const char* operation, const nlohmann::json& shape) {
    GivenSizes sizes;
    for (const auto& [name, value] : shape.items())
        sizes[name] = value.is_boolean() ? value.get<bool>() : value.get<std::int64_t>();
    return find_operation(operation).problem(sizes);
}

ListsInWords::ListsInWords(const nlohmann::json& shape) {
    const Problem problem = problem_of("block_sparse_attention", shape);
    const Operation& operation = *problem.operation;
    const Problem all = Operation::with(problem, {{"density", 100}});
    const std::string text = title(problem);
    lists = text.substr(text.find(", ") + 2);
    share = percent(operation.flops(problem), operation.flops(all));
}

SequencesInWords::SequencesInWords(const nlohmann::json& shape) {
    const Problem problem = problem_of("varlen_attention", shape);
    const Operation& operation = *problem.operation;
    const auto size = [&](const char* name) { return problem.at(name); };
    lengths = size("others") > 0
                  ? fmt::format("one of {}, {} up to {}", size("n_q"), size("batch") - 1, size("others"))
                  : fmt::format("{} up to {}", size("batch"), size("n_q"));
    queries = std::to_string(operation.tensors(problem).front().extents.front());
    const double of_each = double(size("n_q")) * double(size("n_k")) / (size("causal") ? 2 : 1);
    share = percent(operation.units(problem), of_each * double(size("batch")) * double(size("heads")));
    d = std::to_string(size("head_dim")) + (size("value_dim") > 0 ? fmt::format("/{}", size("value_dim")) : "");
}

}  // namespace flashladder::tables
