#include "files.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "harness/inputs.h"

namespace flashladder {

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) throw std::runtime_error(fmt::format("{} cannot be read", path));
    return text.str();
}

std::string source_line(const std::string& place) {
    const std::size_t colon = place.rfind(':');
    if (colon == std::string::npos) return "";
    std::ifstream file(project_root() + "/" + place.substr(0, colon));
    std::string text;
    for (int n = std::stoi(place.substr(colon + 1)); n > 0 && std::getline(file, text);) --n;
    text.erase(0, text.find_first_not_of(' '));
    constexpr std::size_t width = 60;
    return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

namespace {

namespace fs = std::filesystem;

/// Writes the text beside the file, and says under which name.
std::string write_beside(const std::string& path, std::string_view text) {
    std::error_code ignored;
    fs::create_directories(fs::path(path).parent_path(), ignored);
    const std::string fresh = path + ".new";
    std::ofstream file(fresh, std::ios::binary);
    file << text;
    file.close();
    if (!file || fs::is_directory(path)) throw std::runtime_error(fmt::format("{} cannot be written", path));
    return fresh;
}

}  // namespace

void write_file(const std::string& path, std::string_view text) {
    if (fs::is_regular_file(path) && read_file(path) == text) return;
    fs::rename(write_beside(path, text), path);
}

void check_can_be_written(const std::string& path) { fs::remove(write_beside(path, "")); }

}  // namespace flashladder
