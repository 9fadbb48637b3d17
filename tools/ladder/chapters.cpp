#include "chapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "exercises.h"
#include "files.h"
#include "harness/project_root.h"
#include "programs.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;

std::string in_project(const std::string& path) { return project_root() + "/" + path; }

constexpr std::string_view capstone = "capstone-";

/// The last rung of each part, behind which its capstone stands.
constexpr std::array last_rungs = {"03", "07", "14", "25"};

/// Rungs that begin another operation with the kernel of a lower one.
constexpr std::pair<std::string_view, std::string_view> made_of[] = {
    {"26", "14"}, {"26b", "26"}, {"27b", "27"}, {"27c", "14"}};

/// What chapters are sorted by: "03-row-swapped-loops", "03~capstone-1-sliding-window", "04-tensor-cores".
std::string place_of(const Chapter& chapter) {
    return chapter.is_capstone() ? chapter.reached() + "~" + chapter.name : chapter.name;
}

/// Puts `text` into the learner's file; what was there is kept beside it unless it is a copy of something in the
/// project.
void replace_learners_file(const Chapter& chapter, const std::string& text) {
    const std::string path = in_project(chapter.file());
    const std::string old = fs::exists(path) ? read_file(path) : "";
    if (!old.empty() && old != text && old != starter_of(chapter) && old != read_file(in_project(chapter.solution()))) {
        int n = 1;
        while (fs::exists(fmt::format("{}.{}", path, n))) ++n;
        write_file(fmt::format("{}.{}", path, n), old);
        fmt::print("your version is kept as {}.{}\n", chapter.file(), n);
    }
    write_file(path, text);
}

/// How many hints have been given for each exercise of a chapter: lines "1.2 3".
fs::path given_hints(const Chapter& chapter) { return build_folder() / "hints" / chapter.number(); }

std::map<std::string, std::size_t> read_given_hints(const Chapter& chapter) {
    std::map<std::string, std::size_t> given;
    std::ifstream file(given_hints(chapter));
    std::string exercise;
    for (std::size_t n = 0; file >> exercise >> n;) given[exercise] = n;
    return given;
}

std::size_t hints_given(const Chapter& chapter, const std::string& exercise) {
    return read_given_hints(chapter)[exercise];
}

void remember_hints(const Chapter& chapter, const std::string& exercise, std::size_t n) {
    auto given = read_given_hints(chapter);
    given[exercise] = n;
    std::string text;
    for (const auto& [each, count] : given) text += fmt::format("{} {}\n", each, count);
    write_file(given_hints(chapter).string(), text);
}

}  // namespace

bool is_capstone(const std::string& name) { return name.starts_with(capstone); }

std::string number_of(const std::string& name) {
    return name.substr(0, name.find('-', is_capstone(name) ? capstone.size() : 0));
}

std::string Chapter::reached() const {
    if (!is_capstone()) return number();
    const int part = std::stoi(number().substr(capstone.size()));
    return last_rungs.at(static_cast<std::size_t>(part - 1));
}

std::string operation_in(const fs::path& folder) {
    for (const auto& file : fs::directory_iterator(folder))  // cmake/Rungs.cmake has seen that there is one
        if (file.path().extension() == ".cu" && file.path().stem() != "variants") return file.path().stem().string();
    return "";
}

std::vector<Chapter> chapters() {
    std::vector<Chapter> found;
    for (const auto& entry : fs::directory_iterator(in_project("solutions")))
        if (entry.is_directory()) found.push_back({entry.path().filename().string(), operation_in(entry.path())});
    std::ranges::sort(found, {}, place_of);
    return found;
}

Chapter find_chapter(const std::string& name) {
    const auto all = chapters();
    const std::string padded = name.size() == 1 ? "0" + name : name;
    std::vector<std::string> names;
    for (const Chapter& chapter : all) {
        if (chapter.name == padded || chapter.number() == padded) return chapter;
        names.push_back(chapter.number());
    }
    throw std::invalid_argument(fmt::format("there is no chapter {} (there are {})", name, fmt::join(names, ", ")));
}

std::string exercise_id(const Chapter& chapter, const std::string& asked) {
    std::string number = chapter.number();
    if (number.size() > 1 && number.front() == '0') number.erase(0, 1);
    return number + asked.substr(std::min(asked.find('.'), asked.size()));
}

