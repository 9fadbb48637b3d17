// What people write for the exercises, and what `ladder test` must say of it: answers/NN.json, an array of
//   name       of the answer
//   write      {exercise: its lines}, in place of the solution's; what is not named is solved
//   change     [[from, to], ...] anywhere in the file, each of which occurs once; instead of `write`, or after it
//   open       exercises that are not begun
//   right      true: it is green, while all later ones are open too. Else
//   told       {exercise: the guilty one, or "outside"; says: words of the first line, or an array, of
//              which one will do; at: code on the line it names; also: words of any line behind it, or an array, of which
//              all are to be there}
//   known      why it is told wrongly today: counted, but no failure
// A right answer that is red is a failure; of the wrong ones one in twenty may be told something else.
// LADDER_ANSWERS=12 takes so many, drawn by the seed; all: each. LADDER_ANSWERS_RUNG=05,06: of these rungs alone.
// LADDER_ANSWERS_PART=2/3: of these every third, from the second on, for machines with many cores.
// LADDER_ANSWERS_KIND=right: the right ones alone, which take seconds where the wrong ones take minutes; wrong: the
// others. LADDER_ANSWERS_JSON=FILE gets what each was told.
//
// And solutions, tested as a learner's file is: compiled with its options, whole and up to each exercise. LADDER_SOLVED=2
// chapters, by the seed; or all.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <string_view>

#include "blame.h"
#include "chapters.h"
#include "command_result.h"
#include "environment.h"
#include "exercises.h"
#include "files.h"
#include "test_seed.h"

