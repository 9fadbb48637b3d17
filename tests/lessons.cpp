// Lessons: few words before the first exercise, one exercise that is a kernel's heart, hints in steps, and what a hole
// holds stands nowhere where its reader has already been.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "blame.h"
#include "chapters.h"
#include "exercises.h"
#include "files.h"
#include "harness/project_root.h"
#include "tokens.h"

namespace flashladder {
namespace {

using Lines = std::vector<std::string>;

constexpr std::size_t most_words = 900;                  // before the first exercise
constexpr std::size_t least_lines = 10, most_lines = 60;  // of a build exercise

Lines copied_lines(std::string_view text) {
    const std::vector<std::string_view> lines = lines_of(text);
    return {lines.begin(), lines.end()};
}

bool contains(const Lines& lines, std::string_view text) { return std::ranges::count(lines, text) > 0; }

// ---- what is code, and what prose

/// A page of markdown, line by line; a table is neither.
struct Page {
    Lines code;
    std::string prose;
};
Page split(const Lines& lines) {
    Page page;
    bool fenced = false;
    for (const std::string& line : lines) {
        if (line.starts_with("```")) fenced = !fenced;
        else if (fenced || line.starts_with("    ")) page.code.push_back(line);
        else if (!line.starts_with("|") && !line.starts_with("#")) page.prose += line + "\n";
    }
    for (std::size_t at = 0; (at = page.prose.find('`', at)) != std::string::npos;) {
        const std::size_t end = page.prose.find('`', at + 1);
        if (end == std::string::npos) break;
        page.code.push_back(page.prose.substr(at + 1, end - at - 1));
        at = end + 1;
    }
    return page;
}

std::size_t words(const std::string& prose) {
    std::istringstream stream(prose);
    std::size_t n = 0;
    for (std::string word; stream >> word;) n += std::ranges::any_of(word, of_word);
    return n;
}

// ---- whether two lines say the same

/// What a line computes: its tokens without declarations, brackets and products' signs, which formulas do without;
/// names are numbered as they come, and all functions are one; nothing is left of `for (int i = 0; i < n; ++i)`.
Lines essence(std::string_view line) {
    static const std::set<std::string, std::less<>> silent = {"*", "(", ")", "[", "]", "{", "}", ";", ",", ".", "&",
                                                             "::", "->", "const", "auto", "int", "unsigned", "float",
                                                             "std", "size_t", "constexpr"};
    std::vector<Token> tokens = tokens_of(line);
    const auto is = [&](std::size_t i, std::string_view text) { return i < tokens.size() && tokens[i].text == text; };
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        if (!is(i, "for")) continue;
        std::size_t end = i + 1, depth = 0;
        std::string header;
        for (; end < tokens.size(); ++end) {
            header += std::string(tokens[end].text) + " ";
            if (is(end, "(")) ++depth;
            if (is(end, ")") && --depth == 0) break;
        }
        if (header.find("< ") != std::string::npos && header.find("= 0 ;") != std::string::npos &&
            (header.find("++") != std::string::npos || header.find("+=") != std::string::npos))
            tokens.erase(tokens.begin() + static_cast<long>(i),
                         tokens.begin() + static_cast<long>(std::min(end + 1, tokens.size())));
    }
    std::map<std::string, std::string, std::less<>> names;
    Lines found;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::string text(tokens[i].text);
        if (silent.contains(text)) continue;
        if (tokens[i].kind != Kind::word || text == "if" || text == "for" || text == "while" || text == "return")
            found.push_back(text);
        else if (is(i + 1, "(")) found.emplace_back("f");
        else found.push_back(names.emplace(text, fmt::format("v{}", names.size())).first->second);
    }
    return found;
}

/// How many tokens are to be changed to make one of the other.
std::size_t distance(const Lines& a, const Lines& b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t corner = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j)
            corner = std::exchange(row[j + 1],
                                   std::min({row[j] + 1, row[j + 1] + 1, corner + (a[i] == b[j] ? 0 : 1)}));
    }
    return row.back();
}

