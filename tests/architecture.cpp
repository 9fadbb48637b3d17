// docs/architecture.md is true: who includes whom, and that what it names is there.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "files.h"
#include "harness/project_root.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;
using Folders = std::map<std::string, std::set<std::string>>;

fs::path root() { return project_root(); }

/// "common/tile" of common/tile/copy.h, "solutions" of solutions/01-minimal-flash/attention.cu.
std::string folder_of(const fs::path& file) {
    const fs::path relative = file.lexically_relative(root()).parent_path();
    auto part = relative.begin();
    std::string folder = (part++)->string();
    if (folder != "solutions" && part != relative.end()) folder += "/" + part->string();
    return folder;
}

/// Where a quoted name leads to, as the compiler looks for it; empty for what is none of ours.
fs::path included(const fs::path& by, const std::string& name) {
    for (const fs::path& folder : {by.parent_path(), root() / "common", root() / "common/emulator", root() / "tools/ladder", root()})
        if (fs::exists(folder / name)) return (folder / name).lexically_normal();
    return {};
}

Folders includes() {
    Folders all;
    const std::regex quoted("(^|\n)#include \"([^\"]+)\"");
    for (const char* top : {"common", "solutions", "tools"})
        for (const auto& entry : fs::recursive_directory_iterator(root() / top)) {
            const std::string extension = entry.path().extension().string();
            if (extension != ".h" && extension != ".cpp" && extension != ".cu") continue;
            const std::string text = read_file(entry.path().string()), folder = folder_of(entry.path());
            all[folder];
            for (std::sregex_iterator match(text.begin(), text.end(), quoted), end; match != end; ++match)
                if (const fs::path file = included(entry.path(), (*match)[2]); !file.empty() && folder_of(file) != folder)
                    all[folder].insert(folder_of(file));
        }
    return all;
}

/// The rows of the table under this heading, cells by column.
std::vector<std::vector<std::string>> table(const std::string& page, const std::string& heading) {
    std::istringstream lines(page.substr(page.find("\n## " + heading) + 1));
    std::vector<std::vector<std::string>> rows;
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && !line.starts_with("## ")) {
        if (!line.starts_with("| ")) continue;
        std::vector<std::string> cells;
        std::istringstream parts(line.substr(1));
        for (std::string cell; std::getline(parts, cell, '|');) cells.push_back(cell);
        rows.push_back(cells);
    }
    rows.erase(rows.begin());  // the header
    return rows;
}

/// What stands between backticks.
std::set<std::string> names(const std::string& cell) {
    std::set<std::string> all;
    const std::regex ticked("`([^`]+)`");
    for (std::sregex_iterator match(cell.begin(), cell.end(), ticked), end; match != end; ++match) all.insert((*match)[1]);
    return all;
}

TEST_CASE("who includes whom is what docs/architecture.md says") {
    const std::string page = read_file((root() / "docs/architecture.md").string());
    Folders said;
    for (const auto& row : table(page, "Who includes whom")) said[*names(row.at(0)).begin()] = names(row.at(1));
    const Folders found = includes();
    REQUIRE(found.size() >= 13);
    for (const auto& [folder, of] : found) {
        REQUIRE_MESSAGE(said.contains(folder), folder, " is not in docs/architecture.md");
        for (const std::string& other : of) CHECK_MESSAGE(said[folder].contains(other), folder, " includes ", other);
        for (const std::string& other : said[folder]) CHECK_MESSAGE(of.contains(other), folder, " no longer includes ", other);
    }
    for (const auto& [folder, of] : said) CHECK_MESSAGE(found.contains(folder), folder, " is gone");
}

TEST_CASE("harness and emulator name no operation") {
    std::set<std::string> operations;
    for (const auto& entry : fs::directory_iterator(root() / "common/operations")) operations.insert(entry.path().filename());
    REQUIRE(operations.size() >= 2);
    for (const char* folder : {"common/harness", "common/emulator"})
        for (const auto& entry : fs::recursive_directory_iterator(root() / folder))
            if (entry.is_regular_file())
                for (const std::string& operation : operations)
                    CHECK_MESSAGE(read_file(entry.path().string()).find("operations/" + operation) == std::string::npos,
                                  entry.path().string(), " includes ", operation);
}

TEST_CASE("what docs/architecture.md names is there") {
    const std::string page = read_file((root() / "docs/architecture.md").string());
    const auto rows = table(page, "Where is ...");
    CHECK(rows.size() >= 20);
    for (const auto& row : rows)
        for (const std::string& path : names(row.at(1))) CHECK_MESSAGE(fs::exists(root() / path), path, " is gone");
}

}  // namespace
}  // namespace flashladder
