// The template of rung 14: what it is worth, and what its configurations cost.
#include "families.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "operations/attention/configurations.h"
#include "shared.h"
#include "table.h"

namespace flashladder::tables {
namespace {

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

}  // namespace

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
    for (const attention::ConfigurationCost& cost : attention::configuration_costs) {
        const attention::Configuration& config = attention::configurations[static_cast<std::size_t>(cost.configuration)];
        table.add({fmt::format("{}", config.d), cost.causal ? "yes" : "no", to_string(config),
                   fmt::format("{:.2f}", cost.launch), fmt::format("{:.2f}", cost.task), fmt::format("{:.3f}", cost.step)});
    }
    std::string cards;
    int count = 0;
    for (const std::string& file : {tune_file, tune_file_of_h200})
        if (const nlohmann::json tuned = results(file, arguments); !tuned.is_null())
            cards += caption_under_load(tuned), ++count;
    if (count == 0) return fmt::format("{}\n({} is not there yet.)\n", table.markdown(), tune_file);
    return fmt::format("{}\nMicroseconds, fitted to times in bf16{}. {}", table.markdown(),
                       count == 2 ? " of both cards together" : "", cards);
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
                    attention::AttentionShape s;
                    s.heads = heads ? heads : 16384 / n * 2048 / d;
                    s.n_q = s.n_k = n, s.head_dim = d, s.causal = causal;
                    const attention::Configuration& c =
                        attention::configurations[static_cast<std::size_t>(attention::configuration_for(s, 132))];
                    cells.push_back(fmt::format("{} x {}", c.consumers, c.B_c));
                }
                table.add(cells);
            }
    return table.markdown() + "\nConsumers x keys of a block, on 132 multiprocessors.\n";
}

}  // namespace flashladder::tables