/// Whether who has read one line has the other. Short ones are the same by chance; of long ones a fifth may differ.
bool gives_away(std::string_view shown, std::string_view hidden) {
    const Lines a = essence(shown), b = essence(hidden);
    if (b.size() < 7) return false;
    const std::size_t allowed = b.size() < 10 ? 0 : b.size() / 5;
    if (a.size() > b.size() + allowed || b.size() > a.size() + allowed) return false;
    return distance(a, b) <= allowed;
}

/// The first line of `shown` that gives a line of `hidden` away, with it; "" if none does.
std::string given_away(const Lines& shown, const Lines& hidden) {
    for (const std::string& line : hidden)
        for (const std::string& other : shown)
            if (gives_away(other, line)) return fmt::format("'{}' gives away '{}'", other, line);
    return "";
}

// ---- a rung

struct Rung {
    Chapter chapter;
    Lines lesson;
    std::vector<Exercise> exercises;
    std::map<std::string, Lines> holes;  // the solution's lines of code
    std::map<std::string, Lines> around;  // the starter's lines, but for the exercise's own
};

Rung read(const Chapter& chapter) {
    const auto in_project = [](const std::string& path) { return read_file(project_root() + "/" + path); };
    const std::string solution = in_project(chapter.solution()), starter = make_starter(solution, "all");
    Rung rung{chapter, copied_lines(in_project(chapter.lesson())), exercises(solution), {}, {}};
    std::ranges::sort(rung.exercises, {}, &Exercise::id);  // in the file they stand where they belong
    const Lines lines = copied_lines(solution), given = copied_lines(starter);
    for (const Answer& answer : answers(solution, starter))
        for (int line = answer.first; line < answer.last; ++line)
            if (const std::string& text = lines[static_cast<std::size_t>(line) - 1]; !tokens_of(text).empty())
                rung.holes[answer.id].push_back(text);
    for (const Answer& answer : answers(starter, starter)) {
        Lines& around = rung.around[answer.id] = given;
        around.erase(around.begin() + answer.first - 1, around.begin() + answer.last);
    }
    return rung;
}

/// Where the lesson comes to an exercise: the line of its heading, "### 0.1 ..."; the lesson's end if it does not.
std::size_t heading(const Rung& rung, const std::string& exercise) {
    return static_cast<std::size_t>(
        std::ranges::find_if(rung.lesson,
                             [&](const std::string& l) { return l.starts_with(fmt::format("### {} ", exercise)); }) -
        rung.lesson.begin());
}

/// Files of common/ that these lines link to, line by line.
Lines linked(const Lines& lesson) {
    Lines all;
    const std::string link = "](../../common/";
    for (const std::string& line : lesson)
        for (std::size_t at = 0; (at = line.find(link, at)) != std::string::npos; ++at) {
            const std::size_t begin = at + link.size(), end = line.find_first_of(")#", begin);
            const std::string path = project_root() + "/common/" + line.substr(begin, end - begin);
            if (std::filesystem::is_regular_file(path))
                for (const std::string& of_file : copied_lines(read_file(path))) all.push_back(of_file);
        }
    return all;
}

/// Capstones have no lesson: no words, exercises or hints that lead to them.
std::vector<Rung> capstones() {
    std::vector<Rung> all;
    for (const Chapter& chapter : chapters())
        if (chapter.is_capstone()) all.push_back(read(chapter));
    return all;
}

std::vector<Rung> rungs() {
    std::vector<Rung> all;
    for (const Chapter& chapter : chapters()) {
        if (chapter.is_capstone()) continue;
        Rung rung = read(chapter);
        const bool beside_the_tower = !std::isdigit(static_cast<unsigned char>(chapter.number().back()));  // 14b
        if (!rung.exercises.empty() || !beside_the_tower) all.push_back(std::move(rung));
    }
    REQUIRE(!all.empty());
    return all;
}

