// Markers in solutions, starters, hints, and the mutants' replacements.
#include "exercises.h"

#include <doctest/doctest.h>

#include "chapters.h"
#include "files.h"
#include "harness/project_root.h"
#include "moved.h"
#include "mutants.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace flashladder {
namespace {

const std::string solution =
    "before\n"
    "    // EXERCISE 5.1 Do this,\n"
    "    // and that.\n"
    "    // STARTER int x = 0;\n"
    "    // STARTER use(x);\n"
    "    // why it is so\n"
    "    int x = 1;\n"
    "    // END 5.1\n"
    "between\n"
    "// EXERCISE 5.2 Sum.\n"
    "// STARTER\n"
    "sum();\n"
    "// END 5.2\n"
    "after\n";

std::string message(const std::string& text) {
    try {
        exercises(text);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("exercises are found, with their whole statements") {
    const auto found = exercises(solution);
    REQUIRE(found.size() == 2);
    CHECK(found[0].id == "5.1");
    CHECK(found[0].statement == "Do this, and that.");
    CHECK(found[1].statement == "Sum.");
}

TEST_CASE("a starter has the starter lines, the statement, and nothing of the solution") {
    CHECK(make_starter(solution, "all") ==
          "before\n"
          "    // EXERCISE 5.1 Do this,\n"
          "    // and that.\n"
          "    // TODO: your code, instead of this.\n"
          "    int x = 0;\n"
          "    use(x);\n"
          "    // END 5.1\n"
          "between\n"
          "// EXERCISE 5.2 Sum.\n"
          "// TODO: your code, instead of this.\n"
          "// END 5.2\n"
          "after\n");
}

TEST_CASE("with one exercise open, the others are solved and unmarked") {
    CHECK(make_starter(solution, "5.2") ==
          "before\n"
          "    // why it is so\n"
          "    int x = 1;\n"
          "between\n"
          "// EXERCISE 5.2 Sum.\n"
          "// TODO: your code, instead of this.\n"
          "// END 5.2\n"
          "after\n");
    CHECK_THROWS_WITH(make_starter(solution, "5.3"), "there is no exercise 5.3");
}

TEST_CASE("markers that do not match are named with their line") {
    CHECK(message("// EXERCISE 1.1 a\n// STARTER\n") == "EXERCISE 1.1 has no END");
    CHECK(message("x\n// END 1.1\n") == "line 2: END 1.1 closes no exercise");
    CHECK(message("// EXERCISE 1.1 a\n// STARTER\n// END 1.2\n") == "line 3: END 1.2 closes no exercise");
    CHECK(message("// EXERCISE 1.1 a\n// EXERCISE 1.2 b\n") == "line 2: EXERCISE inside EXERCISE 1.1");
    CHECK(message("// EXERCISE 1.1\n") == "line 1: EXERCISE without a statement");
    CHECK(message("// EXERCISE 1.1 a\nx\n// END 1.1\n") == "line 3: EXERCISE 1.1 has no STARTER");
    CHECK(message("// EXERCISES are words here\n").empty());
}

TEST_CASE("what a rung has moved to common/ comes behind what is its idea") {
    const std::string below = "int kept() {\n    return 1;\n}\n"
                              "/// Goes.\ntemplate <class T>\nstruct Ring {\n    int slot;\n    void init() {\n"
                              "        first(slot);\n    }\n};\n"
                              "struct Old {\n    void init() { slot = 0; }\n};\n"
                              "void last() {\n    kept();\n}\n";
    const std::string above = "int kept() {\n    return 2;\n}\nvoid last() {\n    kept();\n}\n";
    const auto moved = moved_lines(below, above, {{"ring.h", "struct Ring {\n    void init() {\n    }\n};\n"}});
    std::string lines;
    for (const auto& [line, definition] : moved) lines += std::to_string(line) + " " + definition.name + " " + definition.header + ", ";
    CHECK(lines == "3 Ring ring.h, 4 Ring ring.h, 5 Ring ring.h, 6 Ring ring.h, 7 init ring.h, 8 init ring.h, 9 init ring.h, "
                   "10 Ring ring.h, ");
    const std::string difference = "--- below\n+++ above\n@@ -1,5 +1,3 @@\n int kept() {\n-    return 1;\n+    return 2;\n }\n"
                                   "-/// Goes.\n-template <class T>\n@@ -11,1 +4,0 @@\n-};\n@@ -14,1 +5,0 @@\n-};\n";
    CHECK(idea_first(difference, moved) ==
          "--- below\n+++ above\n@@ -1,3 +1,3 @@\n int kept() {\n-    return 1;\n+    return 2;\n }\n@@ -14,1 +5,0 @@\n-};\n"
          "\nMoved to common/ring.h: Ring\n-/// Goes.\n-template <class T>\n-};\n");
    CHECK(idea_first("--- below\n+++ above\n@@ -4,1 +3,0 @@\n-/// Goes.\n", moved) ==
          "--- below\n+++ above\n\nMoved to common/ring.h: Ring\n-/// Goes.\n");
}

TEST_CASE("a mutant replaces what occurs once, and nothing else") {
    CHECK(replace_once("a b c", "b", "x") == "a x c");
    CHECK_THROWS_WITH(replace_once("a b b", "b", "x"), "found more than once: b");
    CHECK_THROWS_WITH(replace_once("a", "b", "x"), "not found: b");
    CHECK_THROWS(replace_once("a", "", "x"));
}

TEST_CASE("every mutant can be made") {  // ctest builds a part of them, drawn when it is configured
    for (const Chapter& chapter : chapters()) {
        const std::string file = project_root() + "/tests/mutants/" + chapter.name + ".json";
        if (!std::filesystem::exists(file)) continue;
        const std::filesystem::path path = project_root() + "/" + chapter.solution();
        const std::filesystem::path file_of_variants = std::filesystem::path(path).replace_filename("variants.cu");
        const std::string solution = read_file(path.string()), mutants = read_file(file);
        const std::string variants = exists(file_of_variants) ? read_file(file_of_variants.string()) : "";
        for (const std::string& name : mutant_names(mutants)) {
            CAPTURE(chapter.name);
            CAPTURE(name);
            CHECK_NOTHROW(make_mutant(solution, variants, mutants, name));
        }
    }
}

TEST_CASE("hints are the items of their section") {
    const std::string hints =
        "# Hints\n\n## 1.1 One\n\n1. first?\n2. second\n   line\n\n       code\n\n3. third\n2. no item\n\n## 1.10 Ten\nten\n2.\n";
    CHECK(hints_for(hints, "1.1") == std::vector<std::string>{"first?", "second\nline\n\n    code", "third\n2. no item"});
    CHECK(hints_for(hints, "1.10") == std::vector<std::string>{"ten\n2."});
    CHECK(hints_for(hints, "1.2").empty());
}

TEST_CASE("numbers of rungs, variants and capstones; each capstone stands behind its part, and has no hints") {
    CHECK(number_of("07-async-copies") == "07");
    CHECK(number_of("14b-gemm") == "14b");
    CHECK(number_of("05-warp-partitioning/split-K") == "05");
    CHECK(number_of("capstone-1-sliding-window") == "capstone-1");
    const Chapter capstone = find_chapter("capstone-1");
    CHECK(capstone.is_capstone());
    CHECK(capstone.name == "capstone-1-sliding-window");
    CHECK(capstone.operation == "modified_attention");
    CHECK(hints_of(capstone, "capstone-1.1").empty());
    CHECK(capstone.reached() == "03");
    CHECK_FALSE(find_chapter("14b").is_capstone());
    CHECK(find_chapter("14b").reached() == "14b");
    CHECK(find_chapter("capstone-4").reached() == "25");  // the last of a part that is being built
    const std::vector<Chapter> all = chapters();
    const auto at = std::ranges::find(all, capstone.name, &Chapter::name);
    REQUIRE(at != all.end());
    CHECK((at - 1)->number() == "03");
    CHECK((at + 1)->number() == "04");
}

TEST_CASE("each exercise is found by its own id, and with the chapter's number in two digits") {
    for (const Chapter& chapter : chapters())
        for (const Exercise& exercise : exercises(read_file(project_root() + "/" + chapter.solution()))) {
            const std::string id = exercise.id;
            CHECK(find_chapter(id.substr(0, id.find('.'))).name == chapter.name);
            CHECK(exercise_id(chapter, id) == id);
        }
    CHECK(exercise_id(find_chapter("03"), "03.2") == "3.2");
    CHECK(exercise_id(find_chapter("00"), "0.1") == "0.1");
    CHECK(exercise_id(find_chapter("14b"), "14b.2") == "14b.2");
}

TEST_CASE("below a rung is the one before it of its operation, or the one that it is made of, whatever the numbers between") {
    const auto number_below = [](const char* rung) {
        const auto lower = below(find_chapter(rung));
        return lower ? lower->number() : "none";
    };
    CHECK(number_below("07") == "06");
    CHECK(number_below("26") == "14");
    CHECK(number_below("26b") == "26");
    for (const char* lowest : {"00", "14b", "15", "capstone-1"}) CHECK(number_below(lowest) == "none");
}

TEST_CASE("files: written whole, read back, errors name the file") {
    const auto folder = std::filesystem::temp_directory_path() / ("flashladder-" + std::to_string(getpid()));
    const std::string path = (folder / "deep" / "file").string();
    write_file(path, "text");
    CHECK(read_file(path) == "text");
    const auto time = std::filesystem::last_write_time(path);
    write_file(path, "text");
    CHECK(std::filesystem::last_write_time(path) == time);
    std::filesystem::remove_all(folder);
    CHECK_THROWS_WITH(read_file(path), (path + " cannot be read").c_str());
    CHECK_THROWS_WITH(read_file("/"), "/ cannot be read");
}

TEST_CASE("files: an empty one can be read, and be written again") {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("flashladder-" + std::to_string(getpid()))).string();
    write_file(path, "");
    CHECK(read_file(path).empty());
    write_file(path, "text");
    CHECK(read_file(path) == "text");
    std::filesystem::remove(path);
}

TEST_CASE("files: links are followed; pipes and devices are written in place") {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() / ("flashladder-" + std::to_string(getpid()));
    fs::create_directories(folder / "real");
    const auto at = [&](const char* name) { return (folder / name).string(); };
    fs::create_symlink("real/file", at("link"));  // to a file that is not there yet
    fs::create_symlink("link", at("link-to-link"));
    for (const char* text : {"first", "second"}) {
        check_can_be_written(at("link-to-link"));
        write_file(at("link-to-link"), text);
        CHECK(read_file(at("real/file")) == text);
    }
    CHECK(fs::is_symlink(at("link-to-link")));
    CHECK(fs::is_symlink(at("link")));
    fs::create_symlink("circle", at("circle"));
    CHECK_THROWS_WITH(write_file(at("circle"), "text"), (at("circle") + " cannot be written").c_str());
    CHECK_THROWS_WITH(check_can_be_written(at("circle")), (at("circle") + " cannot be written").c_str());

    REQUIRE(mkfifo(at("pipe").c_str(), 0600) == 0);
    const int reader = open(at("pipe").c_str(), O_RDWR | O_NONBLOCK);
    check_can_be_written(at("pipe"));
    write_file(at("pipe"), "text");
    char text[8] = {};
    CHECK(read(reader, text, sizeof(text)) == 4);
    CHECK(std::string(text) == "text");
    CHECK(fs::is_fifo(at("pipe")));
    close(reader);
    fs::create_symlink("/dev/full", at("full"));  // behind a link, which is all that a mistake here could replace
    check_can_be_written(at("full"));
    CHECK_THROWS_WITH(write_file(at("full"), "text"), (at("full") + " cannot be written").c_str());
    CHECK(fs::is_symlink(at("full")));
    for (const auto& entry : fs::recursive_directory_iterator(folder)) CHECK(entry.path().extension() != ".new");
    fs::remove_all(folder);
}

}  // namespace
}  // namespace flashladder
