#include "files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "harness/project_root.h"

namespace flashladder {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    if (file.peek() != EOF) text << file.rdbuf();  // nothing to insert would be a failure
    if (!file.is_open() || file.bad() || !text) throw std::runtime_error(fmt::format("{} cannot be read", path));
    return text.str();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string source_line(const std::string& place, std::size_t width) {
    const std::size_t colon = place.rfind(':');
    if (colon == std::string::npos) return "";
    std::ifstream file(fs::path(project_root()) / place.substr(0, colon));
    std::string text;
    for (int n = std::stoi(place.substr(colon + 1)); n > 0 && std::getline(file, text);) --n;
    text.erase(0, text.find_first_not_of(' '));
    return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

namespace {

/// What takes bytes as they come, and is no file that another could replace.
bool is_device_or_pipe(const std::string& path) {
    std::error_code unknown;
    const fs::file_status status = fs::status(path, unknown);
    return fs::is_character_file(status) || fs::is_block_file(status) || fs::is_fifo(status) || fs::is_socket(status);
}

[[noreturn]] void refuse_to_write(const std::string& path) {
    throw std::runtime_error(fmt::format("{} cannot be written", path));
}

/// The file that a link leads to, which need not be there yet; the path itself if it is no link.
std::string behind_links(const std::string& path) {
    constexpr int most_links = 40;  // as Linux has it
    fs::path file = path;
    std::error_code unknown;
    for (int links = 0; fs::is_symlink(fs::symlink_status(file, unknown)); ++links) {
        if (links == most_links) refuse_to_write(path);  // they go in a circle
        file = file.parent_path() / fs::read_symlink(file);
    }
    return file.string();
}

/// Writes the text beside the file, and says under which name.
std::string write_beside(const std::string& path, std::string_view text) {
    std::error_code ignored;
    fs::create_directories(fs::path(path).parent_path(), ignored);
    const std::string fresh = path + ".new";
    std::ofstream file(fresh, std::ios::binary);
    file << text;
    file.close();
    if (!file || fs::is_directory(path)) refuse_to_write(path);
    return fresh;
}

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        lines.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

void write_file(const std::string& path, std::string_view text) {
    if (is_device_or_pipe(path)) {
        std::ofstream device(path, std::ios::binary);
        device << text;
        device.close();
        if (!device) refuse_to_write(path);
        return;
    }
    const std::string file = behind_links(path);
    if (fs::is_regular_file(file) && read_file(file) == text) return;
    fs::rename(write_beside(file, text), file);
}

void check_can_be_written(const std::string& path) {
    if (!is_device_or_pipe(path)) fs::remove(write_beside(behind_links(path), ""));
}

}  // namespace flashladder