namespace flashladder {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// Where the copy is that copy_project.cmake has made, whose chapters may be written.
std::string project() { return environment("LADDER_TEST_PROJECT", ""); }

std::string in_project(const std::string& path) { return project() + "/" + path; }
Chapter chapter_of(const std::string& rung) { return {rung, operation_in(in_project("solutions/" + rung))}; }

struct Answered {
    std::string rung;  // "02-shared-memory-tiling"
    Json answer;
};

std::vector<Answered> all_answers() {
    std::vector<Answered> all;
    for (const auto& file : fs::directory_iterator(ANSWERS))
        for (const Json& answer : Json::parse(read_file(file.path().string())))
            all.push_back({file.path().stem(), answer});
    std::ranges::sort(all, {}, [](const Answered& a) { return a.rung + a.answer.at("name").get<std::string>(); });
    return all;
}

std::string joined(const Json& lines) {
    std::string text;
    for (const Json& line : lines) text += line.get<std::string>() + "\n";
    return text;
}

/// Lines `first` to `last` of a text, counted from 1.
std::string part_of(const std::string& text, int first, int last) {
    std::size_t begin = 0;
    for (int i = 1; i < first; ++i) begin = text.find('\n', begin) + 1;
    std::size_t end = begin;
    for (int i = first; i <= last; ++i) end = text.find('\n', end) + 1;
    return text.substr(begin, end - begin);
}

/// The file as they have it: the starter, with code between the markers of what is begun.
std::string learners_file(const std::string& solution, const Json& answer, bool later_open) {
    const std::string starter = make_starter(solution, "all");
    std::string text = starter;
    for (const Exercise& exercise : exercises(solution)) {
        const Json write = answer.value("write", Json::object());
        const Json open = answer.value("open", Json::array());
        const bool begun = write.contains(exercise.id);
        const bool later = later_open && !write.empty() && write.items().begin().key() < exercise.id;
        if (!begun && (later || std::ranges::count(open, Json(exercise.id)))) continue;
        const std::vector<Answer> theirs = answers(text, starter), right = answers(solution, starter);
        const auto find = [&](const std::vector<Answer>& all) {
            return *std::ranges::find(all, exercise.id, &Answer::id);
        };
        const Answer hole = find(theirs), solved = find(right);
        std::string code = begun ? joined(write[exercise.id]) : part_of(solution, solved.first, solved.last - 1);
        const std::string end = part_of(text, hole.last, hole.last);
        if (begun) code = fmt::format("    // EXERCISE {} mine\n{}", exercise.id, code);
        text = part_of(text, 1, hole.first - 1) + code + end +
               part_of(text, hole.last + 1, static_cast<int>(std::ranges::count(text, '\n')));
    }
    for (const Json& change : answer.value("change", Json::array()))
        text = replace_once(text, change.at(0).get<std::string>(), change.at(1).get<std::string>());
    return text;
}

/// What `ladder test` says of a learner's file.
struct Told {
    int status = 0;
    std::string output, exercise, first;  // the guilty one; the line that says why
};

Told tell(const std::string& rung, const std::string& text, const std::string& seeds = "1") {
    write_file(in_project(chapter_of(rung).file()), text);
    const std::string log = (fs::temp_directory_path() / fmt::format("answers-{}.log", getpid())).string();
    const std::string command = fmt::format("cd / && '{}/build/cpu/bin/ladder' test {} --seed {} --seeds {} > {} 2>&1",
                                            project(), number_of(rung), test_seed(), seeds, log);
    const int status = std::system(command.c_str());
    Told told{WEXITSTATUS(status), read_file(log), "", ""};
    fs::remove(log);
    const std::string begin = "\n\n";
    const std::size_t heading = told.output.find(begin);
    if (heading == std::string::npos) return told;
    const std::size_t first = told.output.find('\n', heading + begin.size()) + 1;
    told.first = told.output.substr(first, told.output.find('\n', first) - first);
    const auto word_behind = [&](const std::string& words, std::size_t from) {
        const std::size_t at = told.output.find(words, from);
        return at == std::string::npos
                   ? ""
                   : told.output.substr(at + words.size(),
                                        told.output.find_first_of(":,\n ", at + words.size()) - at - words.size());
    };
    if (told.output.find("it comes from a change outside", heading) != std::string::npos)
        told.exercise = "outside";
    else if (told.output.compare(heading + begin.size(), 9, "EXERCISE ") == 0)
        told.exercise = word_behind("EXERCISE ", heading);
    return told;
}

/// Whether the exercises of a learner's file are green by so many seeds; of all, those that `cases` names.
bool exercises_green(const std::string& rung, const std::string& text, const std::string& seeds,
                     const std::string& cases = "EXERCISE*") {
    write_file(in_project(chapter_of(rung).file()), text);
    const std::string target = "exercises-" + number_of(rung), build = project() + "/build/cpu";
    return std::system(fmt::format("cmake --build '{0}' --target {1} > /dev/null 2>&1 && "
                                   "'{0}/bin/{1}' --test-case='{4}' --seed={2} --seeds={3} > /dev/null 2>&1",
                                   build, target, test_seed(), seeds, cases)
                           .c_str()) == 0;
}

/// "B 1 H 2 N 512 d 64" of a line that says so twice; "" of others.
std::string shape_said_twice(std::string_view line) {
    static const std::regex shape("B \\d+ H \\S+ N \\S+ d \\d+");
    const std::string text(line);
    std::set<std::string> said;
    for (auto found = std::sregex_iterator(text.begin(), text.end(), shape); found != std::sregex_iterator(); ++found)
        if (!said.insert(found->str()).second) return found->str();
    return "";
}

/// What is not as the answer's `told` wants it; "" if nothing is.
std::string why_wrong(const Told& told, const Json& wanted, const std::string& text) {
    if (told.status != 1) return fmt::format("status {}", told.status);
    for (const std::string_view line : lines_of(told.output))
        if (const std::string shape = shape_said_twice(line); !shape.empty())
            return fmt::format("a line says '{}' twice", shape);
    if (const std::string exercise = wanted.at("exercise"); told.exercise != exercise)
        return fmt::format("told under '{}', not {}", told.exercise, exercise);
    if (const Json says = wanted.value("says", Json(""));
        std::ranges::none_of(says.is_array() ? says : Json{says}, [&](const Json& words) {
            return told.first.find(words.get<std::string>()) != std::string::npos;
        }))
        return fmt::format("the first line does not say {}", says.dump());
    if (const std::string at = wanted.value("at", ""); !at.empty()) {
        const std::size_t found = text.find(at);
        if (found == std::string::npos) return fmt::format("the answer has no '{}'", at);
        const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<long>(found), '\n');
        if (told.first.find(fmt::format(".cu:{}:", line)) == std::string::npos)
            return fmt::format("the first line does not name line {}, '{}'", line, at);
    }
    if (const Json also = wanted.value("also", Json(""));
        !std::ranges::all_of(also.is_array() ? also : Json{also}, [&](const Json& words) {
            return told.output.find(words.get<std::string>()) != std::string::npos;
        }))
        return fmt::format("it does not say {}", also.dump());
    return "";
}

