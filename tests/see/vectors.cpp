#include "vectors.h"

#include <filesystem>
#include <fstream>
#include <utility>

Vectors::Vectors(std::string page_name) : page_name_(std::move(page_name)) {}

Vectors::~Vectors() {
    std::filesystem::create_directories(SEE_FOLDER);
    std::ofstream(std::string(SEE_FOLDER) + "/" + page_name_ + ".json") << cases_.dump(1) << "\n";
}

void Vectors::add(nlohmann::json query, nlohmann::json answer) {
    cases_.push_back({{"query", std::move(query)}, {"answer", std::move(answer)}});
}
