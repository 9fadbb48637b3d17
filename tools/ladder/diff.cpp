#include "diff.h"

#include <fmt/format.h>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "exercises.h"
#include "files.h"
#include "harness/project_root.h"
#include "list.h"
#include "moved.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;

/// A folder that is gone at the end of the scope.
struct TemporaryFolder {
    fs::path path = fs::temp_directory_path() / fmt::format("ladder-diff-{}", getpid());
    TemporaryFolder() { fs::create_directories(path); }
    ~TemporaryFolder() { fs::remove_all(path); }
    TemporaryFolder(const TemporaryFolder&) = delete;
};

}  // namespace

std::string diff_from_below(const Chapter& chapter, bool answers) {
    const std::optional<Chapter> lower = below(chapter);
    if (!lower) return "";

    const TemporaryFolder folder;
    const auto solution = [](const Chapter& c) { return without_markers(read_file(project_root() + "/" + c.solution())); };
    const std::string before = solution(*lower), after = answers ? solution(chapter) : starter_of(chapter);
    write_file((folder.path / lower->number()).string(), before);
    write_file((folder.path / chapter.number()).string(), after);
    const std::string command =
        fmt::format("cd '{}' && diff -U 3 --label {} --label {} {} {}", folder.path.string(), lower->solution(),
                    answers ? chapter.solution() : chapter.file(), lower->number(), chapter.number());
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    std::array<char, 4096> buffer;
    std::string text;
    while (pipe && fgets(buffer.data(), buffer.size(), pipe.get())) text += buffer.data();
    if (text.empty()) throw std::runtime_error("the program diff is needed (package diffutils)");
    return idea_first(text, moved_lines(before, after, new_headers(before, after)));
}

int show_diff(const Chapter& chapter, bool answers) {
    const bool shown = answers || progress_of(chapter).done;
    const std::string text = diff_from_below(chapter, shown);
    if (!text.empty() && !shown) {
        fmt::print(stderr,
                   "ladder: your chapter {0} is not green yet: its exercises are open here too; "
                   "./ladder diff {0} --answers shows all\n\n",
                   chapter.number());
        std::fflush(stderr);
    }
    fmt::print("{}",
               !text.empty()           ? text
               : chapter.is_capstone() ? fmt::format("{} is a capstone: no rung is below it.\n", chapter.name)
                                       : fmt::format("{} is the lowest rung: there is nothing below it.\n", chapter.name));
    return 0;
}

}  // namespace flashladder