/// The starter again, as it was before.
void reset(const std::string& rung) {
    write_file(in_project(chapter_of(rung).file()),
               make_starter(read_file(in_project(chapter_of(rung).solution())), "all"));
}

/// Rungs with exercises: as many as LADDER_SOLVED says, drawn, or all; and by how many seeds these are tried.
struct Chapters {
    std::vector<std::string> rungs;
    std::string seeds;
};
Chapters drawn_chapters() {
    REQUIRE_MESSAGE(!project().empty(), "run this through ctest, which makes the copy that LADDER_TEST_PROJECT names");
    std::vector<std::string> rungs;
    for (const auto& folder : fs::directory_iterator(in_project("chapters")))
        if (const std::string rung = folder.path().filename();
            !exercises(read_file(in_project(chapter_of(rung).solution()))).empty())
            rungs.push_back(rung);
    std::ranges::sort(rungs);
    REQUIRE(rungs.size() >= 15);
    const std::string asked = environment("LADDER_SOLVED", "2");
    if (asked == "all") return {rungs, "3"};
    std::mt19937_64 random(test_seed());
    std::ranges::shuffle(rungs, random);
    rungs.resize(std::min(rungs.size(), static_cast<std::size_t>(std::stoul(asked))));
    return {rungs, "1"};
}

TEST_CASE("solved: what comes before an exercise is green while it and all later ones are open") {
    const auto [rungs, seeds] = drawn_chapters();
    for (const std::string& rung : rungs) {
        const std::string solution = read_file(in_project(chapter_of(rung).solution()));
        std::vector<Exercise> later = exercises(solution);
        std::ranges::sort(later, {}, &Exercise::id);  // in the file some stand before those that come first
        std::string before;  // their cases
        while (later.size() > 1) {
            before += fmt::format("{}EXERCISE {}:*", before.empty() ? "" : ",", later.front().id);
            later.erase(later.begin());
            Json open = Json::array();
            for (const Exercise& exercise : later) open.push_back(exercise.id);
            const bool green =
                exercises_green(rung, learners_file(solution, {{"open", open}}, false), seeds, before);
            CHECK_MESSAGE(green, rung, ": one of ", before, " is red while ", open.dump(), " are open");
            fmt::print("{} before {} {}\n", rung, later.front().id, green ? "green" : "red");
            std::fflush(stdout);
        }
        reset(rung);
    }
}

TEST_CASE("solved: a chapter is green") {
    const auto [rungs, seeds] = drawn_chapters();
    for (const std::string& rung : rungs) {
        const Told told = tell(rung, read_file(in_project(chapter_of(rung).solution())), seeds);
        CHECK_MESSAGE(told.status == 0, rung, ": red with the solution in it\n", told.output);
        reset(rung);
        fmt::print("{} {}\n", rung, told.status == 0 ? "green" : "red");
        std::fflush(stdout);
    }
}

TEST_CASE("every answer can be put into its chapter") {  // the next test draws some
    REQUIRE_MESSAGE(!project().empty(), "run this through ctest, which makes the copy that LADDER_TEST_PROJECT names");
    for (const auto& [rung, answer] : all_answers()) {
        CAPTURE(rung);
        CAPTURE(answer.at("name").get<std::string>());
        CHECK_NOTHROW(learners_file(read_file(in_project(chapter_of(rung).solution())), answer, false));
    }
}

