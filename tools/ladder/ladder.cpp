// The `ladder` program: what a learner needs between two edits. The script of the same name at the root sets everything up
// and calls it. For verbs that run solutions it becomes the program `stages`, which takes minutes to build.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

#include "check.h"
#include "command_line.h"
#include "diff.h"
#include "list.h"
#include "programs.h"
#include "test.h"
#include "watch.h"

namespace {

using namespace flashladder;

int do_it(const CommandLine& line, int argc, char** argv) {
    if (line.verb == "list") return list_chapters();
    if (line.verb == "test") return test_chapter(find_chapter(line.chapter), line.test);
    if (line.verb == "watch") return watch_chapter(find_chapter(line.chapter), line.test);
    if (line.verb == "hint") return show_hint(line.exercise);
    if (line.verb == "solve") return solve_chapter(find_chapter(line.chapter));
    if (line.verb == "reset") return reset_chapter(find_chapter(line.chapter));
    if (line.verb == "check") return check_program(line.check_program);
    if (line.verb == "diff") return show_diff(find_chapter(line.chapter), line.answers);
    if (line.launch.mine || line.profile.mine || line.timeline.mine) {  // which needs no other rung, and is built sooner than all of them
#ifdef FLASHLADDER_GPU
        throw std::runtime_error(fmt::format("./ladder {} --mine is for the emulator: --backend cpu", line.verb));
#endif
        const Chapter chapter = find_chapter(line.chapter);
        return run_with_chapter(chapter, "beside-" + chapter.number(), {argv + 1, argv + argc});
    }
    const std::string stages = build_folder() / "bin/stages";
    execv(stages.c_str(), argv);
    throw std::runtime_error(fmt::format("{} is not built yet: ./ladder {} builds it", stages, line.verb));
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const CommandLine line = parse(argc, argv);
        return line.exit_status ? *line.exit_status : do_it(line, argc, argv);
    } catch (const std::exception& error) {
        fmt::print(stderr, "ladder: {}\n", error.what());
        return 1;
    }
}