TEST_CASE("two lines say the same, names and brackets aside") {
    const std::string merge = "    const float l_new = expf(m_old - m_new) * l_old + expf(m_ij - m_new) * l_ij;";
    CHECK(gives_away("l = exp(m_A - m) l_A + exp(m_B - m) l_B", merge));
    CHECK_FALSE(gives_away("l = exp(m_A - m) l_A + exp(m_B - m) l_A", "l = exp(a - b) c + d"));
    CHECK(gives_away("for (int k = 0; k < 16; ++k) a[k] += b[k] * c[2 * k + 1];",
                     "for (int x = 0; x < d; x += 1) { sum[x] += A[x] * B[2 * x + 1]; }"));
    CHECK_FALSE(gives_away("for (int k = 0; k < 16; ++k) {", "for (int x = 0; x < d; ++x) {"));
    const std::string maximum = "for (int n = 16; n > 0; n /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, n));";
    CHECK(gives_away(maximum, "for (int n = 16; n > 0; n /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, n);"));
    CHECK_FALSE(gives_away("int place = row / 2 + chunk", "int place = chunk ^ row / rows % chunks"));
}

TEST_CASE("a page is code and prose") {
    const Page page = split({"# Title", "", "Some `x = 1` words.", "| a | table |", "    y = 2", "```cpp", "z = 3", "```"});
    CHECK(page.code == Lines{"    y = 2", "z = 3", "x = 1"});
    CHECK(words(page.prose) == 4);
}

TEST_CASE("each exercise stands in the lesson, in their order, and so few words before the first") {
    for (const Rung& rung : rungs()) {
        std::size_t before = 0;
        for (const Exercise& exercise : rung.exercises) {
            const std::size_t at = heading(rung, exercise.id);
            CHECK_MESSAGE(at < rung.lesson.size(), rung.chapter.name, " has no heading '### ", exercise.id, " ...'");
            CHECK_MESSAGE(at > before, rung.chapter.name, ": ", exercise.id, " stands before the exercise below it");
            before = at;
        }
        const std::size_t first = heading(rung, rung.exercises.front().id);
        const std::size_t n = words(split(Lines(rung.lesson.begin(), rung.lesson.begin() + static_cast<long>(first))).prose);
        fmt::print("{}: {} words before the first exercise\n", rung.chapter.number(), n);
        CHECK_MESSAGE(n <= most_words, rung.chapter.name, ": ", n, " words before the first exercise, at most ", most_words);
        CHECK_MESSAGE(contains(rung.lesson, "## What it costs on a GPU"), rung.chapter.name);
    }
}

TEST_CASE("one exercise of a rung is to build") {
    for (const Rung& rung : rungs()) {
        Lines to_build;
        for (const Exercise& exercise : rung.exercises)
            if (exercise.statement.starts_with("Build: ")) to_build.push_back(exercise.id);
        CHECK_MESSAGE(to_build.size() == 1, rung.chapter.name, " has ", to_build.size(),
                      " exercises that begin 'Build: '");
        for (const std::string& id : to_build) {
            const std::size_t lines = rung.holes.at(id).size();
            CHECK_MESSAGE((lines >= least_lines && lines <= most_lines), id, " has ", lines, " lines");
            CHECK_MESSAGE(rung.lesson.at(heading(rung, id)).starts_with(fmt::format("### {} Build: ", id)), id);
        }
        CHECK_MESSAGE(rung.exercises.size() <= 4, rung.chapter.name, " has ", rung.exercises.size(), " exercises");
    }
}

TEST_CASE("what a hole holds stands nowhere above it, nor around it, nor behind a link to common/") {
    for (const Rung& rung : rungs())
        for (const auto& [id, hole] : rung.holes) {
            const Lines above(rung.lesson.begin(), rung.lesson.begin() + static_cast<long>(heading(rung, id)));
            const std::string lesson = given_away(split(above).code, hole), starter = given_away(rung.around.at(id), hole),
                              common = given_away(linked(above), hole);
            CHECK_MESSAGE(lesson.empty(), id, ", its lesson: ", lesson);
            CHECK_MESSAGE(starter.empty(), id, ", its starter: ", starter);
            CHECK_MESSAGE(common.empty(), id, ", a page that its lesson links: ", common);
        }
}