TEST_CASE("what people write is told what is wrong with it") {
    REQUIRE_MESSAGE(!project().empty(), "run this through ctest, which makes the copy that LADDER_TEST_PROJECT names");
    const std::string asked = environment("LADDER_ANSWERS", "12");
    const bool each_one = asked == "all";
    std::vector<Answered> drawn = all_answers();
    const std::string rungs = environment("LADDER_ANSWERS_RUNG", "");
    std::erase_if(drawn, [&](const Answered& a) {  // commas, lest 14b be 14 too
        return !rungs.empty() && ("," + rungs + ",").find("," + number_of(a.rung) + ",") == std::string::npos;
    });
    const std::string kind = environment("LADDER_ANSWERS_KIND", "");
    REQUIRE_MESSAGE((kind.empty() || kind == "right" || kind == "wrong"), "LADDER_ANSWERS_KIND is right or wrong");
    std::erase_if(
        drawn, [&](const Answered& a) { return !kind.empty() && a.answer.value("right", false) != (kind == "right"); });
    if (const std::string part = environment("LADDER_ANSWERS_PART", "1/1"); part != "1/1") {
        const std::size_t slash = part.find('/');
        REQUIRE_MESSAGE(slash != std::string::npos, "LADDER_ANSWERS_PART is like 2/3");
        const std::size_t first = std::stoul(part), of = std::stoul(part.substr(slash + 1));
        std::vector<Answered> mine;
        for (std::size_t i = first - 1; i < drawn.size(); i += of) mine.push_back(drawn[i]);
        drawn = mine;
    }
    REQUIRE(!drawn.empty());
    const auto each = drawn.size();
    std::mt19937_64 random(test_seed());
    std::ranges::shuffle(drawn, random);
    if (!each_one) {
        // A right one is tested whole, and takes as long as ten wrong ones: one in ten, unless these alone are wanted.
        const std::size_t many = std::stoul(asked), most_right = kind.empty() ? many / 10 : many;
        std::size_t right = 0;
        std::erase_if(drawn, [&](const Answered& a) { return a.answer.value("right", false) && right++ >= most_right; });
        drawn.resize(std::min(drawn.size(), many));
    }
    // Those of a rung one after the other: what it is built from stays in memory.
    std::ranges::stable_sort(drawn, {}, &Answered::rung);

    Json results = Json::array();
    std::size_t wrong = 0, told_right = 0, told_wrong = 0;  // the last without those that are known
    for (const auto& [rung, answer] : drawn) {
        const std::string name = answer.at("name");
        const std::string solution = read_file(in_project(chapter_of(rung).solution()));
        const bool right = answer.value("right", false);
        std::string why;
        Told told;
        if (right) {
            const std::string text = learners_file(solution, answer, false);
            if (!exercises_green(rung, text, each_one ? "10" : "1")) {
                why = "an exercise is red, though all is right";
                told = tell(rung, text);
            } else if (each_one) {
                told = tell(rung, text);
                if (told.status != 0) why = "red, though all is right";
            }
            if (const Json write = answer.value("write", Json::object()); why.empty() && !write.empty()) {
                told = tell(rung, learners_file(solution, answer, true));
                for (const auto& [exercise, lines] : write.items())
                    if (told.output.find(fmt::format("ok    EXERCISE {}:", exercise)) == std::string::npos)
                        why = fmt::format("{} is red while later ones are open", exercise);
            }
        } else {
            const std::string text = learners_file(solution, answer, false);
            told = tell(rung, text);
            why = why_wrong(told, answer.at("told"), text);
            ++wrong;
            told_right += why.empty();
        }
        results.push_back({{"rung", rung},
                           {"name", name},
                           {"right", right},
                           {"first", told.first},
                           {"exercise", told.exercise},
                           {"why_wrong", why}});
        fmt::print("{} {:<52} {}\n", number_of(rung), name, why.empty() ? "as it should be" : why);
        std::fflush(stdout);
        // After each: who stops it has what is there.
        if (const std::string file = environment("LADDER_ANSWERS_JSON", ""); !file.empty())
            write_file(file, Json{{"answers", results}, {"wrong", wrong}, {"told_right", told_right}}.dump(1) + "\n");
        if (why.empty() || answer.contains("known")) continue;
        const std::string whole = fmt::format("{} {}: {}\n{}", rung, name, why, told.output);
        if (right)
            FAIL_CHECK(whole);
        else
            fmt::print("{}\n", whole), ++told_wrong;
    }
    std::set<std::string> written;
    for (const Answered& each_of : drawn) written.insert(each_of.rung);
    for (const std::string& rung : written) reset(rung);
    fmt::print("{} of {} answers; of {} wrong ones {} are told what is wrong\n", drawn.size(), each, wrong, told_right);
    // Who races with whom first, and what is seen of it, is the seed's: so one in twenty may be told something else, and of
    // some that are drawn three more by chance.
    const std::size_t allowed = each_one ? wrong / 20 : wrong / 20 + 3;
    CHECK_MESSAGE(told_wrong <= allowed, told_wrong, " of ", wrong, " wrong answers are told something else; at most ",
                  allowed);
}

}  // namespace
}  // namespace flashladder
