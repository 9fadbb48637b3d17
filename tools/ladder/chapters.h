// The verbs for a learner: which chapters there are, hints, solutions, starting anew.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flashladder {

/// "01" of "01-minimal-flash", "capstone-1" of "capstone-1-sliding-window"; of a stage's name too. cmake/RungNumber.cmake
/// does the same.
std::string number_of(const std::string& name);
bool is_capstone(const std::string& name);

/// A rung as folders of the project. A capstone is one too: it ends a part, and is a contract and tests, without a lesson,
/// hints, or a rung below it.
struct Chapter {
    std::string name;  // "01-minimal-flash"

    std::string operation;  // "attention": a folder of common/operations, and the name of the kernel's file

    std::string number() const { return number_of(name); }
    bool is_capstone() const { return flashladder::is_capstone(name); }
    std::string reached() const;  // the number of the rung whose means it has: its own; of a capstone the last of its part
    std::string file() const { return "chapters/" + name + "/" + operation + ".cu"; }  // what the learner edits, from the root
    std::string solution() const { return "solutions/" + name + "/" + operation + ".cu"; }
    std::string lesson() const { return "chapters/" + name + "/README.md"; }  // of a capstone its contract
};

/// The operation that a kernel of this folder of solutions/ computes: its file is named like it.
std::string operation_in(const std::filesystem::path& folder);

/// All rungs, lowest first; each capstone behind the part that it ends.
std::vector<Chapter> chapters();

/// The chapter that "1", "01", "01-minimal-flash" or "capstone-1" names. Throws std::invalid_argument, naming what there is.
Chapter find_chapter(const std::string& name);

/// The id that "1.2", "01.2" or "14b.2" means in this chapter: "1.2", "14b.2".
std::string exercise_id(const Chapter& chapter, const std::string& asked);

/// The rung that this one changes: of its operation the one before it; of the first one of an operation the rung that it is
/// made of, if there is one. Numbers may have gaps.
std::optional<Chapter> below(const Chapter& chapter);

/// Throws std::invalid_argument, saying what makes it, if the learner's file is missing.
void check_is_there(const Chapter& chapter);

// Each returns the exit status of the program.
int show_hint(const std::string& exercise);  // "1.2": those already given, and the next one; of a capstone its contract
int solve_chapter(const Chapter& chapter);   // the solution becomes the learner's file
int reset_chapter(const Chapter& chapter);   // the starter becomes the learner's file

/// The hints for an exercise of this chapter, "1.2", from a question to the shape of the lines. A capstone has none.
std::vector<std::string> hints_of(const Chapter& chapter, const std::string& exercise);

/// The learner's file, about to be built. The build goes by times: if another text was built last, and this one has an
/// older time, as what was put aside and is moved back has, it is given a new one. Throws as check_is_there().
std::string text_to_build(const Chapter& chapter);

/// Builds a program that has the learner's kernel beside solutions, and runs it with these arguments. Returns its exit
/// status; 1 if the kernel does not compile, and then the compiler's words are printed.
int run_with_chapter(const Chapter& chapter, const std::string& program, const std::vector<std::string>& arguments);

/// The starter of a chapter, as it should be committed.
std::string starter_of(const Chapter& chapter);

}  // namespace flashladder
