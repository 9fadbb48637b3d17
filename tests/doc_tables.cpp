// The generated tables of documents: which rows of the result files they take, and what they say where a file is
// missing.
#include "tables/doc_tables.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "operations/attention/configurations.h"

namespace flashladder {
namespace {

using nlohmann::json;

/// A project that has nothing but result files; gone at the end.
struct Project {
    std::filesystem::path folder = std::filesystem::temp_directory_path() / ("doc-tables-" + std::to_string(getpid()));

    Project() { std::filesystem::create_directories(folder / "docs/results"); }
    ~Project() { std::filesystem::remove_all(folder); }

    void write(const std::string& name, const json& result) const {
        std::ofstream(folder / "docs/results" / name) << result;
    }
    std::string table(const std::string& request) const { return generated_table(request, folder.string()); }
    /// Whether the table has this line.
    bool has(const std::string& request, const std::string& line) const {
        const std::string text = table(request);
        const bool found = text.starts_with(line) || text.find('\n' + line) != text.npos;
        if (!found) MESSAGE(text);
        return found;
    }
};

/// A result file of a card.
json measured(const json& more = json::object()) {
    json result = {{"gpu", "a card"},
                   {"driver", "1.2"},
                   {"cuda", "13.0"},
                   {"commit", "0123"},
                   {"date", "2026-01-02"},
                   {"torch", "2.11"},
                   {"clocks", {{"sm", "1500 MHz"}, {"sm_max", "1980 MHz"}}}};
    result.update(more);
    return result;
}
const std::string of_the_card =
    "a card, driver 1.2, CUDA 13.0, commit 0123, 2026-01-02; under load SM clock 1500 MHz of at most 1980 MHz.\n";

json attention(int d, int n, bool causal = false, int batch = 4, int heads = 16, int kv_heads = 16) {
    return {{"batch", batch}, {"heads", heads}, {"kv_heads", kv_heads}, {"n_q", n},
            {"n_k", n},       {"head_dim", d},  {"causal", causal}};
}
json product(int m, int n, int k) { return {{"m", m}, {"n", n}, {"k", k}}; }

bool ends_with(const std::string& text, const std::string& end) { return text.ends_with(end); }

TEST_CASE("a table is about one operation: that of its rung, or the one that is asked for, else attention's forward pass") {
    const auto row = [](const char* stage, const char* operation, double ms) {
        return json{{"stage", stage}, {"operation", operation}, {"set", "grid"}, {"dtype", "f32"}, {"ms", ms}, {"ms_min", ms},
                    {"ms_max", ms}, {"tflops", 1}, {"error", 0}, {"scratch_bytes", 0}, {"shape", attention(64, 4096)}};
    };
    const Project project;
    project.write("ladder.json", measured({{"rows", {row("14-a", "attention", 2), row("15-b", "attention_backward", 10),
                                                     row("16-c", "attention_backward", 40)}}}));
    // What a rung of another operation takes is no news of the one below it.
    CHECK(project.has("results rung=15", "| 64 | 4096 | 10.000 | 10.000 to 10.000 | 1.00 |  | 0.0e+00 | 0 KB |"));
    CHECK(project.has("results rung=16", "| 64 | 4096 | 40.000 | 40.000 to 40.000 | 1.00 | 0.25x | 0.0e+00 | 0 KB |"));
    CHECK(project.has("ladder operation=attention_backward", "| 15-b | f32 | 64 | 10.00 | 1.00 |  | 0 KB |"));
    CHECK(project.has("ladder", "| 14-a | f32 | 64 | 2.00 | 1.00 |  | 0 KB |"));
    CHECK(project.table("ladder").find("15-b") == std::string::npos);
    CHECK(project.table("ladder operation=gemm") == "(docs/results/ladder.json has no rows of gemm yet.)\n");
    CHECK(project.table("results rung=17") == "(docs/results/ladder.json has no rows of rung 17 yet.)\n");
    // An operation that was run by itself, later: its own file.
    project.write("ladder-attention_backward.json", measured({{"rows", {row("15-b", "attention_backward", 8)}}}));
    CHECK(project.has("results rung=15", "| 64 | 4096 | 8.000 | 8.000 to 8.000 | 1.00 |  | 0.0e+00 | 0 KB |"));
    CHECK(project.table("ladder operation=attention_backward").find("16-c") == std::string::npos);
    CHECK(project.has("ladder", "| 14-a | f32 | 64 | 2.00 | 1.00 |  | 0 KB |"));
}

TEST_CASE("keys in pages: times, what is counted, and no row of 27b is one of 27") {
    const auto row = [](const char* stage, const char* operation, const json& shape, double ms) {
        return json{{"stage", stage}, {"operation", operation}, {"set", shape.contains("pages") ? "pages" : "decoding"},
                    {"dtype", "bf16"}, {"ms", ms}, {"shape", shape}, {"counts", {{"tensors", {{"K", {{"read", {{"requested_bytes", 3e6}}}}},
                                                                         {"V", {{"read", {{"requested_bytes", 1e6}}}}},
                                                                         {"block_table", {{"read", {{"requested_bytes", 400}}}}},
                                                                         {"scratch", {{"read", {{"requested_bytes", 2e3}}},
                                                                                      {"written", {{"requested_bytes", 1e3}}}}}}},
                                                             {"total", {{"matrix_instructions", 7}}}}}};
    };
    json pages = attention(64, 1, false, 2, 8, 2);
    pages["n_k"] = 1000, pages["page_size"] = 16, pages["pages"] = 0, pages["ragged"] = false, pages["draw"] = 1;
    const Project project;
    const json both = {row("27-a", "attention", attention(64, 4096), 1), row("27b-b", "paged_attention", pages, 0.001)};
    for (const char* file : {"ladder.json", "counts.json"}) project.write(file, measured({{"rows", both}}));
    CHECK(project.has("pages rung=27b", "| 64 | 2 | 8 | 2 | 1000 | 16 | 0.001 | 1024 |"));
    CHECK(project.has("counted-pages rung=27b", "| 64 | 16 | 1000 each | 4.0 MB | 100 | 7 |"));
    CHECK(project.table("counted-pages rung=27b").find("4096") == std::string::npos);
    // An operation that was run by itself: its file has nothing about 27, whose name begins like 27b's.
    project.write("ladder-paged_attention.json", measured({{"rows", {row("27b-b", "paged_attention", pages, 0.002)}}}));
    CHECK(project.has("pages rung=27b", "| 64 | 2 | 8 | 2 | 1000 | 16 | 0.002 | 512 |"));
}

TEST_CASE("packed sequences: how long they are, and what is left of padded ones") {
    const auto row = [](const json& shape) {
        const json read = {{"read", {{"requested_bytes", 2e6}}}};
        return json{{"stage", "26b-v"}, {"operation", "varlen_attention"}, {"set", "sequences"}, {"dtype", "bf16"},
                    {"ms", 0.5}, {"ms_min", 0.5}, {"ms_max", 0.5}, {"tflops", 7}, {"shape", shape},
                    {"counts", {{"tensors", {{"K", read}, {"V", read}, {"Q", read}}}, {"total", {{"matrix_instructions", 9}}}}}};
    };
    // Of length 1, so that nothing is left to be drawn.
    json ones = attention(64, 1, false, 5, 2, 2), long_one = attention(128, 9, true, 3, 2, 2);
    for (json* shape : {&ones, &long_one}) (*shape)["others"] = 0, (*shape)["draw"] = 1, (*shape)["total_q"] = (*shape)["total_k"] = 0;
    long_one["others"] = 1, long_one["value_dim"] = 40;
    const Project project;
    for (const char* file : {"ladder.json", "counts.json"})
        project.write(file, measured({{"rows", {row(ones), row(long_one)}}}));
    CHECK(project.has("sequences rung=26b", "| 64 | no | 5 up to 1 | 5 | 100% | 0.500 | 7.00 |"));
    CHECK(project.has("sequences rung=26b", "| 128/40 | yes | one of 9, 2 up to 1 | 11 | 39% | 0.500 | 7.00 |"));
    CHECK(project.has("counted-sequences rung=26b", "| 64 | no | 5 up to 1 | 5 | 100% | 4.0 MB | 2.0 MB | 9 |"));
}

TEST_CASE("pages and sequences beside peers: microseconds, and the fastest peer of each") {
    const auto row = [](const char* stage, const json& shape, double ms) {
        return json{{"stage", stage}, {"shape", shape}, {"ms", ms}, {"tflops", 1 / ms}, {"percent_of_copy", 77}};
    };
    json pages = attention(128, 1, false, 16, 64, 8);
    pages["keys"] = 131072, pages["page_size"] = 16;
    const json sequences = {{"head_dim", 192}, {"value_dim", 128}, {"causal", true}, {"heads", 16},
                            {"sequences", "8 up to 2048"}, {"rows", 8000}};
    const Project project;
    project.write("pages.json", measured({{"copy_gb_per_s", 3000},
                                          {"rows", {row("27b-paged", pages, 0.2), row("peer:flashinfer", pages, 0.25)}}}));
    json wrong = row("peer:flashinfer", sequences, 1);
    wrong.erase("ms"), wrong.erase("tflops");
    project.write("varlen.json", measured({{"rows", {row("26b-varlen", sequences, 0.1), wrong,
                                                     row("peer:varlen_attn", sequences, 0.15)}}}));
    CHECK(project.has("pages-beside rung=27b", "| 128 | 16 | 64 | 8 | 131072 | 16 | 200.0 | 250.0 | 77% | 1.25 |"));
    CHECK(project.has("varlen-beside rung=26b", "| 192 | 128 | yes | 16 | 8 up to 2048 | 8000 | 100.0 | wrong | 150.0 | 1.50 |"));
}

TEST_CASE("problems that were run again alone are behind the others, with their own card") {
    const auto row = [](const char* stage, int d, double ms) {
        return json{{"stage", stage}, {"ms", ms}, {"tflops", 1 / ms},
                    {"shape", {{"head_dim", d}, {"value_dim", d}, {"causal", true}, {"heads", 16},
                               {"sequences", "2 up to 9"}, {"rows", 10}}}};
    };
    const json again = {row("26b-varlen", 64, 0.3), row("peer:varlen_attn", 64, 0.9)},
               other = {row("26b-varlen", 256, 0.1), row("peer:varlen_attn", 256, 0.2)};
    json result = measured({{"rows", {row("26b-varlen", 64, 0.5), row("peer:varlen_attn", 64, 0.5), row("26b-varlen", 128, 0.1),
                                      row("peer:varlen_attn", 128, 0.1)}}});
    const Project project;
    const std::string request = "varlen-beside rung=26b";
    const auto write_more = [&](const json& rows) {
        result["more"] = measured({{"rows", rows}, {"gpu", "another card"}, {"torch", "2.12"}, {"cudnn", "9.2"}});
        project.write("varlen.json", result);
    };
    const std::string first = "| 128 | 128 | yes | 16 | 2 up to 9 | 10 | 100.0 | 100.0 | 1.00 |\n",
                      of_another = "in another run: PyTorch 2.12, cuDNN 9.2. another card" + of_the_card.substr(6);
    write_more(other);
    CHECK(project.table(request).find("| 64 | 64 | yes | 16 | 2 up to 9 | 10 | 500.0 | 500.0 | 1.00 |\n" + first +
                                      "| 256 | 256 | yes | 16 | 2 up to 9 | 10 | 100.0 | 200.0 | 2.00 |\n\n") != std::string::npos);
    CHECK(ends_with(project.table(request), of_the_card + "The last line, " + of_another));
    CHECK(project.table(request).find("geometric mean 1.260, lowest 1.00") != std::string::npos);  // of 1, 1 and 2
    json both = again;
    both.insert(both.end(), other.begin(), other.end());
    write_more(both);
    const std::string second = "| 64 | 64 | yes | 16 | 2 up to 9 | 10 | 300.0 | 900.0 | 3.00 |\n";
    CHECK(project.table(request).find("|---:|\n" + first + second) != std::string::npos);
    CHECK(project.table(request).find(" 500.0 ") == std::string::npos);
    CHECK(ends_with(project.table(request), of_the_card + "The last 2 lines, " + of_another));
}

TEST_CASE("lists beside flex_attention: times of one problem in a line, and what is missing or wrong stays visible") {
    const auto row = [](const char* stage, const char* lists, double ms) {
        json shape = attention(128, 16384, true, 1, 16, 16);
        shape["lists"] = lists;
        return json{{"stage", stage}, {"shape", shape}, {"ms", ms}, {"share", 0.128}};
    };
    json half = row("26-block-lists", "50%", 0.5), tenth = row("26-block-lists", "10%", 0.1);
    half["ratio_flex"] = 2.0, half["time_of_dense"] = 0.513;
    json wrong = row("peer:flex_attention", "10%", 0.3);
    wrong.erase("ms");
    const Project project;
    const json result = measured(
        {{"rows", {row("14-lcsf", "50%", 1.0), half, row("peer:flex_attention", "50%", 1.1), tenth, wrong}}});
    project.write("lists.json", result);
    const std::string request = "lists-beside rung=26";
    CHECK(project.has(request, "| 128 | yes | 50% | 13% | 0.500 | 1.100 | 1.000 |  | 0.51 | 2.00 |"));
    CHECK(project.has(request, "| 128 | yes | 10% | 13% | 0.100 | wrong |  |  |  |  |"));
    CHECK(project.table(request).find("geometric mean 2.000, lowest 2.00") != std::string::npos);
    CHECK(ends_with(project.table(request), of_the_card));
    // Rung 14 with the tiles of 26 comes before and behind the one as it is, and is no rung of which a line is.
    json all_blocks = row("26-block-lists", "100%", 0.9), same_tiles = row("14-lcsf/2 x 128 keys", "100%", 0.8);
    all_blocks["time_of_dense"] = 1.1, all_blocks["time_of_same_tiles"] = 1.0124;
    json more = measured({{"rows", {same_tiles, row("14-lcsf", "100%", 0.7), all_blocks}}});
    json with_more = result;
    with_more["more"] = more;
    project.write("lists.json", with_more);
    CHECK(project.has(request, "| 128 | yes | 50% | 13% | 0.500 | 1.100 | 1.000 |  | 0.51 | 2.00 |"));
    CHECK(project.has(request, "| 128 | yes | 100% | 13% | 0.900 |  | 0.700 | 0.800 (1.012) | 1.10 |  |"));
    CHECK(project.table(request).find("\nThe last line, in another run: ") != std::string::npos);
    same_tiles.erase("ms"), all_blocks.erase("time_of_same_tiles");
    project.write("lists.json", measured({{"rows", {row("14-lcsf", "100%", 0.7), same_tiles, all_blocks}}}));
    CHECK(project.has(request, "| 128 | yes | 100% | 13% | 0.900 |  | 0.700 | wrong | 1.10 |  |"));
}

TEST_CASE("a training step: two passes of each model, of what was timed, beside the fastest peer") {
    const auto row = [](const char* stage, const json& shape, double forward, double step) {
        return json{{"stage", stage}, {"shape", shape}, {"launched", "CUDA graph"},
                    {"forward", {{"ms", forward}, {"ratio_fastest", 0.15 / forward}}},
                    {"step", {{"ms", step}, {"ratio_fastest", nullptr}}}};
    };
    json bert = attention(64, 512, false, 32, 12, 12), gpt = attention(128, 2048, true, 8, 16, 16);
    bert["model"] = "BERT-base", gpt["model"] = "GPT";
    json wrong = row("22-out-of-step", gpt, 1, 1);
    for (const char* passes : {"forward", "step"}) wrong.erase(passes);
    const Project project;
    CHECK(project.table("training-step") == "(docs/results/training.json is not there yet.)\n");
    const json rows = {row("22-out-of-step", bert, 0.1, 0.5), row("22-out-of-step/deterministic", bert, 0.125, 0.75),
                       row("peer:flash_attn_interface", bert, 0.15, 0.625), wrong,
                       row("22-out-of-step/deterministic", gpt, 1, 3), row("flashladder.attention", gpt, 2, 4),
                       row("peer:flash_attn_interface", gpt, 5, 6)};
    project.write("training.json", measured({{"forward_stage", "14-lcsf"}, {"rows", rows}}));
    CHECK(project.has("training-step", "| attention of | d | causal | N | sequences | heads | passes | 14, 22 | "
                                       "14, 22/deterministic | flashladder.attention | FA3 | of the fastest peer |"));
    CHECK(project.has("training-step", "| BERT-base | 64 | no | 512 | 32 | 12 | forward | 0.100 | 0.125 |  | 0.150 | 1.50 |"));
    CHECK(project.has("training-step", "| BERT-base | 64 | no | 512 | 32 | 12 | both | 0.500 | 0.750 |  | 0.625 |  |"));
    CHECK(project.has("training-step", "| GPT | 128 | yes | 2048 | 8 | 16 | forward | wrong | 1.000 | 2.000 | 5.000 |  |"));
    CHECK(project.has("training-step", "| GPT | 128 | yes | 2048 | 8 | 16 | both | wrong | 3.000 | 4.000 | 6.000 |  |"));
    CHECK(project.has("training-step", "Milliseconds, bf16, in one run (CUDA graph). Last column: how many times as fast as "
                                       "the fastest peer 14, 22 is. PyTorch 2.11, cuDNN unknown. " + of_the_card));
}

TEST_CASE("a sequence on several ranks: what is sent, and times beside one GPU") {
    json shape = attention(64, 1000, true, 2, 8, 4);
    shape["ranks"] = 3;
    const auto bytes = [](double read, double written) {
        return json{{"read", {{"requested_bytes", read}}}, {"written", {{"requested_bytes", written}}}};
    };
    const json counted = {{"stage", "27c-a"}, {"operation", "ring_attention"}, {"dtype", "bf16"}, {"shape", shape},
                          {"counts", {{"tensors", {{"scratch", bytes(3e6, 5e6)}}}, {"total", {{"matrix_instructions", 7}}}}}};
    const json timed = {{"shape", {{"batch", 1}, {"heads", 4}, {"kv_heads", 4}, {"n", 1000}, {"head_dim", 64}, {"causal", false}}},
                        {"dtype", "bf16"}, {"ranks", 2}, {"gpus", 2}, {"one_gpu_ms", 2.0}, {"one_gpu_tflops", 500}, {"ms", 1.25},
                        {"tflops", 800}, {"percent_of_ideal", 80}, {"kernels_alone_ms", 1.2}, {"copies_of_a_round_ms", 0.1}};
    const Project project;
    project.write("counts.json", measured({{"rows", {counted}}}));
    project.write("ring.json", measured({{"rows", {timed}}}));
    // 2 tensors x 2 bytes x 2 batches x 4 heads x 1000 rows x 64 columns, each to two other ranks
    CHECK(project.has("counted-ring rung=27c", "| 64 | causal | 3 | 4.1 MB | 3.0 MB | 5.0 MB | 7 |"));
    CHECK(project.has("ring rung=27c", "| not causal | 2 | 1000 | 2.00 | 500 | 1.25 | 800 | 80% | 1.20 | 0.10 |"));
}

TEST_CASE("steps of decoding: microseconds of rungs and peers, and how much of a copy's bandwidth the highest rung has") {
    const auto row = [](const char* stage, const json& shape, double ms, double percent) {
        return json{{"stage", stage}, {"shape", shape}, {"ms", ms}, {"tflops", 1 / ms}, {"percent_of_copy", percent}};
    };
    json few = attention(128, 1, false, 1, 8, 2), many = attention(64, 1, false, 16, 64, 8);
    few["n_k"] = 5000, many["n_k"] = 300;
    const Project project;
    json wrong = row("14-a", many, 1, 1);
    wrong.erase("ms"), wrong.erase("tflops");
    const json result = measured({{"copy_gb_per_s", 3000},
                                  {"rows", {row("14-a", few, 0.5, 9), row("27-b", few, 0.125, 81),
                                            row("peer:torch-cudnn", few, 0.25, 40), wrong, row("27-b", many, 0.02, 50),
                                            row("peer:torch-cudnn", many, 0.01, 99)}}});
    for (const char* file : {"compare.json", "decoding.json"}) project.write(file, result);
    CHECK(project.has("decoding rung=27", "| 128 | 1 | 8 | 2 | 5000 | 500.0 | 125.0 | 250.0 | 81% | 2.00 |"));
    CHECK(project.has("decoding rung=27", "| 64 | 16 | 64 | 8 | 300 | wrong | 20.0 | 10.0 | 50% | 0.50 |"));
    CHECK(project.table("decoding rung=27").find("3000 GB/s") != std::string::npos);
    CHECK(project.has("fastest-peers", "| one query a head, up to a million keys | 27 | card | 1.00 | 0.50 | 2 | cuDNN in 2 |"));
}

TEST_CASE("last-block: a line for each problem of many keys at d = 128; the mean is of all problems") {
    const auto row = [](const char* stage, int d, int n_k, bool causal, double ms) {
        json shape = attention(d, 4, causal, 1, 32, 8);
        shape["n_k"] = n_k;
        return json{{"stage", stage}, {"shape", shape}, {"ms", ms}};
    };
    const char *kernel = "27-merge", *last = "27-merge/last_block";
    const Project project;
    project.write("last-block.json",
                  measured({{"rows", {row(kernel, 64, 8192, false, 0.01), row(last, 64, 8192, false, 0.01),
                                      row(kernel, 128, 2000, false, 0.01), row(last, 128, 2000, false, 0.01),
                                      row(kernel, 128, 8192, true, 0.01), row(last, 128, 8192, true, 0.04)}}}));
    CHECK(project.has("last-block", "| 4 | yes | 1 | 32 | 8 | 8192 | 10.0 | 40.0 | 0.25 |"));
    CHECK(project.table("last-block").find("| 64 |") == std::string::npos);
    CHECK(project.table("last-block").find("| 2000 |") == std::string::npos);
    CHECK(project.table("last-block").find("all 3 in the result file: 0.630") != std::string::npos);
    CHECK(ends_with(project.table("last-block"), of_the_card));
}

TEST_CASE("a missing result file is a sentence") {
    const Project project;
    for (const char* table : {"stages", "schedules", "orders", "gemm", "sizes"})
        CHECK(project.table(std::string("template ") + table) == "(docs/results/template.json is not there yet.)\n");
    CHECK(project.table("comparison more") == "(docs/results/compare.json is not there yet.)\n");
    CHECK(project.table("pipes") == "(docs/results/pipes.json is not there yet.)\n");
    CHECK(project.table("variant-times rung=12") == "(docs/results/variants.json is not there yet.)\n");
    CHECK(ends_with(project.table("costs"), "(docs/results/tune.json is not there yet.)\n"));
    project.write("template.json", measured());
    CHECK(project.table("template orders") == "(docs/results/template.json has no orders yet.)\n");
    project.write("compare.json", measured({{"rows", json::array()}}));
    CHECK(project.table("comparison more") == "(docs/results/compare.json has no rows of --more yet.)\n");
}

TEST_CASE("a table that is not there is an error") {
    const Project project;
    CHECK_THROWS_AS(project.table("tables"), std::runtime_error);
    project.write("template.json", measured());
    CHECK_THROWS_AS(project.table("template tables"), std::runtime_error);
}

TEST_CASE("a result file that is no JSON is named") {
    const Project project;
    std::ofstream(project.folder / "docs/results/pipes.json") << "{\"rows\": [";
    CHECK_THROWS_WITH(project.table("pipes"), "docs/results/pipes.json is no JSON");
}

TEST_CASE("template: stages and schedules have a column for each") {
    const Project project;
    const auto row = [](const char* kernel, const char* what, const json& shape, double tflops) {
        return json{{"kernel", kernel}, {"what", what}, {"shape", shape}, {"tflops", tflops}};
    };
    const json rows = {
        row("attention", "1", attention(128, 4096), 500.4), row("attention", "2", attention(128, 4096), 600.6),
        row("attention", "1", attention(128, 4096, true), 300), row("GEMM", "2", product(8192, 8192, 512), 700),
        row("GEMM", "3", product(8192, 8192, 512), 800)};
    project.write("template.json", measured({{"stages", rows}, {"schedules", rows}}));
    CHECK(project.has("template stages", "|  | problem | 1 slot | 2 slots | 3 slots |"));
    CHECK(project.has("template stages", "| attention | d 128, N 4096 | 500 | 601 |  |"));
    CHECK(project.has("template stages", "| attention | d 128, N 4096, causal | 300 |  |  |"));
    CHECK(project.has("template stages", "| GEMM | 8192 x 8192 x 512 |  | 700 | 800 |"));
    CHECK(project.has("template schedules", "|  | problem | 1 | 2 | 3 |"));
    CHECK(ends_with(project.table("template schedules"), of_the_card));
}

TEST_CASE("template: orders say what is read, and what there is to read") {
    const Project project;
    const auto row = [](const char* what, double bytes) {
        return json{{"kernel", "GEMM"},
                    {"what", what},
                    {"shape", product(1000, 2000, 500)},
                    {"tflops", 700.2},
                    {"device_bytes", bytes}};
    };
    project.write("template.json", measured({{"orders", {row("sections of 1", 7.4e6), row("one section", 3e6)}}}));
    CHECK(project.has("template orders", "| M x N x K | A and B once | sections of 1 | one section |"));
    CHECK(project.has("template orders", "| 1000 x 2000 x 500 | 3 MB | 700, 7 MB | 700, 3 MB |"));
}

TEST_CASE("template: ours beside cuBLAS, on the same problem") {
    const Project project;
    const auto row = [](const char* what, int n, double ms, double error) {
        return json{{"kernel", "GEMM"}, {"what", what},       {"shape", product(n, n, n)},
                    {"ms", ms},         {"tflops", 100 / ms}, {"error", error}};
    };
    project.write("template.json", measured({{"gemm",
                                              {row("ours", 8, 2, 1.6e-3), row("cuBLAS", 8, 1, 1.5e-3),
                                               row("ours", 16, 1, 1e-3), row("cuBLAS", 16, 1.5, 2e-3)}}}));
    CHECK(project.has("template gemm", "| 8 x 8 x 8 | 2.000 | 50 | 1.000 | 100 | 0.50 | 1.6e-03 | 1.5e-03 |"));
    CHECK(project.has("template gemm", "| 16 x 16 x 16 | 1.000 | 100 | 1.500 | 67 | 1.50 | 1.0e-03 | 2.0e-03 |"));
    CHECK(project.table("template gemm").find("PyTorch 2.11") != std::string::npos);
}

TEST_CASE("template: lines and bytes, without a GPU") {
    const Project project;
    const json files = {{{"file", "a.cu"}, {"lines", 70}, {"bytes", 30000}}, {{"file", "c.h"}, {"lines", 90}}};
    json sizes = {{"files", files},           {"library_bytes", 5000000}, {"nvcc", "13.0.1"},
                  {"architecture", "sm_90a"}, {"commit", "0123"},         {"date", "2026-01-02"}};
    project.write("template.json", {{"sizes", sizes}});
    CHECK(project.has("template sizes", "| `a.cu` | 70 | 30000 |"));
    CHECK(project.has("template sizes", "| `c.h` | 90 |  |"));
    CHECK(project.table("template sizes").find("all stages: 5.0 MB. Commit 0123") != std::string::npos);
    sizes["library_bytes"] = nullptr;
    project.write("template.json", {{"sizes", sizes}});
    CHECK(project.table("template sizes").find("nvcc 13.0.1. Commit 0123") != std::string::npos);
    CHECK(project.table("template stages") == "(docs/results/template.json has no stages yet.)\n");
}

TEST_CASE("costs: a line for each configuration that may be chosen") {
    const Project project;
    project.write("tune-h200.json", measured());  // one card's are enough
    const std::string text = project.table("costs");
    INFO(text);
    CHECK(ends_with(text, of_the_card));
    CHECK(std::count(text.begin(), text.end(), '|') == 7 * (2 + static_cast<int>(std::size(attention::configuration_costs))));
    CHECK(text.find("of both cards") == text.npos);
    project.write("tune.json", measured());
    CHECK(project.has("costs", "Microseconds, fitted to times in bf16 of both cards together"));
    for (const attention::ConfigurationCost& cost : attention::configuration_costs)
        CHECK(text.find((cost.causal ? " | yes | " : " | no | ") +
                        to_string(attention::configurations[static_cast<std::size_t>(cost.configuration)]) + " | ") != text.npos);
}

TEST_CASE("few, drawn: the highest rung against the fastest of the others, what is wrong left out") {
    const auto row = [](const char* stage, int heads, const json& tflops) {
        json of = {{"stage", stage}, {"shape", {{"head_dim", 64}, {"causal", heads == 4}, {"batch", 1}, {"heads", heads},
                                                {"kv_heads", heads}, {"n_q", 1024}, {"n_k", 1024}}}};
        if (!tflops.is_null()) of["tflops"] = tflops;
        return of;
    };
    const json rows = {row("13-lean-softmax", 4, 50), row("14-lcsf", 4, 90), row("peer:flash_attn_interface", 4, 60),
                       row("peer:torch-cudnn", 4, 45), row("14-lcsf", 8, 80), row("peer:flash_attn_interface", 8, nullptr),
                       row("peer:torch-cudnn", 8, 100)};
    const Project project;
    for (const std::string name : {"few", "drawn"}) {
        project.write(name + ".json", measured({{"rows", rows}}));
        CHECK(project.has(name, "| d | causal | B | heads | N | 13 | 14 | FA3 | cuDNN | of the fastest peer |"));
        CHECK(project.has(name, "| 64 | yes | 1 | 4 | 1024 | 50 | 90 | 60 | 45 | 1.50 |"));
        CHECK(project.has(name, "| 64 | no | 1 | 8 | 1024 |  | 80 | wrong | 100 | 0.80 |"));
        CHECK(project.table(name).find("geometric mean 1.095, lowest 0.80.") != std::string::npos);
    }
}

TEST_CASE("compare, fastest-peers: the fastest peer of each problem, a line for each grid and card that was measured") {
    const auto row = [](const char* stage, int n, double tflops) {
        return json{{"stage", stage}, {"dtype", "bf16"}, {"shape", attention(128, n)}, {"tflops", tflops}};
    };
    json wrong = row("13-lean-softmax", 4096, 0);
    wrong["wrong"] = "all";
    const Project project;
    json file = measured({{"rows", {row("13-lean-softmax", 1024, 70), row("14-lcsf", 1024, 90), row("peer:flash_attn.cute", 1024, 60),
                                    row("peer:torch-cudnn", 1024, 45), wrong, row("14-lcsf", 4096, 80),
                                    row("peer:flash_attn.cute", 4096, 80), row("peer:torch-cudnn", 4096, 100)}},
                          {"matmul_tflops", 700}});
    project.write("compare.json", file);
    CHECK(project.has("compare", "| d | causal | N | 13 | 14 | FA4 | cuDNN | of the fastest peer |"));
    CHECK(project.has("compare", "| 128 | no | 1024 | 70 | 90 | 60 | 45 | 1.50 |"));
    CHECK(project.has("compare", "| 128 | no | 4096 | wrong | 80 | 80 | 100 | 0.80 |"));
    CHECK(project.table("compare").find("; geometric mean 1.095, lowest 0.80.") != std::string::npos);

    CHECK(project.has("fastest-peers", "| 16384 tokens, width 2048 | 14 | card | 1.10 | 0.80 | 2 | FA4 in 1, cuDNN in 1 |"));
    CHECK(project.table("fastest-peers").find("gradients") == std::string::npos);
    file["rows"] = {row("20-warpgroup-backward", 512, 30), row("peer:torch-cudnn", 512, 40)};
    file["gpu"] = "NVIDIA H200";
    project.write("compare-backward-h200.json", file);
    CHECK(project.has("fastest-peers", "| gradients, 16384 tokens | 20 | H200 | 0.75 | 0.75 | 1 | cuDNN in 1 |"));
}

TEST_CASE("choices: for each problem what a launch takes on 132 multiprocessors") {
    const std::string text = Project().table("choices");
    INFO(text);
    attention::AttentionShape few = {.heads = 4, .kv_heads = 4, .n_q = 512, .n_k = 512, .head_dim = 64};
    const attention::Configuration& first = attention::configurations[static_cast<std::size_t>(attention::configuration_for(few, 132))];
    CHECK(text.find("| 64 | no | 4 | " + std::to_string(first.consumers) + " x " + std::to_string(first.B_c) + " | ") !=
          text.npos);
    CHECK(text.find("| 128 | yes | 262144 / N | ") != text.npos);
    CHECK(std::count(text.begin(), text.end(), '\n') == 2 + 2 * 2 * 4 + 2);
}

TEST_CASE("comparison: other problems, the neighbour of a length, and speed over a longer time") {
    const Project project;
    const auto row = [](const char* stage, const json& shape, double tflops) {
        return json{{"stage", stage}, {"shape", shape}, {"tflops", tflops}};
    };
    const auto sustained = [](const char* stage, const json& clock) {
        return json{{"stage", stage},  {"shape", attention(128, 4096)},
                    {"tflops", 500.2}, {"short_tflops", 600.2},
                    {"sm_mhz", clock}, {"power_w", clock}};
    };
    json wrong = row("14-a", attention(64, 1024, true), 0);
    wrong.erase("tflops");
    const json more =
        measured({{"rows",
                   {row("14-a", attention(128, 4096, true, 4, 64, 8), 600.4),
                    row("peer:torch-cudnn", attention(128, 4096, true, 4, 64, 8), 500),
                    row("14-a", attention(64, 1024, false, 3), 900), row("14-a", attention(64, 1000, false, 16), 450),
                    row("14-a", attention(64, 1024, false, 16), 500), wrong}},
                  {"sustained", {sustained("14-a", 1410.4), sustained("peer:torch-cudnn", nullptr)}}});
    project.write("compare.json", {{"rows", json::array()}, {"more", more}});
    CHECK(project.has("comparison more", "| d | causal | N | B | heads | 14 | cuDNN |"));
    CHECK(project.has("comparison more", "| 128 | yes | 4096 | 4 | 64, of K and V 8 | 600 | 500 |"));
    CHECK(project.has("comparison more", "| 64 | no | 1000 | 16 | 16 | 450 (0.90) |  |"));
    CHECK(project.has("comparison more", "| 64 | no | 1024 | 16 | 16 | 500 |  |"));
    CHECK(project.has("comparison more", "| 64 | yes | 1024 | 4 | 16 | wrong |  |"));
    CHECK(project.has("comparison more", "| 128 | 4096 | 14 | 500 | 600 | 1410 MHz | 1410 W |"));
    CHECK(project.has("comparison more", "| 128 | 4096 | cuDNN | 500 | 600 | unknown | unknown |"));
    CHECK(ends_with(project.table("comparison more"), of_the_card));
}

TEST_CASE("variants: times from the table of all rungs, else those of the variants alone") {
    const Project project;
    const auto counted = [](const char* stage) {
        json shape = attention(64, 1024, false, 1, 1, 1);
        return json{{"stage", stage},
                    {"shape", shape},
                    {"shared_bytes", 227 * 1024},
                    {"counts", {{"total", {{"barriers", 4}}}}}};
    };
    const auto timed = [](const char* stage, int n, bool causal, double ms) {
        return json{{"stage", stage}, {"shape", attention(64, n, causal)}, {"ms", ms}, {"tflops", 2 / ms}};
    };
    project.write("counts.json", {{"rows", json::array({counted("12-a")})},
                                  {"variants", json::array({counted("12-a/intra")})},
                                  {"commit", "4567"},
                                  {"date", "2026-01-03"}});
    project.write("ladder.json", measured({{"rows", json::array()}}));
    CHECK(project.has("variants rung=12", "| d |  | shared wavefronts | of them conflicts | barriers |"));
    CHECK(
        project.has("variants rung=12",
                    "There are no times of this rung in docs/results/ladder.json or docs/results/variants.json yet."));

    const json others = {timed("11-b", 4096, false, 4),       timed("12-a", 1024, false, 1),
                         timed("12-a", 4096, true, 2),        timed("12-a", 4096, false, 3),
                         timed("12-a/intra", 4096, false, 5), timed("13-c", 4096, false, 6)};
    project.write("variants.json", measured({{"rows", others}}));
    CHECK(
        project.has("variants rung=12", "| d |  | ms | TFLOP/s | shared wavefronts | of them conflicts | barriers |"));
    CHECK(project.has("variants rung=12", "| 64 | the stage | 3.000 | 0.67 | 0 | 0% | 4 |"));
    CHECK(project.has("variants rung=12", "| 64 | intra | 5.000 | 0.40 | 0 | 0% | 4 |"));
    CHECK(project.table("variants rung=12").find(of_the_card) != std::string::npos);

    json row = timed("12-a", 4096, false, 7);
    row.update(
        {{"set", "variants"}, {"registers", 168}, {"local_bytes", 0}, {"shared_bytes", 200000}, {"blocks_per_sm", 1}});
    project.write("ladder.json", measured({{"rows", json::array({row})}}));
    CHECK(project.has("variants rung=12", "| 64 | the stage | 7.000 | 0.29 | 168 | 0 | 195 KB | 1 | 0 | 0% | 4 |"));
    CHECK(project.has("variants rung=12", "| 64 | intra |  |  |  |  |  |  | 0 | 0% | 4 |"));

    CHECK(project.has("variant-times rung=12", "| d | causal | N | rung 11 | rung 12 | intra |"));
    CHECK(project.has("variant-times rung=12", "| 64 | no | 4096 | 0 | 1 | 0 |"));
    CHECK(project.has("variant-times rung=12", "| 64 | yes | 4096 |  | 1 |  |"));
}

TEST_CASE("orders: a line for each problem, a column for each order") {
    const Project project;
    const auto row = [](const char* stage, int n) {
        return json{{"stage", stage}, {"shape", attention(64, n)}, {"tflops", 500.4}, {"device_bytes", 2.01e8}};
    };
    project.write("orders.json",
                  measured({{"rows", {row("09-a", 1024), row("11-c/sections", 1024), row("09-a", 4096)}}}));
    CHECK(project.has("orders", "| d | causal | N | rung 09 | sections |"));
    CHECK(project.has("orders", "| 64 | no | 1024 | 500, 201 MB | 500, 201 MB |"));
    CHECK(project.has("orders", "| 64 | no | 4096 | 500, 201 MB |  |"));
}

TEST_CASE("cost-model: what was counted, scaled to the heads that were timed; a rung without a time has none") {
    const Project project;
    const auto row = [](const char* stage, double exponentials, bool causal) {
        return json{{"stage", stage}, {"dtype", "bf16"}, {"shape", attention(128, 1024, causal, 1, 1, 1)},
                    {"shared_bytes", 7},
                    {"counts", {{"launches", {{{"work", {{"exponentials", exponentials}, {"matrix_flops", 1}}},
                                               {"distinct_read_bytes", 0}, {"distinct_written_bytes", 0},
                                               {"grid", {1}}, {"block", {1}}}}}}}};
    };
    // 256 heads, 132 * 16 exponentials a clock, 1.83 GHz: 1 ms, and 2 microseconds of set-up
    const double millisecond = 132 * 16 * 1.83e6 / 256;
    project.write("counts.json", measured({{"rows", {row("a", millisecond, false), row("b", 2 * millisecond, false),
                                                     row("c", millisecond, true)}}}));
    project.write("ladder.json", measured({{"rows", {{{"stage", "a"}, {"set", "grid"}, {"ms", 2.004},
                                                      {"shape", attention(128, 1024, false, 16, 16, 16)}}}}}));
    CHECK(project.table("cost-model d=128 card=H100").find("| XU | 1.002 | 2.004 | 0.50 |") != std::string::npos);
    CHECK(project.table("cost-model d=128 card=H100").find("| XU | 2.002 |  |  |") != std::string::npos);
    CHECK(project.table("cost-model d=128 card=H100").find("| c |") == std::string::npos);
    CHECK(project.table("cost-model d=128 card=H100").find("times: a card, commit 0123") != std::string::npos);
}

TEST_CASE("pipes: rungs and peers, or one rung and its variants; what the profiler does not tell is left out") {
    const Project project;
    const auto row = [](const char* stage, double tensor) {
        return json{{"stage", stage}, {"shape", attention(128, 4096)},
                    {"busy", {{"tensor %", tensor}, {"HBM bytes", 3e6}, {"microseconds", 2.0}}}};
    };
    project.write("pipes.json", measured({{"profiler", "a profiler"},
                                          {"rows", {row("13-lean", 94.56), row("13-lean/two", 80), row("peer:torch-cudnn", 70)}}}));
    CHECK(project.has("pipes", "| d 128, N 4096 | 13 | 94.6% |  |  |  |  | 1500 |  |  |  |"));
    CHECK(project.has("pipes", "| d 128, N 4096 | cuDNN | 70.0% |"));
    CHECK(project.has("pipes rung=13", "| d 128, N 4096 | 13 | 94.6% |"));
    CHECK(project.table("pipes").find("two") == std::string::npos);
    CHECK(project.has("pipes rung=13", "| d 128, N 4096 | two | 80.0% |"));
    CHECK(project.table("pipes rung=13").find("cuDNN") == std::string::npos);
}

TEST_CASE("pipes clocks: what was measured beside what the work takes by itself") {
    const Project project;
    const auto row = [](const json& shape) {
        return json{{"stage", "13-lean"}, {"shape", shape}, {"busy", {{"cycles", 2e7}, {"instructions", 8e6}}}};
    };
    // 64 heads on 10 multiprocessors: 6.4 times 4 N N d / 4096 clocks of the tensor cores, N N / 16 of the exponentials
    project.write("pipes.json", measured({{"profiler", "a profiler"}, {"multiprocessors", 10},
                                          {"rows", {row(attention(128, 4096)), row(attention(64, 4096, true))}}}));
    CHECK(project.has("pipes clocks", "| d 128, N 4096 | 13 | 20000 | 13422 | 67% | 6711 | 200 |"));
    CHECK(project.has("pipes clocks", "| d 64, N 4096, causal | 13 | 20000 | 3355 | 17% | 3355 | 200 |"));
}

TEST_CASE("rates of instructions beside their unit's; adds and stores by what they go to") {
    const Project project;
    const auto row = [](const char* what, const char* how, double rate, const char* unit) {
        return json{{"what", what}, {"how", how}, {"rate", rate}, {"unit", unit}};
    };
    project.write("rates.json", measured({{"rows",
                                           {row("mma.m16n8k16", "16 warps", 2048, "operations/clock"), row("ex2", "16 warps", 8, "operations/clock"),
                                            row("bulk add", "8 MB", 3.789, "TB/s"), row("bulk add", "64 MB", 2, "TB/s"),
                                            row("bulk store", "8 MB", 0.05, "TB/s")}}}));
    CHECK(project.has("rates", "| `mma.m16n8k16` | 16 warps | 2048 | 50% |"));
    CHECK(project.has("rates", "| `ex2` | 16 warps | 8.0 | 50% |"));
    CHECK(project.table("rates").find("bulk") == std::string::npos);
    CHECK(project.has("adds", "| into | bulk add | bulk store |"));
    CHECK(project.has("adds", "| 8 MB | 3.79 | 0.050 |"));
    CHECK(project.has("adds", "| 64 MB | 2.00 |"));
    CHECK(project.table("adds").find("mma") == std::string::npos);
}

TEST_CASE("the paper's bytes beside the counted ones of two rungs, of one head times as many as it has") {
    const Project project;
    const auto row = [](const char* stage, double distinct, int d = 64) {
        const char* operation = std::string(stage) > "15" ? "attention_backward" : "attention";
        return json{{"stage", stage}, {"operation", operation}, {"shape", attention(d, 1024, false, 1, 1, 1)}, {"shared_bytes", 227 * 1024},
                    {"counts", {{"distinct_bytes", distinct}, {"requested_bytes", 2 * distinct}}}};
    };
    project.write("counts.json", measured({{"rows", {row("00-a", 1e7), row("00-a", 5e7, 128), row("15-b", 2e7), row("01-c", 1e6), row("16-d", 1e6)}}}));
    CHECK(project.has("paper-bytes", "| standard | 40.3 | 00 and 15 | 30.7 | 61.4 |"));
    CHECK(project.has("paper-bytes", "| FlashAttention | 4.4 | 01 and 16 | 2.0 | 4.1 |"));
}

TEST_CASE("what the emulator has is read from its headers") {
    const std::string list = generated_table("emulator-functions");
    for (const char* name : {"`cudaMallocManaged`", "`cudaLaunchCooperativeKernel`", "`cudaOccupancyMaxPotentialBlockSize`",
                             "`__shfl_xor_sync`", "`__reduce_add_sync`", "`atomicCAS`", "`__syncthreads_count`", "`clock64`",
                             "`__popcll`", "`__ldcs`", "`__umul64hi`", "`rsqrtf`", "`uchar`"})
        CHECK_MESSAGE(list.find(name) != std::string::npos, std::string(name));
    for (const char* no_name : {"FLASHLADDER", "`__shfl`", "`__attribute__`", "emulator::"})
        CHECK_MESSAGE(list.find(no_name) == std::string::npos, std::string(no_name));
}

}  // namespace
}  // namespace flashladder