std::optional<Chapter> below(const Chapter& chapter) {
    if (chapter.is_capstone()) return {};
    std::vector<Chapter> all = chapters();
    std::erase_if(all, [&](const Chapter& c) { return c.operation != chapter.operation; });
    const auto self = std::ranges::find(all, chapter.name, &Chapter::name);
    if (self != all.begin()) return *(self - 1);
    for (const auto& [rung, lower] : made_of)
        if (rung == chapter.number()) return find_chapter(std::string(lower));
    return {};
}

void check_is_there(const Chapter& chapter) {
    if (!fs::exists(in_project(chapter.file())))
        throw std::invalid_argument(
            fmt::format("{} is missing (./ladder reset {} makes it)", chapter.file(), chapter.number()));
}

std::string starter_of(const Chapter& chapter) {
    return make_starter(read_file(in_project(chapter.solution())), "all");
}

std::vector<std::string> hints_of(const Chapter& chapter, const std::string& exercise) {
    if (chapter.is_capstone()) return {};
    return hints_for(read_file(in_project("chapters/" + chapter.name + "/hints.md")), exercise);
}

std::string text_to_build(const Chapter& chapter) {
    check_is_there(chapter);
    const fs::path file = in_project(chapter.file()), last = build_folder() / "built" / (chapter.number() + ".cu");
    const std::string text = read_file(file.string());
    if (fs::exists(last) && read_file(last.string()) != text && fs::last_write_time(file) < fs::last_write_time(last))
        fs::last_write_time(file, fs::file_time_type::clock::now());
    write_file(last.string(), text);
    return text;
}

int run_with_chapter(const Chapter& chapter, const std::string& program, const std::vector<std::string>& arguments) {
    constexpr int time_limit_seconds = 300, timed_out = 124;  // what timeout(1) exits with
    text_to_build(chapter);
    if (!build_target(program, chapter.file())) return 1;
    std::string command = fmt::format("timeout --foreground {} {}", time_limit_seconds,
                                      quoted((build_folder() / "bin" / program).string()));
    for (const std::string& argument : arguments) command += fmt::format(" {}", quoted(argument));
    const int status = run_command(command);
    if (status == timed_out) fmt::print("gave up after {} s: a loop that never ends?\n", time_limit_seconds);
    return status;
}

int show_hint(const std::string& exercise) {
    const Chapter chapter = find_chapter(exercise.substr(0, exercise.find('.')));
    if (chapter.is_capstone()) {
        fmt::print("{} is a capstone, and has no hints: {} is its contract\n", chapter.number(), chapter.lesson());
        return 0;
    }
    const auto known = exercises(read_file(in_project(chapter.solution())));
    const std::string wanted = exercise_id(chapter, exercise);
    std::vector<std::string> ids;
    for (const Exercise& e : known) {
        ids.push_back(e.id);
        if (e.id != wanted) continue;
        const std::vector<std::string> hints = hints_of(chapter, e.id);
        const std::size_t given = std::min(hints_given(chapter, e.id) + 1, hints.size());
        remember_hints(chapter, e.id, given);
        fmt::print("{}  {}\n", e.id, e.statement);
        for (std::size_t i = 0; i < given; ++i) fmt::print("\nHint {} of {}: {}\n", i + 1, hints.size(), hints[i]);
        fmt::print("\n{}\n", given < hints.size()
                                 ? "the same again gives the next one"
                                 : fmt::format("that is all: ./ladder solve {} shows the solution, and keeps your file",
                                               chapter.number()));
        return 0;
    }
    throw std::invalid_argument(
        fmt::format("there is no exercise {} (chapter {} has {})", exercise, chapter.number(), fmt::join(ids, ", ")));
}

int solve_chapter(const Chapter& chapter) {
    replace_learners_file(chapter, read_file(in_project(chapter.solution())));
    fmt::print("{} is the solution now\n", chapter.file());
    return 0;
}

int reset_chapter(const Chapter& chapter) {
    replace_learners_file(chapter, starter_of(chapter));
    fs::remove(given_hints(chapter));
    fmt::print("{} is the starter now\n", chapter.file());
    return 0;
}

}  // namespace flashladder
