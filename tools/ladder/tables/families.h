// The tables, a file for each family. A function makes one from `r`, the result file that doc_tables.cpp names for it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "shared.h"

namespace flashladder::tables {

// timings.cpp
std::string ladder_table(const nlohmann::json& r, const Arguments& arguments);
std::string rung_table(const nlohmann::json& r, const Arguments& arguments);
std::string heads_table(const nlohmann::json& r, const Arguments& arguments);
std::string features_table(const nlohmann::json& r, const Arguments& arguments);
std::string lists_table(const nlohmann::json& r, const Arguments& arguments);
std::string ring_table(const nlohmann::json& r, const Arguments& arguments);
std::string pages_table(const nlohmann::json& r, const Arguments& arguments);
std::string sequences_table(const nlohmann::json& r, const Arguments& arguments);

// peers.cpp
std::string decoding_table(const nlohmann::json& r, const Arguments& arguments);
std::string pages_beside_table(const nlohmann::json& r, const Arguments& arguments);
std::string varlen_beside_table(const nlohmann::json& r, const Arguments& arguments);
std::string lists_beside_table(const nlohmann::json& r, const Arguments& arguments);
std::string training_step_table(const nlohmann::json& r, const Arguments& arguments);
std::string more_table(const nlohmann::json& r, const Arguments& arguments);
std::string peers_table(const nlohmann::json& r, const Arguments& arguments);
std::string compare_table(const nlohmann::json& r, const Arguments& arguments);
std::string fastest_peers_table(const nlohmann::json& r, const Arguments& arguments);

// counts.cpp
std::string counted_ladder_table(const nlohmann::json& r, const Arguments& arguments);
std::string rung_counts_table(const nlohmann::json& r, const Arguments& arguments);
std::string shared_memory_table(const nlohmann::json& r, const Arguments& arguments);
std::string causal_table(const nlohmann::json& r, const Arguments& arguments);
std::string counted_lists_table(const nlohmann::json& r, const Arguments& arguments);
std::string counted_decoding_table(const nlohmann::json& r, const Arguments& arguments);
std::string counted_ring_table(const nlohmann::json& r, const Arguments& arguments);
std::string counted_pages_table(const nlohmann::json& r, const Arguments& arguments);
std::string counted_sequences_table(const nlohmann::json& r, const Arguments& arguments);
std::string memory_table(const nlohmann::json& r, const Arguments& arguments);
std::string paper_bytes_table(const nlohmann::json& r, const Arguments& arguments);
std::string cost_model_table(const nlohmann::json& r, const Arguments& arguments);

// variants.cpp
std::string variants_table(const nlohmann::json& r, const Arguments& arguments);
std::string variant_times_table(const nlohmann::json& r, const Arguments& arguments);
std::string last_block_table(const nlohmann::json& r, const Arguments& arguments);
std::string orders_table(const nlohmann::json& r, const Arguments& arguments);

// lcsf.cpp
std::string template_table(const nlohmann::json& r, const Arguments& arguments);
std::string costs_table(const nlohmann::json& r, const Arguments& arguments);
std::string choices_table(const nlohmann::json& r, const Arguments& arguments);

// rates.cpp
std::string rates_table(const nlohmann::json& r, const Arguments& arguments);
std::string adds_table(const nlohmann::json& r, const Arguments& arguments);

// profiler.cpp
std::string loops_table(const nlohmann::json& r, const Arguments& arguments);
std::string pipes_table(const nlohmann::json& r, const Arguments& arguments);
std::string profiler_table(const nlohmann::json& r, const Arguments& arguments);

// races.cpp
std::string mutants_table(const nlohmann::json& r, const Arguments& arguments);
std::string report_block(const nlohmann::json& r, const Arguments& arguments);

// sources.cpp
std::string diff_block(const nlohmann::json& r, const Arguments& arguments);
std::string emulator_functions(const nlohmann::json& r, const Arguments& arguments);
std::string translation_age(const nlohmann::json& r, const Arguments& arguments);

}  // namespace flashladder::tables
