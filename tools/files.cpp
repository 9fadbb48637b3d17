#include "files.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace flashladder {

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) throw std::runtime_error(fmt::format("{} cannot be read", path));
    return text.str();
}

void write_file(const std::string& path, std::string_view text) {
    namespace fs = std::filesystem;
    if (fs::exists(path) && read_file(path) == text) return;
    std::error_code ignored;
    fs::create_directories(fs::path(path).parent_path(), ignored);
    const std::string fresh = path + ".new";
    std::ofstream file(fresh, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw std::runtime_error(fmt::format("{} cannot be written", path));
    fs::rename(fresh, path);
}

}  // namespace flashladder
