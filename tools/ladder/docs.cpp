#include "docs.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "chapters.h"
#include "tables/doc_tables.h"
#include "files.h"
#include "harness/project_root.h"
#include "translations.h"

namespace flashladder {
namespace {

std::string regenerate(const std::string& text) {
    std::string out;
    for (std::size_t at = 0;;) {
        const std::size_t begin = text.find(generated_begin, at);
        if (begin == std::string::npos) return out + text.substr(at);
        const std::size_t line_end = text.find('\n', begin), end = text.find(generated_end, begin);
        if (end == std::string::npos) throw std::runtime_error(fmt::format("no '{}'", generated_end));
        const std::size_t request = begin + generated_begin.size();
        out += text.substr(at, line_end + 1 - at) +
               generated_table(text.substr(request, text.find(" -->", request) - request));
        at = end;
    }
}

bool is_there(const std::string& path) { return std::filesystem::exists(project_root() + "/" + path); }

/// Calls visit(path from the root, what the file should hold).
void for_each_document(const std::function<void(const std::string&, const std::string&)>& visit) {
    std::vector<std::string> paths = {"README.md", "docs/counting.md", "docs/debugging.md", "docs/emulator.md",
                                      "docs/measuring.md", "docs/theory.md"};
    for (const Chapter& chapter : chapters()) paths.push_back(chapter.lesson());
    for (std::size_t i = 0, count = paths.size(); i < count; ++i)
        if (const std::string path = translation_of(paths[i]); is_there(path)) paths.push_back(path);
    for (const std::string& path : paths) try {
            visit(path, regenerate(read_file(project_root() + "/" + path)));
        } catch (const std::exception& error) {
            throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
        }
}

}  // namespace

int write_docs() {
    for_each_document([](const std::string& path, const std::string& text) {
        write_file(project_root() + "/" + path, text);
        if (const std::string translation = translation_of(path); is_there(translation))
            for (const Behind& one : behind(read_file(project_root() + "/" + translation), text))
                fmt::print("{}: \"{}\" {}{}\n", translation, one.section.heading, one.what,
                           one.mark.empty() ? "" : "; once it is translated: " + one.mark);
    });
    return 0;
}

int check_docs() {
    int stale = 0;
    const auto compare = [&](const std::string& path, const std::string& text, const std::string& remedy) {
        if (read_file(project_root() + "/" + path) == text) return;
        fmt::print("{} is stale: {}\n", path, remedy);
        ++stale;
    };
    for_each_document([&](const std::string& path, const std::string& text) { compare(path, text, "./ladder docs"); });
    for (const Chapter& chapter : chapters())
        compare(chapter.file(), starter_of(chapter), "./ladder reset " + chapter.number());
    return stale == 0 ? 0 : 1;
}

}  // namespace flashladder
