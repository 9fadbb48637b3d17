// Which exercise a failure belongs to: regions of a learner's file, trials, reports.
#include "blame.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "exercises.h"
#include "files.h"
#include "harness/project_root.h"
#include "programs.h"
#include "test.h"

namespace flashladder {
namespace {

const std::string solution =
    "before\n"
    "// EXERCISE 5.1 Do this.\n"
    "// STARTER int x = 0;\n"
    "int x = 1;\n"
    "int y = 2;\n"
    "// END 5.1\n"
    "between\n"
    "// EXERCISE 5.2 Sum.\n"
    "// STARTER\n"
    "sum();\n"
    "// END 5.2\n"
    "after\n";
const std::string file = "chapters/05-name/attention.cu";

/// The starter with an answer to one exercise.
std::string answered(const std::string& id, const std::string& code) {
    return replace_once(make_starter(solution, "all"), "// END " + id, code + "\n// END " + id);
}

TEST_CASE("answers are found with their lines, and what is still the starter's is open") {
    const std::string starter = make_starter(solution, "all");
    const auto begun = answers(answered("5.2", "mine();"), starter);
    REQUIRE(begun.size() == 2);
    CHECK(begun[0].id == "5.1");
    CHECK(begun[0].first == 2);
    CHECK(begun[0].last == 5);
    CHECK(begun[0].open);
    CHECK(begun[1].id == "5.2");
    CHECK_FALSE(begun[1].open);
    // Solved, the file has the solution's markers.
    for (const Answer& answer : answers(solution, starter)) CHECK_FALSE(answer.open);
    // Comments and spaces are no answer.
    CHECK(answers(answered("5.2", "   // how?\n"), starter)[1].open);
    // Without its marker an exercise is nobody's.
    CHECK(answers(replace_once(starter, "// END 5.1\n", ""), starter).size() <= 1);
}

TEST_CASE("what is changed outside the exercises") {
    const std::string starter = make_starter(solution, "all");
    CHECK_FALSE(changed_outside(starter, starter));
    CHECK_FALSE(changed_outside(solution, starter));
    CHECK_FALSE(changed_outside(answered("5.1", "int z;"), starter));
    CHECK(changed_outside(replace_once(starter, "between", "betwixt"), starter));
    CHECK(changed_outside(replace_once(replace_once(starter, "between\n", ""), "before\n", "before\nbetween\n"), starter));
}

TEST_CASE("a trial has one answer of the learner's, and knows their lines") {
    const std::string learners = answered("5.1", "int x = 7;");
    const Trial trial = trial_of(learners, solution, "5.1");
    CHECK(trial.text == replace_once(learners, "// TODO: your code, instead of this.\n// END 5.2\n",
                                     "// STARTER\nsum();\n// END 5.2\n"));
    const Trial other = trial_of(learners, solution, "5.2");
    CHECK(other.text.find("int x = 7;") == std::string::npos);
    CHECK(other.text.find("int y = 2;") != std::string::npos);
    const auto line_of = [](const std::string& text, const std::string& part) {
        return 1 + std::count(text.begin(), text.begin() + static_cast<long>(text.find(part)), '\n');
    };
    const auto in_trial = [&](const Trial& t, const std::string& part) {
        return t.lines.at(static_cast<std::size_t>(line_of(t.text, part) - 1));
    };
    CHECK(in_trial(trial, "int x = 7;").number == line_of(learners, "int x = 7;"));
    CHECK(in_trial(trial, "int x = 7;").exercise == "");
    CHECK(in_trial(trial, "after").number == line_of(learners, "after"));
    CHECK(in_trial(other, "int y = 2;").number == line_of(learners, "// EXERCISE 5.1"));
    CHECK(in_trial(other, "int y = 2;").exercise == "5.1");
    CHECK(in_trial(other, "after").number == line_of(learners, "after"));

    const std::string report = "race: read at ./trials/05.cu:" + std::to_string(line_of(other.text, "after")) +
                               "\n  source /b/trials/05.cu:" + std::to_string(line_of(other.text, "int y = 2;")) +
                               " end";
    CHECK(with_learners_lines(report, "trials/05.cu", other, file) ==
          "race: read at " + file + ":" + std::to_string(line_of(learners, "after")) + "\n  source " + file + ":" +
              std::to_string(line_of(learners, "// EXERCISE 5.1")) + ", by the solution's 5.1 end");
}

TEST_CASE("the exercises whose lines a report names") {
    const std::string starter = make_starter(solution, "all");
    const auto all = answers(starter, starter);
    const auto at = [](int line) { return file + ":" + std::to_string(line); };
    CHECK(named_in("race: write at " + at(all[1].first + 1) + " and read at " + at(all[0].last), file, all) ==
          std::vector<std::string>{"5.2", "5.1"});
    // Of a race, first those that have led to the access that is reported.
    CHECK(named_in("race: write\n  not ordered behind read at common/tile.h:7\n    called at  " + at(all[0].last) +
                       "\n  source     common/tile.h:5\n  called at  " + at(all[1].last),
                   file, all) == std::vector<std::string>{"5.2", "5.1"});
    CHECK(named_in("out of bounds at " + at(1), file, all).empty());
    CHECK(named_in("at chapters/06-other/attention.cu:3", file, all).empty());
}

TEST_CASE("the place of a report: a line of an exercise, before one that was the solution's, and one of what is given") {
    const std::string chapter = "chapters/14-lcsf/attention.cu", text = read_file(project_root() + "/" + chapter);
    const auto in = [&](const std::string& exercise) {
        const auto begin = text.begin() + static_cast<long>(text.find("// EXERCISE " + exercise));
        return fmt::format("{}:{}", chapter, 2 + std::count(text.begin(), begin, '\n'));
    };
    const auto place_of = [&](const std::string& earlier, const std::string& at) {
        const std::string told = told_report("race: write\n  not ordered behind read\n    called at  " + earlier +
                                             "\n  source     common/tile.h:5\n  called at  " + at, chapter);
        return told.substr(2, told.find(": race") - 2);
    };
    const std::string given = chapter + ":1", solved = in("14.2") + ", by the solution's 14.2";
    CHECK(place_of(in("14.3"), in("14.2")) == in("14.2"));
    CHECK(place_of(in("14.3"), solved) == in("14.3"));
    CHECK(place_of(in("14.3"), given) == in("14.3"));
    CHECK(place_of(given, solved) == in("14.2"));
    CHECK(place_of(given, given) == given);
}

TEST_CASE("of a compiler's words the first error, behind the learner's line where that is another") {
    const std::string path = project_root() + "/" + file;
    const std::string own = path + ":9: warning: unused\n" + path + ":12:5: error: no x\n   12 | x\n      | ^\n" +
                            path + ":13:5: error: no y\n";
    CHECK(first_error(own, file) == file + ":12:5: error: no x\n   12 | x\n      | ^\n");
    const std::string by_gcc = "In file included from " + path + ":3:\n" + path + ":12:5:   required from here\n" +
                               project_root() + "/common/launch.h:80:3: error: no match\n   80 | f();\n" + path +
                               ":20:1: error: another\n";
    CHECK(first_error(by_gcc, file) ==
          file + ":12:5:   required from here\ncommon/launch.h:80:3: error: no match\n   80 | f();\n");
    const std::string by_clang =
        "common/launch.h:80:3: error: no match\n   80 | f();\n" + file + ":12:5: note: in instantiation of\n";
    CHECK(first_error(by_clang, file) ==
          file + ":12:5: note: in instantiation of\ncommon/launch.h:80:3: error: no match\n   80 | f();\n");
    CHECK(first_error("ninja: build stopped\n", file).empty());
    const std::string numbers = "common/a.h:3:5: error: static assertion failed\n    3 | static_assert(x <= y);\n"
                                "common/a.h:3:5: note: the comparison reduces to '(3 <= 2)'\n";
    CHECK(first_error(numbers + file + ":20:1: error: another\n", file) == numbers);
}

TEST_CASE("of what a build said, the compiler's words without the command line") {
    const std::string said = "/home/a/common/a.h: In instantiation of 'struct A<3, 2>':\n/home/a/common/a.h:3:5: error: "
                             "static assertion failed\n    3 | static_assert(x <= y);\n/home/a/common/a.h:3:5: note: the "
                             "comparison reduces to '(3 <= 2)'\n";
    CHECK(without_noise("[1/2] Building\nFAILED: a.o\n/usr/bin/c++ -Werror -c a.cu\n" + said +
                        "ninja: build stopped\n") == said);
}

}  // namespace
}  // namespace flashladder
