// What the tables have in common: result files, the lines below a table, and how a row is put into words.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/operation.h"

namespace flashladder::tables {

/// What a request says: "rung=01" and so on.
struct Arguments : std::map<std::string, std::string> {
    std::string project;  // its folder
};

inline const std::string timings_file = "docs/results/ladder.json", counts_file = "docs/results/counts.json",
                         races_file = "docs/results/races.json", variants_file = "docs/results/variants.json",
                         compare_file = "docs/results/compare.json", template_file = "docs/results/template.json",
                         tune_file = "docs/results/tune.json", tune_file_of_h200 = "docs/results/tune-h200.json",
                         compare_file_of_h200 = "docs/results/compare-h200.json",
                         compare_file_of_backward = "docs/results/compare-backward.json",
                         compare_file_of_backward_on_h200 = "docs/results/compare-backward-h200.json";
/// What the file holds, its rows those of one operation: "operation=" in the request, or that of "rung="; attention, without
/// either. An operation that has been run by itself has a file of its own beside it: ladder-attention_backward.json. Null if
/// it is not there.
nlohmann::json results(const std::string& file, const Arguments& arguments);
std::string no_rows(const std::string& file, const Arguments& arguments);

// ---- the line below a table: which card, and when
std::string caption(const nlohmann::json& r, const std::string& what);
/// The same for results of the tools in Python, which look at the clock while kernels run.
std::string caption_under_load(const nlohmann::json& r);
std::string counts_caption(const nlohmann::json& r, const std::string& what);
inline const std::string on_the_grid = "16384 tokens, heads = 2048 / d",
                         counted_problem = "One head, N = 1024, not causal";

// ---- which rows
/// True for the rows of one of the timed tables.
bool timed(const nlohmann::json& row, const std::string& set);
/// The rows of the counted problems that tables are about: one head of N = 1024 on the virtual GPU as it is.
bool counted(const nlohmann::json& row);
bool is_rung(const nlohmann::json& row, const std::string& number);

// ---- a row in words
std::string milliseconds(const nlohmann::json& row);
std::string tflops(const nlohmann::json& row);
std::string percent(double part, double whole);
std::string column_of(const std::string& stage);
std::vector<std::string> d_mask_and_N(const nlohmann::json& shape);
/// "d 128, N 4096, causal", or "8192 x 8192 x 8192" of a matrix product.
std::string problem_words(const nlohmann::json& shape);

/// A problem of an operation, from the shape of a row.
Problem problem_of(const char* operation, const nlohmann::json& shape);

/// Of a block-sparse problem: its lists in words, and which share of all scores they leave.
struct ListsInWords {
    std::string lists, share;

    explicit ListsInWords(const nlohmann::json& shape);
};

/// Of packed sequences: how many and how long in words, how many queries they have in all, and which share of the scores
/// they are that padded ones would have.
struct SequencesInWords {
    std::string lengths, queries, share, d;  // "192/128" where V has other columns than Q and K

    explicit SequencesInWords(const nlohmann::json& shape);
};

/// The counted work of a problem, of all kinds of access together.
struct Totals {
    double requested, used, moved, wavefronts, conflicts, exponentials, divisions, barriers, matrix_instructions;

    explicit Totals(const nlohmann::json& total);
};

/// A line for each problem, a column for each kind of kernel, both in the order of the rows.
struct Pivot {
    std::vector<std::string> header;  // of the cells that say which problem it is; then the columns

    std::vector<std::vector<std::string>> lines = {};
    std::size_t names = header.size();

    void add(const std::vector<std::string>& problem, const std::string& column, const std::string& cell);
    std::string markdown() const;
};

}  // namespace flashladder::tables
