// The programs beside-NN: what `./ladder launch NN --mine`, `profile NN --mine` and `timeline NN --mine` become, with the
// learner's kernel and one solution.
#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>

#include "command_line.h"

int main(int argc, char** argv) {
    using namespace flashladder;
    try {
        const CommandLine line = parse(argc, argv);
        if (line.exit_status) return *line.exit_status;
        const Chapter chapter = find_chapter(line.chapter);
        if (line.launch.mine) return launch_once(chapter, line.launch);
        return line.profile.mine ? profile_rung(chapter, line.profile) : show_timeline(chapter, line.timeline);
    } catch (const std::exception& error) {
        fmt::print(stderr, "ladder: {}\n", error.what());
        return 1;
    }
}
