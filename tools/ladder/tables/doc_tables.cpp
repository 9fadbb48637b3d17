#include "doc_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "families.h"
#include "harness/project_root.h"
#include "shared.h"

namespace flashladder {
namespace {

using namespace tables;

struct Generator {
    std::string file;  // that it reads; "" for none
    std::string (*generate)(const nlohmann::json&, const Arguments&);
};
const std::map<std::string, Generator> generators = {
    {"emulator-functions", {"", emulator_functions}},
    {"ladder", {timings_file, ladder_table}},
    {"results", {timings_file, rung_table}},
    {"heads", {timings_file, heads_table}},
    {"features", {timings_file, features_table}},
    {"lists", {timings_file, lists_table}},
    {"pages", {timings_file, pages_table}},
    {"sequences", {timings_file, sequences_table}},
    {"ring", {"docs/results/ring.json", ring_table}},
    {"counted-ladder", {counts_file, counted_ladder_table}},
    {"counts", {counts_file, rung_counts_table}},
    {"shared-memory", {counts_file, shared_memory_table}},
    {"causal", {counts_file, causal_table}},
    {"counted-lists", {counts_file, counted_lists_table}},
    {"counted-decoding", {counts_file, counted_decoding_table}},
    {"counted-pages", {counts_file, counted_pages_table}},
    {"counted-sequences", {counts_file, counted_sequences_table}},
    {"counted-ring", {counts_file, counted_ring_table}},
    {"memory", {counts_file, memory_table}},
    {"variants", {timings_file, variants_table}},
    {"variant-times", {variants_file, variant_times_table}},
    {"compare", {compare_file, compare_table}},
    {"compare-h200", {compare_file_of_h200, compare_table}},
    {"compare-backward", {compare_file_of_backward, compare_table}},
    {"compare-backward-h200", {compare_file_of_backward_on_h200, compare_table}},
    {"fastest-peers", {compare_file, fastest_peers_table}},
    {"comparison", {compare_file, more_table}},
    {"few", {"docs/results/few.json", peers_table}},
    {"few-h200", {"docs/results/few-h200.json", peers_table}},
    {"few-backward-h200", {"docs/results/few-backward-h200.json", peers_table}},
    {"decoding", {"docs/results/decoding.json", decoding_table}},
    {"last-block", {"docs/results/last-block.json", last_block_table}},
    {"pages-beside", {"docs/results/pages.json", pages_beside_table}},
    {"varlen-beside", {"docs/results/varlen.json", varlen_beside_table}},
    {"lists-beside", {"docs/results/lists.json", lists_beside_table}},
    {"training-step", {"docs/results/training.json", training_step_table}},
    {"drawn", {"docs/results/drawn.json", peers_table}},
    {"drawn-h200", {"docs/results/drawn-h200.json", peers_table}},
    {"template", {template_file, template_table}},
    {"choices", {"", choices_table}},
    {"costs", {"", costs_table}},
    {"orders", {"docs/results/orders.json", orders_table}},
    {"loops", {"docs/results/loops.json", loops_table}},
    {"pipes", {"docs/results/pipes.json", pipes_table}},
    {"rates", {"docs/results/rates.json", rates_table}},
    {"adds", {"docs/results/rates.json", adds_table}},
    {"paper-bytes", {counts_file, paper_bytes_table}},
    {"cost-model", {counts_file, cost_model_table}},
    {"diff", {"", diff_block}},
    {"ncu", {"docs/results/ncu.json", profiler_table}},
    {"operands", {"docs/results/operands.json", profiler_table}},
    {"mutants", {races_file, mutants_table}},
    {"race-report", {races_file, report_block}},
    {"translation", {"", translation_age}},
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