TEST_CASE("how the solution does it stands behind all exercises, and is folded: who scrolls does not read the answer") {
    const std::string fold = "<details><summary>This is the answer: open it when yours is green</summary>";
    for (const Rung& rung : rungs()) {
        const std::string& name = rung.chapter.name;
        const Lines& lesson = rung.lesson;
        const auto begin = std::ranges::find(lesson, "## How the solution does it");
        CHECK_MESSAGE((begin != lesson.end()), name, " has no heading '## How the solution does it'");
        if (begin == lesson.end()) continue;
        for (const Exercise& exercise : rung.exercises)
            CHECK_MESSAGE((lesson.begin() + static_cast<long>(heading(rung, exercise.id)) < begin), name,
                          ": 'How the solution does it' stands before ", exercise.id);
        Lines section;  // without its blank lines
        bool fenced = false;
        for (auto line = begin + 1; line != lesson.end() && (fenced || !line->starts_with("## ")); ++line) {
            if (line->starts_with("```")) fenced = !fenced;
            if (!line->empty()) section.push_back(*line);
        }
        const auto is_fold = [](const std::string& line) { return line.find("details>") != std::string::npos; };
        const bool folded = section.size() > 2 && section.front() == fold && section.back() == "</details>" &&
                            std::ranges::count_if(section, is_fold) == 2;
        CHECK_MESSAGE(folded, name, ": 'How the solution does it' is not folded: the section must begin with '", fold,
                      "' and end with '</details>', and be one piece");
    }
}

TEST_CASE("a capstone is a contract for the whole kernel, which gives nothing of it away") {
    const std::vector<Rung> all = capstones();
    CHECK(!all.empty());
    for (const Rung& rung : all) {
        const std::string& name = rung.chapter.name;
        REQUIRE_MESSAGE(rung.exercises.size() == 1, name, " has ", rung.exercises.size(), " exercises");
        const Exercise& whole = rung.exercises.front();
        CHECK_MESSAGE(whole.id == rung.chapter.number() + ".1", name, ": its exercise is ", whole.id);
        CHECK_MESSAGE(whole.statement.starts_with("Build: "), name);
        CHECK_MESSAGE(!std::filesystem::exists(project_root() + "/chapters/" + name + "/hints.md"), name, " has hints");
        const Page page = split(rung.lesson);
        const std::size_t n = words(page.prose);
        fmt::print("{}: {} words\n", rung.chapter.number(), n);
        CHECK_MESSAGE(n <= most_words, name, ": ", n, " words, at most ", most_words);
        for (const char* heading : {"## The problem", "## What you get", "## What you must leave behind", "## What is counted",
                                    "## How to test"})
            CHECK_MESSAGE(contains(rung.lesson, heading), name, " has no '", heading, "'");
        CHECK_MESSAGE(contains(rung.lesson, "    ./ladder test " + rung.chapter.number()), name);
        const Lines& hole = rung.holes.at(whole.id);
        const std::string lesson = given_away(page.code, hole), starter = given_away(rung.around.at(whole.id), hole),
                          common = given_away(linked(rung.lesson), hole);
        CHECK_MESSAGE(lesson.empty(), name, ": ", lesson);
        CHECK_MESSAGE(starter.empty(), name, ", its starter: ", starter);
        CHECK_MESSAGE(common.empty(), name, ", a page that it links: ", common);
    }
}

TEST_CASE("three hints for each exercise, and none in a lesson") {
    for (const Rung& rung : rungs()) {
        for (const Exercise& exercise : rung.exercises) {
            const auto hints = hints_of(rung.chapter, exercise.id);
            CHECK_MESSAGE(hints.size() == 3, exercise.id, " has ", hints.size(), " hints");
            if (!hints.empty())
                CHECK_MESSAGE(hints.front().find('?') != std::string::npos, exercise.id, ": the first hint is a question");
        }
        CHECK_MESSAGE(!contains(rung.lesson, "<details><summary>Hint</summary>"), rung.chapter.name);
    }
}

}  // namespace
}  // namespace flashladder
